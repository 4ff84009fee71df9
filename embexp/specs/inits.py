"""Init methods: how tables get their initial values, the runtimes of each method, and its rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

from embexp.errors import CombinationFault, RunError
from embexp.specs.base import BY_KIND, Choice, Count, NamedCode, known_or, where_known
from embexp.specs.freezing import NoFreeze
from embexp.specs.pretrained import NoPretrained
from embexp.specs.running import RuntimeKind

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec

GRAPH_BYTES = 2**31 - 1 - 1024 * 1024
"""Largest sum of constants in one graph: a protocol buffer's limit, less some for the rest of the graph."""
CHUNK_BYTES = 64 * 1024 * 1024
"""Largest chunk of initial values in flight, unless the config sets another."""
FUNCTION, SESSION, ESTIMATOR = RuntimeKind.FUNCTION, RuntimeKind.SESSION, RuntimeKind.ESTIMATOR


class InitMethod(Choice):
    """Base class of init methods; the implementation returns an `embexp.initialization.InitMethod`."""

    kind: str
    runtimes: ClassVar[tuple[RuntimeKind, ...]]
    """The runtimes in which it works, in the order in which `runtime=auto` prefers them."""
    fills_parts: ClassVar[bool] = False
    """Whether it fills split tables."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """A runtime in which it does not work."""
        return _other_runtime(self, spec, scope)

    @staticmethod
    def fits(spec: RunSpec, table: str) -> bool:
        """Whether a table can use this method if it inherits it; otherwise its rows are assigned."""
        return True


class ConstantInGraph(InitMethod):
    """The matrix is a constant of the graph, which grows by all its bytes: for comparison, and below 2 GiB only."""

    kind: Literal["constant"] = "constant"
    implementation = "embexp.initialization.constant:method"
    runtimes = (SESSION,)

    @staticmethod
    def check(sizes: Mapping[str, tuple[int, int]]) -> None:
        """Checks that float32 matrices can all be constants of one graph, before TensorFlow is imported.

        Args:
            sizes: rows and dim of each, by the name of its table, or "".

        Raises:
            RunError: together they have too many bytes.
        """
        total = sum(4 * math.prod(size) for size in sizes.values())
        if total <= GRAPH_BYTES:
            return
        shapes = ", ".join(f"{name} {rows} × {dim}".strip() for name, (rows, dim) in sizes.items())
        raise RunError(
            f"init=constant: a graph must be smaller than 2 GiB (2,147,483,648 bytes), found {total:,} bytes of "
            f"constants ({shapes}); choose an init method that keeps them out of the graph: placeholder_feed, scaffold,"
            " variable_load or assign"
        )


class PlaceholderFeed(InitMethod):
    """The initializer of each table runs once, with the matrix fed as its initial value."""

    kind: Literal["placeholder_feed"] = "placeholder_feed"
    implementation = "embexp.initialization.placeholder_feed:method"
    runtimes = (SESSION,)


class Scaffold(InitMethod):
    """`tf.compat.v1.train.Scaffold` fills tables when a monitored session is made, not when it is restored."""

    kind: Literal["scaffold"] = "scaffold"
    implementation = "embexp.initialization.scaffolding:method"
    runtimes = (SESSION, ESTIMATOR)


class VariableLoad(InitMethod):
    """`Variable.load` after the global initializer; in the function runtime, assigning the whole matrix at once."""

    kind: Literal["variable_load"] = "variable_load"
    implementation = "embexp.initialization.variable_load:method"
    runtimes = (FUNCTION, SESSION)


class Assign(InitMethod):
    """Rows are assigned in chunks: one copy, any runtime."""

    kind: Literal["assign"] = "assign"
    implementation = "embexp.initialization.method:assign"
    chunk_bytes: Count = CHUNK_BYTES
    """Size of a chunk, in bytes."""
    runtimes = (FUNCTION, SESSION, ESTIMATOR)
    fills_parts = True


class MemoryMap(InitMethod):
    """Frozen rows stay in the memory-mapped file, which all processes share: no copy. The others are assigned."""

    kind: Literal["memory_map"] = "memory_map"
    implementation = "embexp.initialization.method:assign"
    runtimes = (FUNCTION, SESSION)
    fills_parts = True
    chunk_bytes: ClassVar[int] = CHUNK_BYTES

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """No frozen rows of a pretrained file to map."""
        return where_known(_other_runtime(self, spec, scope), _nothing_to_map(spec, scope))

    @staticmethod
    def fits(spec: RunSpec, table: str) -> bool:
        """Whether a table has frozen rows and is pretrained, and its storage allows mapping."""
        return spec.mappable(table) and spec.tables[table].may_be_mapped


class CustomInit(NamedCode, InitMethod):
    """The user's own function: `function(**args)` returns an `embexp.initialization.InitMethod`."""

    kind: Literal["custom"] = "custom"
    implementation = "embexp.initialization.method:custom"
    runtimes = (FUNCTION, SESSION, ESTIMATOR)


Init = Annotated[
    ConstantInGraph | PlaceholderFeed | Scaffold | VariableLoad | Assign | MemoryMap | CustomInit,
    BY_KIND,
]
_KINDS = {method.model_fields["kind"].default: method for method in get_args(get_args(Init)[0])}
METHODS: dict[str, type[InitMethod]] = {kind: method for kind, method in _KINDS.items() if method is not CustomInit}
"""The init methods of embexp, by kind."""


def no_shared_runtime(spec: RunSpec) -> Iterator[CombinationFault]:
    """`runtime=auto`, but the tables' init methods share no runtime."""
    if spec.runtime.kind is RuntimeKind.AUTO and not spec.shared_runtimes:
        methods = {name: spec.init_of(name) for name in spec.tables}
        runtimes = "; ".join(f"{name} {method.kind}: {_or(method.runtimes)}" for name, method in methods.items())
        rule = f"the tables' init methods have no runtime in common: {runtimes}"
        remedy = f"choose init methods that share one; assign works in {_or(Assign.runtimes)}"
        yield CombinationFault("runtime", spec.runtime.kind.value, rule, remedy)


def _other_runtime(method: InitMethod, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
    chosen = spec.runtime.kind
    if chosen is RuntimeKind.AUTO or chosen in method.runtimes:
        return
    if not any(known_or(None, partial(spec.init_of, name)) is method for name in scope.tables):
        return
    possible = [kind for kind, other in METHODS.items() if chosen in other.runtimes and _suits(other, spec)]
    rule = f"it works only in runtime {_or(method.runtimes)}, but the runtime is {chosen}"
    remedy = f"set runtime={_or(method.runtimes)}; or choose {scope.choosing('init', _or(possible))}"
    yield CombinationFault(scope.path, method.kind, rule, remedy)


def _suits(method: type[InitMethod], spec: RunSpec) -> bool:
    """Whether any table can use a method."""
    return any(known_or(False, partial(method.fits, spec, name)) for name in spec.tables)


def _nothing_to_map(spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
    tables = scope.all_tables()
    maps = spec.mappable if scope.own else partial(MemoryMap.fits, spec)
    if not tables or any(map(maps, tables)):
        return
    freeze, pretrained = scope.choosing("freeze", "table"), scope.choosing("pretrained", "file")
    pretrained = f"{pretrained} {scope.sibling('pretrained')}.path=…"
    lacking, remedy = "no table is both frozen and pretrained", f"{freeze} and {pretrained}"
    if scope.own:
        (name,) = tables
        missing = {}
        if isinstance(spec.freeze_of(name), NoFreeze):
            missing["no row of the table is frozen"] = freeze
        if isinstance(spec.pretrained_of(name), NoPretrained):
            missing["the table has no pretrained file"] = pretrained
        lacking, remedy = " and ".join(missing), " ".join(missing.values())
    rule = f"only frozen rows of a pretrained file can be mapped, but {lacking}"
    remedy = f"add {remedy}, or choose {scope.choosing('init', 'assign')}"
    yield CombinationFault(scope.path, "memory_map", rule, remedy)


def _or(words: Sequence[str]) -> str:
    *rest, last = [str(word) for word in words]
    return f"{', '.join(rest)} or {last}" if rest else last
