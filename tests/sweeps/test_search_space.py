"""Search spaces from overrides in Hydra's grammar."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import ConfigError
from embexp.sweeps import search
from embexp.sweeps.search import Choices, Numbers


def space(*overrides: str) -> search.Space:
    return search.space(OverridesParser.create().parse_overrides(list(overrides)))


@pytest.mark.parametrize(
    ("override", "parameter"),
    [
        ("x=choice(1,2,abc)", Choices("x", ("1", "2", "abc"))),
        ("x=1,2", Choices("x", ("1", "2"))),
        ("optimizer@tables.item.optimizer=sgd,adam", Choices("optimizer@tables.item.optimizer", ("sgd", "adam"))),
        ("+model.args.width=8,16", Choices("+model.args.width", ("8", "16"))),
        ("x=shuffle(3,1,2)", Choices("x", ("3", "1", "2"))),
        ("x=interval(0.5,2)", Numbers("x", 0.5, 2, whole=False)),
        ("x=interval(1,5)", Numbers("x", 1, 5, whole=False)),
        ("x=int(interval(1,5))", Numbers("x", 1, 5, whole=True, step=1)),
        ("x=tag(log,interval(0.001,1))", Numbers("x", 0.001, 1, whole=False, log=True)),
        ("x=tag(log,int(interval(1,64)))", Numbers("x", 1, 64, whole=True, log=True, step=1)),
        ("x=int(tag(log,interval(1,64)))", Numbers("x", 1, 64, whole=True, log=True, step=1)),
        ("x=range(1,10,2)", Numbers("x", 1, 9, whole=True, step=2)),
        ("x=range(10,1,-3)", Numbers("x", 4, 10, whole=True, step=3)),
        ("x=range(0.1,0.9,0.2)", Numbers("x", 0.1, 0.7, whole=False, step=0.2)),
    ],
)
def test_parameters(override: str, parameter: object) -> None:
    assert space(override).parameters == (parameter,)


@given(st.integers(-20, 20), st.integers(1, 20), st.integers(1, 7))
def test_a_range_has_the_values_that_hydra_gives(start: int, length: int, step: int) -> None:
    override = f"x=range({start},{start + length},{step})"
    expected = list(OverridesParser.create().parse_override(override).sweep_string_iterator())
    found = space(override, "y=1,2")
    if len(expected) == 1:
        assert f"x={expected[0]}" in found.fixed
        return
    [parameter] = [each for each in found.parameters if each.key == "x"]
    assert isinstance(parameter, Numbers)
    assert parameter.step is not None
    texts = [parameter.text(parameter.low + place * parameter.step) for place in range(len(expected))]
    assert texts == expected
    assert parameter.high < parameter.low + len(expected) * parameter.step


def test_numbers_are_written_so_that_they_are_read_back() -> None:
    number = Numbers("x", 0.1, 0.7, whole=False, step=0.2)
    assert number.text(0.1 + 2 * 0.2 + 1e-17) == "0.5"
    assert float(Numbers("x", 0, 1, whole=False).text(1 / 3)) == 1 / 3
    assert Numbers("x", 1, 9, whole=True, step=1).text(4.0) == "4"


def test_the_command_line_takes_precedence_over_params() -> None:
    found = space("x=1,2", "y=3", "x=5", "z=1,2", "y=4,5")
    assert found.fixed == ("x=5",)
    assert [each.key for each in found.parameters] == ["z", "y"]
    assert found.overrides(["2", "4"]) == ["x=5", "z=2", "y=4"]


def test_probes_have_every_choice_and_both_ends() -> None:
    found = space("m=a,b,c", "x=interval(0,1)", "f=7")
    assert found.probes() == [
        ["f=7", "m=a", "x=0.0"],
        ["f=7", "m=b", "x=0.0"],
        ["f=7", "m=c", "x=0.0"],
        ["f=7", "m=a", "x=1.0"],
    ]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("x=tag(log,interval(0,1))", "a logarithmic interval begins above 0"),
        ("x=interval(2,1)", "from a number to a larger one"),
        ("x=tag(log,choice(1,2))", "the tag log is for an interval"),
        ("x=tag(fast,interval(1,2))", "knows the tag log, and this has fast"),
        ("x=range(5,5)", "this range has no values"),
        ("x=3", "a search needs something to choose"),
        ("x=choice(1)", "a search needs something to choose"),
    ],
)
def test_faults(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        space(override)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        space("x=interval(2,1)", "y=tag(log,choice(1,2))")
    assert [each.path for each in caught.value.faults] == ["x", "y"]
