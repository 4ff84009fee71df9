"""Exports a finished run, as a SavedModel or as tables in files, all at once, whole or not at all."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.vocabularies.vocabulary import TokenVocabulary, described, stands_for_tokens
from embexp.errors import DataError, RunError, excerpt
from embexp.records.folder import RunFolder, check_code, named_functions
from embexp.records.outputs import check_place
from embexp.specs import fields
from embexp.specs.vocabularies import Step
from embexp.system import caching, files
from embexp.system.arrays import Rows, SomeRows
from embexp.system.parallel import Progress, quiet
from embexp.system.terminal import byte_size
from embexp.vectors import write as vectors
from embexp.vectors.pretrained import earlier
from embexp.vectors.pretrained.aligned import earlier_rows
from embexp.vectors.pretrained.earlier import EarlierCheckpoint, row_tokens

if TYPE_CHECKING:
    from embexp.runs.finished import Run


class ExportKind(StrEnum):
    """What any run is exported as; fields have more, for their own."""

    SAVEDMODEL = "savedmodel"
    NPY = "npy"
    WORD2VEC = "word2vec"
    PROJECTOR = "projector"


_BYTES_PER_NUMBER = {ExportKind.SAVEDMODEL: 4, ExportKind.NPY: 4, ExportKind.WORD2VEC: 12, ExportKind.PROJECTOR: 12}
"""Of a table, with its tokens left out; for text about what trained values take."""


class Writer(Protocol):
    """Writes what a field exports a run as."""

    def __call__(self, run: Run, directory: Path, out: Path, progress: Progress, **options: Any) -> Written:
        """Writes into an empty directory.

        Args:
            out: its final name, for messages.

        Raises:
            RunError: a run of this task is not exported so, or the options can't be met.
            DataError: a file can't hold a token.
        """


@dataclass(frozen=True)
class Written:
    """What a field has written.

    Attributes:
        shapes: rows and dim of each matrix.
        facts: what else is known of it.
    """

    shapes: Mapping[str, tuple[int, int]]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Exported:
    """An export.

    Attributes:
        tables: rows and dim of each table, or other matrix, in it.
        signatures: of a SavedModel: by signature the name and description of each input.
        facts: what else is known of it, such as how well an index finds.
    """

    path: Path
    tables: Mapping[str, tuple[int, int]]
    signatures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def export(
    run: Path | str,
    out: Path | str,
    kind: ExportKind | str = ExportKind.SAVEDMODEL,
    *,
    tables: Collection[str] = (),
    binary: bool = False,
    allow_code: Collection[str] = (),
    progress: Progress = quiet,
    **options: Any,
) -> Exported:
    """Exports a finished run into a new directory. Needs memory for the dense part and a block of rows.

    Args:
        out: the new directory; its parents are made.
        kind: one of `ExportKind`, or of what fields export.
        tables: names of the tables, for files; empty: all.
        binary: of word2vec, its binary form.
        allow_code: functions that the recorded spec may run; a SavedModel of the user's own model needs its function.
        options: of what a field exports.

    Raises:
        NotARunError: there is no finished run, it is being written, or it left no checkpoint.
        RunError: `out` exists or can't be written, there is no such table, or no room on the disk; a library is
            missing, or does not reach the recall.
        DataError: a file of this kind can't hold a token.
        UsageError: `out` is in the folder of a run; or the SavedModel is that of a model of the user's own, and its
            function isn't allowed.
    """
    out = Path(out)
    if out.exists():
        raise RunError(f"{out} already exists: give the export another name")
    check_place(out, str(out))
    if (write := fields.find("exports", str(kind))) is not None:
        return _by_field(write, Path(run), out, options, allow_code, progress)
    kind = ExportKind(kind)
    with RunFolder(Path(run)).reading():
        source = earlier.open_run(Path(run), cache=caching.cache_folder(None))
        source = replace(source, cache=caching.cache_folder(source.spec.output.cache))
        if kind is ExportKind.SAVEDMODEL:
            check_code(named_functions(source.spec), allow_code, record=source.folder.spec)
            if Step.NFC in (source.spec.data.token_steps or ()):
                raise RunError(
                    "data.normalize has the step nfc, for which TensorFlow has no operation, so an exported model can't"
                    " take tokens as the run does: normalise the data itself, and train without this step; or export"
                    " tables, --as npy"
                )
        chosen = _chosen(source, kind, tables)
        rows = {name: earlier_rows(source, name) for name in chosen}
        _check_room(out, kind, rows)
        signatures: Mapping[str, Mapping[str, str]] = {}
        shapes = {name: (row.rows, row.dim) for name, row in rows.items()}
        try:
            with files.atomic_directory(out) as directory:
                match kind:
                    case ExportKind.SAVEDMODEL:
                        from embexp.runs import serving

                        signatures = serving.write(source, rows, directory, allow_code, progress=progress)
                    case ExportKind.NPY:
                        _write_npy(source, rows, directory, out, progress=progress)
                    case ExportKind.WORD2VEC:
                        _write_word2vec(source, rows, directory, out, binary=binary, progress=progress)
                    case ExportKind.PROJECTOR:
                        _write_projector(source, rows, directory, progress=progress)
        except OSError as error:
            raise RunError(f"{out} can't be written: {error.strerror or error}") from error
        return Exported(out, shapes, signatures)


def _by_field(
    write: Writer, run: Path, out: Path, options: Mapping[str, Any], allow_code: Collection[str], progress: Progress
) -> Exported:
    from embexp.runs.finished import load_run

    with RunFolder(run).reading():
        loaded = load_run(run, allow_code=tuple(allow_code))
        try:
            with files.atomic_directory(out) as directory:
                written = write(loaded, directory, out, progress, **options)
        except OSError as error:
            raise RunError(f"{out} can't be written: {error.strerror or error}") from error
    return Exported(out, written.shapes, facts=written.facts)


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


def _write_npy(
    run: EarlierCheckpoint, tables: Mapping[str, Rows], directory: Path, out: Path, *, progress: Progress
) -> None:
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
        file, other = f"{name}.npy", _any_token(run, name)
        vectors.write_vectors(rows, tokens, directory / file, named=out / file, any_token=other, progress=progress)


def _write_word2vec(
    run: EarlierCheckpoint, tables: Mapping[str, Rows], directory: Path, out: Path, *, binary: bool, progress: Progress
) -> None:
    """Writes word2vec's text, `NAME.vec`, or binary form, `NAME.bin`, with the rows that have a token.

    Where ids are row numbers, they are the tokens.

    Raises:
        DataError: a token that word2vec's files can't hold, or rows that are buckets.
    """
    for name, rows in tables.items():
        file = f"{name}.{'bin' if binary else 'vec'}"
        vocabulary = run.vocabulary(name)
        if not stands_for_tokens(vocabulary):
            rule = f"the rows of table {name} are {described(vocabulary)}, and word2vec's files hold rows of tokens"
            raise DataError(f"{out / file}: {rule}; leave the table out, or export it as npy")
        known = row_tokens(vocabulary)
        other = _any_token(run, name)
        _check_word2vec(out / file, known.tokens, other)
        some = SomeRows(rows, np.arange(known.first, known.first + len(known.tokens)))
        vectors.write_vectors(
            some, known.tokens, directory / file, named=out / file, any_token=other, progress=progress
        )


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


def _any_token(run: EarlierCheckpoint, table: str) -> str:
    """The command that writes a table's rows in a form that holds any token."""
    return f"embexp vectors convert {shlex.quote(str(run.folder.path))} {table}.parquet --table {table}"


def _check_word2vec(path: Path, tokens: pa.LargeStringArray, any_token: str) -> None:
    """Raises DataError for a token with a blank, at which word2vec's readers would end it."""
    row = pc.index(pc.match_substring(tokens, " "), True).as_py()
    if row >= 0:
        raise DataError(
            f"{path}: found the token {excerpt(tokens[row].as_py())}, and word2vec's files hold no tokens with"
            f" blanks; to hold any: {any_token}"
        )


def _strings(values: list[str]) -> pa.LargeStringArray:
    return pa.array(values, pa.large_string())
