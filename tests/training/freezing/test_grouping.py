"""Policies as groups of rows: against rules applied row by row, and what is said of rules that do not fit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import DataError
from embexp.specs.freezing import (
    FreezePretrainedRows,
    FreezeRows,
    FreezeSchedule,
    FreezeTable,
    NoFreeze,
    Phase,
    PretrainedRowsRule,
    RowsRule,
    TableRule,
)
from embexp.training.freezing.policies import RowFacts, first_steps, group

TOKENS = {"the": 1, "of": 2, "and": 4}


def facts(rows: int = 6, pretrained: list[int] | None = None) -> RowFacts:
    mask = None
    if pretrained is not None:
        mask = np.zeros(rows, bool)
        mask[pretrained] = True
    vocabulary = SimpleNamespace(first=0, rows=lambda tokens: np.array([TOKENS.get(each, -1) for each in tokens]))
    return RowFacts(rows, vocabulary, mask)


def frozen_by(freeze: Any, known: RowFacts) -> list[int]:
    phases = freeze.as_phases
    return np.flatnonzero(group(phases, first_steps(phases, 10.0), known).frozen).tolist()


@pytest.mark.parametrize(
    ("freeze", "expected"),
    [
        (NoFreeze(), []),
        (FreezeTable(), [0, 1, 2, 3, 4, 5]),
        (FreezeRows(rows=((0, 2), (4, 5))), [0, 1, 4]),
        (FreezeRows(tokens=("of", "and")), [2, 4]),
        (FreezeRows(rows=((0, 1),), tokens=("and",)), [0, 4]),
        (FreezePretrainedRows(), [3, 5]),
    ],
    ids=["none", "table", "ranges", "tokens", "ranges and tokens", "pretrained"],
)
def test_rows_that_a_policy_freezes(freeze: Any, expected: list[int]) -> None:
    assert frozen_by(freeze, facts(pretrained=[3, 5])) == expected


def test_rows_of_files(tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_bytes(b"and\r\nthe\n")
    np.save(tmp_path / "mask.npy", np.array([1, 0, 0, 0, 0, 1], bool))
    assert frozen_by(FreezeRows(tokens_file=str(tmp_path / "tokens.txt")), facts()) == [1, 4]
    assert frozen_by(FreezeRows(mask_file=str(tmp_path / "mask.npy")), facts()) == [0, 5]


@given(data=st.data())
def test_groups_are_the_rules_row_by_row(data: st.DataObject) -> None:
    """The oracle asks for each row and phase which rule names it first."""
    rows = data.draw(st.integers(1, 12))
    rule = st.one_of(
        st.builds(TableRule, multiplier=st.sampled_from([0.0, 0.5, 1.0])),
        st.builds(
            lambda start, size, multiplier: RowsRule(rows=((start, start + size),), multiplier=multiplier),
            st.integers(0, 12),
            st.integers(1, 12),
            st.sampled_from([0.0, 0.5, 2.0]),
        ),
        st.builds(PretrainedRowsRule, multiplier=st.sampled_from([0.0, 0.25])),
    )
    phases = [
        Phase(step=None if not number else 5 * number, rules=rules)
        for number, rules in enumerate(data.draw(st.lists(st.lists(rule, max_size=3), min_size=1, max_size=3)))
    ]
    pretrained = data.draw(st.lists(st.integers(0, rows - 1)))
    found = group(phases, first_steps(phases, 1.0), facts(rows, pretrained))
    assert found.starts == tuple(5 * number for number in range(len(phases)))
    took: dict[tuple[int, int], int] = {}
    for row in range(rows):
        for number, phase in enumerate(phases):
            expected = 1.0
            for place, each in enumerate(phase.rules):
                if (
                    isinstance(each, TableRule)
                    or (isinstance(each, RowsRule) and each.rows[0][0] <= row < each.rows[0][1])
                    or (isinstance(each, PretrainedRowsRule) and row in pretrained)
                ):
                    expected = each.multiplier
                    took[number, place] = took.get((number, place), 0) + 1
                    break
            assert found.multipliers[number, found.groups[row]] == expected
    assert {(each.phase, each.rule): each.rows for each in found.taken if each.rows} == took
    # Rows that are treated alike share a group.
    assert len({tuple(column) for column in found.multipliers.T}) == found.multipliers.shape[1]


def test_what_each_rule_took() -> None:
    rules = (RowsRule(rows=((0, 3),)), RowsRule(rows=((2, 9),), tokens=("nowhere", "the"), multiplier=0.5), TableRule())
    first, second, third = group([Phase(rules=rules)], [0], facts()).taken
    assert (first.named, first.rows, first.shortfall) == (3, 3, "")
    assert (second.named, second.rows, second.multiplier) == (5, 3, 0.5)
    assert second.shortfall == (
        "[2, 9] goes beyond the table's 6 rows; 1 of 2 tokens are not in the vocabulary ('nowhere')"
    )
    assert (third.kind, third.named, third.rows) == ("table", 6, 0)


def test_phases_by_epoch() -> None:
    schedule = FreezeSchedule(phases=(Phase(), Phase(epoch=1), Phase(step=25), Phase(epoch=3.5)))
    assert first_steps(schedule.phases, 9.6) == (0, 9, 25, 33)
    with pytest.raises(ValueError, match="phase 2 begins at step 25, but the one before it begins at step 30"):
        first_steps((Phase(), Phase(epoch=3), Phase(step=25)), 10.0)


def test_gradual_unfreezing() -> None:
    phases = (Phase(rules=(TableRule(),)), Phase(step=5, rules=(RowsRule(rows=((0, 2),)),)), Phase(step=9))
    found = group(phases, first_steps(phases, 1.0), facts())
    assert (found.frozen_rows, found.rows, found.inert) == (0, 6, False)
    assert found.multipliers[:, found.groups[0]].tolist() == [0, 0, 1]
    assert found.multipliers[:, found.groups[5]].tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("content", "words"),
    [(np.zeros(6, np.int64), "no .npy file of booleans, one for each row"), (None, "found no .npy file of booleans:")],
)
def test_masks_that_are_none(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "mask.npy"
    if content is not None:
        np.save(path, content)
    with pytest.raises(DataError, match=words):
        frozen_by(FreezeRows(mask_file=str(path)), facts())


def test_a_mask_of_another_table_names_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "mask.npy", np.ones(5, bool))
    phases = FreezeRows(mask_file=str(tmp_path / "mask.npy")).as_phases
    [taken] = group(phases, [0], facts()).taken
    assert taken.rows == 0
    assert "has 5 values, but the table has 6 rows" in taken.shortfall


def test_tokens_need_a_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs the table's vocabulary"):
        frozen_by(FreezeRows(tokens=("the",)), RowFacts(3))
    (tmp_path / "tokens.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match="found no UTF-8 text with a token per line"):
        frozen_by(FreezeRows(tokens_file=str(tmp_path / "tokens.txt")), facts())


def test_too_many_groups() -> None:
    rules = tuple(RowsRule(rows=((row, row + 1),), multiplier=row / 7) for row in range(200))
    later = tuple(RowsRule(rows=((row, row + 1),), multiplier=row / 7) for row in range(150, 350))
    with pytest.raises(ValueError, match="more than 256 groups"):
        group([Phase(rules=rules), Phase(step=1, rules=later)], [0, 1], facts(400))
