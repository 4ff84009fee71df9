"""Whole runs in other places than one device: what they learn, what stays frozen, what can be done with them later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embexp
from embexp.cli import commands
from embexp.runs import run as single
from tests import planted_triples
from tests.short_runs import DIM, ITEMS, PRETRAINED, Run, losses, runner
from tests.thoroughness import chosen, left_out

MIRRORED = ("strategy=mirrored", "strategy.replicas=3")
CASES: dict[str, tuple[str, ...]] = {
    "plain": (),
    "loaded, rows frozen in place": (
        *PRETRAINED,
        "init=variable_load",
        "tables.item.storage=variable",
        "optimizer.lazy_adam=false",
    ),
    "rows frozen apart": (*PRETRAINED, "tables.item.storage=split"),
    "rows frozen in their file": (*PRETRAINED, "init@tables.item.init=memory_map"),
    "a frozen table in its file": (
        *PRETRAINED[:1],
        "freeze@tables.item.freeze=table",
        "init@tables.item.init=memory_map",
    ),
}


IN_EVERY_RUN = ("loaded, rows frozen in place", "rows frozen apart", "a frozen table in its file")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return runner(tmp_path_factory)


@pytest.mark.slow
@pytest.mark.parametrize("case", chosen(CASES, IN_EVERY_RUN))
def test_mirrored_runs_learn_what_one_device_learns(run: Run, case: str) -> None:
    alone, shared = run(*CASES[case]), run(*CASES[case], *MIRRORED)
    assert shared.summary["strategy"] == "mirrored"
    np.testing.assert_allclose(losses(shared), losses(alone), rtol=1e-4)
    assert shared.summary["metrics"]["test"]["log_loss"] == pytest.approx(
        alone.summary["metrics"]["test"]["log_loss"], rel=1e-4
    )
    assert shared.summary["freeze"] == alone.summary["freeze"]
    assert shared.summary["freeze"]["item"]["frozen_rows_changed"] == 0
    frozen = 0 if case == "plain" else ITEMS if "a frozen table" in case else 50
    assert shared.summary["freeze"]["item"]["frozen_rows"] == frozen
    for name in ("user", "item"):
        assert shared.summary["tables"][name]["storage"] == alone.summary["tables"][name]["storage"]


@pytest.mark.slow
def test_the_same_run_gives_the_same_bits(run: Run) -> None:
    first, second = run(*MIRRORED), run(*MIRRORED, "name=again")
    assert first.summary["run_id"] == second.summary["run_id"] != run().summary["run_id"]
    assert losses(first) == losses(second)
    assert first.summary["tables"] == second.summary["tables"]
    devices = json.loads((first.directory / "manifest.json").read_text())["devices"]
    assert devices == ["CPU:0", "CPU:1", "CPU:2"]
    (warning,) = [words for words in first.summary["warnings"] if words.startswith("strategy mirrored")]
    assert "no GPU, so the 3 replicas are logical processors of this machine" in warning
    assert not [words for words in run().summary["warnings"] if "logical processors" in words]


@pytest.mark.slow
@pytest.mark.parametrize("case", chosen(["plain", *IN_EVERY_RUN[1:]], IN_EVERY_RUN))
def test_a_finished_mirrored_run_is_read_on_one_device(run: Run, case: str) -> None:
    result = run(*CASES[case], *MIRRORED)
    again = embexp.load_run(result.directory)
    assert again.evaluate() == pytest.approx(result.summary["metrics"]["test"], rel=1e-5)
    assert again.table("item").shape == (ITEMS, DIM)


@pytest.mark.slow
def test_the_best_values_come_back(run: Run) -> None:
    words = ("train.evaluate_every=5", "train.early_stopping.patience=1", "train.early_stopping.min_delta=0.5")
    alone, shared = run(*words), run(*words, *MIRRORED)
    assert alone.status == shared.status == "stopped_early"
    assert shared.summary["best_step"] == alone.summary["best_step"]
    assert shared.summary["metrics"]["test"] == pytest.approx(alone.summary["metrics"]["test"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("negatives", "weight"), [("null", 0), ("8", 0), ("null", 0.5), ("8", 0.5)])
def test_candidates_and_relations_that_all_replicas_share(tmp_path: Path, negatives: str, weight: float) -> None:
    names = [f"p{number}" for number in range(20)]
    triples = [(name, each, names[(place + 1) % 20]) for place, name in enumerate(names) for each in ("next", "near")]
    planted_triples.write(tmp_path, train=triples[3:], valid=triples[:2], test=triples[2:3])
    found, ranked = [], []
    # A TPU takes drawn candidates for a training only, and no evaluation would be possible.
    for strategy in ((), MIRRORED, *([("strategy=tpu_simulator",)] if negatives == "null" else [])):
        spec = embexp.compose(
            [
                "experiment=knowledge_graph",
                f"data.path={tmp_path}",
                f"data.negatives={negatives}",
                f"model.relation_prediction={weight}",
                "tables.entity.dim=16",
                "train.batch_size=8",
                "train.steps=30",
                "train.log_every=1",
                "output.plots=false",
                "output.baselines=false",
                "output.tensorboard=false",
                f"output.cache={tmp_path / 'cache'}",
                "model.dropout=0",
                *strategy,
            ]
        )
        directory = tmp_path / f"run{len(found)}"
        directory.mkdir()
        result = single.run(spec, directory)
        found.append(losses(result))
        ranked.append(result.summary["metrics"]["test"])
    for shared in found[1:]:
        np.testing.assert_allclose(shared, found[0], rtol=1e-4)
    # Ranks are counted where the scores are, and those of a TPU from all scores in NumPy.
    assert all(metrics == pytest.approx(ranked[0], rel=1e-12) for metrics in ranked)


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (
            ["strategy=mirrored", "init=scaffold"],
            "runtime = session: it works only with strategy cpu or a single GPU, but the",
        ),
        (["strategy=gpu", "strategy.devices=2", "runtime=session"], "the strategy is gpu with 2 devices"),
        (
            ["strategy=mirrored", "train.batch_size=1"],
            "train.batch_size = 1: the 2 replicas of strategy mirrored share each batch, and each needs at "
            "least one example",
        ),
        (
            ["strategy=mirrored", "features.history.output_shape=[512,2]"],
            "share each batch by examples, so the first number must be train.batch_size (1024)",
        ),
        (["strategy=tpu_simulator", "strategy.cores=3", "strategy.hosts=2"], "2 hosts can't share 3 cores"),
        (["strategy=mirrored", "strategy.cores=2"], "cores belongs to tpu_simulator, not to mirrored"),
    ],
)
def test_what_a_strategy_can_not_honour(overrides: list[str], fault: str) -> None:
    with pytest.raises(embexp.ConfigError) as caught:
        embexp.compose(overrides)
    assert fault in str(caught.value)


def test_one_gpu_works_in_sessions() -> None:
    assert embexp.compose(["strategy=gpu", "runtime=session"]).strategy.kind == "gpu"


def test_plan_shows_what_works_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["plan", "-m", "strategy=cpu,gpu,mirrored", "init=assign,scaffold"]) == 0
    shown = capsys.readouterr().out
    assert "5 of 6 jobs would run" in shown
    assert "it works only with strategy cpu or a single GPU, but the strategy is mirrored" in shown
    words: dict[str, Any] = {
        "strategy=mirrored": "strategy mirrored over 2 replicas (GPUs, or logical processors of this machine where"
        " there are fewer), runtime function (auto)",
        "strategy=gpu": "strategy gpu of 1 device, runtime",
        "strategy=tpu_simulator": "strategy tpu_simulator of 2 cores (a simulation), runtime",
    }
    for override, expected in words.items():
        assert commands.main(["plan", override]) == 0
        assert expected in capsys.readouterr().out


@left_out()  # in every run, clicks
@pytest.mark.slow
def test_movielens_ends_where_it_does_on_one_device(root: Path, tmp_path: Path) -> None:
    data = root.parent / "shared" / "data" / "ml-100k"
    if not data.exists():
        pytest.skip("without the real data: ml-100k")
    found = {}
    for strategy in ("cpu", "mirrored", "tpu_simulator"):
        words = [
            "experiment=movielens",
            f"data.path={data}",
            "train.epochs=4",
            f"strategy={strategy}",
        ]
        (tmp_path / strategy).mkdir()
        more = ["output.plots=false", "output.baselines=false", f"output.cache={tmp_path / 'c'}"]
        result = single.run(embexp.compose([*words, *more]), tmp_path / strategy)
        found[strategy] = result.summary["metrics"]["test"]["rmse"]
    assert max(abs(rmse - found["cpu"]) for rmse in found.values()) <= 0.005
