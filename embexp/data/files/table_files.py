"""Files whose rows are examples: found, read line by line, columns assigned to files, and checked together.

Each form of file (CSV, RecBole, Parquet) has a module in `embexp.data.sources`.
"""

from __future__ import annotations

import difflib
import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, AnyStr, Protocol, Self

from embexp.data.columns import Wanted
from embexp.data.files.dialect import NULLS
from embexp.errors import Code, ConfigError, DataError, Fault
from embexp.specs.tables import list_rule
from embexp.system import compressed, files

if TYPE_CHECKING:
    import pyarrow as pa

_COMPARED = 10_000  # names that a missing one is compared with
LONGEST = 1 << 23
"""Bytes, or characters, that a line may have; as words it takes some twenty times as much memory."""
TOO_LONG = f"more than {LONGEST:,} bytes without a line end, expected a shorter line"
"""What is said about one that has more."""


NOT_RECORDED = "embexp-not-recorded-"
"""How the name of a folder begins that holds data while a run uses it which does not record it."""
_NOT_RECORDED = (
    "the data of this run was in memory and not recorded (output.data=false), so the run can't be resumed, "
    "verified, run again from its spec, or evaluated on its own data"
)


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    Attributes:
        done: fraction of the file that has been read with them, 0 to 1.
        tokens: Arrow arrays, or lists of them, of columns that are read as tokens, by name.
        numbers: float64, or lists of it, of columns that are read as numbers, by name.
    """

    count: int
    done: float
    tokens: dict[str, pa.Array]
    numbers: dict[str, pa.Array]

    def after(self, rows: int) -> Block:
        """The block without its first rows."""
        if not rows:
            return self
        tokens, numbers = (
            {name: array.slice(rows) for name, array in columns.items()} for columns in (self.tokens, self.numbers)
        )
        return Block(self.count - rows, self.done, tokens, numbers)

    def with_labels(self, wanted: Sequence[Wanted]) -> Block:
        """The block without the rows that lack a label, if such rows are skipped."""
        label = next((one for one in wanted if one.skips), None)
        if label is None:
            return self
        present = _present((self.tokens if label.tokens else self.numbers)[label.name])
        if present.true_count == self.count:
            return self
        tokens, numbers = (
            {name: array.filter(present) for name, array in columns.items()} for columns in (self.tokens, self.numbers)
        )
        return Block(present.true_count, self.done, tokens, numbers)


def _present(array: pa.Array) -> pa.Array:
    """Whether each value is none of those that mean a missing one; boolean."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        return pc.fill_null(_present(array.dictionary).take(array.indices), False)
    if pa.types.is_floating(array.type):
        return pc.invert(pc.is_null(array, nan_is_null=True))
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        nulls = pa.array(sorted(NULLS), array.type)
        return pc.invert(pc.is_in(pc.fill_null(pc.utf8_trim_whitespace(array), ""), value_set=nulls))
    return pc.is_valid(array)


class Table(Protocol):
    """One file of columns, its header read."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns, in their order."""

    @property
    def lists(self) -> frozenset[str]:
        """The columns that hold several values per row."""

    def holds_numbers(self, column: str, *, rows: int) -> bool:
        """Whether a column holds numbers, as far as so many rows show."""

    def head_fault(self, wanted: Sequence[Wanted], *, rows: int) -> str:
        """The first of so many rows whose wanted columns can't be read, and why; "" for none."""

    def blocks(self, wanted: Sequence[Wanted]) -> Iterator[Block]:
        """All rows, in order, in bounded memory; at most the wanted columns that the file has.

        Raises:
            DataError: the file can't be read.
            ArrowInvalid: a value can't be read.
        """

    @property
    def first(self) -> int:
        """The number of the first row of `blocks`, from 0: of a piece, it is that in the file."""

    def cuts(self) -> Sequence[int]:
        """Rows from 0 to their number, at which the file may be cut into pieces; empty: nowhere."""

    def piece(self, start: int, stop: int) -> Table:
        """The rows from one cut to another, in the blocks that the whole file has there."""

    def explain(self, wanted: Sequence[Wanted]) -> str:
        """The first row that can't be read, found by a slow and careful look at all; "" where there is none to take."""


class UncutTable:
    """What a `Table` of text has: it is read whole, as a line end may be within quotes."""

    first = 0

    def cuts(self) -> Sequence[int]:
        """Nowhere."""
        return ()

    def piece(self, start: int, stop: int) -> Self:
        """The whole."""
        return self


@dataclass(frozen=True)
class Side:
    """A file joined to the examples' own by the column `key`, whose values are unique in it."""

    table: Table
    key: str


@dataclass(frozen=True)
class Files:
    """The files that hold the examples, in order, and those joined to them.

    Attributes:
        tables: their rows, one file after the other, are the examples.
        side_of: column -> index in `sides` of the file that holds it, for columns that `tables` lack.
    """

    tables: tuple[Table, ...]
    sides: tuple[Side, ...] = ()
    side_of: Mapping[str, int] | None = None

    def lists(self) -> frozenset[str]:
        """Names of the columns that hold several values per example (the first file decides)."""
        joined = {name for name, number in (self.side_of or {}).items() if name in self.sides[number].table.lists}
        return self.tables[0].lists | joined

    def paths(self) -> list[Path]:
        """Every file that is read."""
        used = sorted(set((self.side_of or {}).values()))
        return [table.path for table in self.tables] + [self.sides[number].table.path for number in used]


def unreadable(path: Path, rule: str, remedy: str = "") -> ConfigError:
    """One fault of a file."""
    return ConfigError([Fault("data.path", repr(str(path)), rule, remedy)])


def stop_at(faults: Sequence[Fault]) -> None:
    """Raises ConfigError, each fault once, if there are any."""
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The files that paths lead to: a file itself, those of a folder by name, those that match a pattern by path.

    Args:
        paths: files, folders, and patterns as of a shell (`*`, `?`, `[…]`, and `**` for any folders).

    Raises:
        ConfigError: there is none, a file is named twice, or a folder holds folders.
    """
    found = [file for path in paths for file in _data_files(path)]
    seen: set[Path] = set()
    for file in found:
        if file in seen:
            raise unreadable(file, "the file would be read more than once")
        seen.add(file)
    return found


def _data_files(path: Path) -> list[Path]:
    if not path.exists() and glob.has_magic(str(path)):
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
        matches = [match for match in matches if not match.name.startswith((".", "_")) and not match.is_dir()]
        if not matches:
            raise unreadable(path, "no file matches this pattern", looked(path))
        return [file for match in matches for file in _data_files(match)]
    if not path.exists():
        if any(part.startswith(NOT_RECORDED) for part in path.parts):
            raise unreadable(path, _NOT_RECORDED, "call embexp.run again with the data and output.data=true")
        raise unreadable(path, "there is no such file or folder", looked(path))
    if not path.is_dir():
        if fault := files.fault_of(path):
            raise unreadable(path, fault)
        return [path]
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "_")))
    for entry in entries:
        if entry.is_dir():
            rule = f"a folder of data files may hold only files, not the folder {entry.name!r}"
            remedy = f"to read the files in its subfolders: {path.name}/*/*; values in folder names are not read"
            raise unreadable(path, rule, remedy)
        if fault := files.fault_of(entry):
            raise unreadable(entry, fault)
    if not entries:
        raise unreadable(path, "the folder holds no files")
    return entries


def looked(path: Path) -> str:
    """Where a path that is not there was looked for, as a remedy."""
    return f"looked in {Path.cwd()}" if not path.is_absolute() else ""


def of_form(folder: Path, form: str) -> list[Path]:
    """The files of a folder that have a form, such as `.inter`, compressed or not, by name."""
    return sorted(file for file in folder.iterdir() if compressed.form_of(file) == form)


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file with their ends; decompressed, if it is compressed.

    Raises:
        DataError: it is no regular file, damaged, or a line is too long.
    """
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    with compressed.opened(path) as (file, _):
        for number, line in enumerate(bounded(file), 1):
            if len(line) > LONGEST:
                raise DataError(f"{path}, line {number}: found {TOO_LONG}")
            yield line


def text_lines(path: Path) -> Iterator[tuple[int, str, int]]:
    """Number, text without its end, and bytes of each line of a file in UTF-8 that is not empty; see `lines_of`.

    Raises:
        DataError: a line is not UTF-8.
    """
    for number, line in enumerate(lines_of(path), 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise DataError(f"{path}, line {number}: found bytes that are not UTF-8, expected text in UTF-8") from None
        if text:
            yield number, text, len(line)


def bounded(file: IO[AnyStr]) -> Iterator[AnyStr]:
    """The lines of an open file; of a line that is too long, a beginning of more than `LONGEST`."""
    while line := file.readline(LONGEST + 1):
        yield line


def whole(path: Path) -> bytes:
    """The bytes of a file that is one text.

    Raises:
        DataError: it is no regular file, or too long.
    """
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    with files.opened(path) as file:
        content = file.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise DataError(f"{path}: found a text of more than {LONGEST:,} bytes, expected a shorter one")
    return content


def head_faults(files: Files, wanted: Sequence[Wanted], *, rows: int) -> list[Fault]:
    """The first row of each file that can't be read, among so many of each."""
    of_sides = [one for one in wanted if one.name in (files.side_of or {})]
    looked_at = [(table, wanted) for table in files.tables] + [(side.table, of_sides) for side in files.sides]
    return [
        Fault("data.path", repr(str(table.path)), wrong)
        for table, columns in looked_at
        if (wrong := table.head_fault(columns, rows=rows))
    ]


def missing(path: Path, names: Sequence[str], wanted: Sequence[Wanted]) -> list[Fault]:
    """Wanted columns that are not among those of a file, or more than once."""
    faults = []
    for one in wanted:
        if (count := list(names).count(one.name)) == 1:
            continue
        rule, remedy = f"{path} has {count} columns with this name; it must have exactly one", ""
        if not count:
            near = difflib.get_close_matches(one.name, dict.fromkeys(names[:_COMPARED]), n=3, cutoff=0.6)
            listing = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            rule = f"{path} has no such column"
            remedy = f"did you mean {' or '.join(map(repr, near))}?" if near else f"its columns are: {listing}"
        faults.append(Fault(one.asked_by, repr(one.name), rule, remedy, code=Code.OTHER if count else Code.NO_COLUMN))
    return faults


def shape_faults(files: Files, wanted: Sequence[Wanted]) -> list[Fault]:
    """Columns that hold several values per example where one is needed, or not the same in all files."""
    faults, lists, first = [], files.lists(), files.tables[0]
    kinds = {True: "several values", False: "one value"}
    for one in wanted:
        several = one.name in lists
        rules = [
            f"{table.path} and {first.path} must both hold several values in this column, or both hold one"
            for table in files.tables[1:]
            if (one.name in table.lists) != several
        ]
        if one.single and several:
            rules.append("the column holds several values per example; it must hold one")
        if one.weighs is not None and several != (one.weighs in lists):
            rules.append(
                f"there must be one weight per id, but this column holds {kinds[several]} per example and "
                f"{one.weighs!r} {kinds[not several]}"
            )
        faults += [Fault(one.asked_by, repr(one.name), rule) for rule in rules]
    return faults


def single_faults(files: Files, wanted: Sequence[Wanted]) -> list[Fault]:
    """Columns that hold one value per example where several are needed."""
    remedy, lists = "remove it, or name a column that holds several", files.lists()
    return [
        Fault(need.path, need.value, list_rule(one.name), remedy)
        for one in wanted
        if one.name not in lists
        for need in one.several
    ]
