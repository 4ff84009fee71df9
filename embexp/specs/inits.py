"""Init methods: how initial values get into tables, and in which runtimes each works."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from embexp.specs.base import Count, Spec
from embexp.specs.running import RuntimeKind

FUNCTION, SESSION, ESTIMATOR = RuntimeKind.FUNCTION, RuntimeKind.SESSION, RuntimeKind.ESTIMATOR


class _InitMethod(Spec):
    runtimes: ClassVar[tuple[RuntimeKind, ...]]
    """In which it works, in the order in which `runtime=auto` prefers them."""
    fills_parts: ClassVar[bool] = False
    """Whether it fills tables that are kept in parts."""


class ConstantInGraph(_InitMethod):
    """The matrix is a constant of the graph, which grows by all its bytes: for comparison, and below 2 GiB only."""

    runtimes: ClassVar = (SESSION,)
    kind: Literal["constant"] = "constant"


class PlaceholderFeed(_InitMethod):
    """Each table's initializer is run once with the matrix fed in place of its initial value."""

    runtimes: ClassVar = (SESSION,)
    kind: Literal["placeholder_feed"] = "placeholder_feed"


class Scaffold(_InitMethod):
    """`tf.compat.v1.train.Scaffold` fills tables when a monitored session is made, not when it is restored."""

    runtimes: ClassVar = (SESSION, ESTIMATOR)
    kind: Literal["scaffold"] = "scaffold"


class VariableLoad(_InitMethod):
    """`Variable.load` after the global initializer; in the function runtime, assigning the whole matrix at once."""

    runtimes: ClassVar = (FUNCTION, SESSION)
    kind: Literal["variable_load"] = "variable_load"


class Assign(_InitMethod):
    """Rows are assigned in chunks: one copy, any runtime."""

    runtimes: ClassVar = (FUNCTION, SESSION, ESTIMATOR)
    fills_parts: ClassVar = True
    kind: Literal["assign"] = "assign"
    chunk_bytes: Count = 64 * 1024 * 1024
    """Largest piece that is in flight at once, in bytes."""


class MemoryMap(_InitMethod):
    """Frozen rows stay in the mapped file, which all processes share: no copy at all."""

    runtimes: ClassVar = (FUNCTION, SESSION)
    fills_parts: ClassVar = True
    kind: Literal["memory_map"] = "memory_map"


Init = Annotated[
    ConstantInGraph | PlaceholderFeed | Scaffold | VariableLoad | Assign | MemoryMap, Field(discriminator="kind")
]

RUNTIMES: dict[str, tuple[RuntimeKind, ...]] = {
    method.model_fields["kind"].default: method.runtimes for method in get_args(get_args(Init)[0])
}
"""By kind, the runtimes in which an init method works, in the order in which `runtime=auto` prefers them."""
