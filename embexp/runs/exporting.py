"""Exports a finished run, as a SavedModel or as tables in files, all at once, whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.vocabularies.vocabulary import TokenVocabulary, described, stands_for_tokens
from embexp.errors import DataError, RunError, excerpt
from embexp.pretrained import earlier
from embexp.pretrained.aligned import earlier_rows
from embexp.pretrained.earlier import EarlierCheckpoint, row_tokens
from embexp.records.folder import RunFolder, check_code, named_functions
from embexp.system import caching, files
from embexp.system.arrays import Rows, SomeRows
from embexp.system.parallel import Progress, quiet
from embexp.system.terminal import byte_size
from embexp.vectors import write as vectors


class ExportKind(StrEnum):
    """What a run is exported as."""

    SAVEDMODEL = "savedmodel"
    NPY = "npy"
    WORD2VEC = "word2vec"
    PROJECTOR = "projector"


_BYTES_PER_NUMBER = {ExportKind.SAVEDMODEL: 4, ExportKind.NPY: 4, ExportKind.WORD2VEC: 12, ExportKind.PROJECTOR: 12}
"""Of a table, with its tokens left out; for text about what trained values take."""


@dataclass(frozen=True)
class Exported:
    """An export.

    Attributes:
        tables: rows and dim of each table in it.
        signatures: of a SavedModel: by signature the name and description of each input.
    """

    path: Path
    tables: Mapping[str, tuple[int, int]]
    signatures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def export(
    run: Path | str,
    out: Path | str,
    kind: ExportKind | str = ExportKind.SAVEDMODEL,
    *,
    tables: Collection[str] = (),
    binary: bool = False,
    allow_code: Collection[str] = (),
    progress: Progress = quiet,
) -> Exported:
    """Exports a finished run into a new directory. Needs memory for the dense part and a block of rows.

    Args:
        out: the new directory; its parents are made.
        kind: one of `ExportKind`.
        tables: names of the tables, for files; empty: all.
        binary: of word2vec, its binary form.
        allow_code: functions that the recorded spec may run; a SavedModel of the user's own model needs its function.

    Raises:
        NotARunError: there is no finished run, it is being written, or it left no checkpoint.
        RunError: `out` exists or can't be written, there is no such table, or no room on the disk.
        DataError: a file of this kind can't hold a token.
        UsageError: the SavedModel is that of a model of the user's own, and its function isn't allowed.
    """
    kind, out = ExportKind(kind), Path(out)
    if out.exists():
        raise RunError(f"{out} already exists: give the export another name")
    with RunFolder(Path(run)).reading():
        source = earlier.open_run(Path(run), cache=caching.cache_folder(None))
        source = replace(source, cache=caching.cache_folder(source.spec.output.cache))
        if kind is ExportKind.SAVEDMODEL:
            check_code(named_functions(source.spec), allow_code, record=source.folder.spec)
        chosen = _chosen(source, kind, tables)
        rows = {name: earlier_rows(source, name) for name in chosen}
        _check_room(out, kind, rows)
        signatures: Mapping[str, Mapping[str, str]] = {}
        try:
            with files.atomic_directory(out) as directory:
                match kind:
                    case ExportKind.SAVEDMODEL:
                        from embexp.runs import saved_model

                        signatures = saved_model.write(source, rows, directory, progress=progress)
                    case ExportKind.NPY:
                        _write_npy(source, rows, directory, progress=progress)
                    case ExportKind.WORD2VEC:
                        _write_word2vec(source, rows, directory, binary=binary, progress=progress)
                    case ExportKind.PROJECTOR:
                        _write_projector(source, rows, directory, progress=progress)
        except OSError as error:
            raise RunError(f"{out} can't be written: {error.strerror or error}") from error
        return Exported(out, {name: (row.rows, row.dim) for name, row in rows.items()}, signatures)


def _chosen(source: earlier.EarlierCheckpoint, kind: ExportKind, tables: Collection[str]) -> tuple[str, ...]:
    """The tables to export.

    Raises:
        RunError: there is no such table, or the model would lack one.
    """
    if unknown := [name for name in tables if name not in source.tables]:
        raise RunError(
            f"{source.folder.path}: no table {', '.join(map(repr, unknown))}; the tables are {', '.join(source.tables)}"
        )
    if tables and kind is ExportKind.SAVEDMODEL:
        raise RunError("a SavedModel needs all tables of the run: leave the tables out, or export them as files")
    return tuple(name for name in source.tables if not tables or name in tables)


def _check_room(out: Path, kind: ExportKind, tables: Mapping[str, Rows]) -> None:
    """Raises RunError if the disk has less room than the tables need."""
    needed = sum(_BYTES_PER_NUMBER[kind] * table.rows * table.dim for table in tables.values())
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise RunError(
            f"{out}: the tables need about {byte_size(needed)}, and the disk of {there} has {byte_size(free)} left;"
            " make room, or export to another disk"
        )


def _write_npy(run: EarlierCheckpoint, tables: Mapping[str, Rows], directory: Path, *, progress: Progress) -> None:
    """Writes `NAME.npy` with all rows of each table and, where ids are no row numbers, `NAME.tokens.txt`.

    The line of the OOV row is `<oov>`, or empty if that is a token, and so are those of missing and rare values; lines
    of rows without a token are empty. Buckets have no tokens.

    Raises:
        DataError: a token has a line end.
    """
    for name, rows in tables.items():
        vocabulary, tokens = run.vocabulary(name), None
        if isinstance(vocabulary, TokenVocabulary):
            shown = [text for text, *_ in vocabulary.special]
            tokens_too = vocabulary.rows(shown) >= vocabulary.first
            before = ["" if token else text for text, token in zip(shown, tokens_too, strict=True)]
            after = [""] * (rows.rows - vocabulary.size)
            tokens = pa.concat_arrays([_strings(before), vocabulary.known, _strings(after)])
        vectors.write_vectors(rows, tokens, directory / f"{name}.npy", progress=progress)


def _write_word2vec(
    run: EarlierCheckpoint, tables: Mapping[str, Rows], directory: Path, *, binary: bool, progress: Progress
) -> None:
    """Writes word2vec's text, `NAME.vec`, or binary form, `NAME.bin`, with the rows that have a token.

    Where ids are row numbers, they are the tokens.

    Raises:
        DataError: a token that word2vec's files can't hold, or rows that are buckets.
    """
    for name, rows in tables.items():
        path = directory / f"{name}.{'bin' if binary else 'vec'}"
        vocabulary = run.vocabulary(name)
        if not stands_for_tokens(vocabulary):
            rule = f"the rows of table {name} are {described(vocabulary)}, and word2vec's files hold rows of tokens"
            raise DataError(f"{path.name}: {rule}; leave the table out, or export it as npy")
        known = row_tokens(vocabulary)
        _check_word2vec(path, known.tokens)
        some = SomeRows(rows, np.arange(known.first, known.first + len(known.tokens)))
        vectors.write_vectors(some, known.tokens, path, progress=progress)


def _write_projector(
    run: EarlierCheckpoint, tables: Mapping[str, Rows], directory: Path, *, progress: Progress
) -> None:
    """Writes the rows that stand for something, with tokens and frequencies, for TensorBoard's Embedding Projector."""
    shapes = {}
    for name, rows in tables.items():
        vocabulary = run.vocabulary(name)
        columns = {"frequency": map(str, vocabulary.frequencies)} if isinstance(vocabulary, TokenVocabulary) else {}
        vectors.write_projector_table(rows, vocabulary.tokens(), columns, directory, name, progress=progress)
        shapes[name] = (vocabulary.size, rows.dim)
    vectors.write_projector_config(shapes, directory)


def _check_word2vec(path: Path, tokens: pa.LargeStringArray) -> None:
    """Raises DataError for a token with a blank, at which word2vec's readers would end it."""
    row = pc.index(pc.match_substring(tokens, " "), True).as_py()
    if row >= 0:
        raise DataError(
            f"{path.name}: found the token {excerpt(tokens[row].as_py())}, and word2vec's files hold no tokens with"
            " blanks; export the table as npy, which holds any"
        )


def _strings(values: list[str]) -> pa.LargeStringArray:
    return pa.array(values, pa.large_string())
