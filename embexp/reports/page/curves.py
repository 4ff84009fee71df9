"""Learning curves of a run, from metrics.jsonl, with at most so many points that the page stays small."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embexp.training.metric_names import Direction, direction

LOSS = "train loss"
"""Name of the curve of logged losses."""
_MOST_POINTS, _FEWEST_POINTS = 400, 60
_POINTS_IN_ALL = 250_000
_DIGITS = 5


@dataclass(frozen=True)
class Curve:
    """A quantity over the steps.

    Attributes:
        steps: rising.
        values: as many; None where it was not finite.
    """

    steps: Sequence[int]
    values: Sequence[float | None]


@dataclass(frozen=True)
class Curves:
    """The curves of a run.

    Attributes:
        by_name: `train loss`, and of each evaluated metric `validation NAME`.
        seconds: from the start of the training to its last line; None if there is none.
    """

    by_name: Mapping[str, Curve] = field(default_factory=dict)
    seconds: float | None = None


def read(path: Path) -> Curves:
    """The curves in a metrics.jsonl, whole; none where the file is missing. Lines that are cut short are left out."""
    points: dict[str, dict[int, float | None]] = {}
    seconds = None
    for line in _lines(path):
        try:
            step = int(line["step"])
            if line["event"] == "log":
                points.setdefault(LOSS, {})[step] = _value(line["loss"])
            elif line["event"] == "evaluation" and line["split"] == "validation":
                for name, value in line["metrics"].items():
                    points.setdefault(f"validation {name}", {})[step] = _value(value)
            seconds = float(line["timing"]["seconds"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            continue
    by_name = {name: Curve(sorted(found), [found[step] for step in sorted(found)]) for name, found in points.items()}
    return Curves(by_name, seconds)


def points_each(runs: Sequence[Curves]) -> int:
    """How many points each curve may have, so that all together stay below a quarter of a million."""
    count = sum(len(run.by_name) for run in runs)
    return min(_MOST_POINTS, max(_FEWEST_POINTS, _POINTS_IN_ALL // max(1, count)))


def shortened(run: Curves, points: int) -> dict[str, Curve]:
    """The curves of a run with at most `points` points each, rounded to five digits."""
    return {name: _rounded(_shorter(name, curve, points)) for name, curve in run.by_name.items()}


def _shorter(name: str, curve: Curve, points: int) -> Curve:
    count = len(curve.steps)
    if count <= points:
        return curve
    if name == LOSS:  # each value is a mean since the last one, and so is that of several
        return _means(curve, points)
    best = max if direction(name.partition(" ")[2]) is Direction.HIGHER else min
    known = [place for place in range(count) if curve.values[place] is not None]
    places = {round(each * (count - 1) / (points - 2)) for each in range(points - 1)}
    if known:
        places.add(best(known, key=lambda place: curve.values[place] or 0.0))
    kept = sorted(places)
    return Curve([curve.steps[place] for place in kept], [curve.values[place] for place in kept])


def _means(curve: Curve, points: int) -> Curve:
    count = len(curve.steps)
    steps, values = [], []
    for each in range(points):
        start, stop = each * count // points, (each + 1) * count // points
        finite = [value for value in curve.values[start:stop] if value is not None]
        steps.append(curve.steps[stop - 1])
        values.append(math.fsum(finite) / len(finite) if len(finite) == stop - start else None)
    return Curve(steps, values)


def _rounded(curve: Curve) -> Curve:
    rounded = [None if value is None else float(f"{value:.{_DIGITS}g}") for value in curve.values]
    return Curve(curve.steps, rounded)


def _value(value: Any) -> float | None:
    number = float(value)  # also of "NaN" and "Infinity"
    return number if math.isfinite(number) else None


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    content = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(content, dict):
                    yield content
    except OSError:
        return
