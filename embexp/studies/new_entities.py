"""The study of new entities: a graph without them, grown by them, and trained anew with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from embexp.records.folder import RunFolder
from embexp.runs import run as single
from embexp.runs.finished import load_run
from embexp.runs.run import RunResult
from embexp.specs import staged
from embexp.specs.run import RunSpec
from embexp.specs.staged import BASE, GROWN, WORDS
from embexp.studies import comparison, plot
from embexp.studies.clock import Clock
from embexp.studies.comparison import OldRows, Taken
from embexp.system import digests
from embexp.system.progress import Progress
from embexp.training.listeners import Listener


def run(
    spec: RunSpec,
    directory: Path,
    *,
    listeners: Callable[[], Sequence[Listener]],
    progress: Progress,
    announce: Callable[[str], None],
) -> RunResult:
    """Runs base, grown and full, each in a directory of its own, and compares them.

    Args:
        spec: of the study.
        directory: of the study; it exists.
        listeners: gives those that are to be told of a training.
        progress: is called with what comes before and after a training.
        announce: is told of each run.

    Raises:
        RunError: the data, a file or the machine is not as it must be.
    """
    folder = RunFolder(directory)
    folder.write_spec(spec)
    runs: dict[str, Taken] = {}
    stages = staged.stages(spec, directory)
    for number, (name, stage) in enumerate(stages.items(), 1):
        announce(f"{number} of {len(stages)}, {name}: {WORDS[name]}")
        clock, place = Clock(), directory / name
        place.mkdir()
        result = single.run(stage, place, listeners=[clock, *listeners()], progress=progress)
        runs[name] = Taken(name, result.summary, clock.seconds())
        if result.status == "interrupted":
            break
    else:
        progress("comparing the runs", None)
    grown = GROWN in runs
    old, new = (old_rows(directory), new_tokens(directory)) if grown else ({}, {})
    content = comparison.summarise(spec, runs, old, new)
    folder.write_json(folder.summary, content)
    if spec.output.plots and len(runs) == len(stages):
        plot.write(content, folder.plots, name=spec.name)
    return RunResult(directory, content)


def old_rows(directory: Path) -> dict[str, OldRows]:
    """Rows of the base run's tables as they are there, and as they are in the grown run, matched by token."""
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
    """What the rows stand for that the grown run's tables have and the base run's do not, by table."""
    base, grown = load_run(directory / BASE), load_run(directory / GROWN)
    found = {}
    for name in base.spec.tables:
        known = set(base.vocabulary(name).tokens())
        found[name] = [token for token in grown.vocabulary(name).tokens() if token not in known]
    return found
