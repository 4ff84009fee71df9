"""The plan of a run as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from rich.console import Console
from rich.table import Table as Rich

from embexp.cli import planned_values
from embexp.data.sources.factory import source_of
from embexp.pretrained import checks
from embexp.specs import graph_sizes
from embexp.specs.alike import few, merged
from embexp.specs.freezing import FreezeTable, NoFreeze
from embexp.specs.notes import doubtful, inert
from embexp.specs.optimizers import Adam, TableOptimizer, slot_count
from embexp.specs.pretrained import Checkpoint, File, NoPretrained, Pretrained, Sample
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage, Table
from embexp.system import terminal
from embexp.system.terminal import byte_size

if TYPE_CHECKING:
    from embexp.data.vocabularies.token_rows import Shares
    from embexp.freezing.policies import TablePolicy
    from embexp.runs.prepare import Prepared

FLOAT_BYTES = 4
FROM_DATA = "from the data"
FROM_FILE = "from the file"


@dataclass(frozen=True)
class Plan:
    """A planned run, with or without its data.

    Attributes:
        requested: what the user asked for.
        spec: the same, settled by the data and the pretrained files if they were read.
        rows: by table; None until the data is read.
        dims: by table, without those that depend on a pretrained file that was not read.
        policies: the frozen rows and the storage of each table; None until the data is read.
        warnings: of the run.
        run_id: digest of what decides its bits; None until the data is read.
        sizes: what steps and evaluations take, where the graph decides it; empty until the data is read.
        shares: by table and split, how many values have a row of their own; none until the data is read.
    """

    requested: RunSpec
    spec: RunSpec
    rows: Mapping[str, int | None]
    dims: Mapping[str, int]
    policies: Mapping[str, TablePolicy] | None = None
    warnings: Sequence[str] = ()
    run_id: str | None = None
    sizes: Sequence[str] = ()
    shares: Shares = field(default_factory=dict)


def from_spec(spec: RunSpec) -> Plan:
    """The plan without the data; reads only the headers of pretrained files."""
    return Plan(spec, spec, checks.rows(spec), checks.dims(spec.pretrained, spec.tables), warnings=doubtful(spec))


def from_prepared(prepared: Prepared) -> Plan:
    """The plan of a prepared run."""
    tables = prepared.tables
    dims = {name: table.width for name, table in tables.spec.tables.items()}
    sizes = [] if prepared.data.candidates is None else _sizes(prepared.spec, prepared.data.candidates.entities)
    return Plan(
        prepared.requested,
        tables.spec,
        tables.rows,
        dims,
        tables.policies,
        prepared.warnings,
        prepared.run_id,
        sizes,
        prepared.data.shares,
    )


def show(plan: Plan, console: Console) -> None:
    """Prints the plan."""

    def line(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    for key, text in _headlines(plan.requested):
        line(f"{key:10}{text}")
    if plan.run_id is not None:
        line(f"{'run_id':10}{plan.run_id}")
    line()
    console.print(_tables(plan, console))
    line()
    console.print(_features(plan, console))
    if any(share.count for of in plan.shares.values() for share in of.values()):
        line()
        console.print(planned_values.table(plan.shares, console))
    warnings = [f"warning: {each}" for each in plan.warnings]
    notes = merged([*warnings, *_frozen(plan.policies or {}), *plan.sizes, *_notes(plan)])
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
    if shown := spec.data.described_numbers():
        yield "numbers", shown
    yield "model", f"{spec.model.kind}, dense optimizer {dense.kind} (learning rate {dense.learning_rate:g})"
    yield "training", f"{' or '.join(filter(None, length))} of {train.batch_size:,} examples a step"
    yield "tables", f"pretrained {_pretrained(spec.pretrained)}, init {spec.init.kind}, freeze {spec.freeze.kind}"
    runtime = spec.executing_runtime
    chosen = " (auto)" if spec.runtime.kind is RuntimeKind.AUTO else ""
    yield "where", f"strategy {spec.strategy.described}, runtime {runtime}{chosen}"
    yield "saving", spec.checkpoint.described
    if spec.restore.path is not None:
        what = "everything" if spec.restore.only is None else ", ".join(spec.restore.only)
        yield "restore", f"{what} from {spec.restore.path}"


def _tables(plan: Plan, console: Console) -> Rich:
    spec, policies = plan.spec, plan.policies or {}
    table = terminal.table(
        console,
        ["table"],
        right=["rows", "dim", "parameters", "slots", "frozen"],
        after=["init", "freeze", "combiner", "optimizer", "own settings"],
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
        table.add_row(
            name,
            FROM_DATA if rows is None else f"{rows:,}",
            FROM_FILE if dim is None else str(dim),
            *shown,
            spec.init_of(name).kind,
            spec.freeze_of(name).kind,
            each.combiner.value,
            "" if frozen else _rate(optimizer),
            _own(plan.requested.tables[name]),
        )
    plus = " + …" if any(plan.rows[name] is None or name not in plan.dims for name in spec.tables) else ""
    table.add_row("all", "", "", *(f"{byte_size(amount)}{plus}" for amount in sums.values()), *[""] * 5, style="bold")
    return table


def _counts(policy: TablePolicy | None) -> dict[str, int]:
    """Numbers of rows with slots and of frozen rows, where they differ from the number of all rows."""
    if policy is None:
        return {}
    if policy.grouping is None:
        return {"slots": 0 if policy.fully_frozen else policy.rows, "frozen": policy.frozen_rows}
    split = policy.storage is not Storage.VARIABLE
    return {"slots": policy.rows - (policy.frozen_rows if split else 0), "frozen": policy.frozen_rows}


def _frozen(policies: Mapping[str, TablePolicy]) -> Iterator[str]:
    """How many rows each rule of a policy covers, and the storage of the table."""
    for name, policy in policies.items():
        starts = (0,) if policy.grouping is None else policy.grouping.starts
        for each in policy.taken:
            start = starts[each.phase] if each.phase < len(starts) else 0
            since = f" from step {start:,}" if start else ""
            rate = f" (learning rate × {each.multiplier:g})" if each.multiplier else ""
            shortfall = f"; {each.shortfall}" if each.shortfall else ""
            covered = f"{each.kind} covers {each.rows:,} of {policy.rows:,} rows"
            yield f"freeze: tables.{name}: {covered}{since}{rate}{shortfall}"
        if policy.grouping is not None:
            trainable = policy.rows - policy.frozen_rows
            yield f"layout: tables.{name}: {policy.storage.value}, {trainable:,} of {policy.rows:,} rows are trainable"


def _rate(optimizer: TableOptimizer) -> str:
    rate = f"{optimizer.kind} {optimizer.learning_rate:g}"
    if optimizer.schedule.kind != "constant" or optimizer.schedule.warmup_steps:
        rate += f" {optimizer.schedule.kind}" + (" after warm-up" if optimizer.schedule.warmup_steps else "")
    return rate


def _features(plan: Plan, console: Console) -> Rich:
    spec = plan.requested
    table = terminal.table(console, ["feature", "table", "column", "weights", "output"])
    ids = source_of(spec.data).description().ids_per_example
    for name, feature in spec.features.items():
        inner = [str(each) for each in (feature.output_shape or ())[1:]]
        if feature.max_sequence_length:
            inner = [str(feature.max_sequence_length)]
        if spec.column_of(name) in ids:
            inner = [ids[spec.column_of(name)]]
        shape = ", ".join(["B", *inner, str(plan.dims.get(feature.table, "dim"))])
        column = spec.column_of(name) + (" in buckets" if feature.buckets.given else "")
        table.add_row(name, feature.table, column, feature.weights or "", f"[{shape}]")
    return table


def _sizes(spec: RunSpec, entities: int) -> list[str]:
    """What steps and evaluations of a knowledge graph take, beyond tables and slots."""
    queries = graph_sizes.evaluation_batch(entities, spec.evaluation_batch_size)
    return [
        f"memory: a step takes about {byte_size(graph_sizes.step_bytes(spec, entities))} beyond tables and slots",
        f"memory: an evaluation takes about {byte_size(graph_sizes.evaluation_bytes(spec, entities))} beyond tables,"
        f" ranking {queries:,} queries at a time among {entities:,} entities",
    ]


def _notes(plan: Plan) -> Iterator[str]:
    spec = plan.requested
    unknown = [name for name in spec.tables if not isinstance(spec.freeze_of(name), NoFreeze | FreezeTable)]
    if unknown and plan.policies is None:
        yield f"`embexp plan --scan` shows which rows of {few(unknown)} are frozen"
    for name in spec.tables:
        optimizer = spec.optimizer_of(name)
        if isinstance(optimizer, Adam) and not optimizer.lazy_adam and not spec.frozen(name):
            yield f"O(vocabulary): tables.{name}: adam with lazy_adam=false updates every row at every step"
    for column, setting in source_of(spec.data).description().whole_tables.items():
        for table in {each.table for name, each in spec.features.items() if spec.column_of(name) == column}:
            if not spec.frozen(table):
                yield f"O(vocabulary): tables.{table}: {setting} updates every row at every step"
    if isinstance(spec.pretrained, File | Sample) and any(table.pretrained is None for table in spec.tables.values()):
        yield "pretrained.path fills every table without its own pretrained setting, where it fits"
    for place in list(spec.dense_from())[:1]:
        yield f"{place}.path also restores the dense part, unless {place}.dense=false"
    if any(plan.rows[name] is None for name in spec.tables):
        yield "`embexp plan --scan` counts the rows from the data"
    if any(name not in plan.dims for name in spec.tables):
        yield "`embexp plan --scan` reads the dims from the file"
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
    """The table's own settings; it inherits the others from the top level."""
    settings = {
        "optimizer": table.optimizer,
        "pretrained": table.pretrained,
        "init": table.init,
        "freeze": table.freeze,
    }
    chosen = [f"{name} {setting.kind}" for name, setting in settings.items() if setting is not None]
    return ", ".join([*chosen, *(f"{name} {value}" for name, value in table.vocabulary.own.items())])
