"""The results of a run on the terminal: metrics, tables, pretrained files, files and warnings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from embexp.errors import plural
from embexp.records.folder import json_object
from embexp.specs.claims import Claim
from embexp.system import terminal

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
_SPLITS = ("train", "validation", "test", "test_new", "test_known")
_NAME, _STORAGE, _UNMOVED, _FROZEN = "table", "storage", "never moved", "rows frozen"
_NAMED = 30
"""Tables with a row of their own; further ones share one."""
_USUAL = {_FROZEN: "0", _STORAGE: "variable"}
"""Columns that are left out if they have only these cells."""
_MOST_TOKENS = 5
_MOST_CLASSES = 10
"""Classes whose confusion fits on a terminal; summary.json has that of more."""


@dataclass(frozen=True)
class Results:
    """A rich renderable of a run; without frames and colours unless the output is a terminal.

    Attributes:
        summary: the content of summary.json. All keys but `status` may be missing. `truth` holds the best possible
            values on the test split, under `bayes_` and the metric's name.
    """

    summary: Mapping[str, Any]
    directory: Path

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the status, restored values, tables of metrics, tables and pretrained files, files, and warnings."""
        yield from self._headline()
        yield from self._restored()
        tables = self._metrics(options), self._confusion(options), self._tables(options), self._pretrained(options)
        yield from spaced([table for table in tables if table is not None], options)
        yield from claims(self.summary)
        lines = (*continued(self.summary), *divided(self.summary), *fits(self.summary), *fused(self.summary))
        lines = (*lines, *map(str, self.summary.get("environment") or ()))
        yield from map(Text, lines)
        yield from files(self.directory, self._existing())
        yield from warnings(self.summary)

    def _existing(self) -> Iterator[tuple[str, str]]:
        """The files of the run, with what they hold."""
        for name, content in _FILES.items():
            if (path := self.directory / name).exists():
                yield f"{name}/" if path.is_dir() else name, content

    def _headline(self) -> Iterator[RenderableType]:
        status = str(self.summary["status"])
        items = [(status.replace("_", " "), f"bold {_STATUS.get(status, '')}".strip())]
        if (steps := self.summary.get("steps")) is not None:
            items.append((plural(steps, "step"), ""))
        if (best := self.summary.get("best_step")) is not None:
            items.append((f"best at step {best:,}", ""))
        execution = [str(self.summary[key]) for key in ("strategy", "runtime") if self.summary.get(key)]
        if execution:
            items.append((" / ".join(execution) + (" (a simulation)" if self.summary.get("simulated") else ""), "dim"))
        yield _joined(items)
        throughput, items = self.summary.get("throughput") or {}, []
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
        yield Text(f"restored {count} from {restored['checkpoint']}, {left_out} left out as asked:")
        for value in values[:_RESTORED]:
            yield Text(f"  {value}")
        if len(values) > _RESTORED:
            yield Text(f"  … and {len(values) - _RESTORED} more, in summary.json")

    def _metrics(self, options: ConsoleOptions) -> Table | None:
        headings, rows = metric_rows(self.summary)
        if not rows:
            return None
        table = terminal.table(options, headings[:1], right=headings[1:])
        for cells in rows:
            table.add_row(*cells)
        return table

    def _confusion(self, options: ConsoleOptions) -> Table | None:
        """Of the last split, if the classes have names: labels in rows, predictions in columns."""
        names, details = self.summary.get("classes") or (), self.summary.get("evaluation") or {}
        split = next((name for name in ("test", "validation") if (details.get(name) or {}).get("confusion")), None)
        if split is None or not 0 < len(names) <= _MOST_CLASSES:
            return None
        table = terminal.table(options, [f"{split}: label"], right=[f"as {name}" for name in names])
        for name, counts in zip(names, details[split]["confusion"], strict=False):
            table.add_row(Text(name), *(f"{count:,.6g}" for count in counts))
        return table

    def _tables(self, options: ConsoleOptions) -> Table | None:
        facts = table_rows(self.summary)
        if not facts:
            return None
        headings = [name for name in facts[0] if any(row[name] not in ("", _USUAL.get(name)) for row in facts)]
        left, after = [_NAME], [_STORAGE] if _STORAGE in headings else []
        right = [name for name in headings if name not in (*left, *after)]
        table = terminal.table(options, left, right=right, after=after)
        for cells in facts:
            sums_up = cells is facts[-1] and len(facts) < len(self.summary["tables"])
            table.add_row(
                *(
                    Text(cells[name], "yellow" if name == _UNMOVED and cells[name] != "0" else "")
                    for name in (*left, *right, *after)
                ),
                style="bold" if sums_up else "",
            )
        return table

    def _pretrained(self, options: ConsoleOptions) -> Table | None:
        return coverage_table(json_object(self.directory / "coverage.json"), options)


def spaced(tables: Iterable[Table], options: ConsoleOptions) -> Iterator[RenderableType]:
    """Tables with an empty line around each; a framed one has its own."""
    frames = terminal.frames(options)
    gap = [Text()] if frames is None else []
    for table in tables:
        yield from gap
        yield Padding(table, (0, 0, 0, 2 if frames is None else 1), expand=False)
    yield from gap


def files(directory: Path, contents: Iterable[tuple[str, str]]) -> Iterator[RenderableType]:
    """Where the results are: the directory, and its files with what they hold."""
    yield Text.assemble("results in ", (shown_path(directory), "bold"), overflow="fold")
    table = Table.grid(padding=(0, 2))
    for name, content in contents:
        table.add_row(name, Text(content, "dim"))
    if table.row_count:
        yield Padding(table, (0, 0, 0, 2), expand=False)


def warnings(summary: Mapping[str, Any], most: int | None = None) -> Iterator[RenderableType]:
    """A line for each warning of a summary, and one for those beyond `most`."""
    found = summary.get("warnings") or ()
    for warning in found[:most]:
        yield Text.assemble(("warning: ", "bold yellow"), str(warning))
    if most is not None and len(found) > most:
        yield f"… and {plural(len(found) - most, 'more warning')}, in summary.json"


def claims(summary: Mapping[str, Any]) -> Iterator[Text]:
    """A line for each claim that the config makes of the results, red where it is not met."""
    for each in map(Claim.model_validate, summary.get("claims") or ()):
        yield Text(str(each), "" if each.met else "bold red")


def fits(summary: Mapping[str, Any]) -> Iterator[str]:
    """A line for each baseline that was fitted to a sample, or evaluated on one."""
    for name, fit in (summary.get("baseline_fits") or {}).items():
        parts = []
        if fit["examples"] < fit["of"]:
            parts.append(f"fitted to {fit['examples']:,} of {fit['of']:,} training examples")
        if fit.get("evaluated", 0) < fit.get("held_out", 0):
            parts.append(f"evaluated on {fit['evaluated']:,} of {fit['held_out']:,} others")
        if parts:
            yield f"{name.replace('_', ' ')}: {', '.join(parts)}"


def continued(summary: Mapping[str, Any]) -> Iterator[str]:
    """Lines on the run that this one went on from: which it is, and the rows of each table's tokens."""
    if parent := summary.get("parent"):
        before = f"{plural(parent['links'], 'run')} before it, {plural(parent['steps'], 'step')}"
        yield f"continues {shown_path(Path(parent['path']))} ({before})"
        for table, rows in parent["tables"].items():
            yield f"  {table}: {kept_rows(rows)}"


def kept_rows(rows: Mapping[str, int]) -> str:
    """How many rows of a table's tokens were kept, came and went."""
    words = {"kept": "kept", "new": "new", "unseen": "not in the new data", "dropped": "dropped"}
    shown = [f"{rows[key]:,} {text}" for key, text in words.items() if rows[key] or key in ("kept", "new")]
    return ", ".join(shown)


def divided(summary: Mapping[str, Any]) -> Iterator[str]:
    """A line on how the examples were divided, which names the columns that decided."""
    if split := summary.get("split"):
        yield f"split: {split}"


def fused(summary: Mapping[str, Any]) -> Iterator[str]:
    """A line on the fused operations that the steps used, or why they used none."""
    operations = summary.get("fused_operations") or {}
    used, missing = operations.get("used"), operations.get("missing")
    if used is not None:  # else there was no step
        because = f"{missing}; TensorFlow's own are slower" if missing else "none of them apply to this run"
        yield f"fused operations: {', '.join(used) or f'none: {because}'}"


def shown_path(path: Path) -> str:
    """`path` relative to the working directory if it is inside it, else the absolute path."""
    absolute = path.absolute()
    working_directory = Path(os.getcwd())
    return str(absolute.relative_to(working_directory) if absolute.is_relative_to(working_directory) else absolute)


def _joined(items: Sequence[tuple[str, str]]) -> Text:
    return Text("  ·  ").join(Text(text, style) for text, style in items)


def run_as_html(summary: Mapping[str, Any], directory: Path) -> str:
    """How a run ended, its metrics and its warnings, without anything that differs when it is repeated."""
    from embexp.reports import grid

    headings, rows = metric_rows(summary)
    cells = zip(*rows, strict=True)
    pairs = enumerate(zip(headings, cells, strict=False))
    columns = [grid.Column(heading, each, right=place > 0) for place, (heading, each) in pairs]
    below = [
        *map(str, claims(summary)),
        *fits(summary),
        *(f"warning: {warning}" for warning in summary.get("warnings") or ()),
    ]
    lines = [f"<p>{escape(line)}</p>" for line in (run_as_text(summary, directory), *below)]
    return f"<div>{lines[0]}{grid.as_html(columns) if columns else ''}{''.join(lines[1:])}</div>"


def run_as_text(summary: Mapping[str, Any], directory: Path) -> str:
    """The same in one line, without metrics."""
    steps, best = summary.get("steps"), summary.get("best_step")
    parts = [
        str(summary["status"]).replace("_", " "),
        None if steps is None else plural(steps, "step"),
        None if best is None else f"best at step {best:,}",
        f"in {shown_path(directory)}",
    ]
    return ", ".join(filter(None, parts))


def metric_rows(summary: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The metrics of each split with an interval, next to those of baselines and the best possible ones where known.

    Args:
        summary: the content of summary.json; all keys may be missing. `truth` holds the best possible values on the
            test split, under `bayes_` and the metric's name.

    Returns:
        The headings of the columns, the first of which has the metrics' names, and a row of cells for each metric.
    """
    by_split = {split: values for split in _SPLITS if (values := (summary.get("metrics") or {}).get(split))}
    names = list(dict.fromkeys(name for split in reversed(by_split) for name in by_split[split]))
    truth = {
        key.removeprefix("bayes_"): value
        for key, value in (summary.get("truth") or {}).items()
        if key.startswith("bayes_") and value is not None
    }
    compared = any(name in truth for name in names)
    before = parent_cells(summary)
    baselines = summary.get("baselines") or {}
    known = {split for of_baseline in baselines.values() for split, values in of_baseline.items() if values}
    # Of the split that a reader looks at last.
    against = next((split for split in ("test", "validation") if split in known and split in by_split), None)
    references = {} if against is None else {name: each.get(against) or {} for name, each in baselines.items()}
    details = summary.get("evaluation") or {}
    last = next((split for split in ("test", "validation") if (details.get(split) or {}).get("intervals")), None)
    intervals = {} if last is None or last not in by_split else details[last]["intervals"]
    headings = [f"95% on {last}"] if intervals else []
    headings += [f"parent on {before[0]}", "change"] if before is not None else []
    headings += [f"{name.replace('_', ' ')} on {against}" for name in references]
    headings += ["best possible on test", "difference"] if compared else []
    rows = []
    for name in names:
        cells = [_four_decimals(values.get(name)) for values in by_split.values()]
        if intervals:
            ends = intervals.get(name)
            cells.append("" if ends is None else f"±{(ends[1] - ends[0]) / 2:.4f}")
        cells += before[1].get(name, ["", ""]) if before is not None else []
        cells += [_four_decimals(values.get(name)) for values in references.values()]
        if compared:
            test, best = by_split.get("test", {}).get(name), truth.get(name)
            difference = "" if test is None or best is None else f"{test - best:+.4f}"
            cells += ["" if best is None else _four_decimals(best), difference]
        rows.append((name, *cells))
    return ("metric", *by_split, *headings), rows


def parent_cells(summary: Mapping[str, Any]) -> tuple[str, dict[str, list[str]]] | None:
    """The split that a run and its parent are compared on, and cells of each metric: the parent's, and the change."""
    parent = summary.get("parent") or {}
    metrics, changes = parent.get("metrics") or {}, parent.get("differences") or {}
    split = next((name for name in ("test", "validation") if metrics.get(name) and changes.get(name)), None)
    if split is None:
        return None
    found = {}
    for name, change in changes[split].items():
        ends = change.get("interval")
        width = "" if ends is None else f" ±{(ends[1] - ends[0]) / 2:.4f}"
        found[name] = [_four_decimals(metrics[split][name]), f"{change['value']:+.4f}{width}"]
    return split, found


def _four_decimals(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def table_rows(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """The cells of a run's tables, by column: of all, or of the first ones and a sum of the others.

    Args:
        summary: the content of summary.json; of the facts of a table any may be missing.
    """
    facts = [_facts(summary, name) for name in summary.get("tables") or {}]
    any_unmoved = any(fact.get(_UNMOVED) for fact in facts)
    rows = [_row(fact, any_unmoved=any_unmoved) for fact in facts]
    if len(rows) <= _NAMED + 1:
        return rows
    rest = facts[_NAMED:]
    summed: dict[str, Any] = {_NAME: f"{len(rest):,} more", _STORAGE: "", "dim": None}
    for key in ("rows", "bytes", "rows touched", _UNMOVED, _FROZEN):
        summed[key] = sum(each.get(key) or 0 for each in rest)
    return [*rows[:_NAMED], _row(summed, any_unmoved=any_unmoved)]


def _facts(summary: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = summary["tables"][name]
    freeze = (summary.get("freeze") or {}).get(name) or {}
    initialized = ((summary.get("initialization") or {}).get("tables") or {}).get(name) or {}
    rows, dim = table.get("vocabulary_size"), table.get("dim")
    return {
        _NAME: name,
        "rows": rows,
        "dim": dim,
        "bytes": initialized.get("bytes", 4 * rows * dim if rows and dim else None),
        "rows touched": freeze.get("trainable_rows_touched"),
        _UNMOVED: freeze.get("trainable_rows_never_moved"),
        _FROZEN: freeze.get("frozen_rows"),
        _STORAGE: ", ".join(str(table[key]) for key in (_STORAGE, "dtype") if key in table),
    }


def _row(facts: Mapping[str, Any], *, any_unmoved: bool) -> dict[str, str]:
    size = facts["bytes"]
    cells = {
        _NAME: facts[_NAME],
        "rows": _whole(facts["rows"]),
        "dim": _whole(facts["dim"]),
        "MB": "" if size is None else f"{size / 1e6:,.2f}",
        "rows touched": _share(facts["rows touched"], facts["rows"]),
        _UNMOVED: _share(facts[_UNMOVED], facts["rows"]),
        _FROZEN: _share(facts[_FROZEN], facts["rows"]),
        _STORAGE: facts[_STORAGE],
    }
    return {name: cell for name, cell in cells.items() if name != _UNMOVED or any_unmoved}


def _whole(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _share(count: int | None, total: int | None) -> str:
    if count is None:
        return ""
    return f"{count:,} ({100 * count / total:.3g}%)" if total and count else f"{count:,}"


def coverage_table(content: Mapping[str, Any], to: Console | ConsoleOptions) -> Table | None:
    """The coverage of each pretrained table; None if there is none."""
    tables: Mapping[str, Any] = content.get("tables") or {}
    if not tables:
        return None
    earlier = [facts.get("rows_dropped") is not None for facts in tables.values()]
    headings = ["rows found", "rows missing", "occurrences found"]
    if all(earlier):
        headings = ["rows kept", "rows new", "occurrences kept"]
    if any(earlier):
        headings.insert(2, "rows dropped")
    what, source = ("new", "earlier run") if all(earlier) else ("missing", "file")
    shown = terminal.table(to, ["pretrained"], right=headings, after=[f"most frequent {what}", source])
    for name, facts in tables.items():
        found, missing, dropped = facts["rows_pretrained"], facts["rows_missing"], facts.get("rows_dropped")
        occurrences = facts["occurrences"]
        shown.add_row(
            name,
            f"{found:,} ({found / max(found + missing, 1):.1%})",
            f"{missing:,}",
            *(["" if dropped is None else f"{dropped:,}"] if any(earlier) else []),
            f"{facts['occurrences_pretrained'] / occurrences:.1%}" if occurrences else "",
            Text(_listed(facts["commonest_missing"], missing)),
            Text(Path(facts["path"]).name),
        )
    return shown


def _listed(tokens: Sequence[Mapping[str, Any]], count: int) -> str:
    """The first of `count` missing tokens, each with its frequency."""
    shown = [
        (token if (token := each["token"]).isprintable() and token.strip() == token != "" else repr(token))
        + ("" if each["frequency"] is None else f" ({each['frequency']:,})")
        for each in tokens[:_MOST_TOKENS]
    ]
    return ", ".join([*shown, "…"] if count > len(shown) else shown)
