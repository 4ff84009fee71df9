"""The library that `LD_PRELOAD` puts between a program and its files: compiled, configured, and its log read.

What it does is said in `shim.c`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from tests import preloaded

VARIABLE = "EMBEXP_TORTURE"
SOURCE = Path(__file__).with_name("shim.c")
_STATE = struct.Struct("iiq1024i")
_PATIENCE = 30.0
"""Seconds until the processes of a killed command must be gone."""

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


class Operation(NamedTuple):
    """Something that was done to a file or a folder, in the order in which it was done.

    Attributes:
        number: from 1; a kill has that of the operation at which it was.
        name: such as rename, create, fsync, fsync_folder; of one that failed, `failed`.
        path: absolute.
        other: the second path, of renames and links.
        inode: of what it was done to.
        copy: number of the copy of its contents; -1: there is none.
    """

    number: int
    name: str
    path: str
    other: str
    inode: int
    copy: int


@dataclass(frozen=True)
class Kill:
    """When a command is killed.

    Attributes:
        at: number of the operation; 0: never.
        when: before, after, or in the middle of it, if it writes.
        whom: all processes, or the first.
    """

    at: int = 0
    when: str = "after"
    whom: str = "all"

    def __str__(self) -> str:
        return f"({self.whom}) {self.when}"


NEVER = Kill()


class Control:
    """The control folder of one command that is watched."""

    def __init__(self, folder: Path, watched: Path, kill: Kill = NEVER, *, copies: bool = False) -> None:
        """Makes it.

        Args:
            folder: to make, outside of `watched`.
            watched: the folder below which operations count.
            kill: when to kill.
            copies: whether what is durable is kept, for `power`.
        """
        self.folder, self.watched = folder, watched.resolve()
        folder.mkdir(parents=True)
        (folder / "copies").mkdir()
        lines = [str(self.watched), str(kill.at), kill.when, kill.whom, str(int(copies))]
        (folder / "config").write_text("\n".join(lines) + "\n")
        (folder / "state").write_bytes(bytes(_STATE.size))
        (folder / "log").touch()

    def operations(self) -> list[Operation]:
        """All that was done."""
        found = []
        for line in (self.folder / "log").read_text(errors="surrogateescape").splitlines():
            number, name, path, other, inode, copy = line.split("\t")
            found.append(Operation(int(number), name, path, other, int(inode), int(copy)))
        return found

    @property
    def killed(self) -> bool:
        """Whether it was killed at an operation."""
        return any(each.name == "killed" for each in self.operations())

    def last(self) -> str:
        """The operation at which it was killed, for people."""
        for each in self.operations():
            if each.name == "killed":
                return f"operation {each.number}, {each.path} {Path(each.other).relative_to(self.watched)}"
        return "its end"


def compiled(folder: Path) -> Path:
    """Compiles the library into a folder.

    Raises:
        RuntimeError: there is no compiler.
    """
    if COMPILER is None:
        raise RuntimeError("there is no C compiler: install gcc")
    library = folder / "torture.so"
    command = [
        COMPILER,
        "-O1",
        "-Wall",
        "-Wno-parentheses",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(SOURCE),
        "-ldl",
    ]
    subprocess.run(command, check=True)
    return library


@contextmanager
def commands(folder: Path) -> Iterator[Path]:
    """The commands of `preloaded`, started with the library: they are watched where the environment says so."""
    library = compiled(folder)
    before = os.environ.get("LD_PRELOAD")
    os.environ["LD_PRELOAD"] = str(library)
    try:
        with contextlib.ExitStack() as opened:
            found = opened.enter_context(preloaded.commands(folder))
            if before is None:
                del os.environ["LD_PRELOAD"]
            else:
                os.environ["LD_PRELOAD"] = before
            yield found
    finally:
        if before is None:
            os.environ.pop("LD_PRELOAD", None)
        else:
            os.environ["LD_PRELOAD"] = before


def left(folder: Path) -> list[psutil.Process]:
    """Processes that still work in a folder after some time; a killed command must take its jobs along."""
    give_up = time.monotonic() + _PATIENCE
    while True:
        found = []
        for each in psutil.process_iter(["cwd", "status"]):
            if each.info["cwd"] == str(folder) and each.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(each)
        if not found or time.monotonic() > give_up:
            return found
        time.sleep(0.02)
