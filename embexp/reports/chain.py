"""The runs that a run went on from, one after the other: what each was tested on, what came, and what it brought."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from embexp.errors import RunError
from embexp.records.folder import RunFolder
from embexp.reports import results
from embexp.specs import tasks
from embexp.system import terminal


def chain_of(directory: Path) -> list[Path]:
    """The runs that a run went on from, the first one that is there first, and itself.

    Raises:
        NotARunError: the directory has no finished run.
    """
    found = [directory]
    RunFolder(directory).read_summary()
    while (folder := RunFolder(found[0])).summary.is_file():
        parent = folder.read_summary().get("parent")
        if not parent or (before := Path(parent["path"])) in found or not RunFolder(before).summary.is_file():
            break
        found.insert(0, before)
    return found


def show(directory: Path, console: Console, plot: Path | None) -> None:
    """Prints a line for each run of a chain, and draws their metric.

    Args:
        plot: PNG file for the picture; None: none is drawn.

    Raises:
        NotARunError: the directory has no finished run.
        RunError: the runs have nothing that could be drawn.
    """
    summaries = {path: RunFolder(path).read_summary() for path in chain_of(directory)}
    task = tasks.named(str(summaries[directory]["task"]))
    metric = tasks.headline(task, summaries[directory]["metrics"].get("test", ()))
    table = terminal.table(
        console,
        ["run"],
        right=["steps", f"test {metric}", "its parent's", "change", "rows kept", "new", "not in the data", "dropped"],
    )
    for path, summary in summaries.items():
        table.add_row(Text(results.shown_path(path)), *_cells(summary, metric))
    for each in results.spaced([table], console.options):
        console.print(each)
    if plot is None:
        return
    lines = series(list(summaries.values()), metric)
    if not lines:
        raise RunError(f"none of the runs has a test split, so there is no {metric} to draw")
    from embexp.reports import plots

    names = [path.name for path in summaries]
    title = str(summaries[directory]["name"])
    plots.save(plots.files_figure(lines, metric=metric, name=title, files=names, across="run"), plot)
    terminal.say(console, f"written: {plot}")


def _cells(summary: Mapping[str, Any], metric: str) -> Iterator[str]:
    """The cells of a run, after its directory."""
    yield f"{summary['steps']:,}"
    value = summary["metrics"].get("test", {}).get(metric)
    yield "" if value is None else f"{value:.4f}"
    parent = summary.get("parent") or {}
    before = results.parent_cells(summary)
    yield from ["", ""] if before is None or before[0] != "test" else before[1].get(metric, ["", ""])
    tables = parent.get("tables", {}).values()
    for key in ("kept", "new", "unseen", "dropped"):
        yield f"{sum(each[key] for each in tables):,}" if parent else ""


def series(summaries: Sequence[Mapping[str, Any]], metric: str) -> dict[str, dict[int, float]]:
    """The metric of the test split by the number of the run, of the runs and of their parents on the same data."""
    found: dict[str, dict[int, float]] = {}
    for number, summary in enumerate(summaries):
        parent = (summary.get("parent") or {}).get("metrics", {})
        for label, metrics in (("after training", summary["metrics"]), ("its parent", parent)):
            if (value := metrics.get("test", {}).get(metric)) is not None:
                found.setdefault(label, {})[number] = float(value)
    return found
