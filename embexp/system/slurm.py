"""Slurm, by its commands: the states of jobs, and their cancellation.

An id is that of a job, `1234`, or of a task of an array, `1234_5`. States are Slurm's own words, such as `PENDING`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

QUEUED = frozenset(
    ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT")
)
"""States of jobs that wait."""
RUNNING = frozenset(("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING", "SUSPENDED", "STOPPED"))
"""States of jobs that have a node."""
NTASKS = "SLURM_NTASKS"
"""Variable of the environment that says how many tasks a step, or an allocation, has."""
_ID = re.compile(r"\d+(_\d+)?")
_TASKS = re.compile(r"(\d+)_\[([\d,-]+)(?:%\d+)?\]")
_SECONDS = 60.0
"""How long a command may take."""


def task(environment: Mapping[str, str]) -> int | None:
    """The number of this process among the several tasks of a step; None: it is the only one, or in no step."""
    several = environment.get(NTASKS, "1") not in ("", "1") and "SLURM_STEP_NODELIST" in environment
    return int(environment.get("SLURM_PROCID", "0")) if several else None


class NoAnswerError(Exception):
    """Slurm's commands fail, or are not there."""


def is_id(text: str | None) -> bool:
    """Whether a text is the id of a job or of a task."""
    return text is not None and _ID.fullmatch(text) is not None


def states(ids: Iterable[str]) -> dict[str, str]:
    """The states of jobs; "" of one that has ended and that the accounting does not know.

    Raises:
        NoAnswerError: the queue can't be read. It says nothing about the jobs.
    """
    wanted = [each for each in ids if is_id(each)]
    if not wanted:
        return {}
    found = {each: state for each, state, _ in _queue(wanted) if each in wanted}
    missing = [each for each in wanted if each not in found]
    # What has left the queue has ended, even if the accounting is late to know it.
    ended = {each: state for each, state in _accounts(missing).items() if state not in QUEUED | RUNNING}
    return {**{each: ended.get(each, "") for each in missing}, **found}


def cancel(ids: Iterable[str], below: Path) -> list[str]:
    """Cancels jobs whose script is in a directory; returns the others, which are somebody else's.

    Args:
        ids: of jobs and tasks; those that have ended are left out.
        below: a directory. Numbers that a file names might be those of any job of the user.

    Raises:
        NoAnswerError: the commands fail.
    """
    wanted = [each for each in ids if is_id(each)]
    queued = [(each, script) for each, _, script in _queue(wanted) if each in wanted] if wanted else []
    own = [each for each, script in queued if Path(script).resolve().is_relative_to(below.resolve())]
    if own:
        _run(["scancel", *own])
    return [each for each, _ in queued if each not in own]


def _queue(ids: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Id, state and script of the jobs and tasks that have not ended."""
    jobs = ",".join(sorted({each.partition("_")[0] for each in ids}))
    command = ["squeue", "--noheader", "--array", f"--jobs={jobs}", "--format=%i|%T|%o"]
    text = _run(command, fine="Invalid job id")
    for line in text.splitlines():
        job, state, script = (*map(str.strip, line.split("|", 2)), "", "")[:3]
        for each in _expanded(job):
            yield each, state, script


def _accounts(ids: Iterable[str]) -> Mapping[str, str]:
    """The states of jobs that have ended, as far as Slurm keeps accounts."""
    jobs = ",".join(sorted({each.partition("_")[0] for each in ids}))
    if not jobs:
        return {}
    try:
        text = _run(["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={jobs}", "--format=JobID,State"])
    except NoAnswerError:
        return {}
    found = {}
    for line in text.splitlines():
        job, _, state = line.partition("|")
        for each in _expanded(job.strip()):
            found[each] = (state.split() or [""])[0].rstrip("+")  # `CANCELLED by 1000`
    return found


def _expanded(job: str) -> list[str]:
    """The tasks of an id such as `12_[0-2,5%2]`."""
    tasks = _TASKS.fullmatch(job)
    if tasks is None:
        return [job]
    found = []
    for part in tasks[2].split(","):
        first, _, last = part.partition("-")
        found += [f"{tasks[1]}_{number}" for number in range(int(first), int(last or first) + 1)]
    return found


def _run(command: list[str], *, fine: str | None = None) -> str:
    """The output of a command; "" if it fails with a message that is `fine`."""
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswerError(f"{command[0]}: {getattr(error, 'strerror', None) or 'no answer'}") from error
    if ended.returncode == 0:
        return ended.stdout
    if fine is not None and fine in ended.stderr:
        return ended.stdout
    why = (ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1]
    raise NoAnswerError(f"{command[0]}: {why}")
