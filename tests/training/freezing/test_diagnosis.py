"""Rows that never moved: the right count, tokens and cause, in every runtime and layout."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import embexp
from embexp.data.vocabularies.vocabulary import IdentityVocabulary
from embexp.reports.results import Results
from embexp.runs import run as single
from embexp.specs.optimizers import SGD
from embexp.specs.tables import Storage
from embexp.training.freezing import watching
from embexp.training.freezing.policies import Grouping, TablePolicy
from embexp.training.freezing.watching import Cause, NeverMoved, Training, learning_steps

OLD, NEW, USERS, DIM = 25, 15, 20, 8
MODEL = '''
import keras

def right(activations):
    return keras.Model(
        inputs=activations, outputs=keras.ops.sum(activations["user"] * activations["item"], axis=-1)
    )

def wrong(activations):
    """Items whose example says they are new get no gradient."""
    new = activations["dense.features"][:, :1] > 0
    item = activations["item"]
    item = keras.ops.where(new, keras.ops.stop_gradient(item), item)
    return keras.Model(inputs=activations, outputs=keras.ops.sum(activations["user"] * item, axis=-1))
'''
LAYOUTS = {
    "variable": ["tables.item.storage=variable"],
    "split": ["tables.item.storage=split"],
    "memory_map": ["init@tables.item.init=memory_map"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ratings of old and new items, vectors of the old ones, and a user's module of models."""
    path = tmp_path_factory.mktemp("trouble")
    generator = np.random.default_rng(0)
    with (path / "ratings.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item", "new", "rating"])
        for _ in range(3000):
            item = int((OLD + NEW) * generator.random() ** 1.5)
            name = f"old{item}" if item < OLD else f"new{item}"
            writer.writerow([f"u{generator.integers(USERS)}", name, int(item >= OLD), f"{generator.normal():.3f}"])
    np.save(path / "old.npy", generator.normal(0, 0.5, (OLD, DIM)).astype(np.float32))
    (path / "old.tokens.txt").write_text("".join(f"old{item}\n" for item in range(OLD)))
    (path / "models_in_trouble.py").write_text(MODEL)
    before = list(sys.path)
    sys.path.insert(0, str(path))
    yield path
    sys.path[:] = before
    sys.modules.pop("models_in_trouble", None)


def run(folder: Path, directory: Path, *overrides: str, model: str = "right") -> single.RunResult:
    spec = embexp.compose(
        [
            "experiment=ratings",
            f"data.path={folder / 'ratings.csv'}",
            "data.label=rating",
            "data.dense_features=[new]",
            *[f"~{group}.{name}_bias" for group in ("tables", "features") for name in ("user", "item")],
            "model=keras",
            f"model.function=models_in_trouble:{model}",
            f"tables.user.dim={DIM}",
            "optimizer=sgd",
            "optimizer.learning_rate=0.1",
            "train.batch_size=64",
            "train.epochs=2",
            "output.plots=false",
            "output.baselines=false",
            "output.tensorboard=false",
            f"output.cache={folder / 'cache'}",
            *overrides,
        ]
    )
    directory.mkdir()
    return single.run(spec, directory)


def of_file(folder: Path) -> list[str]:
    return ["pretrained@tables.item.pretrained=file", f"tables.item.pretrained.path={folder / 'old.npy'}"]


def about(result: single.RunResult, table: str) -> list[str]:
    return [line for line in result.summary["warnings"] if line.startswith(f"tables.{table}:")]


def about_rows(result: single.RunResult) -> list[str]:
    """All warnings, but for that of a training so short that it is no better than a constant."""
    return [line for line in result.summary["warnings"] if not line.startswith("no better than a constant")]


def because(**counts: int) -> dict[str, int]:
    return {"learning_rate_zero": 0, "no_gradient": 0, "never_met": 0, **counts}


PAIRS = [("function", layout) for layout in LAYOUTS] + [("session", "variable"), ("session", "split")]


@pytest.mark.slow
@pytest.mark.parametrize(("runtime", "layout"), [*PAIRS, ("estimator", "variable")])
def test_new_rows_that_no_gradient_reaches(folder: Path, tmp_path: Path, runtime: str, layout: str) -> None:
    """Batches mix old and new items; the old ones stay, or all but a few of them."""
    wanted = [*of_file(folder), f"runtime={runtime}", *LAYOUTS[layout], "freeze@tables.item.freeze=rows"]
    tokens = ",".join(f"old{item}" for item in range(OLD - 5))
    result = run(folder, tmp_path / "run", *wanted, f"tables.item.freeze.tokens=[{tokens}]", model="wrong")
    found: dict[str, Any] = result.summary["freeze"]["item"]
    assert result.summary["tables"]["item"]["storage"] == layout
    assert found["frozen_rows_changed"] == 0
    assert found["trainable_rows"] == NEW + 5 + 1
    assert found["trainable_rows_touched"] == NEW + 5
    assert found["trainable_rows_moved"] == 5
    assert found["trainable_rows_never_moved"] == NEW
    assert found["never_moved_because"] == because(no_gradient=NEW)
    assert found["special_rows_never_met"] == 1
    (warning,) = about(result, "item")
    assert warning.startswith(
        f"tables.item: {NEW} of {NEW + 6} trainable rows never moved: they were looked up, but no"
    )
    vocabulary = embexp.load_run(result.directory).vocabulary("item")
    most_frequent = [token for token in vocabulary.tokens() if token.startswith("new")][:5]
    assert warning.endswith(f"({', '.join(map(repr, most_frequent))}, …)")
    assert not about(result, "user")
    assert result.summary["freeze"]["user"]["trainable_rows_moved"] == USERS


def test_the_closing_table_shows_them(folder: Path, tmp_path: Path) -> None:
    result = run(folder, tmp_path / "run", model="wrong")
    assert result.summary["freeze"]["item"]["trainable_rows_never_moved"] == NEW
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(Results(result.summary, result.directory))
    text = console.export_text()
    assert re.search(r"rows touched +never moved\n", text)  # and no column of frozen rows, as there are none
    assert re.search(rf"item +41 .* {NEW} \(36\.6%\)", text)
    assert re.search(rf"warning: tables.item: {NEW} of 41 trainable rows never moved", text)


def test_nothing_is_said_where_nothing_is_wrong(folder: Path, tmp_path: Path) -> None:
    result = run(folder, tmp_path / "run")
    assert not about_rows(result)
    for name, rows in (("user", USERS), ("item", OLD + NEW)):
        found = result.summary["freeze"][name]
        assert found["trainable_rows_moved"] == found["trainable_rows_touched"] == rows
        assert found["trainable_rows_never_moved"] == 0
        assert found["special_rows_never_met"] == 1


def test_rows_that_training_never_met(folder: Path, tmp_path: Path) -> None:
    result = run(folder, tmp_path / "run", "train.steps=1", "tables.item.vocabulary_size=50")
    found = result.summary["freeze"]["item"]
    met = found["trainable_rows_touched"]
    assert 10 < met < OLD + NEW
    assert found["trainable_rows_moved"] == met
    assert found["never_moved_because"] == because(never_met=OLD + NEW - met)
    assert found["special_rows_never_met"] == 10  # the OOV row, and nine that stand for nothing
    (warning,) = about(result, "item")
    count = f"{OLD + NEW - met} of 50 trainable rows never moved"
    assert re.search(rf"{count}: they never occurred in training, which saw 2\.6% of its data \('\w+', ", warning)


def test_tables_whose_rows_were_merely_never_met_share_a_line(folder: Path, tmp_path: Path) -> None:
    result = run(folder, tmp_path / "run", "train.steps=1", "train.batch_size=8")
    counts = {name: found["trainable_rows_never_moved"] for name, found in result.summary["freeze"].items()}
    assert set(counts) == {"user", "item"}
    assert min(counts.values()) > 0
    [warning] = about_rows(result)
    shown = ", ".join(
        f"tables.{name} {counts[name]} of {rows}" for name, rows in (("user", USERS + 1), ("item", OLD + NEW + 1))
    )
    words = "they never occurred in training, which saw 0.3% of its data"
    assert warning == f"trainable rows never moved ({shown}): {words}"


def test_tables_with_the_same_reason_share_a_line() -> None:
    def of(name: str, *reasons: str) -> watching.Diagnosis:
        found = NeverMoved(1, {Cause.NEVER_MET: np.ones(1, np.bool_)}, 0)
        return watching.Diagnosis(found, name, 2, tuple(watching.Reason(each, 1, "row 0") for each in reasons))

    quiet = watching.Diagnosis(NeverMoved(2, {}, 0))
    assert watching.never_moved_warnings(
        [of("a", "were never met"), of("b", "had no rate"), quiet, of("c", "were never met")]
    ) == [
        "trainable rows never moved (tables.a 1 of 2, tables.c 1 of 2): they were never met",
        "tables.b: 1 of 2 trainable rows never moved: they had no rate (row 0)",
    ]
    assert watching.never_moved_warnings([of("a", "were never met", "had no rate")]) == [
        "tables.a: 1 of 2 trainable rows never moved: they were never met (row 0)",
        "tables.a: 1 of 2 trainable rows never moved: they had no rate (row 0)",
    ]
    [warning] = watching.never_moved_warnings([of(f"c{number}", "were never met") for number in range(26)])
    counts = "tables.c0 1 of 2, tables.c1 1 of 2, tables.c2 1 of 2 and 23 more tables"
    assert warning == f"trainable rows never moved ({counts}): they were never met"
    assert watching.never_moved_warnings([quiet]) == []


@pytest.mark.parametrize(("unmoved", "told"), [(0, False), (1, False), (9, False), (10, True), (1000, True)])
def test_a_gradient_of_zero_for_a_few_of_many_rows_is_no_warning(unmoved: int, told: bool) -> None:
    changed = np.arange(1000 + unmoved) >= unmoved
    policy = TablePolicy(len(changed), Storage.VARIABLE)
    training = Training(SGD(learning_rate=0.1), steps=5, total_steps=5, epochs=1.0)
    vocabulary = IdentityVocabulary(len(changed))
    found = watching.diagnose("item", changed, np.ones_like(changed), policy, vocabulary, training)
    assert found.as_json()["never_moved_because"] == because(no_gradient=unmoved)
    assert bool(watching.never_moved_warnings([found])) == told


def test_a_learning_rate_that_is_zero_throughout(folder: Path, tmp_path: Path) -> None:
    zero = ["optimizer@tables.item.optimizer=sgd", "tables.item.optimizer.schedule.kind=piecewise"]
    zero += ["+tables.item.optimizer.schedule.boundaries=[1000]", "+tables.item.optimizer.schedule.values=[0.0,1.0]"]
    result = run(folder, tmp_path / "run", *zero)
    steps = result.summary["steps"]
    found = result.summary["freeze"]["item"]
    assert found["trainable_rows_touched"] == OLD + NEW
    assert found["never_moved_because"] == because(learning_rate_zero=OLD + NEW)
    (warning,) = about(result, "item")
    assert f"they had a learning rate of 0 in all {steps} steps, by the schedule of their optimizer" in warning
    assert not about(result, "user")


def test_a_multiplier_that_is_zero_to_the_end(folder: Path, tmp_path: Path) -> None:
    phases = "[{rules: [{kind: pretrained_rows}]}, {step: 70, rules: [{kind: pretrained_rows, multiplier: 0.5}]}]"
    policy = [*of_file(folder), "freeze@tables.item.freeze=schedule", f"tables.item.freeze.phases={phases}"]
    result = run(folder, tmp_path / "run", *policy, "train.steps=70")
    found = result.summary["freeze"]["item"]
    assert (found["frozen_rows"], found["trainable_rows_moved"]) == (0, NEW)
    assert found["never_moved_because"] == because(learning_rate_zero=OLD)
    (warning,) = about(result, "item")
    assert "they had a multiplier of 0 in all 70 steps, and may move from step 70 on ('old" in warning
    thawed = run(folder, tmp_path / "thawed", *policy, "train.steps=75")
    found = thawed.summary["freeze"]["item"]
    assert found["never_moved_because"]["learning_rate_zero"] == 0
    assert found["trainable_rows_moved"] > NEW


def test_rows_are_looked_at_before_better_values_are_restored(folder: Path, tmp_path: Path) -> None:
    """With steps so large that every evaluation is worse than the first, what is kept is what one step made."""
    early = ["train.evaluate_every=1", "train.early_stopping.patience=60", "optimizer.learning_rate=10.0"]
    result = run(folder, tmp_path / "run", *early, "train.steps=6")
    found = result.summary["freeze"]["item"]
    kept = embexp.load_run(result.directory).table("item")
    first = run(folder, tmp_path / "first", *early, f"train.steps={result.summary['best_step']}")
    assert result.summary["best_step"] < result.summary["steps"]
    assert found["trainable_rows_moved"] > first.summary["freeze"]["item"]["trainable_rows_moved"]
    np.testing.assert_array_equal(kept, embexp.load_run(first.directory).table("item"))


def test_nobody_looks_without_digests(folder: Path, tmp_path: Path) -> None:
    result = run(folder, tmp_path / "run", "output.digests=false", "train.steps=1", model="wrong")
    found = json.loads((result.directory / "summary.json").read_text())["freeze"]["item"]
    assert found["trainable_rows_moved"] is found["trainable_rows_never_moved"] is found["never_moved_because"] is None
    assert found["trainable_rows_touched"] > 0
    assert not about(result, "item")


def test_steps_at_which_a_rate_is_above_zero() -> None:
    def training(**schedule: Any) -> Training:
        return Training(SGD(learning_rate=0.1, schedule=schedule), steps=100, total_steps=100, epochs=1.0)

    assert learning_steps(training(kind="constant"), None).tolist() == [100]
    assert learning_steps(training(kind="cosine", decay_steps=60), None).tolist() == [60]
    piecewise = training(kind="piecewise", boundaries=[10, 90], values=[0.0, 1.0, 0.0])
    assert learning_steps(piecewise, None).tolist() == [80]
    tiny = Training(SGD(learning_rate=1e-60), steps=3, total_steps=3, epochs=1.0)
    assert learning_steps(tiny, None).tolist() == [0]
    # Groups: never, from step 20 on, to step 20; the schedule is above zero in steps 10 to 89.
    multipliers = np.array([[0, 0, 2], [0, 0.5, 0]], np.float32)
    groups = Grouping(np.array([0, 1, 2], np.uint8), multipliers, (0, 20), ())
    assert learning_steps(piecewise, groups).tolist() == [0, 70, 10]
    assert learning_steps(Training(piecewise.optimizer, 15, 100, 1.0), groups).tolist() == [0, 0, 5]
