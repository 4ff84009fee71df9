"""How long making and filling the tables takes, also where a scaffold does it later."""

from __future__ import annotations

import time
from typing import Any

from embexp.initialization import scaffolding
from embexp.initialization.method import SessionFills


class Stopwatch:
    """Counts the time inside its blocks.

    Attributes:
        seconds: of all blocks so far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began


def timed_scaffold(fills: SessionFills, saver: Any, watch: Stopwatch) -> Any:
    """The `tf.compat.v1.train.Scaffold` of a run: what fills tables once, what it fills itself, and the saver."""

    def fill_once(_: Any, session: Any) -> None:
        for fill in fills.once:
            fill(session)

    made = scaffolding.scaffold(fills.scaffold, init_fn=fill_once, saver=saver)
    untimed = made.init_fn

    def timed(session: Any) -> None:
        with watch:
            untimed(session)

    made._init_fn = timed  # a copy of the scaffold would not be of its class
    return made
