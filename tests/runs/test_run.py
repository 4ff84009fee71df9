"""Whole runs, small ones."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.errors import CheckpointError, DataError, DivergedError, NotARunError, UsageError, VocabularyError
from embexp.records import inventory
from embexp.records.folder import RunFolder
from embexp.runs import execute
from embexp.runs import run as single
from embexp.runs.run import Observer
from embexp.specs.run import RunSpec
from embexp.training.listeners import Listener

SMALL_CLICKS = (
    "experiment=clicks",
    "optimizer=adagrad",
    "data.examples=4000",
    "data.users=60",
    "data.items=40",
    "train.batch_size=128",
)
QUIET = ("output.plots=false", "output.tensorboard=false", "output.baselines=false")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ratings with a structure that biases can learn: user + item + noise, 30 users and 20 items."""
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    random = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item", "rating", "time"])
        for time in range(1500):
            user, item = random.integers(30), random.integers(20)
            writer.writerow([f"u{user}", f"i{item}", f"{user / 10 + item / 10 + random.normal(0, 0.1):.3f}", time])
    return path


def spec_of(cache: Path, *overrides: str) -> RunSpec:
    return embexp.compose([*overrides, f"output.cache={cache}"])


def run(spec: RunSpec, directory: Path, listeners: Sequence[Any] = ()) -> single.RunResult:
    directory.mkdir()
    return single.run(spec, directory, Observer(lambda: listeners))


@pytest.fixture(scope="module")
def clicks_run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> single.RunResult:
    return run(spec_of(cache, *SMALL_CLICKS, "train.steps=60"), tmp_path_factory.mktemp("runs") / "clicks")


@pytest.fixture(scope="module")
def ratings_run(cache: Path, ratings: Path, tmp_path_factory: pytest.TempPathFactory) -> single.RunResult:
    spec = spec_of(
        cache,
        "experiment=ratings",
        f"data.path={ratings}",
        "data.label=rating",
        "optimizer=adagrad",
        "optimizer.learning_rate=0.2",
        "optimizer.initial_accumulator_value=0.1",
        "train.standardize_labels=false",
        "train.batch_size=64",
        "train.epochs=20",
        *QUIET,
    )
    return run(spec, tmp_path_factory.mktemp("runs") / "ratings")


def test_a_run_leaves_everything_that_is_promised(clicks_run: single.RunResult) -> None:
    folder = RunFolder(clicks_run.directory)
    for path in (folder.spec, folder.manifest, folder.metrics, folder.summary, folder.events, folder.plots):
        assert path.exists(), path
    assert sorted(path.name for path in folder.vocabularies.iterdir()) == ["item.json", "user.json"]
    assert list(folder.plots.glob("*.png"))
    summary = folder.read_summary()
    assert summary == json.loads(json.dumps(clicks_run.summary))
    assert summary["status"] == "completed"
    assert summary["steps"] == 60
    assert set(summary["metrics"]) == {"train", "validation", "test"}
    assert 0 < summary["truth"]["bayes_auc"] < 1
    assert summary["tables"]["item"]["vocabulary_size"] == 40
    touched = summary["freeze"]["item"]["trainable_rows_touched"]
    assert 0 < touched <= summary["freeze"]["item"]["trainable_rows"] == 40
    assert summary["initialization"]["tables"]["item"]["bytes"] == 40 * 16 * 4
    assert summary["throughput"]["examples_per_second"] > 0
    assert folder.read_spec() == embexp.RunSpec.model_validate_json(folder.spec.read_text())


def test_what_takes_long_after_the_data_is_a_stage_of_its_own(cache: Path, tmp_path: Path) -> None:
    stages: list[str] = []
    single.run(spec_of(cache, "train.steps=2"), tmp_path, Observer(progress=lambda stage, done: stages.append(stage)))
    of_the_end = ["writing the checkpoint", "evaluating", "drawing plots"]
    assert list(dict.fromkeys(stages))[-4:] == ["creating the tables", *of_the_end]


def test_each_part_of_a_long_run_has_a_name(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are shown only from two seconds on."""
    monkeypatch.setattr(single, "if_long", lambda progress: progress)
    stages: list[str] = []

    class Working(Listener):
        def working(self, stage: str, done: float | None) -> None:
            stages.append(stage)

    observer = Observer(lambda: [Working()], lambda stage, done: stages.append(stage))
    single.run(
        spec_of(cache, *SMALL_CLICKS, "train.steps=2", "output.baselines=true", "seed=7", "data.seed=7"),
        tmp_path,
        observer,
    )
    found = list(dict.fromkeys(stages))
    for some in (
        ["creating the tables", "hashing rows", "tracing the training step"],
        ["evaluating", "computing confidence intervals", "fitting logistic regression as a baseline"],
        ["comparing rows", "computing digests of the tables", "drawing plots"],
    ):
        assert [stage for stage in found if stage in some] == some


def test_where_a_run_lies_and_what_it_leaves_is_no_part_of_its_identity(
    clicks_run: single.RunResult, cache: Path, tmp_path: Path
) -> None:
    spec = spec_of(cache, *SMALL_CLICKS, "train.steps=60", *QUIET)
    other = run(spec, tmp_path / "other")
    assert other.summary["run_id"] == clicks_run.summary["run_id"]
    assert not RunFolder(other.directory).plots.exists()
    assert not RunFolder(other.directory).events.exists()


def test_a_finished_run_has_its_tables(clicks_run: single.RunResult) -> None:
    finished = embexp.load_run(clicks_run.directory)
    assert finished.table("item").shape == (40, 16)
    with pytest.raises(UsageError, match=r"has no table 'items'; its tables are user, item"):
        finished.table("items")


def test_checkpoint_holds_tables_and_slots_under_the_keys_of_tpu_embedding(clicks_run: single.RunResult) -> None:
    prefix = str(RunFolder(clicks_run.directory).final_checkpoint / "checkpoint")
    stored = dict(tf.train.list_variables(prefix))
    end = "/.ATTRIBUTES/VARIABLE_VALUE"
    assert stored[f"embedding/item{end}"] == [40, 16]
    assert stored[f"embedding/item.Saccumulators{end}"] == [40, 16]
    value = tf.train.load_checkpoint(prefix).get_tensor(f"embedding/item{end}")
    np.testing.assert_array_equal(value, embexp.load_run(clicks_run.directory).table("item"))


def test_tensorflow_finds_the_checkpoint_and_restores_all_of_it(clicks_run: single.RunResult) -> None:
    """By `restore`, whose `assert_consumed` also asks for a count of saves, and by `read`, which knows none."""
    path = tf.train.latest_checkpoint(str(RunFolder(clicks_run.directory).checkpoints))
    for how in ("restore", "read"):
        objects = {"": tf.train.Checkpoint()}
        for key, shape in sorted(tf.train.list_variables(path)):
            name, _, attribute = key.partition("/.ATTRIBUTES/")
            if attribute != "VARIABLE_VALUE":
                continue
            above, parts = objects[""], name.split("/")
            for end in range(1, len(parts)):
                inner = objects.setdefault("/".join(parts[:end]), tf.__internal__.tracking.AutoTrackable())
                above._track_trackable(inner, parts[end - 1], overwrite=True)
                above = inner
            value = tf.train.load_variable(path, key)
            objects[name] = tf.Variable(np.zeros(shape, value.dtype))
            above._track_trackable(objects[name], parts[-1].replace(".S", "/"))
        getattr(objects[""], how)(path).assert_consumed()
        table = embexp.load_run(clicks_run.directory).table("item")
        np.testing.assert_array_equal(objects["embedding/item"].numpy(), table)


def test_ratings_are_learnt_as_far_as_their_noise_allows(ratings_run: single.RunResult) -> None:
    # The planted noise has standard deviation 0.1; the ratings themselves one of about 1.04.
    assert 0.09 < ratings_run.summary["metrics"]["test"]["rmse"] < 0.13


def test_predictions_on_a_file_are_those_of_the_model(ratings_run: single.RunResult, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("item,user\ni3,u4\nunheard,u4\ni19,u29\n")
    finished = embexp.load_run(ratings_run.directory)
    predicted = finished.predict(path)
    rows = {name: finished.vocabulary(name).lookup(values) for name, values in NEW_ROWS.items()}
    tables = {name: finished.table(name).astype(np.float64) for name in finished.spec.tables}
    expected = (
        _output_bias(ratings_run)
        + tables["user_bias"][rows["user_bias"], 0]
        + tables["item_bias"][rows["item_bias"], 0]
        + (tables["user"][rows["user"]] * tables["item"][rows["item"]]).sum(1)
    )
    np.testing.assert_allclose(predicted, expected, rtol=1e-5)
    assert predicted[0] == pytest.approx(0.7, abs=0.15)
    assert predicted[2] == pytest.approx(4.8, abs=0.15)


NEW_ROWS = {
    "user": ["u4", "u4", "u29"],
    "user_bias": ["u4", "u4", "u29"],
    "item": ["i3", "unheard", "i19"],
    "item_bias": ["i3", "unheard", "i19"],
}


def _output_bias(result: single.RunResult) -> float:
    """The model's only dense variable, read with TensorFlow's own reader."""
    prefix = str(RunFolder(result.directory).final_checkpoint / "checkpoint")
    reader = tf.train.load_checkpoint(prefix)
    # TensorFlow names a variable by the shortest way to it, which for a dense variable is by its optimizer.
    return float(reader.get_tensor("optimizer/_trainable_variables/0/.ATTRIBUTES/VARIABLE_VALUE").reshape(()))


def test_without_labels_a_file_can_be_predicted_but_not_evaluated(
    ratings_run: single.RunResult, tmp_path: Path
) -> None:
    path = tmp_path / "new.csv"
    path.write_text("item,user\ni3,u4\n")
    words = (
        r"new\.csv can't be read like this run's data\n  'rating': .* has no such column; its columns are: item, user"
    )
    with pytest.raises(DataError, match=words):
        embexp.load_run(ratings_run.directory).evaluate(path)


def test_vocabulary_size_that_is_too_small_is_an_error(cache: Path, ratings: Path, tmp_path: Path) -> None:
    overrides = ("experiment=ratings", f"data.path={ratings}", "data.label=rating", "tables.item.vocabulary_size=5")
    with pytest.raises(VocabularyError, match=r"tables\.item\.vocabulary_size = 5: the data has 21 values"):
        run(spec_of(cache, *overrides), tmp_path / "run")


def test_early_stopping_restores_the_best(cache: Path, ratings: Path, tmp_path: Path) -> None:
    spec = spec_of(
        cache,
        "experiment=ratings",
        f"data.path={ratings}",
        "data.label=rating",
        "optimizer=adagrad",
        "optimizer.learning_rate=1.0",
        "optimizer.initial_accumulator_value=0.1",
        "train.standardize_labels=false",
        "train.batch_size=64",
        "train.epochs=30",
        "train.early_stopping.patience=3",
        *QUIET,
    )
    result = run(spec, tmp_path / "run")
    evaluated = {
        line["step"]: line["metrics"]["rmse"]
        for line in RunFolder(result.directory).read_metrics()
        if line["event"] == "evaluation"
    }
    best = min(evaluated, key=lambda step: evaluated[step])
    assert result.summary["best_step"] == best
    assert result.summary["metrics"]["validation"]["rmse"] == evaluated[best]
    assert result.status == "stopped_early"
    assert result.summary["steps"] > best


def test_a_training_that_diverges_fails_with_the_remedy(cache: Path, ratings: Path, tmp_path: Path) -> None:
    overrides = ("experiment=ratings", f"data.path={ratings}", "data.label=rating", "optimizer=sgd")
    with pytest.raises(DivergedError, match=r"diverged; a smaller optimizer\.learning_rate"):
        run(spec_of(cache, *overrides, "optimizer.learning_rate=1e6"), tmp_path / "run")
    assert not RunFolder(tmp_path / "run").summary.exists()


class InterruptAt(Listener):
    """Sends this process an interrupt, as Ctrl-C would, once so many steps are done."""

    def __init__(self, step: int) -> None:
        self._step = step
        self.status = ""

    def progressed(self, step: int) -> None:
        if 0 < self._step <= step:
            self._step = 0
            os.kill(os.getpid(), signal.SIGINT)

    def ended(self, status: str) -> None:
        self.status = status


def test_an_interrupted_run_ends_with_what_it_has(cache: Path, tmp_path: Path) -> None:
    listener = InterruptAt(20)
    spec = spec_of(cache, *SMALL_CLICKS, "train.steps=1000000", "train.evaluate_every=1000000", *QUIET)
    result = run(spec, tmp_path / "run", [listener])
    assert result.status == listener.status == "interrupted"
    assert 20 <= result.summary["steps"] < 1000000
    assert math.isfinite(result.summary["metrics"]["test"]["auc"])
    finished = embexp.load_run(result.directory)
    assert finished.evaluate() == result.summary["metrics"]["test"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_checkpoint_that_does_not_fit_says_what_is_missing_and_what_is_extra(
    clicks_run: single.RunResult, cache: Path, tmp_path: Path
) -> None:
    other = run(spec_of(cache, *SMALL_CLICKS, "train.steps=1", "optimizer=adam", *QUIET), tmp_path / "adam")
    spec = RunFolder(clicks_run.directory).spec.read_text()
    RunFolder(other.directory).spec.write_text(spec)
    inventory.seal(other.directory)
    with pytest.raises(
        CheckpointError, match=r"(?s)missing from the checkpoint.*accumulators.* extra .*momenta.*velocities"
    ):
        _ = embexp.load_run(other.directory).model


def test_a_folder_that_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match=r"there is no spec\.json in it"):
        embexp.load_run(tmp_path)


def test_a_feature_with_an_output_shape_is_evaluated_on_whole_batches(cache: Path, tmp_path: Path) -> None:
    plain = (*SMALL_CLICKS, *QUIET, "train.steps=10", "train.evaluation_batch_size=128")
    shaped = run(spec_of(cache, *plain, "features.history.output_shape=[128]"), tmp_path / "shaped")
    usual = run(spec_of(cache, *plain), tmp_path / "usual")
    # 400 examples to test on are three batches of 128 and 16 more: the last batch is filled up, and cut off again.
    assert shaped.summary["examples"]["test"] % 128
    assert shaped.summary["metrics"] == usual.summary["metrics"]
    assert embexp.load_run(shaped.directory).evaluate() == usual.summary["metrics"]["test"]


def test_labels_that_are_no_clicks_are_found_before_anything_is_trained(
    cache: Path, ratings: Path, tmp_path: Path
) -> None:
    spec = spec_of(cache, "experiment=ratings", f"data.path={ratings}", "data.label=rating", "task=binary")
    with pytest.raises(DataError, match=r"labels 0 and 1, but 1,\d+ of 1,500 labels differ.*data\.label_threshold"):
        run(spec, tmp_path / "run")
    assert not RunFolder(tmp_path / "run").metrics.exists()


def test_the_manifest_tells_circumstances_but_no_secrets(
    clicks_run: single.RunResult, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = token_hex(4)  # in no source, as the manifest has what differs in the repository
    for name in ("TF_VAR_password", "TF_MY_PW", "GH_PAT", "OMP_PWD", "EMBEXP_PAT", "DATABASE_URL"):
        monkeypatch.setenv(name, f"a://me:{secret}@host")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(sys, "argv", ["embexp", "run", f"+model.args.password={secret}"])
    result = run(spec_of(cache, *SMALL_CLICKS, "train.steps=1", *QUIET), tmp_path / "run")
    assert not [each for each in result.directory.rglob("*") if each.is_file() and secret.encode() in each.read_bytes()]
    manifest = json.loads(RunFolder(result.directory).manifest.read_text())
    assert manifest["environment"]["OMP_NUM_THREADS"] == "2"
    assert manifest["packages"]["tensorflow"] == tf.__version__
    assert manifest["machine"]["cores"] >= 1


def test_only_steps_keep_freed_memory(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reading the data and filling the tables freed goes back to the system."""
    calls = []
    build, batches = execute.build, execute.training_batches
    monkeypatch.setattr(execute, "training_batches", lambda *given: calls.append("scanned") or batches(*given))
    monkeypatch.setattr(execute, "build", lambda *given: calls.append("filled") or build(*given))
    monkeypatch.setattr(execute, "keep_freed", lambda: calls.append("kept"))
    run(spec_of(cache, *SMALL_CLICKS, *QUIET, "train.steps=1"), tmp_path / "run")
    assert calls == ["scanned", "filled", "kept"]
