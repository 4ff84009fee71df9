"""Whether rows that must not change did: looked at before the first step and at the end."""

from __future__ import annotations

from collections.abc import Mapping

from embexp.freezing.hashes import FrozenRows
from embexp.policies import TablePolicy
from embexp.runtimes.table_values import TableValues
from embexp.specs.tables import Storage


def remember(tables: Mapping[str, TableValues], policies: Mapping[str, TablePolicy]) -> dict[str, FrozenRows]:
    """Hashes of the frozen rows of each table that has any; a table that stays in its file whole needs none.

    Args:
        tables: filled, by name.
        policies: which of their rows never move.
    """
    return {
        name: FrozenRows(tables[name].blocks(), policy.frozen)
        for name, policy in policies.items()
        if policy.frozen_rows and not (policy.still and policy.storage is Storage.MEMORY_MAP)
    }


def changed(tables: Mapping[str, TableValues], remembered: Mapping[str, FrozenRows]) -> dict[str, int]:
    """Number of frozen rows of each table that are not what they were; forgets what they were."""
    found = {}
    for name, rows in remembered.items():
        with rows:
            found[name] = rows.changed(tables[name].blocks())
    return found
