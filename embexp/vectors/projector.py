"""Tables in the form of TensorBoard's Embedding Projector: `tensorboard --logdir FOLDER` shows them.

Of each table, `NAME.tsv` has a line of numbers per row and `NAME.metadata.tsv` what the row stands for;
`projector_config.pbtxt` names the files. Projector's web page, without TensorBoard, loads the two files of a table by
itself.
Sources: tensorboard/plugins/projector/projector_plugin.py and projector_config.proto.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from embexp.system import files
from embexp.system.progress import Progress, quiet
from embexp.system.rows import Rows

CONFIG = "projector_config.pbtxt"
"""The file by which TensorBoard finds the others."""
_CHUNK_BYTES = 4 * 1024 * 1024
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def write_table(
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
        folder: where to.
        name: of the table.
        progress: called as writing goes on.
    """
    step = max(1, _CHUNK_BYTES // (4 * source.dim))
    with files.written_whole(folder / f"{name}.tsv") as file:
        for start in range(0, len(tokens), step):
            stop = min(len(tokens), start + step)
            _write_lines(file, source.read(start, stop))
            progress(f"writing {name}.tsv", stop / len(tokens))
    with files.written_whole(folder / f"{name}.metadata.tsv") as file:
        # A file of one column has no header line, one of several has.
        if columns:
            file.write(("\t".join(["token", *columns]) + "\n").encode())
        for token, *others in zip(tokens, *columns.values(), strict=True):
            file.write(("\t".join([token.translate(_ESCAPES), *others]) + "\n").encode())


def write_config(shapes: Mapping[str, tuple[int, int]], folder: Path) -> None:
    """Writes the file that names the files of all tables: a ProjectorConfig as text.

    Args:
        shapes: rows and dim, by table.
        folder: where to.
    """
    # A JSON string is a string of the text format too.
    entries = (
        f"embeddings {{\n  tensor_name: {json.dumps(name)}\n  tensor_shape: {rows}\n  tensor_shape: {dim}\n"
        f"  tensor_path: {json.dumps(f'{name}.tsv')}\n  metadata_path: {json.dumps(f'{name}.metadata.tsv')}\n}}\n"
        for name, (rows, dim) in shapes.items()
    )
    files.write_text(folder / CONFIG, "".join(entries))


def _write_lines(file: IO[bytes], values: np.ndarray) -> None:
    # Arrow writes the shortest text that reads back as the same float32.
    written = pa.array(values.reshape(-1)).cast(pa.string()).to_pylist()
    dim = values.shape[1]
    lines = ("\t".join(written[at : at + dim]) for at in range(0, len(written), dim))
    file.write("".join(f"{line}\n" for line in lines).encode("ascii"))
