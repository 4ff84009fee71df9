"""What the models themselves rule, apart from the words in which faults are told (tests/config)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from embexp.specs.base import Spec
from embexp.specs.data import CSV
from embexp.specs.optimizers import SGD
from embexp.specs.tables import Feature


@pytest.mark.parametrize("written", ["\t", "\\t"], ids=["a tab", "backslash and t"])
def test_a_tab_may_be_written_as_on_a_command_line(written: str) -> None:
    assert CSV(path="x", label="y", delimiter=written).delimiter == "\t"


@pytest.mark.parametrize(
    ("word", "delimiter"),
    [("comma", ","), ("Tab", "\t"), ("semicolon", ";"), ("space", " "), ("pipe", "|"), ("colons", "::"), ("ab", "ab")],
)
def test_delimiters_have_words(word: str, delimiter: str) -> None:
    assert CSV(path="x", label="y", delimiter=word).delimiter == delimiter


@pytest.mark.parametrize(("word", "meant"), [("spaces", "space"), ("semicolumn", "semicolon"), ("TABS", "tab")])
def test_a_word_that_is_no_delimiter(word: str, meant: str) -> None:
    with pytest.raises(
        ValidationError, match=rf"a delimiter given as a word must be comma, tab, .* whitespace; did you mean {meant}\?"
    ):
        CSV(path="x", label="y", delimiter=word)


@pytest.mark.parametrize("value", [True, "0.1", None, float("nan"), float("inf"), 0, -1])
def test_a_learning_rate_is_a_positive_finite_number(value: Any) -> None:
    with pytest.raises(ValidationError):
        SGD(learning_rate=value)


def test_whole_numbers_are_numbers_too() -> None:
    assert SGD(learning_rate=6).learning_rate == 6.0


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({}, (4,)),
        ({"max_sequence_length": 3}, (3, 4)),
        ({"output_shape": (8,)}, (4,)),
        ({"output_shape": (8, 3)}, (3, 4)),
        ({"output_shape": (8, 3), "max_sequence_length": 3}, (3, 4)),
    ],
)
def test_shape_of_an_activation_without_the_batch(settings: dict[str, Any], shape: tuple[int, ...]) -> None:
    assert Feature(table="t", **settings).activation_shape(4) == shape


def _parts(model: type[Spec]) -> list[type[Spec]]:
    return [each for part in model.__subclasses__() for each in (part, *_parts(part))]


def _default_parts() -> dict[str, Spec]:
    fields = [(part, name, field) for part in _parts(Spec) for name, field in part.model_fields.items()]
    return {f"{part.__name__}.{name}": each.default for part, name, each in fields if isinstance(each.default, Spec)}


@pytest.mark.parametrize("name", _default_parts())
def test_defaults_that_are_made_without_validation_are_valid(name: str) -> None:
    made = _default_parts()[name]
    validated = type(made).model_validate({})
    assert made == validated
    assert made.model_dump_json() == validated.model_dump_json()
    assert made.model_fields_set == validated.model_fields_set
