"""A choice brings its own rules, and they hold wherever it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from pydantic import TypeAdapter

import embexp
from embexp.errors import CombinationFault, Fault
from embexp.specs import run
from embexp.specs.base import Scope, Spec, UnknownPartError, union
from embexp.specs.data import SOURCES
from embexp.specs.freezing import Freeze
from embexp.specs.inits import FUNCTION, METHODS, Init, InitMethod
from embexp.specs.pretrained import NoPretrained, Sample
from embexp.specs.run import INHERITED, RunSpec
from embexp.specs.strategies import Strategy


@pytest.fixture(scope="module")
def spec() -> RunSpec:
    return embexp.compose(["pretrained@tables.item.pretrained=sample", "tables.item.dim=1000", "model=mlp"])


class Toy(Spec):
    """A choice of a kind that nothing else knows."""

    kind: Literal["toy"] = "toy"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        for table in scope.tables or ("",):
            yield CombinationFault(scope.path, "toy", f"no good for {table}")


class ToyMethod(InitMethod):
    """An init method that nothing else knows."""

    kind: Literal["toy_method"] = "toy_method"
    runtimes = (FUNCTION,)


@pytest.mark.parametrize("part", ["freeze", "pretrained", "init", "strategy", "data", "model", "study", "train"])
def test_a_new_choice_brings_its_rules(part: str) -> None:
    """On a spec of which nothing else is known, so that no other rule has to know the choice."""
    known = RunSpec.model_construct(**{part: Toy()}, tables={})
    for name in set(RunSpec.model_fields) - {part, "tables"}:
        known.__dict__.pop(name, None)
    assert [(fault.path, fault.rule) for fault in run.rule_faults(known)] == [(part, "no good for ")]


class Hasty(Spec):
    """A choice whose rule reads what is not known at once, not as a generator would."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        return iter([Fault(scope.path, spec.model.kind, "never told")])


def test_a_rule_may_be_no_generator() -> None:
    known = RunSpec.model_construct(init=Hasty(), freeze=Toy(), tables={})
    del known.__dict__["strategy"], known.__dict__["runtime"]
    assert [fault.path for fault in run.rule_faults(known)] == ["freeze"]


def test_an_inherited_choice_is_told_of_the_tables_that_take_it(spec: RunSpec) -> None:
    faulty = spec.model_copy(update={"freeze": Toy()})
    assert [fault.rule for fault in run.rule_faults(faulty)] == ["no good for user", "no good for item"]
    own = spec.tables["item"].model_copy(update={"freeze": Toy()})
    faulty = spec.model_copy(update={"tables": {**spec.tables, "item": own}})
    found = run.combination_faults(faulty)
    assert [(fault.path, fault.rule) for fault in found] == [("tables.item.freeze", "no good for item")]


def test_a_new_init_method_needs_no_more_than_its_runtimes(spec: RunSpec) -> None:
    new: dict[str, Any] = {"init": ToyMethod()}
    assert run.rule_faults(spec.model_copy(update=new)) == []
    assert spec.model_copy(update=new).executing_runtime is FUNCTION
    [fault] = run.rule_faults(embexp.compose(["runtime=session"]).model_copy(update=new))
    assert (fault.path, fault.value) == ("init", "toy_method")
    assert fault.rule == "it works only in runtime function, but the runtime is session"


def test_every_part_is_reached(spec: RunSpec) -> None:
    found = {scope.path: part for scope, part in run.parts(spec)}
    assert found[""] is spec
    assert found["train.early_stopping"] is spec.train.early_stopping
    assert found["tables.item.pretrained"] is spec.tables["item"].pretrained
    assert found["data.split"] is getattr(spec.data, "split", None)
    assert set(found) >= {"strategy", "runtime", "optimizer.schedule", "features.user", "tables.user.initializer"}


def test_where_a_choice_stands(spec: RunSpec) -> None:
    assert spec.scope_of("pretrained") == Scope("pretrained", ("user",))
    assert spec.scope_of("tables.item.pretrained") == Scope("tables.item.pretrained", ("item",))
    assert spec.scope_of("train") == Scope("train")
    scope = spec.scope_of("tables.item.pretrained")
    assert (scope.own, scope.sibling("freeze")) == (True, "tables.item.freeze")
    assert scope.choosing("init", "assign") == "init@tables.item.init=assign"
    assert spec.scope_of("freeze").choosing("init", "assign") == "init=assign"


def test_settings_at_the_top_and_of_tables(spec: RunSpec) -> None:
    found = {scope.path: type(setting) for scope, setting in spec.settings_of("pretrained")}
    assert found == {"pretrained": NoPretrained, "tables.item.pretrained": Sample}
    assert all(list(spec.settings_of(name)) for name in INHERITED)


def test_tables_whose_own_choice_is_not_known(spec: RunSpec) -> None:
    """A rule about any of them goes by those that are known; one about all of them lets it pass."""
    partial = spec.tables["user"].model_copy()
    del partial.__dict__["freeze"]
    known = spec.model_copy(update={"tables": {**spec.tables, "user": partial}})
    assert known.scope_of("freeze").tables == ("item",)
    with pytest.raises(UnknownPartError):
        known.scope_of("freeze").all_tables()
    assert known.scope_of("init").all_tables() == ("user", "item")


@pytest.mark.parametrize(
    "choice", [Init, Freeze, Strategy, union("data", *SOURCES)], ids=["init", "freeze", "strategy", "data"]
)
def test_kinds_are_their_classes(choice: Any) -> None:
    """No other place lists them."""
    kinds = TypeAdapter(choice).json_schema()["discriminator"]["mapping"]
    assert len(kinds) > 4
    assert (set(METHODS) == set(kinds) - {"custom"}) == (choice is Init)
