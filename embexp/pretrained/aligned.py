"""Which tables take rows of which file: files opened, held against the tables, aligned with their vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from embexp.data.vocabulary import IdentityVocabulary, Vocabulary
from embexp.errors import ConfigError, DataError, RunError
from embexp.pretrained import earlier, fit, sample, succession
from embexp.pretrained.earlier import Earlier
from embexp.pretrained.fit import Misfit
from embexp.pretrained.words import words_of
from embexp.specs.inits import MemoryMap
from embexp.specs.pretrained import Checkpoint, File, Match, NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.tables import Table
from embexp.vectors.alignment import Alignment, RowKind, by_position, by_token
from embexp.vectors.coverage import Coverage, coverage
from embexp.vectors.open import open_vectors
from embexp.vectors.source import VectorSource

Say = Callable[[str, float | None], None]


@dataclass(frozen=True)
class PretrainedTable:
    """A table that takes rows of a file, or of an earlier checkpoint.

    Attributes:
        setting: what was asked for, a sample with the path of its file.
        source: the file.
        alignment: the provenance of each row.
        coverage: how much of the vocabulary the file has.
        old: bool [rows], whether a row came from a checkpoint as a trained one; None: from a file.
        slots: of the table's optimizer, those that go with their rows, aligned as these are.
        notes: what the user should know about slots that don't.
    """

    setting: File | Checkpoint
    source: VectorSource
    alignment: Alignment
    coverage: Coverage
    old: np.ndarray | None = None
    slots: Mapping[str, VectorSource] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return len(self.alignment.kinds)


@dataclass(frozen=True)
class Pretrained:
    """What the files of a run have for its tables.

    Attributes:
        tables: those that take rows of a file.
        unfit: why a file that is meant for all tables has nothing for one of them, by table.
        digests: of each file's content, by the config path of its setting.
    """

    tables: Mapping[str, PretrainedTable] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    def pretrained_rows(self, table: str) -> np.ndarray | None:
        """Bool [rows]: whether a row of a table came from its file; None: the table has none."""
        return self.tables[table].alignment.pretrained if table in self.tables else None

    def old_rows(self, table: str) -> np.ndarray | None:
        """Bool [rows]: whether a row came from a checkpoint as a trained one; None: the table has none of these."""
        return self.tables[table].old if table in self.tables else None

    def __bool__(self) -> bool:
        """Whether any file was looked into."""
        return bool(self.digests)

    def as_json(self) -> dict[str, Any]:
        """The content of coverage.json."""
        tables = {
            name: {
                "path": table.setting.path,
                "digest": table.source.digest,
                "file_rows": table.source.rows,
                "file_dim": table.source.dim,
                "match": _match(table),
                "missing": table.setting.missing.value,
                "project": table.setting.project.value,
                **({} if table.old is None else {"slots": list(table.slots), "rows_old": int(table.old.sum())}),
                **table.coverage.as_json(),
            }
            for name, table in self.tables.items()
        }
        return {"tables": tables, "unfit": dict(self.unfit)}


def align(
    spec: RunSpec,
    vocabularies: Mapping[str, Vocabulary],
    sizes: Mapping[str, int],
    *,
    cache: Path,
    say: Say = lambda what, part: None,
) -> Pretrained:
    """Opens the files that a run names and finds each table's rows in them.

    A table's own file must fit it. The top-level one fills every table that it fits, and must fit one.

    Args:
        spec: what the user asked for.
        vocabularies: by table.
        sizes: rows of each table. One whose ids are row numbers, and whose size the config leaves open, gets as
            many rows as a file without tokens has, if those are more.
        cache: folder of files that were converted before.
        say: is told what is going on.

    Raises:
        ConfigError: a file does not fit; with all of them.
        DataError: a file's content is not what it should be.
    """
    opened: dict[File, VectorSource] = {}
    checkpoints: dict[str, Earlier] = {}
    tables: dict[str, PretrainedTable] = {}
    unfit: dict[str, Misfit] = {}
    digests: dict[str, str] = {}
    for name, table in spec.tables.items():
        asked = spec.pretrained_of(name)
        if isinstance(asked, NoPretrained):
            continue
        place = spec.pretrained_path(name)
        if isinstance(asked, Checkpoint):
            if asked.path not in checkpoints:
                checkpoints[asked.path] = _earlier(place, asked, cache)
            digests[place] = checkpoints[asked.path].digest
            succeeded = _succeeded(spec, asked, checkpoints[asked.path], name, vocabularies[name], sizes[name], say)
            if isinstance(succeeded, Misfit):
                unfit[name] = succeeded
            else:
                tables[name] = succeeded
            continue
        setting = sample.located(asked, cache=cache)
        reading = _reading(setting)
        if reading not in opened:
            opened[reading] = _open(place, setting, cache, say)
        source = opened[reading]
        digests[place] = source.digest
        found = _aligned(setting, source, name, table, vocabularies[name], sizes[name])
        if isinstance(found, Misfit):
            unfit[name] = found
        else:
            tables[name] = found
            say(f"{name}: {found.coverage.summary()}", None)
    if faults := fit.faults(spec.pretrained, spec.tables, fitting=tables, unfit=unfit):
        raise ConfigError(faults)
    return Pretrained(
        tables,
        {name: why.rule for name, why in unfit.items()},
        digests,
    )


def _reading(setting: File) -> File:
    """A setting with nothing in it but how the file is read."""
    return File(**setting.model_dump(exclude={"match", "missing", "project"}))


def _open(place: str, setting: File, cache: Path, say: Say) -> VectorSource:
    """The file, looked through and converted as far as that is needed."""
    try:
        source = open_vectors(
            Path(setting.path),
            cache=cache,
            format=setting.format,
            key=setting.key,
            token_column=setting.token_column,
            tokens_file=None if setting.tokens_file is None else Path(setting.tokens_file),
            invalid_text=setting.invalid_text,
            non_finite=setting.non_finite,
            header_count=setting.header_count,
            progress=say,
        )
        source.memory_map()
    except DataError as error:
        raise DataError(f"{place}.path = {error}") from error
    return source


def _aligned(
    setting: File, source: VectorSource, name: str, table: Table, vocabulary: Vocabulary, rows: int
) -> PretrainedTable | Misfit:
    if misfit := fit.width(setting.project, source.dim, name, table):
        return misfit
    words = words_of(vocabulary)
    if source.tokens is None:
        grown = isinstance(vocabulary, IdentityVocabulary) and table.vocabulary_size is None and source.rows > rows
        rows = source.rows if grown else rows
        if source.rows != rows:
            return Misfit(
                f"rows are taken by position, as the file has no tokens, and it has {source.rows}, the table {rows}",
                "give a file with tokens, or one with a row for each of the table's",
            )
        aligned = by_position(rows)
    else:
        aligned = by_token(words, source.tokens, setting.match, rows=rows)
        if not aligned.count(RowKind.PRETRAINED):
            loosest = setting.match is Match.NORMALISED
            return Misfit(
                f"not one of the table's {len(words.tokens)} tokens ({_some(words.tokens)}) is among the file's"
                f" {source.rows} ({_some(source.tokens)})",
                "compare their spelling" + ("" if loosest else "; match=normalised is the loosest comparison"),
            )
    return PretrainedTable(setting, source, aligned, coverage(aligned, words))


def _match(table: PretrainedTable) -> str:
    by_token = isinstance(table.setting, Checkpoint) or table.source.tokens is not None
    return table.setting.match.value if by_token else "position"


def _earlier(place: str, setting: Checkpoint, cache: Path) -> Earlier:
    try:
        return earlier.opened(Path(setting.path), cache=cache)
    except RunError as error:
        raise type(error)(f"{place}.path = {error}") from error


def _succeeded(
    spec: RunSpec, setting: Checkpoint, source: Earlier, name: str, vocabulary: Vocabulary, rows: int, say: Say
) -> PretrainedTable | Misfit:
    """A table with the trained rows of an earlier one."""
    theirs = setting.table or name
    if misfit := succession.misfit(source, theirs, name, spec.tables[name]):
        return misfit
    old_vocabulary = source.vocabulary(theirs)
    aligned = succession.aligned(vocabulary, rows, old_vocabulary, source.shape(theirs)[0], setting.match)
    words = words_of(vocabulary)
    if not aligned.count(RowKind.PRETRAINED):
        return Misfit(
            f"not one of the table's {len(words.tokens)} tokens ({_some(words.tokens)}) is among those of table"
            f" {theirs!r} of the checkpoint ({_some(words_of(old_vocabulary).tokens)})",
            "compare their spelling, and the two columns of the data",
        )
    if source.holds(theirs):
        matrix: VectorSource = source.rows(theirs, converts=isinstance(spec.init_of(name), MemoryMap))
    else:
        from embexp.pretrained import referenced  # which aligns the files of that run

        matrix = referenced.rows(source, theirs)
    slots, notes = succession.slots(spec, setting, source, theirs, name)
    found = PretrainedTable(
        setting,
        matrix,
        aligned,
        coverage(aligned, words),
        old=succession.old(source, theirs, aligned),
        slots=slots,
        notes=notes,
    )
    say(f"{name}: {found.coverage.summary().replace('in the file', 'in the checkpoint')}", None)
    return found


def _some(tokens: pa.LargeStringArray) -> str:
    shown = ", ".join(repr(token) for token in tokens.slice(0, 3).to_pylist())
    return f"{shown}, …" if len(tokens) > 3 else shown
