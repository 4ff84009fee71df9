"""Rules between parts of a config hold, and are told, also where other parts are wrong."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from embexp.config import composition, validate
from embexp.config.composition import Composition, compose_config
from embexp.errors import CombinationFault, ConfigError, Fault
from embexp.specs.base import UnknownPartError, is_complete
from tests.thoroughness import examples

LOADER = composition.loader()
COMBINATIONS: dict[str, tuple[list[str], list[str]]] = {
    "an init method and a runtime": (["init=placeholder_feed", "runtime=function"], ["init", "runtime", "tables"]),
    "a table's init method and a runtime": (
        ["init@tables.item.init=variable_load", "runtime=estimator"],
        ["init", "runtime", "tables.item.init"],
    ),
    "a table's init method": (
        ["init@tables.item.init=memory_map"],
        ["freeze", "pretrained", *(f"tables.item.{key}" for key in ("init", "freeze", "pretrained"))],
    ),
    "nothing to map": (["init=memory_map"], ["init", "freeze", "pretrained", "tables"]),
    "rows of no file": (["freeze=pretrained_rows"], ["freeze", "pretrained", "tables"]),
    "a table's rows of no file": (
        ["freeze@tables.item.freeze=pretrained_rows"],
        ["pretrained", "tables.item.freeze", "tables.item.pretrained"],
    ),
    "rows of no checkpoint": (
        ["freeze@tables.item.freeze=old_rows"],
        ["pretrained", "tables.item.freeze", "tables.item.pretrained"],
    ),
    "random values that are to stay": (
        ["freeze@tables.item.freeze=pretrained_table"],
        ["pretrained", "tables.item.freeze", "tables.item.pretrained"],
    ),
    "storage": (
        ["tables.item.storage=memory_map"],
        ["init", "freeze", "pretrained", "tables.item.storage", "tables.item.init"],
    ),
    "nothing to split": (
        ["tables.user.storage=split"],
        ["init", "freeze", "tables.user.storage", "tables.user.init", "tables.user.freeze"],
    ),
    "more replicas than examples": (["strategy=mirrored", "train.batch_size=1"], ["strategy", "train.batch_size"]),
    "cores that do not divide": (
        ["strategy=tpu_simulator", "train.batch_size=7"],
        ["strategy", "train.batch_size"],
    ),
    "a session on two devices": (
        ["strategy=mirrored", "runtime=session"],
        ["strategy", "runtime", "init", "tables"],
    ),
    "a schedule on a TPU": (
        ["strategy=tpu_simulator", "freeze@tables.user.freeze=schedule"],
        ["strategy", "tables.user.freeze"],
    ),
    "a study of other data": (["study=new_entities"], ["study", "data"]),
    "a fold without folds": (["data.fold=1"], ["data"]),
    "a table that is not there": (["features.item.table=itm"], ["features", "tables"]),
    "a sequence of single ids": (["features.user.max_sequence_length=4"], ["features", "tables", "data", "model"]),
    "early stopping that sees nothing": (
        ["train.early_stopping.patience=1", "data.split.validation=0"],
        ["train", "data"],
    ),
}
"""Faults between right parts: words that make one, and the places on which it depends."""


def leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


@functools.cache
def composed(*words: str) -> Composition:
    return compose_config(LOADER, words)


PLACES = sorted(leaves(composed().container))


def spoilt(composition: Composition, place: str, how: str) -> Composition:
    """A composition in which one place is wrong."""
    container = copy.deepcopy(composition.container)
    *parents, last = place.split(".")
    node = functools.reduce(lambda node, key: node[key], parents, container)
    faults = composition.faults
    match how:
        case "another type":
            # Any mapping sets `reset`, and then its rules hold.
            node[last] = 1 if last == "reset" else {"wrong": [1]}
        case "a stray key":
            node[f"{last}x"] = 1
        case "missing":
            del node[last]
            faults = (Fault(place, "nothing", "it must be given"),)
    return replace(composition, container=container, faults=faults)


def told(composed: Composition) -> frozenset[str]:
    """The faults, as the user sees them."""
    return frozenset(map(str, composition.check(composed, look_at_data=False)[1]))


@functools.cache
def told_of(case: str) -> frozenset[str]:
    return told(composed(*COMBINATIONS[case][0]))


@pytest.mark.parametrize("case", COMBINATIONS)
def test_each_is_a_fault(case: str) -> None:
    assert told_of(case)


@examples(60)
@example("a schedule on a TPU", "tables.item.reset", "another type")
@given(
    case=st.sampled_from(sorted(COMBINATIONS)),
    place=st.sampled_from(PLACES),
    how=st.sampled_from(["another type", "a stray key", "missing"]),
)
def test_a_wrong_part_hides_no_fault_between_others(case: str, place: str, how: str) -> None:
    words, depends = COMBINATIONS[case]
    assume(not any(f"{place}.".startswith(f"{each}.") for each in depends))
    wrong = told(spoilt(composed(), place, how))
    assert wrong
    # A node that lacks a key was last set by the command line, if an override of the case is in it.
    both = told(spoilt(composed(*words), place, how))
    assert without_sources(both) == without_sources(told_of(case) | wrong)


def without_sources(faults: Iterable[str]) -> set[str]:
    return {each.partition("\n    set in")[0] for each in faults}


@pytest.mark.parametrize("key", ["init", "freeze", "pretrained", "storage", "optimizer", "dim"])
@pytest.mark.parametrize("case", [case for case in COMBINATIONS if "a table's" in case or case.startswith("r")])
def test_a_table_with_faults_hides_nothing_of_another(case: str, key: str) -> None:
    words, depends = COMBINATIONS[case]
    place = f"tables.user.{key}"
    if "tables" not in depends:
        wrong = told(spoilt(composed(), place, "another type"))
        assert told(spoilt(composed(*words), place, "another type")) == told_of(case) | wrong


def test_an_example_for_people() -> None:
    with pytest.raises(ConfigError) as caught:
        composition.candidate(
            LOADER,
            [
                "tables.user.dim=-3",
                "init@tables.item.init=memory_map",
                "train.epochs=null",
                "optimizer.learning_rate=fast",
                "strategy=tpu_simulator",
                "train.batch_size=7",
                "runtime=estimator",
            ],
            look_at_data=False,
        )
    found = {fault.path: fault.rule for fault in caught.value.faults}
    assert set(found) == {
        "tables.user.dim",
        "train",
        "optimizer.learning_rate",
        "tables.item.init",
        "train.batch_size",
        "runtime",
    }


CONSEQUENCES = {
    "what stays is misspelt": (["init=memory_map", "pretrained=sample", "freez=table"], {"freez"}),
    "what stays is no choice": (["init=memory_map", "pretrained=sample", "freeze=tabel"], {"freeze"}),
    "where it runs is wrong": (["init=placeholder_feed", "runtime.kind=functoin"], {"runtime.kind"}),
    "a feature's table is no name": (["features.user.table=[user]"], {"features.user.table"}),
    "tables are none": (["tables=1"], {"tables"}),
}


@pytest.mark.parametrize("case", CONSEQUENCES)
def test_nothing_is_told_that_may_only_follow_from_a_fault(case: str) -> None:
    words, paths = CONSEQUENCES[case]
    with pytest.raises(ConfigError) as caught:
        composition.candidate(LOADER, words, look_at_data=False)
    assert {fault.path for fault in caught.value.faults} == paths


BASES = {
    "clicks": ["pretrained=sample", "freeze=schedule", "init@tables.item.init=assign", "strategy=tpu_simulator"],
    "mapped": [
        "pretrained=sample",
        "freeze=table",
        "init=memory_map",
        "strategy=mirrored",
        "tables.item.storage=split",
    ],
    "study": ["experiment=new_entities", "data.path=graph", "runtime=session", "freeze=old_rows"],
    "texts": ["experiment=text_classification", "vectors=static", "pretrained=file", "pretrained.path=words.npy"],
    "grown": ["experiment=ratings", "data.path=f", "data.label=y", "pretrained=checkpoint", "pretrained.path=run"],
}


def inner(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in node.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from inner(value, f"{prefix}{key}.")


@pytest.mark.parametrize("base", BASES)
def test_no_rule_asks_for_what_is_not_known(base: str) -> None:
    """Each part in turn counts as wrong; what is told of the rest is no more than with all parts."""
    right = composed(*BASES[base])
    assert not right.faults
    whole = told(right)
    for path in inner(right.container):
        wrong = Fault(path, "nothing", "it is wrong")
        _, found = composition.check(replace(right, faults=(wrong,)), look_at_data=False)
        assert found[0] == wrong
        assert {str(fault) for fault in found[1:]} <= whole, path


def test_what_is_known_of_a_part() -> None:
    container = copy.deepcopy(composed("freeze@tables.item.freeze=rows", "optimizer=adam").container)
    container["tables"]["item"]["dim"] = -1
    container["optimizer"]["beta_1"] = 2
    container["train"]["epochs"] = None
    spec = validate.partial_spec(container)
    assert spec.freeze_of("item").kind == "rows"
    assert spec.optimizer.kind == "adam"
    assert spec.train.batch_size == 1024
    assert (is_complete(spec.tables["user"]), is_complete(spec.tables["item"]), is_complete(spec.train)) == (
        True,
        False,
        False,
    )
    for part, name in (
        (spec.tables["item"], "dim"),
        (spec.tables["item"].freeze, "rows"),
        (spec.optimizer, "beta_1"),
        (spec.train, "epochs"),
    ):
        with pytest.raises(UnknownPartError):
            getattr(part, name)
    with pytest.raises(AttributeError):
        getattr(spec, "no_field")  # noqa: B009 — mypy would object to the plain way


def test_all_that_is_right_is_known_as_it_is() -> None:
    container = composed("strategy=mirrored").container
    spec, _ = composition.check(composed("strategy=mirrored"), look_at_data=False)
    assert validate.partial_spec(container) == spec
    known = validate.partial_spec(container, {"seed"})
    assert spec is not None
    assert known.model_dump(exclude={"seed"}, warnings=False) == spec.model_dump(exclude={"seed"})


def test_a_combination_beside_a_wrong_part_keeps_its_kind() -> None:
    with pytest.raises(ConfigError) as caught:
        composition.candidate(LOADER, ["seed=-1", "init=memory_map"], look_at_data=False)
    assert [isinstance(fault, CombinationFault) for fault in caught.value.faults] == [False, True]
