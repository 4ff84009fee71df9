"""A run before it is run, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from rich.console import Console
from rich.table import Table as Rich

from embexp import terminal
from embexp.specs.data import Clicks, Data, SplitKind
from embexp.specs.notes import inert
from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, TableOptimizer
from embexp.specs.pretrained import File, NoPretrained, Pretrained
from embexp.specs.run import RunSpec
from embexp.specs.tables import Table

FLOAT_BYTES = 4
UNKNOWN = "from the data"


def known_rows(spec: RunSpec) -> dict[str, int | None]:
    """Rows of each table as far as the config tells: a vocabulary of files is only known once they are read."""
    rows: dict[str, int | None] = {}
    for name, table in spec.tables.items():
        rows[name] = table.vocabulary_size
        if rows[name] is None and isinstance(spec.data, Clicks):
            columns = [spec.column_of(feature) for feature in spec.features_of(name)]
            rows[name] = spec.data.users if "user" in columns else spec.data.items
    return rows


def slots(optimizer: TableOptimizer) -> int:
    """Numbers that an optimizer keeps for each parameter."""
    match optimizer:
        case SGD():
            return 0
        case Adagrad():
            return 1
        case AdagradMomentum() | Adam() | FTRL():
            return 2
        case _:
            assert_never(optimizer)


def show(spec: RunSpec, rows: Mapping[str, int | None], console: Console) -> None:
    """Prints what a run would do.

    Args:
        spec: the run.
        rows: of each table, None where only the data tells.
        console: where to print.
    """

    def say(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    for what, words in _headlines(spec):
        say(f"{what:10}{words}")
    say()
    console.print(_tables(spec, rows, console))
    say()
    console.print(_features(spec, console))
    notes = list(_notes(spec, rows))
    if notes:
        say()
    for note in notes:
        say(note)


def _headlines(spec: RunSpec) -> Iterator[tuple[str, str]]:
    train = spec.train
    length = [f"{train.epochs:g} epochs" if train.epochs is not None else ""]
    length.append(f"{train.steps:,} steps" if train.steps is not None else "")
    dense = spec.dense_optimizer
    yield "run", f"{spec.name}: task {spec.task}, seed {spec.seed}"
    yield "data", _data(spec.data)
    yield "model", f"{spec.model.kind}, dense optimizer {dense.kind} (learning rate {dense.learning_rate:g})"
    yield "training", f"{' or '.join(filter(None, length))} of {train.batch_size:,} examples a step"
    yield "tables", f"pretrained {_pretrained(spec.pretrained)}, init {spec.init.kind}, freeze {spec.freeze.kind}"
    yield "where", f"strategy {spec.strategy.kind}, runtime {spec.runtime.kind}"


def _data(data: Data) -> str:
    source = f"{data.examples:,} synthetic clicks" if isinstance(data, Clicks) else f"{data.kind} {data.path}"
    split = data.split
    match split.kind:
        case SplitKind.FOLDS:
            how = f"fold {data.fold} of {data.folds} tests, {split.validation:.0%} of the rest validates"
        case SplitKind.LEAVE_ONE_OUT:
            how = f"the last of each {split.group} tests, the one before validates"
        case SplitKind.RANDOM:
            how = f"{split.validation:.0%} validates, {split.test:.0%} tests, at random"
        case SplitKind.TIME:
            how = f"the last {split.test:.0%} test, the {split.validation:.0%} before validate"
        case _:
            assert_never(split.kind)
    return f"{source}; {how}"


def _tables(spec: RunSpec, rows: Mapping[str, int | None], console: Console) -> Rich:
    made = terminal.table(
        console,
        ["table"],
        right=["rows", "dim", "parameters", "slots"],
        after=["combiner", "optimizer", "of its own"],
    )
    parameters = kept = 0
    for name, each in spec.tables.items():
        optimizer = spec.optimizer_of(name)
        count, width = rows[name], FLOAT_BYTES * each.dim
        if count is None:
            amounts = [UNKNOWN, str(each.dim), f"{size(width)}/row", f"{size(width * slots(optimizer))}/row"]
        else:
            parameters += count * width
            kept += count * width * slots(optimizer)
            amounts = [
                f"{count:,}", str(each.dim), size(count * width), size(count * width * slots(optimizer))
            ]  # fmt: skip
        rate = f"{optimizer.kind} {optimizer.learning_rate:g}"
        if optimizer.schedule.kind != "constant" or optimizer.schedule.warmup_steps:
            rate += f" {optimizer.schedule.kind}" + (" after warm-up" if optimizer.schedule.warmup_steps else "")
        made.add_row(name, *amounts, each.combiner.value, rate, _own(each))
    unknown = any(rows[name] is None for name in spec.tables)
    plus = " + …" if unknown else ""
    made.add_row("all", "", "", f"{size(parameters)}{plus}", f"{size(kept)}{plus}", *[""] * 3, style="bold")
    return made


def _features(spec: RunSpec, console: Console) -> Rich:
    made = terminal.table(console, ["feature", "table", "column", "weights", "gives"])
    for name, feature in spec.features.items():
        inner = [str(each) for each in (feature.output_shape or ())[1:]]
        if feature.max_sequence_length:
            inner = [str(feature.max_sequence_length)]
        shape = ", ".join(["B", *inner, str(spec.tables[feature.table].dim)])
        made.add_row(name, feature.table, spec.column_of(name), feature.weights or "", f"[{shape}]")
    return made


def _notes(spec: RunSpec, rows: Mapping[str, int | None]) -> Iterator[str]:
    for name in spec.tables:
        optimizer = spec.optimizer_of(name)
        if isinstance(optimizer, Adam) and not optimizer.lazy_adam:
            yield f"O(vocabulary): tables.{name}: adam with lazy_adam=false moves every row at every step"
    if isinstance(spec.pretrained, File) and any(table.pretrained is None for table in spec.tables.values()):
        yield "pretrained.path fills tables that have no pretrained of their own, as far as it fits them"
    if any(rows[name] is None for name in spec.tables):
        yield "rows from the data are counted by `embexp plan --scan`"
    for note in inert(spec):
        yield f"no effect: {note}"


def size(count: int) -> str:
    """Bytes for people; 1 kB is 1,000."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"


def _pretrained(setting: Pretrained) -> str:
    match setting:
        case NoPretrained():
            return setting.kind
        case File():
            return f"{setting.path} (match {setting.match}, missing {setting.missing}, project {setting.project})"
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
