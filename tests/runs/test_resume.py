"""Runs that are killed at any instant and resumed end with the bits of runs that were not."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.checkpoints import store
from embexp.checkpoints.store import plain_path
from embexp.cli import commands
from embexp.errors import CheckpointError, ConfigError, NotARunError, RunError
from embexp.records.folder import RunFolder
from embexp.runs import saving
from tests.thoroughness import chosen, left_out, thorough

SCRIPT = Path(__file__).with_name("killed.py")
SMALL = (
    "experiment=clicks",
    "model=mlp",
    "data.examples=4000",
    "data.users=60",
    "data.items=80",
    "train.batch_size=64",
    "train.epochs=null",
    "train.steps=240",
    "train.log_every=7",
    "train.evaluate_every=90",
    "train.evaluation_batch_size=512",
    "checkpoint.every_steps=25",
    "output.plots=false",
    "output.baselines=false",
)
PRETRAINED = ("pretrained@tables.item.pretrained=file", "tables.item.pretrained.path={vectors}")
MANY_ROWS = ("data.users=3000", "data.items=3000", "checkpoint.every_steps=10")
"""Of which few change between two checkpoints."""
EXPERIMENTS = {
    "adagrad": ("optimizer=adagrad", "model=dlrm"),
    "adagrad, by name": ("optimizer=adagrad", "model=dlrm", "checkpoint.kind=name"),
    "adagrad, incremental": ("optimizer=adagrad", "model=dlrm", *MANY_ROWS, "checkpoint.incremental=3"),
    "split, incremental": (
        "optimizer=adam",
        *MANY_ROWS,
        "checkpoint.incremental=4",
        "checkpoint.keep=1",
        "freeze@tables.user.freeze=rows",
        "tables.user.freeze.rows=[[3,40]]",
    ),
    "16 bits, incremental": (
        "optimizer=adam",
        *MANY_ROWS,
        "checkpoint.incremental=3",
        "tables.user.dtype=bfloat16",
        "tables.user.slot_dtype=bfloat16",
        "tables.item.dtype=float16",
    ),
    "rows that start again, incremental": (
        "optimizer=adam",
        *MANY_ROWS,
        "checkpoint.incremental=3",
        "tables.user.reset=epoch",
        "tables.item.reset=epoch",
    ),
    "adam, dropout": ("optimizer=adam", "model.dropout=0.3", "checkpoint.keep=1"),
    "split, frozen rows": ("optimizer=adam", "freeze@tables.user.freeze=rows", "tables.user.freeze.rows=[[3,40]]"),
    "memory-mapped rows": (
        "optimizer=adagrad",
        *PRETRAINED,
        "freeze@tables.item.freeze=pretrained_rows",
        "init@tables.item.init=memory_map",
    ),
    "frozen table": ("optimizer=adagrad_momentum", *PRETRAINED, "freeze@tables.item.freeze=table"),
    "early stopping": (
        "optimizer=adam",
        "optimizer.learning_rate=0.05",
        "train.evaluate_every=20",
        "train.early_stopping.patience=3",
        "checkpoint.kind=name",
    ),
    "the best, cosine": (
        "optimizer=sgd",
        "schedule@optimizer.schedule=cosine",
        "checkpoint.keep_best=true",
        "train.evaluate_every=20",
    ),
    "mirrored": ("strategy=mirrored", "optimizer=adagrad", "model.dropout=0.3"),
    "tpu_simulator": ("strategy=tpu_simulator", "optimizer=adam", "train.steps=120", "train.evaluate_every=50"),
    "session": ("runtime=session", "optimizer=adagrad"),
    "estimator": ("runtime=estimator", "optimizer=adam", "train.steps=60", "checkpoint.every_steps=15"),
    "SparseCores": (
        "strategy=tpu_simulator",
        "strategy.embedding_feature=V2",
        "optimizer=adam",
        "train.steps=120",
        "train.evaluate_every=50",
        "freeze@tables.user.freeze=rows",
        "tables.user.freeze.rows=[[3,40]]",
    ),
}
VARYING = ("throughput", "fused_operations", "initialization", "resumed_at")
"""Keys of the summary that tell of time, memory, or the resumption itself."""


class Killing:
    """Runs experiments in processes of their own, which may be killed."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._python, self._folder = python, folder
        self._references: dict[str, Path] = {}
        vectors = folder / "item.npy"
        generator = np.random.default_rng(0)
        np.save(vectors, generator.normal(0, 0.3, (50, 16)).astype(np.float32))
        vectors.with_suffix(".tokens.txt").write_text("".join(f"{each}\n" for each in generator.permutation(80)[:50]))
        self._fixed = [f"output.cache={folder / 'cache'}"]
        self._vectors = str(vectors)

    def overrides(self, name: str) -> list[str]:
        own = [each.format(vectors=self._vectors) if "{vectors}" in each else each for each in EXPERIMENTS[name]]
        return [*SMALL, *own, *self._fixed]

    def start(self, name: str, directory: Path, kill: dict[str, Any] | None) -> int:
        """Runs, or resumes what is in the directory; returns the exit status."""
        request = self._folder / "request.json"
        content = {"overrides": self.overrides(name), "directory": str(directory), "kill": kill}
        request.write_text(json.dumps(content))
        return subprocess.run([self._python, SCRIPT, request], check=False).returncode

    def reference(self, name: str) -> Path:
        """The run that nobody kills."""
        if name not in self._references:
            directory = self._folder / f"{name} whole"
            assert self.start(name, directory, None) == 0
            self._references[name] = directory
        return self._references[name]


@pytest.fixture(scope="module")
def killing(forked: Path, tmp_path_factory: pytest.TempPathFactory) -> Killing:
    return Killing(forked / "python", tmp_path_factory.mktemp("resumed"))


def content(directory: Path) -> dict[str, Any]:
    """All that a run has come to, without times."""
    folder = RunFolder(directory)
    summary = {key: value for key, value in folder.read_summary().items() if key not in VARYING}
    lines = [{key: value for key, value in line.items() if key != "timing"} for line in folder.read_metrics()]
    with plain_path(folder.final_checkpoint) as plain:
        reader = tf.train.load_checkpoint(str(plain / "checkpoint"))
        tensors = {
            key: np.asarray(reader.get_tensor(key)).tobytes()
            for key in reader.get_variable_to_shape_map()
            if not key.endswith("OBJECT_GRAPH") and not key.startswith("save_counter")
        }
    files = sorted(str(path.relative_to(directory)) for path in folder.checkpoints.rglob("*"))
    return {
        "summary": summary,
        "metrics": lines,
        "tensors": tensors,
        "curves": curves(folder.events),
        "files": [name for name in files if "estimator/" not in name],
    }


def curves(events: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard would draw, by split and tag; throughput is left out."""
    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(events.rglob("events*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars" and value.tag != "examples_per_second":
                    points = found.setdefault(f"{path.parent.name}/{value.tag}", [])
                    points.append((event.step, float(tf.make_ndarray(value.tensor))))
    return {tag: sorted(points) for tag, points in found.items()}


def instants(name: str, count: int) -> list[dict[str, Any]]:
    """When to kill: some milliseconds after a step, or, every second time and experiment, into a save.

    Steps are counted, and not seconds, so that no machine is too fast or too slow for it.
    """
    generator = random.Random(f"{name} {count}")
    first = list(EXPERIMENTS).index(name)
    steps = {"tpu_simulator": 100, "SparseCores": 100, "estimator": 50, "early stopping": 60}.get(name, 200)
    return [
        {"save": generator.randrange(1, 5), "seconds": generator.uniform(0, 0.06)}
        if (first + number) % 2
        else {"step": generator.randrange(1, steps), "seconds": generator.uniform(0, 0.02)}
        for number in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_killed_and_resumed_is_as_if_never_killed(name: str, killing: Killing, tmp_path: Path) -> None:
    expected, killed = content(killing.reference(name)), 0
    for number, when in enumerate(instants(name, 10 if thorough() else 1)):
        directory = tmp_path / str(number)
        killed += killing.start(name, directory, when) != 0
        assert killing.start(name, directory, None) == 0
        assert content(directory) == expected, when
        assert not [path for path in directory.rglob(".*") if path.name.endswith((".part", ".gone"))]
    assert killed


def test_incremental_checkpoints_are_small_and_whole_at_the_end(run: Callable[..., Path]) -> None:
    directory = run(*MANY_ROWS, "data.users=50000", "checkpoint.incremental=4", "checkpoint.keep=null")
    checkpoints = RunFolder(directory).checkpoints
    sizes = [
        sum(path.stat().st_size for path in step.glob("checkpoint.data*"))
        for step in store.step_directories(checkpoints)
    ]
    assert len(sizes) == 6
    assert max(sizes[1:4] + sizes[5:]) < min(sizes[0], sizes[4]) / 4
    whole = run(*MANY_ROWS, "data.users=50000")
    assert content(directory)["tensors"] == content(whole)["tensors"]


def test_a_run_is_killed_again_and_again(killing: Killing, tmp_path: Path) -> None:
    name, directory = "adam, dropout", tmp_path / "run"
    for save in (2, 2, 3):
        assert killing.start(name, directory, {"save": save, "seconds": 0.0}) != 0
    assert killing.start(name, directory, None) == 0
    assert content(directory) == content(killing.reference(name))
    assert len(RunFolder(directory).read_summary()["resumed_at"]) >= 2


@pytest.mark.parametrize(
    "when",
    [
        pytest.param({"step": 60, "seconds": 0.0}, id="a step", marks=left_out()),
        pytest.param({"save": 2, "seconds": 0.001}, id="a save"),
    ],
)
def test_a_scheduler_ends_a_run_and_starts_it_again(killing: Killing, tmp_path: Path, when: dict[str, Any]) -> None:
    directory = tmp_path / "run"
    assert killing.start("adagrad", directory, when | {"signal": "SIGTERM"}) == 0
    summary = RunFolder(directory).read_summary()
    assert summary["status"] == "interrupted"
    assert store.step_directories(RunFolder(directory).checkpoints)[-1].name == f"step_{summary['steps']:08}"
    assert killing.start("adagrad", directory, None) == 0
    assert content(directory) == content(killing.reference("adagrad"))


@pytest.fixture(scope="module")
def killed_at_75(killing: Killing, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed while it wrote the checkpoint of step 75."""
    directory = tmp_path_factory.mktemp("killed") / "run"
    assert killing.start("adagrad", directory, {"save": 3, "seconds": 0.0}) != 0
    return directory


@pytest.fixture
def unfinished(killed_at_75: Path, tmp_path: Path) -> Path:
    """A copy of the run that was killed."""
    return shutil.copytree(killed_at_75, tmp_path / "unfinished")


def test_a_torn_checkpoint_is_skipped(killing: Killing, unfinished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = store.step_directories(RunFolder(unfinished).checkpoints)[-2:]
    data = second / "checkpoint.data-00001-of-00002"
    content_of = bytearray(data.read_bytes())
    content_of[1000] ^= 1
    data.write_bytes(content_of)
    torn: list[str] = []
    [found] = store.newest_first(first.parent, torn)
    assert found.directory == first
    assert second.name in torn[0]
    assert "damaged" in torn[0]
    data.write_bytes(content_of[:-1])
    torn.clear()
    assert next(store.newest_first(first.parent, torn, checked=False)).directory == first
    assert "was written with" in torn[0]
    assert killing.start("adagrad", unfinished, None) == 0
    assert content(unfinished) == content(killing.reference("adagrad"))


def test_an_unfinished_run_is_read_at_its_last_checkpoint(unfinished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = embexp.load_run(unfinished)
    assert run.summary["status"] == "unfinished"
    assert run.summary["steps"] == 50
    reader = tf.train.load_checkpoint(str(RunFolder(unfinished).checkpoints / "step_00000050" / "checkpoint"))
    np.testing.assert_array_equal(run.table("item"), reader.get_tensor("embedding/item/.ATTRIBUTES/VARIABLE_VALUE"))
    assert commands.main(["evaluate", str(unfinished)]) == 0
    assert "has not ended: this is its checkpoint after 50 steps" in capsys.readouterr().err


def test_changed_data_is_refused(unfinished: Path) -> None:
    spec = RunFolder(unfinished).spec
    spec.write_text(spec.read_text().replace('"examples": 4000', '"examples": 4001'))
    with pytest.raises(RunError, match="have changed since"):
        embexp.resume(unfinished)


def test_only_the_length_and_what_is_written_can_change(unfinished: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        embexp.resume(unfinished, ["optimizer.learning_rate=0.1", "train.stepz=4", "seed=1"])
    text = str(caught.value)
    assert "optimizer.learning_rate = 0.1: a run is resumed with the settings it began with (it is" in text
    assert "seed = 1" in text


def test_no_run_no_resumption(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotARunError):
        embexp.resume(tmp_path)
    for words in (["resume"], ["resume", "train.steps=5"]):
        assert commands.main(words) == 2
        assert "Give its directory" in capsys.readouterr().err
    named = tmp_path / "learning_rate=0.1"  # as `hydra.job.override_dirname` names folders of jobs
    named.mkdir()
    commands.main(["resume", str(named)])
    assert f"{named} is not the directory of a run" in capsys.readouterr().err


ALL = "a[b]*? \\{}=,b'\"% ü"
"""A name with all characters that mean something to a glob, a format, Hydra, a shell or TensorFlow."""
SHORT = (*SMALL, "optimizer=adagrad", "train.steps=60", "checkpoint.every_steps=20", "output.tensorboard=false")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    folder = tmp_path_factory.mktemp("short")

    def start(*overrides: str, name: str = "run") -> Path:
        spec = embexp.compose([*SHORT, f"output.cache={folder / 'cache'}", *overrides])
        return embexp.run(spec, tmp_path_factory.mktemp("runs") / name).directory

    return start


@pytest.fixture(scope="module")
def whole(run: Callable[..., Path]) -> Path:
    """A run of 60 steps, which no test changes."""
    return run()


def test_a_completed_run_is_left_as_it_is(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = whole
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.name != ".lock"}
    assert embexp.resume(directory).status == "completed"
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*") if path.name != ".lock"} == before
    assert "nothing is left to do" in capsys.readouterr().out


def test_a_completed_run_is_trained_longer(run: Callable[..., Path]) -> None:
    longer, at_once = run(), run("train.steps=100")
    result = embexp.resume(longer, ["train.steps=100"])
    assert result.summary["resumed_at"] == [60]
    assert result.summary["steps"] == 100
    assert embexp.load_run(longer).spec.train.steps == 100
    expected, found = content(at_once), content(longer)
    assert found["tensors"] == expected["tensors"]
    assert found["summary"] == expected["summary"]


def test_a_schedule_that_spans_the_training_is_named(
    run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    embexp.resume(run("optimizer=adam_clicks"), ["train.steps=70"])
    assert "optimizer.schedule: the schedule spans the whole training" in capsys.readouterr().out


def test_a_run_killed_between_a_checkpoint_and_its_copy_as_the_best(
    run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, calls = saving.RunSaver.keep_best, []

    def killed(self: saving.RunSaver, outcome: Any) -> None:
        calls.append(outcome.steps)
        if len(calls) == 3:
            raise KeyboardInterrupt
        kept(self, outcome)

    overrides = ("checkpoint.keep_best=true", "train.evaluate_every=20")
    whole = run(*overrides)
    with monkeypatch.context() as patch:
        patch.setattr(saving.RunSaver, "keep_best", killed)
        with pytest.raises(KeyboardInterrupt):
            embexp.run(RunFolder(whole).read_spec(), tmp_path / "run")
    assert store.read_state(tmp_path / "run" / "checkpoints" / "best").step < calls[-1]
    embexp.resume(tmp_path / "run")
    found = [store.read_state(each / "checkpoints" / "best").step for each in (whole, tmp_path / "run")]
    assert found == [calls[-1]] * 2
    assert content(tmp_path / "run") == content(whole)


def test_checkpoints_are_kept_as_configured(run: Callable[..., Path], whole: Path) -> None:
    def names(directory: Path) -> list[str]:
        return sorted(path.name for path in (directory / "checkpoints").iterdir() if path.is_dir())

    assert names(whole) == ["final"]
    assert names(run("checkpoint.keep=null")) == ["final", "step_00000020", "step_00000040", "step_00000060"]
    assert names(run("checkpoint.keep_best=true")) == ["best", "final"]
    assert names(run("checkpoint.save=end", "checkpoint.every_steps=null")) == ["final"]
    assert not (run("checkpoint.save=never", "checkpoint.every_steps=null") / "checkpoints").exists()


@pytest.mark.parametrize("name", chosen(["a[b]*?", "a\\{}=,b", "a'\"% üb", ALL], [ALL]))
def test_any_character_in_the_directory(run: Callable[..., Path], whole: Path, name: str) -> None:
    directory = run("train.steps=40", name=name)
    assert embexp.load_run(directory).evaluate()
    result = embexp.resume(directory, ["train.steps=60"])
    assert result.status == "completed"
    assert content(directory)["tensors"] == content(whole)["tensors"]


def test_what_cannot_be_written_is_said_before_training(run: Callable[..., Path], monkeypatch: Any) -> None:
    monkeypatch.setattr("embexp.system.files.free_bytes", lambda directory: 1000)
    with pytest.raises(CheckpointError, match=r"3 checkpoints of 0 MB must fit at once, but only 0 MB are free"):
        run()


def test_a_failed_save_during_training(run: Callable[..., Path], monkeypatch: Any) -> None:
    from embexp.checkpoints import streaming

    write, calls = streaming.write, []

    def failing(*arguments: Any, **options: Any) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        write(*arguments, **options)

    monkeypatch.setattr(streaming, "write", failing)
    directory = run("checkpoint.keep=null")
    assert not (directory / "checkpoints" / "step_00000040").exists()
    [warning] = [each for each in RunFolder(directory).read_summary()["warnings"] if "No space" in each]
    assert warning.startswith("step 40: ")
    assert "checkpoint.keep=1" in warning
    calls.clear()
    with pytest.raises(CheckpointError, match="No space left on device"):
        run("checkpoint.on_error=stop")
