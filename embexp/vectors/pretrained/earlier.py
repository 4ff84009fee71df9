"""A finished run, or a checkpoint, as a source: its tables and slots, and how those of a run align with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.vocabularies.spelling import normalized
from embexp.data.vocabularies.vocabulary import (
    BucketVocabulary,
    HashVocabulary,
    IdentityVocabulary,
    TokenVocabulary,
    Vocabulary,
    stands_for_tokens,
)
from embexp.errors import DataError, NotARunError
from embexp.records.folder import RunFolder
from embexp.records.inventory import Listed
from embexp.specs.base import Note
from embexp.specs.optimizers import TableOptimizer, slots_of
from embexp.specs.pretrained import Match, NonFinite, SlotPolicy
from embexp.specs.run import RunSpec
from embexp.specs.tables import RowType, Table
from embexp.system import arrays, caching, digests
from embexp.system.arrays import Rows
from embexp.system.tensor_bundle import increments, writer
from embexp.system.tensor_bundle.increments import Values
from embexp.system.tensor_bundle.index import prefix_of
from embexp.vectors.alignment import Alignment, RowKind, RowTokens, by_token
from embexp.vectors.file_source import FileSource, VectorSource
from embexp.vectors.pretrained.tables import Mismatch

_TABLES = "embedding/"
_SLOT = ".S"
"""An escaped "/" in the keys of an object-based checkpoint."""


def open_run(path: Path, *, cache: Path) -> EarlierCheckpoint:
    """Opens a directory; reads its spec and the index of its checkpoint.

    Args:
        path: of a finished run, or of a grown checkpoint.

    Raises:
        NotARunError: it is neither, or the run has not finished or left no checkpoint.
        RunError: another process writes it.
        DataError: the index of the checkpoint is damaged, or a file is not what the run wrote.
    """
    folder = RunFolder(path)
    if not path.is_dir():
        what = "is a file" if path.exists() else "there is no such directory"
        raise NotARunError(f"{path}: {what}; give the directory of a finished run, or of a grown checkpoint")
    with folder.reading():
        folder.check(folder.spec, folder.summary)
        spec = folder.read_spec()
        grown = folder.growth.is_file()
        index = writer.object_index(folder.final_checkpoint)
        if not index.is_file():
            ended = grown or folder.summary.is_file()
            why = "the run saved no checkpoint (checkpoint.save was never)" if ended else "the run has not finished"
            raise NotARunError(f"{path} holds no checkpoint to take rows from: {why}")
        folder.check(index)
        from embexp.vectors import array_files

        return EarlierCheckpoint(folder, spec, grown, index, array_files.checkpoint_tensors(index), cache)


class OpenedRuns:
    """Finished runs, and grown checkpoints, that a run takes something from. Each is opened once.

    Args:
        cache: folder for facts about their files.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._opened: dict[str, EarlierCheckpoint] = {}

    def __getitem__(self, path: str) -> EarlierCheckpoint:
        """One of them; raises what `open_run` does."""
        if path not in self._opened:
            self._opened[path] = open_run(Path(path), cache=self._cache)
        return self._opened[path]


@dataclass(frozen=True)
class TrainedRows:
    """Rows of a table of an earlier run, or of one of its slots: a `VectorSource`.

    Attributes:
        digest: of the run, see `EarlierCheckpoint.digest`.
        memory_map: returns all rows as one mapping, or None. Of a checkpoint's rows, unless they are converted, it may
            begin anywhere in the file, so who takes its memory over has to check the alignment.
        scales: None: no run writes int8.
        tokens: None: the vocabulary of the run has them.
    """

    source: Rows
    digest: str
    dtype: np.dtype
    memory_map: Callable[[], np.ndarray | None]
    scales: None = None
    tokens: pa.LargeStringArray | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.source.rows

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return self.source.dim

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, float32 [stop - start, dim]; may be a view of the file."""
        return self.source.read(start, stop)


@dataclass(frozen=True)
class EarlierCheckpoint:
    """A finished run, or a checkpoint grown from one.

    Attributes:
        folder: of the run, or of the grown checkpoint.
        spec: of the run; of a grown checkpoint, that of the run that it came from.
        grown: whether rows were added, moved or dropped since.
    """

    folder: RunFolder
    spec: RunSpec
    grown: bool
    index: Path
    tensors: Mapping[str, Values]
    cache: Path
    _vocabularies: dict[str, Vocabulary] = field(default_factory=dict, repr=False, compare=False)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of its tables."""
        return tuple(self.spec.tables)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What the run came to; a grown checkpoint has none.

        Raises:
            NotARunError: the run has not finished.
        """
        return self.folder.read_summary()

    @cached_property
    def files(self) -> list[Path]:
        """The files of the checkpoint, those included that it is based on if it is incremental."""
        return increments.files_of(increments.chain(prefix_of(self.index)))

    @cached_property
    def digest(self) -> str:
        """Digest of all that rows are taken from: the checkpoint, the vocabularies, and which rows are new in it."""
        listed = self.checked_data
        content: dict[str, Any] = {
            "checkpoint": [
                listed[path].sha256 if path in listed else caching.file_digest(path, cache=self.cache)
                for path in self.files
            ],
            "vocabularies": {name: self.vocabulary(name).digest for name in self.tables},
        }
        if self.grown:
            provenance = {name: self.folder.provenance(name) for name in self.tables}
            content["provenance"] = {
                name: caching.file_digest(path, cache=self.cache) for name, path in provenance.items() if path.exists()
            }
        else:
            recorded = self.summary["initialization"]["tables"]
            content["files"] = {
                name: recorded[name]["pretrained"]["digest"] for name in self.tables if not self.holds(name)
            }
        return digests.of_json(content)

    def holds(self, table: str) -> bool:
        """Whether the checkpoint has a table's rows; those that a run froze whole may be in a file instead."""
        return self.key(table) in self.tensors

    def shape(self, table: str) -> tuple[int, int]:
        """Rows and dim of a table."""
        if self.holds(table):
            rows, dim = self.tensors[self.key(table)].entry.shape
            return rows, dim
        known = self.summary["tables"][table]
        return int(known["vocabulary_size"]), int(known["dim"])

    def vocabulary(self, table: str) -> Vocabulary:
        """What the rows of a table stand for.

        Raises:
            DataError: the file is missing or damaged, does not fit the table, or is not what the run wrote.
        """
        if table not in self._vocabularies:
            found = Vocabulary.read_for(self.folder.checked_vocabulary(table), self.shape(table)[0])
            self._vocabularies[table] = found.normalizing(self.spec.data.token_steps)
        return self._vocabularies[table]

    def key(self, table: str, slot: str | None = None) -> str:
        """Where the checkpoint has a table, or one slot of it; without the suffix that TensorFlow adds."""
        return f"{_TABLES}{table}" if slot is None else f"{_TABLES}{table}{_SLOT}{slot}"

    def slots(self, table: str) -> tuple[str, ...]:
        """Names of the slots that the checkpoint has for a table."""
        start = self.key(table, "")
        return tuple(sorted(key.removeprefix(start) for key in self.tensors if key.startswith(start)))

    def rows(self, table: str, slot: str | None = None, *, mapped_as: RowType | None = None) -> TrainedRows:
        """A table, or one slot of it, that the checkpoint holds.

        Args:
            slot: name of the slot; None: the table itself.
            mapped_as: as what a matrix is mapped, which is converted into the cache if it can't be in its file; None:
                it is mapped if it can be.

        Raises:
            DataError: a file of the checkpoint is not what the run wrote.
        """
        from embexp.vectors import array_files

        self.checked_data  # noqa: B018  all tables may be in one file, which is read once
        stored = replace(array_files.stored_tensor(self.index, self.tensors, self.key(table, slot)), finite=True)
        file = FileSource(stored, cache=self.cache, non_finite=NonFinite.KEEP)
        if mapped_as is not None:
            file.map_as(mapped_as)
        return TrainedRows(file, self.digest, file.dtype, file.view if mapped_as is None else file.memory_map)

    @cached_property
    def checked_data(self) -> Mapping[Path, Listed]:
        """What the inventory of the run says of the files of the checkpoint; empty: it has none.

        Raises:
            DataError: a file is not what the run wrote.
        """
        return self.folder.check(*self.files)

    def rows_of_run(self, table: str) -> np.ndarray:
        """int64 [rows]: which row of the run it was trained as, -1 where it is new since.

        Raises:
            DataError: what was written about that is damaged.
        """
        rows, _ = self.shape(table)
        path = self.folder.provenance(table)
        if not self.grown or not path.exists():
            return np.arange(rows)
        try:
            found, _ = arrays.mapped(path)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: found no .npy file of row numbers: {error}") from error
        if found.shape != (rows,) or found.dtype != np.int64:
            raise DataError(f"{path}: found {found.dtype} {found.shape}, expected int64 ({rows},)")
        return found


def mismatch_with(source: EarlierCheckpoint, theirs: str, name: str, table: Table) -> Mismatch | None:
    """Compares a table with the one of an earlier run that its rows come from.

    Args:
        table: its settings; a dim of null fits any.
    """
    if theirs not in source.tables:
        return Mismatch(
            f"the checkpoint has no table {theirs!r}; its tables are {', '.join(source.tables)}",
            f"name one: choose pretrained@tables.{name}.pretrained=checkpoint and set its table",
        )
    _, dim = source.shape(theirs)
    if table.dim not in (None, dim):
        return Mismatch(
            f"rows of its table {theirs!r} have {dim} numbers, but those of the table have {table.dim}",
            f"set tables.{name}.dim={dim}",
        )
    return None


def same_rows(a: Vocabulary, b: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of `a`, and those of the same rows of `b`, int64 each.

    Of tokens these are the rows in front: those of missing and of rare values, and the OOV rows if there are as many,
    as otherwise other values share them. Hash buckets are the same if there are as many, buckets of numbers if they
    have the same boundaries.
    """
    rows = np.empty((0, 2), np.int64)
    match a, b:
        case TokenVocabulary(), TokenVocabulary():
            mine, theirs = ([kind for _, kind, _ in each.special] for each in (a, b))
            shared = [kind for kind in ("missing", "rare") if kind in mine and kind in theirs]
            pairs = [(row, row) for row in range(a.oov) if a.oov == b.oov]
            pairs += [(mine.index(kind), theirs.index(kind)) for kind in shared]
            rows = np.array(pairs, np.int64).reshape(-1, 2)
        case HashVocabulary(), HashVocabulary() if a.buckets == b.buckets:
            first = -1 if a.missing and b.missing else 0
            rows = np.arange(first, a.buckets)[:, None] + np.array([a.missing, b.missing])
        case BucketVocabulary(), BucketVocabulary() if a.boundaries == b.boundaries:
            rows = np.repeat(np.arange(a.size)[:, None], 2, axis=1)
    return rows[:, 0], rows[:, 1]


def aligned_with(vocabulary: Vocabulary, rows: int, earlier: Vocabulary, earlier_rows: int, how: Match) -> Alignment:
    """Aligns a table with an earlier one by what their rows stand for, never by position.

    Rows that stand for no token, such as the OOV row, are matched where they mean the same; see `same_rows`. Rows that
    stand for nothing, behind the last token, are matched one by one in their order, as far as both tables have any.

    Args:
        earlier_rows: rows of that.
        how: when two tokens are the same.
    """
    file_rows, kinds = np.full(rows, -1, np.int64), np.full(rows, RowKind.SPECIAL, np.uint8)
    by: Mapping[Match, int] = {}
    end, earlier_end = vocabulary.size, earlier.size
    if isinstance(vocabulary, IdentityVocabulary) and isinstance(earlier, IdentityVocabulary):
        shared = min(end, earlier_end)  # the tokens are the row numbers themselves
        file_rows[:shared] = np.arange(shared)
        kinds[:end], kinds[:shared] = RowKind.MISSING, RowKind.PRETRAINED
        by = {Match.EXACT: shared}
    elif not (stands_for_tokens(vocabulary) and stands_for_tokens(earlier)):
        mine, others = same_rows(vocabulary, earlier)
        file_rows[mine], kinds[mine] = others, RowKind.PRETRAINED
    else:
        words, theirs = row_tokens(vocabulary), row_tokens(earlier)
        found = by_token(words, theirs.tokens, how, rows=rows)
        file_rows, kinds, by = found.file_rows, found.kinds, found.by
        file_rows[file_rows >= 0] += theirs.first
    if (kinds == RowKind.PRETRAINED).any():
        mine, others = same_rows(vocabulary, earlier)
        free = np.arange(max(0, min(rows - end, earlier_rows - earlier_end)))
        mine, others = np.append(mine, end + free), np.append(others, earlier_end + free)
        file_rows[mine], kinds[mine] = others, RowKind.PRETRAINED
    return Alignment(file_rows, kinds, by)


def old_rows(source: EarlierCheckpoint, theirs: str, alignment: Alignment) -> np.ndarray:
    """Bool [rows]: whether a row was trained in the run, and not only added to its checkpoint."""
    trained = source.rows_of_run(theirs) >= 0
    places = alignment.file_rows
    found: np.ndarray = (places >= 0) & trained[np.maximum(places, 0)]
    return found


def slots_of_earlier(
    new: TableOptimizer | None, policy: SlotPolicy, source: EarlierCheckpoint, theirs: str, name: str
) -> tuple[dict[str, VectorSource], tuple[str, ...]]:
    """The slots that are kept with their rows, and notes on others, for the user.

    Slots of the same name mean different things to optimizers of different kinds (the momenta of Adam are means of
    gradients, those of AdagradMomentum sums of steps), so they are taken over from one of the same kind only.

    Args:
        new: the table's optimizer; None: it is frozen.
    """
    if new is None or policy is SlotPolicy.INITIAL:
        return {}, ()
    before = source.spec.optimizer_of(theirs)
    stored, wanted = source.slots(theirs), tuple(slots_of(new))
    place = f"tables.{name}"
    if new.kind != before.kind:
        ignored = f"its slots {', '.join(stored)} are ignored" if stored else "it has no slots"
        begin = f"those of {new.kind}, {', '.join(wanted)}, start from their initial values" if wanted else ""
        words = "; ".join(filter(None, [f"the checkpoint's optimizer is {before.kind}: {ignored}", begin]))
        return {}, (Note(place, words),) if stored or wanted else ()
    kept: dict[str, VectorSource] = {slot: source.rows(theirs, slot) for slot in wanted if slot in stored}
    lacking = ", ".join(slot for slot in wanted if slot not in stored)
    why = f"the checkpoint has no slots {lacking} (the table was frozen): they start from their initial values"
    return kept, (Note(place, why),) if lacking else ()


def row_tokens(vocabulary: Vocabulary) -> RowTokens:
    """The tokens of a vocabulary; row numbers as decimal text where ids are row numbers."""
    match vocabulary:
        case TokenVocabulary():
            normalize = partial(normalized, steps=vocabulary.steps) if vocabulary.steps else None
            return RowTokens(vocabulary.known, vocabulary.first, vocabulary.known_frequencies, normalize)
        case IdentityVocabulary():
            return RowTokens(pc.cast(pa.array(np.arange(vocabulary.size)), pa.large_string()))
        case _:  # buckets of many tokens, or numbers
            return RowTokens(pa.array([], pa.large_string()), vocabulary.size)
