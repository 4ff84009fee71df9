"""`embexp checkpoint diff`: what differs between two checkpoints. Imports no TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.cli.arguments import Parser
from embexp.cli.checkpoint_list import WORDS, finite, variable_of
from embexp.cli.commands import DONE, FAILED
from embexp.errors import CommandLineError, DataError

if TYPE_CHECKING:
    from rich.console import Console

    from embexp.checkpoints.contents import Contents, KeyInfo
    from embexp.checkpoints.difference import Change, Difference
    from embexp.data.vocabularies.vocabulary import Vocabulary

USAGE = "embexp checkpoint diff A B [--rows N] [--json] [--exit-code]"

HELP = f"""\
usage: {USAGE}

Compares two checkpoints: keys that only one of them has, other shapes and types, and how far values moved from A to B.
For each key: rows with a changed bit, the largest absolute change of a number, and the L2 norm of the change divided by
that of A. For each table: the rows that moved farthest (L2 norm), by token if the checkpoint is in a run's directory.

A and B are as PATH in `embexp checkpoint list --help`. Keys are matched as they are; if only one of the two is
name-based, by the names of the variables. If both are of runs and a table's vocabularies differ, its rows are matched
by token, else by number.

    --rows N       Names N rows of each table (default: 5).
    --json         Prints one JSON object instead of text. NaN and infinity are null.
    --exit-code    Returns the exit status 1 if they differ; without it, 0.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Args:
        arguments: those after `diff`.

    Raises:
        DataError: there is no checkpoint, or one of its files is missing, cut short or damaged.
    """
    parser = Parser("checkpoint diff", USAGE)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--rows", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--exit-code", action="store_true")
    options = parser.parse_intermixed_args(list(arguments))
    if options.help:
        print(HELP, end="")
        return DONE
    if len(options.paths) != 2:
        raise parser.incomplete("give two checkpoints, A and B")
    if options.rows < 0:
        raise CommandLineError(f"--rows {options.rows}: it must be at least 0")
    from embexp.records.folder import RunFolder

    a, b = options.paths
    with RunFolder(Path(a)).reading(), RunFolder(Path(b)).reading():
        found = _diff(a, b, rows=options.rows, as_json=options.json)
    return FAILED if options.exit_code and not found.empty else DONE


def _diff(path_a: str, path_b: str, *, rows: int, as_json: bool) -> Difference:
    from embexp.checkpoints.difference import difference
    from embexp.checkpoints.opening import open_checkpoint
    from embexp.studies import runs_compared

    a, b = open_checkpoint(path_a, as_objects=True), open_checkpoint(path_b, as_objects=True)
    if faults := [*a.faults, *b.faults]:
        raise DataError("\n    ".join(faults))
    of_a, of_b = runs_compared.vocabularies_of(a), runs_compared.vocabularies_of(b)
    found = difference(a, b, rows=rows, matches=runs_compared.row_matches(a, of_a, of_b))

    def vocabulary(table: str) -> Vocabulary | None:
        return of_a(table) or of_b(table)

    if as_json:
        print(json.dumps(_as_json(a, b, found, vocabulary), ensure_ascii=False, allow_nan=False))
    else:
        _show(a, b, found, vocabulary)
    return found


def _as_json(
    a: Contents, b: Contents, found: Difference, vocabulary: Callable[[str], Vocabulary | None]
) -> dict[str, Any]:
    def change(each: Change) -> dict[str, Any]:
        facts = asdict(each)
        info = facts.pop("info")
        named = {"key": info["key"], "group": info["group"], "variable": info["variable"]}
        facts["unmatched"] = None if each.unmatched is None else {"a": each.unmatched[0], "b": each.unmatched[1]}
        facts["moved"] = [
            {name: finite(value) for name, value in {"token": _token(each, row.row, vocabulary), **asdict(row)}.items()}
            for row in each.moved
        ]
        return {**named, **{name: finite(value) for name, value in facts.items()}}

    return {
        "a": {"source": str(a.source), "kind": a.kind.value},
        "b": {"source": str(b.source), "kind": b.kind.value},
        "by_variable": found.by_variable,
        "differ": not found.empty,
        "only_a": [asdict(each) for each in found.only_a],
        "only_b": [asdict(each) for each in found.only_b],
        "unlike": [{"a": asdict(first), "b": asdict(second)} for first, second in found.unlike],
        "changes": [change(each) for each in found.changes],
        "unread": [each.key for each in found.unread],
    }


def _show(a: Contents, b: Contents, found: Difference, vocabulary: Callable[[str], Vocabulary | None]) -> None:
    from embexp.system import terminal

    console = terminal.console()
    for letter, contents in (("A", a), ("B", b)):
        print(f"{letter}  {WORDS[contents.kind]} {contents.source}")
    if found.by_variable:
        print("keys are matched by the names of variables")
    for letter, keys in (("A", found.only_a), ("B", found.only_b)):
        if keys:
            _show_keys(console, f"only in {letter}", keys)
    if found.unlike:
        _show_unlike(console, found.unlike)
    changed = [each for each in found.changes if each.changed]
    if changed:
        _show_changes(console, changed)
    for each in found.changes:
        if each.unmatched is not None and any(each.unmatched) and each.info.slot is None:
            only_a, only_b = each.unmatched
            print(f"{each.info.short}: matched by token; {only_a:,} rows only in A, {only_b:,} only in B")
    for each in changed:
        if each.moved:
            _show_moved(console, each, vocabulary)
    if found.unread:
        print(f"\nnot compared, as NumPy can't read them: {', '.join(each.short for each in found.unread)}")
    same = len(found.changes) - len(changed)
    print(f"\n{same} of {len(found.changes)} common keys are equal to the bit")


def _show_keys(console: Console, title: str, keys: Sequence[KeyInfo]) -> None:
    from rich.text import Text

    from embexp.system import terminal

    shown = terminal.table(console, [title, "shape", "dtype"], right=["bytes"])
    for each in keys:
        shown.add_row(Text(each.short), Text(str(list(each.shape))), each.dtype, terminal.byte_size(each.bytes))
    print()
    console.print(shown)


def _show_unlike(console: Console, keys: Sequence[tuple[KeyInfo, KeyInfo]]) -> None:
    from rich.text import Text

    from embexp.system import terminal

    shown = terminal.table(console, ["other shape or type", "in A", "in B"])
    for pair in keys:
        shown.add_row(Text(pair[0].short), *(Text(f"{list(each.shape)} {each.dtype}") for each in pair))
    print()
    console.print(shown)


def _show_changes(console: Console, changes: Sequence[Change]) -> None:
    from rich.text import Text

    from embexp.system import terminal

    shown = terminal.table(console, ["changed", "variable"], right=["rows changed", "of", "max |Δ|", "|Δ| / |A|"])
    for each in changes:
        figures = ("" if value is None else f"{value:.3g}" for value in (each.largest, each.relative))
        names = Text(each.info.short), Text(variable_of(each.info))
        shown.add_row(*names, f"{each.changed:,}", f"{each.compared:,}", *figures)
    print()
    console.print(shown)


def _show_moved(console: Console, change: Change, vocabulary: Callable[[str], Vocabulary | None]) -> None:
    from rich.markup import escape
    from rich.text import Text

    from embexp.system import terminal

    shown = terminal.table(console, [f"moved most: {escape(change.info.short)}"], right=["row", "|Δ|", "|row of A|"])
    for each in change.moved:
        name = _token(change, each.row, vocabulary)
        shown.add_row(Text(name or ""), f"{each.row:,}", f"{each.distance:.4g}", f"{each.norm:.4g}")
    print()
    console.print(shown)


def _token(change: Change, row: int, vocabulary: Callable[[str], Vocabulary | None]) -> str | None:
    from embexp.studies import runs_compared

    table = change.info.table
    return None if table is None else runs_compared.token(vocabulary(table), row)
