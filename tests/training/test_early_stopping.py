from __future__ import annotations

import math

import pytest

from embexp.training.loop import EarlyStopping

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
        if stopping.stop and first_stop is None:
            first_stop = index
    assert (found, first_stop) == (improved, stops_at)


def test_the_best_is_remembered() -> None:
    stopping = EarlyStopping(metric="auc", lower_is_better=False, patience=5)
    for value in (0.5, 0.8, 0.7, NAN):
        stopping.update(value)
    assert (stopping.best, stopping.waited) == (0.8, 2)
