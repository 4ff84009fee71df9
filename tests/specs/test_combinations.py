"""Which runtime a run takes, and what can't work together."""

from __future__ import annotations

from typing import Any

import pytest

from embexp.config import composition
from embexp.errors import CombinationFault, ConfigError
from embexp.specs.inits import METHODS, Assign, Scaffold
from embexp.specs.run import RunSpec, combination_faults
from embexp.specs.running import RuntimeKind
from embexp.specs.strategies import Mirrored

FROZEN_ITEM = (
    "pretrained@tables.item.pretrained=sample",
    "freeze@tables.item.freeze=table",
)


def candidate(*overrides: str) -> composition.Job:
    return composition.candidate(composition.loader(), overrides, look_at_data=False)


def spec_of(*overrides: str) -> RunSpec:
    found = candidate(*overrides)
    assert found.impossible == ()
    return found.spec


RUNTIMES = {
    "nothing said": ([], "function"),
    "fed": (["init=placeholder_feed"], "session"),
    "a constant": (["init=constant"], "session"),
    "a scaffold": (["init=scaffold"], "session"),
    "loaded": (["init=variable_load"], "function"),
    "mapped": (["init=memory_map", *FROZEN_ITEM], "function"),
    "one table fed, the other loaded": (["init=variable_load", "init@tables.item.init=placeholder_feed"], "session"),
    "one table a scaffold": (["init@tables.item.init=scaffold"], "session"),
    "every table its own": (
        ["init=constant", "init@tables.item.init=assign", "init@tables.user.init=variable_load"],
        "function",
    ),
    "pinned": (["runtime=session"], "session"),
    "pinned to the last": (["runtime=estimator", "init=scaffold"], "estimator"),
}


@pytest.mark.parametrize(("overrides", "expected"), RUNTIMES.values(), ids=RUNTIMES)
def test_the_runtime(overrides: list[str], expected: str) -> None:
    assert spec_of(*overrides).executing_runtime is RuntimeKind(expected)


@pytest.mark.parametrize("runtime", ["function", "session", "estimator"])
@pytest.mark.parametrize("kind", METHODS)
def test_a_pair_is_possible_or_a_fault_that_names_the_possible_ones(kind: str, runtime: str) -> None:
    needs = FROZEN_ITEM if kind == "memory_map" else ()
    found = candidate(f"init={kind}", f"runtime={runtime}", *needs).impossible
    possible = [str(each) for each in METHODS[kind].runtimes]
    if runtime in possible:
        assert found == ()
        return
    [fault] = found
    assert (fault.path, fault.value) == ("init", kind)
    assert fault.rule == f"it works only in runtime {' or '.join(possible)}, but the runtime is {runtime}"
    others = [each for each, method in METHODS.items() if runtime in method.runtimes]
    if kind != "memory_map" and runtime != "estimator":
        others.remove("memory_map")  # nothing here is frozen
    listed = " or ".join(filter(None, (", ".join(others[:-1]), others[-1])))
    assert fault.remedy == f"set runtime={' or '.join(possible)}; or choose init={listed}"


FAULTS: dict[str, tuple[list[str], str]] = {
    "rows of a file that a table does not have": (
        ["freeze@tables.item.freeze=pretrained_rows", "pretrained@tables.user.pretrained=sample"],
        "tables.item.freeze = pretrained_rows: it freezes rows from a pretrained file, but the table has no "
        "pretrained file.\n    add pretrained@tables.item.pretrained=file tables.item.pretrained.path=…, or "
        "choose another",
    ),
    "rows of a file that no table has": (
        ["freeze=pretrained_rows", "freeze@tables.user.freeze=none", "pretrained@tables.user.pretrained=sample"],
        "freeze = pretrained_rows: it freezes rows from a pretrained file, but no table that inherits it has a",
    ),
    "random values that are not to stay": (
        ["freeze@tables.item.freeze=pretrained_table", "pretrained@tables.user.pretrained=sample"],
        "tables.item.freeze = table: tables.item.freeze.random is false, so only pretrained tables may be "
        "frozen, but the table is not pretrained.\n    add pretrained=file pretrained.path=…; if you want "
        "frozen random values, choose freeze@tables.item.freeze=random_table",
    ),
    "random values of any table that are not to stay": (
        ["freeze=pretrained_table", "pretrained@tables.user.pretrained=sample"],
        "freeze = table: freeze.random is false, so only pretrained tables may be frozen, but these tables are not"
        " pretrained: item.\n    add pretrained=file pretrained.path=…; if you want frozen random values, choose",
    ),
    "split, and nothing to keep apart": (
        ["tables.item.storage=split", "freeze=table"],
        "tables.item.storage = 'split': a split table needs both frozen and trainable rows, but its freeze is table.\n"
        "    leave it auto, or choose freeze@tables.item.freeze=rows",
    ),
    "split, and not assigned": (
        ["tables.item.storage=split", "freeze=rows", "freeze.rows=[[0,5]]", "init=variable_load"],
        "tables.item.storage = 'split': a split table needs init method assign, but its init method is variable_load.",
    ),
    "split under an Estimator": (
        ["tables.item.storage=split", "freeze=rows", "freeze.rows=[[0,5]]", "runtime=estimator"],
        "tables.item.storage = 'split': runtime estimator does not support split tables.\n    leave it auto, or set",
    ),
    "a table's own init method": (
        ["runtime=estimator", "init@tables.item.init=variable_load"],
        "tables.item.init = variable_load: it works only in runtime function or session, but the runtime is "
        "estimator.\n"
        "    set runtime=function or session; or choose init@tables.item.init=scaffold or assign",
    ),
    "nothing to map": (
        ["init=memory_map"],
        "init = memory_map: only frozen rows of a pretrained file can be mapped, but no table is both frozen and"
        " pretrained.\n    add freeze=table and pretrained=file pretrained.path=…, or choose init=assign",
    ),
    "frozen and pretrained are two tables": (
        ["init=memory_map", "pretrained@tables.item.pretrained=sample", "freeze@tables.user.freeze=table"],
        "init = memory_map: only frozen rows",
    ),
    "its own, and neither": (
        ["init@tables.item.init=memory_map"],
        "tables.item.init = memory_map: only frozen rows of a pretrained file can be mapped, but no row of the "
        "table is frozen"
        " and the table has no pretrained file.\n    add freeze@tables.item.freeze=table"
        " pretrained@tables.item.pretrained=file tables.item.pretrained.path=…, or choose init@tables.item.init=assign",
    ),
    "its own, not frozen": (
        ["init@tables.item.init=memory_map", "pretrained=sample"],
        "no row of the table is frozen.\n    add freeze@tables.item.freeze=table, or choose init@tables.item",
    ),
    "its own, not pretrained": (
        ["init@tables.item.init=memory_map", "freeze=table"],
        "but the table has no pretrained file.\n    add pretrained@tables.item.pretrained=file",
    ),
    "storage against its own init method": (
        ["init@tables.item.init=memory_map", *FROZEN_ITEM, "tables.item.storage=variable"],
        "tables.item.storage = 'variable': the table's own init is memory_map, which keeps it in a mapped file.",
    ),
    "mapped storage of a table that is assigned": (
        ["tables.item.storage=memory_map"],
        "tables.item.storage = 'memory_map': only init method memory_map keeps a table in a mapped file, but "
        "its init method is assign.",
    ),
}


@pytest.mark.parametrize(("overrides", "words"), FAULTS.values(), ids=FAULTS)
def test_what_can_not_work(overrides: list[str], words: str) -> None:
    [fault] = candidate(*overrides).impossible
    assert words in str(fault)
    with pytest.raises(ConfigError, match="1 fault in the config"):
        composition.job(composition.loader(), overrides, look_at_data=False)


def test_all_faults_come_together() -> None:
    with pytest.raises(ConfigError) as caught:
        candidate("init=scaffold", "runtime=function", "tables.item.vocabulary_size=3")
    assert [fault.path for fault in caught.value.faults] == ["tables.item.vocabulary_size", "init"]


def test_a_top_level_map_does_not_reach_tables_that_it_does_not_fit() -> None:
    spec = spec_of("init=memory_map", *FROZEN_ITEM)
    assert (spec.init_of("item").kind, spec.init_of("user").kind) == ("memory_map", "assign")
    spec = spec_of(
        "init=memory_map", "freeze=table", "pretrained=sample", "tables.user.storage=variable",
    )  # fmt: skip
    assert (spec.init_of("item").kind, spec.init_of("user").kind) == ("memory_map", "assign")


def test_a_top_level_map_reaches_tables_that_are_frozen_in_part() -> None:
    words = ("init=memory_map", "pretrained=sample", "freeze@tables.item.freeze=pretrained_rows")
    spec = spec_of(*words)
    assert (spec.init_of("item").kind, spec.init_of("user").kind) == ("memory_map", "assign")
    assert not spec.kept_by_reference("item")
    assert spec_of(*words[1:], "init=assign", "tables.item.storage=split").tables["item"].storage == "split"


def test_init_methods_that_share_no_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that exist share the session."""
    spec = spec_of("init@tables.item.init=scaffold")
    monkeypatch.setattr(Scaffold, "runtimes", (RuntimeKind.ESTIMATOR,))
    monkeypatch.setattr(Assign, "runtimes", (RuntimeKind.FUNCTION,))
    [fault] = combination_faults(spec)
    assert fault.path == "runtime"
    assert (
        "the tables' init methods have no runtime in common: user assign: function; item scaffold: "
        "estimator" in fault.rule
    )
    assert spec.executing_runtime is RuntimeKind.AUTO


@pytest.mark.parametrize("overrides", [["runtime=session"], ["init=constant"], ["runtime=estimator"]])
def test_sessions_are_of_one_device(overrides: list[str]) -> None:
    elsewhere: dict[str, Any] = {"strategy": Mirrored()}
    [fault] = combination_faults(spec_of(*overrides).model_copy(update=elsewhere))
    assert isinstance(fault, CombinationFault)
    assert fault.rule == "it works only with strategy cpu or a single GPU, but the strategy is mirrored"
    assert combination_faults(spec_of().model_copy(update=elsewhere)) == []


def test_a_runtime_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match="it needs the package tensorflow-estimator, which is not installed"
    ) as caught:
        candidate("runtime=estimator")
    [fault] = caught.value.faults
    assert fault.remedy == "pip install 'embexp[estimator]', or set runtime=session"
    assert not isinstance(fault, CombinationFault)
    assert spec_of("runtime=session").runtime.kind == "session"
