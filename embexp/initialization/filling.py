"""Tables made from their plans, and filled: eagerly, or in the sessions of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from embexp.initialization import assign
from embexp.initialization.build import build
from embexp.initialization.method import Fill, SessionFills
from embexp.initialization.plan import TablePlan
from embexp.tables.row_engine import AnyTable
from embexp.tables.tpu_tables import TPUTable

Plans = Mapping[str, TablePlan]
"""By the name of the table."""


def make(plans: Plans) -> dict[str, AnyTable]:
    """Makes the variables of every table in the graph that is current; only `memory_map` and `constant` fill them.

    Raises:
        RunError: constants would be more than a graph can hold.
    """
    methods = {name: build(plan.init) for name, plan in plans.items()}
    for check in {method.check for method in methods.values()}:
        of_method = {name: plans[name].source for name, method in methods.items() if method.check is check}
        check({name: (source.rows, source.dim) for name, source in of_method.items()})
    return {
        name: plan.variables(None if (value := methods[name].initial_value) is None else value(plan.source))
        for name, plan in plans.items()
    }


def make_on_tpu(plans: Plans, *, hosts: int) -> dict[str, TPUTable]:
    """Says what a TPU is to hold; its backend makes and fills it.

    Args:
        plans: of the tables.
        hosts: machines over which the TPU spreads its tables.
    """
    return {name: plan.on_tpu(hosts, build(plan.init).chunk_bytes) for name, plan in plans.items()}


def fill(tables: Mapping[str, AnyTable | TPUTable], plans: Plans) -> bool:
    """Fills tables that were made eagerly, and those of their slots that come from an earlier checkpoint.

    Args:
        tables: some of those that were made from the plans.
        plans: of the tables, and maybe of others.

    Returns:
        Whether anything was to be filled.
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
    """What fills tables that were made in a graph, and their slots; adds to that graph what it needs."""
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
