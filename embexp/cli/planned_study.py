"""The plan of a study for the terminal: the plan of each of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from embexp.cli import planned_run
from embexp.specs import studies
from embexp.specs.run import RunSpec
from embexp.specs.studies import BASE, DESCRIPTIONS, GROWN

if TYPE_CHECKING:
    from embexp.data.scan import Scan
    from embexp.runs.prepare import Prepared

_DIRECTORY = Path("…")
"""Placeholder of the study's directory, which gets its name when the study starts."""


def show(spec: RunSpec, console: Console, *, scan: bool) -> None:
    """Prints the plan of each run of a study.

    Args:
        spec: of the study.
        console: where to print.
        scan: whether to read the data.
    """

    def line(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    runs = studies.study_runs(spec, _DIRECTORY)
    prepared = _prepared(runs) if scan else {}
    for number, (name, run) in enumerate(runs.items(), 1):
        line(f"{number} of {len(runs)}, {name}: {DESCRIPTIONS[name]}")
        if name in prepared:
            planned_run.show(planned_run.from_prepared(prepared[name]), console)
            line(f"triples: {_counts(prepared[name].data.scan)}")
        else:
            planned_run.show(planned_run.from_spec(run), console)
        line()
    line(f"{len(runs)} runs, in the folders {', '.join(runs)}; then their comparison")


def _prepared(runs: Mapping[str, RunSpec]) -> dict[str, Prepared]:
    """Prepares the runs as `embexp run` does; the grown run with the rows that its base run will have."""
    from embexp.cli.stages import shown
    from embexp.runs.prepare import prepare, prepare_successor

    found: dict[str, Prepared] = {}
    with shown() as stages:
        for name, run in runs.items():
            found[name] = prepare_successor(run, found[BASE], stages) if name == GROWN else prepare(run, stages)
    return found


def _counts(found: Scan) -> str:
    names = {"train": "train", "validation": "validate", "test": "test", "test_new": "of them new", "test_known": ""}
    counts = {names[split]: len(rows) // 2 for split, rows in found.splits.items() if names.get(split)}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
