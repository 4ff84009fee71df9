"""A few of the cases of `make torture`, and what its library and its disk must notice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from embexp.records import inventory
from tests.thoroughness import left_out
from tests.torture import kills, pairs, power, shim, signals, workers
from tests.torture.kinds import Commands
from tests.torture.power import Disk
from tests.torture.shim import NEVER, Control, Kill

pytestmark = pytest.mark.skipif(shim.COMPILER is None, reason="there is no C compiler")

WRITES = """
import os
os.mkdir("run")
for name, synced in (("first", True), ("second", False)):
    with open(f"run/{name}.part", "w") as file:
        file.write(name)
        file.flush()
        if synced:
            os.fsync(file.fileno())
    os.rename(f"run/{name}.part", f"run/{name}")
folder = os.open("run", os.O_RDONLY)
os.fsync(folder)
with open("run/first", "a") as file:
    file.write(", and more")
os.link("run/first", "run/third")
os.unlink("run/second")
"""
OPERATIONS = [
    "mkdir run",
    *("create run/first.part", "write run/first.part", "fsync run/first.part", "rename run/first.part"),
    *("create run/second.part", "write run/second.part", "rename run/second.part"),
    *("fsync_folder run", "open run/first", "write run/first", "link run/first", "unlink run/second"),
]
REMOVES = """
import os
from pathlib import Path
from embexp.checkpoints import store
from embexp.system import files
checkpoint = Path("run/checkpoints/step_00000002")
checkpoint.mkdir(parents=True)
(checkpoint / "state.json").touch()
for folder in (checkpoint, *checkpoint.parents):
    files.to_disk(folder)
store.remove(checkpoint)
"""
APPENDS = """
import os
from pathlib import Path
from embexp.records.folder import RunFolder
from embexp.runs import saving
from embexp.system import files
run = Path("run")
(run / "events" / "train").mkdir(parents=True)
for path in (run / "metrics.jsonl", run / "events" / "train" / "events.out.tfevents.1"):
    path.write_text("a line")
files.to_disk(Path())
saving.sizes_on_disk(RunFolder(run))
"""
SEALS = """
import hashlib
from pathlib import Path
from embexp.records import inventory
from embexp.system import files
run = Path("run")
(run / "events" / "train").mkdir(parents=True)
files.to_disk(Path())
for path in (run / "run.log", run / "events" / "train" / "events.out.tfevents.1"):
    path.write_text("a line")
inventory.seal(run)
"""
SYNCED = 9
"""Number of the operation by which the folder's names were durable."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shim.compiled(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder, shim.commands(Path(folder)) as found:
        yield found


def watched(library: Path, folder: Path, kill: Kill = NEVER) -> tuple[Control, int]:
    """Runs `WRITES` in a folder; returns what was noted, and its exit status."""
    (folder / "work").mkdir(parents=True)
    control = Control(folder / "control", folder / "work", kill, copies=True)
    variables = {**os.environ, "LD_PRELOAD": str(library), shim.VARIABLE: str(control.folder)}
    ended = subprocess.run([sys.executable, "-IS", "-c", WRITES], cwd=folder / "work", env=variables, check=False)
    return control, ended.returncode


def noted(commands: Path, folder: Path, program: str) -> Control:
    """Runs a program that imports embexp in a folder, and returns what was noted."""
    (folder / "work").mkdir()
    control = Control(folder / "control", folder / "work", copies=True)
    variables = {**os.environ, shim.VARIABLE: str(control.folder)}
    subprocess.run([commands / "python", "-c", program], cwd=folder / "work", env=variables, check=True)
    return control


def test_every_operation_is_noted_in_its_order(library: Path, tmp_path: Path) -> None:
    control, status = watched(library, tmp_path)
    assert status == 0
    found = [f"{each.name} {Path(each.path).relative_to(control.watched)}" for each in control.operations()]
    assert found == OPERATIONS


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_program_is_killed_at_an_operation(library: Path, tmp_path: Path, when: str) -> None:
    rename = OPERATIONS.index("rename run/first.part") + 1
    control, status = watched(library, tmp_path, Kill(rename, when))
    assert status == -9
    assert control.killed
    assert {path.name for path in (tmp_path / "work" / "run").iterdir()} == {
        "first.part" if when == "before" else "first"
    }
    middle = tmp_path / "middle"
    watched(library, middle, Kill(OPERATIONS.index("write run/first.part") + 1, "middle"))
    assert (middle / "work" / "run" / "first.part").read_text() == "fi"


def lost(control: Control, to: Path, seed: int) -> dict[str, bytes]:
    """The files that a loss of power may leave, by name."""
    disk = Disk(control.watched)
    disk.apply(control.operations())
    assert disk.names() == {str(path.relative_to(control.watched)) for path in control.watched.rglob("*")}
    disk.left(control.folder / "copies", to, random.Random(seed))
    left = [path for path in (to / "run").rglob("*") if path.is_file()]
    return {path.name: path.read_bytes() for path in left}


def test_a_loss_of_power_leaves_what_was_synced(library: Path, tmp_path: Path) -> None:
    control, _ = watched(library, tmp_path)
    states = [lost(control, tmp_path / str(seed), seed) for seed in range(60)]
    kept = [state for state in states if state]
    assert len(kept) < len(states)  # the folder's own name was not
    assert {state["first"][:5] for state in kept} == {b"first"}
    assert {"second" in state for state in kept} == {False, True}
    assert {state["second"] for state in kept if "second" in state} >= {b"", b"second"}
    assert {state["third"] for state in kept if "third" in state} >= {b"first", b"first, and more"}
    assert all(state["third"] == state["first"] for state in kept if "third" in state)


def test_names_are_lost_until_their_folder_is_synced(library: Path, tmp_path: Path) -> None:
    for at, names in (
        (SYNCED - 1, {frozenset(), frozenset({"first.part"}), frozenset({"first", "second"})}),
        (SYNCED, set()),
    ):
        control, _ = watched(library, tmp_path / str(at), Kill(at))
        states = {frozenset(lost(control, tmp_path / f"{at} {seed}", seed)) for seed in range(200)}
        assert states >= names
        if at == SYNCED:
            assert states == {frozenset(), frozenset({"first", "second"})}  # without the run's folder, or with it


def test_a_removed_checkpoint_does_not_come_back(commands: Path, tmp_path: Path) -> None:
    control = noted(commands, tmp_path, REMOVES)
    for seed in range(20):
        lost(control, tmp_path / str(seed), seed)
        assert list((tmp_path / str(seed) / "run" / "checkpoints").iterdir()) == []  # under no name


def test_files_that_a_checkpoint_counts_on_are_there(commands: Path, tmp_path: Path) -> None:
    control = noted(commands, tmp_path, APPENDS)
    expected = {"metrics.jsonl": b"a line", "events.out.tfevents.1": b"a line"}
    assert all(lost(control, tmp_path / str(seed), seed) == expected for seed in range(20))


def test_all_that_an_inventory_lists_is_there(commands: Path, tmp_path: Path) -> None:
    control = noted(commands, tmp_path, SEALS)
    for seed in range(20):
        left = lost(control, tmp_path / str(seed), seed)
        assert left.pop(inventory.NAME)
        assert left == {"run.log": b"a line", "events.out.tfevents.1": b"a line"}
        assert inventory.changes(tmp_path / str(seed) / "run") == ()


@pytest.fixture(scope="module")
def torture(commands: Path, tmp_path_factory: pytest.TempPathFactory) -> kills.Torture:
    return kills.Torture(Commands(commands, tmp_path_factory.mktemp("shared")), tmp_path_factory.mktemp("tortured"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_killed_run_is_resumed(torture: kills.Torture, number: int) -> None:
    [case] = kills.cases(torture, ["keep", "incremental"], 0, [number])
    assert case.faults == [], case


@pytest.mark.slow
@pytest.mark.parametrize("number", [2])
def test_a_run_that_lost_power_is_resumed(torture: kills.Torture, number: int) -> None:
    [case] = power.cases(torture, ["keep"], 0, [number])
    assert case.faults == [], case


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=() if number == 6 else left_out()) for number in range(50)]
)
def test_a_run_that_got_a_signal_is_resumed(torture: kills.Torture, number: int) -> None:
    """Of every run, SIGHUP of a terminal that is closed."""
    [case] = signals.cases(torture, [], 0, [number])
    assert case.faults == [], (case.label, case.what, case.outcome)


def test_two_commands_use_a_run_at_once(torture: kills.Torture) -> None:
    assert [case for case in pairs.cases(torture, [], 0, range(3)) if case.faults] == []


@left_out()
@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 5, 4])
def test_a_run_that_lost_a_worker_is_resumed(torture: kills.Torture, number: int) -> None:
    """Killed, killed in a save, stopped."""
    [case] = workers.cases(torture, [], 0, [number])
    assert case.faults == [], case
