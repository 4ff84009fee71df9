"""A bounded sample of a file with columns, as texts: its first rows, and blocks spread over the rest.

It is for a look at a file of which nothing is known, so it also finds out how the file is written. A row of a text file
that does not fit the header is passed over.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embexp.data import decompressed
from embexp.data.files import data_files
from embexp.data.text_guess import head, records
from embexp.errors import DataError, read_by_library

HEAD_ROWS = 10_000
BLOCKS, BLOCK_ROWS, BLOCK_BYTES = 8, 1_000, 1 << 19
"""Blocks beside the first rows, over all files, and the most that is read of each."""
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
        encoding: of a CSV file.
        headed: whether the first line of a CSV file names the columns.
        types: of RecBole's files, by column.
    """

    kind: str
    path: Path
    columns: Mapping[str, Sequence[Value]]
    rows: int
    whole: bool
    delimiter: str = ","
    encoding: str = "utf-8"
    headed: bool = True
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Rows of the sample."""
        return len(next(iter(self.columns.values()), ()))


def sample(path: Path, names: Sequence[str] | None = None) -> Sample:
    """A sample of a file or folder; the suffixes of its files tell Parquet and RecBole from text.

    Args:
        path: of the file or folder.
        names: of the columns of a text file without a header line; None: the first line shows whether it has one.

    Raises:
        Unreadable: there is no such file.
        DataError: it can't be read.
    """
    if path.is_dir() and (found := decompressed.of_form(path, ".inter")):
        return _recbole(path, found[0])
    files = data_files([path])
    if decompressed.form_of(files[0]) == ".inter":
        return _recbole(path, files[0])
    if files[0].suffix in (".parquet", ".pq"):
        return _parquet(path, files)
    return _text(path, files, names)


def _text(path: Path, files: Sequence[Path], names: Sequence[str] | None = None) -> Sample:
    first = head(files[0], names)
    ended = first.ended and len(files) == 1
    bound = any(file.suffix.lower() in decompressed.SUFFIXES for file in files) or first.encoding == "utf-16"
    rows = list(itertools.islice(first.rows(), None if ended or bound else HEAD_ROWS))
    used, rest = rows[:HEAD_ROWS], rows[HEAD_ROWS:]
    count, lines = len(rows), first.text.count("\n")
    sizes = [file.stat().st_size for file in files]
    if not ended:
        count = max(count, round(lines * sum(sizes) / max(1.0, first.share * sizes[0])))
    if ended or bound:  # other places can't be reached
        used += [rest[place] for place in _spread(len(rest), BLOCKS * BLOCK_ROWS)]
    else:
        begin = round(first.share * sizes[0] * len(used) / max(1, lines))
        for block in _blocks(files, begin, first.encoding):
            used += list(itertools.islice(records(block, first.delimiter), BLOCK_ROWS))
    used = [row for row in used if len(row) == len(first.names)]
    columns = {name: [row[place].strip() or None for row in used] for place, name in enumerate(first.names)}
    whole = ended and len(used) == count
    return Sample("csv", path, columns, count, whole, first.delimiter, first.encoding, first.headed)


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
    return Sample("recbole", path, columns, found.rows, found.whole, types=types)


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


def _blocks(files: Sequence[Path], begin: int, encoding: str) -> Iterator[str]:
    """Whole lines from places spread over all files, behind the first bytes of the first one."""
    sizes = [file.stat().st_size for file in files]
    total = sum(sizes)
    for number in range(BLOCKS):
        place = begin + (total - begin) * number // BLOCKS
        for file, size in zip(files, sizes, strict=True):
            if place < size:
                with file.open("rb") as opened:
                    opened.seek(place)
                    lines = opened.read(BLOCK_BYTES).split(b"\n")
                yield b"\n".join(lines[1:-1]).decode(encoding, "replace")
                break
            place -= size
