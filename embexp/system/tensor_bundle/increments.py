"""Incremental checkpoints: the rows that changed since another checkpoint, their base, and the matrices of both.

An incremental checkpoint is a checkpoint with one more file, `PREFIX.increment.json`. It names the base and its digest,
and for each matrix of which the checkpoint has some rows only, two tensors: the rows' numbers, int64 [n], rising, and
the rows, float32 [n, dim]. Rows behind the last one of the base are among these. The base may be incremental too; the
chain ends at a whole checkpoint. Each checkpoint of a chain is in a directory of its own, all of these in one folder,
which can be moved.

What changed since the last checkpoint, and everything from time to time, is the "consecutive increment" of Check-N-Run
(Eisenman et al., NSDI '22).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from embexp.errors import CheckpointError, DataError
from embexp.system import arrays
from embexp.system.tensor_bundle.index import Entry, data_files, index_of, prefix_of, read_index
from embexp.system.tensor_bundle.stacked import StackedMatrix, apart
from embexp.system.tensor_bundle.tensor import INT64, MATRICES, PieceReader, Tensor

ENDING = ".increment.json"
"""How the name of the file ends that makes a checkpoint an incremental one."""
EARLIER = "earlier_"
"""How the folders of an earlier run's checkpoints begin, on the last of which those of a run are based."""
_BASE = re.compile(r"\.\./(?!\.\.?/)[^/\0]+/(?!\.\.?$)[^/\0]+")


@dataclass(frozen=True)
class SomeRows:
    """Rows of a matrix that an incremental checkpoint has.

    Attributes:
        shape: of the matrix, which may have more rows than that of the base.
        numbers: key of the rows' numbers.
        rows: key of the rows.
    """

    shape: tuple[int, int]
    numbers: str
    rows: str


@dataclass(frozen=True)
class Link:
    """A checkpoint of a chain.

    Attributes:
        base: prefix of its base; None: it is whole.
        base_digest: of the base when this checkpoint was written.
        matrices: by key, the matrices of which it has some rows only.
    """

    prefix: Path
    base: Path | None = None
    base_digest: str = ""
    matrices: Mapping[str, SomeRows] = field(default_factory=dict)

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """The tensors in its files, by key.

        Raises:
            DataError: its index is damaged.
        """
        return read_index(index_of(self.prefix))

    def tensor(self, key: str) -> Tensor:
        """A tensor in its files.

        Raises:
            DataError: there is none of this key.
        """
        if key not in self.entries:
            raise DataError(f"{self.prefix}: found no {key} in it")
        return Tensor(f"{self.prefix}.index: {key}", key, self.entries[key])


def is_incremental(prefix: Path) -> bool:
    """Whether a checkpoint has some rows of its tables only."""
    return description_of(prefix).is_file()


def describe(prefix: Path, base: Path, matrices: Mapping[str, SomeRows]) -> None:
    """Makes the checkpoint at `prefix` an incremental one.

    Args:
        base: prefix of its base, in a directory beside that in which the checkpoint will be.
        matrices: by key, the matrices of which it has some rows only.
    """
    content = {
        "base": f"../{base.parent.name}/{base.name}",
        "base_digest": digest_of(base),
        "matrices": {key: asdict(rows) for key, rows in matrices.items()},
    }
    description_of(prefix).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def link(prefix: Path) -> Link:
    """One checkpoint, without a look at its base.

    Raises:
        CheckpointError: the file that describes an incremental one is damaged.
    """
    path = description_of(prefix)
    if not path.is_file():
        return Link(prefix)
    try:
        content = json.loads(path.read_bytes())
        matrices = {
            key: SomeRows(
                (int(matrix["shape"][0]), int(matrix["shape"][1])), str(matrix["numbers"]), str(matrix["rows"])
            )
            for key, matrix in content["matrices"].items()
        }
        if not _BASE.fullmatch(str(content["base"])):
            raise ValueError(f"its base is {str(content['base'])[:80]!r}, expected a checkpoint in a folder next to it")
        # The directory may be known by a symbolic link to it, which lies elsewhere.
        base = Path(os.path.normpath(os.path.realpath(prefix.parent) + "/" + str(content["base"])))
        return Link(prefix, base, str(content["base_digest"]), matrices)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path}: found no description of an incremental checkpoint: {error!r}") from None


def require_whole(index: Path) -> None:
    """Raises CheckpointError if a checkpoint, given by its `.index` file, is incremental."""
    if (base := link(prefix_of(index)).base) is not None:
        raise CheckpointError(
            f"{index.parent} is an incremental checkpoint: it has only the rows that changed since "
            f"{base.parent.name}, but a full one is needed: embexp checkpoint convert "
            f"{shlex.quote(str(index.parent))} OUT --to object"
        )


def chain(prefix: Path) -> list[Link]:
    """A checkpoint, its base, the base of that, and so on to a whole one.

    Raises:
        CheckpointError: a base is missing, or no longer what it was when the next one was written.
    """
    links = [link(prefix)]
    while (base := links[-1].base) is not None:
        of = (
            f"{links[-1].prefix.parent} is an incremental checkpoint: it has only the rows that changed since "
            f"{base.parent}"
        )
        remedy = "Restore another checkpoint, or put that one back"
        if not index_of(base).is_file():
            raise CheckpointError(f"{of}, which is missing. {remedy}")
        if digest_of(base) != links[-1].base_digest:
            raise CheckpointError(f"{of}, which was overwritten later or is damaged. {remedy}")
        links.append(link(base))
    return links


def needed(directories: Iterable[Path]) -> set[Path]:
    """These checkpoints, and all that they are based on: what must stay when others are removed.

    Raises:
        CheckpointError: the file that describes an incremental one is damaged.
    """
    found: set[Path] = set()
    pending = list(directories)
    while pending:
        directory = pending.pop()
        if directory not in found:
            found.add(directory)
            base = link(directory / "checkpoint").base
            pending += [] if base is None else [directory.parent / base.parent.name]
    return found


def files_of(links: Iterable[Link]) -> list[Path]:
    """The files of the checkpoints of a chain: their indexes, what they say of their bases, and their data files.

    Raises:
        DataError: an index is damaged.
    """
    found = []
    for each in links:
        described = [] if each.base is None else [description_of(each.prefix)]
        found += [index_of(each.prefix), *described, *data_files(each.entries.values())]
    return found


def description_of(prefix: Path) -> Path:
    """The file that makes a checkpoint an incremental one."""
    return prefix.with_name(prefix.name + ENDING)


def digest_of(prefix: Path) -> str:
    """Digest of a checkpoint's index, which has the checksums of all its tensors, and of what it says of its base."""
    content = hashlib.sha256(index_of(prefix).read_bytes())
    if is_incremental(prefix):
        content.update(description_of(prefix).read_bytes())
    return content.hexdigest()


@dataclass(frozen=True)
class ChangedMatrix:
    """A matrix of an incremental checkpoint: that at the end of the chain, with the rows that changed since.

    Attributes:
        whole: the matrix in the checkpoint at the end of the chain.
        changes: numbers of rows, int64 [n], rising, and the rows, float32 [n, dim]; the earliest change first.
        rows: of the matrix; those behind the last one of `whole` are in the changes.
    """

    whole: Tensor
    changes: Sequence[tuple[Tensor, Tensor]]
    rows: int

    @property
    def key(self) -> str:
        """Key of the matrix."""
        return self.whole.key

    @property
    def entry(self) -> Entry:
        """Shape and type of the matrix, and where it is without the changes."""
        return replace(self.whole.entry, shape=(self.rows, *self.whole.entry.shape[1:]))

    @property
    def dtype(self) -> np.dtype | None:
        """NumPy's type of its numbers."""
        return self.whole.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, in memory of their own; no checksum is compared, see `Tensor.read`.

        Raises:
            DataError: there are no such rows, or a data file is missing, cut short, or does not fit.
        """
        values = self._whole_and_further(start, stop)
        for numbers, rows in self.changes:
            of_rows = numbers.value()
            first, last = np.searchsorted(of_rows, [start, stop])
            at = of_rows[first:last] - start
            if np.any((at < 0) | (at >= len(values))):
                raise DataError(f"{rows.name}: found rows that are not those of {numbers.key}")
            values[at] = rows.read(int(first), int(last))
        return values

    def _whole_and_further(self, start: int, stop: int) -> np.ndarray:
        """Rows without the changes; those behind the last one are zeros."""
        last = self.whole.entry.shape[0]
        if stop <= last or not start <= stop <= self.rows:
            return np.array(self.whole.read(start, stop))  # which names rows that there are not
        self._check_further()
        values = np.zeros((stop - start, *self.whole.entry.shape[1:]), self.dtype)
        if start < last:
            values[: last - start] = self.whole.read(start, last)
        return values

    def _check_further(self) -> None:
        """Raises DataError unless the changes have all rows behind the last one of the whole matrix."""
        last = self.whole.entry.shape[0]
        found = [numbers.value() for numbers, _ in self.changes]
        further = np.unique(np.concatenate([each[np.searchsorted(each, last) :] for each in found]))
        if not np.array_equal(further, np.arange(last, self.rows)):
            raise DataError(f"{self.changes[-1][1].name}: found {len(further):,} of rows {last:,} to {self.rows:,}")

    @property
    def unchanged(self) -> bool:
        """Whether no row differs from those of the whole matrix."""
        return not any(numbers.entry.shape[0] for numbers, _ in self.changes)

    def value(self) -> np.ndarray:
        """All rows, see `read`."""
        return self.read(0, self.rows)

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """All rows in order, [n, dim], possibly read-only; see `Tensor.blocks`.

        Raises:
            DataError: a data file is missing, cut short, or damaged, or a change does not fit.
        """
        with contextlib.ExitStack() as stack:
            changes = [stack.enter_context(contextlib.closing(_ChangedRows(self, *each))) for each in self.changes]
            start = 0
            for block in itertools.chain(self.whole.blocks(rows), self._further(rows)):
                for change in changes:
                    block = change.into(block, start)
                yield block
                start += len(block)
            for change in changes:
                change.reader.check()

    def _further(self, rows: int) -> Iterator[np.ndarray]:
        """Blocks of zeros, for the rows behind the last one of the whole matrix."""
        first = self.whole.entry.shape[0]
        if first < self.rows:
            self._check_further()
        for start in range(first, self.rows, rows):
            yield np.zeros((min(rows, self.rows - start), *self.whole.entry.shape[1:]), self.dtype)

    def verify(self) -> None:
        """Reads all that it is made of, a block at a time, and compares the checksums.

        Raises:
            DataError: one is wrong, or a data file is missing or cut short.
        """
        for each in parts_of(self):
            each.verify()


class _ChangedRows:
    """Rows that changed, to be put into the blocks of the matrix in their order."""

    def __init__(self, matrix: ChangedMatrix, numbers: Tensor, rows: Tensor) -> None:
        numbers.verify()
        # Mapped: together they may be as large as a table's rows.
        self._numbers, self._at = np.asarray(numbers.value()), 0
        count, self._dim = matrix.entry.shape
        if len(self._numbers) and not 0 <= self._numbers[0] <= self._numbers[-1] < count:
            raise DataError(f"{numbers.name}: found rows {self._numbers[0]} to {self._numbers[-1]} of {count}")
        self.reader = PieceReader(rows.key, rows.entry.pieces[0])
        self.close = self.reader.close

    def into(self, block: np.ndarray, start: int) -> np.ndarray:
        """The block of rows from `start`, with those that changed in their place; blocks come in order."""
        stop = self._at + int(np.searchsorted(self._numbers[self._at : self._at + len(block)], start + len(block)))
        numbers, self._at = self._numbers[self._at : stop], stop
        if not len(numbers):
            return block
        if not block.flags.writeable:
            read, block = block, arrays.empty(block.shape, block.dtype)
            block[:] = read
        data = self.reader.read(block.itemsize * len(numbers) * self._dim)
        block[numbers - start] = np.frombuffer(data, block.dtype).reshape(-1, self._dim)
        return block


Values = Tensor | ChangedMatrix | StackedMatrix


def parts_of(values: Values) -> list[Tensor]:
    """The tensors in files that something is made of."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, StackedMatrix):
        return [values.stack.tensor]
    return [values.whole, *(tensor for change in values.changes for tensor in change)]


def row_bytes(values: Values) -> int:
    """Bytes of a row of a tensor; 4 a number, where NumPy lacks the type."""
    return math.prod(values.entry.shape[1:]) * (values.dtype or np.dtype(np.float32)).itemsize


def tensors(links: Sequence[Link]) -> dict[str, Values]:
    """All that a checkpoint stands for, by key: its tensors, and matrices that it does not have in one place.

    Args:
        links: its `chain`.

    Raises:
        DataError: an index is damaged, or the chain does not fit together.
    """
    matrices = links[0].matrices
    parts = {key for some in matrices.values() for key in (some.numbers, some.rows)}
    own = {key: links[0].tensor(key) for key in links[0].entries if key not in parts and key not in matrices}
    found: dict[str, Values] = dict(apart(own, links[0].prefix))
    for key, some in matrices.items():
        whole = next(number for number, each in enumerate(links) if key not in each.matrices)
        matrix = links[whole].tensor(key)
        changes = [_change(each, each.matrices[key], matrix.entry.kind) for each in links[:whole]]
        lengths = [*(each.matrices[key].shape[0] for each in links[:whole]), *matrix.entry.shape[:1]]
        fits = matrix.entry.shape[1:] == some.shape[1:] and lengths == sorted(lengths, reverse=True)
        if not fits or matrix.entry.kind not in MATRICES:
            raise DataError(f"{matrix.name}: found no floats {list(some.shape)}, which {links[0].prefix} is based on")
        found[key] = ChangedMatrix(matrix, changes[::-1], some.shape[0])
    return found


def _change(link: Link, some: SomeRows, kind: int) -> tuple[Tensor, Tensor]:
    """Numbers and rows of a change of a matrix, of the type of its numbers."""
    numbers, rows = link.tensor(some.numbers), link.tensor(some.rows)
    shapes = numbers.entry.shape, rows.entry.shape
    kinds, pieces = (numbers.entry.kind, rows.entry.kind), len(numbers.entry.pieces + rows.entry.pieces)
    if kinds != (INT64, kind) or len(shapes[0]) != 1 or shapes[1] != (*shapes[0], some.shape[1]) or pieces != 2:
        raise DataError(
            f"{link.prefix}: found {some.numbers} and {some.rows} of {list(shapes[0])} and {list(shapes[1])}, expected"
            f" the numbers, int64 [n], and the rows, floats [n, {some.shape[1]}], each in one piece"
        )
    return numbers, rows
