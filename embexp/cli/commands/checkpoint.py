"""`embexp checkpoint`: commands for checkpoints. Those that only read one import no TensorFlow."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, FAILED, dispatch
from embexp.cli.commands.finished import warn_of_checkpoint, write_json
from embexp.errors import CheckpointError, CommandLineError, DataError, RunError
from embexp.records.outputs import check_place, output
from embexp.specs.pretrained import Match, MissingRows
from embexp.system.printable import print

if TYPE_CHECKING:
    from rich.console import Console

    from embexp.checkpoints.contents import Contents, KeyInfo
    from embexp.checkpoints.difference import Change, Difference, Statistics
    from embexp.data.vocabularies.vocabulary import Vocabulary
    from embexp.vectors.pretrained.growth import TableGrowth

SUBCOMMANDS = {
    "list": "Lists the keys of any TensorFlow or Keras checkpoint, with shape, type and size.",
    "diff": "Shows what differs between two checkpoints, how far values moved, and which rows moved most.",
    "convert": "Converts a checkpoint from name-based to object-based, or back.",
    "graph": "Draws the objects in a checkpoint and their dependencies.",
    "grow": "Writes a checkpoint for a larger vocabulary: rows and slots are matched by token.",
}

HELP = """\
usage: embexp checkpoint COMMAND …

commands
{commands}

    embexp checkpoint COMMAND --help                                 Shows the help of a command.
"""
LIST_HELP = """\
usage: embexp checkpoint list PATH [--values] [--verify] [--json]

Lists the keys of a checkpoint with shape, type and size: tables, slots, dense part, optimizer. No values are read.

PATH is one of these:
    the directory of a run, for its final checkpoint, or the newest if it has not finished
    the prefix, the folder or the .index file of a TensorFlow checkpoint, object-based or name-based
    a SavedModel
    a .weights.h5 or .keras file

All keys of an object-based checkpoint end with /.ATTRIBUTES/VARIABLE_VALUE, which is not shown. Tables that
TensorFlow's TPUEmbeddingV2 saved in stacks are listed one by one, with the keys that TPUEmbedding gives them.

    --values    Reads all values and shows minimum, maximum, mean, L2 norm, and the number of NaNs and infinities.
    --verify    Reads all values and compares checksums (Keras files have none). The exit status is 1 if one is wrong.
    --json      Prints one JSON object instead of text, with complete keys. NaN and infinity become null.
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

Compares two checkpoints: keys that only one of them has, different shapes and types, and how far values moved from A
to B. Each key is listed with the number of rows in which a bit changed, the largest absolute change of a value, and the
L2 norm of the change relative to that of A. For each table, the rows that moved farthest (L2 norm) are listed, by token
if the checkpoint belongs to a run.

A and B can be anything that `embexp checkpoint list` takes as PATH. Keys are compared as they are. If only one of the
checkpoints is name-based, keys are matched by variable name instead. If both belong to runs and a table's vocabularies
differ, its rows are matched by token, otherwise by number.

    --rows N       Lists N rows of each table (default: 5).
    --json         Prints one JSON object instead of text. NaN and infinity become null.
    --exit-code    Returns exit status 1 if the checkpoints differ. Otherwise the exit status is 0 either way.
"""
GRAPH_HELP = """\
usage: embexp checkpoint graph PATH [-o FILE] [--all] [--force]

Draws the dependency graph of an object-based checkpoint. Edges have the names by which TensorFlow restores; it does not
use the names of variables. Objects and layers are black, variables blue, optimizers red and slot variables orange. An
object with several paths is drawn once, and the other places refer to it by path.

PATH is the directory of a run (for its final checkpoint, or the newest if it has not finished), the folder, the prefix
or the .index file of a checkpoint, or a SavedModel.

    -o FILE    Sets the picture's file, an .svg, .png or .pdf (default: an .svg in the current directory, named after
               PATH).
    --force    Replaces a picture that embexp did not draw, or that was changed since.
    --all      Draws all edges. By default, objects without variables are left out, and so are lists that only repeat
               what is drawn below the same object. +N next to an object is the number of edges left out below it.
"""
_FILLS = [each.value for each in MissingRows if not each.composed]
"""What new rows of a run's checkpoint are filled with."""

CONVERT_HELP = """\
usage: embexp checkpoint convert PATH OUT --to name|object [--names FILE]

Converts a checkpoint to the other kind. A name-based checkpoint, written by tf.compat.v1.train.Saver, matches variables
by their global names. An object-based checkpoint, written by tf.train.Checkpoint, matches them by the edges between
objects. Values are not loaded, because only the index differs. Data files are hard-linked if the file system supports
it. An incremental checkpoint is converted to a complete one, with all rows of its tables. Tables that TensorFlow's
TPUEmbeddingV2 saved in stacks are written one by one.

PATH is the prefix, the folder or the .index file of a checkpoint, a SavedModel, or the directory of a run. The tables
of a run get the names that checkpoint.kind=name gives them. OUT is the prefix of the new checkpoint; if it is an
existing folder, the prefix is `checkpoint` in that folder.

    --to name|object   Sets the new kind. With `name`, a variable gets its global name, or the path of its object if
                       several variables share a name. With `object`, the parts of a name between slashes become the
                       edges from object to object.
    --names FILE       Renames variables. FILE is a JSON or YAML mapping from old to new names, as `embexp checkpoint
                       list` shows them. Other variables are named as above. You can also rename without changing the
                       kind.
"""


def _grow_help() -> str:
    from embexp.checkpoints.growing import Fill

    return f"""\
usage: embexp checkpoint grow RUN_OR_CHECKPOINT --vocabulary NEW --out DIR [OPTIONS]
       embexp checkpoint grow CHECKPOINT --from NAME=OLD --vocabulary NAME=NEW --missing VALUES --out DIR [OPTIONS]
       embexp checkpoint grow CHECKPOINT --rows NAME=N --missing VALUES --out DIR [OPTIONS]

Writes a checkpoint whose tables have a row for each token of a new vocabulary, in its order. Rows are matched by token,
never by position, and keep their optimizer slots. New rows get the values that --missing selects, and their slots get
initial values. The dense part, the step counter and all other tables stay unchanged. To start a run from the new
checkpoint, use pretrained=checkpoint pretrained.path=DIR. Add freeze=old_rows to train only the new rows.

RUN_OR_CHECKPOINT is the directory of a finished run, or a checkpoint that this command wrote. CHECKPOINT is one that
any other program wrote, of either kind. Use the variable names that `embexp checkpoint list` shows. The new checkpoint
has the same kind and names.

    --vocabulary NEW     Sets the new vocabulary: a file with one token per line, or a vocabulary or folder of
                         vocabularies that a run wrote. If there are several tables, use TABLE=FILE, once for each
                         table. If you give a file of tokens, the OOV row and the free rows of the old vocabulary stay.
    --from NAME=OLD      Sets the file with the token of each row of a variable in CHECKPOINT.
    --rows NAME=N        Appends rows to a variable in CHECKPOINT until it has N. No vocabulary is needed.
    --out DIR            Sets the path of the new checkpoint, which must not exist.
    --missing VALUES     Sets the values of new rows: {", ".join(_FILLS)}
                         (default: initializer). For CHECKPOINT, which has no initializer: {", ".join(Fill)},
                         without a default.
    --gone ACTION        Sets what happens to tokens that NEW lacks: drop removes them, keep moves them after the new
                         ones (default: drop).
    --match HOW          Sets when tokens are equal: {", ".join(Match)} (default: exact). For CHECKPOINT, only
                         exact is possible.
    --seed N             Sets the seed of new rows (default: the run's seed, or 0).
    --dry-run            Only shows what would be kept, moved, added and dropped.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    return dispatch(
        arguments, SUBCOMMANDS, lambda name: subcommand(name)[0], help_text=HELP, context="embexp checkpoint: "
    )


def subcommand(name: str) -> tuple[Callable[[Sequence[str]], int], str]:
    """What runs a subcommand, and its help."""
    if name == "grow":
        return grow, _grow_help()
    return {
        "list": (list_keys, LIST_HELP),
        "diff": (diff, DIFF_HELP),
        "convert": (convert, CONVERT_HELP),
        "graph": (graph, GRAPH_HELP),
    }[name]


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
    from embexp.checkpoints import object_graph, picture, store
    from embexp.checkpoints.object_graph import spanning_tree, walk

    if out is not None and out.suffix.lower() not in picture.FORMATS:
        endings = ", ".join(picture.FORMATS)
        raise CommandLineError(f"embexp checkpoint graph: -o {out}: the ending must be one of {endings}")
    if path.is_file() and path.suffix in (".h5", ".hdf5", ".keras"):
        raise CheckpointError(
            f"{path} is a file of Keras, which has no object graph\n"
            "    tf.train.Checkpoint(model=model).write(PATH) writes a checkpoint of the model that has one"
        )
    index = store.find_index(path)
    named = out or Path(f"{path.resolve().name.removesuffix('.index')}.svg")
    file = output(named, "checkpoint graph", option="-o", inputs=store.files_of(index), force=options.force)
    warn_of_checkpoint(*store.files_of(index))
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


def convert(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("checkpoint convert", CONVERT_HELP)
    parser.needs("path", "which checkpoint? Give its path", type=Path)
    parser.needs("out", "where to? Give the prefix of the new checkpoint", type=Path)
    parser.values("--to")
    parser.add_argument("--names", type=Path)
    names: dict[str, str] = {}
    from embexp.checkpoints import store

    def faults(options: argparse.Namespace) -> Iterator[str]:
        if options.out is not None:
            there = store.files_at(store.prefix_for(options.out))
            yield from (f"{each} already exists: give the new checkpoint another name" for each in there)
        if options.to not in ("name", "object"):
            yield f"--to {options.to}: must be name or object" if options.to else "to which kind? Add --to name|object"
        found, wrong = _read_names(options.names)
        names.update(found)
        yield from wrong

    options = parser.parse(arguments, faults)
    check_place(store.prefix_for(options.out), f"embexp checkpoint convert: {options.out}")
    from embexp.records.folder import RunFolder

    with RunFolder(options.path).reading():
        _convert(options, names)
    return DONE


def _read_names(file: Path | None) -> tuple[dict[str, str], list[str]]:
    import yaml

    if file is None:
        return {}, []
    try:
        names: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        return {}, [f"--names {file}: {error.strerror or error}"]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        return {}, [f"--names {file}: it is neither JSON nor YAML: {error}"]
    if not isinstance(names, Mapping):
        return {}, [f"--names {file}: found {type(names).__name__}, expected a mapping from old names to new ones"]
    strange = [
        f"{old!r}: {new!r}" for old, new in names.items() if not isinstance(old, str) or not isinstance(new, str)
    ]
    return dict(names), [f"--names {file}: {each} must be text; put it in quotes" for each in strange]


def _convert(options: argparse.Namespace, names: Mapping[str, str]) -> None:
    from embexp.checkpoints import store
    from embexp.records.folder import RunFolder, check_checkpoint
    from embexp.system.environment import load_tensorflow

    check_checkpoint(*store.files_of(store.find_index(options.path, as_objects=options.to == "object")))
    load_tensorflow()
    from embexp.checkpoints import naming
    from embexp.checkpoints.saving import convert

    if RunFolder(options.path).spec.is_file() and options.to == "name":
        names = {**naming.names_in(options.path), **names}
    conversion = convert(options.path, options.out, kind=options.to, rename=names)
    kind = options.to
    import tensorflow as tf

    from embexp.system import terminal
    from embexp.system.tensor_bundle.tensor import bytes_of
    from embexp.system.terminal import byte_size

    console = terminal.console()
    shown = terminal.table(
        console, [f"{conversion.was}-based", f"{kind}-based"], right=["bytes"], after=["shape", "type"]
    )
    for old, new in sorted(conversion.names.items()):
        entry = conversion.tensors[new]
        size = bytes_of(entry)
        shape = " × ".join(map(str, entry.shape)) or "scalar"
        shown.add_row(old, new, byte_size(size), shape, tf.dtypes.as_dtype(entry.kind).name)
    console.print(shown)
    print(f"wrote the {kind}-based checkpoint {conversion.prefix}: {len(conversion.names)} values")


def grow(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("checkpoint grow", _grow_help())
    parser.needs("directory", "which run or checkpoint? Give its directory")
    for several in ("--vocabulary", "--from", "--rows"):
        parser.add_argument(several, action="append", default=[], dest=several.strip("-").replace("from", "before"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--missing", choices=[*_FILLS])
    parser.add_argument("--gone", choices=("drop", "keep"), default="drop")
    parser.add_argument("--match", choices=[each.value for each in Match], default="exact")
    parser.add_argument("--seed", type=int)
    parser.switches("--dry-run")
    options = parser.parse(arguments, _faults_of_growth)
    if options.out is not None:
        check_place(options.out, f"embexp checkpoint grow: --out {options.out}")
    from embexp.records.folder import RunFolder

    if _is_file(options):
        _grow_file(options)
        return DONE
    with RunFolder(Path(options.directory)).reading():
        _grow(options)
    return DONE


def _faults_of_growth(options: argparse.Namespace) -> Iterator[str]:
    if not options.vocabulary and not options.rows:
        yield "to which vocabulary? Add --vocabulary FILE, TABLE=FILE or FOLDER"
    if options.directory is not None and _is_file(options):
        yield from _faults_of_file(options)
    if options.out is None and not options.dry_run:
        yield "where to? Add --out DIR, or --dry-run to write nothing"
    if options.out is not None and options.out.exists():
        yield f"{options.out} already exists: give --out another name"
    if options.seed is not None and options.seed < 0:
        yield f"--seed {options.seed}: it must be at least 0"


def _is_file(options: argparse.Namespace) -> bool:
    """Whether a checkpoint is to be grown that no run of ours wrote."""
    from embexp.checkpoints import store
    from embexp.errors import DataError
    from embexp.records.folder import RunFolder

    if options.before or options.rows:
        return True
    if RunFolder(Path(options.directory)).spec.is_file():
        return False
    try:
        store.find(Path(options.directory))
    except DataError:
        return False
    return True


def _faults_of_file(options: argparse.Namespace) -> Iterator[str]:
    from embexp.checkpoints.growing import Fill

    for option, words in (("--from", options.before), ("--rows", options.rows), ("--vocabulary", options.vocabulary)):
        for word in words:
            if "=" not in word:
                yield f"{option} {word}: must be NAME={'N' if option == '--rows' else 'FILE'}"
    for word in options.rows:
        if "=" in word and not word.rpartition("=")[2].isdecimal():
            yield f"--rows {word}: must end with a number of rows"
    before, new, rows = ({word.rpartition("=")[0] for word in words} for words in _of_file(options))
    yield from (f"--from {name}=…: add --vocabulary {name}=NEW" for name in sorted(before - new))
    yield from (f"--vocabulary {name}=…: add --from {name}=OLD, its tokens so far" for name in sorted(new - before))
    yield from (f"--rows {name}=…: it has vocabularies, which say how many rows" for name in sorted(rows & new))
    fills = [each.value for each in Fill]
    if options.missing not in fills:
        given = f"--missing {options.missing}: " if options.missing else "what fills new rows? Add --missing: "
        yield f"{given}must be {', '.join(fills)} for a checkpoint that no run wrote"
    for option, value, default in (("--gone", options.gone, "drop"), ("--match", options.match, "exact")):
        if value != default:
            yield f"{option} {value}: must be {default} for a checkpoint that no run wrote"


def _of_file(options: argparse.Namespace) -> tuple[list[str], list[str], list[str]]:
    return options.before, options.vocabulary, options.rows


def _grow_file(options: argparse.Namespace) -> None:
    from embexp.checkpoints import growing, store
    from embexp.system import terminal
    from embexp.system.terminal import byte_size

    before, new, rows = (
        {name: value for name, _, value in (word.rpartition("=") for word in words)} for words in _of_file(options)
    )
    maps = growing.maps_by_token({name: (old, new[name]) for name, old in before.items()})
    index = store.find_index(Path(options.directory), whole=True)
    variables = growing.plan_file(index, maps, {name: int(number) for name, number in rows.items()})
    if not options.dry_run:
        growing.write_file(index, variables, options.out, fill=growing.Fill(options.missing), seed=options.seed or 0)
    console = terminal.console()
    names = ["rows before", "kept", "new", "dropped", "rows after", "bytes after"]
    shown = terminal.table(console, ["variable"], right=names, after=["slots"])
    for each in variables:
        grown, after = each.grown, len(each.rows.places)
        size = byte_size(each.row_bytes * after)
        counts = [f"{number:,}" for number in (each.rows.before, grown.kept, grown.new, grown.dropped, after)]
        slots = ", ".join(slot.name or slot.path for slot in each.slots)
        shown.add_row(each.value.path or each.value.name, *counts, size, slots)
    console.print(shown)
    print("nothing was written (--dry-run)" if options.dry_run else f"wrote the checkpoint {options.out}")


def _grow(options: argparse.Namespace) -> None:
    from embexp.cli.stages import show_stages
    from embexp.system import caching
    from embexp.vectors.pretrained import earlier, growth
    from embexp.vectors.pretrained.growth import Gone, growths

    gone, match = Gone(options.gone), Match(options.match)
    source = earlier.open_run(Path(options.directory), cache=caching.cache_folder(None))
    tables = growths(source, growth.vocabulary_files(options.vocabulary, source), match=match, gone=gone)
    if not options.dry_run:
        try:
            with show_stages() as stages:
                growth.write(
                    source,
                    tables,
                    options.out,
                    missing=MissingRows(options.missing or MissingRows.INITIALIZER),
                    match=match,
                    gone=gone,
                    seed=options.seed,
                    progress=stages,
                )
        except FileExistsError:
            raise CommandLineError(
                f"embexp checkpoint grow: {options.out} already exists: give --out another name"
            ) from None
    _show_growth(tables)
    if options.dry_run:
        print("nothing was written (--dry-run)")
    else:
        print(f"wrote the checkpoint {options.out}: pretrained=checkpoint pretrained.path={options.out}")


def _show_growth(tables: Mapping[str, TableGrowth]) -> None:
    from embexp.system import terminal
    from embexp.system.terminal import byte_size

    console = terminal.console()
    names = ["rows before", "kept in place", "moved", "new", "dropped", "rows after", "bytes before", "bytes after"]
    shown = terminal.table(console, ["table"], right=names, after=["slots"])
    for name, table in tables.items():
        counts = table.as_json()
        keys = ("rows_before", "kept_in_place", "moved", "new", "dropped", "rows")
        shown.add_row(
            name,
            *(f"{counts[key]:,}" for key in keys),
            byte_size(counts["bytes_before"]),
            byte_size(counts["bytes"]),
            ", ".join(table.slots),
        )
    console.print(shown)
