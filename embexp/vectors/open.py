"""From a path to a source of vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from embexp.errors import DataError
from embexp.specs.base import imported
from embexp.specs.pretrained import Format, HeaderCount, InvalidText, NonFinite
from embexp.system import caching, digests, files
from embexp.system.parallel import Progress, quiet
from embexp.vectors import file_source
from embexp.vectors.file_source import FileSource
from embexp.vectors.stored import Stored, Wanted, read_token_file, tokens_path
from embexp.vectors.word_vectors import COMPRESSED_SUFFIXES as COMPRESSED
from embexp.vectors.word_vectors import member_of, open_stream

BY_SUFFIX = {suffix: form for form in Format for suffix in form.reader.suffixes}
_STREAMED = [form for form in Format if form.reader.streamed]
_TABULAR = [form for form in Format if form.reader.token_column]


def open_vectors(
    path: Path,
    *,
    cache: Path,
    format: Format | None = None,
    key: str | None = None,
    token_column: str | None = None,
    tokens_file: Path | None = None,
    invalid_text: InvalidText = InvalidText.ERROR,
    non_finite: NonFinite = NonFinite.ERROR,
    header_count: HeaderCount = HeaderCount.ERROR,
    progress: Progress = quiet,
) -> FileSource:
    """Opens a file of vectors. Text and word2vec's binary form are converted into the cache the first time.

    Args:
        path: of the file; of a checkpoint: its prefix, its `.index` file or its folder.
        cache: folder for converted files, and for facts about files.
        format: of the file; None: by its suffix.
        key: which matrix of a file that may hold several: array, dataset, tensor, column of lists, file in a zip.
        token_column: column of tokens of a Parquet or Arrow file, dataset of tokens of an HDF5 file.
        tokens_file: a token per line for a file that has none; None: `NAME.tokens.txt` next to it, if there is one.
        invalid_text: what becomes of tokens that are not UTF-8, in text and in word2vec's binary form.
        header_count: what becomes of a header line that names a wrong number of rows.
        progress: called as reading goes on.

    Raises:
        DataError: the file is missing or not of its format, or a policy forbids its content.
    """
    form = Format(format) if format else format_of(path)
    _check_asked(path, form, token_column, tokens_file)
    if form is not Format.CHECKPOINT and (fault := files.fault_of(path)):
        raise DataError(f"{path}: {fault}")
    if form.reader.streamed:
        stored = _from_stream(path, form, cache, key, invalid_text, non_finite, header_count, progress)
    else:
        if path.suffix.lower() in COMPRESSED:
            listed = ", ".join(_STREAMED)
            raise DataError(f"{path}: found a compressed file of format {form}; only these may be: {listed}")
        # A reader is imported when it is needed: h5py and Parquet's module alone take longer than `vectors info` does.
        stored = imported(form.reader.implementation)(path, Wanted(cache, key, token_column, progress))
        stored = _with_tokens(path, form, stored, tokens_file)
    return FileSource(stored, cache=cache, non_finite=non_finite, progress=progress)


def format_of(path: Path) -> Format:
    """The format that a path's suffix stands for; of a compressed file, the suffix before.

    Raises:
        DataError: none.
    """
    from embexp.tensor_bundle import location

    inner = path
    if path.suffix.lower() in COMPRESSED:
        inner = path.with_suffix("")
        if path.suffix.lower() == ".zip" and inner.suffix.lower() not in BY_SUFFIX and path.is_file():
            inner = Path(member_of(path, None))
    found = BY_SUFFIX.get(inner.suffix.lower())
    if found is not None and not path.is_dir():
        return found
    if location.find(path) is not None:
        return Format.CHECKPOINT
    if path.is_dir():
        raise DataError(f"{path}: found a folder without a checkpoint, expected a file of vectors")
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    raise DataError(f"{path}: its suffix {inner.suffix!r} stands for no format; state it, one of {', '.join(Format)}")


def _check_asked(path: Path, form: Format, token_column: str | None, tokens_file: Path | None) -> None:
    if token_column is not None and not form.reader.token_column:
        raise DataError(f"{path}: a token_column is of {', '.join(_TABULAR)}, and this is {form}")
    if tokens_file is not None and (form.reader.streamed or token_column is not None):
        raise DataError(f"{path}: found tokens in the file itself, so a tokens_file can't be given too")


def _from_stream(
    path: Path,
    form: Format,
    cache: Path,
    key: str | None,
    invalid_text: InvalidText,
    non_finite: NonFinite,
    header_count: HeaderCount,
    progress: Progress,
) -> Stored:
    def convert(folder: Path) -> None:
        writer = partial(file_source.Writer, folder, invalid_text=invalid_text, non_finite=non_finite)
        with open_stream(path, key, progress) as stream:
            imported(form.reader.implementation)(stream, form, writer, header_count)

    if key is not None and path.suffix.lower() != ".zip":
        raise DataError(f"{path}: found a key, {key!r}, but a file of format {form} holds one matrix only")
    digest = caching.file_digest(path, cache=cache, progress=progress)
    packed = path.suffix.lower() if path.suffix.lower() in COMPRESSED else ""
    how = [file_source.VERSION, digest, packed, form, key, invalid_text, non_finite, header_count]
    folder = caching.folder(cache, "vectors", digests.of_json(how), convert)
    return file_source.read(folder, name=str(path), dtype=np.dtype("f4"), files=[path], non_finite=non_finite)


def _with_tokens(path: Path, form: Format, stored: Stored, tokens_file: Path | None) -> Stored:
    if stored.tokens is not None:
        if tokens_file is not None:
            raise DataError(f"{path}: found tokens in the file itself, so a tokens_file can't be given too")
        return stored
    if tokens_file is None:
        candidate = tokens_path(path)
        if not candidate.is_file():
            return stored
        tokens_file = candidate
    elif fault := files.fault_of(tokens_file):
        raise DataError(f"{tokens_file}: {fault} of tokens")
    tokens: Callable[[], object] = lambda: read_token_file(tokens_file, stored.rows)  # noqa: E731
    return replace(stored, tokens=tokens, files=[*stored.files, tokens_file])
