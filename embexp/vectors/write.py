"""Writing vectors to files, in the form that a suffix stands for or TensorBoard's; whole or not at all.

Tables in the form of TensorBoard's Embedding Projector: `tensorboard --logdir FOLDER` shows them. Of each table,
`NAME.tsv` has a line of numbers per row and `NAME.metadata.tsv` what the row stands for; `projector_config.pbtxt` names
the files. Projector's web page, without TensorBoard, loads the two files of a table by itself. Sources:
tensorboard/plugins/projector/projector_plugin.py and projector_config.proto.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embexp.errors import DataError, excerpt, plural
from embexp.system import arrays, files, printable
from embexp.system.arrays import Rows
from embexp.system.parallel import Progress, quiet
from embexp.vectors import stored

NAME = "vectors"
"""Of the tensor in a safetensors file, and of the column in a Parquet file."""
FORMS = (".npy", ".safetensors", ".vec", ".txt", ".bin", ".parquet")
_WITHOUT_TOKENS = (".npy", ".safetensors")
_CHUNK_BYTES = 16 * 1024 * 1024
_MARK = "\ufeff"
PROJECTOR_CONFIG = "projector_config.pbtxt"
"""The file by which TensorBoard finds the others."""
_PROJECTOR_CHUNK_BYTES = 4 * 1024 * 1024
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def form_of(path: Path) -> str:
    """The suffix of a path, in lower case, which stands for the form that is written.

    Raises:
        DataError: it stands for none.
    """
    if (suffix := path.suffix.lower()) not in FORMS:
        raise DataError(f"{path}: found the suffix {path.suffix!r}, expected one of {', '.join(FORMS)}")
    return suffix


def outputs(path: Path) -> list[Path]:
    """The file that writing to `path` makes, and the one that would be taken for its tokens."""
    return [path, stored.tokens_path(path)] if form_of(path) in _WITHOUT_TOKENS else [path]


def write_vectors(
    source: Rows,
    tokens: pa.LargeStringArray | None,
    path: Path,
    *,
    named: Path | None = None,
    any_token: str = "write .parquet",
    progress: Progress = quiet,
) -> None:
    """Writes float32 vectors, with memory for a chunk of rows.

    Args:
        tokens: of their rows, or None; they go into the file, or into `NAME.tokens.txt` next to a `.npy` or
            `.safetensors`.
        path: where to, replaced if there is one.
        named: the path that it gets in the end, for messages; None: `path`.
        any_token: what writes a form that holds any token, for messages.

    Raises:
        DataError: the form can't hold the tokens, or needs some and there are none.
    """
    form, named = form_of(path), path if named is None else named
    if form in (".vec", ".txt", ".bin"):
        _check_tokens(named, form, source.dim, tokens, any_token)
    chunks = _chunks(source, path, progress)
    with contextlib.ExitStack() as stack:
        place = stored.tokens_path(path) if form in _WITHOUT_TOKENS else None
        if place is not None and tokens is not None:  # it gets its name behind the matrix
            lines = _lines(named, tokens, any_token)
            beside = stack.enter_context(files.atomic_write(place))
            beside.write(lines)
            beside.flush()
        file = stack.enter_context(files.atomic_write(path))
        if form == ".parquet":
            _write_parquet(file, tokens, source.dim, chunks)
        else:
            file.write(_header(form, source.rows, source.dim))
            for start, values in chunks:
                some = [] if tokens is None else tokens.slice(start, len(values)).to_pylist()
                file.write(_written(form, some, values))
        file.flush()
        os.fsync(file.fileno())
        if place is not None:  # a matrix is never seen with the tokens of another one
            place.unlink(missing_ok=True)


def _chunks(source: Rows, path: Path, progress: Progress) -> Iterator[tuple[int, np.ndarray]]:
    for start, values in arrays.blocks(source, _CHUNK_BYTES):
        yield start, values
        progress(f"writing {path.name}", (start + len(values)) / source.rows)


def _header(form: str, rows: int, dim: int) -> bytes:
    match form:
        case ".npy":
            return stored.header(rows, dim)
        case ".safetensors":
            entry = {NAME: {"dtype": "F32", "shape": [rows, dim], "data_offsets": [0, 4 * rows * dim]}}
            text = json.dumps(entry, separators=(",", ":")).encode("ascii")
            text = text.ljust(
                (len(text) + 8 + 63) // 64 * 64 - 8
            )  # spaces are allowed; the data is aligned to 64 bytes
            return len(text).to_bytes(8, "little") + text
        case ".vec" | ".bin":
            return f"{rows} {dim}\n".encode()
        case _:
            return b""


def _written(form: str, tokens: list[str], values: np.ndarray) -> bytes | memoryview:
    """Some rows, in a form whose rows follow each other."""
    match form:
        case ".vec" | ".txt":
            lines = (f"{token} {' '.join(row)}\n" for token, row in zip(tokens, _as_text(values), strict=True))
            return "".join(lines).encode("utf-8")
        case ".bin":
            rows = values.astype("<f4", copy=False)
            return b"".join(b"%b %b\n" % (each.encode(), row.tobytes()) for each, row in zip(tokens, rows, strict=True))
        case _:
            return values.data


def _as_text(values: np.ndarray) -> Iterator[list[str]]:
    """The numbers of each row."""
    # Arrow writes the shortest text that reads back as the same float32.
    written, dim = pa.array(values.reshape(-1)).cast(pa.string()).to_pylist(), values.shape[1]
    return (written[at : at + dim] for at in range(0, len(written), dim))


def _write_parquet(
    file: IO[bytes], tokens: pa.LargeStringArray | None, dim: int, chunks: Iterator[tuple[int, np.ndarray]]
) -> None:
    fields = [] if tokens is None else [pa.field("token", pa.large_string(), nullable=False)]
    type_ = pa.list_(pa.field("item", pa.float32(), nullable=False), dim)
    schema = pa.schema([*fields, pa.field(NAME, type_, nullable=False)])
    with pq.ParquetWriter(file, schema) as parquet:
        for start, values in chunks:
            columns = [] if tokens is None else [tokens.slice(start, len(values))]
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=type_)
            parquet.write_table(pa.table([*columns, vectors], schema=schema))


def _lines(path: Path, tokens: pa.LargeStringArray, any_token: str) -> bytes:
    """A line for each token.

    Raises:
        DataError: a line can't hold one.
    """
    written = tokens.to_pylist()
    for row, token in enumerate(written):
        if "\n" in token or token.endswith("\r"):
            found = f"the token {excerpt(token)} of row {row + 1}"
            raise DataError(
                f"{path}: found {found}, which a line of text can't hold; for a format that can: {any_token}"
            )
    return "".join(f"{token}\n" for token in written).encode("utf-8")


def _check_tokens(path: Path, form: str, dim: int, tokens: pa.LargeStringArray | None, any_token: str) -> None:
    """Raises DataError for tokens that would be read back as something else."""
    if tokens is None:
        what = "row" if form == ".bin" else "line"
        raise DataError(f"{path}: the vectors have no tokens, but each {what} of {form} begins with one; write .npy")
    from embexp.vectors.word_vectors import is_number

    for row, token in enumerate(tokens.to_pylist()):
        if form == ".bin":
            wrong = " " in token or token.startswith("\n")
        else:
            blanks = token.replace("\t", " ").split(" ")
            wrong = (
                not all((blanks[0], blanks[-1]))
                or "\n" in token
                or (len(blanks) > 1 and is_number(blanks[-1].encode("utf-8")))
                or (form == ".txt" and row == 0 and (token.startswith(_MARK) or (dim == 1 and token.isdigit())))
            )
        if wrong or not token.strip(" \t"):  # rows of blank tokens are left out when they are read
            found = f"the token {excerpt(token)} of row {row + 1}"
            raise DataError(
                f"{path}: found {found}, which {form} would not preserve; for a format that does: {any_token} "
                f"({plural(len(tokens), 'row')} in all)"
            )


def write_projector_table(
    source: Rows,
    tokens: Sequence[str],
    columns: Mapping[str, Iterable[str]],
    folder: Path,
    name: str,
    *,
    progress: Progress = quiet,
) -> None:
    """Writes the two files of a table, with memory for a chunk of rows.

    Args:
        source: the rows; as many as `tokens` are written.
        tokens: what each row stands for. Backslash, tab and line end are written as in vocabularies.
        columns: more about each row as text, by the name of the column, such as frequency.
    """
    step = max(1, _PROJECTOR_CHUNK_BYTES // (4 * source.dim))
    with files.atomic_write(folder / f"{name}.tsv") as file:
        for start in range(0, len(tokens), step):
            stop = min(len(tokens), start + step)
            file.write("".join("\t".join(row) + "\n" for row in _as_text(source.read(start, stop))).encode("ascii"))
            progress(f"writing {name}.tsv", stop / len(tokens))
    with files.atomic_write(folder / f"{name}.metadata.tsv") as file:
        # A file of one column has no header line, one of several has.
        if columns:
            file.write(("\t".join(["token", *columns]) + "\n").encode())
        for token, *others in zip(tokens, *columns.values(), strict=True):
            cells = map(printable.one_line, [token.translate(_ESCAPES), *others])
            file.write(("\t".join(cells) + "\n").encode())


def write_projector_config(shapes: Mapping[str, tuple[int, int]], folder: Path) -> None:
    """Writes the file that names the files of all tables: a ProjectorConfig as text.

    Args:
        shapes: rows and dim, by table.
    """
    # A JSON string is a string of the text format too.
    entries = (
        f"embeddings {{\n  tensor_name: {json.dumps(name)}\n  tensor_shape: {rows}\n  tensor_shape: {dim}\n"
        f"  tensor_path: {json.dumps(f'{name}.tsv')}\n  metadata_path: {json.dumps(f'{name}.metadata.tsv')}\n}}\n"
        for name, (rows, dim) in shapes.items()
    )
    files.write_text(folder / PROJECTOR_CONFIG, "".join(entries))
