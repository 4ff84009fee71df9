"""The study of new entities: a run without them, one that adds them, one trained with them; their comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from embexp.fields.graphs.specs import FULL, GROWN
from embexp.reports import results
from embexp.reports.record import at, finite_number
from embexp.runs import experiment
from embexp.runs.experiment import Study
from embexp.runs.finished import load_run
from embexp.runs.run import Observer, RunResult
from embexp.specs.run import RunSpec
from embexp.specs.studies import BASE
from embexp.specs.tasks import CANDIDATES
from embexp.system import digests, terminal
from embexp.training.loop import Replay

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
"""Values that are compared between the grown and the full run, and their places in an entry of summary.json."""
_FILES = {
    "summary.json": "all results",
    "base/ grown/ full/": "the runs, each with its own summary, checkpoints and plots",
}
_METRICS = {
    "MRR, new entities": ("test_new", "mrr"),
    "Hits@1": ("test_new", "hits_at_1"),
    "Hits@10": ("test_new", "hits_at_10"),
    "MRR, the others": ("test_known", "mrr"),
    "MRR, all": ("test", "mrr"),
}
"""Metrics of the test triples, by split and name."""


def run(spec: RunSpec, directory: Path, observer: Observer, replay: Replay | None = None) -> RunResult:
    """Runs base, grown and full, each in its own directory, and compares them; see `experiment.run_study`."""
    entities = next(feature.table for name, feature in spec.features.items() if spec.column_of(name) == CANDIDATES)
    described = {"name": spec.name, "task": str(spec.task), "study": spec.study.kind, "entities": entities}

    def compared(runs: Mapping[str, Mapping[str, Any]], ended: bool) -> Mapping[str, Any]:
        if ended:
            observer.progress("comparing the runs", None)
        return summarise(described, runs, *(_grown(directory) if GROWN in runs else ({}, {})))

    return experiment.run_study(spec, directory, observer, compared)


def _grown(directory: Path) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
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
        old[name] = {
            "rows": len(before),
            "rows_changed": int(changed.sum()),  # rows that differ in at least one bit
            "digest_before": digest_before,
            "digest_after": digest_after,
        }
        new[name] = [token for token in row_of if token not in base_tokens]
    return old, new


def summarise(
    described: Mapping[str, Any],
    runs: Mapping[str, Mapping[str, Any]],
    old: Mapping[str, Mapping[str, Any]],
    new: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """The content of summary.json.

    Args:
        described: name, task, study, and the table of the entities.
        runs: their summaries, with `seconds` of `Clock.seconds`.
        old: by table, the rows of the base run before and after the grown run; empty without a grown run.
        new: by table, the tokens that the base run lacks; empty without a grown run.
    """
    changed = {f"tables.{name}": rows["rows_changed"] for name, rows in old.items() if rows["rows_changed"]}
    entries = {name: _run(name, each) for name, each in runs.items()}
    return {
        "status": "interrupted" if any(each["status"] == "interrupted" for each in runs.values()) else "completed",
        **described,
        "run_id": digests.of_json([each["run_id"] for each in runs.values()]),
        "steps": sum(each["steps"] for each in runs.values()),
        "metrics": {"test": _metrics(runs)},
        "runs": entries,
        "new": {name: {"rows": len(tokens), "tokens": list(tokens)} for name, tokens in new.items()},
        "old_rows_changed": sum(rows["rows_changed"] for rows in old.values()) if old else None,
        "old_rows": dict(old),
        "comparison": _ratios(entries),
        "warnings": [
            *(f"{count:,} old rows of {name} changed" for name, count in changed.items()),
            *(f"{name}: {warning}" for name, each in runs.items() for warning in each["warnings"]),
        ],
    }


def _run(name: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a run in summary.json."""
    examples, seconds = summary["examples"]["train"], summary["seconds"]
    rate, steps = summary["throughput"]["examples_per_second"], summary["steps"]
    best, training = summary["best_step"], seconds["training"]
    epochs = steps * summary["batch_size"] / examples
    return {
        "directory": name,
        "run_id": summary["run_id"],
        "status": summary["status"],
        "rows": {name: table["vocabulary_size"] for name, table in summary["tables"].items()},
        "trainable_rows": {name: freeze["trainable_rows"] for name, freeze in summary["freeze"].items()},
        "trained_triples": examples // 2,
        "epochs": round(epochs, 2),
        "steps": steps,
        "best_step": best,
        "best_epoch": None if best is None else round(epochs * best / steps, 2),
        "seconds": {
            **seconds,
            "best": None if best is None or training is None else round(training * best / steps, 3),
            # Only training steps, without tracing and evaluations.
            "steps": None if rate is None else round(epochs * examples / rate, 3),
        },
        "metrics": summary["metrics"],
    }


def _metrics(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Metrics of the grown and the full run: on the test triples with new entities, then on all test triples."""
    found = {}
    for split, suffix in (("test_new", "_new"), ("test", "")):
        for metric in COMPARED:
            for name in (GROWN, FULL):
                value = runs[name]["metrics"].get(split, {}).get(metric) if name in runs else None
                if value is not None:
                    found[f"{name}_{metric}{suffix}"] = value
    return found


def _ratios(runs: Mapping[str, Any]) -> dict[str, float | None]:
    """Metrics and times of the grown run divided by those of the full run."""
    if GROWN not in runs or FULL not in runs:
        return {}

    def ratio(path: str) -> float | None:
        numerator, denominator = (finite_number(at(runs[name], path)) for name in (GROWN, FULL))
        return numerator / denominator if numerator is not None and denominator else None

    return {name: ratio(path) for name, path in _RATIOS.items()}


@dataclass(frozen=True)
class Comparison:
    """A rich renderable of a study of new entities."""

    summary: Mapping[str, Any]
    directory: Path

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the status, the table of the runs, a summary, and the files."""
        yield experiment.headline(self.summary)
        yield from results.spaced([self._table(options)], options)
        yield from self._sentences()
        yield from results.files(self.directory, _FILES.items())
        yield from results.warnings(self.summary)

    def _table(self, options: ConsoleOptions) -> Table:
        runs = self.summary["runs"]
        table = terminal.table(options, [""], right=list(runs))
        figures: dict[str, Callable[[Any], str]] = {
            "entities": lambda run: f"{run['rows'][self.summary['entities']]:,}",
            "triples trained": lambda run: f"{run['trained_triples']:,}",
            "rows trained": lambda run: f"{sum(run['trainable_rows'].values()):,}",
            "epochs": lambda run: f"{run['epochs']:.1f}",
            "best epoch": lambda run: _number(run["best_epoch"], ".1f"),
            "seconds to set up": lambda run: _number(run["seconds"]["setup"], ".1f"),
            "seconds to train": lambda run: _number(run["seconds"]["training"], ".1f"),
            "to the best epoch": lambda run: _number(run["seconds"]["best"], ".1f"),
        }
        for label, figure in figures.items():
            table.add_row(label, *(figure(run) for run in runs.values()))
        for label, (split, metric) in _METRICS.items():
            table.add_row(label, *(_number(_metric(run, split, metric), ".4f") for run in runs.values()))
        return table

    def _sentences(self) -> Iterator[RenderableType]:
        for name, rows in self.summary["old_rows"].items():
            same = rows["digest_before"] == rows["digest_after"]
            text = f"{rows['rows_changed']:,} of {rows['rows']:,} changed; digest {rows['digest_before'][:12]} before, "
            text += f"{'the same' if same else rows['digest_after'][:12]} after"
            yield Text.assemble(f"old rows of {name}: ", (text, "" if same else "bold red"))
        ratios = self.summary["comparison"]
        if ratios.get("mrr_new") is not None and ratios.get("training_seconds"):
            yield Text(
                f"{GROWN} reaches {ratios['mrr_new']:.1%} of full's MRR on the new entities in "
                f"{ratios['training_seconds']:.1%} of its training time"
            )


def _metric(run: Mapping[str, Any], split: str, metric: str) -> float | None:
    """A metric on a split. No test triple of the base run has new entities."""
    if split not in run["metrics"] and split == "test_known":
        split = "test"
    elif split == "test" and "test_known" not in run["metrics"]:
        return None
    value = run["metrics"].get(split, {}).get(metric)
    return None if value is None else float(value)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


STUDY = Study(run, experiment.resuming_study(run), Comparison)
"""`study=new_entities`."""
