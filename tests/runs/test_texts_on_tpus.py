"""Texts on simulated TPUs: what differs from one device is what dropout draws in the second replica."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.runs import run as single
from tests.short_runs import losses

TPU = ("strategy=tpu_simulator",)
V2 = (*TPU, "strategy.embedding_feature=V2", "strategy.sparse_cores=1")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the texts are read once, for all runs."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "tpu"),
    [((), (*TPU, "strategy.cores=1")), (("model.dropout=0",), TPU), (("model.dropout=0",), V2)],
    ids=["one core", "no dropout, V1", "no dropout, V2"],
)
def test_texts_train_as_on_one_device(
    words: tuple[str, ...], tpu: tuple[str, ...], cache: Path, tmp_path: Path
) -> None:
    """With dropout, replicas draw numbers of their own: two cores end with other metrics, as another seed does."""
    found = []
    for number, strategy in enumerate(((), tpu)):
        spec = embexp.compose(
            [
                *("experiment=text_classification", "train.epochs=null", "train.steps=12", "train.log_every=1"),
                *("train.evaluate_every=12", "train.early_stopping.patience=null", "model.maps=10"),
                *("tables.word.dim=8", "features.words.max_sequence_length=20", "data.split.test=0.2"),
                *("output.plots=false", "output.tensorboard=false", "output.baselines=false"),
                *(f"output.cache={cache}", *words, *strategy),
            ]
        )
        directory = tmp_path / f"run{number}"
        directory.mkdir()
        found.append(single.run(spec, directory))
    alone, simulated = found
    np.testing.assert_allclose(losses(simulated), losses(alone), rtol=1e-4)
    test = alone.summary["metrics"]["test"]
    assert simulated.summary["metrics"]["test"] == pytest.approx(test, abs=5e-3)
