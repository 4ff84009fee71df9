"""The lines of files of triples as numbers, and the order of their fields."""

from __future__ import annotations

import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embexp.data.triple_files import lines_of
from embexp.errors import DataError
from embexp.specs.triples import Place
from embexp.system.progress import Progress


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
                progress("reading triples", min(1.0, done / size))
        counts[file] = (len(numbers) - before) // 3
        if not counts[file]:
            raise DataError(f"{file}: found no triples")
    return Lines(counts, np.frombuffer(numbers, np.int32).reshape(-1, 3), list(codes))


def places(lines: Lines, columns: Sequence[Place] | None) -> tuple[int, int, int]:
    """Which field of a line is the head, the relation and the tail.

    Raises:
        DataError: `columns` is None, and the triples don't show it.
    """
    if columns is None:
        columns = _inferred_order(lines)
    order = list(columns)
    return order.index(Place.HEAD), order.index(Place.RELATION), order.index(Place.TAIL)


def _inferred_order(lines: Lines) -> Sequence[Place]:
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
