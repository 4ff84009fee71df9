"""A study before it is run: each of its runs, as far as it is known before those that it builds on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from embexp.cli import planned_run
from embexp.cli.planned_run import Sizes
from embexp.specs import staged
from embexp.specs.run import RunSpec
from embexp.specs.staged import BASE, GROWN, WORDS

if TYPE_CHECKING:
    from embexp.data.scan import Scan
    from embexp.data.vocabulary import Vocabulary

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
        rows = {table: settings.vocabulary_size for table, settings in stage.tables.items()}
        if not scan:
            planned_run.show(stage, Sizes(rows, dims), console)
        else:
            found, vocabularies = _scanned(stage)
            rows = {table: size or vocabularies[table].size for table, size in rows.items()}
            planned_run.show(stage, Sizes(rows, dims), console, policies={})
            say(f"triples: {_counts(found)}")
            if name == BASE:
                known = vocabularies
            elif name == GROWN:
                for line in _new(known, vocabularies):
                    say(line)
        say()
    say(f"{len(stages)} runs, in the folders {', '.join(stages)}; then what they came to beside each other")


def _scanned(spec: RunSpec) -> tuple[Scan, dict[str, Vocabulary]]:
    """What the data holds, and the vocabulary of each table."""
    from embexp import places
    from embexp.cli.stages import Stages
    from embexp.data.columns import columns_of
    from embexp.data.scan import scan

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


def _new(known: Mapping[str, Vocabulary], grown: Mapping[str, Vocabulary]) -> Iterator[str]:
    """How many rows of each table the base run has, which are frozen then."""
    for table, vocabulary in grown.items():
        old = known[table].size
        yield (
            f"freeze: tables.{table}: old_rows takes {old:,} of {vocabulary.size:,} rows, those of the base run;"
            f" {vocabulary.size - old:,} are trained"
        )
