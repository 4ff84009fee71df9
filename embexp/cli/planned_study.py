"""A study before it is run, for the terminal: each of its runs, as far as it is known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from embexp.cli import planned_run
from embexp.specs import staged
from embexp.specs.run import RunSpec
from embexp.specs.staged import BASE, GROWN, WORDS

if TYPE_CHECKING:
    from embexp.data.scan import Scan
    from embexp.runs.prepare import Prepared

_DIRECTORY = Path("…")
"""Stands for that of the study, which gets its name when the study begins."""


def show(spec: RunSpec, console: Console, *, scan: bool) -> None:
    """Prints what the runs of a study would do.

    Args:
        spec: of the study.
        console: where to print.
        scan: whether to read the data, to know the sizes of tables.
    """

    def line(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    runs = staged.stages(spec, _DIRECTORY)
    prepared = _prepared(runs) if scan else {}
    for number, (name, run) in enumerate(runs.items(), 1):
        line(f"{number} of {len(runs)}, {name}: {WORDS[name]}")
        if name in prepared:
            planned_run.show(planned_run.read(prepared[name]), console)
            line(f"triples: {_counts(prepared[name].data.scan)}")
        else:
            planned_run.show(planned_run.unread(run), console)
        line()
    line(f"{len(runs)} runs, in the folders {', '.join(runs)}; then what they came to beside each other")


def _prepared(runs: Mapping[str, RunSpec]) -> dict[str, Prepared]:
    """The runs as `embexp run` would prepare them; the grown one with the rows that its base run will have."""
    from embexp.cli.stages import shown
    from embexp.runs.prepare import prepare
    from embexp.runs.successor import prepare_successor

    found: dict[str, Prepared] = {}
    with shown() as stages:
        for name, run in runs.items():
            found[name] = prepare_successor(run, found[BASE], stages) if name == GROWN else prepare(run, stages)
    return found


def _counts(found: Scan) -> str:
    words = {"train": "train", "validation": "validate", "test": "test", "test_new": "of them new", "test_known": ""}
    shown = {words[split]: len(rows) // 2 for split, rows in found.splits.items() if words.get(split)}
    return ", ".join(f"{count:,} {what}" for what, count in shown.items())
