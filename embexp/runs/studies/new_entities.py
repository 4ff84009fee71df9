"""The study of new entities: a run without them, one that adds them, one trained with them; their comparison."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from embexp.records import allowed_code, inventory
from embexp.records.folder import RunFolder
from embexp.reports import plots
from embexp.reports.record import at
from embexp.runs import run as single
from embexp.runs.finished import load_run
from embexp.runs.resume import resume
from embexp.runs.run import RunResult
from embexp.specs import running
from embexp.specs.data import CANDIDATES
from embexp.specs.run import RunSpec
from embexp.specs.running import BASE, DESCRIPTIONS, FULL, GROWN
from embexp.system import digests, files
from embexp.system.parallel import Progress
from embexp.training.listeners import Listener

_SECONDS = "seconds.json"
"""How long each run took that has ended, for a study that is resumed."""
COMPARED = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10", "mean_rank", "mrr_tails", "mrr_heads")
_RATIOS = {
    "mrr_new": "metrics.test_new.mrr",
    "hits_at_10_new": "metrics.test_new.hits_at_10",
    "mrr_known": "metrics.test_known.mrr",
    "mrr": "metrics.test.mrr",
    "training_seconds": "seconds.training",
    "step_seconds": "seconds.steps",
    "total_seconds": "seconds.total",
}
"""What is compared of the grown and the full run, and where an entry of summary.json has it."""
_COLOURS = {BASE: "#9aa5b1", GROWN: "#3ca951", FULL: "#4269d0"}
_STAGES = {"setup": 0.35, "training": 1.0, "finishing": 0.55}
"""Stages of a run, each with the opacity of its bar."""
_METRICS = {"mrr": "MRR", "hits_at_1": "Hits@1", "hits_at_3": "Hits@3", "hits_at_10": "Hits@10"}


def run(
    spec: RunSpec,
    directory: Path,
    *,
    listeners: Callable[[], Sequence[Listener]],
    progress: Progress,
    announce: Callable[[str], None],
) -> RunResult:
    """Runs base, grown and full, each in its own directory, and compares them.

    Args:
        directory: of the study; it exists. Runs that an earlier process has begun there are completed.

    Raises:
        DataError: a file was changed since the study was interrupted.
        RunError: a run fails for a reason in the data, a file or the machine.
    """
    folder = RunFolder(directory)
    inventory.check_whole(directory)
    inventory.unseal(directory)
    folder.write_spec(spec)
    runs: dict[str, StudyRun] = {}
    specs = running.study_runs(spec, directory)
    for number, (name, run_spec) in enumerate(specs.items(), 1):
        announce(f"{number} of {len(specs)}, {name}: {DESCRIPTIONS[name]}")
        runs[name] = result = _stage(name, run_spec, RunFolder(directory / name), listeners, progress)
        if result.summary["status"] == "interrupted":
            break
    else:
        progress("comparing the runs", None)
    content = summarise(spec, runs, *(_grown(directory) if GROWN in runs else ({}, {})))
    folder.write_json(folder.summary, content)
    if spec.output.plots and len(runs) == len(specs):
        write_plot(content, folder.plots, name=spec.name)
    return RunResult(directory, content, inventory.seal(directory))


def _stage(
    name: str, spec: RunSpec, folder: RunFolder, listeners: Callable[[], Sequence[Listener]], progress: Progress
) -> StudyRun:
    """A run of the study: a new one, or the one that an earlier process has begun or completed."""
    study = RunFolder(folder.path.parent)
    noted = study.path / _SECONDS
    seconds = json.loads(noted.read_bytes()) if noted.is_file() else {}
    if name in seconds:
        return StudyRun(name, folder.read_summary(), seconds[name])
    clock = Clock()
    everyone = [clock, *listeners()]
    files.make_directories(folder.path)
    with folder.writing():
        files.remove_leftovers(folder.path)
        if folder.spec.exists():
            allowed = allowed_code.named(spec)  # that the study's spec may name it has been checked
            result = resume(folder.path, allow_code=allowed, listeners=everyone, progress=progress)
        else:
            result = single.run(spec, folder.path, listeners=everyone, progress=progress)
        if result.status != "interrupted":
            study.write_json(noted, seconds | {name: clock.seconds()})
    return StudyRun(name, result.summary, clock.seconds())


def _grown(directory: Path) -> tuple[dict[str, OldRows], dict[str, list[str]]]:
    """Compares the grown run with the base run, by table.

    Returns:
        The rows of the base run's tables next to the same rows of the grown run, matched by token; and the tokens that
        the grown run has and the base run lacks.
    """
    base, grown = load_run(directory / BASE), load_run(directory / GROWN)
    old, new = {}, {}
    for name in base.spec.tables:
        row_of = {token: row for row, token in enumerate(grown.vocabulary(name).tokens())}
        known = base.vocabulary(name).tokens()
        base_tokens = set(known)
        before, after = base.table(name), grown.table(name)[[row_of[token] for token in known]]
        changed = (before.view("u4") != after.view("u4")).any(axis=1)
        blocks = range(0, len(before), digests.ROWS_PER_BLOCK)
        digest_before, digest_after = (
            digests.of_rows(rows[start : start + digests.ROWS_PER_BLOCK] for start in blocks)
            for rows in (before, after)
        )
        old[name] = OldRows(len(before), int(changed.sum()), digest_before, digest_after)
        new[name] = [token for token in row_of if token not in base_tokens]
    return old, new


class Clock(Listener):
    """Measures how long a run takes before, during and after training; starts when created."""

    def __init__(self) -> None:
        self._times = [time.perf_counter()]

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Training begins."""
        self._times.append(time.perf_counter())

    def ended(self, status: str) -> None:
        """Training has ended."""
        self._times.append(time.perf_counter())

    def seconds(self) -> dict[str, float | None]:
        """Seconds until now, by stage.

        Returns:
            setup: reading the data, creating and filling the tables; training: steps and evaluations; finishing: the
            checkpoint, the last evaluations, digests and plots; total. All None if an earlier process has trained: it
            was killed before it could note them.
        """
        times = [*self._times, time.perf_counter()]
        if len(times) <= len(_STAGES):
            return dict.fromkeys((*_STAGES, "total"))
        passed = {name: after - before for name, before, after in zip(_STAGES, times, times[1:], strict=False)}
        return {name: round(seconds, 3) for name, seconds in (passed | {"total": times[-1] - times[0]}).items()}


@dataclass(frozen=True)
class StudyRun:
    """A finished run of the study.

    Attributes:
        name: base, grown or full; also the name of its directory.
        seconds: by stage, from `new_entities.Clock.seconds`.
    """

    name: str
    summary: Mapping[str, Any]
    seconds: Mapping[str, float | None]


@dataclass(frozen=True)
class OldRows:
    """The rows of the base run, before and after the grown run.

    Attributes:
        rows_changed: number of rows that differ in at least one bit.
        digest_before: of the rows after the base run, in the order of its vocabulary.
        digest_after: of the same rows, in the same order, after the grown run.
    """

    rows: int
    rows_changed: int
    digest_before: str
    digest_after: str


def summarise(
    spec: RunSpec, runs: Mapping[str, StudyRun], old: Mapping[str, OldRows], new: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """The content of summary.json.

    Args:
        old: by table; empty without a grown run.
        new: by table, the tokens that the base run lacks; empty without a grown run.
    """
    changed = {f"tables.{name}": rows.rows_changed for name, rows in old.items() if rows.rows_changed}
    statuses = [each.summary["status"] for each in runs.values()]
    entries = {name: _run(each) for name, each in runs.items()}
    return {
        "status": "interrupted" if "interrupted" in statuses else "completed",
        "name": spec.name,
        "task": spec.task.value,
        "study": spec.study.kind,
        "entities": next(each.table for name, each in spec.features.items() if spec.column_of(name) == CANDIDATES),
        "run_id": digests.of_json([each.summary["run_id"] for each in runs.values()]),
        "steps": sum(each.summary["steps"] for each in runs.values()),
        "metrics": {"test": _metrics(runs)},
        "runs": entries,
        "new": {name: {"rows": len(tokens), "tokens": list(tokens)} for name, tokens in new.items()},
        "old_rows_changed": sum(rows.rows_changed for rows in old.values()) if old else None,
        "old_rows": {name: asdict(rows) for name, rows in old.items()},
        "comparison": _ratios(entries),
        "warnings": [
            *(f"{count:,} old rows of {name} changed" for name, count in changed.items()),
            *(f"{name}: {warning}" for name, each in runs.items() for warning in each.summary["warnings"]),
        ],
    }


def _run(run: StudyRun) -> dict[str, Any]:
    """The entry of a run in summary.json."""
    summary = run.summary
    examples = summary["examples"]["train"]
    rate, steps = summary["throughput"]["examples_per_second"], summary["steps"]
    best, training = summary["best_step"], run.seconds["training"]
    epochs = steps * summary["batch_size"] / examples
    return {
        "directory": run.name,
        "run_id": summary["run_id"],
        "status": summary["status"],
        "rows": {name: table["vocabulary_size"] for name, table in summary["tables"].items()},
        "trainable_rows": {name: freeze["trainable_rows"] for name, freeze in summary["freeze"].items()},
        "trained_triples": examples // 2,
        "epochs": round(epochs, 2),
        "steps": steps,
        "best_step": summary["best_step"],
        "best_epoch": None if best is None else round(epochs * best / steps, 2),
        "seconds": {
            **run.seconds,
            "best": None if best is None or training is None else round(training * best / steps, 3),
            # Training steps alone, without tracing and evaluations.
            "steps": None if rate is None else round(epochs * examples / rate, 3),
        },
        "metrics": summary["metrics"],
    }


def _metrics(runs: Mapping[str, StudyRun]) -> dict[str, float]:
    """Metrics of the test triples with new entities, then of all test triples: of the grown and the full run."""
    found = {}
    for split, suffix in (("test_new", "_new"), ("test", "")):
        for metric in COMPARED:
            for name in (GROWN, FULL):
                value = runs[name].summary["metrics"].get(split, {}).get(metric) if name in runs else None
                if value is not None:
                    found[f"{name}_{metric}{suffix}"] = value
    return found


def _ratios(runs: Mapping[str, Any]) -> dict[str, float | None]:
    """Metrics and times of the grown run divided by those of the full run.

    Args:
        runs: entries of summary.json.
    """
    if GROWN not in runs or FULL not in runs:
        return {}

    def ratio(path: str) -> float | None:
        numerator, denominator = (_finite(at(runs[name], path)) for name in (GROWN, FULL))
        return numerator / denominator if numerator is not None and denominator else None

    return {name: ratio(path) for name, path in _RATIOS.items()}


def _finite(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def write_plot(summary: Mapping[str, Any], directory: Path, *, name: str) -> Path:
    """Plots the ranking metrics and the time of each run, and returns the PNG file.

    Args:
        summary: the content of the study's summary.json.
        directory: for the file; created if missing.
    """
    figure = Figure(figsize=(10.4, 4.3), dpi=160, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    figure.suptitle(f"New entities · {name}", x=0.01, ha="left", fontsize=12, fontweight="bold")
    _quality(left, summary["runs"])
    _times(right, summary["runs"])
    return plots.save(figure, directory / "comparison.png")


def _quality(axes: Axes, runs: Mapping[str, Any]) -> None:
    groups = [(f"{label}\nnew", "test_new", metric) for metric, label in _METRICS.items()]
    groups += [("MRR\nknown", "test_known", "mrr"), ("MRR\nall", "test", "mrr")]
    for offset, run in ((-0.2, GROWN), (0.2, FULL)):
        values = [runs[run]["metrics"].get(split, {}).get(metric) or 0.0 for _, split, metric in groups]
        bars = axes.bar([place + offset for place in range(len(groups))], values, 0.38, label=run, color=_COLOURS[run])
        axes.bar_label(bars, fmt="%.3f", fontsize=7, padding=2)
    axes.set_xticks(range(len(groups)), [label for label, _, _ in groups])
    axes.set_ylim(0, 1.08)
    axes.set_title("Ranks of the test triples, filtered (1 is best)", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    _plain(axes, "y")


def _times(axes: Axes, runs: Mapping[str, Any]) -> None:
    for place, (run, facts) in enumerate(runs.items()):
        start = 0.0
        for stage, strength in _STAGES.items():
            seconds = facts["seconds"][stage] or 0.0
            axes.barh(place, seconds, 0.55, left=start, color=_COLOURS[run], alpha=strength)
            start += seconds
        training = facts["seconds"]["training"]
        label = " unknown: killed at its end" if training is None else f" {start:.1f} s, training {training:.1f} s"
        axes.text(start, place, label, va="center", fontsize=8)
    axes.set_yticks(range(len(runs)), list(runs))
    axes.invert_yaxis()
    axes.set_xlim(0, 1.6 * max(facts["seconds"]["total"] or 1.0 for facts in runs.values()))
    axes.set_xlabel("seconds (pale: before and after training)")
    axes.set_title("Time", loc="left", fontsize=10)
    _plain(axes, "x")


def _plain(axes: Axes, direction: str) -> None:
    axes.grid(axis=direction, color="#e3e3e3", linewidth=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
