"""A checkpoint for other vocabularies: where its rows go, and its rows and slots written, none in memory whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.vocabularies import vocabulary
from embexp.data.vocabularies.spelling import normalized
from embexp.data.vocabularies.vocabulary import (
    IdentityVocabulary,
    TokenVocabulary,
    Vocabulary,
    described,
    stands_for_tokens,
)
from embexp.errors import CommandLineError, DataError, RunError
from embexp.records.folder import RunFolder
from embexp.specs.optimizers import slots_of
from embexp.specs.pretrained import Checkpoint, Match, MissingRows
from embexp.system import arrays, files
from embexp.system.arrays import Rows
from embexp.system.parallel import Progress, quiet
from embexp.system.tensor_bundle import index as bundle_index
from embexp.system.tensor_bundle.tensor import FLOAT32, number_type
from embexp.system.tensor_bundle.writer import KEY_END, BundleWriter
from embexp.vectors.alignment import Alignment, RowKind, coverage
from embexp.vectors.pretrained import earlier
from embexp.vectors.pretrained.aligned import earlier_rows
from embexp.vectors.pretrained.earlier import EarlierCheckpoint, row_tokens
from embexp.vectors.pretrained.tables import PretrainedTable, row_source, slot_sources

VERSION = 1
"""Of growth.json."""
_CHUNK_BYTES = 1 << 24


class Gone(StrEnum):
    """Whether rows stay whose token the new vocabulary lacks."""

    DROP = "drop"
    """They are removed."""
    KEEP = "keep"
    """They stay, behind the tokens of the new vocabulary, in their old order."""


@dataclass(frozen=True)
class TableGrowth:
    """A table before and after.

    Attributes:
        row_bytes: of a row of the table with its slots.
        alignment: which old row each row is.
    """

    name: str
    dim: int
    slots: tuple[str, ...]
    row_bytes: int
    rows_before: int
    vocabulary: Vocabulary
    alignment: Alignment

    @cached_property
    def _counts(self) -> dict[str, int]:
        places = self.alignment.file_rows
        kept = places >= 0
        stayed = int(np.count_nonzero(places == np.arange(len(places))))
        taken = np.zeros(self.rows_before, bool)
        taken[places[kept]] = True
        return {
            "kept_in_place": stayed,
            "moved": int(np.count_nonzero(kept)) - stayed,
            "new": int(np.count_nonzero(~kept)),
            "dropped": self.rows_before - int(np.count_nonzero(taken)),
        }

    @property
    def rows(self) -> int:
        """How many rows there will be."""
        return len(self.alignment.file_rows)

    @property
    def unchanged(self) -> bool:
        """Whether every row stays where it is."""
        return self.rows == self.rows_before == self._counts["kept_in_place"]

    def as_json(self) -> dict[str, Any]:
        """The counts in growth.json; bytes are those of the table and its slots."""
        return {
            "rows_before": self.rows_before,
            "rows": self.rows,
            "dim": self.dim,
            "slots": list(self.slots),
            **self._counts,
            "bytes_before": self.row_bytes * self.rows_before,
            "bytes": self.row_bytes * self.rows,
        }


def growths(
    source: EarlierCheckpoint, paths: Mapping[str, Path], *, match: Match, gone: Gone
) -> dict[str, TableGrowth]:
    """The growth of every table.

    Args:
        paths: file of the new vocabulary, by table; others stay as they are.
        match: when two tokens are the same.
        gone: whether rows stay whose token a new vocabulary lacks.

    Raises:
        DataError: a vocabulary is malformed, or has nothing in common with the old one.
    """
    return {name: _table_growth(source, name, paths.get(name), match, gone) for name in source.tables}


def _table_growth(source: EarlierCheckpoint, name: str, path: Path | None, match: Match, gone: Gone) -> TableGrowth:
    rows, dim = source.shape(name)
    before = source.vocabulary(name)
    free = rows - before.size
    new = before if path is None else read_vocabularies(path, before)
    aligned = earlier.aligned_with(new, new.size + free, before, rows, match)
    if path is not None and not aligned.count(RowKind.PRETRAINED):
        raise DataError(
            f"{path}: not one of its {new.size - new.first} tokens is in the vocabulary of table {name!r}, so that no"
            " row would be kept; compare their spelling, or try --match lower or normalised"
        )
    if gone is Gone.KEEP:
        lacking = np.ones(rows, bool)
        lacking[aligned.file_rows[aligned.file_rows >= 0]] = False
        lacking[: before.first] = lacking[before.size :] = False
        if lacking.any():
            kept, behind = np.flatnonzero(lacking), new.size  # put in where the free rows begin
            new = _with_gone(new, before, kept)
            kinds = np.insert(aligned.kinds, behind, np.full(len(kept), RowKind.PRETRAINED, np.uint8))
            aligned = Alignment(np.insert(aligned.file_rows, behind, kept), kinds, aligned.by)
    slots = source.slots(name)
    keys = [source.key(name, slot) for slot in (None, *slots)]
    stored = [source.tensors[key].entry for key in keys if key in source.tensors]
    types = [number_type(each.kind) or np.dtype(np.float32) for each in stored]
    row_bytes = sum(each.shape[1] * kind.itemsize for each, kind in zip(stored, types, strict=True)) or 4 * dim
    return TableGrowth(name, dim, slots, row_bytes, rows, new, aligned)


def vocabulary_files(arguments: Sequence[str], source: EarlierCheckpoint) -> dict[str, Path]:
    """The file of each table that is to be grown.

    Args:
        arguments: `FILE` where there is one table, `TABLE=FILE`, or a folder of vocabularies as a run writes it.

    Raises:
        CommandLineError: an argument is none of these; with all faults.
    """
    found: dict[str, Path] = {}
    faults: list[str] = []
    for word in arguments:
        named, faulty = _named(word, source)
        faults += faulty
        faults += [f"{word}: table {table!r} is given two vocabularies" for table in named if table in found]
        found |= named
    if not arguments:
        faults.append("give the new vocabulary: --vocabulary FILE, TABLE=FILE or FOLDER")
    if faults:
        tables = f"the tables of {source.folder.path} are {', '.join(source.tables)}"
        raise CommandLineError("\n    ".join([f"embexp checkpoint grow: {faults[0]}", *faults[1:], tables]))
    return found


def _named(word: str, source: EarlierCheckpoint) -> tuple[dict[str, Path], list[str]]:
    table, equals, rest = word.partition("=")
    if equals and not Path(word).exists():
        faults = [] if table in source.tables else [f"{word}: there is no table {table!r}"]
        faults += [] if Path(rest).is_file() else [f"{word}: there is no file {rest}"]
        return ({} if faults else {table: Path(rest)}), faults
    path = Path(word)
    if path.is_dir():
        of_tables = {each.stem: each for each in sorted(path.iterdir()) if each.suffix in (".tsv", ".json")}
        faults = [
            f"{word}: {each.name} belongs to no table" for name, each in of_tables.items() if name not in source.tables
        ]
        faults += [] if of_tables else [f"{word}: there is no vocabulary in this folder (TABLE.tsv or TABLE.json)"]
        return ({} if faults else of_tables), faults
    if not path.is_file():
        return {}, [f"{word}: there is no such file"]
    if len(source.tables) > 1:
        return {}, [f"{word}: there are several tables, so name one: TABLE={word}"]
    return {source.tables[0]: path}, []


def read_vocabularies(path: Path, before: Vocabulary) -> Vocabulary:
    """A new vocabulary.

    Args:
        path: a token per line, in the order of the rows; or a vocabulary as a run writes it.
        before: the old one. A file of tokens gets an OOV row if this has one, and tokens that it knows
            keep their frequencies.

    Raises:
        DataError: it is no such file, or a token is empty or repeated.
    """
    if not stands_for_tokens(before):
        raise DataError(
            f"{path}: the table's rows are {described(before)}, which can't grow by token; train a new run with more"
        )
    if path.suffix == ".json" or vocabulary.is_written_by_a_run(path):
        found = Vocabulary.read(path.with_suffix(""))
        if isinstance(found, TokenVocabulary):
            found = replace(found, known=normalized(found.known, before.steps), steps=before.steps)
            vocabulary.check_tokens(path, found.known, first=2 + found.first)
        kinds = type(found), type(before)
        if kinds[0] is not kinds[1]:
            raise DataError(
                f"{path}: found a vocabulary of {described(found)}, but the table's is one of {described(before)}"
            )
        return found
    tokens = normalized(vocabulary.token_lines(path), before.steps)
    vocabulary.check_tokens(path, tokens, first=1)
    if isinstance(before, IdentityVocabulary):
        numbers = pc.cast(pa.array(np.arange(len(tokens))), pa.large_string())
        if (strange := pc.index(pc.equal(tokens, numbers), False).as_py()) >= 0:
            raise DataError(
                f"{path}, line {strange + 1}: found {tokens[strange].as_py()!r}, expected {strange}: ids of "
                f"this table are its row numbers, so a longer vocabulary must be 0, 1, 2, … (one per line)"
            )
        return IdentityVocabulary(len(tokens))
    assert isinstance(before, TokenVocabulary)
    rows = before.rows(tokens) - before.first
    counts = np.where(rows >= 0, before.known_frequencies[np.maximum(rows, 0)], 0) if len(before.known) else rows * 0
    return replace(before, known=tokens, known_frequencies=counts, rare=before.rare_without(tokens))


def _with_gone(new: Vocabulary, before: Vocabulary, gone: np.ndarray) -> Vocabulary:
    """A vocabulary with tokens of the old one behind its own.

    Args:
        gone: int64, rising, the rows of the old one that are kept although `new` lacks them.
    """
    if isinstance(new, IdentityVocabulary):
        return IdentityVocabulary(new.size + len(gone))
    assert isinstance(new, TokenVocabulary)
    assert isinstance(before, TokenVocabulary)
    places = gone - before.first
    return replace(
        new,
        known=pa.concat_arrays([new.known, before.known.take(pa.array(places))]),
        known_frequencies=np.concatenate([new.known_frequencies, before.known_frequencies[places]]),
    )


def write(
    source: EarlierCheckpoint,
    tables: Mapping[str, TableGrowth],
    out: Path,
    *,
    missing: MissingRows,
    match: Match,
    gone: Gone,
    seed: int | None = None,
    progress: Progress = quiet,
) -> None:
    """Writes the directory of a grown checkpoint.

    Args:
        out: the directory, which must not be there.
        missing: what fills new rows.
        match: as the tables were matched, for the record.
        gone: what was done with tokens that a new vocabulary lacks, for the record.
        seed: of new rows; None: the run's.

    Raises:
        FileExistsError: `out` is there already.
        DataError: a file of the source is damaged.
        RunError: there is no room for it.
    """
    seed = source.spec.seed if seed is None else seed
    try:
        with files.atomic_directory(out) as temporary:
            folder = RunFolder(temporary)
            folder.final_checkpoint.mkdir(parents=True)
            writer = BundleWriter(folder.final_checkpoint / "checkpoint")
            try:
                for name, table in tables.items():
                    _write_table(writer, source, table, missing, seed, progress)
                    _write_record(folder, source, name, table)
                for key, values in source.tensors.items():
                    if not key.startswith("embedding/"):
                        end = "" if key.startswith("_CHECKPOINTABLE") else KEY_END
                        writer.copy(f"{key}{end}", values)
                writer.finish()
            finally:
                writer.close()
            bundle_index.mark_latest(folder.checkpoints, [folder.final_checkpoint / "checkpoint"])
            folder.spec.write_bytes(source.folder.spec.read_bytes())
            content = {
                "version": VERSION,
                "source": {"path": str(source.folder.path.resolve()), "digest": source.digest},
                "missing": missing.value,
                "match": match.value,
                "gone": gone.value,
                "seed": seed,
                "tables": {name: table.as_json() for name, table in tables.items()},
            }
            folder.growth.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise
        raise RunError(f"{out} can't be written: {error.strerror or error}") from error


def _write_table(
    writer: BundleWriter,
    source: EarlierCheckpoint,
    table: TableGrowth,
    missing: MissingRows,
    seed: int,
    progress: Progress,
) -> None:
    keys = [source.key(table.name, slot) for slot in (None, *table.slots)]
    if table.unchanged and source.holds(table.name):
        for each in keys:
            progress(f"copying {each}", None)
            writer.copy(f"{each}{KEY_END}", source.tensors[each])
        return
    optimizer = source.spec.optimizer_of(table.name)
    pretrained = PretrainedTable(
        Checkpoint(path=str(source.folder.path), missing=missing),
        earlier_rows(source, table.name),
        table.alignment,
        coverage(table.alignment, row_tokens(table.vocabulary), shown=0),
        slots={slot: source.rows(table.name, slot) for slot in table.slots},
    )
    settings = source.spec.tables[table.name].model_copy(update={"dim": table.dim})
    # Other numbers than the run drew: a row that is new here never begins as one that began there.
    values = row_source(f"{table.name} (grown)", settings, table.rows, seed, pretrained)
    slots = slot_sources(table.name, pretrained, slots_of(optimizer))
    for each, rows in zip(keys, [values, *(slots[slot] for slot in table.slots)], strict=True):
        kind = source.tensors[each].entry.kind if each in source.tensors else FLOAT32
        writer.add(f"{each}{KEY_END}", (table.rows, rows.dim), _blocks(rows, f"writing {each}", progress), kind)


def _blocks(rows: Rows, what: str, progress: Progress) -> Iterator[np.ndarray]:
    for start, values in arrays.blocks(rows, _CHUNK_BYTES):
        yield values
        progress(what, (start + len(values)) / rows.rows)


def _write_record(folder: RunFolder, source: EarlierCheckpoint, name: str, table: TableGrowth) -> None:
    """Writes the vocabulary, and which row of the run each row was trained as."""
    folder.vocabularies.mkdir(exist_ok=True)
    table.vocabulary.write(folder.vocabularies / name)
    places = table.alignment.file_rows
    of_run = np.where(places >= 0, source.rows_of_run(name)[np.maximum(places, 0)], -1).astype(np.int64)
    path = folder.provenance(name)
    path.parent.mkdir(exist_ok=True)
    np.save(path, of_run, allow_pickle=False)
