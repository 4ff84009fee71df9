"""Kills: a run is killed by SIGKILL at an operation on its files, or at an instant by the clock, and resumed."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.torture import outcome, shim
from tests.torture.kinds import RUN, Commands, Ended
from tests.torture.shim import Control, Kill, Operation

_KEPT = "faults.txt"
OPERATIONS = (
    "rename",
    "link",
    "unlink",
    "rmdir",
    "mkdir",
    "create",
    "truncate",
    "resize",
    "fsync",
    "fsync_folder",
    "write",
)


@dataclass
class Reference:
    """A run of a kind that nobody killed.

    Attributes:
        content: see `outcome.content`.
        operations: on its files.
        seconds: that it took.
    """

    content: dict[str, Any]
    operations: list[Operation]
    seconds: float


@dataclass
class Case:
    """What came of one kill, or of one loss of power.

    Attributes:
        label: its number and kind.
        what: what was done.
        outcome: such as resumed, begun again, refused.
        faults: what went wrong, a line for each.
    """

    label: str
    what: str
    outcome: str = ""
    faults: list[str] = field(default_factory=list)


class Torture:
    """Kinds of runs with their references, each made when it is first asked for."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands, self._folder = commands, folder
        self._references: dict[str, Reference] = {}

    def reference(self, kind: str) -> Reference:
        """The run of a kind that nobody kills."""
        if kind not in self._references:
            words = self.commands.words(kind)
            with self.place("reference") as folder:
                control = Control(folder / "control", folder / "work")
                begin = time.monotonic()
                ended = self.commands.ended(words, folder / "work", control)
                if ended.status:
                    raise RuntimeError(f"{kind}: {ended.err}")
                seconds, found = time.monotonic() - begin, outcome.content(folder / "work" / RUN)
                self._references[kind] = Reference(found, control.operations(), seconds)
        return self._references[kind]

    @contextlib.contextmanager
    def place(self, label: str) -> Iterator[Path]:
        """An empty folder with another, `work`; removed at the end, unless it is kept."""
        folder = Path(tempfile.mkdtemp(dir=self._folder, prefix=label.replace(" ", "_").replace("/", "_") + "_"))
        (folder / "work").mkdir()
        yield folder
        if not (folder / _KEPT).exists():
            shutil.rmtree(folder, ignore_errors=True)

    def keep(self, case: Case, folder: Path) -> None:
        """Keeps the folder of a case that has faults."""
        if case.faults:
            (folder / _KEPT).write_text("\n".join([case.label, case.what, case.outcome, *case.faults]) + "\n")
            case.label += f" ({folder})"

    def finish(self, case: Case, kind: str, work: Path) -> None:
        """Resumes what is in a working directory, or runs it again if nothing has begun, and compares it."""
        ended = self.commands.ended(["resume", RUN], work)
        case.outcome = "resumed"
        begun = any((work / RUN / name).exists() for name in ("spec.json", "sweep.sqlite"))
        if ended.status and not begun:
            check_sentence(case, "resume", ended)
            case.outcome = "begun again"
            ended = self.commands.ended(self.commands.words(kind), work)
            if elsewhere := [path.name for path in work.iterdir() if path.name != RUN]:
                case.faults.append(f"begun again in another folder: {', '.join(sorted(elsewhere))}")
                return
        if ended.status:
            case.outcome = f"refused: {ended.message}"
            check_sentence(case, "resume", ended)
            return
        self.compare(case, kind, work)

    def compare(self, case: Case, kind: str, work: Path) -> None:
        """Compares what is in a working directory with the reference."""
        if not (work / RUN).is_dir():
            case.faults.append("the run's folder is gone")
            return
        try:
            found = outcome.content(work / RUN)
        except Exception as error:  # a reader of any format
            case.faults.append(f"unreadable: {type(error).__name__}: {error}")
            return
        case.faults += outcome.differences(self.reference(kind).content, found)
        case.faults += [f"left over: {name}" for name in outcome.leftovers(work)]


def check_sentence(case: Case, command: str, ended: Ended) -> None:
    """Whether a command that was refused said why, without a stack trace."""
    if "Traceback" in ended.err or not ended.err.strip():
        case.faults.append(f"{command}: exit status {ended.status}, {ended.err.strip()[-400:] or 'without a word'}")


def drawn(generator: random.Random, operations: Sequence[Operation], kind: str) -> Kill:
    """An operation of a kind of run to kill it at: every sort of operation is as likely as every other."""
    sorts = sorted({each.name for each in operations} & set(OPERATIONS))
    sort = generator.choice(sorts)
    at = generator.choice([each.number for each in operations if each.name == sort])
    whens = ("before", "middle", "after") if sort == "write" else ("before", "after")
    whom = generator.choice(("all", "first")) if kind in ("sweep", "search") else "all"
    return Kill(at, generator.choice(whens), whom)


def cases(torture: Torture, kinds: Sequence[str], seed: int, numbers: Iterable[int]) -> Iterator[Case]:
    """The kills of these numbers, in turn over the kinds; every third is one by the clock."""
    for number in numbers:
        case = _case_by_clock if number % 3 == 2 else _case
        yield case(torture, kinds[number % len(kinds)], seed, number)


def _case_by_clock(torture: Torture, kind: str, seed: int, number: int) -> Case:
    """The kill of a number at a random instant, as `kill -9` of the command does it: its jobs must end with it."""
    seconds = random.Random(f"clock {kind} {seed} {number}").uniform(0, torture.reference(kind).seconds)
    with torture.place(f"kill {number}") as folder:
        work = folder / "work"
        process = torture.commands.start(torture.commands.words(kind), work)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
        process.communicate()
        case = Case(f"{number}: {kind}", f"killed after {seconds:.3f} s")
        if left := shim.left(work):
            case.faults.append(f"still running: {[' '.join(each.cmdline()) for each in left]}")
        torture.finish(case, kind, work)
        torture.keep(case, folder)
    return case


def _case(torture: Torture, kind: str, seed: int, number: int) -> Case:
    """The kill of a number: the same for the same seed, but for the order of threads."""
    generator = random.Random(f"kill {kind} {seed} {number}")
    kill = drawn(generator, torture.reference(kind).operations, kind)
    with torture.place(f"kill {number}") as folder:
        work = folder / "work"
        control = Control(folder / "control", work, kill)
        ended = torture.commands.ended(torture.commands.words(kind), work, control)
        case = Case(f"{number}: {kind}", f"killed {kill}: {control.last()}")
        if not control.killed and ended.status:
            case.faults.append(f"not killed, and exit status {ended.status}: {ended.message}")
        if left := shim.left(work):
            case.faults.append(f"still running: {[' '.join(each.cmdline()) for each in left]}")
        torture.finish(case, kind, work)
        torture.keep(case, folder)
    return case
