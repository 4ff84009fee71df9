"""Settings that a TPU, real or simulated, does not support."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from embexp.errors import CombinationFault
from embexp.specs.freezing import FreezeSchedule, FreezeTable, NoFreeze
from embexp.specs.inits import MemoryMap
from embexp.specs.partial import for_each, known_or, where_known
from embexp.specs.tables import Storage
from embexp.specs.triples import Triples

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.strategies import TPU, TPUSimulator

_ELSEWHERE = "set strategy=cpu"


def faults(spec: RunSpec, strategy: TPU | TPUSimulator) -> Iterator[CombinationFault]:
    """Settings of a run that a TPU does not support."""
    yield from where_known(
        _batches(spec, strategy),
        for_each(lambda: spec.tables, lambda name: _layout(spec, strategy, name)),
        _mapped(spec, strategy),
        _schedules(spec, strategy),
        _candidates(spec, strategy),
    )


def _candidates(spec: RunSpec, strategy: TPU | TPUSimulator) -> Iterator[CombinationFault]:
    """Evaluations with more candidates than training."""
    if isinstance(spec.data, Triples) and spec.data.negatives is not None:
        yield CombinationFault(
            "data.negatives",
            str(spec.data.negatives),
            f"an evaluation ranks all entities, and strategy {strategy.kind} requires batches of the same shape as in"
            " training",
            f"set data.negatives=null to train with all entities, or {_ELSEWHERE}",
        )


def _batches(spec: RunSpec, strategy: TPU | TPUSimulator) -> Iterator[CombinationFault]:
    """Batches that the cores can't share equally."""
    replicas, batch = strategy.replica_count, spec.train.batch_size
    if replicas is not None and batch % replicas:
        near = max(1, round(batch / replicas)) * replicas
        yield CombinationFault(
            "train.batch_size",
            str(batch),
            f"the {replicas} cores of strategy {strategy.kind} share each batch equally, and it is not divisible by"
            f" {replicas}",
            f"set it to {near}, or strategy.cores to a number that divides it",
        )


def _layout(spec: RunSpec, strategy: TPU | TPUSimulator, name: str) -> Iterator[CombinationFault]:
    """Storages of tables that a TPU lacks."""
    table = spec.tables[name]
    if table.storage is Storage.MEMORY_MAP and not isinstance(spec.init_of(name), MemoryMap):
        yield CombinationFault(
            f"tables.{name}.storage", repr(table.storage.value), f"{_where(strategy)}, not in a file", "leave it auto"
        )
    if table.storage is Storage.VARIABLE and not isinstance(spec.freeze_of(name), NoFreeze | FreezeTable):
        yield CombinationFault(
            f"tables.{name}.storage",
            repr(table.storage.value),
            f"strategy {strategy.kind} stores frozen rows separately, as a TPU updates all rows of its tables",
            "leave it auto",
        )


def _mapped(spec: RunSpec, strategy: TPU | TPUSimulator) -> Iterator[CombinationFault]:
    """Memory-mapped rows."""
    for scope, init in spec.settings_of("init"):
        taken = any(known_or(None, partial(spec.init_of, name)) is init for name in scope.tables)
        if isinstance(init, MemoryMap) and taken:
            rule = f"{_where(strategy)}, and no row can stay in its file"
            remedy = f"choose {scope.choosing('init', 'assign')}, or {_ELSEWHERE}"
            yield CombinationFault(scope.path, "memory_map", rule, remedy)


def _where(strategy: TPU | TPUSimulator) -> str:
    return f"strategy {strategy.kind} keeps tables in the memory of the TPU"


def _schedules(spec: RunSpec, strategy: TPU | TPUSimulator) -> Iterator[CombinationFault]:
    """Schedules, as a TPU updates all rows of a table with the same learning rate throughout."""
    for scope, freeze in spec.settings_of("freeze"):
        if isinstance(freeze, FreezeSchedule) and scope.tables:
            yield from where_known(_schedule(freeze, scope.path, strategy))


def _schedule(freeze: FreezeSchedule, path: str, strategy: TPU | TPUSimulator) -> Iterator[CombinationFault]:
    if len(freeze.phases) > 1:
        yield CombinationFault(
            f"{path}.phases",
            f"{len(freeze.phases)} phases",
            f"with strategy {strategy.kind} a row is trainable or frozen throughout",
            f"leave one phase, or {_ELSEWHERE}",
        )
    for number, rule in enumerate(freeze.phases[0].rules):
        if rule.multiplier not in (0.0, 1.0):
            yield CombinationFault(
                f"{path}.phases.0.rules.{number}.multiplier",
                f"{rule.multiplier:g}",
                f"with strategy {strategy.kind} all trainable rows of a table have the same learning rate",
                f"set it to 0 to freeze the rows, or to 1, or {_ELSEWHERE}",
            )
