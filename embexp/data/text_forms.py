"""Texts in each of the forms in which they come."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embexp.data import bounded_lines, decompressed, standard_library
from embexp.data.files import unreadable
from embexp.data.source import Unreadable
from embexp.errors import DataError, Fault, read_by_library
from embexp.system import regular

_PARQUET_ROWS = 8192


@dataclass(frozen=True)
class Text:
    """One text.

    Attributes:
        text: as it is written.
        label: name of its class; None where labels are not read.
        file: where it is from; for a folder with a folder per class, that of the class.
        place: file and line, or row, for messages.
        done: fraction of the whole that has been read with it, 0 to 1.
        tokens: of a text that comes as a list of them; None: it is to be split.
    """

    text: str
    label: str | None
    file: Path
    place: str
    done: float
    tokens: tuple[str, ...] | None = None


def from_library(*, labelled: bool) -> Iterator[Text]:
    """The documentation in the standard library; its parts are the classes."""
    file = Path(standard_library.NAME)
    texts: list[tuple[str | None, str]]
    if not labelled:
        texts = [(None, text) for text in standard_library.unlabelled()]
    else:
        texts = list(standard_library.labelled())
    for number, (label, text) in enumerate(texts, 1):
        yield Text(text, label, file, f"{file}, text {number}", number / len(texts))


def from_folders(files: Sequence[Path], *, labelled: bool) -> Iterator[Text]:
    """A text per file; the folder of each is its class."""
    for number, file in enumerate(files, 1):
        text = _decoded(bounded_lines.whole(file), str(file))
        label = file.parent.name if labelled else None
        yield Text(text, label, file.parent, str(file), number / len(files))


def from_lines(path: Path, *, labelled: bool) -> Iterator[Text]:
    """A text per line, behind its class and a tab."""
    size, read = path.stat().st_size, 0
    for number, line in enumerate(bounded_lines.lines_of(path), 1):
        read += len(line)
        place = f"{path}, line {number}"
        content = _decoded(line, place).rstrip("\r\n")
        if not content.strip():
            continue
        label, tab, text = content.partition("\t")
        if not labelled:
            # What stands before a tab is a label, no part of the text.
            yield Text(text if tab else content, None, path, place, min(1.0, read / size))
            continue
        if not tab:
            raise DataError(f"{place}: found no tab, expected label<TAB>text")
        yield Text(text, _named(label, place), path, place, min(1.0, read / size))


def from_csv(path: Path, text: str, label: str | None) -> Iterator[Text]:
    """Columns of a CSV file with a header line: of the texts and, unless it is None, of the classes."""
    limit = csv.field_size_limit(bounded_lines.LONGEST)
    size, read, line = path.stat().st_size, 0, 1

    def lines() -> Iterator[str]:
        nonlocal read
        for number, content in enumerate(bounded_lines.lines_of(path), 1):
            read += len(content)
            yield _decoded(content, f"{path}, line {number}")

    try:
        rows = csv.reader(lines())
        header = next(rows, [])
        if text not in header or (label is not None and label not in header):
            raise DataError(f"{path}, line 1: found no whole header")
        column, name_column = header.index(text), None if label is None else header.index(label)
        line = rows.line_num + 1
        for fields in rows:
            if fields:
                place = f"{path}, line {line}"
                if len(fields) != len(header):
                    found = f"found {len(fields)} fields, expected {len(header)}"
                    raise DataError(f"{place}: {found}")
                name = None if name_column is None else _named(fields[name_column], place)
                yield Text(fields[column], name, path, place, min(1.0, read / size))
            line = rows.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: found no fields of CSV: {error}") from None
    finally:
        csv.field_size_limit(limit)


def from_parquet(path: Path, text: str, label: str | None) -> Iterator[Text]:
    """Columns of a Parquet file: of the texts, or of lists of tokens, and, unless it is None, of the classes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [text, *([] if label is None else [label])]
    row = 0
    # A generator's block is left while somebody works with a text, so their errors don't come through here.
    with read_by_library(f"{path} can't be read as Parquet"), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=columns):
            several = _is_list(batch.schema.field(text).type)
            kind = pa.large_list(pa.large_string()) if several else pa.large_string()
            texts = batch[text].cast(kind).to_pylist()
            names = [None] * batch.num_rows if label is None else batch[label].cast(pa.large_string()).to_pylist()
            for one, name in zip(texts, names, strict=True):
                row += 1
                place = f"{path}, row {row}"
                name = None if label is None else _named(name or "", place)
                tokens = tuple(token for token in one or () if token) if several else None
                yield Text("" if several else one or "", name, path, place, row / file.metadata.num_rows, tokens)


def check_columns(path: Path, text: str, label: str | None) -> None:
    """Raises Unreadable if a file is empty, or a CSV or Parquet file lacks a column."""
    if fault := regular.fault_of(path):
        raise unreadable(path, fault)
    if path.stat().st_size == 0:
        raise unreadable(path, "the file is empty")
    kind = decompressed.form_of(path)
    names: list[str]
    if kind == ".csv":
        try:
            first = _decoded(next(bounded_lines.lines_of(path)), f"{path}, line 1")
            names = next(csv.reader([first]), [])
        except (DataError, csv.Error) as error:
            raise unreadable(path, str(error)) from None
    elif kind == ".parquet":
        names = _parquet_columns(path, text, label)
    else:
        return
    faults = []
    for key, name in (("text", text), ("label", label)):
        if name is not None and names.count(name) != 1:
            what = "no such column" if name not in names else f"{names.count(name)} columns of this name"
            rule, remedy = f"{path} has {what}", f"its columns are: {', '.join(names[:20])}"
            faults.append(Fault(f"data.{key}", repr(name), rule, remedy))
    if faults:
        raise Unreadable(faults)


def _parquet_columns(path: Path, text: str, label: str | None) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with read_by_library("the file can't be read as Parquet"):
            schema: Any = pq.read_schema(path)
            names = list(schema.names)
    except DataError as error:
        raise unreadable(path, str(error)) from error
    for name in (text, label):
        kind = None if name is None or schema.names.count(name) != 1 else schema.field(name).type
        if kind is not None and name == text and _is_list(kind):
            kind = kind.value_type
        if kind is not None and not (
            pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_dictionary(kind)
            or pa.types.is_integer(kind)
        ):
            raise unreadable(path, f"column {name!r} holds {kind}, expected text")
    return names


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _named(label: str, place: str) -> str:
    if not label.strip():
        raise DataError(f"{place}: found no label, expected the name of a class")
    return label.strip()


def _decoded(content: bytes, place: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{place}: found bytes that are not UTF-8, expected text in UTF-8") from None
