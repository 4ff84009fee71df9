"""`embexp new`: looks at a file and writes a first experiment."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE
from embexp.errors import CommandLineError, ConfigError, DataError, RunError, plural
from embexp.specs import tasks
from embexp.specs.fields import fields, imported
from embexp.specs.tasks import Labels
from embexp.system.printable import print

if TYPE_CHECKING:
    import argparse

    from embexp.cli import first_experiment
    from embexp.cli.first_experiment import Recognised, Use
    from embexp.data.files.samples import ColumnFacts, Sample
    from embexp.specs.run import RunSpec

HELP = """\
usage: embexp new FILE [--label COLUMN] --out FOLDER [OPTIONS]

Reads a sample of a file, shows what each column contains and how it is used, and writes a first experiment with
comments. The experiment is FOLDER/experiment/NAME.yaml; run it with `embexp run --config-dir FOLDER experiment=NAME`.

    FILE             The data: a text file (CSV, TSV, JSON Lines, also compressed), a Parquet file, a folder of such
                     files, a RecBole folder, texts with a label at the start of each line, a file or folder of
                     LightGCN's lists, or a folder of knowledge graph triples. You can also give it as --data FILE.
    --label COLUMN   The column to predict, numbers or text. Without it, the task is recommendation if the columns are a
                     user and an item, and link prediction for triples. For other data, the columns are shown with
                     possible labels.
    --out FOLDER     The folder of configs. It is created if it does not exist.
    --task TASK      The task: binary, classification, regression or recommendation (default: depends on the label).
    --category A,B,… Columns of numbers that are codes, and get an embedding table.
    --number A,B,…   Columns that stay numbers, and get no table.
    --ignore A,B,…   Columns to leave out.
    --time COLUMN    The column of the time. The latest examples become the validation and test splits.
    --group COLUMN   The column of the user. Each user's last example becomes the test split. For recommendation, it
                     only names the column.
    --names A,B,…    Column names for a text file without a header line (default: column_1, column_2, …).
    --name NAME      The name of the experiment (default: the name of the file).
    --force          Replaces an existing experiment of that name.

rules
    label            Two values give task=binary (data.positive is the one that counts as 1). Several texts, or the
                     whole numbers from 0 upwards, give task=classification. Other numbers give task=regression. Rows
                     without a label are left out.
    categories       Text that recurs, ids, and whole numbers with up to 10 different values get an embedding table. Its
                     dim is the power of two nearest to 4 · (number of values)^(1/4), from 4 to 64. If more than 1,000
                     columns qualify, only those of --category get a table. Values that occur once share a row if a
                     column has more than 10,000 values or consists mostly of such values.
    numbers          Numbers are standardized, after log1p if a few values are much larger than the others. Whole
                     numbers that recur 20 times on average may be codes, so they get a table, too. Twice is enough if
                     neighboring numbers do not recur, which is typical of agent numbers. With at least 100 different
                     values, at least 1,000 rows and at most 200 columns, numbers also get a table of 32 buckets. If all
                     columns are numbers, up to 200 of them get a table anyway, those with the most values first. With
                     fewer than 1,000 rows, such a table has 4 buckets.
    lists, texts     They are split and embedded, and the vectors of an example are averaged.
    time             A time is a date, a Unix timestamp of the years 1990 to 2040, or any number named timestamp, ts or
                     epoch. YYYYMMDD and YYMMDDHH, such as 14102100, count if the name has hour, date, time or dt. If no
                     row lacks it, the latest examples become the validation and test splits. If interactions have no
                     time, a tenth of each user's items is used for validation and a tenth for testing.
    dates            Dates get tables of weekday and hour. Dates that do not decide the split also get a table of the
                     month, and their age in days.
    left out         Columns are left out if their value is the same, or different, in every row. A second time column,
                     pandas' index, and types that no run can read are left out, too.
    warnings         A warning names columns that may give the label away: each value of a column, or each pair of
                     values of two columns, goes with one label; a column is filled, or empty, only for certain labels;
                     the order of numbers, dates, or days between dates tells the label; or a number rises or falls
                     with it.
"""

_SHOWN, _MOST_SHOWN = 40, 200
_MOST_READ = 1 << 26
"""Bytes of data that are read whole, before an experiment is written: some seconds."""
_OF_COLUMNS = ("category", "number", "ignore", "time", "group")
_PANDAS = {
    ".xlsx": "read_excel",
    ".xls": "read_excel",
    ".ods": "read_excel",
    ".feather": "read_feather",
    ".arrow": "read_feather",
    ".orc": "read_orc",
    ".dta": "read_stata",
    ".sav": "read_spss",
    ".sas7bdat": "read_sas",
}
"""What pandas reads other forms with, by suffix."""
_NO_NAMES = ("inf", "nan", "null", "true", "false")
"""What Hydra does not read as the name of a file."""
_TASKS = ("binary", "classification", "regression", "recommendation")


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("new", HELP)
    parser.add_argument("file", nargs="?")
    parser.values("--data", "--label", "--out", "--name", "--names", "--task", "--category", "--number", "--ignore")
    parser.values("--time", "--group")
    parser.switches("--force")
    options = parser.parse(arguments, _which_data)
    options.data = options.data or options.file
    from embexp.cli import first_experiment
    from embexp.data.files.samples import facts, label_facts, sample

    if options.task not in (None, *_TASKS):
        raise CommandLineError(f"embexp new: --task {options.task}: it must be one of {', '.join(_TASKS)}")
    _check_form(Path(options.data))
    if options.label is None and options.task is None:
        for field in fields():
            if field.recognises and (whole := imported(field.recognises)(Path(options.data))) is not None:
                return _write_recognised(options, whole)
    try:
        given = None if options.names is None else options.names.split(",")
        found = sample(Path(options.data), given, named=filter(None, [options.label, options.time, options.group]))
    except (ConfigError, DataError) as error:
        raise _refused(error) from error
    columns = facts(found)
    unlabelled = options.task is not None and tasks.named(options.task).labels is None
    by_form = None if unlabelled else found.label
    options.label = options.label or by_form
    category, number, ignore, time, group = (_columns(options, columns, name) for name in _OF_COLUMNS)
    wishes = first_experiment.Wishes(category, number, ignore, next(iter(time), None), next(iter(group), None))
    pair = None
    if options.label is None and (options.task is None or unlabelled):
        pair = first_experiment.interaction(columns, wishes)
        if options.task is None and first_experiment.label_candidates(columns):
            pair = None
    if options.label is None and pair is None:
        _show(found, [first_experiment.Use(column, (first_experiment.Role.OUT,)) for column in columns], decided=False)
        if unlabelled:
            rule = "which columns are the user and the item? Give --group USER --category ITEM"
            raise CommandLineError(f"embexp new: --task {options.task}: {rule}")
        raise CommandLineError(f"embexp new: --label COLUMN is missing\n    {_suggestion(columns)}")
    if pair is not None:
        predicted = first_experiment.Prediction(
            "recommendation", f"each row is an interaction of {pair[0].name} with {pair[1].name}"
        )
        uses = first_experiment.uses_of_interactions(columns, *pair, wishes)
    else:
        label = label_facts(found, _label(columns, options.label or "").name)
        columns = [label if column.name == label.name else column for column in columns]
        of_form = first_experiment.prediction_by_form(found, label, options.task) if label.name == by_form else None
        predicted = of_form or first_experiment.prediction(label, options.task)
        predicted, uses = _uses(found, columns, label, predicted, wishes, asked=options.task is not None)
    name, file, command = _where(options)
    experiment = first_experiment.Experiment(name, predicted, found, uses, command)
    _show(found, uses, decided=True)
    text = first_experiment.text(experiment)
    spec, warning = _check(text, name, Path(options.data), "correct the data, or leave out a column with --ignore")
    _write(file, text, replace=options.force, data=options.data)
    print(f"split: {spec.data.described_split()}")
    print(f"task {predicted.task}: {predicted.why}")
    if warning:
        print(f"warning: {warning}", file=sys.stderr)
    if pair is None:
        _warn_of_leaks(uses, found, label)
    _warn_of_spellings(found, uses)
    _say_written(file, command)
    return DONE


def _warn_of_leaks(uses: Sequence[Use], sample: Sample, label: ColumnFacts) -> None:
    from embexp.cli import first_experiment
    from embexp.data import leaks

    if lines := leaks.sentences(first_experiment.leaking(uses, sample, label), label.name):
        for line in lines:
            print(f"warning: {line.text}", file=sys.stderr)
        names = ",".join(dict.fromkeys(name for line in lines for name in line.columns))
        lacking = lines[0].lacking if len(lines) == 1 else "such columns"
        print(
            f"if new examples lack {lacking} at prediction time:\n    --ignore {shlex.quote(names)}",
            file=sys.stderr,
        )


def _warn_of_spellings(sample: Sample, uses: Sequence[Use]) -> None:
    """Prints which tokens differ from another in their spelling only."""
    from embexp.cli.first_experiment import Role

    for use in uses:
        if {Role.TABLE, Role.USER, Role.ITEM} & set(use.roles) and (alike := sample.alike(use.facts.name)):
            first, second = alike.shown
            print(
                f"warning: {use.facts.name}: {alike.count:,} of {alike.tokens:,} values differ from another one only by"
                f" {alike.differences}, such as {second} and {first}, and get separate rows. If they mean the same,"
                f" run with\n    {alike.setting()}{alike.caution}",
                file=sys.stderr,
            )


def _where(options: argparse.Namespace) -> tuple[str, Path, str]:
    """The name of the experiment, its file, and the command that runs it.

    Raises:
        CommandLineError: the folder is not named, or there is such a file.
    """
    if options.out is None:
        raise CommandLineError("embexp new: --out FOLDER is missing\n    embexp new --help")
    name = _name(options.name, Path(options.data))
    file = Path(options.out) / "experiment" / f"{name}.yaml"
    if file.exists() and not options.force:
        raise _exists(file)
    return name, file, f"embexp run --config-dir {shlex.quote(options.out)} experiment={name}"


def _exists(file: Path) -> CommandLineError:
    return CommandLineError(f"embexp new: {file} exists\n    give another --name, or --force to replace it")


def _write(file: Path, text: str, *, replace: bool, data: str) -> None:
    from embexp.records.outputs import output

    checked = output(file, "new", option="--out", inputs=[data], force=replace, replaces=False, streams=False)
    checked.write(text)


def _check(text: str, name: str, data: Path, remedy: str) -> tuple[RunSpec, str]:
    """Composes an experiment that is not written yet, and reads its data as `plan --scan` does, unless it is long.

    Returns:
        Its spec, and the warning of splits without examples.

    Raises:
        CommandLineError: `plan` would refuse it.
    """
    import tempfile

    from embexp.config import composition
    from embexp.data.files import table_files
    from embexp.runs.prepare import prepare
    from embexp.system.terminal import shown_if_long

    try:
        with tempfile.TemporaryDirectory(prefix="embexp-") as folder:
            file = Path(folder) / "experiment" / f"{name}.yaml"
            file.parent.mkdir()
            file.write_text(text, "utf-8")
            spec = composition.compose([f"experiment={name}"], config_dir=folder)
        if sum(each.stat().st_size for each in table_files.data_files([data])) <= _MOST_READ:
            with shown_if_long() as progress:
                return spec, prepare(spec, progress).empty_split_warning
        return spec, ""
    except (ConfigError, RunError) as error:
        raise _refused(error, remedy) from error


def _refused(error: Exception, remedy: str = "") -> CommandLineError:
    """The error of data that no experiment can be written for: in its faults, no config is known to the reader yet."""
    lines = [str(error)]
    if isinstance(error, ConfigError):
        lines = []
        for fault in error.faults:
            where = fault.value.strip("'\"") if fault.path.startswith("data.path") else f"{fault.path} = {fault.value}"
            lines += [f"{where}: {fault.rule}", *([f"    {fault.remedy}"] if fault.remedy else [])]
    return CommandLineError("\n".join([f"embexp new: {lines[0]}", *lines[1:], *([f"    {remedy}"] if remedy else [])]))


def _say_written(file: Path, command: str) -> None:
    print(f"wrote {file}\n\n    {command.replace('run', 'plan --scan', 1)}\n    {command}")


def _write_recognised(options: argparse.Namespace, found: Recognised) -> int:
    """Writes the experiment of data that a field recognises as a whole."""
    name, file, command = _where(options)
    text = found.text(name, command)
    _check(text, name, Path(options.data), "correct the data")
    _write(file, text, replace=options.force, data=options.data)
    print(f"{options.data}: {found.about}\n{found.task}")
    _say_written(file, command)
    return DONE


def _uses(
    sample: Sample,
    columns: Sequence[ColumnFacts],
    label: ColumnFacts,
    predicted: first_experiment.Prediction,
    wishes: first_experiment.Wishes,
    *,
    asked: bool,
) -> tuple[first_experiment.Prediction, list[Use]]:
    """The task, and what becomes of each column: classes of texts alone are read by data=text, in Parquet only by it.

    Args:
        asked: whether the command line names the task.
    """
    from embexp.cli import first_experiment

    splits_text = sample.kind == "csv"
    uses = partial(first_experiment.uses, columns, label.name, rows=sample.rows, wishes=wishes)
    holds_texts = sample.holds_texts and not label.missing  # data=text leaves out no rows
    if holds_texts and (predicted.labels is Labels.CLASS or (predicted.labels is Labels.BINARY and not asked)):
        try:
            texts = uses(splits_text=True)
        except CommandLineError:
            return predicted, uses(splits_text=splits_text)
        if first_experiment.only_text(texts) is not None:
            why = f"{label.distinct} classes of texts, and nothing else to predict them from"
            return (
                predicted if predicted.labels is Labels.CLASS else first_experiment.Prediction("classification", why)
            ), texts
    return predicted, uses(splits_text=splits_text)


def _which_data(options: argparse.Namespace) -> Iterator[str]:
    if not (options.data or options.file):
        yield "which data? Give its FILE"
    if options.data and options.file:
        yield f"{options.file} and --data {options.data} both name the data: give one"


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
    """Raises CommandLineError for forms that no source reads."""
    from embexp.data.sources import jsonl
    from embexp.system import compressed

    reader = _PANDAS.get(data.suffix.lower())
    if reader is not None:
        script = f"import pandas; pandas.{reader}({str(data)!r}).to_parquet({data.with_suffix('.parquet').name!r})"
        raise CommandLineError(
            f"embexp new: {data}: files of this form are not read; convert it to Parquet first\n"
            f"    python -c {shlex.quote(script)}"
        )
    if compressed.form_of(data) == ".json" and data.is_file() and not jsonl.is_lines(data):
        lines = data.with_name(data.name.partition(".")[0] + ".jsonl").name
        script = f"import json; rows = json.load(open({str(data)!r})); print(*map(json.dumps, rows), sep=chr(10))"
        raise CommandLineError(
            f"embexp new: {data}: of JSON, JSON Lines are read, which have an object on each line\n"
            f"    of a list of objects: python -c {shlex.quote(script)} > {shlex.quote(lines)}"
        )


def _label(columns: Sequence[ColumnFacts], name: str) -> ColumnFacts:
    from embexp.config.messages import did_you_mean

    for column in columns:
        if column.name == name:
            return column
    near = did_you_mean(name, [column.name for column in columns]) or _suggestion(columns)
    raise CommandLineError(f"embexp new: --label {name}: the data has no such column\n    {near}")


def _suggestion(columns: Sequence[ColumnFacts]) -> str:
    from embexp.cli import first_experiment
    from embexp.config.messages import listing

    likely = [f"--label {shlex.quote(candidate.name)}" for candidate in first_experiment.label_candidates(columns)[:3]]
    if likely:
        return f"it may be {listing(likely)}"
    graph = "; if these are triples, let the first line say head,relation,tail" if len(columns) == 3 else ""
    return f"none of its columns looks like a label: name it{graph}"


def _name(given: str | None, data: Path) -> str:
    """The name of the experiment."""
    if given is not None:
        if not re.fullmatch(r"[A-Za-z_][\w-]*", given, re.ASCII) or given.lower() in _NO_NAMES:
            rule = f"a name has letters, digits and underscores, and is none of {', '.join(_NO_NAMES)}"
            raise CommandLineError(f"embexp new: --name {given}: {rule}")
        return given
    stem = re.sub(r"[^A-Za-z0-9_]+", "_", data.absolute().name.split(".")[0]).strip("_").lower()
    return stem if re.match(r"[a-z]", stem) and stem not in _NO_NAMES else f"data_{stem}"


def _show(sample: Sample, uses: Sequence[Use], *, decided: bool) -> None:
    """Prints what the columns hold, and what becomes of them."""
    from rich.text import Text

    from embexp.system.terminal import FittedTable, SafeConsole

    form = {"jsonl": "JSON Lines"}.get(sample.kind, sample.kind)
    if sample.kind == "adjacency":
        files = ", ".join(f"{file.name} for {split}" for split, file in sample.parts.items())
        form = "; ".join(filter(None, ["adjacency lists, each line a user and all its items", files]))
    elif sample.begins_with_labels:
        between = "a tab" if sample.delimiter == "\t" else "a blank"
        form = f"texts, one per line, after a label and {between}, {sample.encoding}"
    elif sample.kind == "csv":
        how = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}.get(sample.delimiter, sample.delimiter)
        form = f"text, separated by {how}, {sample.encoding}{'' if sample.headed else ', no header line'}"
    if sample.unnamed:
        form += f", {plural(sample.unnamed, 'column')} without a name left out"
    rows = f"all {sample.rows:,} rows" if sample.whole else f"{sample.count:,} of about {sample.rows:,} rows"
    print(f"{sample.path}: {form}; looked at {rows}")
    table = FittedTable(box=None, pad_edge=False)
    for header in ("column", "holds", "distinct", "missing", "such as", *(["becomes"] if decided else []), "why"):
        table.add_column(header, justify="right" if header in ("distinct", "missing") else "left")
    for use in uses[:_MOST_SHOWN]:
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
    if len(uses) > _MOST_SHOWN:
        rest = Counter(", ".join(use.roles) for use in uses[_MOST_SHOWN:])
        print(f"and {len(uses) - _MOST_SHOWN:,} more columns: {'; '.join(f'{n:,} {role}' for role, n in rest.items())}")
