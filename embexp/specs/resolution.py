"""Which runtime a run takes."""

from __future__ import annotations

from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind


def runtime_of(spec: RunSpec) -> RuntimeKind:
    """The runtime that executes a run: the one that it names, or else the first that all tables' init methods share.

    Raises:
        ValueError: they share none; `embexp.specs.rules` has words for that.
    """
    runtime = spec.executing_runtime
    if runtime is RuntimeKind.AUTO:
        raise ValueError("the tables' init methods share no runtime")
    return runtime
