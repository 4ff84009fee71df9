"""Files of triples: the form in which knowledge graphs are published.

A folder holds `train`, `valid` and `test`, with a triple a line: three fields, tabs between them, no header line. Which
field is the relation differs from graph to graph.
"""

from __future__ import annotations

import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embexp import caching, digests
from embexp.data.encode import Progress
from embexp.data.located import Unreadable
from embexp.errors import DataError, Fault
from embexp.specs.data import Place

PARTS = ("train", "valid", "test")
_SUFFIXES = (".txt", ".tsv")
_SHOWN = 60


@dataclass(frozen=True)
class Lines:
    """The lines of some files as numbers.

    Attributes:
        files: number of triples of each file, in order.
        fields: int32 [triples, 3], codes of each line's fields; fields of one value have one code.
        tokens: of each code, in the order in which they were first seen.
    """

    files: Mapping[Path, int]
    fields: np.ndarray
    tokens: Sequence[str]


def files_of(path: Path) -> list[Path]:
    """The files of a graph, in the order of `PARTS`.

    Raises:
        Unreadable: one is missing, or there are two for a part.
    """
    if not path.is_dir():
        where = "" if path.is_absolute() else f"looked in {Path.cwd()}"
        rule = (
            "a graph is a folder with the files train, valid and test" if path.exists() else "there is no such folder"
        )
        raise Unreadable([Fault("data.path", repr(str(path)), rule, where)])
    found, faults = [], []
    for part in PARTS:
        names = [f"{part}{suffix}" for suffix in _SUFFIXES]
        there = [path / name for name in names if (path / name).is_file()]
        found += there
        if len(there) != 1:
            rule = f"the folder needs {' or '.join(names)}" + (", and has both" if there else ", and has neither")
            faults.append(Fault("data.path", repr(str(path)), rule))
    if faults:
        raise Unreadable(faults)
    return found


def digest(path: Path, *, cache: Path) -> str:
    """Digest of a graph's content.

    Raises:
        Unreadable: see `files_of`.
    """
    return digests.of_json([caching.file_digest(file, cache=cache) for file in files_of(path)])


def lines_of(path: Path) -> Iterator[tuple[list[str], int]]:
    """The three fields of each line, and the bytes read with it; empty lines are passed over.

    Raises:
        DataError: a line is no triple.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
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


def read(files: Sequence[Path], progress: Progress) -> Lines:
    """Reads all lines of some files.

    Raises:
        DataError: a line is no triple, or there are none.
    """
    size, done = sum(file.stat().st_size for file in files), 0
    codes: dict[str, int] = {}
    numbers = array.array("i")
    counts: dict[Path, int] = {}
    for file in files:
        before = len(numbers)
        for count, (fields, length) in enumerate(lines_of(file)):
            numbers.extend(codes.setdefault(field, len(codes)) for field in fields)
            done += length
            if count % 65_536 == 0:
                progress("reading triples", done / size)
        counts[file] = (len(numbers) - before) // 3
        if not counts[file]:
            raise DataError(f"{file}: found no triples")
    return Lines(counts, np.frombuffer(numbers, np.int32).reshape(-1, 3), list(codes))


def places(lines: Lines, columns: Sequence[Place] | None) -> tuple[int, int, int]:
    """Which field of a line is the head, the relation and the tail.

    Raises:
        DataError: `columns` does not say, and the triples don't either.
    """
    if columns is None:
        columns = _told_apart(lines)
    order = list(columns)
    return order.index(Place.HEAD), order.index(Place.RELATION), order.index(Place.TAIL)


def _told_apart(lines: Lines) -> Sequence[Place]:
    """Entities are heads and tails, so those two fields share values; the third is the relation."""
    used = np.zeros((3, len(lines.tokens)), bool)
    for field in range(3):
        used[field, lines.fields[:, field]] = True
    orders = [
        (Place.HEAD, Place.RELATION, Place.TAIL),
        (Place.RELATION, Place.HEAD, Place.TAIL),
        (Place.HEAD, Place.TAIL, Place.RELATION),
    ]
    shared = []
    for order in orders:
        head, tail = order.index(Place.HEAD), order.index(Place.TAIL)
        shared.append(int(np.count_nonzero(used[head] & used[tail])))
    best = max(shared)
    if shared.count(best) > 1:
        first = next(iter(lines.files))
        raise DataError(
            f"{first}: can't tell which field is the relation, as no two of the three share more values than others do;"
            " set data.columns, such as [head,relation,tail]"
        )
    return orders[shared.index(best)]
