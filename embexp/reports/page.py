"""The HTML page of a report: one file with everything in it, which loads nothing from the network.

It is put together from the files in `assets/` and the data of the runs. The maps of tables come from
`embexp.runs.table_maps`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import itertools
import json
import math
import re
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from embexp.records.folder import RunFolder, finite, read_metrics
from embexp.reports import grid, searches
from embexp.reports.collected import varying
from embexp.reports.groups import by_data, of_setting, repeating
from embexp.reports.record import Record, Status, at, finite_number, mapping
from embexp.reports.results import shown_path
from embexp.specs import tasks as metric_specs
from embexp.specs.tasks import Direction, direction
from embexp.system import printable

_MOST_COLUMNS = 16
LOSS = "train loss"
"""Name of the curve of logged losses."""
_MOST_POINTS, _FEWEST_POINTS = 400, 60
_POINTS_IN_ALL = 250_000
_DIGITS = 5
_ASSETS = resources.files("embexp.reports") / "assets"
_SCRIPTS = (
    "format",
    "state",
    "colours",
    "plots",
    "details",
    "table",
    "curves",
    "parameters",
    "search",
    "costs",
    "compare",
    "paired",
    "maps",
    "vectors",
    "main",
)
_CHARTS, _NEIGHBOURS = "vendor/echarts.min.js", "vendor/umap-js.min.js"
_UNSAFE = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def of_runs(
    records: Sequence[Record],
    *,
    maps: Sequence[Mapping[str, Any]] = (),
    comparison: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """What the scripts of the page read.

    Returns:
        `runs`; `columns`, keys of the settings that vary; `common`, pairs of the settings that all runs share;
        `groups`, what runs that differ in the seed only have in common; `data` of a run, the number of its data, 0 for
        those of most runs, null without results; `metrics`, `primary`, `higher`; `steps`, the steps of curves, many of
        which have the same; `search`; `maps`; `comparison`, see `Comparison.for_page`; `notes`. Pairs, not objects,
        where keys are the user's.
    """
    columns = varying(records)[:_MOST_COLUMNS] if len(records) > 1 else []
    common = _common(records)
    read = [read_curves(RunFolder(each.directory).metrics) if each.directory else Curves() for each in records]
    points = points_each(read)
    steps: dict[tuple[int, ...], int] = {}
    table = _values(records, columns)
    ended = [record for record in records if record.status.has_results]
    repeats = repeating(ended)
    of_data = {id(record): place for place, part in enumerate(by_data(ended, repeats)) for record in part}
    kept = [key for key in columns if of_setting(key, repeats)]
    several = any(of_data.values())
    settings = [
        (
            json.dumps([value for key, value in zip(columns, row, strict=True) if key in kept]),
            of_data.get(id(record)) if several else None,
        )
        for record, row in zip(records, table, strict=True)
    ]
    groups = list(dict.fromkeys(settings))
    runs = []
    for record, found, values, setting in zip(records, read, table, settings, strict=True):
        changed = f"its record was changed since it ended ({record.changes})" if record.changes else ""
        runs.append(
            {
                "label": f"#{record.name}" if record.name.isdecimal() else record.name,
                "name": str(record.summary.get("name") or ""),
                "number": record.number,
                "directory": "" if record.directory is None else shown_path(record.directory),
                "status": record.status.value,
                "reason": "; ".join(filter(None, (record.reason, changed))),
                "group": groups.index(setting),
                "data": of_data.get(id(record)),
                "values": values,
                "settings": [[key, finite(value)] for key, value in record.settings.items() if key not in common]
                if record.settings
                else None,
                "metrics": [[name, finite(value)] for name, value in record.metrics.items()],
                "seconds": finite(record.seconds),
                "trainSeconds": finite(record.train_seconds),
                "curves": [
                    [name, steps.setdefault(tuple(curve.steps), len(steps)), list(curve.values)]
                    for name, curve in shortened(found, points).items()
                ],
                "commands": _commands(record),
                **figures_of(record.summary),
            }
        )
    primary = _primary(records)
    measured = (name.partition(" ")[2] for record in records for name in record.metrics)
    return {
        "runs": runs,
        "columns": columns,
        "common": [[key, finite(value)] for key, value in common.items()],
        "groups": [grid.described(kept, json.loads(setting)) for setting, _ in groups],
        "metrics": _metrics(records, primary),
        "primary": primary,
        "higher": [
            name
            for name in dict.fromkeys([*metric_specs.directions(), *measured])
            if direction(name) is Direction.HIGHER
        ],
        "steps": list(steps),
        "search": searches.for_page(records),
        "maps": list(maps),
        "comparison": comparison,
        "notes": list(notes),
    }


def _values(records: Sequence[Record], columns: Sequence[str]) -> list[list[Any]]:
    """The values of the columns by run. An override that was not run is text: a number where those of others are."""
    by_column = []
    for key in columns:
        values = [finite(record.value(key)) for record in records]
        if any(isinstance(value, int | float) for value in values):
            values = [_as_number(value) for value in values]
        by_column.append(values)
    return [list(row) for row in zip(*by_column, strict=True)] or [[] for _ in records]


def _as_number(value: Any) -> Any:
    try:
        return finite(json.loads(value)) if isinstance(value, str) else value
    except ValueError:
        return value


def _common(records: Sequence[Record]) -> dict[str, Any]:
    """Settings that all runs share whose settings are known."""
    known = [record.settings for record in records if record.settings]
    return {
        key: value
        for key, value in (known[0].items() if known else ())
        if all(key in each and type(each[key]) is type(value) and each[key] == value for each in known)
    }


def _primary(records: Sequence[Record]) -> dict[str, Any] | None:
    """The metric that chooses the best run: that of most runs. And all that do: runs of several tasks have no best."""
    known = Counter((record.metric, record.direction) for record in records if record.metric and record.direction)
    if not known:
        return None
    [(metric, way)] = [key for key, _ in known.most_common(1)]
    return {
        "name": metric,
        "direction": way.value if way else "",
        "validation": f"validation {metric}",
        "test": f"test {metric}",
        "all": list(dict.fromkeys(name for name, _ in known)),
    }


def _metrics(records: Sequence[Record], primary: Mapping[str, Any] | None) -> list[str]:
    """All metrics: the primary one first, then validation before test before training."""
    splits = ("validation", "test", "train")

    def place(name: str) -> tuple[bool, int]:
        split, _, metric = name.partition(" ")
        return metric != (primary or {}).get("name"), splits.index(split) if split in splits else len(splits)

    return sorted(dict.fromkeys(name for record in records for name in record.metrics), key=place)


def _commands(record: Record) -> list[tuple[str, str]]:
    """Commands for a run, each with what it does."""
    if record.directory is None:
        return [("run it", shlex.join(["embexp", "run", *record.overrides]))] if record.overrides else []
    path = shown_path(record.directory)
    found = []
    if (record.directory / "spec.json").exists():
        found.append(("run it again", ["run", "--spec", str(Path(path) / "spec.json")]))
    if record.status.has_results:
        found += [("verify", ["verify", path]), ("evaluate", ["evaluate", path])]
    elif record.status in (Status.INTERRUPTED, Status.CANCELLED, Status.RUNNING):
        found.append(("continue it", ["resume", path]))
    return [(what, shlex.join(["embexp", *words])) for what, words in found]


_FIGURES = {
    "steps": "steps",
    "bestStep": "best_step",
    "speed": "throughput.examples_per_second",
}
_OF_INITIALIZATION = {
    "seconds": "seconds",
    "peak": "peak_anonymous_bytes",
    "graph": "graph_def_bytes",
    "graphAll": "total_graph_def_bytes",
}
_OF_TABLE = {
    "rows": "tables.vocabulary_size",
    "dim": "tables.dim",
    "bytes": "filled.bytes",
    "pretrained": "filled.rows_pretrained",
    "frozen": "freeze.frozen_rows",
    "frozenChanged": "freeze.frozen_rows_changed",
    "touched": "freeze.trainable_rows_touched",
    "moved": "freeze.trainable_rows_moved",
    "unmoved": "freeze.trainable_rows_never_moved",
    "noGradient": "freeze.never_moved_because.no_gradient",
    "idle": "freeze.never_moved_because.learning_rate_zero",
    "neverMet": "freeze.never_moved_because.never_met",
}
_TEXTS_OF_TABLE = {"storage": "tables.storage", "digest": "tables.digest", "method": "filled.method"}
"""What the page calls figures of summary.json, and where they are."""


def figures_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Steps, throughput, warnings, cost of initialization, rows by table, and classes; null what the summary lacks."""
    initialization, warnings = mapping(summary.get("initialization")), summary.get("warnings")
    return {
        **_numbers(summary, _FIGURES),
        "strategy": " · ".join(str(summary[key]) for key in ("strategy", "runtime") if summary.get(key)),
        "runId": str(summary.get("run_id") or ""),
        "warnings": [str(warning) for warning in warnings] if isinstance(warnings, list) else [],
        "init": _initialization(initialization) if initialization else None,
        "tables": [_table(summary, name) for name in mapping(summary.get("tables"))],
        "classes": _classes(summary),
        "vectors": _of_vectors(summary),
    }


def _classes(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Names and confusion of the classes of the last split, of the final evaluation; None where there are none."""
    details = mapping(summary.get("evaluation"))
    for split in ("test", "validation"):
        found = mapping(details.get(split))
        names, counts = list(mapping(found.get("classes"))), found.get("confusion")
        if names and isinstance(counts, list) and all(isinstance(row, list) for row in counts):
            return {"split": split, "names": names, "confusion": [list(map(finite, row)) for row in counts]}
    return None


_OF_TEST = {
    "similarity": {"value": "spearman", "low": "low", "high": "high", "other": "pearson", "of": "pairs"},
    "analogies": {"value": "add.share", "low": "add.low", "high": "add.high", "other": "mul.share", "of": "questions"},
    "categories": {"value": "purity", "low": "low", "high": "high", "other": "chance", "of": "words"},
}
"""Figures of each kind of test of vectors: the main one and its interval, another one, and its number of questions."""


def _of_vectors(summary: Mapping[str, Any]) -> list[list[Any]]:
    """Figures of vectors by tests: kind, table, name of the test, numbers; of analogies by section."""
    found: list[list[Any]] = []
    for kind, figures in _OF_TEST.items():
        for table, tests in mapping(mapping(summary.get("vectors")).get(kind)).items():
            for name, test in mapping(tests).items():
                sections = mapping(test).get("sections")
                parts = [mapping(each) for each in sections] if isinstance(sections, list) else []
                named = [(f"{name}: {part.get('name')}", part) for part in parts]
                if len(parts) < 3:  # the only section, and all
                    named = [(name, part) for part in (parts or [mapping(test)])[-1:]]
                found += [
                    [kind, table, each, _numbers(part, {**figures, "covered": "covered"})] for each, part in named
                ]
    return found


def _initialization(facts: Mapping[str, Any]) -> dict[str, Any]:
    tables = [mapping(each) for each in mapping(facts.get("tables")).values()]
    methods = " + ".join(sorted({str(table["method"]) for table in tables if table.get("method")}))
    return {"method": methods or str(facts.get("method") or "unknown"), **_numbers(facts, _OF_INITIALIZATION)}


def _table(summary: Mapping[str, Any], name: str) -> dict[str, Any]:
    of_filling = mapping(at(summary, "initialization.tables"))
    parts = {"tables": summary["tables"], "freeze": mapping(summary.get("freeze")), "filled": of_filling}
    facts = {part: mapping(by_table.get(name)) for part, by_table in parts.items()}
    texts = {key: value if isinstance(value := at(facts, path), str) else None for key, path in _TEXTS_OF_TABLE.items()}
    found = {"name": name, **_numbers(facts, _OF_TABLE), **texts}
    if found["neverMet"] is not None:
        # The OOV row and free rows stand for no token, so they are no fault, but they are rows all the same.
        found["neverMet"] += finite_number(at(facts, "freeze.special_rows_never_met")) or 0
    return found


def _numbers(content: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, Any]:
    return {key: finite_number(at(content, path)) for key, path in paths.items()}


@dataclass(frozen=True)
class Curve:
    """A quantity over the steps.

    Attributes:
        values: as many; None where it was not finite.
    """

    steps: Sequence[int]
    values: Sequence[float | None]


@dataclass(frozen=True)
class Curves:
    """The curves of a run.

    Attributes:
        by_name: `train loss`, and of each evaluated metric `validation NAME`.
    """

    by_name: Mapping[str, Curve] = field(default_factory=dict)


def read_curves(path: Path) -> Curves:
    """The curves in a metrics.jsonl, whole; none where the file is missing. Lines that are cut short are left out."""
    points: dict[str, dict[int, float | None]] = {}
    with contextlib.suppress(OSError):
        for line in read_metrics(path, strict=False):
            if line["event"] == "log":
                points.setdefault(LOSS, {})[line["step"]] = _value(line["loss"])
            elif line["event"] == "evaluation" and line["split"] == "validation":
                for name, value in line["metrics"].items():
                    points.setdefault(f"validation {name}", {})[line["step"]] = _value(value)
    by_name = {name: Curve(sorted(found), [found[step] for step in sorted(found)]) for name, found in points.items()}
    return Curves(by_name)


def points_each(runs: Sequence[Curves]) -> int:
    """How many points each curve may have, so that all together stay below a quarter of a million."""
    count = sum(len(run.by_name) for run in runs)
    return min(_MOST_POINTS, max(_FEWEST_POINTS, _POINTS_IN_ALL // max(1, count)))


def shortened(run: Curves, points: int) -> dict[str, Curve]:
    """The curves of a run with at most `points` points each, rounded to five digits."""
    shorter = {name: _shorter(name, curve, points) for name, curve in run.by_name.items()}
    return {
        name: Curve(curve.steps, [value if value is None else float(f"{value:.{_DIGITS}g}") for value in curve.values])
        for name, curve in shorter.items()
    }


def _shorter(name: str, curve: Curve, points: int) -> Curve:
    count = len(curve.steps)
    if count <= points:
        return curve
    if name == LOSS:  # each value is a mean since the last one, and so is that of several
        ends = [index * count // points for index in range(points + 1)]
        parts = [curve.values[start:stop] for start, stop in itertools.pairwise(ends)]
        return Curve([curve.steps[stop - 1] for stop in ends[1:]], [_mean(part) for part in parts])
    best = max if direction(name.partition(" ")[2]) is Direction.HIGHER else min
    known = [place for place in range(count) if curve.values[place] is not None]
    places = {round(index * (count - 1) / (points - 2)) for index in range(points - 1)}
    if known:
        places.add(best(known, key=lambda place: curve.values[place] or 0.0))
    kept = sorted(places)
    return Curve([curve.steps[place] for place in kept], [curve.values[place] for place in kept])


def _mean(values: Sequence[float | None]) -> float | None:
    finite = [value for value in values if value is not None]
    return math.fsum(finite) / len(finite) if len(finite) == len(values) else None


def _value(value: Any) -> float | None:
    number = float(value)  # also of "NaN" and "Infinity"
    return number if math.isfinite(number) else None


def page_of(
    records: Sequence[Record],
    *,
    maps: Sequence[Mapping[str, Any]] = (),
    comparison: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> str:
    """The page of a report, HTML in one file.

    Metrics and curves are read from the directories of the records, without TensorFlow. Of what can't be
    read, the page has nothing.
    """
    data = of_runs(records, maps=maps, comparison=comparison, notes=notes)
    return document(data, title=_title(records))


def document(data: Mapping[str, Any], *, title: str) -> str:
    """The page as text."""
    own = "\n".join(_asset(f"js/{name}.js") for name in _SCRIPTS)
    libraries = [_asset(_CHARTS), *([_asset(_NEIGHBOURS)] if data["maps"] else [])]
    scripts = [*libraries, f'"use strict";\n(() => {{\n{own}}})();\n']
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    # Only these scripts run, whatever text finds its way into the page, and nothing is loaded or sent.
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:"
    places = {
        "policy": policy,
        "title": html.escape(printable.visible(title.encode("utf-8", "replace").decode("utf-8"))),
        "style": _asset("page.css"),
        "version": html.escape(metadata.version("embexp")),
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "data": as_json(data),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return _PLACE.sub(lambda found: places[found[1]], _asset("page.html"))


def as_json(data: Any) -> str:
    """JSON that is safe inside an HTML `script` element: without `<`, so nothing ends or opens an element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_UNSAFE)


def _title(records: Sequence[Record]) -> str:
    """The name of the directory in which the runs are, or that of a single run."""
    places = [record.directory.absolute() for record in records if record.directory is not None]
    if len(places) == 1:
        return places[0].name
    parents = {place.parent for place in places}
    return parents.pop().name if len(parents) == 1 else f"{len(records)} runs"


def _asset(name: str) -> str:
    """A file beside this module; a browser reads every line end as a line feed, and hashes are of what it reads."""
    return _ASSETS.joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
