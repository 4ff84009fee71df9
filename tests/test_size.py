"""The size of the code and the bits of small runs: what is counted and compared."""

from __future__ import annotations

import pytest

from tests import bits, size
from tests.size import Size


def test_comments_blank_lines_and_docstrings_are_no_code() -> None:
    source = """'A module.'

import os

# why
X = [
    1,  # one
]
'What X is.'


def f():
    'Does.'
    return '''a
    b'''
"""

    assert size.code_lines(source) == 7  # import, X over three lines, def, and the returned string over two
    plain = source.replace("'''", '"').replace("a\n    b", "a b").replace("'", '"""')
    assert size.code_lines(plain) == 6


def test_comments_and_blank_lines_of_cpp_are_no_code() -> None:
    assert size.code_lines_of_cpp("// a\n\n/* b\n   c */\nint x;  // d\n/* e */\nvoid f() {}\n") == 2


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"data": 10}, []),
        ({"data": 9}, ["data has 10 lines of code, and its budget is 9"]),
        ({}, ["data has no budget"]),
        ({"data": 10, "gone": 5}, ["a budget for gone, which is gone"]),
    ],
)
def test_the_budget_is_that_of_the_packages_there_are(budget: dict[str, int], said: list[str]) -> None:
    found = size.excesses(budget, {"data": Size(code=10)})

    assert len(found) == len(said)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))


def test_another_digest_is_a_difference_and_another_id_only_where_ids_count() -> None:
    before = {"dlrm": {"a: run_id": "1", "a: table item": "x"}}

    assert not bits.differences(before, before, ids=True)
    assert bits.differences(before, {"dlrm": {"a: run_id": "2", "a: table item": "x"}}, ids=False) == []
    assert len(bits.differences(before, {"dlrm": {"a: run_id": "2", "a: table item": "x"}}, ids=True)) == 1
    assert bits.differences(before, {"dlrm": {"a: run_id": "1"}}, ids=True) == [
        "dlrm: a: table item: x before, nothing now"
    ]
