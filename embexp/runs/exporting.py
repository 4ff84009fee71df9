"""Exports a finished run, as a SavedModel or as tables in files, all at once, whole or not at all."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.vocabularies.vocabulary import TokenVocabulary, described, stands_for_tokens
from embexp.errors import DataError, RunError, excerpt
from embexp.pretrained import earlier
from embexp.pretrained.aligned import earlier_rows
from embexp.pretrained.earlier import EarlierCheckpoint, row_tokens
from embexp.records.folder import RunFolder, check_code, named_functions
from embexp.records.outputs import check_place
from embexp.runs.serving.recommending import Vectors
from embexp.specs.models import Task
from embexp.specs.vocabularies import Step
from embexp.system import caching, files
from embexp.system.arrays import ArrayRows, Rows, SomeRows
from embexp.system.parallel import Progress, quiet
from embexp.system.terminal import byte_size
from embexp.vectors import search_index
from embexp.vectors import write as vectors


class ExportKind(StrEnum):
    """What a run is exported as."""

    SAVEDMODEL = "savedmodel"
    NPY = "npy"
    WORD2VEC = "word2vec"
    PROJECTOR = "projector"
    VECTORS = "vectors"
    INDEX = "index"


_BYTES_PER_NUMBER = {ExportKind.SAVEDMODEL: 4, ExportKind.NPY: 4, ExportKind.WORD2VEC: 12, ExportKind.PROJECTOR: 12}
"""Of a table, with its tokens left out; for text about what trained values take."""


_OF_SIDES = (ExportKind.VECTORS, ExportKind.INDEX)
"""What a run of task recommendation is exported as, and no other."""
_QUERIES = 2_000
"""Users whose vectors tune and measure an index."""


@dataclass(frozen=True)
class Exported:
    """An export.

    Attributes:
        tables: rows and dim of each table in it.
            Of vectors and an index: of users and items.
        signatures: of a SavedModel: by signature the name and description of each input.
        index: of an index, what is in its index.json.
    """

    path: Path
    tables: Mapping[str, tuple[int, int]]
    signatures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    index: Mapping[str, Any] = field(default_factory=dict)


def export(
    run: Path | str,
    out: Path | str,
    kind: ExportKind | str = ExportKind.SAVEDMODEL,
    *,
    tables: Collection[str] = (),
    binary: bool = False,
    recall: float = 0.99,
    allow_code: Collection[str] = (),
    progress: Progress = quiet,
) -> Exported:
    """Exports a finished run into a new directory. Needs memory for the dense part and a block of rows.

    Args:
        out: the new directory; its parents are made.
        kind: one of `ExportKind`.
        tables: names of the tables, for files; empty: all.
        binary: of word2vec, its binary form.
        recall: of an index, the share of the best 10 items that a search is to find.
        allow_code: functions that the recorded spec may run; a SavedModel of the user's own model needs its function.

    Raises:
        NotARunError: there is no finished run, it is being written, or it left no checkpoint.
        RunError: `out` exists or can't be written, there is no such table, or no room on the disk; a library is
            missing, or does not reach the recall.
        DataError: a file of this kind can't hold a token.
        UsageError: `out` is in the folder of a run; or the SavedModel is that of a model of the user's own, and its
            function isn't allowed.
    """
    kind, out = ExportKind(kind), Path(out)
    if out.exists():
        raise RunError(f"{out} already exists: give the export another name")
    check_place(out, str(out))
    if kind is ExportKind.INDEX and (fault := search_index.missing()):
        raise RunError(fault)
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
        recommended = None
        if kind in _OF_SIDES or (kind is ExportKind.SAVEDMODEL and source.spec.task is Task.RECOMMENDATION):
            recommended = _vectors(source, allow_code, progress)
        chosen = () if kind in _OF_SIDES else _chosen(source, kind, tables)
        rows = {name: earlier_rows(source, name) for name in chosen}
        _check_room(out, kind, rows)
        signatures: Mapping[str, Mapping[str, str]] = {}
        facts: Mapping[str, Any] = {}
        shapes = {name: (row.rows, row.dim) for name, row in rows.items()}
        try:
            with files.atomic_directory(out) as directory:
                match kind:
                    case ExportKind.SAVEDMODEL:
                        from embexp.runs.serving import saved_model

                        signatures = saved_model.write(
                            source, rows, directory, recommended=recommended, progress=progress
                        )
                    case ExportKind.NPY:
                        _write_npy(source, rows, directory, out, progress=progress)
                    case ExportKind.WORD2VEC:
                        _write_word2vec(source, rows, directory, out, binary=binary, progress=progress)
                    case ExportKind.PROJECTOR:
                        _write_projector(source, rows, directory, progress=progress)
                    case ExportKind.VECTORS | ExportKind.INDEX:
                        assert recommended is not None
                        wanted = recall if kind is ExportKind.INDEX else None
                        shapes, facts = _write_sides(recommended, directory, out, wanted, progress=progress)
        except OSError as error:
            raise RunError(f"{out} can't be written: {error.strerror or error}") from error
        return Exported(out, shapes, signatures, facts)


def _vectors(source: EarlierCheckpoint, allow_code: Collection[str], progress: Progress) -> Vectors:
    """The vectors of users and items, which the model makes from the tables."""
    from embexp.runs.finished import load_run

    return load_run(source.folder.path, allow_code=tuple(allow_code)).vectors(progress=progress)


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


def _write_sides(
    found: Vectors,
    directory: Path,
    out: Path,
    recall: float | None,
    *,
    progress: Progress,
) -> tuple[dict[str, tuple[int, int]], dict[str, Any]]:
    """Writes the vectors of users and items with their tokens and, with a recall, an index of the items that has it.

    Returns:
        Rows and dim of both, and the facts about the index.

    Raises:
        DivergedError: a vector is not finite.
        RunError: the index does not reach the recall.
        DataError: a token has a line end.
    """
    found.check_finite()
    users, items, facts = found.of_users, found.of_items, dict[str, Any]()
    if recall is not None:
        few = np.random.default_rng(0).permutation(len(users))[:_QUERIES]
        index = search_index.build(items, users[few], recall=recall, progress=progress)
        index.index.save(directory / "items.faiss", index.effort)
        facts = index.facts
        files.write_text(directory / "index.json", json.dumps(facts, indent=2) + "\n")
    for name, rows, tokens in zip(("users", "items"), (users, items), found.tokens(), strict=True):
        file, other = f"{name}.npy", "embexp.load_run(RUN).vectors() in Python"
        vectors.write_vectors(
            ArrayRows(rows), _strings(tokens), directory / file, named=out / file, any_token=other, progress=progress
        )
    return {"users": users.shape, "items": items.shape}, facts


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
