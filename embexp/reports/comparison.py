"""The comparison of runs on the same examples: what is known of each pair, as a table, JSON, and data of the page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from html import escape
from typing import Any

from rich.console import Console
from rich.text import Text

from embexp.records.folder import finite
from embexp.reports import grid
from embexp.reports.grid import Column
from embexp.reports.groups import REPEATS
from embexp.specs.tasks import Direction
from embexp.system import terminal
from embexp.training.significance import CONFIDENCE, LEVEL, POWER

_DIGITS = 8
"""Digits of a digest that are shown."""


@dataclass(frozen=True)
class Contender:
    """A model that is compared: a run, or the runs of one setting with several seeds.

    Attributes:
        letter: by which tables name it.
        name: its directory, or the setting within a sweep.
        directories: of its runs, by seed and fold, see `groups.repetition`.
    """

    letter: str
    name: str
    directories: Mapping[str, str]

    def runs(self) -> list[dict[str, Any]]:
        """Its runs as JSON, each with what it repeats."""
        return [
            {**dict(zip(REPEATS, json.loads(key), strict=True)), "directory": directory}
            for key, directory in self.directories.items()
        ]


@dataclass(frozen=True)
class MetricCompared:
    """A metric of two models, and whether the models differ.

    Attributes:
        direction: which way the metric improves; None if unknown.
        before: value of the first model, the mean over its runs; `after` is the same for the second.
        interval: interval of the difference, after minus before, at the level `significance.CONFIDENCE`; None if
            unknown.
        p: two-sided p-value; None if unknown.
        test: the test that gave `p`; "": none.
        adjusted: `p` after Holm's correction for all pairs; None if there is only one pair.
        rows: number of examples, users or queries that were resampled; None: only seeds.
        unit: what the rows are, in the plural.
        rows_needed: number of rows that would show this difference with power `significance.POWER`; None if unknown.
        seeds_needed: the same for pairs of seeds on these examples.
    """

    name: str
    direction: Direction | None
    before: float
    after: float
    interval: tuple[float, float] | None = None
    p: float | None = None
    test: str = ""
    adjusted: float | None = None
    rows: int | None = None
    unit: str = ""
    rows_needed: int | None = None
    seeds_needed: int | None = None

    @property
    def difference(self) -> float:
        """After minus before."""
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """The second model compared with the first: better, worse, the same, or undecided; "": not tested."""
        p = self.p if self.adjusted is None else self.adjusted
        if p is None:
            return ""
        if self.difference == 0:
            return "the same"
        if p >= LEVEL:
            return "undecided"
        higher = self.difference > 0
        if self.direction is None:
            return "higher" if higher else "lower"
        return "better" if higher == (self.direction is Direction.HIGHER) else "worse"

    @property
    def needed(self) -> str:
        """How many seeds or examples would show the difference."""
        if self.seeds_needed is not None:
            return f"{self.seeds_needed:,} seeds"
        return "" if self.rows_needed is None else f"{self.rows_needed:,} {self.unit}"

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "difference": self.difference, "verdict": self.verdict}


@dataclass(frozen=True)
class RowCompared:
    """An example, user or query, and what two models gave for it.

    Attributes:
        example: its number in the data, from 0; of a user, that of the first example.
        named: what tells it apart, by column.
        label: as text; "": there is none.
    """

    example: int
    named: Mapping[str, str]
    label: str
    before: str
    after: str


@dataclass(frozen=True)
class Pair:
    """Two models, compared.

    Attributes:
        before: letter of the first.
        after: letter of the second.
        seeds: pairs of runs with the same seed and fold; 0: the runs are of other seeds, and not paired.
        differing: for how many rows the models gave something else; None: it is not known.
        rows: how many there are.
        unit: what rows are, in the plural.
        outcome: what is given for each, such as a prediction.
        most_different: the rows that differ most, the first one most.
    """

    before: str
    after: str
    metrics: tuple[MetricCompared, ...]
    seeds: int = 1
    differing: int | None = None
    rows: int = 0
    unit: str = ""
    outcome: str = ""
    most_different: tuple[RowCompared, ...] = ()

    def table(self) -> list[Column]:
        """A row for each metric; columns in which no metric has anything are left out."""
        found = self.metrics
        corrected = any(each.adjusted is not None for each in found)
        ps = [each.p if each.adjusted is None else each.adjusted for each in found]
        columns = [
            Column(f"{self.after} − {self.before}", tuple(each.name for each in found)),
            _numbers(self.before, [grid.figure(each.before) for each in found]),
            _numbers(self.after, [grid.figure(each.after) for each in found]),
            _numbers("difference", [_signed(each)[0] for each in found]),
            _numbers(f"{CONFIDENCE:.0%} interval", [_signed(each)[1] for each in found]),
            _numbers("p (Holm)" if corrected else "p", map(grid.probability, ps)),
            Column("test", tuple(each.test for each in found)),
            Column(f"{self.after} is", tuple(each.verdict for each in found)),
            _numbers(f"for {POWER:.0%} power", [each.needed for each in found]),
        ]
        return [column for column in columns if any(column.cells)]

    def table_of_rows(self) -> list[Column]:
        """A row for each of the examples that differ most."""
        rows = self.most_different
        names = list(dict.fromkeys(name for row in rows for name in row.named))
        columns = [
            _numbers("example", [f"{row.example:,}" for row in rows]),
            *(Column(name, tuple(grid.one_line_of(row.named.get(name, "")) for row in rows)) for name in names),
            Column("label", tuple(grid.one_line_of(row.label) for row in rows)),
            _numbers(f"{self.outcome} of {self.before}", [grid.one_line_of(row.before) for row in rows]),
            _numbers(f"of {self.after}", [grid.one_line_of(row.after) for row in rows]),
        ]
        return [column for column in columns if any(column.cells)]

    def count(self) -> str:
        """For how many rows the models gave something else, in a sentence; "": it is not known."""
        if self.differing is None:
            return ""
        most = "; the most different:" if self.most_different else ""
        return f"{self.outcome}: {self.differing:,} of {self.rows:,} {self.unit} differ{most}"


@dataclass(frozen=True)
class Comparison:
    """Models on the same examples. It prints as text, and is shown as tables in notebooks.

    Attributes:
        on: the examples, in words.
        digest: digest of the examples and their labels.
        notes: what the reader should know, one sentence each.
    """

    contenders: tuple[Contender, ...]
    pairs: tuple[Pair, ...]
    on: str
    digest: str
    notes: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        """The tables as `embexp compare` prints them."""
        return terminal.as_text(partial(show, self))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The tables for a notebook. Text is escaped."""
        parts = [f"<p>{escape(line)}</p>" for line in self.head()]
        for pair in self.pairs:
            parts += [grid.as_html(pair.table()), f"<p>{escape(pair.count())}</p>"]
            parts += [grid.as_html(pair.table_of_rows())] if pair.most_different else []
        return f"<div>{''.join(parts)}{''.join(f'<p>{escape(note)}</p>' for note in self.notes)}</div>"

    def __getitem__(self, metric: str) -> MetricCompared:
        """A metric of the first pair.

        Raises:
            KeyError: there is no such metric.
        """
        return {each.name: each for each in self.pairs[0].metrics}[metric]

    def head(self) -> Iterator[str]:
        """What is compared, as lines of text."""
        for each in self.contenders:
            count = len(each.directories)
            yield f"{each.letter}  {grid.one_line_of(each.name)}" + (f" ({count} runs)" if count > 1 else "")
        yield f"on {self.on}, digest {self.digest[:_DIGITS]}"

    def as_json(self) -> dict[str, Any]:
        """As JSON; values that are not finite are null."""
        pairs = [{**asdict(pair), "metrics": [each.as_json() for each in pair.metrics]} for pair in self.pairs]
        known = {"on": self.on, "digest": self.digest, "notes": self.notes}
        models = [{"letter": each.letter, "name": each.name, "runs": each.runs()} for each in self.contenders]
        content: dict[str, Any] = finite({"models": models, **known, "pairs": pairs})
        return content

    def for_page(self) -> dict[str, Any]:
        """What the script of the page reads: text of tables, and the numbers of the picture."""
        pairs = []
        for pair in self.pairs:
            differences = [
                [each.difference, *(each.interval or (None, None)), each.verdict, each.name] for each in pair.metrics
            ]
            tables = [_as_lists(each) if each else None for each in (pair.table(), pair.table_of_rows())]
            pairs.append({"tables": tables, "differences": finite(differences), "count": pair.count()})
        return {"head": list(self.head()), "pairs": pairs, "notes": list(self.notes)}


def as_text(comparison: Comparison) -> str:
    """The JSON of a comparison, as text."""
    return json.dumps(comparison.as_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def show(comparison: Comparison, console: Console) -> None:
    """Prints a comparison."""
    for line in comparison.head():
        console.print(Text(line), soft_wrap=True)
    for pair in comparison.pairs:
        console.print()
        grid.print_table(pair.table(), console)
        if count := pair.count():
            console.print(Text(count), soft_wrap=True)
        if pair.most_different:
            grid.print_table(pair.table_of_rows(), console)
    for note in comparison.notes:
        console.print(Text(note), soft_wrap=True)


def _numbers(heading: str, cells: Any) -> Column:
    return Column(heading, tuple(cells), right=True)


def _signed(metric: MetricCompared) -> tuple[str, str]:
    """The difference of a metric, and the ends of its interval, with the decimals of the largest."""
    values = (metric.difference, *(metric.interval or ()))
    largest = max(map(abs, values))
    decimals = len(grid.figure(largest).partition(".")[2]) if 1e-4 <= largest < math.inf else 0
    first, *ends = ((f"{each:+,.{decimals}f}" if decimals else f"{each:+.3g}") if each else "0" for each in values)
    return first, " to ".join(ends)


def _as_lists(table: Sequence[Column]) -> list[Any]:
    """Headings, each with whether it is of numbers, and rows of cells."""
    heads = [[column.heading, column.right] for column in table]
    return [heads, [list(row) for row in zip(*(column.cells for column in table), strict=True)]]
