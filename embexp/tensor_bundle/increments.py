"""Incremental checkpoints: the rows that changed since another checkpoint, their base, and the matrices of both.

An incremental checkpoint is a checkpoint with one more file, `PREFIX.increment.json`. It names the base and its digest,
and for each matrix of which the checkpoint has some rows only, two tensors: the rows' numbers, int64 [n], rising, and
the rows, float32 [n, dim]. The base may be incremental too; the chain ends at a whole checkpoint. Each checkpoint of a
chain is in a directory of its own, all of these in one folder, which can be moved.

What changed since the last checkpoint, and everything from time to time, is the "consecutive increment" of Check-N-Run
(Eisenman et al., NSDI '22).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from embexp.errors import CheckpointError, DataError
from embexp.system import arrays
from embexp.tensor_bundle.index import Entry, read_index
from embexp.tensor_bundle.tensor import FLOAT32, INT64, PieceReader, Tensor, read_blocks, read_content

_ENDING = ".increment.json"
_BASE = re.compile(r"\.\./(?!\.\.?/)[^/\0]+/(?!\.\.?$)[^/\0]+")
_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class SomeRows:
    """Rows of a matrix that an incremental checkpoint has.

    Attributes:
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

    def entries(self) -> dict[str, Entry]:
        """The tensors in its files, by key.

        Raises:
            DataError: its index is damaged.
        """
        return read_index(_index(self.prefix))


def is_incremental(prefix: Path) -> bool:
    """Whether a checkpoint has some rows of its tables only."""
    return _description(prefix).is_file()


def describe(prefix: Path, base: Path, matrices: Mapping[str, SomeRows]) -> None:
    """Makes the checkpoint at `prefix` an incremental one.

    Args:
        base: prefix of its base, in a directory beside that in which the checkpoint will be.
        matrices: by key, the matrices of which it has some rows only.
    """
    content = {
        "base": f"../{base.parent.name}/{base.name}",
        "base_digest": _digest(base),
        "matrices": {key: asdict(rows) for key, rows in matrices.items()},
    }
    _description(prefix).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def link(prefix: Path) -> Link:
    """One checkpoint, without a look at its base.

    Raises:
        CheckpointError: the file that describes an incremental one is damaged.
    """
    path = _description(prefix)
    if not path.is_file():
        return Link(prefix)
    try:
        content = json.loads(path.read_bytes())
        matrices = {
            key: SomeRows((int(each["shape"][0]), int(each["shape"][1])), str(each["numbers"]), str(each["rows"]))
            for key, each in content["matrices"].items()
        }
        if not _BASE.fullmatch(str(content["base"])):
            raise ValueError(f"its base is {str(content['base'])[:80]!r}, expected a checkpoint in a folder beside it")
        # The directory may be known by a symbolic link to it, which lies elsewhere.
        base = Path(os.path.normpath(os.path.realpath(prefix.parent) + "/" + str(content["base"])))
        return Link(prefix, base, str(content["base_digest"]), matrices)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path}: found no description of an incremental checkpoint: {error!r}") from None


def entries_as_whole(index: Path) -> dict[str, Entry]:
    """The tensors of a checkpoint, by key; matrices of which it has some rows only have the shape of the whole.

    Args:
        index: the `.index` file.

    Raises:
        CheckpointError: the file that describes an incremental checkpoint is damaged.
        DataError: the index is damaged.
    """
    found = link(_prefix(index))
    entries = found.entries()
    return entries | {key: replace(entries[key], shape=some.shape) for key, some in found.matrices.items()}


def require_whole(index: Path) -> None:
    """Raises CheckpointError if a checkpoint, given by its `.index` file, is incremental."""
    if (base := link(_prefix(index)).base) is not None:
        raise CheckpointError(
            f"{index.parent} is an incremental checkpoint: it has the rows that changed since {base.parent.name}, and a"
            " whole one is needed, such as a run writes at its end"
        )


def chain(prefix: Path) -> list[Link]:
    """A checkpoint, its base, the base of that, and so on to a whole one.

    Raises:
        CheckpointError: a base is missing, or no longer what it was when the next one was written.
    """
    links = [link(prefix)]
    while (base := links[-1].base) is not None:
        of = f"{links[-1].prefix.parent} is an incremental checkpoint: it has the rows that changed since {base.parent}"
        remedy = "Restore another checkpoint, or bring that one back"
        if not _index(base).is_file():
            raise CheckpointError(f"{of}, which is missing. {remedy}")
        if _digest(base) != links[-1].base_digest:
            raise CheckpointError(f"{of}, which has been written again since, or is damaged. {remedy}")
        links.append(link(base))
    return links


def needed(directories: Iterable[Path], name: str = "checkpoint") -> set[Path]:
    """These checkpoints, and all that they are based on: what must stay when others are removed.

    Args:
        name: last part of their prefixes.

    Raises:
        CheckpointError: the file that describes an incremental one is damaged.
    """
    found: set[Path] = set()
    pending = list(directories)
    while pending:
        directory = pending.pop()
        if directory not in found:
            found.add(directory)
            base = link(directory / name).base
            pending += [] if base is None else [directory.parent / base.parent.name]
    return found


def _description(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + _ENDING)


def _prefix(index: Path) -> Path:
    return index.with_name(index.name.removesuffix(".index"))


def _index(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.index")


def _digest(prefix: Path) -> str:
    """Digest of a checkpoint's index, which has the checksums of all its tensors, and of what it says of its base."""
    content = hashlib.sha256(_index(prefix).read_bytes())
    if is_incremental(prefix):
        content.update(_description(prefix).read_bytes())
    return content.hexdigest()


class Matrices:
    """The matrices that a checkpoint stands for: those of its base with the rows that changed since in their place."""

    def __init__(self, prefix: Path) -> None:
        """Reads the indexes of a checkpoint and of all that it is based on.

        Raises:
            CheckpointError: a base is missing or has changed.
            DataError: an index is damaged.
        """
        self._links = chain(prefix)
        self._entries = [link.entries() for link in self._links]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors, by key."""
        some = {key: each.shape for key, each in self._links[0].matrices.items()}
        return {key: entry.shape for key, entry in self._entries[0].items()} | some

    def blocks(self, key: str, rows: int) -> Iterator[np.ndarray]:
        """The rows of a float32 matrix in order; each checksum is compared at the end of what it is of.

        Args:
            rows: of a block, at most.

        Yields:
            float32 [n, dim], possibly read-only.

        Raises:
            CheckpointError: the chain does not fit together.
            DataError: a data file is missing, cut short, or damaged.
        """
        whole, changed = self._parts(key)
        with contextlib.ExitStack() as stack:
            changes = [
                stack.enter_context(contextlib.closing(_ChangedRows(some, entries))) for some, entries in changed
            ]
            start = 0
            for block in read_blocks(key, whole, rows):
                for change in changes:
                    block = change.into(block, start)
                yield block
                start += len(block)
            for change in changes:
                change.check()

    def _parts(self, key: str) -> tuple[Entry, list[tuple[SomeRows, Mapping[str, Entry]]]]:
        """The last checkpoint's matrix that is whole, and rows that changed since, the earliest first."""
        changed: list[tuple[SomeRows, Mapping[str, Entry]]] = []
        shape = self.shapes().get(key)
        for link, entries in zip(self._links, self._entries, strict=True):
            some, entry = link.matrices.get(key), entries.get(key)
            found = some or entry
            if found is None or found.shape != shape:
                raise CheckpointError(
                    f"{self._links[0].prefix.parent} needs {key} of {shape}: {link.prefix.parent} has none"
                )
            if some is None:
                assert entry is not None
                return entry, changed[::-1]
            changed.append((some, entries))
        raise AssertionError("a chain ends with a whole checkpoint")


class _ChangedRows:
    """Rows that changed, to be put into the blocks of the matrix in their order."""

    def __init__(self, some: SomeRows, entries: Mapping[str, Entry]) -> None:
        self._numbers = _numbers(some, entries)
        self._dim, self._at = some.shape[1], 0
        rows = entries.get(some.rows)
        if (
            rows is None
            or rows.kind != FLOAT32
            or rows.shape != (len(self._numbers), self._dim)
            or len(rows.pieces) > 1
        ):
            raise CheckpointError(f"found no {some.rows} of float32 ({len(self._numbers)}, {self._dim}) in one piece")
        self._reader = PieceReader(some.rows, rows.pieces[0])

    def into(self, block: np.ndarray, start: int) -> np.ndarray:
        """The block of rows from `start`, with those that changed in their place; blocks come in order."""
        stop = self._at + int(np.searchsorted(self._numbers[self._at : self._at + len(block)], start + len(block)))
        numbers, self._at = self._numbers[self._at : stop], stop
        if not len(numbers):
            return block
        if not block.flags.writeable:
            read, block = block, arrays.empty(block.shape, np.float32)
            block[:] = read
        data = self._reader.read(4 * len(numbers) * self._dim)
        block[numbers - start] = np.frombuffer(data, "<f4").reshape(-1, self._dim)
        return block

    def check(self) -> None:
        self._reader.check()

    def close(self) -> None:
        self._reader.close()


def _numbers(some: SomeRows, entries: Mapping[str, Entry]) -> np.ndarray:
    """The numbers of changed rows, mapped: together they may be as large as a table's rows."""
    entry = entries.get(some.numbers)
    if entry is None or entry.kind != INT64 or len(entry.shape) != 1 or len(entry.pieces) > 1:
        raise CheckpointError(f"found no {some.numbers} of int64 in one piece")
    (piece,) = entry.pieces
    for _ in read_content(some.numbers, piece, _CHUNK_BYTES):
        pass  # compares the checksum
    if not piece.size:
        return np.empty(0, np.int64)
    numbers = np.asarray(np.memmap(piece.path, "<i8", "r", piece.offset, entry.shape))
    if numbers[0] < 0 or numbers[-1] >= some.shape[0]:
        raise DataError(f"{piece.path}: found rows {numbers[0]} to {numbers[-1]} of a table of {some.shape[0]}")
    return numbers


@dataclass(frozen=True)
class ChangedMatrix:
    """Reads rows of such a matrix.

    Attributes:
        whole: the matrix in the checkpoint at the end of the chain.
        changes: numbers of rows, int64 [n], rising, and the rows, [n, dim]; the earliest change first.
    """

    whole: Tensor
    changes: Sequence[tuple[Tensor, Tensor]]

    @property
    def dtype(self) -> np.dtype | None:
        """NumPy's type of its numbers."""
        return self.whole.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, in memory of their own; no checksum is compared, see `Tensor.read`.

        Raises:
            DataError: there are no such rows, or a data file is missing, cut short, or does not fit.
        """
        values = np.array(self.whole.read(start, stop))
        for numbers, rows in self.changes:
            of_rows = numbers.value()
            first, last = np.searchsorted(of_rows, [start, stop])
            changed = rows.read(int(first), int(last))
            at = of_rows[first:last] - start
            if changed.shape != (len(at), *values.shape[1:]) or np.any((at < 0) | (at >= len(values))):
                raise DataError(f"{rows.name}: found rows {list(rows.entry.shape)} that are not those of {numbers.key}")
            values[at] = changed
        return values

    def value(self) -> np.ndarray:
        """All rows, see `read`."""
        return self.read(0, self.whole.entry.shape[0])

    def verify(self) -> None:
        """Reads all that it is made of, a block at a time, and compares the checksums.

        Raises:
            DataError: one is wrong, or a data file is missing or cut short.
        """
        for each in (self.whole, *(tensor for change in self.changes for tensor in change)):
            each.verify()
