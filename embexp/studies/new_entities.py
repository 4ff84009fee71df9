"""The study of new entities: a run without them, one that adds them, and one trained with them from the start."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from embexp.records import allowed_code, inventory
from embexp.records.folder import RunFolder
from embexp.runs import run as single
from embexp.runs.finished import load_run
from embexp.runs.resume import resume
from embexp.runs.run import RunResult
from embexp.specs import studies
from embexp.specs.run import RunSpec
from embexp.specs.studies import BASE, DESCRIPTIONS, GROWN
from embexp.studies import comparison, plot
from embexp.studies.comparison import OldRows, StudyRun
from embexp.system import digests, files
from embexp.system.parallel import Progress
from embexp.training.listeners import Listener

_SECONDS = "seconds.json"
"""How long each run took that has ended, for a study that is resumed."""


def run(
    spec: RunSpec,
    directory: Path,
    *,
    listeners: Callable[[], Sequence[Listener]],
    progress: Progress,
    announce: Callable[[str], None],
) -> RunResult:
    """Runs base, grown and full, each in its own directory, and compares them.

    Args:
        spec: of the study.
        directory: of the study; it exists. Runs that an earlier process has begun there are completed.
        listeners: returns the listeners of a training.
        progress: called with the stages before and after training.
        announce: called with a heading before each run.

    Raises:
        DataError: a file was changed since the study was interrupted.
        RunError: a run fails for a reason in the data, a file or the machine.
    """
    folder = RunFolder(directory)
    inventory.check_whole(directory)
    inventory.unseal(directory)
    folder.write_spec(spec)
    runs: dict[str, StudyRun] = {}
    specs = studies.study_runs(spec, directory)
    for number, (name, run_spec) in enumerate(specs.items(), 1):
        announce(f"{number} of {len(specs)}, {name}: {DESCRIPTIONS[name]}")
        runs[name] = result = _stage(name, run_spec, RunFolder(directory / name), listeners, progress)
        if result.summary["status"] == "interrupted":
            break
    else:
        progress("comparing the runs", None)
    grown = GROWN in runs
    old, new = (old_rows(directory), new_tokens(directory)) if grown else ({}, {})
    content = comparison.summarise(spec, runs, old, new)
    folder.write_json(folder.summary, content)
    if spec.output.plots and len(runs) == len(specs):
        plot.write(content, folder.plots, name=spec.name)
    return RunResult(directory, content, inventory.seal(directory))


def _stage(
    name: str, spec: RunSpec, folder: RunFolder, listeners: Callable[[], Sequence[Listener]], progress: Progress
) -> StudyRun:
    """A run of the study: a new one, or the one that an earlier process has begun or completed."""
    study = RunFolder(folder.path.parent)
    noted = study.path / _SECONDS
    seconds = json.loads(noted.read_bytes()) if noted.is_file() else {}
    if name in seconds:
        return StudyRun(name, folder.read_summary(), seconds[name])
    clock = Clock()
    everyone = [clock, *listeners()]
    files.make_directories(folder.path)
    with folder.writing():
        files.remove_leftovers(folder.path)
        if folder.spec.exists():
            allowed = allowed_code.named(spec)  # that the study's spec may name it has been checked
            result = resume(folder.path, allow_code=allowed, listeners=everyone, progress=progress)
        else:
            result = single.run(spec, folder.path, listeners=everyone, progress=progress)
        if result.status != "interrupted":
            study.write_json(noted, seconds | {name: clock.seconds()})
    return StudyRun(name, result.summary, clock.seconds())


def old_rows(directory: Path) -> dict[str, OldRows]:
    """Compares the rows of the base run's tables with the same rows of the grown run, matched by token."""
    base, grown = load_run(directory / BASE), load_run(directory / GROWN)
    found = {}
    for name in base.spec.tables:
        row_of = {token: row for row, token in enumerate(grown.vocabulary(name).tokens())}
        before = base.table(name)
        after = grown.table(name)[[row_of[token] for token in base.vocabulary(name).tokens()]]
        changed = (before.view("u4") != after.view("u4")).any(axis=1)
        blocks = range(0, len(before), digests.ROWS_PER_BLOCK)
        digest_before, digest_after = (
            digests.of_rows(rows[start : start + digests.ROWS_PER_BLOCK] for start in blocks)
            for rows in (before, after)
        )
        found[name] = OldRows(len(before), int(changed.sum()), digest_before, digest_after)
    return found


def new_tokens(directory: Path) -> dict[str, list[str]]:
    """The tokens that the grown run has and the base run lacks, by table."""
    base, grown = load_run(directory / BASE), load_run(directory / GROWN)
    found = {}
    for name in base.spec.tables:
        known = set(base.vocabulary(name).tokens())
        found[name] = [token for token in grown.vocabulary(name).tokens() if token not in known]
    return found


class Clock(Listener):
    """Measures how long a run takes before, during and after training; starts when created."""

    def __init__(self) -> None:
        self._times = [time.perf_counter()]

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Training begins."""
        self._times.append(time.perf_counter())

    def ended(self, status: str) -> None:
        """Training has ended."""
        self._times.append(time.perf_counter())

    def seconds(self) -> dict[str, float | None]:
        """Seconds until now, by stage.

        Returns:
            setup: reading the data, creating and filling the tables; training: steps and evaluations; finishing: the
            checkpoint, the last evaluations, digests and plots; total. All None if an earlier process has trained: it
            was killed before it could note them.
        """
        times = [*self._times, time.perf_counter()]
        names = ("setup", "training", "finishing")
        if len(times) <= len(names):
            return dict.fromkeys((*names, "total"))
        passed = {name: after - before for name, before, after in zip(names, times, times[1:], strict=False)}
        return {name: round(seconds, 3) for name, seconds in (passed | {"total": times[-1] - times[0]}).items()}
