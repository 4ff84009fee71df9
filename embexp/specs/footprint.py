"""The memory that a run needs at least, and the bounds of what is computed at once.

What the config does not say, such as the length of lists or the layers of a user's own model, is left out, so a run
that needs more than there is here can't succeed.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from embexp.errors import Fault
from embexp.specs.data import Clicks
from embexp.specs.freezing import FreezeTable, NoFreeze
from embexp.specs.inits import MemoryMap
from embexp.specs.optimizers import slots_of
from embexp.specs.run import RunSpec
from embexp.specs.strategies import MultiWorker, Strategy
from embexp.specs.tables import Storage

_FLOAT_BYTES = 4
_INDEX_BYTES = 8
_DRAWN = 65_536
"""Examples that a synthetic log draws together: `embexp.data.click_log.CHUNK`."""
SCORES = 32 << 20
"""Bytes of the scores that an evaluation makes at once, of queries × entities; there is a second tensor as large,
with comparisons. Larger blocks are no faster: matrix products of 100 queries already take most of the time."""
TRAINED_SCORES = 96 << 20
"""The same of a training step, with exponentials next to them. Each block adds the gradients of all entities to those
of the blocks before, which in small blocks would take as long as the products."""
ROWS = 64 << 20
"""Bytes of entities' rows that an evaluation gathers at once."""
DIFFERENCES = 8 << 20
"""Bytes of differences, of queries × entities × dim, that are made at once: few enough for a processor's cache, as they
are read several times, and many enough that the calls of operations cost little compared with them."""


@dataclass(frozen=True)
class Rows:
    """Rows of a table.

    Attributes:
        in_memory: that are not in a mapped file.
        with_slots: that have slots.
    """

    in_memory: int
    with_slots: int


@dataclass(frozen=True)
class Need:
    """Memory that something needs.

    Attributes:
        kind: what: tables, slots, batch, dense part or data.
        path: the config path that decides it.
    """

    kind: str
    bytes: int
    path: str
    value: str


_REMEDIES = {
    "tables": "tables.NAME.dtype=bfloat16, a smaller dim, or fewer rows (data.vocabulary.max_size, "
    "data.vocabulary.min_frequency); for a pretrained table, freeze=table init=memory_map leaves the rows in "
    "their file",
    "slots": "an optimizer with fewer slots (optimizer=rowwise_adagrad, optimizer=sgd), a smaller dim, or "
    "frozen rows, which have no slots (storage=split)",
    "batch": "a smaller train.batch_size, or train.evaluation_batch_size",
    "dense part": "smaller layers",
    "data": "a smaller data.window, or fewer examples",
}


def rows_known(spec: RunSpec, rows: Mapping[str, int | None]) -> dict[str, Rows]:
    """The rows that take memory, before the data is read: at least so many.

    Args:
        rows: of each table; None where only the data decides.
    """
    found = {}
    for name, count in rows.items():
        if count is None:
            continue
        some_frozen = not isinstance(spec.freeze_of(name), NoFreeze | FreezeTable)
        apart = some_frozen and spec.tables[name].storage not in (Storage.VARIABLE, Storage.MIRRORED)
        mapped = isinstance(spec.init_of(name), MemoryMap) and spec.mappable(name)
        found[name] = Rows(0 if mapped else count, 0 if spec.frozen(name) or apart else count)
    return found


def rows_here(strategy: Strategy, environment: Mapping[str, str]) -> float:
    """The least share of the rows of a run's tables that one machine must have; 1 where all workers may be on one."""
    if not isinstance(strategy, MultiWorker):
        return 1.0
    if strategy.addresses is not None:
        hosts = [address.rpartition(":")[0] for address in strategy.addresses]
        return min(hosts.count(host) for host in hosts) / strategy.workers
    several = "TF_CONFIG" in environment or environment.get("SLURM_NTASKS", "1") != "1"
    return 1 / strategy.workers if several else 1.0


def needs(spec: RunSpec, rows: Mapping[str, Rows], dims: Mapping[str, int], examples: int | None = None) -> list[Need]:
    """What a run needs, as far as it is known."""
    found: list[Need] = []
    if isinstance(spec.strategy, MultiWorker):
        share = rows_here(spec.strategy, os.environ)
        copies = {name: table.storage is Storage.MIRRORED for name, table in spec.tables.items()}
        shares = {name: share * spec.strategy.workers if copies[name] else share for name in rows}
        rows = {
            name: Rows(int(each.in_memory * shares[name]), int(each.with_slots * shares[name]))
            for name, each in rows.items()
        }
    if not spec.strategy.own_memory or spec.strategy.simulated:
        found += _tables(spec, rows, dims)
    found += [*_batch(spec, dims), *_dense(spec, dims), *_data(spec, examples)]
    return found


def fault(found: Sequence[Need], available: int, limit: str) -> Fault | None:
    """The fault of a run that needs more memory than there is; None: it may have enough.

    Args:
        available: bytes that it can have.
        limit: what allows no more.
    """
    total = sum(each.bytes for each in found)
    if total <= available or not found:
        return None
    kinds = {kind: sum(each.bytes for each in found if each.kind == kind) for kind in _REMEDIES}
    largest = max(found, key=lambda each: each.bytes)
    tables = [each for each in found if each.kind == "tables"]
    words = [f"{kind} {_shown(size)}" for kind, size in kinds.items() if size]
    if tables and max(tables, key=lambda each: each.bytes).bytes:
        table = max(tables, key=lambda each: each.bytes)
        words[0] += f" (the largest is {table.path} with {_shown(table.bytes)})"
    rule = f"the run needs at least {_shown(total)} of memory, but {limit} has {_shown(available)}: {', '.join(words)}"
    return Fault(largest.path, largest.value, rule, f"choose {_REMEDIES[largest.kind]}")


def _tables(spec: RunSpec, rows: Mapping[str, Rows], dims: Mapping[str, int]) -> Iterator[Need]:
    for name, count in rows.items():
        if (dim := dims.get(name)) is None:
            continue
        path, table = f"tables.{name}", spec.tables[name]
        if count.in_memory:
            size = table.row_bytes(dim) * count.in_memory
            yield Need("tables", size, path, f"{count.in_memory:,} rows of {dim:,}")
        optimizer = spec.optimizer_of(name)
        if size := table.slot_bytes(optimizer, dim) * count.with_slots:
            value = f"{optimizer.kind} with {len(slots_of(optimizer))} slots for {count.with_slots:,} rows of {dim:,}"
            yield Need("slots", size, path, value)


def _batch(spec: RunSpec, dims: Mapping[str, int]) -> Iterator[Need]:
    """The activations of a batch, and in training their gradients."""
    known = [feature for feature in spec.features.values() if feature.table in dims]
    numbers = sum(math.prod(feature.activation_shape(dims[feature.table])) for feature in known)
    numbers += sum(sum(widths) for widths in spec.model.hidden_widths.values())
    sizes = {"train.batch_size": 2 * spec.train.batch_size, "train.evaluation_batch_size": spec.evaluation_batch_size}
    path = max(sizes, key=lambda each: sizes[each])
    shown = spec.train.batch_size if path == "train.batch_size" else spec.evaluation_batch_size
    yield Need("batch", _FLOAT_BYTES * numbers * sizes[path], path, f"{shown:,} examples of {numbers:,} numbers")


def _dense(spec: RunSpec, dims: Mapping[str, int]) -> Iterator[Need]:
    """Adapters and weights between hidden layers, with gradient and slots."""
    slots = spec.dense_optimizer.slots
    for name, table in spec.tables.items():
        if table.adapter is not None and name in dims:
            weights = dims[name] * table.adapter.dim
            path, value = f"tables.{name}.adapter.dim", str(table.adapter.dim)
            yield Need("dense part", _FLOAT_BYTES * (2 + slots) * weights, path, value)
    for path, widths in spec.model.hidden_widths.items():
        weights = 0 if path == "model.maps" else sum(a * b for a, b in itertools.pairwise(widths))
        yield Need("dense part", _FLOAT_BYTES * (2 + slots) * weights, path, str(list(widths)))


def _data(spec: RunSpec, examples: int | None) -> Iterator[Need]:
    """The order of a window, and what a synthetic log draws at once; the examples themselves are mapped."""
    if isinstance(spec.data, Clicks):
        data = spec.data
        examples = data.examples if examples is None else examples
        at_once = min(_DRAWN, data.examples) * (2 + data.history_length // 2)
        yield Need("data", _FLOAT_BYTES * at_once * (data.rank + 1), "data.rank", str(data.rank))
    if examples is not None and spec.data.shuffle:
        window = min(spec.data.window, examples)
        yield Need("data", _INDEX_BYTES * window, "data.window", f"{window:,} examples")


def _shown(size: int) -> str:
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size / 1e3:,.1f} kB"
