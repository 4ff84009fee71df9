"""The results of a sweep: sweep.json, sweep.csv, and one table in the terminal."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from embexp.sweeps import columns
from embexp.sweeps.outcomes import Outcome, Status, varying
from embexp.system import files, terminal

REPEATS = ("data.fold", "seed")
"""Keys whose values repeat an experiment; results are averaged over them."""

_SHOWN = 3
"""Number of metrics on the terminal; the files have all."""


def write(outcomes: Sequence[Outcome], directory: Path) -> None:
    """Writes sweep.json and sweep.csv atomically."""
    means = [{"overrides": dict(key), "jobs": count, "metrics": values} for key, count, values in averages(outcomes)]
    content = {"jobs": [each.as_json() for each in outcomes], "means": means}
    files.write_text(directory / "sweep.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    keys, metrics = varying([each.overrides for each in outcomes]), _metric_names(outcomes)
    compared = columns.keys_of(outcomes)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["number", *keys, "status", "seconds", *metrics, *compared, "directory", "reason"])
    for each in outcomes:
        seconds = "" if each.seconds is None else f"{each.seconds:.3f}"
        rows.writerow(
            [
                each.number,
                *(each.overrides.get(key, "") for key in keys),
                each.status.value,
                seconds,
                *(each.metrics.get(name, "") for name in metrics),
                *(each.compared.get(key, "") for key in compared),
                "" if each.directory is None else each.directory,
                each.reason,
            ]
        )
    files.write_text(directory / "sweep.csv", text.getvalue())


def averages(
    outcomes: Sequence[Outcome],
) -> list[tuple[Mapping[str, str], int, dict[str, dict[str, float]]]]:
    """Mean and standard deviation (n - 1) over folds and seeds, for each combination of the other overrides.

    Returns:
        For each combination with results of at least two jobs: its varying overrides, the number of these jobs,
        and by metric (and by key of `output.compare` whose values are numbers) `mean` and `std`. Empty when neither
        folds nor seeds vary.
    """
    keys = varying([each.overrides for each in outcomes])
    if not any(key in REPEATS for key in keys):
        return []
    groups: dict[tuple[tuple[str, str], ...], list[Outcome]] = {}
    for each in outcomes:
        if each.status.has_results:
            setting = tuple((key, each.overrides.get(key, "")) for key in keys if key not in REPEATS)
            groups.setdefault(setting, []).append(each)
    found: list[tuple[Mapping[str, str], int, dict[str, dict[str, float]]]] = []
    for setting, members in groups.items():
        if len(members) < 2:
            continue
        values: dict[str, dict[str, float]] = {}
        for name in [*_metric_names(members), *columns.keys_of(members)]:
            numbers = [number for each in members if (number := _number(each, name)) is not None]
            if len(numbers) == len(members):
                values[name] = {"mean": statistics.fmean(numbers), "std": statistics.stdev(numbers)}
        found.append((dict(setting), len(members), values))
    return found


def show(outcomes: Sequence[Outcome], directory: Path, console: Console) -> None:
    """Prints a table of all jobs, the reasons of failed and skipped ones, and the directory."""
    keys, metrics = varying([each.overrides for each in outcomes]), _headlines(outcomes)
    compared = columns.keys_of(outcomes)
    before, after = ["job", *keys, "status", *metrics], ["seconds", "directory"]
    heads = columns.heads(compared, taken=[*before, *after])
    table = terminal.table(
        console, ["job", *keys, "status"], right=[*metrics, *heads.values(), "seconds"], after=["directory"]
    )
    for each in outcomes:
        table.add_row(
            str(each.number),
            *(each.overrides.get(key, "") for key in keys),
            each.status.value.replace("_", " "),
            *(f"{each.metrics[name]:.4f}" if name in each.metrics else "" for name in metrics),
            *(columns.cell(key, each.compared.get(key)) for key in compared),
            "" if each.seconds is None else f"{each.seconds:.1f}",
            "" if each.directory is None else each.directory.name,
        )
    for setting, count, values in averages(outcomes):
        table.add_row(
            "mean",
            *(setting.get(key, f"{count} values") for key in keys),
            "± std",
            *(f"{values[n]['mean']:.4f} ± {values[n]['std']:.4f}" if n in values else "" for n in metrics),
            *(
                f"{columns.cell(key, values[key]['mean'])} ± {columns.cell(key, values[key]['std'])}"
                if key in values
                else ""
                for key in compared
            ),
            "",
            "",
        )
    console.print(table)

    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    for each in outcomes:
        if each.status is Status.FAILED and each.directory is not None and each.same_as is None:
            line(f"job {each.number} failed: {each.reason}")
            line(f"    {each.directory / 'run.log'}")
        elif each.status is Status.SKIPPED:
            line(f"job {each.number} skipped: {each.reason}")
    for key in columns.absent(outcomes):
        line(f"output.compare: no summary.json of these jobs has the key {key}")
    line(f"results in {directory}")


def _number(outcome: Outcome, name: str) -> float | None:
    """A metric, or a compared value that is a number."""
    value = outcome.metrics.get(name, outcome.compared.get(name))
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _headlines(outcomes: Sequence[Outcome]) -> list[str]:
    """The metrics for the terminal: those of the test split, the loss only if there is no other."""
    names = _metric_names(outcomes)
    test = [name for name in names if name.startswith("test ")] or names
    return ([name for name in test if not name.endswith(" loss")] or test)[:_SHOWN]


def _metric_names(outcomes: Sequence[Outcome]) -> list[str]:
    """Metrics of all jobs in their order; the loss repeats another metric for most tasks, so it comes last."""
    names = list(dict.fromkeys(name for each in outcomes for name in each.metrics))
    return sorted(names, key=lambda name: (not name.startswith("test "), name.endswith(" loss")))
