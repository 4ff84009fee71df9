"""What an init method is: how initial values get into the parts of a table, eagerly and in sessions of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from embexp.system.rows import Rows
from embexp.tables.variables import TableVariable

CHUNK_BYTES = 64 * 1024 * 1024
"""Largest piece of initial values that is in flight at once where nothing else is asked for."""

Fill = Callable[[Any], None]
"""Gives variables their values in the session that it is called with."""
Pairs = list[tuple[Any, Rows]]
"""Variables of a graph, and for each where its values come from."""


@dataclass(frozen=True)
class SessionFills:
    """What gives tables their values in sessions of a graph.

    Attributes:
        once: to be called with the first session.
        always: to be called with every session that is made.
        scaffold: variables that a Scaffold is to fill, and from where.
        whole: variables that need no other initial value, as they are filled by one.
    """

    once: list[Fill] = field(default_factory=list)
    always: list[Fill] = field(default_factory=list)
    scaffold: Pairs = field(default_factory=list)
    whole: list[Any] = field(default_factory=list)

    def add(self, fill: Fill, *, always: bool) -> None:
        """Has a function called with every session that is made, or with the first only."""
        (self.always if always else self.once).append(fill)


@dataclass(frozen=True)
class InitMethod:
    """One way in which initial values get into tables. Each module of a method makes its own.

    Attributes:
        eagerly: fills one part of a table; None: the method does not work eagerly.
        in_session: sees to it that variables of the current graph are filled, in every session that is made or in the
            first only (`always`); None: the method does not work in sessions.
        initial_value: gives, from all rows of a table, what its variable is made with: a function as `tf.Variable`
            takes it; None: memory that nothing has touched.
        check: raises RunError if tables of these rows and dims, by name, can't all be filled.
        chunk_bytes: largest piece that is read at once by those who read the rows for the method.
    """

    eagerly: Callable[[TableVariable, Rows], None] | None = None
    in_session: Callable[[Pairs, SessionFills, bool], None] | None = None
    initial_value: Callable[[Rows], Callable[..., Any]] | None = None
    check: Callable[[Mapping[str, tuple[int, int]]], None] = lambda sizes: None
    chunk_bytes: int = CHUNK_BYTES
