"""Pairs of commands that use one run's folder at once: nothing is lost, half-written or wrong."""

from __future__ import annotations

import json
import random
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.torture import kills, outcome
from tests.torture.kills import Case, Torture
from tests.torture.kinds import RUN, Ended, waited
from tests.torture.shim import Control, Kill, Operation

KIND = "pairs"
_WRITERS = ("run", "resume")
_READERS = ("verify", "report", "evaluate", "predict", "export")
_STATES = ("complete", "unfinished", "empty")
"""Of the folder before: a run that has ended, one that was killed, and none."""
_HOLDER = re.compile(r"process \d+")
_UNFINISHED = re.compile(
    r"has not ended|no finished run|unfinished|not complete|being written|not the directory of a run|no run in"
)


class Pairs:
    """Folders and results that all pairs start from and are compared with."""

    def __init__(self, torture: Torture, folder: Path) -> None:
        """Makes them.

        Args:
            torture: see there.
            folder: empty.
        """
        self.torture, self._folder = torture, folder
        self._run = torture.commands.words(KIND)
        kill = Kill()
        for state in ("complete", "unfinished"):
            (folder / state).mkdir()
            control = Control(folder / f"{state} control", folder / state, kill)
            torture.commands.ended(self._run, folder / state, control)
            kill = kill if kill.at else _late_kill(control.operations())
        self.content = outcome.content(folder / "complete" / RUN)
        self.results: dict[str, Any] = {}
        for command in ("evaluate", "predict", "export"):
            ended = torture.commands.ended(self.words(command, command), folder / "complete")
            assert ended.status == 0, ended.err
            self.results[command] = _result(command, folder / "complete" / command, ended)

    def words(self, command: str, out: str) -> list[str]:
        """The arguments of a command, which may write `out`."""
        data = str(self.torture.commands.ratings)
        return {
            "run": self._run,
            "resume": ["resume", RUN],
            "verify": ["verify", RUN],
            "report": ["report", RUN],
            "evaluate": ["evaluate", RUN, "--json"],
            "predict": ["predict", RUN, "--data", data, "--out", out],
            "export": ["export", RUN, out, "--as", "npy"],
        }[command]

    def begin(self, state: str, work: Path) -> None:
        """Puts the folder of a state into a working directory."""
        if state != "empty":
            shutil.copytree(self._folder / state / RUN, work / RUN)


def _late_kill(operations: Sequence[Operation]) -> Kill:
    """When the third checkpoint is whole."""
    steps = [each for each in operations if each.name == "rename" and re.search(r"/step_\d+$", each.other)]
    return Kill(steps[2].number)


def _result(command: str, out: Path, ended: Ended) -> Any:
    """What a reader has come to."""
    match command:
        case "evaluate":
            return json.loads(ended.out)
        case "predict":
            return out.read_bytes()
        case "export":
            return {path.name: _array(path) for path in sorted(out.iterdir())}


def _array(path: Path) -> bytes:
    return np.load(path, allow_pickle=False).tobytes() if path.suffix == ".npy" else path.read_bytes()


def _check(pairs: Pairs, case: Case, command: str, other: str, state: str, out: Path, ended: Ended) -> None:
    """Whether a command did what it must, or was refused with a sentence."""
    if ended.status == 0:
        if command == "verify" and "identical" not in ended.out:
            case.faults.append(f"verify: exit status 0 and {ended.out.strip()[-100:]!r}")
        if command in pairs.results and not _UNFINISHED.search(ended.err):
            try:
                same = _result(command, out, ended) == pairs.results[command]
            except Exception as error:  # a reader of any format
                case.faults.append(f"{command}: its result is unreadable: {error}")
            else:
                if not same:
                    case.faults.append(f"{command}: another result than of the finished run, and no word of it")
        return
    kills.check_sentence(case, command, ended)
    if other in _READERS and command in _READERS and state == "complete":
        case.faults.append(f"{command} of a finished run was refused beside {other}: {ended.message}")
    others = ("not the directory of a run", "it already holds a run")
    held = command in _WRITERS and other in _WRITERS and not any(each in ended.err for each in others)
    if held and not _HOLDER.search(ended.err):
        case.faults.append(f"{command} was refused beside {other} without a word of who has it: {ended.message}")
    if out.exists():
        case.faults.append(f"{command} was refused and left {out.name}")


def _pair(generator: random.Random) -> tuple[str, str, str]:
    """A state, and two commands of which one at least does something in it."""
    state = generator.choice(_STATES)
    commands = (*_WRITERS, *_READERS)
    first = {"complete": commands[1:], "unfinished": ("resume",), "empty": ("run",)}[state]
    return state, generator.choice(first), generator.choice(commands if state == "empty" else commands[1:])


def cases(torture: Torture, kinds: Sequence[str], seed: int, numbers: Iterable[int]) -> Iterator[Case]:
    """The pairs of these numbers, of one kind of run."""
    with torture.place("pairs") as folder:
        pairs = Pairs(torture, folder)
        for number in numbers:
            yield _case(torture, pairs, seed, number)


def _case(torture: Torture, pairs: Pairs, seed: int, number: int) -> Case:
    """The pair of a number."""
    generator = random.Random(f"pairs {seed} {number}")
    state, first, second = _pair(generator)
    delay = generator.choice((0.0, generator.uniform(0, 0.5), generator.uniform(0, 4)))
    case = Case(str(number), f"{state}: {first}, and {second} after {delay:.2f} s")
    with torture.place(f"pair {number}") as folder:
        work, commands = folder / "work", torture.commands
        pairs.begin(state, work)
        outs = (work.parent / "first", work.parent / "second")
        one = commands.start(pairs.words(first, str(outs[0])), work)
        time.sleep(delay)
        other = commands.start(pairs.words(second, str(outs[1])), work)
        ends = waited(one), waited(other)
        codes = sorted(f"{name} {end.status}" for name, end in zip((first, second), ends, strict=True))
        case.outcome = f"{state}: {', '.join(codes)}"
        _check(pairs, case, first, second, state, outs[0], ends[0])
        _check(pairs, case, second, first, state, outs[1], ends[1])
        (work / RUN / "report.html").unlink(missing_ok=True)
        for run in sorted(work.iterdir()):
            _check_folder(torture, case, pairs, run)
        if case.faults:
            for name, end in zip(("first", "second"), ends, strict=True):
                (folder / f"{name}.txt").write_text(f"{end.status}\n{end.out}\n{end.err}")
            torture.keep(case, folder)
    return case


def _check_folder(torture: Torture, case: Case, pairs: Pairs, run: Path) -> None:
    """Whether a folder has the run's content, after it was resumed if both commands left that to do, and verifies."""
    try:
        lines = outcome.differences(pairs.content, outcome.content(run))
    except Exception as error:  # a reader of any format
        lines = [f"unreadable: {type(error).__name__}: {error}"]
    if lines:
        if any((run / name).exists() for name in ("inventory.json",)):
            case.faults += [f"a finished run has changed: {line}" for line in lines]
        resumed = torture.commands.ended(["resume", run.name], run.parent)
        if resumed.status:
            case.faults.append(f"it can't be resumed: {resumed.message}")
            return
        case.faults += outcome.differences(pairs.content, outcome.content(run))
    case.faults += [f"left over: {name}" for name in outcome.leftovers(run)]
    verified = torture.commands.ended(["verify", run.name], run.parent)
    if verified.status:
        case.faults.append(f"verify: exit status {verified.status}: {(verified.out + verified.err).strip()[-300:]}")
