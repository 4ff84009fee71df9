"""Tables made from their plans, and filled by their init methods: eagerly, or in the sessions of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

import numpy as np

from embexp.initialization import assign, constant, placeholder_feed, scaffolding, variable_load
from embexp.initialization.method import Fill, InitMethod, SessionFills
from embexp.initialization.plan import TablePlan
from embexp.specs import inits
from embexp.tables.row_engine import AnyTable
from embexp.tables.tpu_tables import TPUTable

Plans = Mapping[str, TablePlan]
"""By the name of the table."""


def build(init: inits.Init) -> InitMethod:
    """The init method of a setting."""
    match init:
        case inits.ConstantInGraph():
            return constant.method()
        case inits.PlaceholderFeed():
            return placeholder_feed.method()
        case inits.Scaffold():
            return scaffolding.method()
        case inits.VariableLoad():
            return variable_load.method()
        case inits.Assign():
            return assign.method(init.chunk_bytes)
        case inits.MemoryMap():
            # The table's storage says which rows stay in their file. The others, of some tables all, are assigned.
            return assign.method()
        case _:
            assert_never(init)


def make(plans: Plans) -> dict[str, AnyTable]:
    """Makes the variables of every table in the current graph; only `memory_map` and `constant` fill them.

    Raises:
        RunError: constants would be more than a graph can hold.
    """
    methods = {name: build(plan.init) for name, plan in plans.items()}
    for check in {method.check for method in methods.values()}:
        sources = {name: plans[name].source for name, method in methods.items() if method.check is check}
        check({name: (source.rows, source.dim) for name, source in sources.items()})
    return {
        name: plan.variables(None if (value := methods[name].initial_value) is None else value(plan.source))
        for name, plan in plans.items()
    }


def make_on_tpu(plans: Plans, *, hosts: int) -> dict[str, TPUTable]:
    """The tables of a TPU with `hosts` hosts; its backend makes and fills them."""
    return {name: plan.on_tpu(hosts, build(plan.init).chunk_bytes) for name, plan in plans.items()}


def fill(tables: Mapping[str, AnyTable | TPUTable], plans: Plans) -> bool:
    """Fills tables that were made eagerly, and slots that come from an earlier checkpoint.

    Returns:
        Whether there was anything to fill.
    """
    filled = False
    for name, table in tables.items():
        for slot, values in table.slot_fills(plans[name].slots):
            assign.assign_rows(slot, values)
            filled = True
    for name, table in tables.items():
        for part, rows in table.fills(plans[name].source):
            if (eagerly := build(plans[name].init).eagerly) is None:
                raise ValueError(f"init={plans[name].init.kind} does not work in the function runtime")
            eagerly(part, rows)
            filled = True
    return filled


def in_sessions(tables: Mapping[str, AnyTable], plans: Plans) -> SessionFills:
    """What fills tables that were made in the current graph, and their slots; adds operations to the graph."""
    fills = SessionFills()
    slots = [each for name, table in tables.items() for each in table.slot_fills(plans[name].slots)]
    if slots:
        fills.add(assign.AssignInSession([(slot.variable, values) for slot, values in slots]).fill, always=False)
    for name, table in tables.items():
        if feeds := table.feeds():
            fills.add(_feeding(feeds), always=True)
            fills.whole.extend(variable for variable, _ in feeds)
        pairs = [(part.variable, rows) for part, rows in table.fills(plans[name].source)]
        if pairs:
            if (in_session := build(plans[name].init).in_session) is None:
                raise ValueError(f"init={plans[name].init.kind} does not work in sessions")
            in_session(pairs, fills, table.by_reference)
    return fills


def _feeding(feeds: list[tuple[Any, np.ndarray]]) -> Fill:
    def feed(session: Any) -> None:
        for variable, values in feeds:
            session.run(variable.initializer, {variable.initial_value: values})

    return feed
