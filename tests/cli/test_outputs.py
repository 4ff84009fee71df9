"""Files that users name for output: what each command that writes one may replace, and what it leaves as it is."""

from __future__ import annotations

import csv
import errno
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from embexp.cli import commands
from embexp.errors import CommandLineError
from embexp.records import inventory, outputs
from embexp.records.outputs import output
from tests import disks

DATA = "data.csv"
RUN = "runs/one"
CSV = "".join(f"u{row % 7},i{row % 5},{row % 5 + 1}\n" for row in range(60))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, vectors, and a run in a folder of runs."""
    folder = tmp_path_factory.mktemp("made")
    (folder / DATA).write_text("user,item,rating\n" + CSV)
    np.save(folder / "v.npy", np.eye(3, dtype=np.float32))
    (folder / "v.tokens.txt").write_text("a\nb\nc\n")
    (folder / "pairs.csv").write_text("a,b,1\nb,c,2\na,c,3\n")
    words = [
        "experiment=ratings",
        f"data.path={folder / DATA}",
        "data.label=rating",
        "train.steps=3",
        "train.epochs=null",
    ]
    words += [
        "output.plots=false",
        "output.baselines=false",
        "output.tensorboard=false",
        f"output.cache={folder / 'cache'}",
    ]
    assert commands.main(["run", *words, f"hydra.run.dir={folder / RUN}"]) == 0
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder; what was made before has no changed byte when the test ends."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = contents(made)
    yield tmp_path
    assert contents(made) == before
    assert not list(inventory.changes(made / RUN))


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and "cache" not in path.relative_to(folder).parts]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


COMMANDS: dict[str, Callable[[Path, str], list[str]]] = {
    "predict": lambda made, out: ["predict", f"{made / RUN}", "--data", f"{made / DATA}", "--out", out],
    "report --csv": lambda made, out: ["report", f"{made / 'runs'}", "--no-html", "--csv", out],
    "report --json": lambda made, out: ["report", f"{made / 'runs'}", "--no-html", "--json", out],
    "report --html": lambda made, out: ["report", f"{made / 'runs'}", "--html", out],
    "compare --json": lambda made, out: ["compare", f"{made / RUN}", f"{made / RUN}", "--rows", "0", "--json", out],
    "schema": lambda made, out: ["schema", "optimizer", "--out", out],
    "checkpoint graph": lambda made, out: ["checkpoint", "graph", f"{made / RUN}", "-o", out],
    "vectors convert": lambda made, out: ["vectors", "convert", f"{made / 'v.npy'}", out],
    "new": lambda made, out: [
        "new", f"{made / DATA}", "--label", "rating", "--out", f"{Path(out).parent.parent}", "--name", Path(out).stem,
    ],
}  # fmt: skip
"""Each command that writes a file which the user names: the command line for the data and an output."""
ENDINGS = {"checkpoint graph": ".svg", "vectors convert": ".vec", "new": ".yaml"}
STRICT = ("vectors convert", "new")
"""What writes regular files only, and never replaces one without --force, not even its own."""


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def named(command: str, folder: Path, name: str = "out") -> Path:
    folder = folder / "experiment" if command == "new" else folder
    folder.mkdir(parents=True, exist_ok=True)
    return folder / (name + ENDINGS.get(command, ".txt"))


def run(command: str, made: Path, out: Path | str, *more: str) -> int:
    return commands.main([*COMMANDS[command](made, str(out)), *more])


def test_all_that_write_what_users_name_are_tried() -> None:
    """A module of the command line that writes a file by itself, or a command that is not in the table, fails here."""
    folder = Path(outputs.__file__).parents[1] / "cli"
    sources = {path.stem: path.read_text("utf-8") for path in folder.rglob("*.py")}
    writing = {name for name, text in sources.items() if re.search(r"\b(output|page_in)\(", text)}
    modules = {"predict": "finished"} | {name.split()[0]: name.split()[0] for name in COMMANDS if name != "predict"}
    assert writing == set(modules.values())
    written = re.compile(r"\bwrite_(text|bytes)\(|\batomic_write\(")
    assert [name for name, text in sources.items() if written.search(text)] == ["new"]  # into a temporary folder


def test_a_file_of_somebody_else_is_kept(
    command: str, made: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = named(command, place)
    out.write_text("mine")
    out.chmod(0o600)
    assert run(command, made, out) == commands.MISUSED
    assert "--force" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert run(command, made, out, "--force") == 0
    assert out.read_bytes() != b"mine"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    again = commands.MISUSED if command in STRICT else 0
    assert run(command, made, out) == again  # its own
    if command != "report --html":  # a page is known by its mark, whatever was changed in it
        out.write_bytes(out.read_bytes() + b"changed")
        assert run(command, made, out) == commands.MISUSED
    assert run(command, made, named(command, place, "new")) == 0


def test_an_empty_file_may_be_replaced(command: str, made: Path, place: Path) -> None:
    """As mktemp makes it."""
    out = named(command, place)
    out.touch(0o640)
    assert run(command, made, out) == (commands.MISUSED if command == "new" else 0)
    assert command == "new" or out.stat().st_size
    assert stat.S_IMODE(out.stat().st_mode) == 0o640


def test_of_a_link_the_target_is_replaced(command: str, made: Path, place: Path) -> None:
    out = named(command, place)
    target = named(command, place / "elsewhere", "target")
    out.symlink_to(target)
    assert run(command, made, out) == 0  # there is nothing behind it
    assert out.is_symlink()
    assert target.stat().st_size
    target.write_text("mine")
    assert run(command, made, out) == commands.MISUSED
    assert target.read_text() == "mine"
    assert run(command, made, out, "--force") == 0
    assert out.is_symlink()
    assert target.read_bytes() != b"mine"


def test_nothing_is_written_into_a_run(
    command: str, made: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("spec.json", "summary.json", "new"):
        out = made / RUN / name
        if command == "new":
            out = made / RUN / "experiment" / "x.yaml"
        elif ENDINGS.get(command):
            out = out.with_suffix(ENDINGS[command])
        assert run(command, made, out, "--force") == commands.MISUSED
        assert "the folder of a run" in capsys.readouterr().err
    assert not (made / RUN / "experiment").exists()


def test_an_input_is_never_replaced(made: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = place / "link.npy"
    link.symlink_to(made / "v.npy")
    hard = place / "hard.csv"
    hard.hardlink_to(made / DATA)
    lines = [
        COMMANDS["predict"](made, str(made / DATA)),
        COMMANDS["predict"](made, str(hard)),
        COMMANDS["vectors convert"](made, str(made / "v.npy")),
        COMMANDS["vectors convert"](made, str(link)),
    ]
    for line in lines:
        assert commands.main([*line, "--force"]) == commands.MISUSED
        assert "the command reads that file" in capsys.readouterr().err
    folder = place / "folder"
    folder.mkdir()
    (folder / "a.csv").write_text("user,item,rating\n" + CSV)
    words = ["predict", str(made / RUN), "--data", str(folder), "--out", str(folder / "predictions.csv")]
    assert commands.main(words) == commands.MISUSED
    assert f"it is in {folder}, which the command reads" in capsys.readouterr().err
    assert [each.name for each in folder.iterdir()] == ["a.csv"]


def test_pipes_are_written_to(command: str, made: Path, place: Path) -> None:
    pipe = named(command, place)
    os.mkfifo(pipe)
    if command in STRICT:
        assert run(command, made, pipe, "--force") == commands.MISUSED
        assert pipe.is_fifo()
        return
    read: list[bytes] = []
    thread = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    thread.start()
    assert run(command, made, pipe) == 0
    thread.join(30)
    assert pipe.is_fifo()
    assert read[0]


def test_devices_are_written_to(command: str, made: Path, place: Path) -> None:
    """Nodes of the test's own, like /dev/null and /dev/full."""
    device = named(command, place)
    for minor, status in ((3, 0), (7, commands.FAILED)):
        try:
            os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, minor))
            device.open("ab").close()
        except PermissionError:
            pytest.skip("no device can be made here")
        before = os.lstat(device)
        found = run(command, made, device)
        after = os.lstat(device)
        assert (after.st_mode, after.st_rdev, after.st_ino) == (before.st_mode, before.st_rdev, before.st_ino)
        assert found == (commands.MISUSED if command in STRICT else status)
        device.unlink()


def test_a_full_disk_keeps_what_was_there(
    command: str, made: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with disks.small(place / "disk", kilobytes=32) as disk:
        out = named(command, disk)
        out.write_text("mine")
        with (disk / "of somebody").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free)
        assert run(command, made, out, "--force") == commands.FAILED
        assert out.read_text() == "mine"
        err = capsys.readouterr().err
        assert os.strerror(errno.ENOSPC) in err
        assert "hydra.run.dir" not in err  # which chooses another place for other files
        assert not [each for each in out.parent.iterdir() if each.name.startswith(".")]


def test_a_folder_that_is_read_only(command: str, made: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with disks.small(place / "disk", kilobytes=64) as disk:
        out = named(command, disk)
        disks.seal(disk)
        assert run(command, made, out) != 0
        assert os.strerror(errno.EROFS) in capsys.readouterr().err


def test_the_page_of_a_folder_replaces_only_a_page(made: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = place / "runs"
    shutil.copytree(made / "runs", runs)
    (runs / outputs.PAGE).write_text("<html>mine")
    assert commands.main(["report", str(runs)]) == 0
    assert f"no page is written: {runs / outputs.PAGE}" in capsys.readouterr().err
    assert (runs / outputs.PAGE).read_text() == "<html>mine"
    (runs / outputs.PAGE).unlink()
    for _ in range(2):
        assert commands.main(["report", str(runs)]) == 0
        assert f"written: {runs / outputs.PAGE}" in capsys.readouterr().out
    assert commands.main(["report", str(runs), "--csv", "x", "--json", "./x"]) == commands.MISUSED
    assert "name each file once" in capsys.readouterr().err


SCRIPT = """
import os, sys
from embexp.records.outputs import output
print("before")
for name in sys.argv[1:]:
    output(name, "predict").write(f"{name}\\n")
print("after")
"""


@pytest.mark.parametrize("to", ["pipe", "new", "append"])
def test_the_standard_output_by_all_its_names(to: str, tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to("/proc/self/fd/1")
    file.write_text("earlier\n")
    names = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", str(link)]
    command = [sys.executable, "-c", SCRIPT, *names]
    if to == "pipe":
        written = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    else:
        with file.open("ab" if to == "append" else "wb") as stream:
            subprocess.run(command, stdout=stream, check=True)
        written = file.read_text()
    assert written.splitlines() == ["earlier"] * (to == "append") + ["before", *names, "after"]
    assert link.is_symlink()


def test_a_file_that_comes_meanwhile_is_kept(tmp_path: Path) -> None:
    checked = output(tmp_path / "out", "predict")
    (tmp_path / "out").write_text("of somebody")
    with pytest.raises(CommandLineError, match="has since been written there"):
        checked.write("ours")
    assert (tmp_path / "out").read_text() == "of somebody"
    assert os.listdir(tmp_path) == ["out"]


def test_cells_for_spreadsheets(made: Path, place: Path) -> None:
    data = place / "new.csv"
    data.write_bytes(b"user,item,note\nu1,i1,=1+1\nu2,i2,-1\nu3,i3,a\x1b[31mb\n")
    words = ["predict", str(made / RUN), "--data", str(data), "--keep", "note", "--out"]
    assert commands.main([*words, str(place / "raw.csv")]) == 0
    assert commands.main([*words, str(place / "safe.csv"), "--safe"]) == 0
    written = {name: (place / f"{name}.csv").read_text("utf-8").splitlines() for name in ("raw", "safe")}
    assert {name: [row[0] for row in csv.reader(lines)] for name, lines in written.items()} == {
        "raw": ["note", "=1+1", "-1", "a\x1b[31mb"],
        "safe": ["note", "'=1+1", "-1", "a\u241b[31mb"],
    }
