"""Init methods: how initial values get into the parts of a table, eagerly and in sessions of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from embexp.specs.inits import CHUNK_BYTES, CustomInit
from embexp.system.arrays import Rows
from embexp.system.user_code import NamedFunction, kind_of
from embexp.tables.variables import TableVariable

Fill = Callable[[Any], None]
"""Fills variables in the session that it is called with."""
Pairs = list[tuple[Any, Rows]]
"""Variables of a graph, each with its initial values."""


@dataclass(frozen=True)
class SessionFills:
    """What fills tables in sessions of a graph.

    Attributes:
        once: called with the first session.
        always: called with every new session.
        scaffold: variables that a Scaffold fills, each with its initial values.
        whole: variables that the others fill whole, so that nothing else needs to initialize them.
    """

    once: list[Fill] = field(default_factory=list)
    always: list[Fill] = field(default_factory=list)
    scaffold: Pairs = field(default_factory=list)
    whole: list[Any] = field(default_factory=list)

    def add(self, fill: Fill, *, always: bool) -> None:
        """Adds a function that is called with every new session, or with the first only."""
        (self.always if always else self.once).append(fill)


@dataclass(frozen=True)
class InitMethod:
    """An init method. Each module of a method makes its own.

    Attributes:
        eagerly: fills one part of a table; None: the method does not work eagerly.
        in_session: adds what fills variables of the current graph, in every new session or in the first only
            (`always`); None: the method does not work in sessions.
        initial_value: from all rows of a table, the initial value of its variable, a function as `tf.Variable` takes
            it; None: the variable is made with untouched memory.
        check: raises RunError if tables of these rows and dims, by name, can't all be filled.
        chunk_bytes: largest chunk of rows that is read at once.
    """

    eagerly: Callable[[TableVariable, Rows], None] | None = None
    in_session: Callable[[Pairs, SessionFills, bool], None] | None = None
    initial_value: Callable[[Rows], Callable[..., Any]] | None = None
    check: Callable[[Mapping[str, tuple[int, int]]], None] = lambda sizes: None
    chunk_bytes: int = CHUNK_BYTES


def custom(init: CustomInit, path: str) -> InitMethod:
    """`init=custom`: what the user's own function returns.

    Raises:
        ConfigError: it can't be imported or called, or returns something else.
    """
    function = NamedFunction(path, init.function, init.args, "")
    method = function()
    if not isinstance(method, InitMethod):
        raise function.fault(f"it must return an embexp.initialization.InitMethod, but returned {kind_of(method)}")
    return method
