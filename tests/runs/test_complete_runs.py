"""A run is complete when its last file is: killed at any place after its summary, it is completed without training."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import tensorflow as tf

import embexp
from embexp.records import inventory
from embexp.runs import run as single
from tests.thoroughness import chosen

KILL = """
import json, os, signal, sys
from pathlib import Path
import embexp
from embexp.reports import plots
from embexp.records import inventory
from embexp.checkpoints import store
from embexp.runs import experiment
overrides, directory, place = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
module, name = {
    "first removal": (store, "remove"),
    "plots": (plots, "write_plots"),
    "inventory": (inventory, "seal"),
}[place]
def kill(*arguments, **named):
    if place == "plots":
        (directory / "plots").mkdir()
        (directory / "plots" / ".overview.png.0badf00d.part").write_bytes(b"half")
        (directory / "checkpoints" / ".step_00000010.gone").mkdir()
    if place != "first removal":
        os.kill(os.getpid(), signal.SIGKILL)
    path = arguments[0]
    path.rename(path.with_name(f".{path.name}.gone"))
    if (directory / "summary.json").exists():
        os.kill(os.getpid(), signal.SIGKILL)
setattr(module, name, kill)
directory.mkdir()
experiment.run(embexp.compose(overrides), directory)
"""
STOP = """
import json, os, signal, sys
import embexp
class Stop(embexp.Listener):
    def logged(self, step, loss, examples_per_second):
        if step == 30:
            os.kill(os.getpid(), signal.SIGKILL)
embexp.run(embexp.compose(json.loads(sys.argv[1])), sys.argv[2], listeners=[Stop()], quiet=True)
"""
PLACES = ("first removal", "plots", "inventory")
SMALL = (
    "experiment=clicks",
    "model=mlp",
    "data.examples=2000",
    "train.batch_size=64",
    "train.epochs=null",
    "train.steps=40",
    "train.log_every=10",
    "train.evaluate_every=10",
    "train.early_stopping.patience=9",
    "checkpoint.every_steps=10",
    "output.projector_rows=0",
)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [*SMALL, f"output.cache={tmp_path_factory.mktemp('cache')}"]


@pytest.fixture(scope="module")
def whole(settings: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody kills."""
    directory = tmp_path_factory.mktemp("whole")
    single.run(embexp.compose(settings), directory)
    return directory


def names(directory: Path) -> set[str]:
    found = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    return {name for name in found if name != ".lock" and not name.startswith("events/")}


def values(events: Path) -> list[tuple[str, int]]:
    """The tags and steps of all scalars that TensorBoard would read."""
    found = []
    for path in events.rglob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            points = (each for each in event.summary.value if each.metadata.plugin_data.plugin_name == "scalars")
            found += [(f"{path.parent.name}/{each.tag}", event.step) for each in points]
    return sorted(found)


@pytest.mark.parametrize("place", chosen(PLACES, ["plots"]))
def test_killed_after_its_summary(
    place: str,
    whole: Path,
    settings: list[str],
    forked: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = tmp_path / "run"
    command = [forked / "python", "-c", KILL, json.dumps(settings), directory, place]
    assert subprocess.run(command, check=False).returncode == 128 + 9
    summary = (directory / "summary.json").read_bytes()
    assert inventory.read(directory) is None
    monkeypatch.setattr(single, "complete", lambda *_, **__: pytest.fail("it is trained again"))
    embexp.resume(directory)
    assert "was killed before it wrote its last file: completing its files" in capsys.readouterr().out
    assert (directory / "summary.json").read_bytes() == summary
    assert names(directory) == names(whole)
    assert values(directory / "events") == values(whole / "events")
    assert inventory.changes(directory) == ()
    embexp.resume(directory)
    assert "nothing is left to do" in capsys.readouterr().out


def test_the_same_command_again_completes_what_was_stopped(settings: list[str], forked: Path, tmp_path: Path) -> None:
    directory, words = tmp_path / "run", [*settings, "output.plots=false", "output.existing=continue"]
    command = [forked / "embexp", "run", *words, f"hydra.run.dir={directory}"]
    for said in ("resuming from step ", "nothing is left to do"):
        if not directory.exists():
            stopped = [forked / "python", "-c", STOP, json.dumps(words), directory]
            assert subprocess.run(stopped, check=False).returncode == 128 + 9
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert said in done.stdout
    assert json.loads((directory / "summary.json").read_bytes())["resumed_at"]
    done = subprocess.run([*command, "seed=8"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "seed: 0 in its spec.json, 8 in this config" in done.stderr
