"""A bounded sample of a file with columns, its first rows and blocks spread over the rest, and what its columns hold.

It is for a look at a file of which nothing is known, so it also finds out how the file is written. The source of a run
then reads it, and its columns and fields are taken from there: what is seen here is what a run will see. A row of a
text file that does not fit the header is passed over; the look at the written experiment finds it.

Forms of text files that their content shows: encodings, labelled texts, ratings without a header, notations.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.files import arrow_table, table_files
from embexp.data.files.dialect import BRACKETS, NULLS, WHITESPACE, Dialect, are_lists, values_of_list
from embexp.data.files.table_files import data_files, lines_of, of_form
from embexp.data.files.text_table import (
    BadLine,
    TextTable,
    header_fields,
    is_number,
    is_separator_line,
    names_of,
    records,
    seconds_of,
)
from embexp.data.sources import csv, jsonl, recbole
from embexp.data.sources.adjacency import looks_like
from embexp.errors import DataError, plural, read_by_library
from embexp.specs.data import CSV
from embexp.system import compressed
from embexp.system.files import fault_of

if TYPE_CHECKING:
    from embexp.data.vocabularies.spelling import Alike

Value = str | list[str] | None
"""A field: None where it is missing, a list where the file itself says that the column holds lists."""

_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_FEWEST_LINES, _MOST_LABELS, _RECURS = 10, 100, 5
"""Of labelled texts: lines at least, different labels at most, and how often each occurs at least on average."""
_FEWEST_WORDS, _SHORTEST_DATE = 3, 8
_COMPARED, _LOOKED_AT = 200, 20
"""Rows that the first one is compared with, and whose numbers are looked at."""
_DIGITS = re.compile(r"[+-]?\d[\d.,' \u00a0\u202f]*")
_MOST_RATINGS, _LARGEST_RATING = 101, 100
_NEAR, _RATIO, _ROUND, _FEWEST_NUMBERS = range(1, 6), 10, 5, 1_000
"""Distances of near numbers; how many times as often codes are equal as near; rounded ones are multiples of this; and
how many numbers it takes to tell."""


def labelled_lines(text: str, delimiter: str) -> tuple[str, dict[str, list[str | None]]] | None:
    """The delimiter and the columns of a file with a text in each line, behind its label; None for another file.

    Args:
        delimiter: by which its lines have as many fields as each other; a comma if there is none.
    """
    lines = [line.strip("\r") for line in text.split("\n") if line.strip()]
    is_table = delimiter != "\t" and len({line.count(delimiter) for line in lines[:50]}) == 1 and delimiter in lines[0]
    if len(lines) < _FEWEST_LINES or is_table:
        return None
    for between in ("\t", " "):
        parts = [line.partition(between) for line in lines]
        labels, texts = Counter(label for label, _, _ in parts), [text for _, _, text in parts]
        if not 1 < len(labels) <= _MOST_LABELS or len(labels) * _RECURS > len(lines):
            continue
        words = sum(any(map(str.isalpha, word)) for text in texts for word in text.split()) / len(texts)
        some_lack_it = not all(found for _, found, _ in parts)
        fields = {text.count("\t") for text in texts} if between == "\t" else {0}
        if not some_lack_it and words >= _FEWEST_WORDS and fields == {0} and 2 * len(set(texts)) > len(texts):
            return between, {"label": [label for label, _, _ in parts], "text": [text or None for text in texts]}
    return None


_NOTATIONS = ((",", ""), (",", "."), (",", " "), (",", "\u00a0"), (",", "\u202f"), (",", "'"))
_POINTED = ((".", ","), (".", " "), (".", "'"), (".", "\u00a0"), (".", "\u202f"))


DATE_FORMATS = tuple(
    f"{day}{clock}"
    for day in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d")
    for clock in ("", " %H:%M", " %H:%M:%S")
)

_HOURS = "%y%m%d%H"
"""Such as 14102100, of click logs: by its digits alone it could be a code, so that the column's name decides."""
_FIRST_YEAR = 1900


@dataclass(frozen=True)
class DateFacts:
    """What a column of dates holds.

    Attributes:
        format: of the text; None for ISO 8601.
        last: the last date.
        parts: those of weekday, month and hour that differ.
    """

    format: str | None
    last: str
    parts: tuple[str, ...]


def dates_of(texts: Iterable[str], *, hours: bool = False) -> DateFacts | None:
    """Of text that is dates in one form; None of other text. Of two orders of day and month, the day is first.

    Args:
        hours: whether it may also be two digits each of year, month, day and hour.
    """
    some = list(texts)
    form: str | None
    for form in (None, *DATE_FORMATS, *([_HOURS] if hours else [])):
        if some and all(len(text) >= _SHORTEST_DATE and seconds_of(text, form) is not None for text in some):
            clocks = [datetime.fromisoformat(text) if form is None else datetime.strptime(text, form) for text in some]
            if hours and min(clock.year for clock in clocks) < _FIRST_YEAR:
                continue
            last = max(clock.date() for clock in clocks).isoformat()
            parts = {"weekday": datetime.weekday, "month": lambda clock: clock.month, "hour": lambda clock: clock.hour}
            return DateFacts(form, last, tuple(name for name, of in parts.items() if len(set(map(of, clocks))) > 1))
    return None


def are_codes(counts: Mapping[int, int]) -> bool:
    """Whether whole numbers, and how often each occurs, look like codes: some recur, and those next to them do not.

    Two numbers of a smooth quantity are about as often equal as one of them is larger by 1, or by 2. Zero and the most
    frequent number count for nothing, as many quantities are often zero or not known. If every second one is a multiple
    of 5, they are amounts that somebody rounded.
    """
    most = max(counts, key=lambda number: counts[number], default=0)
    rest = {number: count for number, count in counts.items() if number not in (0, most)}
    rows, rounded = sum(rest.values()), sum(count for number, count in rest.items() if number % _ROUND == 0)
    equal = sum(count * (count - 1) for count in rest.values())
    near = sum(count * rest.get(number + step, 0) for step in _NEAR for number, count in rest.items())
    return rows >= _FEWEST_NUMBERS and 2 * rounded < rows and equal * len(_NEAR) > _RATIO * near


def number_notation(columns: Mapping[str, Sequence[Value]], delimiter: str) -> tuple[Dialect, list[str]]:
    """How numbers are written, as `Dialect.decimal` and `thousands`, and the columns of such numbers.

    A notation is that of the file if it makes numbers of columns that else are none, and leaves no numbers out.
    """

    def filled(name: str, count: int) -> list[str]:
        texts = (value.strip() for value in columns[name][:count] if isinstance(value, str))
        return [text for text in texts if text not in NULLS]

    if not any(
        _DIGITS.fullmatch(text) and not is_number(text) for name in columns for text in filled(name, _LOOKED_AT)
    ):
        return Dialect(delimiter, quoted=True), []
    texts = {name: filled(name, _COMPARED) for name in columns}
    plain = {name for name, values in texts.items() if values and all(map(is_number, values))}
    marked = [
        name
        for name, values in texts.items()
        if values and name not in plain and all(_DIGITS.fullmatch(value) for value in values)
    ]
    for decimal, thousands in (*_POINTED, *_NOTATIONS) if delimiter == "," else (*_NOTATIONS, *_POINTED):
        dialect = Dialect(delimiter, quoted=True, decimal=decimal, thousands=thousands)
        found = [name for name in marked if all(is_number(dialect.number(value)) for value in texts[name])]
        if found and all(is_number(dialect.number(value)) for name in plain for value in texts[name]):
            return dialect, [*found, *plain]
    return Dialect(delimiter, quoted=True), []


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of some rows names the columns.

    It does if no field is a number, and none stands in another row, too; or if a column of numbers has a name.
    """
    first = rows[0]
    others = [row for row in rows[1 : _COMPARED + 1] if len(row) == len(first) and row != first]
    for place, name in enumerate(first):
        below = [row[place] for row in others[:_LOOKED_AT] if row[place] not in NULLS]
        if name and below and not is_number(name) and name not in NULLS and all(map(is_number, below)):
            return True
    if any(map(is_number, first)):
        return False
    return not any(name and name == row[place] for row in others for place, name in enumerate(first))


def names_of_ratings(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """Names of the columns of ratings without a header line: user, item, rating and perhaps a time; None: no ratings.

    Users and items are whole numbers that recur, the ratings fewer numbers from 0 to 100, and times are since 1970.
    """
    width = len(rows[0])
    fields = [row for row in rows if len(row) == width]
    if width not in (3, 4) or len(fields) < _FEWEST_LINES or not all(is_number(each) for row in fields for each in row):
        return None
    users, items, ratings = ({row[place] for row in fields} for place in range(3))
    whole = all(value.isdigit() for value in users | items)
    recur = min(len(users), len(items)) * 2 <= len(fields)
    rated = len(ratings) <= _MOST_RATINGS and all(0 <= float(value) <= _LARGEST_RATING for value in ratings)
    fewer = len(ratings) < min(len(users), len(items))
    timed = width == 3 or all(631_152_000 <= float(row[3]) <= 2_208_988_800 for row in fields)
    return ["user", "item", "rating", "timestamp"][:width] if whole and recur and rated and fewer and timed else None


def decoded(content: bytes) -> tuple[str, str]:
    """The text, and its encoding: that of a byte order mark, UTF-8, Windows', or else Latin-1, which has all bytes."""
    marked = next((encoding for mark, encoding in _MARKS.items() if content.startswith(mark)), "utf-8")
    if marked == "utf-8" and (wide := _without_mark(content)):
        marked = wide
    try:
        return content.decode("utf-8-sig" if marked == "utf-8" else marked), marked
    except UnicodeDecodeError:
        pass
    try:  # what has control characters in Latin-1 is rather of Windows
        windows = any(0x80 <= byte <= 0x9F for byte in content)
        return content.decode("cp1252" if windows else "latin-1"), "cp1252" if windows else "latin-1"
    except UnicodeDecodeError:
        return content.decode("latin-1"), "latin-1"


def _without_mark(content: bytes) -> str | None:
    """UTF-16 of text whose letters are mostly Latin, without a mark: every second byte is 0."""
    head = content[:2_000]
    zeros = [head[place::2].count(0) for place in (0, 1)]
    if max(zeros) < len(head) / 4 or min(zeros) > len(head) / 20:
        return None
    return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"


HEAD_ROWS = 10_000
BLOCKS, BLOCK_ROWS, BLOCK_BYTES = 8, 1_000, 1 << 19
"""Blocks in addition to the first rows, over all files, and the most that is read of each."""
UNREAD = "unread "
"""Stands before the type of a column that the source of its form does not read."""
HEAD_BYTES = 1 << 23
"""Read of the first file to see how it is written."""
_DELIMITERS = (",", "\t", ";", "|", "::", WHITESPACE)
_LINES = 50
_STEMS = {"train": ("train",), "validation": ("valid", "validation", "val"), "test": ("test",)}


@dataclass(frozen=True)
class Sample:
    """Some rows of a file, or of a folder of files.

    Attributes:
        kind: of the source that reads it: csv, parquet, jsonl, recbole, text or adjacency.
        columns: values by name, all of one length.
        rows: of the whole data, about; exact if `whole`.
        whole: whether the sample is all of the data.
        headed: whether the first line of a CSV file names the columns.
        types: what the form of the file tells of a column's values, by column.
        label: the column that is the label by the form of the file; None: its form does not say.
        parts: the files of each split, where they are divided; else empty.
        marks: the decimal point of numbers in text, and what separates thousands, or "".
        unnamed: columns without a name in the header line, as pandas and R write row numbers; `columns` lacks them.
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
    label: str | None = None
    parts: Mapping[str, Path] = field(default_factory=dict)
    marks: tuple[str, str] = (".", "")
    unnamed: int = 0

    def alike(self, column: str) -> Alike | None:
        """The values of a column that differ from another one in their spelling only; None if there are none."""
        import pyarrow as pa

        from embexp.data.vocabularies.spelling import alike

        values = self.columns[column]
        parts = itertools.chain.from_iterable(value if isinstance(value, list) else [value] for value in values)
        spelled = {str(part) for part in parts if part is not None}
        return alike(pa.array(sorted(spelled), pa.large_string()))

    @property
    def begins_with_labels(self) -> bool:
        """Whether it is text of which each line begins with its label."""
        return self.kind == "text"

    @property
    def holds_texts(self) -> bool:
        """Whether `data=text` reads it: lines of texts, or one file of CSV, Parquet or JSON Lines, by its name."""
        if self.kind == "text":
            return True
        form = compressed.form_of(self.path) if self.path.is_file() else ""
        return self.headed and ((self.kind, form) in (("csv", ".csv"), ("parquet", ".parquet")) or self.kind == "jsonl")

    @property
    def count(self) -> int:
        """Rows of the sample."""
        return len(next(iter(self.columns.values()), ()))


def sample(path: Path, names: Sequence[str] | None = None, *, named: Iterable[str] = ()) -> Sample:
    """A sample of a file or folder; the suffixes of its files tell Parquet, JSON Lines and RecBole from text.

    Args:
        names: of the columns of a text file without a header line; None: the first line shows whether it has one.
        named: some columns that it has: a first line with their names is a header.

    Raises:
        ConfigError: there is no such file.
        DataError: it can't be read.
    """
    if path.is_dir() and (found := of_form(path, ".inter")):
        return _recbole(path, found[0])
    if names is None and (lists := _lists(path)) is not None:
        return lists
    files = data_files([path])
    if compressed.form_of(files[0]) == ".inter":
        return _recbole(path, files[0])
    if files[0].suffix in (".parquet", ".pq"):
        return _parquet(path, files)
    if compressed.form_of(files[0]) in jsonl.FORMS:
        return _json_lines(path, files)
    return _text(path, files, names, frozenset(named))


@dataclass(frozen=True)
class _Beginning:
    """The beginning of the first of some text files, which shows how all are written.

    Attributes:
        encoding: as far as it shows.
        ended: whether the file ends with it.
        read: bytes of the file that it takes, compressed or not.
    """

    text: str
    encoding: str
    ended: bool
    read: int


def _beginning(file: Path) -> _Beginning:
    """Of at most `HEAD_BYTES`, without the line by which Excel knows a delimiter.

    Raises:
        DataError: it can't be read, or holds no text.
    """
    if fault := fault_of(file):
        raise DataError(f"{file}: {fault}")
    with compressed.opened(file) as (data, packed):
        content = data.read(HEAD_BYTES)
        ended = not data.read(1)
        read = file.stat().st_size if ended else packed.tell()  # of compressed bytes, if they are
    text, encoding = decoded(content if ended else content[: content.rfind(b"\n") + 1])
    first_line, _, below = text.partition("\n")
    if is_separator_line(first_line):
        text = below
    if not text.strip():
        raise DataError(f"{file}: the file is empty, expected rows of columns")
    return _Beginning(text, encoding, ended, read)


def _text(path: Path, files: Sequence[Path], names: Sequence[str] | None, named: frozenset[str]) -> Sample:
    """Of text files; the beginning of the first one shows how they are written, and `data=csv` then reads them.

    Raises:
        ConfigError: the source can't read the first one.
        DataError: it holds no rows of columns.
    """
    file, beginning = files[0], _beginning(files[0])
    text, encoding = beginning.text, beginning.encoding
    delimiter = _delimiter_of(text)
    if names is None and len(files) == 1 and (labelled := labelled_lines(text, delimiter)) is not None:
        delimiter, parted = labelled
        count, typed = len(parted["label"]), {"text": "text"}
        total = count if beginning.ended else round(count * file.stat().st_size / max(1, beginning.read))
        return Sample(
            "text",
            path,
            parted,
            total,
            beginning.ended,
            delimiter,
            encoding,
            headed=False,
            types=typed,
            label="label",
        )
    dialect = Dialect(delimiter, quoted=len(delimiter) == 1, encoding=encoding)
    rows = [names_of(row) for row in itertools.islice(_rows(text, dialect), HEAD_ROWS)]
    first, guessed = rows[0], None
    headed = names is None and (has_header(rows) or not named.isdisjoint(first))
    if names is None and not headed:
        guessed = names_of_ratings(rows)
        names = guessed or [f"column_{number + 1}" for number in range(len(first))]
    if names is not None and len(names) != len(first):
        raise DataError(f"{file}: its first line has {len(first)} fields, but --names has {len(names)}")
    if behind := next((field for field in first if headed and field.startswith('"')), None):
        rule = f"found the quote of {behind} after a space, expected it directly after the delimiter {delimiter!r}"
        raise DataError(f"{file}: line 1: {rule}: remove the spaces between delimiters and quotes")
    settings = CSV(path=str(file), label=None, delimiter=delimiter, encoding=encoding, names=names and tuple(names))
    found = _of_table("csv", path, files, beginning, csv.table(settings, file))
    label = guessed[2] if guessed and len(set(found.columns[guessed[2]])) > 1 else None
    return replace(found, label=label)


def _of_table(kind: str, path: Path, files: Sequence[Path], beginning: _Beginning, table: TextTable) -> Sample:
    """Of text files of columns, the first one of which is `table`: its lines are taken apart as the source does it.

    Raises:
        DataError: columns share a name, or no line has as many fields as the first one.
    """
    text, dialect, names, ended = beginning.text, table.dialect, table.names, beginning.ended and len(files) == 1
    named = [name for name in names if name]
    if len(set(named)) < len(named) or not named:
        shared = next((name for name, times in Counter(named).items() if times > 1), "")
        rule = f"two columns have the name {shared!r}" if shared else "no column has a name"
        raise DataError(f"{table.path}: {rule}, expected a unique name for each: change its first line")
    # Other places than the beginning can't be reached in compressed files and UTF-16.
    bound = any(compressed.suffix_of(each) for each in files) or dialect.encoding.startswith("utf-16")
    first = int(table.headed)
    rows = list(itertools.islice(_rows(text, dialect), None if ended or bound else HEAD_ROWS + first))[first:]
    used, rest, count, lines = rows[:HEAD_ROWS], rows[HEAD_ROWS:], len(rows), text.count("\n")
    if not ended:
        count = max(count, round(lines * sum(each.stat().st_size for each in files) / max(1, beginning.read)))
    if ended:
        used = rows
    elif bound:
        used += [rest[place] for place in _spread(len(rest), BLOCKS * BLOCK_ROWS)]
    else:
        for file, block in _blocks(files, round(beginning.read * len(used) / max(1, lines)), dialect.encoding):
            own = names if file == files[0] or not table.headed else names_of(header_fields(file, dialect))
            places = [own.index(name) for name in names if name in own]
            some = itertools.islice(_rows(block, dialect), BLOCK_ROWS)
            used += [[row[place] for place in places] for row in some if len(row) == len(own)]
    looked_at, used = used, [row for row in used if len(row) == len(names)]
    if not used:
        fields = Counter(map(len, looked_at)).most_common(1)[0][0]
        why = (
            "; R's write.table gives the column of row names no name, but write.csv does"
            if fields == len(names) + 1
            else ""
        )
        raise DataError(f"{table.path}: its first line has {plural(len(names), 'field')}, those below it {fields}{why}")
    columns: dict[str, list[Value]] = {
        name: [row[place] if row[place].strip() else None for row in used] for place, name in enumerate(names) if name
    }
    notation, numbers = number_notation(columns, dialect.delimiter)
    for name in [] if notation.plain else numbers:
        columns[name] = [notation.number(value.strip()) if isinstance(value, str) else value for value in columns[name]]
    marks = (notation.decimal, notation.thousands) if numbers else (".", "")
    whole = ended and len(used) == count
    found = Sample(kind, path, columns, count, whole, dialect.delimiter, dialect.encoding, table.headed)
    return replace(found, marks=marks, unnamed=len(names) - len(named))


def _lists(path: Path) -> Sample | None:
    """Of adjacency lists: a file, or a folder with the files of each split; None for anything else."""
    parts = {}
    if path.is_dir():
        parts = {
            split: file
            for split, stems in _STEMS.items()
            for file in sorted(path.iterdir())
            if file.is_file() and file.name.partition(".")[0] in stems and looks_like(file)
        }
    file = parts.get("train", path)
    if not file.is_file() or not looks_like(file):
        return None
    lines = [line.decode("utf-8", "replace").split() for line in itertools.islice(lines_of(file), HEAD_ROWS)]
    pairs = [(fields[0], item) for fields in lines for item in fields[1:]][: 2 * HEAD_ROWS]
    users, items = ([pair[place] for pair in pairs] for place in (0, 1))
    read = sum(len(field_) + 1 for fields in lines for field_ in fields)
    held = sum(max(0, len(fields) - 1) for fields in lines)
    rows = sum(round(held * each.stat().st_size / max(1, read)) for each in parts.values() or [file])
    whole = len(pairs) == rows and len(parts) < 2
    return Sample("adjacency", path, {"user": users, "item": items}, rows, whole, " ", headed=False, parts=parts)


def _rows(text: str, dialect: Dialect) -> Iterator[list[str]]:
    """The fields of each record; those of a field without an end, at the end of a block, are left out."""
    try:
        for _, fields in records(io.StringIO(text, newline=""), dialect):
            yield fields
    except BadLine:
        return


def _delimiter_of(text: str) -> str:
    """The one by which the lines below the first have the most fields, all as many; a comma if none has several."""
    best, most = ",", 1
    for delimiter in _DELIMITERS:
        dialect = Dialect(delimiter, quoted=len(delimiter) == 1)
        widths = [len(fields) for fields in itertools.islice(_rows(text, dialect), _LINES)]
        enough = 1 if delimiter == "::" else most
        if len(set(widths[1:] or widths)) == 1 and widths[-1] > enough and (delimiter != WHITESPACE or most == 1):
            best, most = delimiter, widths[-1]
    return best


def _recbole(path: Path, file: Path) -> Sample:
    """Of a file of interactions, as `data=recbole` reads it.

    Raises:
        ConfigError: the source can't read it.
        DataError: it holds no rows of columns.
    """
    table = recbole.table(file)
    found = _of_table("recbole", path, [file], _beginning(file), table)
    kinds = dict(zip(table.names, (field.strip().rpartition(":")[2] for field in table.header), strict=True))
    columns = {
        name: [value.split() if name in table.lists and isinstance(value, str) else value for value in values]
        for name, values in found.columns.items()
    }
    return replace(found, columns=columns, types={name: kinds[name] for name in columns})


def _parquet(path: Path, files: Sequence[Path]) -> Sample:
    """Of Parquet files, of whose columns the source tells what it can read.

    Raises:
        ConfigError: the source can't read the first one.
        DataError: columns share a name, or the files have different ones.
    """
    import pyarrow.parquet

    table = arrow_table.table(files[0])
    _check_names(files[0], table.names)
    columns: dict[str, list[Value]] = {name: [] for name in table.names if name}
    types = dict.fromkeys(table.numbers - table.tokens, "float")
    total = 0
    for number, file in enumerate(files):
        with read_by_library(f"{file} can't be read as Parquet"), pyarrow.parquet.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            total += opened.metadata.num_rows
            times = [each.name for each in schema if not number and pyarrow.types.is_temporal(each.type)]
            for name in times:
                types.pop(name, None)
            if not number:
                unread = [each for each in schema if each.name not in table.tokens | (table.numbers - table.lists)]
                types |= {each.name: f"{UNREAD}{each.type}" for each in unread if not pyarrow.types.is_null(each.type)}
            if number not in _spread(len(files), BLOCKS):
                continue
            if set(schema.names) != set(table.names):
                raise DataError(f"{path}: {file.name} and {files[0].name} differ in their columns")
            for batch in _batches_of(opened, len(files), first=not number):
                for name in batch.schema.names:
                    if name and not types.get(name, "").startswith(UNREAD):
                        columns[name].extend(map(_as_text, _values(batch[name])))
    count = max(map(len, columns.values()), default=0)
    for name in columns:
        columns[name] = columns[name] or [None] * count
    unnamed = len(table.names) - len(columns)
    return Sample("parquet", path, columns, total, count == total, types=types, unnamed=unnamed)


def _json_lines(path: Path, files: Sequence[Path]) -> Sample:
    """Of JSON Lines: the first lines of the first file, and blocks spread over all.

    Raises:
        ConfigError: the source can't read the first one.
        DataError: a line is no object.
    """
    jsonl.table(files[0])
    packed = any(map(compressed.suffix_of, files))  # other places than the beginning can't be reached
    head: list[bytes] = []
    read = 0
    with compressed.opened(files[0]) as (data, place):
        for line in table_files.bounded(data):
            head.append(line)
            read += len(line)
            if read > HEAD_BYTES or (len(head) == HEAD_ROWS and not packed):
                break
        ended, taken = not data.read(1), place.tell() if packed else read
    whole, total = ended and len(files) == 1, len(head)
    if not whole:
        total = max(total, round(total * sum(file.stat().st_size for file in files) / max(1, taken)))
        if packed:
            head = head[:HEAD_ROWS] + [head[HEAD_ROWS + n] for n in _spread(len(head) - HEAD_ROWS, BLOCKS * BLOCK_ROWS)]
    records = list(jsonl.records_of(head, files[0]))
    for file, block in () if whole or packed else _blocks(files, read, "utf-8"):
        for line in block.encode().split(b"\n")[:BLOCK_ROWS]:
            with contextlib.suppress(DataError):  # the look at the written experiment finds it, and its number
                records += jsonl.records_of([line], file)
    found = jsonl.columns_of(records)
    unnamed = found.pop(("",), None)
    names = [jsonl.name_of(keys) for keys in found]
    _check_names(files[0], names)
    unread = {name: each.unread for name, each in zip(names, found.values(), strict=True) if each.unread}
    columns = {
        name: [_as_text(None if each.unread else jsonl.value_of(record, keys, each)) for record in records]
        for name, (keys, each) in zip(names, found.items(), strict=True)
    }
    types = {name: f"{UNREAD}{kind}" for name, kind in unread.items()}
    count = len(records) if whole else total
    return Sample("jsonl", path, columns, count, whole, types=types, unnamed=int(unnamed is not None))


def _check_names(file: Path, names: Sequence[str]) -> None:
    """Raises DataError if two columns share a name."""
    if shared := next((name for name, times in Counter(names).items() if times > 1), None):
        raise DataError(f"{file}: two columns have the name {shared!r}, expected a unique name for each")


def _batches_of(file: Any, files: int, *, first: bool) -> Iterator[Any]:
    """Of one of some files that is small and alone all rows, else the first ones of groups spread over it."""
    metadata = file.metadata
    groups = range(metadata.num_row_groups)
    if files == 1 and sum(metadata.row_group(group).total_byte_size for group in groups) <= HEAD_BYTES:
        yield from file.iter_batches()
        return
    for group in _spread(len(groups), max(1, BLOCKS // files)):
        batches = file.iter_batches(batch_size=HEAD_ROWS if first else BLOCK_ROWS, row_groups=[group])
        if (batch := next(batches, None)) is not None:
            yield batch
            first = False


def _values(array: Any) -> list[object]:
    """Of a column: times without what is below a microsecond, which Python's have not."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    values: list[object] = array.to_pylist()
    return values


def _as_text(value: object) -> Value:
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, list):
        return [str(each) for each in value]
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        value = int(value)  # as labels are named
    return str(value)


def _spread(count: int, most: int) -> list[int]:
    """So many numbers below `count`, evenly spaced, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / max(1, most - 1)) for place in range(most)})


def _blocks(files: Sequence[Path], begin: int, encoding: str) -> Iterator[tuple[Path, str]]:
    """The file, and whole lines from places spread over all files, behind the first bytes of the first one."""
    sizes = [file.stat().st_size for file in files]
    total = sum(sizes)
    for number in range(BLOCKS):
        place = begin + (total - begin) * number // BLOCKS
        for file, size in zip(files, sizes, strict=True):
            if place < size:
                with file.open("rb") as opened:
                    opened.seek(place)
                    lines = opened.read(BLOCK_BYTES).split(b"\n")
                yield file, b"\n".join(lines[1:-1]).decode(encoding, "replace")
                break
            place -= size


class Kind(StrEnum):
    """What the values of a column are."""

    NUMBER = "numbers"
    CATEGORY = "categories"
    LIST = "lists"
    TEXT = "texts"
    TIME = "times"
    CONSTANT = "constant"
    UNIQUE = "unique"
    UNREAD = "not read"


FEW = 10
"""Whole numbers with at most so many different values are categories."""
_FEW_VALUES = 100
"""A column with at most so many different values has them in its facts."""
LIST_SEPARATORS = ("|", ";", ",", " ")
_ID = re.compile(r"(?:\b|_)(?:ids?|code|zip|zipcode|[ug]uid|hash|key|user|item|cat|category)$|(?-i:[a-z]I[dD])$", re.I)
_TIME = re.compile(r"time|date|stamp|(?:^|_)(?:ts|at|when|epoch)$", re.I)
_HOUR = re.compile(r"hour|date|time|(?:\b|_)dt(?:\b|_)", re.I)
_STAMP = re.compile(r"^(?:unix|event)?[_ ]?(?:time[_ ]?stamps?|ts|epoch)$", re.I)
"""Names of nothing but a time, which may also count from another start than 1970."""
_EPOCHS = tuple((631_152_000 * unit, 2_208_988_800 * unit) for unit in (1, 10**3, 10**6, 10**9))
"""1990 to 2040 in seconds, milliseconds, microseconds and nanoseconds."""
_PANDAS_INDEX = re.compile(r"__index_level_\d+__|Unnamed: \d+")
"""Names that pandas gives the numbers of rows, in Parquet and in CSV."""
_ONCE = 0.9
"""Share of values that occur once from which a column is left out."""
_MOST_OTHERS = 3
"""Different words in a column of numbers that may stand for missing ones."""
_HEAVY = 10.0
"""Largest value, in standard deviations above the mean, from which counts are heavy-tailed; a normal distribution has
none above 6 among a billion, an exponential one about 10 among 20,000."""


@dataclass(frozen=True)
class ColumnFacts:
    """A column of a sample.

    Attributes:
        why: the reason for the kind, for people.
        present: values that are not missing.
        missing: share of those that are, from 0 to 1.
        distinct: different values in the sample; of lists and texts, their parts.
        estimated: different values of the whole data, about.
        numeric: whether all values are finite numbers.
        heavy: whether a few numbers are much larger than the others.
        negative: whether some number is below 0.
        separator: between the values of a list that is written as text.
        whole: whether all are whole numbers.
        codes: whether they are codes by how often they, and those next to them, occur.
        numbers: the different numbers, sorted, if they are few.
        dates: of text that is dates, in a form whose source has `data.dates`.
        ordered: of times, whether the source can divide by them.
        counts: the different values and how often they occur in the sample, the most frequent first, if they are few.
    """

    name: str
    kind: Kind
    why: str
    present: int
    missing: float
    distinct: int
    estimated: int
    numeric: bool = False
    heavy: bool = False
    negative: bool = False
    separator: str | None = None
    whole: bool = False
    codes: bool = False
    numbers: tuple[float, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    examples: tuple[str, ...] = ()
    dates: DateFacts | None = None
    ordered: bool = False


def facts(sample: Sample) -> list[ColumnFacts]:
    """The facts of all columns, in their order."""
    return [_facts(name, values, sample) for name, values in sample.columns.items()]


def label_facts(sample: Sample, name: str) -> ColumnFacts:
    """The facts of a column as a label, of which also words such as NA stand for missing values."""
    values = sample.columns[name]
    present = [None if isinstance(value, str) and value.strip() in NULLS else value for value in values]
    return _facts(name, present, sample)


def _facts(name: str, values: Sequence[Value], sample: Sample) -> ColumnFacts:
    def facts(kind: Kind, why: str, texts: Iterable[str], present: int, **more: Any) -> ColumnFacts:
        counts = Counter(texts)
        examples = tuple(text for text, _ in counts.most_common(3))
        missing, size = 1 - present / len(values) if values else 1.0, _estimate(counts, sample)
        return ColumnFacts(name, kind, why, present, missing, len(counts), size, examples=examples, **more)

    typed = sample.types.get(name, "")
    if typed.startswith(UNREAD):
        kind = typed.removeprefix(UNREAD)
        return facts(Kind.UNREAD, f"data={sample.kind} does not read {kind}: convert it to text or numbers", (), 0)
    lists = [value for value in values if isinstance(value, list)]
    if lists:
        return facts(Kind.LIST, "the file says so", itertools.chain.from_iterable(lists), len(lists))
    written = [value for value in values if isinstance(value, str)]
    texts = [text.strip() for text in written]  # as numbers, dates and labels are read; ids are as they are written
    present = [text for text in texts if text not in NULLS]
    if len(present) < len(texts) and present and (_numbers(present) is not None or _dates(name, Counter(present))):
        texts = present
    counts, numbers = Counter(texts), _numbers(texts)
    whole = bool(numbers) and typed != "float" and all(number.is_integer() for number in numbers or ())
    kind, why, separator = kind_of(name, counts, numbers, typed or None)
    if kind in (Kind.LIST, Kind.TEXT):
        parts = (part for text in texts for part in _parts(text, separator))
        return facts(kind, why, parts, len(texts), separator=separator)
    if kind is Kind.CATEGORY and _occur_once(counts, sample):
        kind, why = Kind.UNIQUE, "nearly all of its values occur once"
    dates = _dates(name, counts) if kind is Kind.TIME and sample.kind in ("csv", "parquet", "jsonl") else None
    return facts(
        kind,
        why,
        written if kind in (Kind.CATEGORY, Kind.UNIQUE) else texts,
        len(texts),
        numeric=numbers is not None,
        heavy=numbers is not None and _is_heavy(numbers),
        negative=numbers is not None and min(numbers, default=0) < 0,
        dates=dates,
        # `data.timestamp_format` is of CSV; digits are in order without it.
        ordered=kind is Kind.TIME
        and (numbers is not None or sample.kind == "csv" or (dates is not None and dates.format is None)),
        whole=whole,
        codes=whole and are_codes(Counter(map(int, numbers or ()))),
        numbers=tuple(sorted(set(numbers))) if numbers is not None and len(counts) <= _FEW_VALUES else (),
        counts=tuple(counts.most_common()) if len(counts) <= _FEW_VALUES else (),
    )


def _occur_once(counts: Counter[str], sample: Sample) -> bool:
    """Whether nearly all values occur once, in the sample and, by an estimate, in the whole data."""
    total = counts.total()
    once = sum(count == 1 for count in counts.values())
    return total > _FEW_VALUES and once >= _ONCE * total and _estimate(counts, sample) >= _ONCE * sample.rows


def kind_of(
    name: str, counts: Counter[str], numbers: Sequence[float] | None, typed: str | None = None
) -> tuple[Kind, str, str | None]:
    """The kind of a column's values, the reason, and the separator of lists.

    Args:
        numbers: the values as numbers; None if one is none.
    """
    total = counts.total()
    if _PANDAS_INDEX.fullmatch(name) and (numbers is not None or len(counts) == total) and not dates_of(counts):
        return Kind.UNIQUE, "the index of a pandas frame, by its name", None
    if len(counts) <= 1:
        return Kind.CONSTANT, "one value everywhere" if counts else "always missing", None
    unique = len(counts) == total and total > 100
    if typed == "text":
        return Kind.TEXT, "texts, as the file says", " "
    if typed == "float" and numbers is None:
        others = [repr(text) for text in counts if _numbers([text]) is None][:_MOST_OTHERS]
        return Kind.UNREAD, f"numbers, as the file says, but for {', '.join(others)}", None
    if typed == "token":
        return Kind.CATEGORY, "the file says so", None
    if numbers is not None and any(len(text) > 1 and text[0] == "0" and text.isdigit() for text in counts):
        return (Kind.UNIQUE, "unique in each row", None) if unique else (Kind.CATEGORY, "codes that begin with 0", None)
    if numbers is not None and typed == "float":
        by_time, why = _kind_of_numbers(name, counts, numbers, unique=False)
        return (by_time, why, None) if by_time is Kind.TIME else (Kind.NUMBER, "numbers, as the file says", None)
    if numbers is not None:
        return (*_kind_of_numbers(name, counts, numbers, unique=unique and typed is None), None)
    if dates := dates_of(counts):
        return Kind.TIME, "dates" if dates.format is None else f"dates, {dates.format}", None
    if are_lists(counts):
        return Kind.LIST, "lists in brackets, as Python or JSON prints them", BRACKETS
    words = statistics.mean(len(text.split()) for text in counts)
    is_text = words >= 4 and len(counts) > total / 2
    if separator := _separator(counts, LIST_SEPARATORS[:2] if is_text else LIST_SEPARATORS):
        return Kind.LIST, f"the values between {separator!r} recur", separator
    if is_text:
        return Kind.TEXT, f"{words:.0f} words each, and most differ", " "
    if others := _words_among_numbers(counts):
        said = f"numbers, but for {', '.join(map(repr, others))}: write nothing there, to have them as numbers"
        return Kind.UNIQUE if unique else Kind.CATEGORY, said, None
    if unique:
        return Kind.UNIQUE, "unique in each row", None
    return Kind.CATEGORY, "text that recurs" if len(counts) < total else "text, in few rows", None


def _parts(text: str, separator: str | None) -> list[str]:
    """The values of a list, or the words of a text."""
    if separator == BRACKETS:
        return [value or "" for value in values_of_list(text) or ()]
    return text.split(separator)


def _words_among_numbers(counts: Counter[str]) -> list[str]:
    """The words that keep a column from being one of numbers, if they are few; else nothing."""
    others = [text for text in counts if _numbers([text]) is None]
    if len(others) > _MOST_OTHERS or len(counts) - len(others) <= FEW:
        return []
    return others if 2 * sum(counts[text] for text in others) < counts.total() else []


def _dates(name: str, counts: Counter[str]) -> DateFacts | None:
    return dates_of(counts, hours=_HOUR.search(name) is not None)


def _kind_of_numbers(name: str, counts: Counter[str], numbers: Sequence[float], *, unique: bool) -> tuple[Kind, str]:
    whole = all(number.is_integer() for number in numbers)
    if _HOUR.search(name) and (found := _dates(name, counts)):
        return Kind.TIME, f"dates, {found.format}"
    in_years = any(low <= min(numbers) and max(numbers) <= high for low, high in _EPOCHS)
    if in_years and (_TIME.search(name) or (whole and not _ID.search(name))) and len(counts) > FEW:
        return Kind.TIME, "numbers that are dates of 1990 to 2040, since 1970"
    if _STAMP.match(name):
        return Kind.TIME, "its name, and numbers"
    if _ID.search(name):
        return (Kind.UNIQUE, "unique in each row") if unique else (Kind.CATEGORY, "its name is that of an id")
    if whole and unique and sorted(numbers) == list(range(int(min(numbers)), int(min(numbers)) + len(numbers))):
        return Kind.UNIQUE, "it counts the rows"
    if whole and len(counts) <= FEW:
        return Kind.CATEGORY, f"{len(counts)} different whole numbers"
    return Kind.NUMBER, "whole numbers" if whole else "numbers"


def _numbers(texts: Sequence[str]) -> list[float] | None:
    """The finite values as numbers, by the grammar of the sources; None if one is none, or all are infinite."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return None
    if not all(text.isascii() and "_" not in text for text in texts):
        return None
    return [number for number in numbers if math.isfinite(number)] or None


def _separator(counts: Counter[str], separators: Sequence[str]) -> str | None:
    """The one that parts most values into several, if the parts recur."""
    texts = list(counts.elements())[:5_000]
    for separator in separators:
        with_it = [text for text in texts if separator in text.strip(separator)]
        if len(with_it) < len(texts) / 5:
            continue
        parts = [part for text in texts for part in text.split(separator)]
        if len(set(parts)) <= len(set(texts)) / 2 and len(set(parts)) < len(parts) / 5:
            return separator
    return None


def _is_heavy(numbers: Sequence[float]) -> bool:
    """Whether the largest number is far above the others."""
    if len(numbers) < 30 or max(numbers) <= _HEAVY:
        return False
    mean, deviation = statistics.fmean(numbers), statistics.pstdev(numbers)
    return max(numbers) > mean + _HEAVY * deviation or max(numbers) > 20 * max(1.0, statistics.median(numbers))


def _estimate(counts: Counter[str], sample: Sample) -> int:
    """Different values of the whole data, at least, by those seen once and twice.

    Chao (1984), Nonparametric estimation of the number of classes in a population.
    """
    if sample.whole:
        return len(counts)
    once, twice = (sum(count == times for count in counts.values()) for times in (1, 2))
    return min(len(counts) + round(once * once / (2 * max(1, twice))), max(sample.rows, len(counts)))
