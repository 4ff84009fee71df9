"""The study of weight decays: what it chooses, and that its final run is the run that a config could have said."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import embexp
from embexp.errors import RunError
from embexp.runs import experiment, rerun
from embexp.runs import run as single
from embexp.runs.studies.auto_decay import _at_the_end
from embexp.runs.verification import verify
from embexp.specs.studies.choices import study_runs
from embexp.training.listeners import Listener
from tests import planted_triples


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, generator = tmp_path_factory.mktemp("ratings"), np.random.default_rng(0)
    users, items = generator.standard_normal((30, 2)), generator.standard_normal((25, 2))
    lines = []
    for row in range(600):
        user, item = generator.integers(30), generator.integers(25)
        stars = np.clip(np.rint(3 + users[user] @ items[item] + 0.5 * generator.standard_normal()), 1, 5)
        lines.append(f"u{user},i{item},{stars:.0f},{row}")
    head = "user,item,rating,time"
    (folder / "all.csv").write_text("\n".join([head, *lines]) + "\n")
    for name, part in (("train", lines[:400]), ("valid", lines[400:500]), ("test", lines[500:])):
        (folder / f"{name}.csv").write_text("\n".join([head, *part]) + "\n")
    return folder


TRIED = "study.values=[0.01,0.08,0.24]"
OUTPUT = ("output.tensorboard=false", "output.plots=false", "output.baselines=false")


def spec(data: Path, *more: str, file: str = "all.csv") -> embexp.RunSpec:
    return embexp.compose(
        [
            *("experiment=ratings", f"data.path={data}/{file}", "data.label=rating", "tables.user.dim=4"),
            *("tables.item.dim=4", "train.batch_size=32", "train.epochs=8", "train.early_stopping.patience=2", *OUTPUT),
            *("optimizer.learning_rate=1", f"output.cache={data}/cache", "study=auto_decay", *more),
        ]
    )


@pytest.fixture(scope="module")
def study(data: Path, tmp_path_factory: pytest.TempPathFactory) -> single.RunResult:
    return experiment.run(spec(data, TRIED), tmp_path_factory.mktemp("study"))


def tables(directory: Path) -> dict[str, bytes]:
    run = embexp.load_run(directory)
    return {name: run.table(name).tobytes() for name in run.spec.tables}


def test_the_best_decay_trains_all_of_the_training_data(study: single.RunResult, data: Path, tmp_path: Path) -> None:
    summary = study.summary
    assert list(summary["decays"].values()) == [0.01, 0.08, 0.24]
    reached = {name: summary["runs"][name]["metrics"]["validation"]["rmse"] for name in summary["decays"]}
    chosen = min(reached, key=lambda name: reached[name])
    assert summary["chosen"]["run"] == chosen
    best, final = summary["runs"][chosen], summary["runs"]["final"]
    assert final["examples"] == {"train": 540, "validation": 0, "test": 60}
    assert final["steps"] == round(540 / 480 * best["best_step"])
    assert summary["metrics"]["test"] == final["metrics"]["test"]
    # The same, said by a config: cosine over the length of a whole run of 8 epochs.
    said = spec(
        data,
        "study=none",
        "data.split.validation=0",
        f"optimizer.weight_decay_factor={summary['chosen']['weight_decay_factor']!r}",
        f"optimizer.schedule.decay_steps={round(540 / 480 * 8 * 480 / 32)}",
        f"train.steps={final['steps']}",
        "train.epochs=null",
        "train.early_stopping.patience=null",
    )
    alone = single.run(said, tmp_path)
    assert tables(alone.directory) == tables(study.directory / "final")


def test_a_run_with_a_decay_is_that_of_its_config(study: single.RunResult, data: Path, tmp_path: Path) -> None:
    alone = single.run(spec(data, "study=none", "optimizer.weight_decay_factor=0.24"), tmp_path)
    assert alone.summary["run_id"] == study.summary["runs"]["decay_3"]["run_id"]
    assert tables(alone.directory) == tables(study.directory / "decay_3")


def test_it_is_verified_and_shown(study: single.RunResult) -> None:
    def here(planned: rerun.Rerun, directory: Path) -> None:
        experiment.run(planned.spec, directory, replay=planned.replay)

    assert verify(study.directory, again=here).identical
    console = Console(width=120)
    with console.capture() as shown:
        console.print(experiment.results(study.summary, study.directory))
    text = shown.get()
    chosen = study.summary["chosen"]["weight_decay_factor"]
    assert f"weight decay {chosen:.4g} was chosen; final is trained with 540 examples" in text
    assert text.count("decay_") >= 3


class Interrupting(Listener):
    """Interrupts at a step of a run."""

    def logged(self, step: int, *rest: Any, **more: Any) -> None:
        if step >= 20:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("at", [2, 4])
def test_interrupted_and_resumed_gives_the_same_bits(
    study: single.RunResult, data: Path, tmp_path: Path, at: int
) -> None:
    begun: list[str] = []

    def listeners() -> list[Listener]:
        return [Interrupting()] if len(begun) == at else []

    observer = single.Observer(listeners=listeners, announce=begun.append)
    first = experiment.run(spec(data, TRIED, "train.log_every=10"), tmp_path, observer)
    assert first.status == "interrupted"
    assert len(begun) == at
    assert first.summary["chosen"] is None
    whole = experiment.resume(tmp_path)
    assert whole.status == "completed"
    assert whole.summary["chosen"]["run"] == study.summary["chosen"]["run"]
    assert tables(tmp_path / "final") == tables(study.directory / "final")


def test_without_a_validation_split_a_tenth_is_held_out_for_the_choice(data: Path, tmp_path: Path) -> None:
    settings = ("data.split.validation=0", "train.early_stopping.patience=null", "study.values=[0.01,0.1]")
    result = experiment.run(spec(data, *settings, "train.epochs=2"), tmp_path)
    runs = result.summary["runs"]
    assert runs["decay_1"]["examples"] == {"train": 480, "validation": 60, "test": 60}
    assert runs["final"]["examples"] == {"train": 540, "validation": 0, "test": 60}
    assert runs["decay_1"]["steps"] == 30
    assert runs["final"]["steps"] == 34  # 2 epochs of 540 / 32


def test_given_files_of_validation_are_trained_too(data: Path, tmp_path: Path) -> None:
    paths = f"data.path={{train: {data}/train.csv, validation: {data}/valid.csv, test: {data}/test.csv}}"
    result = experiment.run(spec(data, paths, "study.values=[0.01,0.1]", "train.epochs=2"), tmp_path)
    assert result.summary["runs"]["final"]["examples"] == {"train": 500, "validation": 0, "test": 100}


def test_in_recommendation_the_last_but_one_trains_too(data: Path, tmp_path: Path) -> None:
    words = ["experiment=recommendation", f"data.path={data}/all.csv", "data.timestamp=time", "study=auto_decay"]
    small = ["tables.user.dim=4", "train.batch_size=64", "train.epochs=2", f"output.cache={data}/cache", *OUTPUT]
    result = experiment.run(embexp.compose([*words, *small]), tmp_path)
    summary = result.summary
    assert list(summary["decays"].values()) == [0.0, 0.1, 0.3, 1.0, 3.0]
    assert summary["metric"] == "ndcg_at_10"
    reached = {name: summary["runs"][name]["metrics"]["validation"]["ndcg_at_10"] for name in summary["decays"]}
    assert summary["chosen"]["run"] == max(reached, key=lambda name: reached[name])
    tried, final = summary["runs"]["decay_1"]["examples"], summary["runs"]["final"]["examples"]
    assert tried["validation"] == 30
    assert final["train"] == tried["train"] + tried["validation"]
    assert final["test"] == tried["test"] == 30
    assert final["validation"] == 0


def test_where_validation_comes_with_the_data_the_best_run_is_the_result(tmp_path: Path) -> None:
    graph = planted_triples.divided(tmp_path / "graph", planted_triples.circle(12), test=8, valid=8)
    words = ["experiment=knowledge_graph", f"data.path={graph}", "study=auto_decay", "study.values=[0,0.01]"]
    spec = embexp.compose([*words, "train.epochs=2", f"output.cache={tmp_path}/cache", *OUTPUT])
    result = experiment.run(spec, tmp_path / "study") if (tmp_path / "study").mkdir() is None else None
    assert result is not None
    chosen = result.summary["chosen"]
    assert chosen["directory"] == chosen["run"]
    assert list(result.summary["runs"]) == ["decay_1", "decay_2"]


def test_a_decay_that_diverges_is_not_chosen(data: Path, tmp_path: Path) -> None:
    touch = ("optimizer.weight_decay_per=touch", "optimizer.multiply_weight_decay_factor_by_learning_rate=false")
    result = experiment.run(spec(data, *touch, "study.values=[0.001,30]", "train.epochs=3"), tmp_path)
    assert result.summary["runs"]["decay_2"]["status"] == "diverged"
    assert result.summary["chosen"]["run"] == "decay_1"
    assert result.summary["runs"]["final"]["status"] == "completed"


def test_if_all_diverge_it_says_so(data: Path, tmp_path: Path) -> None:
    touch = ("optimizer.weight_decay_per=touch", "optimizer.multiply_weight_decay_factor_by_learning_rate=false")
    with pytest.raises(RunError, match=r"every decay diverged, or none could be judged: set smaller study.values"):
        experiment.run(spec(data, *touch, "study.values=[30,40]", "train.epochs=3"), tmp_path)


def test_values_go_around_that_of_the_config(data: Path) -> None:
    chosen = study_runs(spec(data, "study.values=[0.5,0.25]"), Path())
    assert [run.optimizer.weight_decay_factor for run in chosen.values()] == [0.5, 0.25]
    around = study_runs(spec(data), Path())
    found = [run.optimizer.weight_decay_factor for run in around.values()]
    assert found == pytest.approx([0.08 / 9, 0.08 / 3, 0.08, 0.24, 0.72])
    from_nothing = study_runs(spec(data, "optimizer.weight_decay_factor=0", "optimizer.weight_decay_per=touch"), Path())
    assert [run.optimizer.weight_decay_factor for run in from_nothing.values()] == [0.0, 0.1, 0.3, 1.0, 3.0]
    assert all(run.optimizer.multiply_weight_decay_factor_by_learning_rate for run in from_nothing.values())


def test_the_best_at_an_end_is_said() -> None:
    decays = {"decay_1": 0.1, "decay_2": 0.3, "decay_3": 0.9}
    assert list(_at_the_end(decays, "decay_2")) == []
    assert list(_at_the_end(decays, None)) == []
    [largest] = _at_the_end(decays, "decay_3")
    assert largest.startswith("weight decay 0.9 is the largest of those that were tried")
    assert largest.endswith("try study.values=[0.9,2.7]")
    [smallest] = _at_the_end(decays, "decay_1")
    assert "smallest" in smallest
    assert list(_at_the_end({"decay_1": 0.0, "decay_2": 0.1}, "decay_1")) == []  # there is nothing below 0
