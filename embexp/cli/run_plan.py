"""Plans for the terminal: of a run, of each run of a study, and the time that a run would take."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table as Rich

from embexp.cli import sparse_core_plan
from embexp.cli.sparse_core_plan import SparseCorePlan
from embexp.cli.stages import show_stages
from embexp.data import parts
from embexp.data.sources.source import source_of
from embexp.errors import plural
from embexp.reports import results
from embexp.runs.prepare import Prepared, check_memory, prepare
from embexp.specs.base import Note, after, merged, named_code, summarize_names
from embexp.specs.freezing import FreezeTable, NoFreeze
from embexp.specs.optimizers import TableOptimizer
from embexp.specs.pretrained import Checkpoint, File, NoPretrained, Pretrained, Sample
from embexp.specs.run import INHERITED, RunSpec, doubtful_settings, inert_settings
from embexp.specs.running import RuntimeKind
from embexp.specs.strategies import MultiWorker
from embexp.specs.studies import NoStudy
from embexp.specs.tables import Storage, Table
from embexp.specs.tasks import Compared
from embexp.specs.transforms import Fit
from embexp.system import environment, machine, stores, terminal
from embexp.system.terminal import byte_size, say
from embexp.training.progress import duration
from embexp.vectors.pretrained import aligned

if TYPE_CHECKING:
    from embexp.data.vocabularies.token_rows import Share, Shares
    from embexp.runs.dry_run import Timed
    from embexp.training.freezing.policies import TablePolicy

FROM_DATA = "from the data"
FROM_FILE = "from the file"
_DIRECTORY = Path("…")
"""Placeholder of the study's directory, which gets its name when the study starts."""


_LONGEST = 120
_LONG = "O(vocabulary): "
"""Lines of a configuration that are printed; the middle of a longer one is cut out."""
_NOTHING = Compared("", "")


@dataclass(frozen=True)
class Plan:
    """A planned run, with or without its data.

    Attributes:
        spec: the same, settled by the data and the pretrained files if they were read.
        rows: by table; None until the data is read.
        dims: by table, without those that depend on a pretrained file that was not read.
        policies: the frozen rows and the storage of each table; None until the data is read.
        run_id: digest of what decides its bits; None until the data is read.
        sizes: what steps and evaluations take, where the graph decides it, and what workers exchange; empty until the
            data is read.
        shares: by table and split, how many values have a row of their own; none until the data is read.
        sparse_cores: its tables on SparseCores; None without some, or where only the data tells the numbers of rows.
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
    sparse_cores: SparseCorePlan | None = None


def from_spec(spec: RunSpec) -> Plan:
    """The plan without the data; reads only the headers of pretrained files."""
    rows, dims = aligned.known_rows(spec), aligned.known_dims(spec.pretrained, spec.tables)
    layout = sparse_core_plan.plan(spec, rows, dims)
    return Plan(spec, spec, rows, dims, warnings=doubtful_settings(spec), sparse_cores=layout)


def from_prepared(prepared: Prepared) -> Plan:
    """The plan of a prepared run."""
    tables = prepared.tables
    dims = {name: table.width for name, table in tables.spec.tables.items()}
    return Plan(
        prepared.requested,
        tables.spec,
        tables.rows,
        dims,
        tables.policies,
        prepared.warnings,
        prepared.run_id,
        [*prepared.spec.task.memory_lines(prepared.spec, prepared.data), *_exchange_lines(prepared)],
        prepared.data.shares,
        sparse_core_plan.plan(tables.spec, tables.rows, dims, tables.policies, prepared),
    )


def show(spec: RunSpec, console: Console, *, scan: bool, trace: bool, timed: bool = False) -> None:
    """Prints what a run, or a study, would do.

    Raises:
        EmbexpError: `embexp run` would refuse the run, too.
    """
    if not isinstance(spec.study, NoStudy):
        _show_study(spec, console, scan=scan)
    elif not scan:
        _show(from_spec(spec), console)
    else:
        with show_stages() as stages:
            prepared = prepare(spec, stages)
        check_memory(prepared)
        _show(from_prepared(prepared), console)
        _show_pretrained(prepared, console)
        console.print()
        say(console, _length_line(prepared))
        if trace or timed:
            environment.load_tensorflow(**spec.strategy.kernels)
        if trace:
            _trace(prepared, console)
        if timed:
            from embexp.runs import dry_run, run

            with show_stages() as stages:
                measured = dry_run.measure(prepared, run.prepare_machine(prepared.spec.strategy), stages)
            stopping = prepared.spec.train.early_stopping.patience is not None
            for line in _time_lines(measured, may_stop_early=stopping):
                say(console, line)


def _show_pretrained(prepared: Prepared, console: Console) -> None:
    content = prepared.tables.pretrained.as_json()
    if (table := results.coverage_table(content, console)) is not None:
        console.print()
        console.print(table)
    for note in merged(prepared.notes):
        say(console, note)
    for name, why in content["unfit"].items():
        say(console, f"no effect: pretrained on tables.{name}: {why}")


def _trace(prepared: Prepared, console: Console) -> None:
    """Traces a training step and prints what it is; shortens a long configuration."""
    from embexp.runs import dry_run

    with show_stages() as stages:
        traced = dry_run.trace(prepared, stages)
    allocated = f"allocated, but not filled: {byte_size(traced.allocated_bytes)} of tables and slots"
    say(console)
    say(console, f"traced: the training step is a graph of {byte_size(traced.graph_bytes)}; {allocated}")
    if traced.tpu_operations:
        say(console)
        say(console, "operations of the TPU (simulated), in order of first appearance:")
        for operation, count in Counter(map(str, traced.tpu_operations)).items():
            say(console, f"  {f'{count} × ' if count > 1 else ''}{operation}")
    if traced.configuration:
        lines, half = traced.configuration.rstrip().splitlines(), _LONGEST // 2
        if len(lines) > _LONGEST:
            lines = [*lines[:half], f"… {len(lines) - 2 * half} more lines …", *lines[-half:]]
        say(console)
        say(console, "TPUEmbeddingConfiguration:")
        for line in lines:
            say(console, f"  {line}")


def _show(plan: Plan, console: Console) -> None:
    for key, text in _headlines(plan):
        say(console, f"{key:10}{text}")
    say(console)
    console.print(_tables(plan, console))
    say(console)
    console.print(_features(plan, console))
    if plan.sparse_cores is not None:
        plan.sparse_cores.show(console)
    if any(share.count for of in plan.shares.values() for share in of.values()):
        say(console)
        console.print(shares_table(plan.shares, console))
    notes = merged([*after("warning: ", plan.warnings), *_frozen(plan.policies or {}), *plan.sizes, *_notes(plan)])
    if notes:
        say(console)
    for note in notes:
        say(console, note)


def _headlines(plan: Plan) -> Iterator[tuple[str, str]]:
    spec, train = plan.requested, plan.requested.train
    length = [f"{train.epochs:g} {'epoch' if train.epochs == 1 else 'epochs'}" if train.epochs is not None else ""]
    length.append(plural(train.steps, "step") if train.steps is not None else "")
    dense = spec.dense_optimizer
    yield "run", f"{spec.name}: task {spec.task}, seed {spec.seed}"
    yield "data", stores.named(source_of(spec.data).description().headline)
    if shown := spec.data.described_numbers():
        yield "numbers", shown
    yield "model", f"{spec.model.kind}, dense optimizer {dense.kind} (learning rate {dense.learning_rate:g})"
    yield "training", f"{' or '.join(filter(None, length))}, batch size {train.batch_size:,}"
    own = any(getattr(table, name) for table in spec.tables.values() for name in ("pretrained", "init", "freeze"))
    inherited = f"pretrained {_pretrained(spec.pretrained)}, init {spec.init.kind}, freeze {spec.freeze.kind}"
    yield "tables", f"{inherited}, unless a table has its own" if own else inherited
    runtime = spec.executing_runtime
    chosen = " (auto)" if spec.runtime.kind is RuntimeKind.AUTO else ""
    yield "where", f"strategy {spec.strategy.described}, runtime {runtime}{chosen}"
    kernels = "TensorFlow's and oneDNN's" if machine.onednn(spec.strategy.kernels["onednn"]) else "TensorFlow's own"
    pieces = plural(machine.pieces(spec.strategy.wanted_pieces), "piece")
    yield "kernels", f"{kernels}, large operations in {pieces}"
    yield "saving", spec.checkpoint.described
    if spec.restore.path is not None:
        what = "everything" if spec.restore.only is None else ", ".join(spec.restore.only)
        yield "restore", f"{what} from {spec.restore.path}"
    if plan.run_id is not None:
        yield "run_id", plan.run_id


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
        slots, row = 0 if frozen else each.slot_bytes(optimizer, dim or 0), each.row_bytes(dim or 0)
        of_row = {"parameters": row, "slots": slots, "frozen": row * (frozen or name in policies)}
        if rows is not None and dim is not None:
            counts = dict.fromkeys(of_row, rows) | _counts(policies.get(name))
            amounts = {what: counts[what] * size for what, size in of_row.items()}
            sums = {what: sums[what] + amount for what, amount in amounts.items()}
            shown = [byte_size(amount) for amount in amounts.values()]
        elif dim is not None:
            shown = [f"{byte_size(size)}/row" for size in of_row.values()]
        else:
            shown = [FROM_FILE, "", ""]
        table.add_row(
            name,
            FROM_DATA if rows is None else f"{rows:,}",
            _dims(each, dim),
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


def _dims(table: Table, dim: int | None) -> str:
    """The dim of a table's rows, and what an adapter makes of it."""
    shown = FROM_FILE if dim is None else str(dim)
    return shown if table.adapter is None else f"{shown} → {table.adapter.dim}"


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
        adapter, dim = spec.tables[feature.table].adapter, plan.dims.get(feature.table, "dim")
        shape = ", ".join(["B", *inner, str(dim if adapter is None else adapter.dim)])
        column = spec.column_of(name) + (" in buckets" if feature.buckets.given else "")
        table.add_row(name, feature.table, column, feature.weights or "", f"[{shape}]")
    return table


def _notes(plan: Plan) -> Iterator[str]:
    spec = plan.requested
    unknown = [name for name in spec.tables if not isinstance(spec.freeze_of(name), NoFreeze | FreezeTable)]
    if unknown and plan.policies is None:
        yield f"`embexp plan --scan` shows which rows of {summarize_names(unknown)} are frozen"
    for name, read in spec.environment.items():
        yield read.described(name)
    for name, function in spec.resolvers.items():
        yield f"called to compute values of the config: {function} (resolvers.{name})"
    for path, code in named_code(spec):
        yield f"not checked: {code.function} ({path}.function)"
    for name in spec.tables:
        optimizer = spec.optimizer_of(name)
        if optimizer.moves_every_row and not spec.frozen(name):
            yield Note(f"tables.{name}", "adam with lazy_adam=false updates every row at every step", _LONG)
    for feature, compared in spec.task.compared(spec).items():
        table = spec.features[feature].table
        if compared.every and not spec.frozen(table):
            yield Note(f"tables.{table}", f"{compared.path}={compared.value} updates every row at every step", _LONG)
    for name in spec.tables:
        if (adapter := spec.tables[name].adapter) is not None and (dim := plan.dims.get(name)) is not None:
            size = byte_size(4 * dim * adapter.dim)
            matrix = f"a matrix of {dim:,} × {adapter.dim:,} ({size}), trained with the dense part"
            yield Note(f"tables.{name}.adapter", matrix)
        if spec.tables[name].reset is not None:
            again = "with each epoch, rows start again that are neither pretrained nor frozen"
            yield Note(f"tables.{name}.reset", again)
    if isinstance(spec.pretrained, File | Sample) and any(table.pretrained is None for table in spec.tables.values()):
        yield "pretrained.path fills every table without its own pretrained setting, where it fits"
    for place in list(spec.dense_from())[:1]:
        yield f"{place}.path also restores the dense part, unless {place}.dense=false"
    if any(plan.rows[name] is None for name in spec.tables):
        yield "`embexp plan --scan` counts the rows from the data"
    if any(name not in plan.dims for name in spec.tables):
        yield "`embexp plan --scan` reads the dims from the file"
    yield from after("no effect: ", inert_settings(spec))


def _pretrained(setting: Pretrained) -> str:
    if isinstance(setting, NoPretrained):
        return setting.kind
    path = setting.path
    if isinstance(setting, Sample) and path is None:
        path = f"sample of {setting.rows:,} × {setting.dim:,}"
    if isinstance(setting, Checkpoint):
        last = f"slots {setting.slots}"
    else:
        last = f"transform {', '.join(step.described for step in setting.transform) or 'none'}"
        last += f", fitted on the rows that are {setting.fit}" if setting.fit is not Fit.FILE else ""
    return f"{path} (match {setting.match}, missing {setting.missing}, {last})"


def _own(table: Table) -> str:
    """The table's own settings; it inherits the others from the top level."""
    settings = {name: getattr(table, name) for name in INHERITED}
    chosen = [f"{name} {setting.kind}" for name, setting in settings.items() if setting is not None]
    chosen += [f"{key} {getattr(table, key)}" for key in ("dtype", "slot_dtype") if getattr(table, key).bytes != 4]
    return ", ".join([*chosen, *(f"{name} {value}" for name, value in table.vocabulary.own.items())])


def shares_table(shares: Shares, console: Console) -> Rich:
    """Per table, the values of each split without a row of their own."""
    splits = list(next(iter(shares.values())))
    found = terminal.table(console, ["values", *splits])
    for name, of in shares.items():
        found.add_row(name, *(_share(of[split]) for split in splits))
    return found


def _share(share: Share) -> str:
    """`1.2% missing, 0.4% unknown` of the values; `all known` where each has a row of its own."""
    if not share.count:
        return "none"
    parts = {"missing": share.missing, "rare": share.rare, "unknown": share.unknown}
    fractions = {kind: count / share.count for kind, count in parts.items() if count}
    shown = [
        f"{fraction:.2%} {kind}" if fraction >= 0.0001 else f"< 0.01% {kind}" for kind, fraction in fractions.items()
    ]
    return ", ".join(shown) or "all known"


def _show_study(spec: RunSpec, console: Console, *, scan: bool) -> None:
    study, prepared = spec.study, dict[str, Prepared]()
    with show_stages() as stages, tempfile.TemporaryDirectory() as folder:
        cut = parts.cut_for(study, spec.data, Path(folder), stages)
        runs = study.runs(spec, Path(folder) if cut else _DIRECTORY)
        for name, run in runs.items() if scan else ():
            # It has the rows that the run will have from whose checkpoint it starts.
            before = None if (base := study.base_of(name)) is None else prepared[base]
            prepared[name] = prepare(run, stages, base=before)
    for number, (name, run) in enumerate(runs.items(), 1):
        say(console, f"{number} of {len(runs)}, {name}: {study.description(name)}")
        if name in prepared:
            _show(from_prepared(prepared[name]), console)
            say(console, _length_line(prepared[name]))
        else:
            _show(from_spec(run), console)
        say(console)
    say(console, f"{len(runs)} runs, in the folders {', '.join(runs)}; then their comparison")


def _length_line(prepared: Prepared) -> str:
    examples, batch, steps = prepared.data.training_examples, prepared.spec.train.batch_size, prepared.schedule.steps
    splits = prepared.data.scan.splits.items()
    others = [f"{len(rows):,} for {split}" for split, rows in splits if split != "train" and len(rows)]
    found = ", ".join([f"{examples:,} examples for training", *others])
    return f"length    {found}; {plural(steps, 'step')}, {examples / batch:,.4g} per epoch"


def _time_lines(timed: Timed, *, may_stop_early: bool) -> Iterator[str]:
    """The estimate, with what it is made of and how sure it is; at most that if the run may stop early."""
    low, high = (1000 * quartile for quartile in timed.quartiles)
    yield (
        f"step      {1000 * timed.step:.3g} ms (interquartile range of the timed calls: {low:.3g} to {high:.3g} ms;"
        f" {plural(timed.steps, 'step')} timed)"
    )
    for split, seconds in timed.evaluations.items():
        times = f", {plural(timed.validations, 'time')}" if split == "validation" else ", at the end"
        yield f"evaluate  {split}: {seconds:.2g} s{times}"
    most = "at most " if may_stop_early else ""
    yield (
        f"time      {most}about {duration(timed.total)} (± {timed.spread:.0%} for the steps): {duration(timed.start)}"
        f" to start, {duration(timed.training)} for {plural(timed.training_steps, 'step')},"
        f" {duration(timed.evaluating)} for evaluations; without checkpoints, digests and plots"
    )


def _exchange_lines(prepared: Prepared) -> Iterator[str]:
    """What several workers would exchange in a step, by table: sharded, and mirrored; nothing where there is one.

    With W workers, R distinct rows of a worker's part of a batch, and rows of d numbers, all workers together send

        sharded    W (W - 1) (R / W) (8 d + 4) bytes: ids, rows, and gradients unless the table is frozen
        mirrored   W (W - 1) R (4 d + 4): ids and gradients; nothing of a frozen table
                   8 (W - 1) V d: gradients of a table of V rows of which a step looks up all in order

    if all owners are asked for as many rows, and without padding. A row that is looked up n times in a part on average
    is among the R with a probability of 1 - exp(-n).
    """
    spec, strategy = prepared.spec, prepared.spec.strategy
    if not isinstance(strategy, MultiWorker) or strategy.workers == 1:
        return
    for name, table in spec.tables.items():
        rows, frozen = prepared.tables.rows[name], prepared.tables.policies[name].fully_frozen
        distinct = float(-np.expm1(-lookups(prepared, name, strategy.workers)).sum())
        every = [feature for feature, more in spec.task.compared(spec).items() if more.every]
        whole = name in {spec.features[feature].table for feature in every}
        sizes = bytes_sent(strategy.workers, distinct, table.width, frozen=frozen, whole=rows if whole else None)
        chosen = "mirrored" if table.storage is Storage.MIRRORED else "sharded"
        other = next(each for each in sizes if each != chosen)
        sent = f"{chosen}, workers send about {byte_size(sizes[chosen])} per step"
        yield f"exchange: tables.{name}: {sent}, and {byte_size(sizes[other])} if it were {other}"


def bytes_sent(
    workers: int, distinct: float, dim: int, *, frozen: bool = False, whole: int | None = None
) -> dict[str, int]:
    """Bytes that all workers together send in a step for a table, by `sharded` and `mirrored`; see `_exchange_lines`.

    Args:
        distinct: rows that a worker's part looks up.
        whole: rows of the table, if a step looks up all in order.
    """
    sharded = (workers - 1) * distinct * ((4 if frozen else 8) * dim + 4)
    mirrored = workers * (workers - 1) * distinct * (4 * dim + 4)
    if whole is not None:
        mirrored = 8 * (workers - 1) * whole * dim
    return {"sharded": round(sharded), "mirrored": 0 if frozen else round(mirrored)}


def lookups(prepared: Prepared, table: str, workers: int) -> np.ndarray:
    """How often a worker's part of a batch looks up each row of a table on average, float64 [rows]."""
    spec, scan = prepared.spec, prepared.data.scan
    train, rows = scan.splits["train"], prepared.tables.rows[table]
    part = spec.train.batch_size / workers
    found = np.zeros(rows)
    for feature in spec.features_of(table):
        compared = spec.task.compared(spec).get(feature, _NOTHING)
        if not compared.made:
            examples = spec.train.batch_size if compared.whole_batch else part
            found += scan.examples.counts(spec.ids_of(feature), train, rows) * (examples / len(train))
        # Drawn ones are taken as drawn uniformly.
        found += np.inf if compared.every else (part * compared.of_example + compared.of_batch) / rows
    return found
