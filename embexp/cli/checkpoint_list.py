"""`embexp checkpoint list`: the keys of a checkpoint. Imports no TensorFlow."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, print
from embexp.cli.finished import warn_of_checkpoint
from embexp.system import printable

if TYPE_CHECKING:
    from embexp.checkpoints.contents import Contents, KeyInfo, Statistics

USAGE = "embexp checkpoint list PATH [--values] [--verify] [--json]"

HELP = f"""\
usage: {USAGE}

Lists the keys of a checkpoint with shape, type and bytes: tables, slots, dense part, optimizer. No values are read.

PATH is the directory of a run (its final checkpoint, else the newest); the prefix, the folder or the .index file of a
TensorFlow checkpoint, object-based or name-based; a SavedModel; or a .weights.h5 or .keras file. In an object-based
checkpoint, the common end of all keys, /.ATTRIBUTES/VARIABLE_VALUE, is not shown.

    --values    Reads all values: smallest, largest, mean, L2 norm, and how many are NaN or infinite.
    --verify    Reads all values and compares checksums (Keras files have none). The exit status is 1 if one is wrong.
    --json      Prints one JSON object instead of text, with whole keys. NaN and infinity are null.
"""

WORDS = {
    "object": "object-based checkpoint",
    "name": "name-based checkpoint",
    "savedmodel": "variables of a SavedModel",
    "keras weights": "Keras weights",
}
"""What a kind of checkpoint is called."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Args:
        arguments: those after `list`.

    Raises:
        DataError: there is no checkpoint, or one of its files is missing, cut short or damaged; what can be listed has
            been listed by then.
    """
    parser = Parser("checkpoint list", USAGE)
    parser.add_argument("path", nargs="?")
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_intermixed_args(list(arguments))
    if options.help:
        print(HELP, end="")
        return DONE
    if options.path is None:
        raise parser.incomplete("which checkpoint?")
    _list(options)
    return DONE


def _list(options: argparse.Namespace) -> None:
    from embexp.checkpoints.contents import GRAPH, statistics
    from embexp.checkpoints.opening import open_checkpoint
    from embexp.errors import DataError

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
        printable.write_data(
            json.dumps(_as_json(contents, figures, faults), ensure_ascii=False, allow_nan=False) + "\n"
        )
    else:
        _show(contents, figures if options.values else None)
        if options.verify and not faults:
            checked = "all checksums are right" if contents.checksums else "they can be read; the file has no checksums"
            print(f"read all values: {checked}")
    if faults:
        raise DataError("\n    ".join(faults))


def _as_json(contents: Contents, figures: Mapping[str, Statistics], faults: Sequence[str]) -> dict[str, Any]:
    keys = []
    for key, entry in contents.entries.items():
        facts = asdict(entry.info)
        if key in figures:
            facts["values"] = {name: finite(value) for name, value in asdict(figures[key]).items()}
        keys.append(facts)
    return {
        "path": str(contents.path),
        "source": str(contents.source),
        "kind": contents.kind.value,
        "base": None if contents.base is None else str(contents.base),
        "bytes": contents.bytes,
        "faults": list(faults),
        "keys": keys,
    }


def finite(value: Any) -> Any:
    """The value, or None for numbers that JSON lacks: NaN and infinity."""
    if isinstance(value, tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _show(contents: Contents, figures: Mapping[str, Statistics] | None) -> None:
    from itertools import groupby

    from rich.text import Text

    from embexp.system import terminal
    from embexp.system.terminal import byte_size

    console = terminal.console()
    entries = list(contents.entries.values())
    variables = any(variable_of(entry.info) for entry in entries)
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
                cells.append(variable_of(entry.info))
            cells += [str(list(entry.info.shape)), entry.info.dtype, byte_size(entry.info.bytes)]
            if figures is not None:
                cells += _figures(figures.get(entry.info.key))
            shown.add_row(*map(Text, cells))
    print(f"{WORDS[contents.kind]} {contents.source}")
    if contents.base is not None:
        print(f"incremental: its bytes are of the rows that changed since {contents.base}; tables are listed whole")
    console.print(shown)
    noun = "key" if len(entries) == 1 else "keys"
    print(f"{len(entries)} {noun}, {byte_size(contents.bytes)}: {', '.join(totals)}")


def variable_of(info: KeyInfo) -> str:
    """Name of a key's variable; empty where there is none, or it is the key."""
    return info.variable if info.variable not in (None, info.key, info.short) else ""


def _figures(found: Statistics | None) -> list[str]:
    if found is None:
        return [""] * 6
    numbers = [found.minimum, found.maximum, found.mean, found.norm]
    values = ", ".join(map(_short, found.values or ()))
    return [*("" if each is None else f"{each:.4g}" for each in numbers), str(found.not_finite or ""), values]


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    written = repr(value) if isinstance(value, str) else str(value)
    return written if len(written) <= 40 else f"{written[:40]}…"
