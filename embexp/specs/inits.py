"""Ways in which first values get into tables, and in which runtimes each works."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from embexp.specs.base import Count, Spec
from embexp.specs.running import RuntimeKind

FUNCTION, SESSION, ESTIMATOR = RuntimeKind.FUNCTION, RuntimeKind.SESSION, RuntimeKind.ESTIMATOR


class ConstantInGraph(Spec):
    """The matrix is a constant of the graph, which grows by all its bytes: for comparison, and below 2 GiB only."""

    kind: Literal["constant"] = "constant"


class PlaceholderFeed(Spec):
    """Each table's initializer is run once with the matrix fed in place of its initial value."""

    kind: Literal["placeholder_feed"] = "placeholder_feed"


class Scaffold(Spec):
    """`tf.compat.v1.train.Scaffold` fills tables when a monitored session is made, not when it is restored."""

    kind: Literal["scaffold"] = "scaffold"


class VariableLoad(Spec):
    """`Variable.load` after the global initializer; in the function runtime, assigning the whole matrix at once."""

    kind: Literal["variable_load"] = "variable_load"


class Assign(Spec):
    """Rows are assigned in chunks: one copy, any runtime."""

    kind: Literal["assign"] = "assign"
    chunk_bytes: Count = 64 * 1024 * 1024
    """Largest piece that is in flight at once, in bytes."""


class MemoryMap(Spec):
    """Frozen rows stay in the mapped file, which all processes share: no copy at all."""

    kind: Literal["memory_map"] = "memory_map"


Init = Annotated[
    ConstantInGraph | PlaceholderFeed | Scaffold | VariableLoad | Assign | MemoryMap, Field(discriminator="kind")
]

RUNTIMES: dict[str, tuple[RuntimeKind, ...]] = {
    "constant": (SESSION,),
    "placeholder_feed": (SESSION,),
    "scaffold": (SESSION, ESTIMATOR),
    "variable_load": (FUNCTION, SESSION),
    "assign": (FUNCTION, SESSION, ESTIMATOR),
    "memory_map": (FUNCTION, SESSION),
}
"""By kind, the runtimes in which a way in works, in the order in which `runtime=auto` prefers them."""
