"""The first line of metrics.jsonl that differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import DataError
from embexp.records import differences, folder
from embexp.reports import page


def log(step: int, loss: Any, seconds: float = 0.0) -> dict[str, Any]:
    return {"event": "log", "step": step, "loss": loss, "timing": {"seconds": seconds}}


def evaluation(step: int, split: str = "validation", **metrics: Any) -> dict[str, Any]:
    return {"event": "evaluation", "step": step, "split": split, "metrics": metrics, "timing": {"seconds": 1.0}}


LINES = [log(10, 0.5), log(20, 0.4), evaluation(20, auc=0.7, loss=0.5), log(30, 0.3), evaluation(30, "test", auc=0.8)]


def test_times_do_not_count() -> None:
    later = [{**line, "timing": {"seconds": 99.0}} for line in LINES]
    found = differences.compare_metrics(LINES, later)
    assert found.lines == 5
    assert not found.differences


def test_the_first_difference_is_named_with_step_split_and_values() -> None:
    other = [*LINES[:2], evaluation(20, auc=0.7, loss=0.5000000000000001), log(30, 0.2), LINES[4]]
    found = differences.compare_metrics(LINES, other)
    assert (found.different, found.lines) == (2, 5)
    assert [str(each) for each in found.differences] == ["step 20, validation loss: 0.5 in A, 0.5000000000000001 in B"]


def test_a_missing_line_is_a_difference() -> None:
    found = differences.compare_metrics(LINES, LINES[:2] + LINES[3:])
    assert found.differences
    assert (found.only_a, found.only_b) == (1, 0)
    assert [str(each) for each in found.differences] == ["step 20, evaluation validation: a line in A, nothing in B"]


def test_a_line_that_is_there_twice_is_a_difference() -> None:
    found = differences.compare_metrics([*LINES, LINES[1]], LINES)
    assert [str(each) for each in found.differences] == ["step 20, log: a line 2 times in A, fewer in B"]


def test_a_line_in_another_place_is_a_difference() -> None:
    found = differences.compare_metrics([LINES[1], LINES[0], *LINES[2:]], LINES)
    assert found.differences
    assert (found.different, found.only_a, found.only_b) == (0, 0, 0)
    assert [str(each) for each in found.differences] == ["step 20, log: its line is in another place"]


def test_nan_is_itself_and_the_sign_of_zero_counts() -> None:
    assert not differences.compare_metrics([log(1, "NaN")], [log(1, "NaN")]).differences
    assert differences.compare_metrics([log(1, 0.0)], [log(1, -0.0)]).differences


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20), st.data())
def test_the_first_of_any_changes_is_found(losses: list[float], data: st.DataObject) -> None:
    a = [log(step, loss) for step, loss in enumerate(losses)]
    changed = sorted(data.draw(st.sets(st.integers(0, len(a) - 1))))
    b = [log(step, "other" if step in changed else loss) for step, loss in enumerate(losses)]
    found = differences.compare_metrics(a, b)
    assert found.different == len(changed)
    assert [each.step for each in found.differences] == changed[:1]


BROKEN = {
    "half a line": '{"event": "log", "step": ',
    "a list": "[]",
    "nothing": "null",
    "no event": '{"step": 3}',
    "a text for a step": '{"event": "log", "step": "x", "loss": 1}',
    "a step without an end": '{"event": "log", "step": 1e999, "loss": 1}',
    "a text for a loss": '{"event": "log", "step": 2, "loss": "abc"}',
    "a list of metrics": '{"event": "evaluation", "step": 2, "split": "test", "metrics": [1]}',
    "a number of thousands of digits": f'{{"event": "log", "step": {"9" * 5000}, "loss": 1}}',
    "nested brackets": "[" * 100_000,
    "other bytes": "\udcff\udcfe",
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_line_is_named(case: str, tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    good = json.dumps(log(1, 0.5)) + "\n"
    file.write_text(f"{good}{BROKEN[case]}\n{good}", encoding="utf-8", errors="surrogateescape")
    lines = folder.read_metrics(file)
    assert next(lines) == log(1, 0.5)
    with pytest.raises(DataError) as raised:
        next(lines)
    assert str(raised.value).startswith(f"{file}:2: this line of metrics is damaged: ")
    assert len(str(raised.value)) < len(str(file)) + 200
    page.read_curves(file)  # those of the page leave such a line out
