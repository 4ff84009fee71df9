"""A finished study as a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from embexp.reports.results import Results, shown_path
from embexp.specs.staged import GROWN

_FILES = {
    "summary.json": "what is shown here, and more",
    "plots/comparison.png": "the same as a picture",
    "base/ grown/ full/": "the runs, each with its own summary, checkpoints and plots",
}
_COLUMNS = ("entities", "triples trained", "rows trained", "epochs", "setup", "training")
_METRICS = {
    "MRR new": ("test_new", "mrr"),
    "Hits@10 new": ("test_new", "hits_at_10"),
    "MRR known": ("test_known", "mrr"),
    "MRR all": ("test", "mrr"),
}


def of(summary: Mapping[str, Any], directory: Path) -> Results | Comparison:
    """What a run or a study came to, for the terminal."""
    return Comparison(summary, directory) if "study" in summary else Results(summary, directory)


@dataclass(frozen=True)
class Comparison:
    """A rich renderable of a study of new entities.

    Attributes:
        summary: the content of its summary.json.
        directory: of the study.
    """

    summary: Mapping[str, Any]
    directory: Path

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the parts."""
        frames = box.SIMPLE_HEAD if options.is_terminal and not options.ascii_only else None
        status = str(self.summary["status"])
        yield Text(f"{self.summary['name']}: {status}", "bold green" if status == "completed" else "bold yellow")
        gap = [Text()] if frames is None else []
        yield from gap
        yield Padding(self._table(frames), (0, 0, 0, 2 if frames is None else 1), expand=False)
        yield from gap
        yield from self._sentences()
        yield Text.assemble("results in ", (shown_path(self.directory), "bold"), overflow="fold")
        files = Table.grid(padding=(0, 2))
        for name, words in _FILES.items():
            files.add_row(name, Text(words, "dim"))
        yield Padding(files, (0, 0, 0, 2), expand=False)
        for warning in self.summary["warnings"]:
            yield Text.assemble(("warning: ", "bold yellow"), str(warning))

    def _table(self, frames: box.Box | None) -> Table:
        table = Table(box=frames, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("run")
        for name in (*_COLUMNS, *_METRICS):
            table.add_column(name, justify="right")
        for name, run in self.summary["runs"].items():
            entities = next(iter(run["rows"].values()))
            metrics = [run["metrics"].get(part, {}).get(metric) for part, metric in _METRICS.values()]
            table.add_row(
                name,
                f"{entities:,}",
                f"{run['trained_triples']:,}",
                f"{sum(run['trainable_rows'].values()):,}",
                f"{run['epochs']:g}",
                f"{run['seconds']['setup']:.1f} s",
                f"{run['seconds']['training']:.1f} s",
                *("" if value is None else f"{value:.4f}" for value in metrics),
            )
        return table

    def _sentences(self) -> Iterator[RenderableType]:
        for name, rows in self.summary["old_rows"].items():
            same = rows["digest_before"] == rows["digest_after"]
            words = (
                f"{rows['rows_changed']:,} of {rows['rows']:,} changed; digest {rows['digest_before'][:12]} before, "
            )
            words += f"{'the same' if same else rows['digest_after'][:12]} after"
            yield Text.assemble(f"old rows of {name}: ", (words, "" if same else "bold red"))
        ratios = self.summary["comparison"]
        if ratios.get("mrr_new") is not None and ratios.get("training_seconds"):
            yield Text(
                f"{GROWN} reaches {ratios['mrr_new']:.1%} of full's MRR on the new entities in "
                f"{ratios['training_seconds']:.1%} of its time to train"
            )
