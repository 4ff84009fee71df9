"""Which runtime a run takes, and which right settings can't work together. No TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from embexp.errors import CombinationFault
from embexp.specs import inits
from embexp.specs.freezing import (
    Freeze,
    FreezeOldRows,
    FreezePretrainedRows,
    FreezeTable,
    NoFreeze,
    OldRowsRule,
    phases_of,
)
from embexp.specs.inits import Assign, MemoryMap
from embexp.specs.pretrained import Checkpoint, NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage

_ON_ONE_DEVICE = (RuntimeKind.SESSION, RuntimeKind.ESTIMATOR)
"""Runtimes that work with one strategy only."""
_ONE_DEVICE = "cpu"


def runtime_of(spec: RunSpec) -> RuntimeKind:
    """The runtime that executes a run: the one that it names, or else the first that all tables' ways in share.

    Raises:
        ValueError: they share none; `combination_faults` has words for that.
    """
    if spec.runtime.kind is not RuntimeKind.AUTO:
        return spec.runtime.kind
    shared = _shared(spec)
    if not shared:
        raise ValueError("the tables' ways in share no runtime")
    return shared[0]


def combination_faults(spec: RunSpec) -> list[CombinationFault]:
    """Everything that is right by itself and can't work with the rest."""
    return [
        *_runtime(spec),
        *_strategy(spec),
        *_freeze(spec),
        *_old_rows(spec),
        *_dense(spec),
        *_memory_map(spec),
        *_storage(spec),
    ]


def _shared(spec: RunSpec) -> list[RuntimeKind]:
    everywhere = [inits.RUNTIMES[spec.init_of(table).kind] for table in spec.tables]
    return [kind for kind in RuntimeKind if all(kind in runtimes for runtimes in everywhere)]


def _runtime(spec: RunSpec) -> Iterator[CombinationFault]:
    chosen = spec.runtime.kind
    if chosen is RuntimeKind.AUTO:
        if not _shared(spec):
            ways = {name: spec.init_of(name).kind for name in spec.tables}
            yield CombinationFault(
                "runtime",
                chosen.value,
                "there is no runtime in which all tables' ways in work: "
                + "; ".join(f"{name} {kind}: {_or(inits.RUNTIMES[kind])}" for name, kind in ways.items()),
                f"choose ways in that share one; assign works in {_or(inits.RUNTIMES['assign'])}",
            )
        return
    possible = [kind for kind, runtimes in inits.RUNTIMES.items() if chosen in runtimes]
    for path, kind in dict.fromkeys((_path_of_init(spec, name), spec.init_of(name).kind) for name in spec.tables):
        if kind not in possible:
            runtimes = inits.RUNTIMES[kind]
            group = path if path == "init" else f"init@{path}"
            mappable = any(spec.mappable(name) for name in spec.tables)
            others = [each for each in possible if each != "memory_map" or mappable]
            yield CombinationFault(
                path,
                kind,
                f"it works in the runtime {_or(runtimes)}, and the runtime is {chosen}",
                f"set runtime={_or(runtimes)}; or choose {group}={_or(others)}",
            )


def _strategy(spec: RunSpec) -> Iterator[CombinationFault]:
    chosen, strategy = spec.runtime.kind, str(spec.strategy.kind)
    shared = _shared(spec)
    if chosen is RuntimeKind.AUTO and shared:
        chosen = shared[0]
    if chosen in _ON_ONE_DEVICE and strategy != _ONE_DEVICE:
        yield CombinationFault(
            "runtime",
            chosen.value,
            f"it works with strategy {_ONE_DEVICE}, and the strategy is {strategy}",
            f"set strategy={_ONE_DEVICE}, or runtime=function with a way in that works there (init=assign)",
        )


def _memory_map(spec: RunSpec) -> Iterator[CombinationFault]:
    for name, table in spec.tables.items():
        if isinstance(table.init, MemoryMap) and not spec.mappable(name):
            place = f"tables.{name}"
            lacking, words = [], []
            if isinstance(spec.freeze_of(name), NoFreeze):
                lacking.append("no row of the table is frozen")
                words.append(f"freeze@{place}.freeze=table")
            if isinstance(spec.pretrained_of(name), NoPretrained):
                lacking.append("the table has no pretrained file")
                words.append(f"pretrained@{place}.pretrained=file {place}.pretrained.path=…")
            yield CombinationFault(
                f"{place}.init",
                table.init.kind,
                f"frozen rows of a pretrained file are mapped, and {' and '.join(lacking)}",
                f"add {' '.join(words)}, or choose init@{place}.init=assign",
            )
    heirs = [name for name, table in spec.tables.items() if table.init is None]
    mapped = any(isinstance(spec.init_of(name), MemoryMap) for name in heirs)
    if isinstance(spec.init, MemoryMap) and heirs and not mapped:
        yield CombinationFault(
            "init",
            spec.init.kind,
            "frozen rows of a pretrained file are mapped, and no table is both frozen and pretrained",
            "add freeze=table and pretrained=file pretrained.path=…, or choose init=assign",
        )


def _storage(spec: RunSpec) -> Iterator[CombinationFault]:
    for name, table in spec.tables.items():
        own = isinstance(table.init, MemoryMap)
        path = f"tables.{name}.storage"
        if table.storage is Storage.SPLIT:
            yield from _split(spec, name, path)
        if table.storage is Storage.VARIABLE and own:
            yield CombinationFault(
                path,
                repr(table.storage.value),
                "the table's own init is memory_map, which keeps it in a mapped file",
                f"leave it auto, or choose init@tables.{name}.init=assign",
            )
        if table.storage is Storage.MEMORY_MAP and not isinstance(spec.init_of(name), MemoryMap):
            yield CombinationFault(
                path,
                repr(table.storage.value),
                f"only memory_map keeps a table in a mapped file, and this one's way in is {spec.init_of(name).kind}",
                f"leave it auto, or freeze the pretrained table and choose init@tables.{name}.init=memory_map",
            )


def _split(spec: RunSpec, name: str, path: str) -> Iterator[CombinationFault]:
    freeze, init = spec.freeze_of(name), spec.init_of(name)
    shared = _shared(spec)
    chosen = shared[0] if spec.runtime.kind is RuntimeKind.AUTO and shared else spec.runtime.kind
    rule, remedy = "", f"leave it auto, or choose init@tables.{name}.init=assign"
    if isinstance(freeze, NoFreeze | FreezeTable):
        rule = f"a table is split into frozen rows and others, and its freeze is {freeze.kind}"
        remedy = f"leave it auto, or choose freeze@tables.{name}.freeze=rows"
    elif not isinstance(init, Assign):
        rule = f"a split table is assigned, and this one's way in is {init.kind}"
    elif chosen is RuntimeKind.ESTIMATOR:
        rule, remedy = "no split table works in the runtime estimator", "leave it auto, or set runtime=session"
    if rule:
        yield CombinationFault(path, repr(Storage.SPLIT.value), rule, remedy)


def _freeze(spec: RunSpec) -> Iterator[CombinationFault]:
    """Rows of a pretrained file are to be frozen, and there is none."""
    lacking = [name for name in spec.tables if isinstance(spec.pretrained_of(name), NoPretrained)]
    for name in lacking:
        if isinstance(spec.tables[name].freeze, FreezePretrainedRows):
            place = f"tables.{name}"
            yield CombinationFault(
                f"{place}.freeze",
                "pretrained_rows",
                "it is about rows that came from a file, and the table has no pretrained file",
                f"add pretrained@{place}.pretrained=file {place}.pretrained.path=…, or choose another freeze",
            )
    heirs = [name for name, table in spec.tables.items() if table.freeze is None]
    if isinstance(spec.freeze, FreezePretrainedRows) and heirs and set(heirs) <= set(lacking):
        yield CombinationFault(
            "freeze",
            "pretrained_rows",
            "it is about rows that came from a file, and no table that inherits it has a pretrained file",
            "add pretrained=file pretrained.path=…, or choose another freeze",
        )


def _old_rows(spec: RunSpec) -> Iterator[CombinationFault]:
    """Rows of a checkpoint are to be frozen, and there is none."""
    lacking = [name for name in spec.tables if not isinstance(spec.pretrained_of(name), Checkpoint)]
    for name in lacking:
        own = spec.tables[name].freeze
        if own is not None and (path := _about_old_rows(f"tables.{name}.freeze", own)):
            place = f"tables.{name}"
            yield CombinationFault(
                path,
                "old_rows",
                "it is about rows that came from a checkpoint, and the table takes none from one",
                f"add pretrained@{place}.pretrained=checkpoint {place}.pretrained.path=…, or choose another freeze",
            )
    heirs = [name for name, table in spec.tables.items() if table.freeze is None]
    if heirs and set(heirs) <= set(lacking) and (path := _about_old_rows("freeze", spec.freeze)):
        yield CombinationFault(
            path,
            "old_rows",
            "it is about rows that came from a checkpoint, and no table that inherits it takes any from one",
            "add pretrained=checkpoint pretrained.path=…, or choose another freeze",
        )


def _about_old_rows(path: str, freeze: Freeze) -> str:
    """Config path of what is about old rows in a policy, or ""."""
    if isinstance(freeze, FreezeOldRows):
        return path
    for number, phase in enumerate(phases_of(freeze)):
        for place, rule in enumerate(phase.rules):
            if isinstance(rule, OldRowsRule):
                return f"{path}.phases.{number}.rules.{place}"
    return ""


def _dense(spec: RunSpec) -> Iterator[CombinationFault]:
    """There is one dense part, and it comes from one checkpoint."""
    settings = list(spec.dense_from().items())
    for path, setting in settings[1:]:
        first, taken = settings[0]
        if setting.path != taken.path:
            yield CombinationFault(
                f"{path}.dense",
                "true",
                f"the dense part comes from one checkpoint, and {first} takes that of {taken.path}",
                f"set {path}.dense=false, or {first}.dense=false",
            )


def _path_of_init(spec: RunSpec, table: str) -> str:
    return "init" if spec.tables[table].init is None else f"tables.{table}.init"


def _or(words: Sequence[str]) -> str:
    *rest, last = [str(word) for word in words]
    return f"{', '.join(rest)} or {last}" if rest else last
