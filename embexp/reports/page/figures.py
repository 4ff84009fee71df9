"""What a run's summary.json says of its cost and its rows, for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def of_summary(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Steps, throughput, warnings, cost of initialization, and rows by table; null what the summary lacks."""
    initialization, warnings = _object(summary.get("initialization")), summary.get("warnings")
    return {
        "steps": _number(summary.get("steps")),
        "bestStep": _number(summary.get("best_step")),
        "speed": _number(_object(summary.get("throughput")).get("examples_per_second")),
        "strategy": " · ".join(str(summary[key]) for key in ("strategy", "runtime") if summary.get(key)),
        "runId": str(summary.get("run_id") or ""),
        "warnings": [str(each) for each in warnings] if isinstance(warnings, list) else [],
        "init": _initialization(initialization) if initialization else None,
        "tables": [_table(summary, name) for name in _object(summary.get("tables"))],
    }


def _initialization(facts: Mapping[str, Any]) -> dict[str, Any]:
    tables = [_object(each) for each in _object(facts.get("tables")).values()]
    methods = [each["method"] for each in tables if each.get("method")]
    return {
        "method": " + ".join(sorted(set(map(str, methods)))) or str(facts.get("method") or "unknown"),
        "seconds": _number(facts.get("seconds")),
        "peak": _number(facts.get("peak_anonymous_bytes")),
        "graph": _number(facts.get("graph_def_bytes")),
        "graphAll": _number(facts.get("total_graph_def_bytes")),
    }


def _table(summary: Mapping[str, Any], name: str) -> dict[str, Any]:
    facts = _object(summary["tables"][name])
    frozen = _object(_object(summary.get("freeze")).get(name))
    filled = _object(_object(_object(summary.get("initialization")).get("tables")).get(name))
    why = _object(frozen.get("never_moved_because"))
    special = _number(frozen.get("special_rows_never_met"))
    never_met = _number(why.get("never_met"))
    return {
        "name": name,
        "rows": _number(facts.get("vocabulary_size")),
        "dim": _number(facts.get("dim")),
        "storage": _text(facts.get("storage")),
        "digest": _text(facts.get("digest")),
        "method": _text(filled.get("method")),
        "bytes": _number(filled.get("bytes")),
        "pretrained": _number(filled.get("rows_pretrained")),
        "frozen": _number(frozen.get("frozen_rows")),
        "frozenChanged": _number(frozen.get("frozen_rows_changed")),
        "touched": _number(frozen.get("trainable_rows_touched")),
        "moved": _number(frozen.get("trainable_rows_moved")),
        "unmoved": _number(frozen.get("trainable_rows_never_moved")),
        "noGradient": _number(why.get("no_gradient")),
        "idle": _number(why.get("learning_rate_zero")),
        # The OOV row and free rows stand for no token, so they are no fault, but they are rows all the same.
        "neverMet": None if never_met is None else never_met + (special or 0),
    }


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | int | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if is_number else None
