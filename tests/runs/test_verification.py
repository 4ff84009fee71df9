"""A run is verified against the same run done again; whatever was falsified is named."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import embexp
from embexp.cli import commands
from embexp.cli.commands import verify as command
from embexp.errors import CommandLineError, RunError, UsageError
from embexp.records import inventory, manifest
from embexp.records.differences import Kind
from embexp.records.folder import RunFolder
from embexp.records.manifest import Kernels
from embexp.runs import experiment, runs_compared, verification
from embexp.runs import run as single
from embexp.runs.run import Observer
from embexp.runs.verification import Rerun, in_own_process
from embexp.system import machine
from embexp.training.listeners import Listener
from embexp.training.loop import Replay

MODEL = """import keras
from sizes import WIDTH


def tower(activations):
    x = keras.layers.Concatenate()([keras.layers.Flatten()(each) for each in activations.values()])
    x = keras.layers.Dense(WIDTH, activation="relu")(x)
    return keras.Model(inputs=activations, outputs=keras.layers.Dense(1)(x))
"""
FUNCTION = "verified_model:tower"
SMALL = (
    "experiment=clicks",
    "data.examples=2000",
    "data.users=60",
    "data.items=80",
    "train.batch_size=64",
    "train.epochs=null",
    "train.steps=12",
    "train.log_every=2",
    "train.evaluate_every=5",
    "output.plots=false",
    "output.tensorboard=false",
)
USER_MODEL = ("model=keras", f"model.function={FUNCTION}", "~model.args")


class Reruns:
    """Runs specs again in this process; of equal ones, only the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: dict[str, Path] = {}

    def __call__(self, rerun: Rerun, place: Path) -> None:
        key = f"{rerun.spec.model_dump_json()} {rerun.replay} {Path('sizes.py').read_text()}"
        if key in self.done:
            shutil.copytree(self.done[key], place, dirs_exist_ok=True)
            return
        experiment.run(rerun.spec, place, replay=rerun.replay)
        self.done[key] = self.folder / f"{len(self.done)}"
        shutil.copytree(place, self.done[key])


class Interrupts(Listener):
    """Interrupts the training at a step, as Ctrl-C does."""

    def __init__(self, step: int) -> None:
        self._step = step

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        if step == self._step:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder with a model of the user's own."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "verified_model.py").write_text(MODEL)
    (folder / "sizes.py").write_text("WIDTH = 4\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(manifest, "states", lambda folders: {})  # somebody may be at work in the checkout
        yield folder


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Reruns:
    return Reruns(tmp_path_factory.mktemp("again"))


def spec_of(project: Path, *overrides: str) -> Any:
    return embexp.compose([*SMALL, f"output.cache={project / 'cache'}", *overrides])


@pytest.fixture(scope="module")
def recorded(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has kept all its checkpoints: of steps 4, 8 and 12."""
    spec = spec_of(project, *USER_MODEL, "checkpoint.every_steps=4", "checkpoint.keep=null")
    return single.run(spec, tmp_path_factory.mktemp("recorded")).directory


@pytest.fixture
def copy(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be falsified."""
    return Path(shutil.copytree(recorded, tmp_path / "copy"))


def edit(path: Path, *keys: str, value: Any) -> None:
    content = json.loads(path.read_text())
    node = content
    for key in keys[:-1]:
        node = node[key]
    assert node[keys[-1]] != value
    node[keys[-1]] = value
    path.write_text(json.dumps(content))


def verified(directory: Path, again: Reruns, **options: Any) -> verification.Verification:
    return verification.verify(directory, allow_code=[FUNCTION], again=again, **options)


def texts(found: verification.Verification) -> list[str]:
    return [verification.line(each) for each in found.differences]


def test_a_run_is_identical(recorded: Path, again: Reruns, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    found = verified(recorded, again, keep=kept)
    assert found.identical
    assert found.differences == ()
    assert found.kept == kept
    assert (found.compared[0], found.compared[2]) == ("9 lines of metrics.jsonl", "2 tables by digest")
    assert found.compared[-1] == "checkpoints up to step 12"
    parts = runs_compared.compare(recorded, kept)
    assert [each.name for each in parts[""].spec] == [
        "checkpoint.every_steps",
        "checkpoint.since_parent",
        "checkpoint.on_error",
        "output.baselines",
    ]
    assert not [
        *parts[""].sections()["first metrics that differ"],
        *parts[""].summary,
        *parts[""].sections()["weights"],
    ]


def test_without_an_inventory_only_the_repetition_decides(
    copy: Path, again: Reruns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_run", lambda rerun, folder, place, told: again(rerun, place.path))
    inventory.unseal(copy)
    words = ["verify", str(copy), "--allow-code", FUNCTION]
    assert commands.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "record: no inventory.json, so changed files can't be detected"
    assert any(line.startswith("repeated: identical: ") for line in lines)
    summary = json.loads((copy / "summary.json").read_text())
    summary["metrics"]["test"]["auc"] += 1e-3
    (copy / "summary.json").write_text(json.dumps(summary))
    assert commands.main(words) == 1
    found = capsys.readouterr().out
    assert found.startswith(lines[0])
    assert "repeated: different: " in found


def test_a_package_version_is_named(copy: Path, again: Reruns) -> None:
    edit(copy / "manifest.json", "packages", "numpy", value="1.0")
    found = verified(copy, again)
    assert found.identical
    [each] = found.differences
    assert (each.kind, each.name, each.a) == (Kind.PACKAGE, "numpy", "1.0")
    assert texts(found)[0].startswith("package numpy: 1.0 in the record, ")


def test_a_number_of_threads_is_named(copy: Path, again: Reruns) -> None:
    edit(copy / "manifest.json", "threads", "intra_op", value=77)
    [text] = texts(verified(copy, again))
    assert text.startswith("threads intra_op: 77 in the record, ")


def test_another_seed_is_named_with_the_first_step_that_differs(copy: Path, again: Reruns) -> None:
    edit(copy / "spec.json", "seed", value=1)
    found = verified(copy, again)
    assert not found.identical
    assert (found.results[0].kind, found.results[0].step, found.results[0].name) == (Kind.METRICS, 2, "loss")
    assert "seed: 0 in manifest.json, 1 in spec.json" in texts(found)
    assert any(each.kind is Kind.TABLE and "rows differ, the first 0" in each.note for each in found.results)


def test_a_line_of_user_code_is_named(copy: Path, again: Reruns, project: Path) -> None:
    sizes = project / "sizes.py"
    sizes.write_text("WIDTH = 5\n")
    try:
        found = verified(copy, again)
    finally:
        sizes.write_text("WIDTH = 4\n")
    assert not found.identical
    [each] = found.circumstances
    assert (each.kind, each.name) == (Kind.CODE, "sizes.py")
    assert [line.strip() for line in each.note.splitlines()[2:]] == ["-WIDTH = 4", "+WIDTH = 5"]


def test_a_changed_copy_of_user_code_is_named(copy: Path, again: Reruns) -> None:
    (copy / "code" / "sizes.py").write_text("WIDTH = 6\n")
    found = verified(copy, again)
    assert found.identical
    assert [(each.kind, each.name) for each in found.circumstances] == [(Kind.CODE, "sizes.py")]
    assert "no longer matches the manifest" in found.circumstances[0].note


def test_a_falsified_metric_is_the_first_difference(copy: Path, again: Reruns) -> None:
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    [line] = [line for line in lines if line["event"] == "evaluation" and line["step"] == 10]
    line["metrics"]["auc"] = 0.999
    (copy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = verified(copy, again)
    assert [(each.step, each.name, each.a) for each in found.results] == [(10, "validation auc", 0.999)]


def test_a_falsified_digest_is_named(copy: Path, again: Reruns) -> None:
    edit(copy / "summary.json", "tables", "item", "digest", value="0" * 64)
    [each] = verified(copy, again).results
    assert (each.kind, each.name, each.a) == (Kind.TABLE, "item.digest", "0" * 64)


def test_the_first_checkpoint_that_differs_is_described_and_later_ones_are_named(
    copy: Path, again: Reruns, project: Path, tmp_path: Path
) -> None:
    """The checkpoints of steps 8 and 12 come from a run with another seed; nothing else is changed."""
    (tmp_path / "other").mkdir()
    spec = spec_of(project, *USER_MODEL, "checkpoint.every_steps=4", "checkpoint.keep=null", "seed=1")
    other = single.run(spec, tmp_path / "other").directory
    for step in ("step_00000008", "step_00000012"):
        shutil.rmtree(copy / "checkpoints" / step)
        shutil.copytree(other / "checkpoints" / step, copy / "checkpoints" / step)
    found = verified(copy, again)
    *first, later = found.results
    assert {each.step for each in first} == {8}
    assert all("after step 4 the checkpoints are equal" in each.note for each in first)
    assert {each.kind for each in first} == {Kind.TABLE, Kind.WEIGHTS, Kind.CHECKPOINT}
    assert (later.kind, later.name, later.step) == (Kind.CHECKPOINT, "step_00000012", 12)


def test_one_checkpoint_before_equal_ones_is_found(copy: Path, again: Reruns) -> None:
    """What differs once need not differ ever after: somebody may have edited it."""
    data = copy / "checkpoints" / "step_00000004" / "checkpoint.data-00001-of-00002"
    content = bytearray(data.read_bytes())
    content[0] ^= 1
    data.unlink()
    data.write_bytes(content)
    [each] = verified(copy, again).results
    assert (each.kind, each.step) == (Kind.TABLE, 4)


@pytest.mark.parametrize(
    "keys", [("baselines", "constant", "test", "auc"), ("strategy",), ("movement", "item", "rows")]
)
def test_every_number_of_the_summary_is_compared(copy: Path, again: Reruns, keys: tuple[str, ...]) -> None:
    edit(copy / "summary.json", *keys, value=7)
    [each] = verified(copy, again).results
    assert (each.kind, each.name, each.a) == (Kind.SUMMARY, ".".join(keys), 7)


def test_other_sentences_of_warnings_are_no_difference(copy: Path, again: Reruns) -> None:
    """Those of a version that said it in other words, and those about trackers, which a repetition does not have."""
    edit(copy / "summary.json", "warnings", value=["tables.user: in the words of before", "MLflow: gone"])
    inventory.seal(copy)
    found = verified(copy, again)
    assert (found.intact, found.identical, found.results) == (True, True, ())


def test_another_run_id_alone_is_named(copy: Path, again: Reruns) -> None:
    edit(copy / "summary.json", "run_id", value="0" * 64)
    summary = json.loads((copy / "summary.json").read_text())
    tests = {"similarity": {"item": {"men": {"spearman": 0.5}}}}  # of vectors, which take none again
    (copy / "summary.json").write_text(json.dumps(summary | {"vectors": tests}))
    found = verified(copy, again)
    assert found.identical
    assert [each.name for each in found.circumstances] == ["run_id"]


def test_code_has_to_be_allowed_and_only_what_is_named(recorded: Path, again: Reruns) -> None:
    with pytest.raises(
        UsageError, match=f"names code to run: {FUNCTION} .*to allow it, add --allow-code {FUNCTION}, or in Python"
    ):
        verification.verify(recorded, again=again)
    with pytest.raises(UsageError, match=rf"--allow-code os:remove: .*spec.json names only {FUNCTION}"):
        verification.verify(recorded, allow_code=["os:remove", FUNCTION], again=again)


def test_an_existing_directory_is_not_written_to(recorded: Path, again: Reruns, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it already exists"):
        verified(recorded, again, keep=tmp_path)
    with pytest.raises(CommandLineError, match="the folder of a run"):
        verified(recorded, again, keep=recorded / "new")
    assert not (recorded / "new").exists()


def test_an_interrupted_run_is_repeated_to_that_step_and_a_resumed_one_to_the_end(
    project: Path, again: Reruns, tmp_path: Path
) -> None:
    spec = spec_of(project, "optimizer=adam")
    (tmp_path / "run").mkdir()
    result = single.run(spec, tmp_path / "run", Observer(lambda: [Interrupts(6)]))
    assert (result.status, result.summary["steps"]) == ("interrupted", 6)
    found = verification.verify(tmp_path / "run", again=again)
    assert found.identical, str(found)
    assert "checkpoints up to step 6" in found.compared

    experiment.resume(tmp_path / "run")
    assert [leg["step"] for leg in RunFolder(tmp_path / "run").read_manifest()["resumed"]] == [6]
    found = verification.verify(tmp_path / "run", again=again)
    assert found.identical, str(found)
    assert found.differences == ()

    longer = spec.model_copy(update={"train": spec.train.model_copy(update={"steps": 16})})
    experiment.resume(tmp_path / "run", longer)
    with pytest.raises(RunError, match=r"resumed at step 12 with other settings \(train.steps: 12 in the beginning"):
        verification.verify(tmp_path / "run", again=again)


def test_an_early_stopped_run(project: Path, again: Reruns, tmp_path: Path) -> None:
    settings = ("optimizer=adam", "optimizer.learning_rate=0.5", "train.evaluate_every=1")
    spec = spec_of(project, *settings, "train.early_stopping.patience=2", "train.steps=40")
    result = single.run(spec, tmp_path)
    assert (result.status, result.summary["best_step"] < result.summary["steps"]) == ("stopped_early", True)
    assert verification.verify(tmp_path, again=again).identical


def test_an_unfinished_run_is_refused(copy: Path, again: Reruns) -> None:
    (copy / "summary.json").unlink()
    with pytest.raises(RunError, match=r"has not ended.*embexp resume"):
        verified(copy, again)


@pytest.mark.slow
def test_from_python_in_a_process_of_its_own(
    project: Path, tmp_path: Path, forked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(project, *USER_MODEL, "train.steps=2", "strategy.intra_op_threads=1", "strategy.onednn=off")
    broken = spec.model_copy(update={"restore": spec.restore.model_copy(update={"path": str(tmp_path / "nowhere")})})
    for name in ("run", "broken"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "executable", str(forked / "python"))
    in_own_process(Rerun(spec, Replay(), Kernels(onednn=False)), tmp_path / "run")
    assert not RunFolder(tmp_path / "run").read_manifest()["kernels"]["onednn"]
    assert embexp.verify(tmp_path / "run", allow_code=[FUNCTION]).identical
    if machine.onednn():
        with pytest.raises(RunError, match=r"strategy\.onednn is off.*TF_ENABLE_ONEDNN_OPTS=0"):
            single.prepare_machine(spec.strategy)
    with pytest.raises(RunError, match="nowhere"):
        in_own_process(Rerun(broken), tmp_path / "broken")
