from __future__ import annotations

import math

import pytest

from embexp.training.loop import EarlyStopping, StoppedBy

NAN = math.nan


@pytest.mark.parametrize(
    ("lower", "patience", "min_delta", "series", "improved", "stops_at"),
    [
        (True, 2, 0.0, [3, 2, 2.5, 2.1, 1], "++--+", 3),
        (False, 2, 0.0, [0.5, 0.6, 0.55, 0.58, 0.9], "++--+", 3),
        (True, 2, 0.0, [3, 3, 3], "+--", 2),
        (True, 1, 0.5, [3, 2.6, 2.5], "+--", 1),
        (True, 3, 0.5, [3, 2.6, 2.5, 2.4], "+--+", None),
        (True, None, 0.0, [1, 2, 3, 4, 5], "+----", None),
        (True, 2, 0.0, [NAN, 2, NAN, 1, NAN, NAN], "-+-+--", 5),
        (True, 2, 0.0, [NAN, NAN], "--", 1),
        (True, 2, 0.0, [math.inf, 5, 4], "+++", None),
        (True, 2, 0.0, [3, 4, 2, 4, 1, 4], "+-+-+-", None),
    ],
    ids=[
        "lower is better",
        "higher is better",
        "standing still is no improvement",
        "too small a step",
        "small steps add up, measured from the best",
        "no patience set",
        "no numbers",
        "never a number",
        "infinity first",
        "waiting starts over",
    ],
)
def test_series(
    lower: bool, patience: int | None, min_delta: float, series: list[float], improved: str, stops_at: int | None
) -> None:
    stopping = EarlyStopping(metric="m", lower_is_better=lower, patience=patience, min_delta=min_delta)
    found, first_stop = "", None
    for index, value in enumerate(series):
        found += "+" if stopping.update(value) else "-"
        if stopping.stopped_by is not None and first_stop is None:
            first_stop = index
    assert (found, first_stop) == (improved, stops_at)


def test_the_best_is_remembered() -> None:
    stopping = EarlyStopping(metric="auc", lower_is_better=False, patience=5)
    for value in (0.5, 0.8, 0.7, NAN):
        stopping.update(value)
    assert (stopping.best, stopping.waited) == (0.8, 2)


@pytest.mark.parametrize(
    ("lower", "limit", "series", "stops_at", "why"),
    [
        (False, 1.0, [0.9, 1.0, 1.0, 1.0], 2, StoppedBy.PERFECT),
        (False, 1.0, [1.0, 0.9, 1.0, 0.9], 3, StoppedBy.PATIENCE),
        (True, 1e-4, [0.2, 9e-5, 1e-5, 1e-6], 2, StoppedBy.PERFECT),
        (True, 1e-4, [0.2, 2e-4, 1.5e-4, 1.2e-4], None, None),
        (True, None, [0.2, 0.0, -1.0, -2.0], None, None),
    ],
    ids=["twice the largest value", "not in a row", "hardly anything left", "still something left", "no limit known"],
)
def test_where_nothing_can_improve(
    lower: bool, limit: float | None, series: list[float], stops_at: int | None, why: StoppedBy | None
) -> None:
    stopping = EarlyStopping("m", lower, patience=3, limit=limit)
    reasons = [(stopping.update(value), stopping.stopped_by)[1] for value in series]
    assert next((place for place, reason in enumerate(reasons) if reason), None) == stops_at
    assert why is None or reasons[stops_at or 0] is why
    never = EarlyStopping("m", lower, patience=None, limit=limit)
    assert not any((never.update(value), never.stopped_by)[1] for value in series)
