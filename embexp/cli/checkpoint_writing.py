"""`embexp checkpoint convert` and `embexp checkpoint grow`, which write a checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from embexp.checkpoints.growing import Fill
from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE
from embexp.errors import CommandLineError
from embexp.records.outputs import check_place
from embexp.specs.pretrained import Match, MissingRows
from embexp.system.printable import print

if TYPE_CHECKING:
    from embexp.vectors.pretrained.growth import TableGrowth

_FILLS = [each.value for each in MissingRows if not each.composed]
"""What new rows of a checkpoint are filled with."""

CONVERT_HELP = """\
usage: embexp checkpoint convert PATH OUT --to name|object [--names FILE]

Converts a checkpoint to the other kind. A name-based checkpoint, as tf.compat.v1.train.Saver writes it, matches
variables by their global names; an object-based one, as tf.train.Checkpoint writes it, by the edges between objects.
Values are not loaded: only the index differs, and the data files are hard-linked if the file system supports it.

PATH is the prefix, the folder or the .index file of a checkpoint, a SavedModel, or the directory of a run, whose tables
get the names of checkpoint.kind=name. OUT is the prefix of the new one (in an existing folder, `checkpoint` in it).

    --to name|object   Names the kind. To names: a variable has its global name, or the path of its object where several
                       share a name. To objects: the parts of a name, between /, are the edges from object to object.
    --names FILE       Renames variables: a mapping, JSON or YAML, from old names to new ones, as `embexp checkpoint
                       list` shows them. Other variables are named as above. A checkpoint can keep its kind and get
                       new names.
"""
GROW_HELP = f"""\
usage: embexp checkpoint grow RUN_OR_CHECKPOINT --vocabulary NEW --out DIR [OPTIONS]
       embexp checkpoint grow CHECKPOINT --from NAME=OLD --vocabulary NAME=NEW --missing VALUES --out DIR [OPTIONS]
       embexp checkpoint grow CHECKPOINT --rows NAME=N --missing VALUES --out DIR [OPTIONS]

Writes a checkpoint whose tables have a row for each token of a new vocabulary, in its order. Rows are matched by token,
never by position, and keep their optimizer slots; new rows are filled, and their slots get initial values. The dense
part, the step counter and all other tables stay unchanged. A run starts from the checkpoint with pretrained=checkpoint
pretrained.path=DIR; freeze=old_rows then trains the new rows only.

RUN_OR_CHECKPOINT is the directory of a finished run, or a checkpoint that this command wrote. CHECKPOINT is that of any
program, of either kind. Name its variables as `embexp checkpoint list` does. The new one has the same kind and names.

    --vocabulary NEW     Names a file with a token per line: FILE if there is one table, else TABLE=FILE, repeated for
                         more; or a vocabulary, or a folder of them, as a run writes. A file of tokens keeps the OOV
                         row and the free rows of the old vocabulary.
    --from NAME=OLD      Names a file with the token of each row of a variable in CHECKPOINT.
    --rows NAME=N        Adds rows behind those of a variable in CHECKPOINT, so that it has N. No vocabulary is needed.
    --out DIR            Names the new checkpoint, which must not exist.
    --missing VALUES     Fills new rows: {", ".join(_FILLS)} (default: initializer). In CHECKPOINT:
                         {", ".join(Fill)}. There is no default, as it has no initializer.
    --gone ACTION        Treats tokens that NEW lacks: drop, or keep after the new ones (default: drop).
    --match HOW          Decides when tokens are equal: {", ".join(Match)} (default: exact, the only one in CHECKPOINT).
    --seed N             Sets the seed of new rows (default: the run's, or 0).
    --dry-run            Only shows what would be kept, moved, new and dropped.
"""


def convert(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("checkpoint convert", CONVERT_HELP)
    parser.needs("path", "which checkpoint? Give its path", type=Path)
    parser.needs("out", "where to? Give the prefix of the new checkpoint", type=Path)
    parser.values("--to")
    parser.add_argument("--names", type=Path)
    names: dict[str, str] = {}
    from embexp.checkpoints import paths

    def faults(options: argparse.Namespace) -> Iterator[str]:
        if options.out is not None:
            there = paths.files_at(paths.prefix_for(options.out))
            yield from (f"{each} already exists: give the new checkpoint another name" for each in there)
        if options.to not in ("name", "object"):
            yield f"--to {options.to}: must be name or object" if options.to else "to which kind? Add --to name|object"
        found, wrong = _read_names(options.names)
        names.update(found)
        yield from wrong

    options = parser.parse(arguments, faults)
    check_place(paths.prefix_for(options.out), f"embexp checkpoint convert: {options.out}")
    from embexp.records.folder import RunFolder

    with RunFolder(options.path).reading():
        _convert(options, names)
    return DONE


def _read_names(file: Path | None) -> tuple[dict[str, str], list[str]]:
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
    from embexp.checkpoints import paths
    from embexp.records.folder import RunFolder, check_checkpoint
    from embexp.system.environment import load_tensorflow

    check_checkpoint(*paths.files_of(paths.index_of(options.path, as_objects=options.to == "object")))
    load_tensorflow()
    from embexp.checkpoints import naming
    from embexp.checkpoints.saving import convert

    if RunFolder(options.path).spec.is_file() and options.to == "name":
        names = {**naming.names_in(options.path), **names}
    conversion = convert(options.path, options.out, kind=options.to, rename=names)
    kind = options.to
    import tensorflow as tf

    from embexp.system import terminal
    from embexp.system.terminal import byte_size

    console = terminal.console()
    shown = terminal.table(
        console, [f"{conversion.was}-based", f"{kind}-based"], right=["bytes"], after=["shape", "type"]
    )
    for old, new in sorted(conversion.names.items()):
        entry = conversion.tensors[new]
        size = sum(piece.size for piece in entry.pieces)
        shape = " × ".join(map(str, entry.shape)) or "scalar"
        shown.add_row(old, new, byte_size(size), shape, tf.dtypes.as_dtype(entry.kind).name)
    console.print(shown)
    print(f"wrote the {kind}-based checkpoint {conversion.prefix}: {len(conversion.names)} values")


def grow(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("checkpoint grow", GROW_HELP)
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
    from embexp.checkpoints import paths
    from embexp.errors import DataError
    from embexp.records.folder import RunFolder

    if options.before or options.rows:
        return True
    if RunFolder(Path(options.directory)).spec.is_file():
        return False
    try:
        paths.find(Path(options.directory))
    except DataError:
        return False
    return True


def _faults_of_file(options: argparse.Namespace) -> Iterator[str]:
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
    from embexp.checkpoints import growing, paths
    from embexp.system import terminal
    from embexp.system.terminal import byte_size

    before, new, rows = (
        {name: value for name, _, value in (word.rpartition("=") for word in words)} for words in _of_file(options)
    )
    maps = growing.maps_by_token({name: (old, new[name]) for name, old in before.items()})
    index = paths.index_of(Path(options.directory))
    variables = growing.plan_file(index, maps, {name: int(number) for name, number in rows.items()})
    if not options.dry_run:
        growing.write_file(index, variables, options.out, fill=Fill(options.missing), seed=options.seed or 0)
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
