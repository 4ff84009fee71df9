"""What columns are called, and how their cells read."""

from __future__ import annotations

import pytest

from embexp.reports import grid
from embexp.reports.groups import Estimate


@pytest.mark.parametrize(
    ("keys", "heads"),
    [
        (["a.b.c"], ["c"]),
        (["a.b.c", "a.x.c"], ["b c", "x c"]),
        (["a.seconds"], ["a seconds"]),
        (["seconds"], ["seconds"]),  # nothing shorter tells it from the sweep's own
        (["c", "a.c"], ["c", "a c"]),
        (["tables.item.digest", "tables.user.digest"], ["item digest", "user digest"]),
    ],
)
def test_heads(keys: list[str], heads: list[str]) -> None:
    assert list(grid.headings(keys, taken=["job", "seconds"]).values()) == heads


def test_short_keys() -> None:
    keys = ["optimizer.learning_rate", "dense_optimizer.learning_rate", "train.steps", "seed", "a.seed", "x.runs"]
    assert list(grid.short_keys(keys, taken=["runs"]).values()) == [
        "optimizer.learning_rate",
        "dense_optimizer.learning_rate",
        "steps",
        "seed",
        "a.seed",
        "x.runs",
    ]


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("x_bytes", 0, "0 B"),
        ("x.bytes", 1_999_999, "2 MB"),
        ("seconds", 0.0, "0 s"),
        ("seconds", 0.00005, "50 µs"),
        ("seconds", 61.25, "61.2 s"),
        ("steps", 12_345, "12,345"),
        ("rate", 12_345.6, "12,345.6"),
        ("loss", 0.25, "0.2500"),
        ("status", "completed", "completed"),
        ("frozen", True, "true"),
        ("nothing", None, ""),
        ("several", {"é": 1}, '{"é": 1}'),
    ],
)
def test_cells(key: str, value: object, shown: str) -> None:
    assert grid.cell(key, value) == shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.91234, "0.9123"),
        (0.0, "0"),
        (-0.00012345, "-0.000123"),
        (1234.56, "1,234.6"),
        (float("nan"), "nan"),
        (1e-30, "1e-30"),
        (None, ""),
    ],
)
def test_figures(value: float | None, text: str) -> None:
    assert grid.figure(value) == text


@pytest.mark.parametrize(
    ("estimate", "key", "text"),
    [
        (Estimate(3, 0.55, 0.0707), "", "0.5500 ± 0.0707"),
        (Estimate(3, 0.55, 0.0), "", "0.5500 ± 0.0000"),
        (Estimate(3, 0.55, 0.000012), "", "0.5500 ± 1.2e-05"),
        (Estimate(3, 0.0001, 0.00001), "", "0.0001 ± 1e-05"),
        (Estimate(3, 0.25, 0.0), "x.seconds", "250 ms ± 0 s"),
        (Estimate(1, 0.25), "", "0.2500"),
        (None, "", ""),
    ],
)
def test_means(estimate: Estimate | None, key: str, text: str) -> None:
    assert grid.spread(estimate, key) == text


@pytest.mark.parametrize(("value", "text"), [("a\nb\t c", "a b c"), ("\x1b[31mred", "␛[31mred"), ([1, 2], "[1, 2]")])
def test_settings_move_no_cursor(value: object, text: str) -> None:
    assert grid.setting(value) == text


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.0031622776601683794, 0.1, None], ("0.003162", "0.1", "")),
        ([0.123456789, 0.123456788], ("0.123456789", "0.123456788")),
        ([1.0, "adam", 7, float("inf")], ("1", "adam", "7", "inf")),
        ([0.1234567, 0.1234567], ("0.1235", "0.1235")),
        ([1234567.0, 1234568.0], ("1234567.0", "1234568.0")),
    ],
)
def test_settings_have_the_digits_that_tell_them_apart(values: list[object], texts: tuple[str, ...]) -> None:
    assert grid.settings(values) == texts
