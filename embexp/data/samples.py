"""A bounded sample of a file with columns, as texts: its first rows, and blocks spread over the rest.

It is for a look at a file of which nothing is known, so it also finds out how the file is written. A row of a text file
that does not fit the header is passed over.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embexp.data.files import data_files
from embexp.errors import DataError, read_by_library
from embexp.system import regular

HEAD_ROWS, HEAD_BYTES = 10_000, 1 << 23
BLOCKS, BLOCK_ROWS, BLOCK_BYTES = 8, 1_000, 1 << 19
"""Blocks beside the first rows, over all files, and the most that is read of each."""
_DELIMITERS = (",", "\t", ";", "|")
_LINES = 50
_TYPES = {"token": False, "token_seq": True, "float": False, "float_seq": True}

Value = str | list[str] | None
"""A field: None where it is missing, a list where the file itself says that the column holds lists."""


@dataclass(frozen=True)
class Sample:
    """Some rows of a file, or of a folder of files.

    Attributes:
        kind: of the source that reads it: csv, parquet or recbole.
        path: of the file or folder.
        columns: values by name, all of one length.
        rows: of the whole data, about; exact if `whole`.
        whole: whether the sample is all of the data.
        delimiter: of a CSV file.
        types: of RecBole's files, by column.
    """

    kind: str
    path: Path
    columns: Mapping[str, Sequence[Value]]
    rows: int
    whole: bool
    delimiter: str = ","
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Rows of the sample."""
        return len(next(iter(self.columns.values()), ()))


def sample(path: Path) -> Sample:
    """A sample of a file or folder; the suffixes of its files tell Parquet and RecBole from text.

    Raises:
        Unreadable: there is no such file.
        DataError: it can't be read.
    """
    if path.is_dir() and (found := sorted(path.glob("*.inter"))):
        return _recbole(path, found[0])
    files = data_files([path])
    if files[0].suffix == ".inter":
        return _recbole(path, files[0])
    if files[0].suffix in (".parquet", ".pq"):
        return _parquet(path, files)
    return _text(path, files)


def _text(path: Path, files: Sequence[Path]) -> Sample:
    head = _head(files[0])
    delimiter = _delimiter(files[0], head)
    rows = list(_records(head, delimiter))
    names = _header(files[0], rows)
    del rows[0]
    count, ended = len(rows), len(files) == 1 and files[0].stat().st_size <= HEAD_BYTES
    used, rest = rows[:HEAD_ROWS], rows[HEAD_ROWS:]
    if ended:
        used += [rest[place] for place in _spread(len(rest), BLOCKS * BLOCK_ROWS)]
    else:
        size = len(head.encode()) / max(1, head.count("\n"))
        count = max(1, round(sum(file.stat().st_size for file in files) / size) - len(files))
        for block in _blocks(files, round(HEAD_ROWS * size)):
            used += list(_records(block, delimiter))[:BLOCK_ROWS]
    used = [row for row in used if len(row) == len(names)]
    columns = {name: [row[place] or None for row in used] for place, name in enumerate(names)}
    return Sample("csv", path, columns, count, ended and len(used) == count, delimiter)


def _recbole(path: Path, file: Path) -> Sample:
    found = _text(file, [file])
    types = {}
    for field_ in found.columns:
        name, _, kind = field_.rpartition(":")
        if not name or kind not in _TYPES:
            raise DataError(f"{file}: line 1: found {field_!r}, expected name:type with a type of {', '.join(_TYPES)}")
        types[name] = kind
    columns = {
        name: [value.split() if _TYPES[kind] and isinstance(value, str) else value for value in values]
        for (name, kind), values in zip(types.items(), found.columns.values(), strict=True)
    }
    return Sample("recbole", path, columns, found.rows, found.whole, "\t", types)


def _parquet(path: Path, files: Sequence[Path]) -> Sample:
    import pyarrow.parquet

    columns: dict[str, list[Value]] = {}
    total = 0
    for number, file in enumerate(files):
        with read_by_library(f"{file} can't be read as Parquet"), pyarrow.parquet.ParquetFile(file) as opened:
            total += opened.metadata.num_rows
            if number not in _spread(len(files), BLOCKS):
                continue
            groups = opened.metadata.num_row_groups
            for group in _spread(groups, max(1, BLOCKS // len(files))):
                most = HEAD_ROWS if not columns else BLOCK_ROWS
                batch = next(opened.iter_batches(batch_size=most, row_groups=[group]), None)
                if batch is not None:
                    for name in batch.schema.names:
                        columns.setdefault(name, []).extend(map(_as_text, batch[name].to_pylist()))
    if len({len(values) for values in columns.values()}) > 1:
        raise DataError(f"{path}: its files differ in their columns")
    count = len(next(iter(columns.values()), ()))
    return Sample("parquet", path, columns, total, count == total)


def _as_text(value: object) -> Value:
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, list):
        return [str(each) for each in value]
    return str(int(value)) if isinstance(value, bool) else str(value)


def _spread(count: int, most: int) -> list[int]:
    """So many numbers below `count`, evenly spaced, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / max(1, most - 1)) for place in range(most)})


def _head(file: Path) -> str:
    """The first bytes, up to the last line end among them."""
    if fault := regular.fault_of(file):
        raise DataError(f"{file}: {fault}")
    with file.open("rb") as opened:
        content = opened.read(HEAD_BYTES)
        if len(content) == HEAD_BYTES:
            content = content[: content.rfind(b"\n") + 1]
    return _decoded(file, content)


def _blocks(files: Sequence[Path], head: int) -> Iterator[str]:
    """Whole lines from places spread over all files, behind the first bytes of the first one."""
    sizes = [file.stat().st_size for file in files]
    total = sum(sizes)
    for number in range(BLOCKS):
        place = head + (total - head) * number // BLOCKS
        for file, size in zip(files, sizes, strict=True):
            if place < size:
                with file.open("rb") as opened:
                    opened.seek(place)
                    lines = opened.read(BLOCK_BYTES).split(b"\n")
                yield _decoded(file, b"\n".join(lines[1:-1]))
                break
            place -= size


def _decoded(file: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: found bytes that are not UTF-8; convert it: iconv -f LATIN1 -t UTF-8") from error


def _records(text: str, delimiter: str) -> Iterator[list[str]]:
    try:
        yield from filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error:  # a field without an end, at the end of a block
        return


def _delimiter(file: Path, head: str) -> str:
    """The one by which the first lines have the most fields, and all the same number."""
    if not head.strip():
        raise DataError(f"{file}: the file is empty; its first line must name the columns")
    best, most = ",", 1
    for delimiter in _DELIMITERS:
        widths = {len(row) for row in itertools.islice(_records(head, delimiter), _LINES)}
        if len(widths) == 1 and (width := widths.pop()) > most:
            best, most = delimiter, width
    return best


def _header(file: Path, rows: Sequence[Sequence[str]]) -> list[str]:
    """The names in the first line.

    Raises:
        DataError: it holds no names, but numbers where the lines below have numbers, too.
    """
    names = [name.strip() for name in rows[0]]
    if len(rows) < 2:
        raise DataError(f"{file}: the file has one line, and its first line must name the columns")
    if any(map(_is_number, names)):
        raise DataError(f"{file}: line 1 holds {', '.join(names[:5])}, expected the names of the columns: add them")
    if len(set(names)) < len(names) or not all(names):
        raise DataError(f"{file}: line 1 must hold a different name for each column, and holds {', '.join(names[:9])}")
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
