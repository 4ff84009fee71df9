"""A study before it is run: each of its runs, as far as it is known before those that it builds on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from embexp.cli import planned_run
from embexp.cli.planned_run import Sizes
from embexp.specs import staged
from embexp.specs.resolution import runtime_of
from embexp.specs.run import RunSpec
from embexp.specs.staged import BASE, GROWN, WORDS

if TYPE_CHECKING:
    from embexp.data.scan import Scan
    from embexp.data.vocabulary import Vocabulary
    from embexp.freezing.policies import TablePolicy

_DIRECTORY = Path("…")
"""Stands for that of the study, which is named when it begins."""


def show(spec: RunSpec, console: Console, *, scan: bool) -> None:
    """Prints what the runs of a study would do.

    Args:
        spec: of the study.
        console: where to print.
        scan: whether to read the data, to know the sizes of tables.
    """

    def say(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    stages = staged.stages(spec, _DIRECTORY)
    known: Mapping[str, Vocabulary] = {}
    for number, (name, stage) in enumerate(stages.items(), 1):
        say(f"{number} of {len(stages)}, {name}: {WORDS[name]}")
        dims = {table: settings.width for table, settings in stage.tables.items()}
        asked = {table: settings.vocabulary_size for table, settings in stage.tables.items()}
        if not scan:
            planned_run.show(stage, Sizes(asked, dims), console)
        else:
            found, vocabularies = _scanned(stage)
            rows = {table: size or vocabularies[table].size for table, size in asked.items()}
            if name == BASE:
                known = vocabularies
            moves = _policies(stage, rows, found, vocabularies, known if name == GROWN else {})
            planned_run.show(stage, Sizes(rows, dims), console, policies=moves)
            say(f"triples: {_counts(found)}")
        say()
    say(f"{len(stages)} runs, in the folders {', '.join(stages)}; then what they came to beside each other")


def _scanned(spec: RunSpec) -> tuple[Scan, dict[str, Vocabulary]]:
    """What the data holds, and the vocabulary of each table."""
    from embexp.cli.stages import Stages
    from embexp.data.columns import columns_of
    from embexp.data.scan import scan
    from embexp.system import places

    columns, shared = columns_of(spec.data, spec.features)
    stages = Stages(Console(stderr=True))
    try:
        found = scan(spec.data, columns, cache=places.cache(spec.output.cache), progress=stages)
    finally:
        stages.close()
    return found, {table: found.vocabularies[shared[table]] for table in spec.tables}


def _counts(found: Scan) -> str:
    words = {"train": "train", "validation": "validate", "test": "test", "test_new": "of them new", "test_known": ""}
    shown = {words[part]: len(rows) // 2 for part, rows in found.splits.items() if words.get(part)}
    return ", ".join(f"{count:,} {what}" for what, count in shown.items())


def _policies(
    spec: RunSpec,
    sizes: Mapping[str, int],
    found: Scan,
    vocabularies: Mapping[str, Vocabulary],
    known: Mapping[str, Vocabulary],
) -> Mapping[str, TablePolicy]:
    """Which rows of each table move.

    Args:
        spec: of one run of the study.
        sizes: rows of each table.
        found: what its data holds.
        vocabularies: of its tables.
        known: those of the run that it begins with, whose rows are old then; empty: it begins with none.
    """
    import numpy as np

    from embexp.freezing import policies
    from embexp.freezing.row_facts import RowFacts

    facts = {}
    for table, rows in sizes.items():
        old = None
        if table in known:
            places = vocabularies[table].rows(known[table].tokens())
            old = np.zeros(rows, np.bool_)
            old[places[places >= 0]] = True
        facts[table] = RowFacts(rows, pretrained=old, old=old)
    steps_per_epoch = len(found.splits["train"]) / spec.train.batch_size
    return policies.settle(spec, facts, steps_per_epoch=steps_per_epoch, runtime=runtime_of(spec))
