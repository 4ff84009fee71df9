"""Conditions and sort keys."""

from __future__ import annotations

import json
import math
import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import CommandLineError
from embexp.reports.record import Condition, Record, Status, condition, ordered, reader

KEYS = (
    st.text(st.characters(exclude_characters="<>=!", exclude_categories=["Cs"]), min_size=1).map(str.strip).filter(bool)
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.one_of(st.integers(-1000, 1000), st.floats(allow_nan=False, allow_infinity=False))
INEQUALITIES = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def record(number: int = 0, **settings: Any) -> Record:
    metrics = {"test rmse": float(number), "validation rmse": 1.0, "test mae": 2.0}
    flat = {key.replace("__", "."): value for key, value in settings.items()}
    return Record(None, f"run {number}", number, Status.COMPLETED, settings=flat, metrics=metrics)


@given(KEYS, st.sampled_from(["=", "!="]), st.lists(TEXTS, min_size=1))
def test_a_condition_reads_back(key: str, sign: str, values: list[str]) -> None:
    made = Condition(key, sign, tuple(values))
    assert condition(str(made)) == made


@given(st.text())
def test_any_text_is_a_condition_or_an_error(text: str) -> None:
    try:
        found = condition(text)
    except CommandLineError:
        return
    assert found.key
    assert found.values
    found.holds(1.0)
    found.holds(None)


@given(KEYS, st.sampled_from(sorted(INEQUALITIES)), NUMBERS, NUMBERS)
def test_inequalities_are_those_of_python(key: str, sign: str, value: float, limit: float) -> None:
    assert condition(f"{key}{sign}{limit!r}").holds(value) is INEQUALITIES[sign](value, float(limit))


@given(NUMBERS)
def test_numbers_are_equal_however_they_are_written(value: float) -> None:
    assert condition(f"k={value:.17e}").holds(value)
    assert condition(f"k = {value!r}").holds(str(value))
    assert not condition(f"k!={value!r}").holds(value)


@given(st.recursive(TEXTS | st.integers() | st.booleans(), lambda each: st.lists(each) | st.dictionaries(TEXTS, each)))
def test_any_setting_equals_its_text_in_quotes(value: Any) -> None:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    assert Condition("k", "=", (text,)).holds(value)
    assert condition(str(Condition("k", "=", (text,)))).holds(value)


EXAMPLES = [
    ("optimizer=adam", "adam", True),
    ("optimizer=adam", "Adam", False),
    ("optimizer = sgd, adam", "adam", True),
    ("optimizer==adam", "adam", True),
    ("optimizer!=sgd,adam", "adam", False),
    ("optimizer!=sgd,adam", None, True),
    ("path='a,b'", "a,b", True),
    ('path="a \\" b", c', 'a " b', True),
    ("path=C:\\x", "C:\\x", True),
    ("hidden=[64,32]", [64, 32], True),
    ("hidden=[64, 32],[8]", [8], True),
    ("hidden=[64,32]", [64, 33], False),
    ("flag=true", True, True),
    ("flag=1", True, False),
    ("steps=null", None, True),
    ("steps=", None, True),
    ("steps=0", None, False),
    ("x<0.5", None, False),
    ("x>=0.5", "0.5", True),
    ("x<0.5", "low", False),
    ("x<0.5", math.nan, False),
    ("x>0.5", True, False),
    ("x=nan", math.nan, True),
]


@pytest.mark.parametrize(
    ("text", "value", "holds"), EXAMPLES, ids=[f"{text} of {value!r}" for text, value, _ in EXAMPLES]
)
def test_examples(text: str, value: Any, holds: bool) -> None:
    assert condition(text).holds(value) is holds


WRONG = {
    "": "is no condition",
    "rmse": "is no condition",
    "=3": "is no condition",
    "rmse<low": "< takes one number, not 'low'",
    "rmse<=1,2": "<= takes one number, not '1,2'",
    "rmse>": "> takes one number, not ''",
    "a='x": "the quote ' is not closed",
    "a='x'y": "a comma must follow the closing quote, not 'y'",
}


@pytest.mark.parametrize(("text", "words"), WRONG.items())
def test_what_is_no_condition(text: str, words: str) -> None:
    with pytest.raises(
        CommandLineError,
        match=words.replace("'", "."),
    ):
        condition(text)


class TestKeys:
    """How values are named."""

    RECORDS = (record(0, optimizer__kind="sgd", a__rate=1, train__steps=3), record(1, b__rate=2, train__steps=3))

    @pytest.mark.parametrize(
        ("key", "values"),
        [
            ("job", [0, 1]),
            ("run", ["run 0", "run 1"]),
            ("status", ["completed", "completed"]),
            ("test rmse", [0.0, 1.0]),
            ("mae", [2.0, 2.0]),
            ("optimizer", ["sgd", None]),
            ("a.rate", [1, None]),
            ("steps", [3, 3]),
        ],
    )
    def test_they_are_found(self, key: str, values: list[Any]) -> None:
        read = reader(self.RECORDS, key)
        assert [read(each) for each in self.RECORDS] == values

    @pytest.mark.parametrize(
        ("key", "words"),
        [
            ("rate", "'rate' may be 'a.rate' or 'b.rate'"),
            ("rmse", "'rmse' may be 'test rmse' or 'validation rmse'"),
            ("tset rmse", "no run has a value of 'tset rmse'\n    did you mean 'test rmse'"),
            ("zzz", "no run has a value of 'zzz'\n    the metrics are"),
        ],
    )
    def test_or_refused(self, key: str, words: str) -> None:
        with pytest.raises(CommandLineError) as error:
            reader(self.RECORDS, key)
        assert str(error.value).startswith(words)

    def test_a_key_of_the_summary(self) -> None:
        found = Record(None, "a", 0, Status.COMPLETED, summary={"initialization": {"seconds": 1.5}})
        assert reader([found], "initialization.seconds")(found) == 1.5


@given(st.lists(st.one_of(st.none(), NUMBERS, st.just(math.nan), st.sampled_from(["a", "b", "10", "9"])), max_size=8))
def test_sorting(values: list[Any]) -> None:
    records = [record(number, k=value) for number, value in enumerate(values)]
    records.append(record(99, k=0))
    for key, sign in (("k", 1), ("k:asc", 1), ("k:desc", -1)):
        found = [each.settings["k"] for each in ordered(records, key)]
        assert sorted(map(repr, found)) == sorted(map(repr, [*values, 0]))
        present = [each for each in found if each is not None and each == each]
        assert found[: len(present)] == present
        numbers = [float(each) for each in present if str(each) not in "ab"]
        assert numbers == sorted(numbers, reverse=sign < 0)
        texts = [each for each in present if str(each) in "ab"]
        assert texts == sorted(texts, reverse=sign < 0)


def test_a_key_with_a_colon() -> None:
    records = [record(0, **{"a:b": 2}), record(1, **{"a:b": 1})]
    assert [each.number for each in ordered(records, "a:b")] == [1, 0]
    assert [each.number for each in ordered(records, "a:b:desc")] == [0, 1]
