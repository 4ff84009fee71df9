"""Which runtime a run takes, and which right settings can't work together. No TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from embexp.errors import CombinationFault
from embexp.specs import inits, strategy_faults
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
from embexp.specs.partial import known_or, of_each, where_known
from embexp.specs.pretrained import Checkpoint, NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage


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
    """Everything that is right by itself and can't work with the rest.

    Args:
        spec: it may be known in part: rules look at no more than what they need.
    """
    return list(
        where_known(
            _runtime(spec),
            _strategy(spec),
            strategy_faults.faults(spec),
            of_each(lambda: spec.tables, lambda name: _freeze_of_table(spec, name)),
            _freeze(spec),
            of_each(lambda: spec.tables, lambda name: _random_of_table(spec, name)),
            _random(spec),
            of_each(lambda: spec.tables, lambda name: _old_rows_of_table(spec, name)),
            _old_rows(spec),
            _dense(spec),
            of_each(lambda: spec.tables, lambda name: _memory_map_of_table(spec, name)),
            _memory_map(spec),
            of_each(lambda: spec.tables, lambda name: _storage(spec, name)),
        )
    )


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
    seen = set()

    def of_table(name: str) -> Iterator[CombinationFault]:
        path, kind = _path_of_init(spec, name), spec.init_of(name).kind
        if kind in possible or (path, kind) in seen:
            return
        seen.add((path, kind))
        runtimes = inits.RUNTIMES[kind]
        group = path if path == "init" else f"init@{path}"
        mappable = any(known_or(False, partial(spec.mappable, each)) for each in spec.tables)
        others = [each for each in possible if each != "memory_map" or mappable]
        yield CombinationFault(
            path,
            kind,
            f"it works in the runtime {_or(runtimes)}, and the runtime is {chosen}",
            f"set runtime={_or(runtimes)}; or choose {group}={_or(others)}",
        )

    yield from of_each(lambda: spec.tables, of_table)


def _strategy(spec: RunSpec) -> Iterator[CombinationFault]:
    yield from strategy_faults.of_runtime(spec, _likely(spec))


def _likely(spec: RunSpec) -> RuntimeKind:
    """The runtime that would execute a run; `auto` where the tables' ways in share none."""
    chosen = spec.runtime.kind
    if chosen is not RuntimeKind.AUTO:
        return chosen
    return next(iter(_shared(spec)), chosen)


def _memory_map_of_table(spec: RunSpec, name: str) -> Iterator[CombinationFault]:
    table = spec.tables[name]
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


def _memory_map(spec: RunSpec) -> Iterator[CombinationFault]:
    heirs = [name for name, table in spec.tables.items() if table.init is None]
    if isinstance(spec.init, MemoryMap) and heirs:
        if any(isinstance(spec.init_of(name), MemoryMap) for name in heirs):
            return
        yield CombinationFault(
            "init",
            spec.init.kind,
            "frozen rows of a pretrained file are mapped, and no table is both frozen and pretrained",
            "add freeze=table and pretrained=file pretrained.path=…, or choose init=assign",
        )


def _storage(spec: RunSpec, name: str) -> Iterator[CombinationFault]:
    table, path = spec.tables[name], f"tables.{name}.storage"
    if table.storage is Storage.SPLIT:
        yield from _split(spec, name, path)
    if table.storage is Storage.VARIABLE and isinstance(table.init, MemoryMap):
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
    rule, remedy = "", f"leave it auto, or choose init@tables.{name}.init=assign"
    if isinstance(freeze, NoFreeze | FreezeTable):
        rule = f"a table is split into frozen rows and others, and its freeze is {freeze.kind}"
        remedy = f"leave it auto, or choose freeze@tables.{name}.freeze=rows"
    elif not isinstance(init, Assign):
        rule = f"a split table is assigned, and this one's way in is {init.kind}"
    elif _likely(spec) is RuntimeKind.ESTIMATOR:
        rule, remedy = "no split table works in the runtime estimator", "leave it auto, or set runtime=session"
    if rule:
        yield CombinationFault(path, repr(Storage.SPLIT.value), rule, remedy)


def _freeze_of_table(spec: RunSpec, name: str) -> Iterator[CombinationFault]:
    """Rows of a pretrained file are to be frozen, and there is none; likewise the next."""
    if isinstance(spec.tables[name].freeze, FreezePretrainedRows) and _lacks_rows(spec, name):
        place = f"tables.{name}"
        yield CombinationFault(
            f"{place}.freeze",
            "pretrained_rows",
            "it is about rows that came from a file, and the table has no pretrained file",
            f"add pretrained@{place}.pretrained=file {place}.pretrained.path=…, or choose another freeze",
        )


def _freeze(spec: RunSpec) -> Iterator[CombinationFault]:
    if not isinstance(spec.freeze, FreezePretrainedRows):
        return
    heirs = [name for name, table in spec.tables.items() if table.freeze is None]
    if heirs and all(_lacks_rows(spec, name) for name in heirs):
        yield CombinationFault(
            "freeze",
            "pretrained_rows",
            "it is about rows that came from a file, and no table that inherits it has a pretrained file",
            "add pretrained=file pretrained.path=…, or choose another freeze",
        )


def _random_of_table(spec: RunSpec, name: str) -> Iterator[CombinationFault]:
    """Values that are to stay are to be pretrained, and are not; likewise the next."""
    freeze = spec.tables[name].freeze
    if isinstance(freeze, FreezeTable) and freeze.random is False and _lacks_rows(spec, name):
        place = f"tables.{name}"
        yield CombinationFault(
            f"{place}.freeze",
            "table",
            f"{place}.freeze.random is false, so no random values are to stay as they are, and the table is not"
            " pretrained",
            "add pretrained=file pretrained.path=…; or, where random values are meant, choose"
            f" freeze@{place}.freeze=random_table",
        )


def _random(spec: RunSpec) -> Iterator[CombinationFault]:
    if not isinstance(spec.freeze, FreezeTable) or spec.freeze.random is not False:
        return
    lacking = [name for name, table in spec.tables.items() if table.freeze is None and _lacks_rows(spec, name)]
    if lacking:
        yield CombinationFault(
            "freeze",
            "table",
            "freeze.random is false, so no random values are to stay as they are, and these tables are not pretrained: "
            + ", ".join(lacking),
            "add pretrained=file pretrained.path=…; or, where random values are meant, choose freeze=random_table",
        )


def _lacks_rows(spec: RunSpec, name: str) -> bool:
    return isinstance(spec.pretrained_of(name), NoPretrained)


def _old_rows_of_table(spec: RunSpec, name: str) -> Iterator[CombinationFault]:
    """Rows of a checkpoint are to be frozen, and there is none; likewise the next."""
    own, place = spec.tables[name].freeze, f"tables.{name}"
    if own is not None and (path := _about_old_rows(f"{place}.freeze", own)) and _lacks_old_rows(spec, name):
        yield CombinationFault(
            path,
            "old_rows",
            "it is about rows that came from a checkpoint, and the table takes none from one",
            f"add pretrained@{place}.pretrained=checkpoint {place}.pretrained.path=…, or choose another freeze",
        )


def _old_rows(spec: RunSpec) -> Iterator[CombinationFault]:
    path = _about_old_rows("freeze", spec.freeze)
    if not path:
        return
    heirs = [name for name, table in spec.tables.items() if table.freeze is None]
    if heirs and all(_lacks_old_rows(spec, name) for name in heirs):
        yield CombinationFault(
            path,
            "old_rows",
            "it is about rows that came from a checkpoint, and no table that inherits it takes any from one",
            "add pretrained=checkpoint pretrained.path=…, or choose another freeze",
        )


def _lacks_old_rows(spec: RunSpec, name: str) -> bool:
    return not isinstance(spec.pretrained_of(name), Checkpoint)


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
