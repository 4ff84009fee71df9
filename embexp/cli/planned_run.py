"""A run before it is run, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from rich.console import Console
from rich.table import Table as Rich

from embexp.data.factory import source_of
from embexp.pretrained import heads
from embexp.specs.freezing import FreezeTable, NoFreeze
from embexp.specs.notes import doubtful, inert
from embexp.specs.optimizers import Adam, TableOptimizer, slot_count
from embexp.specs.pretrained import Checkpoint, File, NoPretrained, Pretrained, Sample
from embexp.specs.resolution import runtime_of
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage, Table
from embexp.system import terminal
from embexp.system.terminal import byte_size

if TYPE_CHECKING:
    from embexp.freezing.policies import TablePolicy
    from embexp.runs.prepare import Prepared

FLOAT_BYTES = 4
FROM_DATA = "from the data"
FROM_FILE = "from the file"


@dataclass(frozen=True)
class Plan:
    """A run, as far as it is known.

    Attributes:
        asked: what the user asked for.
        spec: the same with what the pretrained files settled, where they were read.
        rows: by table; None where only the data tells.
        dims: by table, without those of which only the pretrained file tells.
        policies: which rows of each table are frozen, and its layout; None: the data was not read.
        warnings: what the user should know before the run.
    """

    asked: RunSpec
    spec: RunSpec
    rows: Mapping[str, int | None]
    dims: Mapping[str, int]
    policies: Mapping[str, TablePolicy] | None = None
    warnings: Sequence[str] = ()


def unread(spec: RunSpec) -> Plan:
    """What is known before the data is read; of pretrained files, no more than their first bytes are read."""
    return Plan(spec, spec, heads.rows(spec), heads.dims(spec.pretrained, spec.tables), warnings=doubtful(spec))


def read(prepared: Prepared) -> Plan:
    """What is known of a run that is prepared: all of it."""
    tables = prepared.tables
    dims = {name: table.width for name, table in tables.spec.tables.items()}
    return Plan(prepared.asked, tables.spec, tables.rows, dims, tables.policies, prepared.warnings)


def show(plan: Plan, console: Console) -> None:
    """Prints what a run would do."""

    def line(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    for what, words in _headlines(plan.asked):
        line(f"{what:10}{words}")
    line()
    console.print(_tables(plan, console))
    line()
    console.print(_features(plan, console))
    warnings = [f"warning: {each}" for each in plan.warnings]
    notes = [*warnings, *_frozen(plan.policies or {}), *_notes(plan)]
    if notes:
        line()
    for note in notes:
        line(note)


def _headlines(spec: RunSpec) -> Iterator[tuple[str, str]]:
    train = spec.train
    length = [f"{train.epochs:g} epochs" if train.epochs is not None else ""]
    length.append(f"{train.steps:,} steps" if train.steps is not None else "")
    dense = spec.dense_optimizer
    yield "run", f"{spec.name}: task {spec.task}, seed {spec.seed}"
    yield "data", source_of(spec.data).description().headline
    yield "model", f"{spec.model.kind}, dense optimizer {dense.kind} (learning rate {dense.learning_rate:g})"
    yield "training", f"{' or '.join(filter(None, length))} of {train.batch_size:,} examples a step"
    yield "tables", f"pretrained {_pretrained(spec.pretrained)}, init {spec.init.kind}, freeze {spec.freeze.kind}"
    runtime = runtime_of(spec)
    chosen = " (auto)" if spec.runtime.kind is RuntimeKind.AUTO else ""
    yield "where", f"strategy {spec.strategy.described}, runtime {runtime}{chosen}"


def _tables(plan: Plan, console: Console) -> Rich:
    spec, policies = plan.spec, plan.policies or {}
    made = terminal.table(
        console,
        ["table"],
        right=["rows", "dim", "parameters", "slots", "frozen"],
        after=["init", "freeze", "combiner", "optimizer", "of its own"],
    )
    sums = {"parameters": 0, "slots": 0, "frozen": 0}
    for name, each in spec.tables.items():
        optimizer, frozen = spec.optimizer_of(name), spec.frozen(name)
        rows, dim = plan.rows[name], plan.dims.get(name)
        numbers = {
            "parameters": 1,
            "slots": 0 if frozen else slot_count(optimizer),
            "frozen": int(frozen or name in policies),
        }
        if rows is not None and dim is not None:
            counts = dict.fromkeys(numbers, rows) | _counts(policies.get(name))
            amounts = {what: FLOAT_BYTES * counts[what] * dim * number for what, number in numbers.items()}
            sums = {what: sums[what] + amount for what, amount in amounts.items()}
            shown = [byte_size(amount) for amount in amounts.values()]
        elif dim is not None:
            shown = [f"{byte_size(FLOAT_BYTES * dim * number)}/row" for number in numbers.values()]
        else:
            shown = [FROM_FILE, "", ""]
        made.add_row(
            name,
            FROM_DATA if rows is None else f"{rows:,}",
            FROM_FILE if dim is None else str(dim),
            *shown,
            spec.init_of(name).kind,
            spec.freeze_of(name).kind,
            each.combiner.value,
            "" if frozen else _rate(optimizer),
            _own(plan.asked.tables[name]),
        )
    plus = " + …" if any(plan.rows[name] is None or name not in plan.dims for name in spec.tables) else ""
    made.add_row("all", "", "", *(f"{byte_size(amount)}{plus}" for amount in sums.values()), *[""] * 5, style="bold")
    return made


def _counts(policy: TablePolicy | None) -> dict[str, int]:
    """Rows that have slots, and rows that never move, where not all are alike."""
    if policy is None:
        return {}
    if policy.grouping is None:
        return {"slots": 0 if policy.fully_frozen else policy.rows, "frozen": policy.frozen_rows}
    apart = policy.storage is not Storage.VARIABLE
    return {"slots": policy.rows - (policy.frozen_rows if apart else 0), "frozen": policy.frozen_rows}


def _frozen(policies: Mapping[str, TablePolicy]) -> Iterator[str]:
    """What each rule of a policy takes, and the layout that follows."""
    for name, policy in policies.items():
        starts = (0,) if policy.grouping is None else policy.grouping.starts
        for each in policy.taken:
            since = f" from step {starts[each.phase]:,}" if each.phase < len(starts) and starts[each.phase] else ""
            pace = f" (learning rate × {each.multiplier:g})" if each.multiplier else ""
            misfit = f"; {each.misfit}" if each.misfit else ""
            yield f"freeze: tables.{name}: {each.kind} takes {each.rows:,} of {policy.rows:,} rows{since}{pace}{misfit}"
        if policy.grouping is not None:
            moving = policy.rows - policy.frozen_rows
            yield f"layout: tables.{name}: {policy.storage.value}, as {moving:,} of {policy.rows:,} rows may move"


def _rate(optimizer: TableOptimizer) -> str:
    rate = f"{optimizer.kind} {optimizer.learning_rate:g}"
    if optimizer.schedule.kind != "constant" or optimizer.schedule.warmup_steps:
        rate += f" {optimizer.schedule.kind}" + (" after warm-up" if optimizer.schedule.warmup_steps else "")
    return rate


def _features(plan: Plan, console: Console) -> Rich:
    spec = plan.asked
    made = terminal.table(console, ["feature", "table", "column", "weights", "gives"])
    ids = source_of(spec.data).description().ids_per_example
    for name, feature in spec.features.items():
        inner = [str(each) for each in (feature.output_shape or ())[1:]]
        if feature.max_sequence_length:
            inner = [str(feature.max_sequence_length)]
        if spec.column_of(name) in ids:
            inner = [ids[spec.column_of(name)]]
        shape = ", ".join(["B", *inner, str(plan.dims.get(feature.table, "dim"))])
        made.add_row(name, feature.table, spec.column_of(name), feature.weights or "", f"[{shape}]")
    return made


def _notes(plan: Plan) -> Iterator[str]:
    spec = plan.asked
    parts = [name for name in spec.tables if not isinstance(spec.freeze_of(name), NoFreeze | FreezeTable)]
    if parts and plan.policies is None:
        yield f"which rows of {', '.join(parts)} are frozen is known by `embexp plan --scan`"
    for name in spec.tables:
        optimizer = spec.optimizer_of(name)
        if isinstance(optimizer, Adam) and not optimizer.lazy_adam and not spec.frozen(name):
            yield f"O(vocabulary): tables.{name}: adam with lazy_adam=false moves every row at every step"
    for column, setting in source_of(spec.data).description().whole_tables.items():
        for table in {each.table for name, each in spec.features.items() if spec.column_of(name) == column}:
            if not spec.frozen(table):
                yield f"O(vocabulary): tables.{table}: {setting} moves every row at every step"
    if isinstance(spec.pretrained, File | Sample) and any(table.pretrained is None for table in spec.tables.values()):
        yield "pretrained.path fills tables that have no pretrained of their own, as far as it fits them"
    for place in list(spec.dense_from())[:1]:
        yield f"{place}.path gives the dense part too, unless {place}.dense=false"
    if any(plan.rows[name] is None for name in spec.tables):
        yield "rows from the data are counted by `embexp plan --scan`"
    if any(name not in plan.dims for name in spec.tables):
        yield "a dim from the file is known once the file is read: `embexp plan --scan`"
    for note in inert(spec):
        yield f"no effect: {note}"


def _pretrained(setting: Pretrained) -> str:
    match setting:
        case NoPretrained():
            return setting.kind
        case Checkpoint():
            return f"{setting.path} (match {setting.match}, missing {setting.missing}, slots {setting.slots})"
        case File() | Sample():
            path = setting.path
            if isinstance(setting, Sample) and path is None:
                path = f"sample of {setting.rows:,} × {setting.dim:,}"
            return f"{path} (match {setting.match}, missing {setting.missing}, project {setting.project})"
        case _:
            assert_never(setting)


def _own(table: Table) -> str:
    """What a table sets for itself; the rest it takes from the top level."""
    settings = {
        "optimizer": table.optimizer,
        "pretrained": table.pretrained,
        "init": table.init,
        "freeze": table.freeze,
    }
    return ", ".join(f"{name} {setting.kind}" for name, setting in settings.items() if setting is not None)
