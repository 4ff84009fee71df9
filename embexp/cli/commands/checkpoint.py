"""`embexp checkpoint`: commands for checkpoints. Those that only read one are here; they import no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, FAILED, dispatch
from embexp.cli.commands.finished import warn_of_checkpoint, write_json
from embexp.errors import CheckpointError, CommandLineError, DataError, RunError
from embexp.records.outputs import output
from embexp.system.printable import print

if TYPE_CHECKING:
    from rich.console import Console

    from embexp.checkpoints.contents import Contents, KeyInfo
    from embexp.checkpoints.difference import Change, Difference, Statistics
    from embexp.data.vocabularies.vocabulary import Vocabulary

SUBCOMMANDS = {
    "list": "Lists the keys of a checkpoint of any program: shapes, types, bytes.",
    "diff": "Shows what differs between two checkpoints, how far values moved, and the rows that moved most.",
    "convert": "Converts a name-based checkpoint to an object-based one, or the reverse.",
    "graph": "Draws the objects in a checkpoint and the edges between them.",
    "grow": "Writes a checkpoint for a longer vocabulary: rows and slots are matched by token, new rows filled.",
}

HELP = """\
usage: embexp checkpoint COMMAND …

commands
{commands}

    embexp checkpoint COMMAND --help                                 Shows the help of a command.
"""
LIST_HELP = """\
usage: embexp checkpoint list PATH [--values] [--verify] [--json]

Lists the keys of a checkpoint with shape, type and bytes: tables, slots, dense part, optimizer. No values are read.

PATH is the directory of a run (its final checkpoint, else the newest); the prefix, the folder or the .index file of a
TensorFlow checkpoint, object-based or name-based; a SavedModel; or a .weights.h5 or .keras file. In an object-based
checkpoint, the common end of all keys, /.ATTRIBUTES/VARIABLE_VALUE, is not shown.

    --values    Reads all values: smallest, largest, mean, L2 norm, and how many are NaN or infinite.
    --verify    Reads all values and compares checksums (Keras files have none). The exit status is 1 if one is wrong.
    --json      Prints one JSON object instead of text, with whole keys. NaN and infinity are null.
"""

_WORDS = {
    "object": "object-based checkpoint",
    "name": "name-based checkpoint",
    "savedmodel": "variables of a SavedModel",
    "keras weights": "Keras weights",
}
"""What a kind of checkpoint is called."""
DIFF_HELP = """\
usage: embexp checkpoint diff A B [--rows N] [--json] [--exit-code]

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
GRAPH_HELP = """\
usage: embexp checkpoint graph PATH [-o FILE] [--all] [--force]

Draws which objects depend on which, by the names that the edges have in an object-based checkpoint: objects and layers
in black, variables in blue, optimizers in red, slot variables in orange. TensorFlow restores by the names of edges,
not of variables. An object with several paths is drawn once; at the others, its path is named.

PATH is the directory of a run (its final checkpoint, or else the newest), a checkpoint's directory, its prefix or its
.index file, or a SavedModel.

    -o FILE    Names the picture, an .svg, .png or .pdf (default: NAME.svg in the current directory, NAME that of PATH).
    --force    Replaces a picture that embexp did not draw, or that was changed since.
    --all      Draws all edges. Otherwise objects without variables are left out, and so are lists that only repeat what
               is drawn below the same object; +N next to an object counts the edges left out below it.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    return dispatch(
        arguments, SUBCOMMANDS, lambda name: subcommand(name)[0], help_text=HELP, context="embexp checkpoint: "
    )


def subcommand(name: str) -> tuple[Callable[[Sequence[str]], int], str]:
    """What runs a subcommand, and its help."""
    if name in ("convert", "grow"):
        from embexp.cli import checkpoint_writing as writing

        return (writing.convert, writing.CONVERT_HELP) if name == "convert" else (writing.grow, writing.GROW_HELP)
    return {"list": (list_keys, LIST_HELP), "diff": (diff, DIFF_HELP), "graph": (graph, GRAPH_HELP)}[name]


def list_keys(arguments: Sequence[str]) -> int:
    """Runs the command.

    Raises:
        DataError: there is no checkpoint, or one of its files is missing, cut short or damaged; what can be listed has
            been listed by then.
    """
    parser = Parser("checkpoint list", LIST_HELP)
    parser.needs("path", "which checkpoint?")
    parser.switches("--values", "--verify", "--json")
    options = parser.parse(arguments)
    from embexp.checkpoints.contents import GRAPH, open_checkpoint
    from embexp.checkpoints.difference import statistics

    contents = open_checkpoint(options.path)
    warn_of_checkpoint(*(contents.files if options.values or options.verify else contents.files[:1]))
    figures: dict[str, Statistics] = {}
    faults = list(contents.faults)
    if not faults:
        for key, entry in contents.entries.items():
            try:
                if options.verify:
                    entry.values.verify()
                if options.values and entry.info.group != GRAPH:
                    figures[key] = statistics(entry)
            except DataError as error:
                faults.append(str(error))
    if options.json:
        listed = {key: vars(entry.info) for key, entry in contents.entries.items()}
        keys = [facts | ({"values": figures[key]} if key in figures else {}) for key, facts in listed.items()]
        names = ("path", "source", "kind", "base", "bytes")
        write_json({name: getattr(contents, name) for name in names} | {"faults": faults, "keys": keys})
    else:
        _show_contents(contents, figures if options.values else None)
        if options.verify and not faults:
            checked = "all checksums are right" if contents.checksums else "they can be read; the file has no checksums"
            print(f"read all values: {checked}")
    if faults:
        raise DataError("\n    ".join(faults))
    return DONE


def _show_contents(contents: Contents, figures: Mapping[str, Statistics] | None) -> None:
    from itertools import groupby

    from rich.text import Text

    from embexp.system import terminal
    from embexp.system.terminal import byte_size

    console = terminal.console()
    entries = list(contents.entries.values())
    variables = any(_variable_of(entry.info) for entry in entries)
    right = ["bytes"] if figures is None else ["bytes", "min", "max", "mean", "norm", "not finite"]
    shown = terminal.table(
        console,
        ["key", *(["variable"] if variables else []), "shape", "dtype"],
        right=right,
        after=[] if figures is None else ["values"],
    )
    totals = []
    for group, found in groupby(entries, key=lambda entry: entry.info.group):
        some = list(found)
        size = sum(entry.info.bytes for entry in some)
        totals.append(f"{group} {byte_size(size)}")
        shown.add_row(Text(group, "bold"))
        for entry in some:
            cells = [f"  {entry.info.short}"]
            if variables:
                cells.append(_variable_of(entry.info))
            cells += [str(list(entry.info.shape)), entry.info.dtype, byte_size(entry.info.bytes)]
            if figures is not None:
                cells += _figures(figures.get(entry.info.key))
            shown.add_row(*map(Text, cells))
    print(f"{_WORDS[contents.kind]} {contents.source}")
    if contents.base is not None:
        print(f"incremental: its bytes are of the rows that changed since {contents.base}; tables are listed whole")
    console.print(shown)
    noun = "key" if len(entries) == 1 else "keys"
    print(f"{len(entries)} {noun}, {byte_size(contents.bytes)}: {', '.join(totals)}")


def _variable_of(info: KeyInfo) -> str:
    """Name of a key's variable; empty where there is none, or it is the key."""
    return info.variable if info.variable not in (None, info.key, info.short) else ""


def _figures(found: Statistics | None) -> list[str]:
    if found is None:
        return [""] * 6
    numbers = [found.minimum, found.maximum, found.mean, found.norm]
    values = ", ".join(map(_short, found.values or ()))
    return [*("" if number is None else f"{number:.4g}" for number in numbers), str(found.not_finite or ""), values]


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    written = repr(value) if isinstance(value, str) else str(value)
    return written if len(written) <= 40 else f"{written[:40]}…"


def diff(arguments: Sequence[str]) -> int:
    """Runs the command.

    Raises:
        DataError: there is no checkpoint, or one of its files is missing, cut short or damaged.
    """
    parser = Parser("checkpoint diff", DIFF_HELP)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--rows", type=int, default=5)
    parser.switches("--json", "--exit-code")
    options = parser.parse(arguments)
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
    from embexp.checkpoints.contents import open_checkpoint
    from embexp.checkpoints.difference import difference
    from embexp.runs import runs_compared

    a, b = open_checkpoint(path_a, as_objects=True), open_checkpoint(path_b, as_objects=True)
    for each in (a, b):
        warn_of_checkpoint(*each.files)
    if faults := [*a.faults, *b.faults]:
        raise DataError("\n    ".join(faults))
    of_a, of_b = runs_compared.vocabularies_of(a), runs_compared.vocabularies_of(b)
    found = difference(a, b, rows=rows, matches=runs_compared.row_matches(a, of_a, of_b))

    def vocabulary(table: str) -> Vocabulary | None:
        return of_a(table) or of_b(table)

    if as_json:
        write_json(_difference_as_json(a, b, found, vocabulary))
    else:
        _show_difference(a, b, found, vocabulary)
    return found


def _difference_as_json(
    a: Contents, b: Contents, found: Difference, vocabulary: Callable[[str], Vocabulary | None]
) -> dict[str, Any]:
    def change(each: Change) -> dict[str, Any]:
        named = {name: getattr(each.info, name) for name in ("key", "group", "variable")}
        unmatched = None if each.unmatched is None else dict(zip("ab", each.unmatched, strict=True))
        moved = [{"token": _token(each, row.row, vocabulary), **vars(row)} for row in each.moved]
        facts = {name: value for name, value in vars(each).items() if name != "info"}
        return {**named, **facts, "unmatched": unmatched, "moved": moved}

    return {
        **{side: {"source": each.source, "kind": each.kind} for side, each in (("a", a), ("b", b))},
        "by_variable": found.by_variable,
        "differ": not found.empty,
        "only_a": found.only_a,
        "only_b": found.only_b,
        "unlike": [dict(zip("ab", pair, strict=True)) for pair in found.unlike],
        "changes": [change(each) for each in found.changes],
        "unread": [each.key for each in found.unread],
    }


def _show_difference(
    a: Contents, b: Contents, found: Difference, vocabulary: Callable[[str], Vocabulary | None]
) -> None:
    from embexp.system import terminal

    console = terminal.console()
    for letter, contents in (("A", a), ("B", b)):
        print(f"{letter}  {_WORDS[contents.kind]} {contents.source}")
    if found.by_variable:
        print("keys are matched by the names of variables")
    for letter, keys in (("A", found.only_a), ("B", found.only_b)):
        if keys:
            rows = ([key.short, str(list(key.shape)), key.dtype, terminal.byte_size(key.bytes)] for key in keys)
            _print_table(console, [f"only in {letter}", "shape", "dtype"], ["bytes"], rows)
    if found.unlike:
        rows = ([pair[0].short, *(f"{list(each.shape)} {each.dtype}" for each in pair)] for pair in found.unlike)
        _print_table(console, ["other shape or type", "in A", "in B"], [], rows)
    changed = [change for change in found.changes if change.changed]
    if changed:
        figures = ["rows changed", "of", "max |Δ|", "|Δ| / |A|"]
        _print_table(console, ["changed", "variable"], figures, map(_changed, changed))
    for change in found.changes:
        if change.unmatched is not None and any(change.unmatched) and change.info.slot is None:
            only_a, only_b = change.unmatched
            print(f"{change.info.short}: matched by token; {only_a:,} rows only in A, {only_b:,} only in B")
    for each in changed:
        if each.moved:
            rows = (
                [_token(each, row.row, vocabulary) or "", f"{row.row:,}", f"{row.distance:.4g}", f"{row.norm:.4g}"]
                for row in each.moved
            )
            _print_table(console, [f"moved most: {each.info.short}"], ["row", "|Δ|", "|row of A|"], rows)
    if found.unread:
        print(f"\nnot compared, as NumPy can't read them: {', '.join(each.short for each in found.unread)}")
    same = len(found.changes) - len(changed)
    print(f"\n{same} of {len(found.changes)} common keys are equal to the bit")


def _print_table(console: Console, left: Sequence[str], right: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.text import Text

    from embexp.system import terminal

    shown = terminal.table(console, left, right=right)
    for row in rows:
        shown.add_row(*map(Text, row))
    print()
    console.print(shown)


def _changed(change: Change) -> list[str]:
    figures = ("" if value is None else f"{value:.3g}" for value in (change.largest, change.relative))
    counts = f"{change.changed:,}", f"{change.compared:,}"
    return [change.info.short, _variable_of(change.info), *counts, *figures]


def _token(change: Change, row: int, vocabulary: Callable[[str], Vocabulary | None]) -> str | None:
    from embexp.runs import runs_compared

    table = change.info.table
    return None if table is None else runs_compared.token(vocabulary(table), row)


def graph(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("checkpoint graph", GRAPH_HELP)
    parser.needs("path", "which checkpoint? Give its path", type=Path)
    parser.add_argument("-o", "--out", type=Path)
    parser.switches("--all", "--force")
    options = parser.parse(arguments)
    path: Path = options.path
    out: Path | None = options.out
    from embexp.checkpoints import object_graph, paths, picture
    from embexp.checkpoints.object_graph import spanning_tree, walk

    if out is not None and out.suffix.lower() not in picture.FORMATS:
        endings = ", ".join(picture.FORMATS)
        raise CommandLineError(f"embexp checkpoint graph: -o {out}: the ending must be one of {endings}")
    if path.is_file() and path.suffix in (".h5", ".hdf5", ".keras"):
        raise CheckpointError(
            f"{path} is a file of Keras, which has no object graph\n"
            "    tf.train.Checkpoint(model=model).write(PATH) writes a checkpoint of the model that has one"
        )
    index = paths.index_of(path)
    named = out or Path(f"{path.resolve().name.removesuffix('.index')}.svg")
    file = output(named, "checkpoint graph", option="-o", inputs=paths.files_of(index), force=options.force)
    warn_of_checkpoint(*paths.files_of(index))
    found = object_graph.read(index)
    shown = path if path.name else path.resolve()
    tree = spanning_tree(found, everything=options.all)
    branches = list(walk(tree))
    drawn, hidden = len(branches) - 1, sum(branch.hidden for branch in branches)
    objects = sum(not branch.is_reference for branch in branches)
    counts = f"{objects} of {len(found.nodes)} objects and {drawn} of {drawn + hidden} edges"
    note = f"{counts}; +N: edges that --all draws as well" if hidden else counts
    kind = named.suffix.removeprefix(".").lower()
    try:
        with file.opened() as opened:
            picture.write(tree, opened, kind, title=f"Dependency graph of {shown}", note=note)
    except OSError as error:
        raise RunError(f"{named} can't be written: {error.strerror or error}") from None
    print(f"wrote {named}: {counts}{' (--all draws all)' if hidden else ''}")
    return DONE
