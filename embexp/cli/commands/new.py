"""`embexp new`: looks at a file and writes a first experiment."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE
from embexp.errors import CommandLineError
from embexp.system.printable import print

if TYPE_CHECKING:
    from embexp.cli.column_uses import Use
    from embexp.data.files.samples import ColumnFacts, Sample

HELP = """\
usage: embexp new --data FILE [--label COLUMN] --out FOLDER [OPTIONS]

Reads a sample of a file, shows what its columns contain and how they are used, and writes a first experiment with
comments: FOLDER/experiment/NAME.yaml, for `embexp run --config-dir FOLDER experiment=NAME`.

    --data FILE      A file of text (CSV, TSV and the like, perhaps compressed), a Parquet file, a folder of such files,
                     or a folder of RecBole.
    --label COLUMN   The column to predict, numbers or text. Without it: recommendation, if the columns are a user and
                     an item; else shows the columns and suggests labels.
    --out FOLDER     The folder of configs; it is created if it does not exist.
    --task TASK      binary, classification, regression or recommendation (default: by the label).
    --category A,B,… Columns that become embedding tables: numbers that are codes.
    --number A,B,…   Columns that stay numbers, and become no table.
    --ignore A,B,…   Columns that are left out.
    --time COLUMN    The time, by which the latest examples validate and test.
    --group COLUMN   The user, of each of whom the last example tests; for recommendation the user.
    --names A,B,…    The names of the columns of a text file without a header line (default: column_1, column_2, …).
    --name NAME      The name of the experiment (default: that of the file).
    --force          Replaces the experiment if there is one of that name.

rules
    label            Two values: task=binary (data.positive says which is 1). Several texts, or the whole numbers from 0
                     on: task=classification. Other numbers: task=regression.
    categories       Text that recurs, ids, and up to 10 different whole numbers: each gets an embedding table. dim: the
                     power of two nearest to 4 · (number of values)^(1/4), from 4 to 64.
    numbers          Standardized, after log1p where a few values are much larger than the others. Whole numbers that
                     recur, 20 times on average, may be codes: they get a table, too. With 100 different values and
                     1,000 rows, also a table of 32 buckets.
    lists, texts     Split, and embedded: the vectors of an example are averaged.
    time             A date, a number of 1990 to 2040 since 1970, or of such a name: the latest validate and test.
    left out         What is the same, or different, in every row; a second time.
"""

_SHOWN = 40
_OF_COLUMNS = ("category", "number", "ignore", "time", "group")
_TASKS = ("binary", "classification", "regression", "recommendation")


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("new", HELP)
    parser.needs("--data", "which data? Give --data FILE")
    parser.values("--label", "--out", "--name", "--names", "--task", "--category", "--number", "--ignore")
    parser.values("--time", "--group")
    parser.switches("--force")
    options = parser.parse(arguments)
    from embexp.cli import column_uses, first_experiment
    from embexp.data.files.samples import facts, sample
    from embexp.system import files

    if options.task not in (None, *_TASKS):
        raise CommandLineError(f"embexp new: --task {options.task}: it must be one of {', '.join(_TASKS)}")
    _check_form(Path(options.data))
    found = sample(Path(options.data), None if options.names is None else options.names.split(","))
    columns = facts(found)
    category, number, ignore, time, group = (_columns(options, columns, name) for name in _OF_COLUMNS)
    wishes = column_uses.Wishes(category, number, ignore, next(iter(time), None), next(iter(group), None))
    pair = None
    if options.label is None and options.task in (None, "recommendation"):
        pair = column_uses.interaction(columns, wishes)
        if options.task is None and column_uses.label_candidates(columns):
            pair = None
    if options.label is None and pair is None:
        _show(found, [column_uses.Use(column, (column_uses.Role.OUT,)) for column in columns], decided=False)
        if options.task == "recommendation":
            rule = "which columns are the user and the item? Give --group USER --category ITEM"
            raise CommandLineError(f"embexp new: --task recommendation: {rule}")
        raise CommandLineError(f"embexp new: --label COLUMN is missing\n    {_suggestion(columns)}")
    if options.out is None:
        raise CommandLineError("embexp new: --out FOLDER is missing\n    embexp new --help")
    if pair is not None:
        predicted = column_uses.Prediction(
            "recommendation", f"each row is an interaction of {pair[0].name} with {pair[1].name}"
        )
        uses = column_uses.uses_of_interactions(columns, *pair, wishes)
    else:
        label = _label(columns, options.label)
        predicted = column_uses.prediction(label, options.task)
        uses = column_uses.uses(columns, label.name, rows=found.rows, splits_text=found.kind == "csv", wishes=wishes)
    name = _name(options.name, Path(options.data))
    file = Path(options.out) / "experiment" / f"{name}.yaml"
    exists = CommandLineError(f"embexp new: {file} exists\n    give another --name, or --force to replace it")
    if file.exists() and not options.force:
        raise exists
    command = f"embexp run --config-dir {shlex.quote(options.out)} experiment={name}"
    experiment = first_experiment.Experiment(name, predicted, found, uses, command)
    _show(found, uses, decided=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        (files.write_text if options.force else files.write_new_text)(file, first_experiment.text(experiment))
    except FileExistsError:
        raise exists from None
    print(f"task {predicted.task}: {predicted.why}")
    print(f"wrote {file}\n\n    {command.replace('run', 'plan --scan', 1)}\n    {command}")
    return DONE


def _columns(options: Any, columns: Sequence[ColumnFacts], option: str) -> tuple[str, ...]:
    """The columns that an option names."""
    from embexp.config.messages import did_you_mean

    text, known = getattr(options, option), [column.name for column in columns]
    if text is None:
        return ()
    names = (text,) if text in known or option in ("time", "group") else tuple(text.split(","))
    for name in names:
        if name not in known:
            near = did_you_mean(name, known) or f"its columns are: {', '.join(known[:20])}"
            raise CommandLineError(f"embexp new: --{option} {name}: the data has no such column\n    {near}")
    return names


def _check_form(data: Path) -> None:
    """Raises CommandLineError for JSON, which no source reads."""
    form = next((suffix for suffix in data.suffixes if suffix.lower() in (".json", ".jsonl", ".ndjson")), None)
    if form is not None:
        lines = "" if form.lower() == ".json" else ", lines=True"
        parquet = data.with_name(data.name.partition(".")[0] + ".parquet").name
        script = f"import pandas; pandas.read_json({str(data)!r}{lines}).to_parquet({parquet!r})"
        raise CommandLineError(
            f"embexp new: --data {data}: JSON is not read; convert it to Parquet first\n"
            f"    python -c {shlex.quote(script)}"
        )


def _label(columns: Sequence[ColumnFacts], name: str) -> ColumnFacts:
    from embexp.config.messages import did_you_mean

    for column in columns:
        if column.name == name:
            return column
    near = did_you_mean(name, [column.name for column in columns]) or _suggestion(columns)
    raise CommandLineError(f"embexp new: --label {name}: the data has no such column\n    {near}")


def _suggestion(columns: Sequence[ColumnFacts]) -> str:
    from embexp.cli import column_uses
    from embexp.config.messages import listing

    likely = [f"--label {shlex.quote(candidate.name)}" for candidate in column_uses.label_candidates(columns)[:3]]
    return f"it may be {listing(likely)}" if likely else "none of its columns looks like a label: name it"


def _name(given: str | None, data: Path) -> str:
    """The name of the experiment."""
    if given is not None:
        if not re.fullmatch(r"[A-Za-z_][\w-]*", given, re.ASCII):
            raise CommandLineError(f"embexp new: --name {given}: a name has letters, digits and underscores")
        return given
    stem = re.sub(r"[^A-Za-z0-9_]+", "_", data.absolute().name.split(".")[0]).strip("_").lower()
    return stem if re.match(r"[a-z]", stem) else f"data_{stem}"


def _show(sample: Sample, uses: Sequence[Use], *, decided: bool) -> None:
    """Prints what the columns hold, and what becomes of them."""
    from rich.table import Table
    from rich.text import Text

    from embexp.system.terminal import SafeConsole

    form = sample.kind
    if sample.kind == "csv":
        how = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}.get(sample.delimiter, sample.delimiter)
        form = f"text, separated by {how}, {sample.encoding}{'' if sample.headed else ', no header line'}"
    rows = f"all {sample.rows:,} rows" if sample.whole else f"{sample.count:,} of about {sample.rows:,} rows"
    print(f"{sample.path}: {form}; looked at {rows}")
    table = Table(box=None, pad_edge=False)
    for header in ("column", "holds", "distinct", "missing", "such as", *(["becomes"] if decided else []), "why"):
        table.add_column(header, justify="right" if header in ("distinct", "missing") else "left")
    for use in uses:
        facts = use.facts
        examples = ", ".join(example[:20] for example in facts.examples)
        heavy = "; a few are much larger than the others" if facts.heavy and facts.kind.value == "numbers" else ""
        cells = [
            facts.name[:_SHOWN],
            facts.kind.value,
            f"{facts.distinct:,}",
            f"{facts.missing:.1%}" if facts.missing else "",
            examples[:_SHOWN],
            *([", ".join(use.roles)] if decided else []),
            f"{use.why or facts.why}{heavy}",
        ]
        table.add_row(*(Text(cell if cell.isprintable() else repr(cell)) for cell in cells))
    width = None if sys.stdout.isatty() else 160
    SafeConsole(width=width).print(table)
