"""The comparison of the runs of a study of new entities: the content of its summary.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from embexp.specs.data import CANDIDATES
from embexp.specs.run import RunSpec
from embexp.specs.studies import FULL, GROWN
from embexp.system import digests

COMPARED = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10", "mean_rank", "mrr_tails", "mrr_heads")


@dataclass(frozen=True)
class StudyRun:
    """A finished run of the study.

    Attributes:
        name: base, grown or full; also the name of its directory.
        summary: the content of its summary.json.
        seconds: by stage, from `new_entities.Clock.seconds`.
    """

    name: str
    summary: Mapping[str, Any]
    seconds: Mapping[str, float | None]


@dataclass(frozen=True)
class OldRows:
    """The rows of the base run, before and after the grown run.

    Attributes:
        rows: their number.
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
        spec: of the study.
        runs: the finished runs, by name.
        old: by table; empty without a grown run.
        new: by table, the tokens that the base run lacks; empty without a grown run.
    """
    changed = {f"tables.{name}": rows.rows_changed for name, rows in old.items() if rows.rows_changed}
    statuses = [each.summary["status"] for each in runs.values()]
    return {
        "status": "interrupted" if "interrupted" in statuses else "completed",
        "name": spec.name,
        "task": spec.task.value,
        "study": spec.study.kind,
        "entities": next(each.table for name, each in spec.features.items() if spec.column_of(name) == CANDIDATES),
        "run_id": digests.of_json([each.summary["run_id"] for each in runs.values()]),
        "steps": sum(each.summary["steps"] for each in runs.values()),
        "metrics": {"test": _metrics(runs)},
        "runs": {name: _run(each) for name, each in runs.items()},
        "new": {name: {"rows": len(tokens), "tokens": list(tokens)} for name, tokens in new.items()},
        "old_rows_changed": sum(rows.rows_changed for rows in old.values()) if old else None,
        "old_rows": {name: asdict(rows) for name, rows in old.items()},
        "comparison": _ratios(runs),
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


def _ratios(runs: Mapping[str, StudyRun]) -> dict[str, float | None]:
    """Metrics and times of the grown run divided by those of the full run."""
    if GROWN not in runs or FULL not in runs:
        return {}
    grown, full = (_run(runs[name]) for name in (GROWN, FULL))

    def ratio(*keys: str) -> float | None:
        numerator, denominator = _at(grown, *keys), _at(full, *keys)
        return numerator / denominator if numerator is not None and denominator else None

    return {
        "mrr_new": ratio("metrics", "test_new", "mrr"),
        "hits_at_10_new": ratio("metrics", "test_new", "hits_at_10"),
        "mrr_known": ratio("metrics", "test_known", "mrr"),
        "mrr": ratio("metrics", "test", "mrr"),
        "training_seconds": ratio("seconds", "training"),
        "step_seconds": ratio("seconds", "steps"),
        "total_seconds": ratio("seconds", "total"),
    }


def _at(facts: Mapping[str, Any], *keys: str) -> float | None:
    """The number at a path of keys; None if it is missing or not finite."""
    value: Any = facts
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, int | float) and math.isfinite(value) else None
