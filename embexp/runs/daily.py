"""The study of data that come file by file: a chain of runs, each tested on the next file, beside training anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from embexp.data import parts
from embexp.reports import results
from embexp.runs import experiment
from embexp.runs.experiment import Study
from embexp.runs.run import Observer, RunResult
from embexp.specs import tasks
from embexp.specs.run import RunSpec
from embexp.specs.studies import ALL, CONTINUED, LAST, PARTS, WINDOW, way_of
from embexp.system import digests, terminal
from embexp.training.loop import Replay

_SHOWN = {CONTINUED: "continued", ALL: "all files", LAST: "last file", WINDOW: "window"}
_PARENT = "parent"
"""The name for the previous run, without training on the file."""
_FILES = {
    "summary.json": "all results",
    "daily.png": "the metric of each file",
    "continued-001/ …": "the runs, each with its own summary, checkpoints and plots",
}
_WARNINGS = 5
"""How many are shown: each file has its own, and the table must stay in sight."""


def run(spec: RunSpec, directory: Path, observer: Observer, replay: Replay | None = None) -> RunResult:
    """Does the runs file by file, and compares them on the next file; see `experiment.run_study`."""
    metric = tasks.watched(spec.task, None, spec.task.cutoffs_of(spec), spec.further_metrics)
    described: dict[str, Any] = {
        "name": spec.name,
        "task": str(spec.task),
        "study": spec.study.kind,
        "metric": metric,
    }
    if parts.cut_for(spec.study, spec.data, directory, observer.progress):
        described["parts"] = [path.stem for path in sorted((directory / PARTS).iterdir())]

    def compared(runs: Mapping[str, Mapping[str, Any]], ended: bool) -> Mapping[str, Any]:
        content = summarise(described, runs)
        if ended and spec.output.plots:
            from embexp.reports import plots

            names = names_of_parts(content)
            across = "tested on" if names else "tested on file"
            figure = plots.files_figure(series(content), metric=metric, name=spec.name, files=names, across=across)
            plots.save(figure, directory / "daily.png")
        return content

    return experiment.run_study(spec, directory, observer, compared)


def summarise(described: Mapping[str, Any], runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The content of summary.json.

    Args:
        described: name, task, study, the metric that is compared, and what its files hold if it has cut the data.
        runs: their summaries, with `seconds` of `Clock.seconds`, in order.
    """
    entries = {name: _run(name, each) for name, each in runs.items()}
    by_way: dict[str, dict[int, Mapping[str, Any]]] = {}
    for name, entry in entries.items():
        way, number = way_of(name)
        by_way.setdefault(way, {})[number] = entry
    first = by_way.get(CONTINUED, {}).get(1)
    for way, files in by_way.items():
        if way != CONTINUED and first is not None:
            files |= {1: first}
    return {
        "status": "interrupted" if any(each["status"] == "interrupted" for each in runs.values()) else "completed",
        **described,
        "run_id": digests.of_json([each["run_id"] for each in runs.values()]),
        "steps": sum(each["steps"] for each in runs.values()),
        "metrics": {"test": _means(by_way)},
        "runs": entries,
        "warnings": list(
            dict.fromkeys(f"{name}: {warning}" for name, each in runs.items() for warning in each["warnings"])
        ),
    }


def _run(name: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a run in summary.json."""
    parent = summary.get("parent") or {}
    return {
        "directory": name,
        "run_id": summary["run_id"],
        "status": summary["status"],
        "steps": summary["steps"],
        "examples": summary["examples"],
        "seconds": summary["seconds"],
        "metrics": summary["metrics"],
        "parent": {key: parent[key] for key in ("run_id", "metrics", "tables") if key in parent},
    }


def _means(by_way: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> dict[str, float]:
    """The mean of each metric over the files from the third on, for each way and for the parent without training."""
    found = {}
    tests = {
        way: [each["metrics"].get("test", {}) for number, each in sorted(of.items()) if number > 1]
        for way, of in by_way.items()
    }
    continued = [each for number, each in sorted(by_way.get(CONTINUED, {}).items()) if number > 1]
    tests[_PARENT] = [each["parent"].get("metrics", {}).get("test", {}) for each in continued]
    for way, each in tests.items():
        for metric in each[0] if each else ():
            known = [float(metrics[metric]) for metrics in each if metrics.get(metric) is not None]
            found[f"{way}_{metric}"] = sum(known) / max(1, len(known))
    return found


def _metric(metrics: Mapping[str, Any], name: str) -> float | None:
    value = metrics.get("test", {}).get(name)
    return None if value is None else float(value)


def names_of_parts(summary: Mapping[str, Any]) -> list[str]:
    """What the study has cut its data by, such as days, in order; empty: the files are the user's own."""
    return [str(part).partition("-")[2] for part in summary.get("parts", ())]  # without the number of the file


def series(summary: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """The metric of the next file, by the way to train and by the number of the file."""
    metric = summary["metric"]
    found: dict[str, dict[int, float]] = {}
    for name, entry in summary["runs"].items():
        way, number = way_of(name)
        sources = [(_SHOWN[way], entry["metrics"])]
        sources += [("parent, untrained", entry["parent"]["metrics"])] if entry["parent"].get("metrics") else []
        for label, metrics in sources:
            if (value := _metric(metrics, metric)) is not None:
                found.setdefault(label, {})[number] = value
    return found


@dataclass(frozen=True)
class Comparison:
    """A rich renderable of a study of files that come one after the other."""

    summary: Mapping[str, Any]
    directory: Path

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the status, a table of the files, the means, and the written files."""
        yield experiment.headline(self.summary)
        yield from results.spaced([self._table(options)], options)
        yield from self._sentences()
        yield from results.files(self.directory, _FILES.items())
        yield from results.warnings(self.summary, _WARNINGS)

    def _table(self, options: ConsoleOptions) -> Table:
        shown, runs = series(self.summary), self.summary["runs"]
        numbers = sorted({number for each in shown.values() for number in each})
        names = names_of_parts(self.summary)
        headings = [f"{self.summary['metric']}, {label}" for label in shown]
        table = terminal.table(options, ["tested on"], right=[*headings, "seconds, continued", "new rows"])
        for number in numbers:
            entry = runs.get(f"{CONTINUED}-{number:03d}", {})
            new = sum(each["new"] for each in entry.get("parent", {}).get("tables", {}).values())
            seconds = (entry.get("seconds") or {}).get("total")
            cells = ["" if (value := each.get(number)) is None else f"{value:.4f}" for each in shown.values()]
            table.add_row(
                names[number] if names else f"file {number + 1}",
                *cells,
                "" if seconds is None else f"{seconds:.1f}",
                f"{new:,}" if number > 1 else "",
            )
        return table

    def _sentences(self) -> Iterator[RenderableType]:
        means, metric = self.summary["metrics"]["test"], self.summary["metric"]
        names = {**_SHOWN, _PARENT: "parent, untrained"}
        parts = [f"{names[way]} {means[key]:.4f}" for way in names if (key := f"{way}_{metric}") in means]
        yield Text(f"mean {metric} from file 3 on: {', '.join(parts)}")


STUDY = Study(run, experiment.resuming_study(run), Comparison)
"""`study=daily`."""
