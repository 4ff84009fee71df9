"""The data of the page: runs, and what all of them share, as JSON."""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embexp.records.folder import RunFolder
from embexp.reports.collected import varying
from embexp.reports.groups import REPEATS
from embexp.reports.page import curves, figures
from embexp.reports.page.curves import Curves
from embexp.reports.record import Record, Status
from embexp.reports.results import shown_path
from embexp.training import metric_names
from embexp.training.metric_names import DIRECTIONS, Direction

_MOST_COLUMNS = 16


def of_runs(records: Sequence[Record], *, maps: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """What the scripts of the page read.

    Args:
        records: the runs, in the order of the report.
        maps: of tables; see `embexp.runs.table_maps`.

    Returns:
        `runs`; `columns`, keys of the settings that vary; `common`, pairs of the settings that all runs share;
        `groups`, what runs that differ in the seed only have in common; `metrics`, `primary`, `higher`; `steps`, the
        steps of curves, many of which have the same; `search`; `maps`. Pairs, not objects, where keys are the user's.
    """
    columns = varying(records)[:_MOST_COLUMNS] if len(records) > 1 else []
    common = _common(records)
    read = [curves.read(RunFolder(each.directory).metrics) if each.directory else Curves() for each in records]
    points = curves.points_each(read)
    steps: dict[tuple[int, ...], int] = {}
    table = _values(records, columns)
    settings = [
        json.dumps([value for key, value in zip(columns, row, strict=True) if key not in REPEATS]) for row in table
    ]
    groups = list(dict.fromkeys(settings))
    runs = []
    for record, found, values, setting in zip(records, read, table, settings, strict=True):
        runs.append(
            {
                "label": f"#{record.name}" if record.name.isdecimal() else record.name,
                "name": str(record.summary.get("name") or ""),
                "number": record.number,
                "directory": "" if record.directory is None else shown_path(record.directory),
                "status": record.status.value,
                "reason": "; ".join(filter(None, (record.reason, _changes(record)))),
                "group": groups.index(setting),
                "values": values,
                "settings": [[key, _finite(value)] for key, value in record.settings.items() if key not in common]
                if record.settings
                else None,
                "metrics": [[name, _finite(value)] for name, value in record.metrics.items()],
                "seconds": _finite(found.seconds if record.seconds is None else record.seconds),
                "curves": [
                    [name, steps.setdefault(tuple(curve.steps), len(steps)), list(curve.values)]
                    for name, curve in curves.shortened(found, points).items()
                ],
                "commands": _commands(record),
                **figures.of_summary(record.summary),
            }
        )
    primary = _primary(records)
    measured = (name.partition(" ")[2] for record in records for name in record.metrics)
    return {
        "runs": runs,
        "columns": columns,
        "common": [[key, _finite(value)] for key, value in common.items()],
        "groups": [_described(columns, json.loads(setting)) for setting in groups],
        "metrics": _metrics(records, primary),
        "primary": primary,
        "higher": [
            name for name in dict.fromkeys([*DIRECTIONS, *measured]) if metric_names.direction(name) is Direction.HIGHER
        ],
        "steps": list(steps),
        "search": _search(records),
        "maps": list(maps),
    }


def _changes(record: Record) -> str:
    return f"its record was changed since it ended ({record.changes})" if record.changes else ""


def _values(records: Sequence[Record], columns: Sequence[str]) -> list[list[Any]]:
    """The values of the columns by run. An override that was not run is text: a number where those of others are."""
    by_column = []
    for key in columns:
        values = [_finite(each.value(key)) for each in records]
        if any(isinstance(value, int | float) for value in values):
            values = [_as_number(value) for value in values]
        by_column.append(values)
    return [list(row) for row in zip(*by_column, strict=True)] or [[] for _ in records]


def _as_number(value: Any) -> Any:
    try:
        return _finite(json.loads(value)) if isinstance(value, str) else value
    except ValueError:
        return value


def _common(records: Sequence[Record]) -> dict[str, Any]:
    """Settings that all runs share whose settings are known."""
    known = [record.settings for record in records if record.settings]
    if not known:
        return {}
    shared = dict(known[0])
    for settings in known[1:]:
        shared = {key: value for key, value in shared.items() if key in settings and _same(value, settings[key])}
    return shared


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def _described(columns: Sequence[str], values: Sequence[Any]) -> str:
    """A setting without its seed, as a line."""
    keys = [key for key in columns if key not in REPEATS]
    short = [key.removesuffix(".kind") for key in keys]
    ends = [key.rpartition(".")[2] for key in short]
    names = [end if ends.count(end) == 1 else key for end, key in zip(ends, short, strict=True)]
    pairs = zip(names, values, strict=True)
    return ", ".join(f"{name}={_text(value)}" for name, value in pairs if value is not None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _primary(records: Sequence[Record]) -> dict[str, Any] | None:
    """The metric that chooses the best run: that of most runs. And all that do: runs of several tasks have no best."""
    known = Counter((each.metric, each.direction) for each in records if each.metric and each.direction)
    for (metric, direction), _ in known.most_common(1):
        return {
            "name": metric,
            "direction": direction.value if direction else "",
            "validation": f"validation {metric}",
            "test": f"test {metric}",
            "all": list(dict.fromkeys(name for name, _ in known)),
        }
    return None


def _metrics(records: Sequence[Record], primary: Mapping[str, Any] | None) -> list[str]:
    """All metrics: the primary one first, then validation before test before training."""
    names = list(dict.fromkeys(name for record in records for name in record.metrics))
    splits = ("validation", "test", "train")

    def place(name: str) -> tuple[bool, int]:
        split, _, metric = name.partition(" ")
        return metric != (primary or {}).get("name"), splits.index(split) if split in splits else len(splits)

    return sorted(names, key=place)


def _commands(record: Record) -> list[tuple[str, str]]:
    """Commands for a run, each with what it does."""
    if record.directory is None:
        return [("run it", shlex.join(["embexp", "run", *record.overrides]))] if record.overrides else []
    path = shown_path(record.directory)
    found = []
    if (record.directory / "spec.json").exists():
        found.append(("run it again", shlex.join(["embexp", "run", "--spec", str(Path(path) / "spec.json")])))
    if record.status.has_results:
        found += [
            ("verify", shlex.join(["embexp", "verify", path])),
            ("evaluate", shlex.join(["embexp", "evaluate", path])),
        ]
    elif record.status in (Status.INTERRUPTED, Status.CANCELLED, Status.RUNNING):
        found.append(("go on", shlex.join(["embexp", "resume", path])))
    return found


def _search(records: Sequence[Record]) -> dict[str, Any] | None:
    """The objectives of a search, as its search.json names them; None for grids and single runs."""
    sweeps = {record.directory.parent for record in records if record.directory is not None}
    for sweep in sorted(sweeps):
        try:
            content = json.loads((sweep / "search.json").read_bytes())
            return {"by": "Optuna", "metrics": [str(each["metric"]) for each in content["objectives"]]}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _finite(value: Any) -> Any:
    """A value as JSON has it; numbers that JSON lacks become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value if isinstance(value, str | int | bool) or value is None else str(value)
