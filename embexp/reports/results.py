"""The results of a run on the terminal: metrics, tables, files and warnings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from embexp.reports import coverage, metric_rows, table_rows

_FILES = {
    "summary.json": "all results",
    "metrics.jsonl": "losses and metrics over the steps",
    "plots": "overview.png and more",
    "checkpoints": "tables, slots and model",
    "events": "for tensorboard --logdir",
    "vocabularies": "token of each row",
    "coverage.json": "which rows the pretrained files had",
    "spec.json": "all settings, enough to run it again",
    "manifest.json": "versions, machine, data",
    "inventory.json": "digest of each file",
    "run.log": "output of the run",
}
_RESTORED = 10
"""Restored values that are listed."""
_STATUS = {"completed": "green", "stopped_early": "green", "interrupted": "yellow", "failed": "red"}


@dataclass(frozen=True)
class Results:
    """A rich renderable of a run; without frames and colours unless the output is a terminal.

    Attributes:
        summary: the content of summary.json. All keys but `status` may be missing. `truth` holds the best possible
            values on the test split, under `bayes_` and the metric's name.
        directory: of the run.
    """

    summary: Mapping[str, Any]
    directory: Path

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the status, restored values, tables of metrics, tables and pretrained files, files, and warnings."""
        frames = box.SIMPLE_HEAD if options.is_terminal and not options.ascii_only else None
        yield from self._headline()
        yield from self._restored()
        gap = [Text()] if frames is None else []  # a framed table has its own empty lines
        for table in (self._metrics(frames), self._tables(frames, options.max_width), self._pretrained(frames)):
            if table is not None:
                yield from gap
                yield Padding(table, (0, 0, 0, 2 if frames is None else 1), expand=False)
        yield from gap
        yield from self._files()
        for warning in self.summary.get("warnings") or ():
            yield Text.assemble(("warning: ", "bold yellow"), str(warning))

    def _headline(self) -> Iterator[RenderableType]:
        status = str(self.summary["status"])
        items = [(status.replace("_", " "), f"bold {_STATUS.get(status, '')}".strip())]
        if (steps := self.summary.get("steps")) is not None:
            items.append((f"{steps:,} steps", ""))
        if (best := self.summary.get("best_step")) is not None:
            items.append((f"best at step {best:,}", ""))
        execution = [str(self.summary[key]) for key in ("strategy", "runtime") if self.summary.get(key)]
        if execution:
            items.append((" / ".join(execution) + (" (a simulation)" if self.summary.get("simulated") else ""), "dim"))
        yield _joined(items)
        items = []
        throughput = self.summary.get("throughput") or {}
        if (rate := throughput.get("examples_per_second")) is not None:
            items.append((f"{rate:,.0f} examples/s", ""))
        if (milliseconds := throughput.get("step_ms_median")) is not None:
            items.append((f"{milliseconds:.3g} ms per step", ""))
        if items:
            yield _joined(items)

    def _restored(self) -> Iterator[RenderableType]:
        restored = self.summary.get("restored")
        if not restored:
            return
        values, left_out = restored["restored"], len(restored["left_out"])
        count = "1 value" if len(values) == 1 else f"{len(values)} values"
        yield Text(f"restored {count} from {restored['checkpoint']}, {left_out} left out as told:")
        for value in values[:_RESTORED]:
            yield Text(f"  {value}")
        if len(values) > _RESTORED:
            yield Text(f"  … and {len(values) - _RESTORED} more, in summary.json")

    def _metrics(self, frames: box.Box | None) -> Table | None:
        found = metric_rows.of(self.summary)
        if not found.rows:
            return None
        table = _table(frames, found.headings[:1], found.headings[1:])
        for cells in found.rows:
            table.add_row(*cells)
        return table

    def _tables(self, frames: box.Box | None, width: int) -> Table | None:
        facts = table_rows.of(self.summary)
        if not facts:
            return None
        indent, between = (2, 2) if frames is None else (4, 3)
        headings = table_rows.headings(facts, width - indent, between)
        left, after = [table_rows.NAME], [table_rows.STORAGE] if table_rows.STORAGE in headings else []
        right = [name for name in headings if name not in (*left, *after)]
        table = _table(frames, left, [headings[name] for name in right], after)
        for row in facts:
            table.add_row(
                *(
                    Text(row.cells[name], "yellow" if name == table_rows.UNMOVED and row.cells[name] != "0" else "")
                    for name in (*left, *right, *after)
                ),
                style="bold" if row.several else "",
            )
        return table

    def _pretrained(self, frames: box.Box | None) -> Table | None:
        return coverage.table(coverage.read(self.directory / "coverage.json"), frames)

    def _files(self) -> Iterator[RenderableType]:
        yield Text.assemble(("results in ", ""), (shown_path(self.directory), "bold"), overflow="fold")
        existing = [(name, content) for name, content in _FILES.items() if (self.directory / name).exists()]
        if existing:
            table = Table.grid(padding=(0, 2))
            table.add_column()
            table.add_column(style="dim")
            for name, content in existing:
                table.add_row(name + ("/" if (self.directory / name).is_dir() else ""), content)
            yield Padding(table, (0, 0, 0, 2), expand=False)


def shown_path(path: Path) -> str:
    """`path` relative to the working directory if it is inside it, else the absolute path."""
    absolute = path.absolute()
    working_directory = Path(os.getcwd())
    return str(absolute.relative_to(working_directory) if absolute.is_relative_to(working_directory) else absolute)


def _table(frames: box.Box | None, left: Sequence[str], right: Sequence[str], after: Sequence[str] = ()) -> Table:
    table = Table(box=frames, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", no_wrap=False)
    for name in after:
        table.add_column(name)
    return table


def _joined(items: Sequence[tuple[str, str]]) -> Text:
    return Text("  ·  ").join(Text(text, style) for text, style in items)
