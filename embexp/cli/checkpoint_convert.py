"""`embexp checkpoint convert`: an object-based checkpoint from a name-based one, and the other way round."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, print

if TYPE_CHECKING:
    from embexp.checkpoints.saving import Conversion

USAGE = "embexp checkpoint convert PATH OUT --to name|object [--names FILE]"

HELP = f"""\
usage: {USAGE}

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


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Args:
        arguments: those after `convert`.
    """
    parser = Parser("checkpoint convert", USAGE)
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--to")
    parser.add_argument("--names", type=Path)
    options = parser.parse_intermixed_args(list(arguments))
    if options.help:
        print(HELP, end="")
        return DONE
    names, faults = _read_names(options.names)
    faults = [*_faults(options), *faults]
    if faults:
        raise parser.incomplete(*faults)
    from embexp.records.folder import RunFolder

    with RunFolder(options.path).reading():
        _convert(options, names)
    return DONE


def _faults(options: argparse.Namespace) -> list[str]:
    faults = []
    if options.path is None:
        faults.append("which checkpoint? Give its path")
    if options.out is None:
        faults.append("where to? Give the prefix of the new checkpoint")
    elif (index := _prefix(options.out).with_name(f"{_prefix(options.out).name}.index")).exists():
        faults.append(f"{index} already exists: give the new checkpoint another name")
    if options.to not in ("name", "object"):
        faults.append(
            f"--to {options.to}: must be name or object" if options.to else "to which kind? Add --to name|object"
        )
    return faults


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


def _prefix(out: Path) -> Path:
    return out / "checkpoint" if out.is_dir() else out


def _convert(options: argparse.Namespace, names: Mapping[str, str]) -> None:
    from embexp.records.folder import RunFolder
    from embexp.system.environment import load_tensorflow

    load_tensorflow()
    from embexp.checkpoints import naming
    from embexp.checkpoints.saving import convert

    if RunFolder(options.path).spec.is_file() and options.to == "name":
        names = {**naming.names_in(options.path), **names}
    _show(convert(options.path, options.out, kind=options.to, rename=names), options.to)


def _show(conversion: Conversion, kind: str) -> None:
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
