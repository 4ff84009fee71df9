"""Search spaces from overrides in Hydra's grammar."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import ConfigError
from embexp.sweeps import space as spaces
from embexp.sweeps.space import Choices, Numbers


def space(*overrides: str) -> spaces.Space:
    return spaces.space(OverridesParser.create().parse_overrides(list(overrides)))


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
    assert found.overrides({"z": "2", "y": "4"}) == ["x=5", "z=2", "y=4"]


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
        ("x=tag(log,interval(0,1))", "a logarithmic interval must begin above 0"),
        ("x=interval(2,1)", "from a number to a larger one"),
        ("x=tag(log,choice(1,2))", "the tag log works only for an interval"),
        ("x=tag(fast,interval(1,2))", "knows only the tag log, but this has fast"),
        ("x=range(5,5)", "this range is empty"),
        ("x=3", "a search needs parameters to choose"),
        ("x=choice(1)", "a search needs parameters to choose"),
    ],
)
def test_faults(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        space(override)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        space("x=interval(2,1)", "y=tag(log,choice(1,2))")
    assert [each.path for each in caught.value.faults] == ["x", "y"]


OPTIMIZERS = {
    "optimizer": "choice(sgd,adam,ftrl)",
    "optimizer.momentum": {"when": {"optimizer": "sgd"}, "space": "interval(0,0.9)"},
    "optimizer.learning_rate": [
        {"when": {"optimizer": ["sgd", "ftrl"]}, "space": "tag(log,interval(0.01,1))"},
        {"when": {"optimizer": "adam"}, "space": "0.001,0.01"},
    ],
}


def conditional(params: Mapping[str, object], *overrides: str) -> spaces.Space:
    parse = OverridesParser.create().parse_override
    lines, entries = spaces.entries(params)
    chosen = [(entry, parse(entry.line)) for entry in entries]
    return spaces.space([parse(each) for each in overrides], [parse(line) for line in lines], chosen)


def test_a_trial_has_what_its_conditions_say() -> None:
    found = conditional(OPTIMIZERS, "x=1,2")
    assert found.is_conditional
    assert [each.key for each in found.active({"optimizer": "ftrl"})] == ["optimizer", "x", "optimizer.learning_rate"]
    sgd = {"optimizer": "sgd", "x": "1", "optimizer.momentum": "0.5", "optimizer.learning_rate": "0.1"}
    assert found.overrides(sgd) == ["optimizer=sgd", "x=1", "optimizer.momentum=0.5", "optimizer.learning_rate=0.1"]
    assert found.fitted({**sgd, "optimizer.learning_rate": "5"}, {}) is None
    assert found.fitted(sgd, {}) == sgd
    without = {key: text for key, text in sgd.items() if key != "x"}
    assert found.fitted(without, {"x": "2.0"}) == {**sgd, "x": "2"}


def test_the_tree_shows_what_hangs_on_what() -> None:
    deeper = OPTIMIZERS | {"z": {"when": {"optimizer.learning_rate": 0.01, "x": [1, 2]}, "space": "range(1,4)"}}
    assert conditional(deeper, "x=1,2,3").tree() == [
        "optimizer: sgd, adam, ftrl",
        "├─ optimizer=sgd",
        "│  └─ optimizer.momentum: 0 to 0.9",
        "├─ optimizer=sgd or ftrl",
        "│  └─ optimizer.learning_rate: 0.01 to 1, logarithmic",
        "└─ optimizer=adam",
        "   └─ optimizer.learning_rate: 0.001, 0.01",
        "      └─ optimizer.learning_rate=0.01, x=1 or 2",
        "         └─ z: whole numbers 1 to 3",
        "x: 1, 2, 3",
    ]


def test_probes_have_both_ends_in_every_branch_and_nothing_else() -> None:
    found = conditional(OPTIMIZERS)
    assert [each[1:] for each in found.probes() if each[0] == "optimizer=adam"] == [
        ["optimizer.learning_rate=0.001"],
        ["optimizer.learning_rate=0.01"],
    ]
    assert {each[0] for each in found.probes()} == {"optimizer=sgd", "optimizer=adam", "optimizer=ftrl"}
    assert ["optimizer=sgd", "optimizer.momentum=0.9", "optimizer.learning_rate=0.01"] in found.probes()


def test_combinations_are_counted_along_the_branches() -> None:
    found = conditional({"a": "1,2", "b": {"when": {"a": 1}, "space": "range(0,3)"}})
    assert list(found.combinations()) == [{"a": "1", "b": "0"}, {"a": "1", "b": "1"}, {"a": "1", "b": "2"}, {"a": "2"}]
    assert (found.count(10), found.count(3)) == (4, math.inf)
    assert conditional(OPTIMIZERS).count(10**6) == math.inf


def test_overrides_decide_conditions() -> None:
    found = conditional(OPTIMIZERS, "optimizer=sgd")
    assert [(each.key, each.when) for each in found.parameters] == [
        ("optimizer.momentum", ()),
        ("optimizer.learning_rate", ()),
    ]
    assert found.notes == ("not searched: optimizer.learning_rate, which applies only to optimizer=adam",)
    narrowed = conditional(OPTIMIZERS, "optimizer=adam,ftrl", "optimizer.learning_rate=0.1,0.2")
    assert [each.described for each in narrowed.parameters] == [
        "optimizer: adam, ftrl",
        "optimizer.learning_rate: 0.1, 0.2",
    ]


def test_nested_mappings_are_dotted_keys() -> None:
    nested = {"optimizer": {"momentum": OPTIMIZERS["optimizer.momentum"]}}
    assert conditional(nested, "optimizer=sgd,adam").tree()[-1] == "   └─ optimizer.momentum: 0 to 0.9"


@pytest.mark.parametrize(
    ("params", "path", "words"),
    [
        (
            {"b": {"when": {"c": 1}, "space": "1,2"}},
            "b.when.c",
            "must name another key of the search, which this is not",
        ),
        ({"b": {"when": {"a": 3}, "space": "1,2"}}, "b.when.a", "a has the values 1, 2"),
        ({"b": {"when": {"a": 1}}}, "b.space", "a text in Hydra's grammar"),
        ({"b": {"when": 1, "space": "1,2"}}, "b.when", "a mapping of keys to values"),
        ({"b": {"when": {"a": {"x": 1}}, "space": "1,2"}}, "b.when.a", "a condition must be a value, or a list"),
        ({"b": {"when": {"a": 1}, "space": "1,2", "if": 3}}, "b.if", "it must have the keys when and space"),
        ({"b": {"when": {"a": 1}, "space": "interval(2,1)"}}, "b.space", "from a number to a larger one"),
        ({"b": {"when": {"i": 1}, "space": "1,2"}, "i": "interval(0,2)"}, "b.when.i", "i is an interval"),
        ({"b": {"when": {"b": 1}, "space": "1,2"}}, "b.when", "its conditions depend on the parameter itself"),
        (
            {"b": {"when": {"c": 1}, "space": "1,2"}, "c": {"when": {"b": 1}, "space": "1,2"}},
            "b.when",
            "its conditions depend on the parameter itself",
        ),
        (
            {"b": {"when": {"a": 1}, "space": "1,2"}, "c": {"when": {"a": 2, "b": 1}, "space": "1,2"}},
            "c.when",
            "no trial can have it because its conditions exclude each other",
        ),
        (
            {"b": [{"when": {"a": [1, 2]}, "space": "1,2"}, {"when": {"a": 2}, "space": "3,4"}]},
            "b",
            "two of its spaces apply to the same trial, as with a=2",
        ),
        ({"b": {"when": {"a": 1}, "space": "1,2"}, "+b": "1,2"}, "b", "it is given twice"),
    ],
)
def test_faults_of_conditions(params: Mapping[str, object], path: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        conditional({"a": "1,2", **params})
    assert [(each.path, words in each.rule) for each in caught.value.faults] == [(f"hydra.sweeper.params.{path}", True)]


def test_all_faults_of_conditions_are_told_at_once() -> None:
    wrong = {"b": {"when": {"a": 3, "c": 1}, "space": "1,2"}, "d": {"when": {"a": 4}, "space": "interval(2,1)"}}
    with pytest.raises(ConfigError) as caught:
        conditional({"a": "1,2", **wrong})
    assert len(caught.value.faults) == 3


@pytest.mark.parametrize(
    ("wide", "narrow", "is_so"),
    [
        ("x=1,2,3", "x=3,1", True),
        ("x=1,2", "x=1,3", False),
        ("x=interval(0,2)", "x=interval(0,1)", True),
        ("x=interval(0,1)", "x=0.1,0.5", True),
        ("x=0.1,0.5", "x=interval(0,1)", False),
        ("x=range(0,10)", "x=range(2,5)", True),
        ("x=range(0,10,2)", "x=range(0,10)", False),
        ("x=range(0,10)", "x=range(0,10,3)", True),
        ("x=range(1,5)", "x=1,2,4", True),
    ],
)
def test_which_space_has_all_of_another(wide: str, narrow: str, is_so: bool) -> None:
    [one], [other] = space(wide).parameters, space(narrow).parameters
    assert spaces.contains(one, other) is is_so


def test_weaker_conditions_have_all_of_stronger_ones() -> None:
    weak, strong = (
        conditional({"a": "1,2", "b": {"when": {"a": values}, "space": "1,2"}}).parameters[1] for values in ([1, 2], 1)
    )
    assert spaces.contains(weak, strong)
    assert not spaces.contains(strong, replace(weak, when=()))
