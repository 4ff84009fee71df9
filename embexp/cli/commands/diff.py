"""`embexp diff`: what differs between two runs. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, FAILED
from embexp.cli.commands.finished import write_json
from embexp.errors import CommandLineError
from embexp.system.printable import print

if TYPE_CHECKING:
    from rich.console import Console

    from embexp.records.differences import Difference
    from embexp.runs.runs_compared import RunsCompared

HELP = """\
usage: embexp diff A B [--rows N] [--json]

Compares two runs, or two studies: specs, circumstances (package versions, threads, code, data, machine, environment
variables), metrics with the first step that differs, and results. The tensors of the final checkpoints are compared
byte for byte, and the first rows that differ are listed for each table. Times, commands and directories are ignored.

    --rows N    Lists the first N different rows of each table (default: 3).
    --json      Prints one JSON object instead of text.

To see which rows moved farthest, use `embexp checkpoint diff`.

The exit status is 0 if the runs are the same, 1 if they differ or can't be compared, and 2 if the command line is
invalid.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Raises:
        NotARunError: one of them is not the directory of a run.
    """
    parser = Parser("diff", HELP)
    parser.add_argument("directories", nargs="*")
    parser.add_argument("--rows", type=int, default=3)
    parser.switches("--json")
    options = parser.parse(arguments)
    if len(options.directories) != 2:
        raise parser.incomplete("give the directories of two runs, A and B")
    if options.rows < 1:
        raise CommandLineError(f"--rows {options.rows}: it must be at least 1")
    from embexp.runs import runs_compared

    a, b = map(Path, options.directories)
    parts = runs_compared.compare(a, b, rows=options.rows)
    same = all(part.same for part in parts.values())
    if options.json:
        content = {"a": str(a), "b": str(b), "differ": not same}
        content |= {"parts": {name: part.as_json() for name, part in parts.items()}} if "" not in parts else {}
        content |= parts[""].as_json() if "" in parts else {}
        write_json(content)
    else:
        _show(a, b, parts, same)
    return DONE if same else FAILED


def _show(a: Path, b: Path, parts: dict[str, RunsCompared], same: bool) -> None:
    from embexp.system import terminal

    console = terminal.console()
    print(f"A  {a}\nB  {b}")
    for name, part in parts.items():
        if name:
            print(f"\n{name}")
        for title, differences in part.sections().items():
            if differences:
                _table(console, title, differences)
        print()
        for sentence in part.sentences():
            print(sentence)
    if same:
        print("the same")


def _table(console: Console, title: str, differences: Sequence[Difference]) -> None:
    from rich.text import Text

    from embexp.records.differences import format_value
    from embexp.system import terminal

    steps = any(difference.step is not None for difference in differences)
    notes = any(difference.note for difference in differences)
    values = any(difference.a is not None or difference.b is not None for difference in differences)
    columns = [title, *(["step"] if steps else []), *(["A", "B"] if values else []), *(["difference"] if notes else [])]
    table = terminal.table(console, columns)
    for difference in differences:
        cells = [difference.label]
        cells += ["" if difference.step is None else f"{difference.step:,}"] if steps else []
        cells += (
            ["" if value is None else format_value(value) for value in (difference.a, difference.b)] if values else []
        )
        cells += [difference.note] if notes else []
        table.add_row(*map(Text, cells))
    print()
    console.print(table)
