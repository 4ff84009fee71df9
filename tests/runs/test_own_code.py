"""Choices that the user's own functions make: those that do what a shipped choice does give its bits."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import embexp
from embexp.errors import ConfigError, UsageError
from embexp.initialization import filling
from embexp.runs import run as single
from embexp.runs.prepare import prepare
from embexp.specs.base import named_code
from tests import short_runs

MODULE = """
import keras
import numpy as np
import pyarrow.parquet as pq
import tensorflow as tf

from embexp.initialization import InitMethod

def log_loss(labels, logits):
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

def mean_loss(labels, logits):
    return tf.reduce_mean(log_loss(labels, logits))

def brier(labels, predictions, power=2):
    assert labels.shape == predictions.shape and predictions.min() >= 0 and predictions.max() <= 1
    return np.mean(np.abs(predictions - labels) ** power)

def text(labels, predictions):
    return "good"

def not_finite(labels, predictions):
    return np.inf

def sgd(learning_rate, **args):
    return keras.optimizers.SGD(learning_rate, **args)

def nothing(*args, **more):
    return None

def adagrad(rows, slots, gradients, learning_rate):
    sums = slots["accumulators"] + gradients * gradients
    return rows - learning_rate * gradients * tf.math.rsqrt(sums), {"accumulators": sums}

def no_slots(rows, slots, gradients, learning_rate):
    return rows, {}

def narrow(rows, slots, gradients, learning_rate):
    return rows[:, :1], slots

def broken(rows, slots, gradients, learning_rate):
    return 1 / 0

def first(facts, count):
    return np.arange(facts.rows) < count

def numbers(facts):
    return np.arange(facts.rows)

def assign():
    def eagerly(part, rows):
        part.write(0, rows.read(0, part.rows))
    return InitMethod(eagerly=eagerly)

def table(path):
    return pq.read_table(path)

def parts(path, rows):
    return iter(pq.read_table(path).to_batches(max_chunksize=rows))

def columns(path):
    return pq.read_table(path).to_pydict()

def uneven(path):
    yield {"user": ["a"]}
    yield {"user": ["a"], "item": ["b"]}

def interrupted(path):
    yield {"user": ["a"]}
    raise OSError("the database has gone away")

def seven(path):
    return 7

def misspelt(activations):
    x = keras.layers.Concatenate()(list(activations.values()))
    return keras.Model(inputs=activations, outputs=keras.layers.Dense(1)(y))
"""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder with the user's module."""
    path = tmp_path_factory.mktemp("mine")
    (path / "own_choices.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.setattr(sys, "path", list(sys.path))
        yield path
        sys.modules.pop("own_choices", None)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> short_runs.Run:
    return short_runs.runner(tmp_path_factory)


def own(group: str, function: str, path: str = "") -> tuple[str, ...]:
    return (f"{group}=custom", f"{path or group}.function=own_choices:{function}")


def tensors(directory: Path) -> dict[str, bytes]:
    reader = tf.train.load_checkpoint(str(directory / "checkpoints" / "final" / "checkpoint"))
    names = [name for name in reader.get_variable_to_shape_map() if "OBJECT_GRAPH" not in name]
    return {name: np.asarray(reader.get_tensor(name)).tobytes() for name in names}


SHIPPED = {
    "loss": (own("loss", "log_loss"), ()),
    "dense optimizer": (
        (*own("dense_optimizer", "sgd"), "dense_optimizer.learning_rate=0.1", "+dense_optimizer.args.momentum=0.5"),
        ("dense_optimizer=sgd", "dense_optimizer.learning_rate=0.1", "dense_optimizer.momentum=0.5"),
    ),
    "table optimizer": (
        (
            *own("optimizer", "adagrad"),
            "optimizer.slots={accumulators: 0.1}",
            "optimizer.learning_rate=0.1",
            "optimizer.weight_decay_factor=0.01",
            "schedule@optimizer.schedule=cosine",
        ),
        (
            "optimizer=adagrad",
            "optimizer.initial_accumulator_value=0.1",
            "optimizer.learning_rate=0.1",
            "optimizer.weight_decay_factor=0.01",
            "schedule@optimizer.schedule=cosine",
        ),
    ),
    "freeze policy": (
        (*own("freeze@tables.user.freeze", "first", "tables.user.freeze"), "+tables.user.freeze.args.count=9"),
        ("freeze@tables.user.freeze=rows", "tables.user.freeze.rows=[[0,9]]"),
    ),
    "rule of a schedule": (
        (
            "freeze=schedule",
            "freeze.phases=[{rules: [{kind: custom, multiplier: 0.5, function: 'own_choices:first',"
            " args: {count: 9}}]}]",
        ),
        ("freeze=schedule", "freeze.phases=[{rules: [{kind: rows, rows: [[0, 9]], multiplier: 0.5}]}]"),
    ),
    "init method": (own("init", "assign"), ()),
    "metric": (("+metrics.brier.function=own_choices:brier",), ()),
}


@pytest.mark.parametrize("choice", SHIPPED)
def test_a_function_that_does_what_a_shipped_choice_does_gives_its_bits(choice: str, run: short_runs.Run) -> None:
    theirs, ours = (run(*overrides) for overrides in SHIPPED[choice])
    assert tensors(theirs.directory) == tensors(ours.directory)
    assert short_runs.losses(theirs) == short_runs.losses(ours)
    assert run_id(theirs.directory) != run_id(ours.directory)


def run_id(directory: Path) -> str:
    return str(json.loads((directory / "manifest.json").read_text())["run_id"])


def test_a_metric_is_measured_on_all_splits_and_can_be_watched(run: short_runs.Run) -> None:
    more = ("train.early_stopping.metric=brier", "train.early_stopping.patience=1", "train.evaluate_every=10")
    metric = ("+metrics.brier.function=own_choices:brier", "+metrics.brier.higher_is_better=false")
    result = run(*metric, *more)
    final = json.loads((result.directory / "summary.json").read_text())["metrics"]
    run_again = embexp.load_run(result.directory, allow_code=["own_choices:brier"])
    assert run_again.evaluate(split="test") == final["test"]
    lines = [json.loads(line) for line in (result.directory / "metrics.jsonl").read_text().splitlines()]
    seen = [line["metrics"]["brier"] for line in lines if line["event"] == "evaluation"]
    assert final["validation"]["brier"] == min(seen)


def test_the_metric_loss_of_a_split_is_the_own_loss(run: short_runs.Run) -> None:
    final = json.loads((run(*own("loss", "log_loss")).directory / "summary.json").read_text())["metrics"]
    assert final["test"]["loss"] == pytest.approx(final["test"]["log_loss"], rel=1e-6)


def test_sessions_and_replicas(run: short_runs.Run) -> None:
    """The same losses to the last bits of float32, whose sums are in another order there."""
    choices = (*own("loss", "log_loss"), *own("optimizer", "adagrad"), "optimizer.slots={accumulators: 0.1}")
    alone, session, mirrored = (
        run(*choices, more) for more in ("strategy=cpu", "runtime=session", "strategy=mirrored")
    )
    np.testing.assert_allclose(short_runs.losses(session), short_runs.losses(alone), rtol=1e-5)
    np.testing.assert_allclose(short_runs.losses(mirrored), short_runs.losses(alone), rtol=1e-5)


def test_a_record_needs_leave_for_each_function_and_changed_code_is_another_run(
    run: short_runs.Run, folder: Path
) -> None:
    directory = run(*own("loss", "log_loss"), "+metrics.brier.function=own_choices:brier").directory
    with pytest.raises(UsageError, match="--allow-code own_choices:log_loss --allow-code own_choices:brier"):
        embexp.load_run(directory).evaluate()
    with pytest.raises(UsageError, match=r"--allow-code own_choices:brier, or in Python"):
        embexp.load_run(directory, allow_code=["own_choices:log_loss"]).evaluate()
    recorded = json.loads((directory / "manifest.json").read_text())["user_code"]
    assert recorded["functions"] == ["own_choices:log_loss", "own_choices:brier"]
    assert (directory / "code" / "own_choices.py").read_text() == MODULE
    spec = embexp.load_run(directory, allow_code=["own_choices:log_loss", "own_choices:brier"]).spec
    assert prepare(spec).run_id == run_id(directory)
    try:
        (folder / "own_choices.py").write_text(f"{MODULE}\n# changed\n")
        assert prepare(spec).run_id != run_id(directory)
    finally:
        (folder / "own_choices.py").write_text(MODULE)


WRONG = {
    "loss is a mean": ((own("loss", "mean_loss")), "loss.function", "the loss of each example"),
    "loss is nothing": ((own("loss", "nothing")), "loss.function", "returned None"),
    "arguments": ((*own("loss", "log_loss"), "+loss.args.gamma=2"), "loss.args", "unexpected keyword argument 'gamma'"),
    "metric is text": (("+metrics.mine.function=own_choices:text",), "metrics.mine.function", "returned a str"),
    "metric is not finite": (("+metrics.mine.function=own_choices:not_finite",), "metrics.mine.function", "finite"),
    "no dense optimizer": (own("dense_optimizer", "nothing"), "dense_optimizer.function", "returned None"),
    "slots are missing": (
        (*own("optimizer", "no_slots"), "optimizer.slots={momenta: 0.0}"),
        "optimizer.function",
        "it must return the slots momenta",
    ),
    "rows of another width": (own("optimizer", "narrow"), "optimizer.function", "for the rows, but returned float32"),
    "rule raises": (own("optimizer", "broken"), "optimizer.function", "ZeroDivisionError: division by zero"),
    "no mask": (own("freeze", "numbers"), "freeze.function", "an array of bool"),
    "mask of nothing": ((*own("freeze", "first"), "+freeze.args.count=0"), "freeze", "names none"),
    "no init method": (own("init", "nothing"), "init.function", "must return an embexp.initialization.InitMethod"),
    "init method without sessions": ((*own("init", "assign"), "runtime=session"), "init", "does not work in sessions"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_function_is_an_error_of_the_config(mistake: str, run: short_runs.Run) -> None:
    overrides, path, rule = WRONG[mistake]
    with pytest.raises(ConfigError) as caught:
        run(*overrides, "train.steps=1")
    [fault] = caught.value.faults
    assert (fault.path, rule in fault.rule) == (path, True), fault


def test_faults_that_composing_shows() -> None:
    def found(*overrides: str) -> dict[str, str]:
        with pytest.raises(ConfigError) as caught:
            embexp.compose(["experiment=clicks", *overrides])
        return {fault.path: fault.rule for fault in caught.value.faults}

    assert "defines no 'nowhere'" in found(*own("loss", "nowhere"))["loss.function"]
    assert "is installed" in found("freeze=custom", "freeze.function=numpy:zeros")["freeze.function"]
    assert found("+metrics.auc.function=own_choices:brier") == {
        "metrics.auc": "embexp already has a metric of that name"
    }
    assert (
        "a TPU can't update tables with this optimizer"
        in found("strategy=tpu_simulator", *own("optimizer", "no_slots"))["optimizer"]
    )
    schedule = "freeze.phases=[{rules: [{kind: custom, function: 'os:system'}]}]"
    assert "Python's standard library" in found("freeze=schedule", schedule)["freeze.phases.0.rules.0.function"]


def test_all_functions_of_a_spec_are_named() -> None:
    spec = embexp.compose(
        [
            "experiment=clicks",
            *own("loss", "log_loss"),
            *own("freeze@tables.user.freeze", "numbers", "tables.user.freeze"),
            "freeze=schedule",
            "freeze.phases=[{}, {step: 3, rules: [{kind: custom, function: 'own_choices:numbers'}]}]",
            "+metrics.brier.function=own_choices:brier",
        ]
    )
    assert [path for path, _ in named_code(spec)] == [
        "tables.user.freeze",
        "loss",
        "metrics.brier",
        "freeze.phases.1.rules.0",
    ]


@pytest.fixture(scope="module")
def visits(folder: Path) -> Path:
    generator = np.random.default_rng(0)
    users, items = generator.integers(0, 9, 400), generator.integers(0, 7, 400)
    columns = {"user": [f"u{n}" for n in users], "item": [f"i{n}" for n in items], "stars": (users + items) % 5 + 1.0}
    pq.write_table(pa.table(columns), folder / "visits.parquet")
    return folder / "visits.parquet"


def visited(*overrides: str, path: Path, cache: Path) -> Any:
    return embexp.compose(
        [
            "experiment=movielens",
            *overrides,
            f"data.path={path}",
            "data.label=stars",
            "data.split.kind=random",
            "data.split.group=null",
            "features.user.column=user",
            "features.item.column=item",
            "train.epochs=1",
            "output.plots=false",
            "output.baselines=false",
            "output.tensorboard=false",
            f"output.cache={cache}",
        ]
    )


@pytest.mark.parametrize("function", [("table",), ("parts", "+data.args.rows=70"), ("columns",)])
def test_a_source_gives_the_bits_of_the_same_columns(
    function: tuple[str, ...], visits: Path, tmp_path: Path, folder: Path
) -> None:
    name, *args = function
    theirs = single.run(visited(*own("data", name), *args, path=visits, cache=tmp_path / "c"), tmp_path / "theirs")
    ours = single.run(visited("data=parquet", path=visits, cache=tmp_path / "c"), tmp_path / "ours")
    assert tensors(theirs.directory) == tensors(ours.directory)
    loaded = embexp.load_run(theirs.directory, allow_code=[f"own_choices:{name}"])
    np.testing.assert_array_equal(loaded.predict(visits), embexp.load_run(ours.directory).predict(visits))


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        ("uneven", "differ in their columns"),
        ("interrupted", "it raised OSError: the database has gone away"),
        ("seven", "it must return columns"),
        ("nothing", "it returned nothing"),
    ],
)
def test_a_wrong_source_is_an_error_and_leaves_nothing(function: str, rule: str, visits: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rule):
        single.run(visited(*own("data", function), path=visits, cache=tmp_path / "cache"), tmp_path / "run")
    assert not list((tmp_path / "cache").glob("custom*"))


def test_a_source_is_read_again_if_its_file_changes(visits: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.parquet"
    path.write_bytes(visits.read_bytes())
    spec = visited(*own("data", "table"), path=path, cache=tmp_path / "cache")
    first = prepare(spec)
    assert first.data.scan.examples.count == len(pq.read_table(path))
    pq.write_table(pq.read_table(path).slice(0, 300), path)
    second = prepare(spec)
    assert second.data.scan.examples.count == 300
    assert second.run_id != first.run_id
    path.write_bytes(visits.read_bytes())
    assert prepare(spec).run_id == first.run_id


def test_a_fault_of_a_model_comes_before_tables_are_filled(
    run: short_runs.Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "fill_tables", lambda *_: pytest.fail("tables are filled"))
    with pytest.raises(ConfigError) as raised:
        run("model=keras", "model.function=own_choices:misspelt")
    [fault] = raised.value.faults
    assert (fault.path, fault.value) == ("model.function", "'own_choices:misspelt'")
    line = 1 + MODULE[: MODULE.index("outputs=keras.layers.Dense(1)(y)")].count("\n")
    assert f"NameError: name 'y' is not defined ({folder / 'own_choices.py'}:{line})" in fault.rule
