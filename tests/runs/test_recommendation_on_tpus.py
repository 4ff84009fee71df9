"""Recommendation on simulated TPUs: what one device learns, with frozen rows, and resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.cli import commands
from embexp.errors import RunError
from embexp.records.folder import RunFolder
from embexp.runs import experiment
from embexp.runs import run as single
from embexp.runs.run import Observer
from tests import checkpoint_values, planted_data
from tests.contracts.contract import Interrupts
from tests.short_runs import losses
from tests.thoroughness import chosen

ON_TPUS = {
    "V1": ("strategy=tpu_simulator",),
    "V2": ("strategy=tpu_simulator", "strategy.embedding_feature=V2", "strategy.sparse_cores=2"),
}
LOSSES: dict[str, tuple[str, ...]] = {
    "shared negatives, histories": ("loss.negatives=8",),
    "of the batch": ("loss.negatives=null",),
    "drawn for each": ("loss=bpr", "loss.negatives=3"),
    "all items": ("loss=softmax",),
    "cosines": ("loss=cosine_contrastive", "loss.negatives=8", "model.temperature=1"),
}
IN_EVERY_RUN = ("shared negatives, histories", "of the batch")
FROZEN = ("loss.negatives=8", "freeze@tables.item.freeze=rows", "tables.item.freeze.rows=[[2,9]]")
Made = Callable[..., single.RunResult]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_data.liked(
        tmp_path_factory.mktemp("data") / "liked.csv", users=50, items=30, groups=3, each=8, seed=0
    )


def words_of(file: Path, *overrides: str) -> list[str]:
    return [
        "experiment=recommendation",
        f"data.path={file}",
        "data.timestamp=time",
        "tables.user.dim=8",
        "train.batch_size=32",
        "train.epochs=null",
        "train.steps=24",
        "train.log_every=1",
        "train.evaluate_every=24",  # once: each pass over a TPU's batches takes as long as many steps
        "train.early_stopping.patience=null",
        "output.tensorboard=false",
        "output.plots=false",
        "output.baselines=false",
        f"output.cache={file.parent}/cache",
        *overrides,
    ]


def spec_of(file: Path, *overrides: str) -> embexp.RunSpec:
    return embexp.compose(words_of(file, *overrides))


@pytest.fixture(scope="module")
def run(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    made: dict[tuple[str, ...], single.RunResult] = {}

    def run(*overrides: str) -> single.RunResult:
        if overrides not in made:
            made[overrides] = single.run(spec_of(file, *overrides), tmp_path_factory.mktemp("run"))
        return made[overrides]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("tpu", ON_TPUS)
@pytest.mark.parametrize("loss", chosen(LOSSES, IN_EVERY_RUN))
def test_tpus_learn_what_one_device_learns(run: Made, loss: str, tpu: str) -> None:
    """A processor evaluates it too: the vectors of items that fill a TPU's batches up count nowhere."""
    words = LOSSES[loss]
    alone, simulated = run(*words), run(*words, *ON_TPUS[tpu])
    np.testing.assert_allclose(losses(simulated), losses(alone), rtol=1e-4)
    for split in ("validation", "test"):
        assert simulated.summary["metrics"][split] == pytest.approx(alone.summary["metrics"][split], abs=5e-3)
    assert embexp.load_run(simulated.directory).evaluate() == pytest.approx(
        simulated.summary["metrics"]["test"], abs=5e-3
    )


@pytest.mark.slow
@pytest.mark.parametrize("tpu", ON_TPUS)
def test_frozen_rows_and_a_resumed_run_keep_their_bits(run: Made, file: Path, tpu: str, tmp_path: Path) -> None:
    alone, whole = run(*FROZEN), run(*FROZEN, *ON_TPUS[tpu])
    assert whole.summary["freeze"]["item"]["frozen_rows"] == 7
    assert whole.summary["freeze"]["item"]["frozen_rows_changed"] == 0
    np.testing.assert_allclose(losses(whole), losses(alone), rtol=1e-4)
    spec = spec_of(file, *FROZEN, *ON_TPUS[tpu])
    single.run(spec, tmp_path, observer=Observer(lambda: [Interrupts(10)]))
    experiment.resume(tmp_path)
    found, expected = (
        checkpoint_values.tables(RunFolder(each).final_checkpoint) for each in (tmp_path, whole.directory)
    )
    for name, slots in expected.items():
        for slot, values in slots.items():
            assert found[name][slot].tobytes() == values.tobytes(), (name, slot)
    assert embexp.load_run(tmp_path).summary["metrics"] == whole.summary["metrics"]


@pytest.mark.slow
def test_sparse_cores_share_negatives_equally(file: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="each chip has 25 vectors of it, and its 2 SparseCores can't share them"):
        single.run(spec_of(file, *ON_TPUS["V2"], "loss.negatives=9"), tmp_path)


def test_plan_has_room_for_the_longest_history(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["plan", "--scan", *words_of(file), *ON_TPUS["V2"]]) == commands.DONE
    shown = capsys.readouterr().out
    assert "batches bring more" not in shown
