"""Files of triples: the form in which knowledge graphs are published. Standard library only.

A folder holds `train`, `valid` and `test`, with a triple a line: three fields, tabs between them, no header line. Which
field is the relation differs from graph to graph. Each may be compressed, such as train.txt.gz.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from embexp.data import bounded_lines, decompressed
from embexp.data.source import Unreadable
from embexp.errors import DataError, Fault

SPLITS = ("train", "valid", "test")
_SUFFIXES = (".txt", ".tsv")
_SHOWN = 60


def files_of(path: Path) -> list[Path]:
    """The files of a graph, in the order of `SPLITS`.

    Raises:
        Unreadable: one is missing, or there are two for a split.
    """
    if not path.is_dir():
        where = "" if path.is_absolute() else f"looked in {Path.cwd()}"
        rule = (
            "a graph is a folder with the files train, valid and test" if path.exists() else "there is no such folder"
        )
        raise Unreadable([Fault("data.path", repr(str(path)), rule, where)])
    found, faults = [], []
    for split in SPLITS:
        names = [f"{split}{suffix}" for suffix in _SUFFIXES]
        packed = [f"{name}{suffix}" for name in names for suffix in decompressed.SUFFIXES]
        there = [path / name for name in (*names, *packed) if (path / name).is_file()]
        found += there
        if len(there) != 1:
            rule = f"the folder needs {' or '.join(names)}" + (", and has several" if there else ", and has neither")
            faults.append(Fault("data.path", repr(str(path)), rule))
    if faults:
        raise Unreadable(faults)
    return found


def lines_of(path: Path) -> Iterator[tuple[list[str], int]]:
    """The three fields of each line, and the bytes read with it; empty lines are passed over.

    Raises:
        DataError: a line is no triple.
    """
    for number, line in enumerate(bounded_lines.lines_of(path), 1):
        place = f"{path}, line {number}"
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise DataError(f"{place}: found bytes that are not UTF-8, expected text in UTF-8") from None
        if not text:
            continue
        fields = text.split("\t")
        if len(fields) != 3:
            shown = repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
            found = f"{len(fields)} field{'s' * (len(fields) > 1)}"
            raise DataError(f"{place}: found {found} in {shown}, expected 3, with tabs between them")
        if not all(fields):
            raise DataError(f"{place}: found an empty field, expected head, relation and tail")
        yield fields, len(line)
