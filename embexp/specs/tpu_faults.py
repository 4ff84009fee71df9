"""What a TPU can't honour, real or simulated, found before anything starts. No TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator

from embexp.errors import CombinationFault
from embexp.specs.data import Triples
from embexp.specs.freezing import FreezeSchedule
from embexp.specs.inits import MemoryMap
from embexp.specs.run import RunSpec
from embexp.specs.strategies import TPU, TPUSimulator, replicas_of
from embexp.specs.tables import FreezeTable, NoFreeze, Storage

_ELSEWHERE = "set strategy=cpu"


def faults(spec: RunSpec, strategy: TPU | TPUSimulator) -> Iterator[CombinationFault]:
    """Settings of a run that a TPU can't honour."""
    yield from _batches(spec, strategy)
    yield from _layouts(spec, strategy)
    yield from _schedules(spec, strategy)
    if isinstance(spec.data, Triples) and spec.data.negatives is not None:
        yield CombinationFault(
            "data.negatives",
            str(spec.data.negatives),
            f"an evaluation ranks all entities, and strategy {strategy.kind} takes batches of one shape only, those of"
            " the training",
            f"set data.negatives=null, so that all entities train too, or {_ELSEWHERE}",
        )


def _batches(spec: RunSpec, strategy: TPU | TPUSimulator) -> Iterator[CombinationFault]:
    """A TPU computes batches of one size only, and its cores share each equally."""
    replicas, batch = replicas_of(strategy), spec.train.batch_size
    if replicas is not None and batch % replicas:
        near = max(1, round(batch / replicas)) * replicas
        yield CombinationFault(
            "train.batch_size",
            str(batch),
            f"the {replicas} cores of strategy {strategy.kind} share each batch equally, and it does not divide by"
            f" {replicas}",
            f"set it to {near}, or strategy.cores to a number that divides it",
        )


def _layouts(spec: RunSpec, strategy: TPU | TPUSimulator) -> Iterator[CombinationFault]:
    words = f"strategy {strategy.kind} keeps tables in the memory of the TPU"
    paths: dict[str, str] = {}
    for name, table in spec.tables.items():
        path = "init" if table.init is None else f"tables.{name}.init"
        if isinstance(spec.init_of(name), MemoryMap):
            paths[path] = path if table.init is None else f"init@{path}"
        elif table.storage is Storage.MEMORY_MAP:
            yield CombinationFault(
                f"tables.{name}.storage", repr(table.storage.value), f"{words}, not in a file", "leave it auto"
            )
        partly = not isinstance(spec.freeze_of(name), NoFreeze | FreezeTable)
        if table.storage is Storage.VARIABLE and partly:
            yield CombinationFault(
                f"tables.{name}.storage",
                repr(table.storage.value),
                f"with strategy {strategy.kind} rows that never move are kept apart from the others, as a TPU moves all"
                " rows of a table",
                "leave it auto",
            )
    for path, group in paths.items():
        yield CombinationFault(
            path, "memory_map", f"{words}, and no row can stay in its file", f"choose {group}=assign, or {_ELSEWHERE}"
        )


def _schedules(spec: RunSpec, strategy: TPU | TPUSimulator) -> Iterator[CombinationFault]:
    """A TPU moves all rows of one of its tables, at one pace, from the first step to the last."""
    seen = set()
    for name in spec.tables:
        freeze, path = spec.freeze_of(name), spec.freeze_path(name)
        if not isinstance(freeze, FreezeSchedule) or path in seen:
            continue
        seen.add(path)
        if len(freeze.phases) > 1:
            yield CombinationFault(
                f"{path}.phases",
                f"{len(freeze.phases)} phases",
                f"with strategy {strategy.kind} a row moves throughout, or never",
                f"leave one phase, or {_ELSEWHERE}",
            )
        for number, rule in enumerate(freeze.phases[0].rules):
            if rule.multiplier not in (0.0, 1.0):
                yield CombinationFault(
                    f"{path}.phases.0.rules.{number}.multiplier",
                    f"{rule.multiplier:g}",
                    f"with strategy {strategy.kind} all rows of a table that move have one learning rate",
                    f"set it to 0, so that they do not move, or to 1, or {_ELSEWHERE}",
                )
