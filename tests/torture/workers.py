"""Losses: one of three workers of a run on loopback is killed, or stopped, at a random instant, and the run resumed.

Half of the kills come within a save. All processes must end within 15 seconds, and worker 0 must name the lost one.
Commands are forked, so that a process which waits for a worker stands between it and worker 0, and the processes of
a run end as on several machines: by what they hear of each other.
"""

from __future__ import annotations

import contextlib
import random
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import psutil

from tests.torture.kills import Case, Torture
from tests.torture.kinds import RUN, Ended

KIND = "workers"
WORKERS = 3
ENDED_SECONDS = 15.0
_STOPPED = 5
"""Every so manieth case stops the worker instead of killing it."""
_IN_SAVE_SECONDS = 0.08
_STEP_SECONDS = 0.002
_SAVING = re.compile(r"\..*\.part")


def cases(torture: Torture, kinds: Sequence[str], seed: int, numbers: Iterable[int]) -> Iterator[Case]:
    """The losses of these numbers, in turn over the workers; `kinds` are those of other harnesses."""
    for number in numbers:
        yield _case(torture, seed, number)


def _case(torture: Torture, seed: int, number: int) -> Case:
    """The loss of a number."""
    draw = random.Random(f"workers {seed} {number}")
    reference = torture.reference(KIND)
    worker, stops, in_save = number % WORKERS, number % _STOPPED == _STOPPED - 1, number // WORKERS % 2 == 1
    with torture.place(f"loss {number}") as folder:
        work = folder / "work"
        process = torture.commands.start(torture.commands.words(KIND), work)
        if in_save:
            saves = len([name for name in reference.content if re.search(r"step_\d+/state\.json$", name)])
            save, after = draw.randint(1, saves), draw.uniform(0, _IN_SAVE_SECONDS)
            when = f"{after:.3f} s into save {save}"
            _wait_for_save(process, work / RUN / "checkpoints", save)
            time.sleep(after)
        else:
            after = draw.uniform(0, reference.seconds)
            when = f"after {after:.3f} s"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(after)
        while stops and process.poll() is None and not (work / RUN / "metrics.jsonl").exists():
            time.sleep(_STEP_SECONDS)  # a stopped worker is missed when the cluster is there
        victim = _found(process, work, worker)
        case = Case(f"{number}: worker {worker}", f"{'stopped' if stops else 'killed'} {when}")
        at = time.monotonic()
        if victim is not None:
            victim.suspend() if stops else victim.kill()
        if victim is not None and stops and worker == 0:
            _check_others(case, work, at, victim, process)
        ended = _ended(process)
        seconds = time.monotonic() - at
        if victim is None:
            case.what = "not lost: the run had ended before"
        elif not (stops and worker == 0):
            _check(case, worker, ended, seconds, (work / RUN / "metrics.jsonl").exists())
        _check_left(case, work, at, victim if stops else None)
        torture.finish(case, KIND, work)
        torture.keep(case, folder)
    return case


def _wait_for_save(process: subprocess.Popen[str], checkpoints: Path, number: int) -> None:
    """Waits until a checkpoint of a number is being written, or the command has ended."""
    seen: set[str] = set()
    while len(seen) < number and process.poll() is None:
        with contextlib.suppress(OSError):
            seen |= {path.name for path in checkpoints.iterdir() if _SAVING.fullmatch(path.name)}
        time.sleep(_STEP_SECONDS)


def _found(process: subprocess.Popen[str], work: Path, worker: int) -> psutil.Process | None:
    """The process of a worker, as soon as there is one; None: the command has ended."""
    while process.poll() is None:
        for each in _working(work):
            if _is_forked(each) and _number(each) == worker:
                return each
        time.sleep(_STEP_SECONDS)
    return None


def _working(work: Path) -> list[psutil.Process]:
    """The processes that work in a folder."""
    found = psutil.process_iter(["cwd", "cmdline", "status"])
    return [each for each in found if each.info["cwd"] == str(work) and each.info["status"] != psutil.STATUS_ZOMBIE]


def _is_forked(process: psutil.Process) -> bool:
    """Whether it is a worker, not what stands for one as a child of worker 0, or of this process."""
    return any(word.endswith("preloaded.py") for word in process.info["cmdline"] or ())


def _number(process: psutil.Process) -> int | None:
    """Which worker it is, by its log; None: it has ended."""
    try:
        log = re.fullmatch(r"worker-(\d+)\.log", Path(f"/proc/{process.pid}/fd/1").readlink().name)
    except OSError:
        return None
    return 0 if log is None else int(log[1])


def _ended(process: subprocess.Popen[str]) -> Ended | None:
    """The command at its end; None: it does not end."""
    try:
        out, err = process.communicate(timeout=4 * ENDED_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    return Ended(process.returncode, out, err)


def _check(case: Case, worker: int, ended: Ended | None, seconds: float, trains: bool) -> None:
    """Whether worker 0 has ended in time, and named the lost worker."""
    if ended is None or seconds > ENDED_SECONDS:
        case.faults.append(f"worker 0 has not ended {seconds:.1f} s after the loss")
    elif worker and ended.status and f"worker {worker} " not in ended.err:
        case.faults.append(f"worker {worker} is not named: {ended.err.strip()[-400:]}")
    elif worker and not ended.status and trains:
        case.what += "; the run ended all the same"
    if ended is not None and "Traceback" in ended.err:
        case.faults.append(f"a stack trace: {ended.err.strip()[-800:]}")
    case.what += f"; ended after {seconds:.1f} s"


def _check_others(case: Case, work: Path, at: float, victim: psutil.Process, process: subprocess.Popen[str]) -> None:
    """Whether the others end where worker 0 is stopped, and name it; then kills it, as nothing else ends it."""
    left = _left(work, at, {victim.pid, process.pid})
    case.faults += [f"still running: {' '.join(each.cmdline())}" for each in left]
    case.what += f"; the others ended after {time.monotonic() - at:.1f} s"
    for log in (work / RUN).glob("worker-*.log"):
        if "worker 0 " not in log.read_text():
            case.faults.append(f"worker 0 is not named in {log.name}: {log.read_text()[-400:]}")
    victim.kill()


def _check_left(case: Case, work: Path, at: float, stopped: psutil.Process | None) -> None:
    """Whether all processes end, but for a stopped one, which no signal but SIGKILL ends."""
    left = _left(work, at, set() if stopped is None else {stopped.pid})
    case.faults += [f"still running: {' '.join(each.cmdline())}" for each in left]
    for each in (*left, *([] if stopped is None else [stopped])):
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


def _left(work: Path, at: float, without: set[int]) -> list[psutil.Process]:
    """Processes that work in a folder `ENDED_SECONDS` after an instant, but for some.

    A worker is killed if worker 0 has killed what stands for it.
    """
    while True:
        found = [each for each in _working(work) if each.pid not in without]
        stand = {_number(each) for each in found if not _is_forked(each)}
        for each in found:
            if _is_forked(each) and (number := _number(each)) and number not in stand:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        if not found or time.monotonic() > at + ENDED_SECONDS:
            return found
        time.sleep(_STEP_SECONDS)
