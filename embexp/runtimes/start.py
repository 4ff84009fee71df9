"""The factory of runtimes."""

from __future__ import annotations

from typing import assert_never

from embexp.runtimes import estimator, function, session
from embexp.runtimes.execution import Blueprint, Execution
from embexp.specs.running import RuntimeKind


def start(kind: RuntimeKind, blueprint: Blueprint) -> Execution:
    """Makes and fills all variables of an experiment, and its step, in a runtime.

    Raises:
        ValueError: the kind is `auto`; see `RunSpec.executing_runtime`.
    """
    match kind:
        case RuntimeKind.FUNCTION:
            return function.start(blueprint)
        case RuntimeKind.SESSION:
            return session.start(blueprint)
        case RuntimeKind.ESTIMATOR:
            return estimator.start(blueprint)
        case RuntimeKind.AUTO:
            raise ValueError("runtime=auto is not resolved")
        case _:
            assert_never(kind)
