"""Texts, one after the other, from files, from a folder for each class, or from Python's standard library.

| path | holds |
|---|---|
| NAME.csv | a header line; columns of the label and the text |
| NAME.parquet | likewise |
| any other file | a text per line, `label<TAB>text`, no header line |
| a folder | a folder for each class, named as it is, with a text per file, NAME.txt |
| None | the standard library's documentation |
"""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embexp.data import standard_library
from embexp.data.source import HEAD_LINES, Unreadable
from embexp.errors import ConfigError, DataError, Fault
from embexp.specs.data import Split, SplitKind

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
    """

    text: str
    label: str | None
    file: Path
    place: str
    done: float


@dataclass(frozen=True)
class Corpus:
    """Where texts are.

    Attributes:
        path: file or folder; None: the standard library.
        text: column of the text.
        label: column of the label; None: labels are not read, and may be missing.
    """

    path: Path | None
    text: str
    label: str | None

    def files(self) -> list[Path]:
        """The files of texts; none for the standard library.

        Raises:
            Unreadable: there are none, or they are not what they should be.
        """
        if self.path is None:
            return []
        if not self.path.exists():
            where = "" if self.path.is_absolute() else f"looked in {Path.cwd()}"
            raise self._fault(self.path, "there is no such file or folder", where)
        if not self.path.is_dir():
            self._check_columns(self.path)
            return [self.path]
        folders = sorted(each for each in self.path.iterdir() if each.is_dir() and not each.name.startswith((".", "_")))
        if not folders and self.label is not None:
            raise self._fault(self.path, "a folder of labelled texts holds a folder for each class")
        found = [file for folder in folders or [self.path] for file in sorted(folder.glob("*.txt"))]
        if not found:
            raise self._fault(self.path, "the folder holds no texts, NAME.txt" + (" in folders" if folders else ""))
        return found

    @property
    def form(self) -> str:
        """How the texts are written: the file's suffix, "folder", or "" for the standard library."""
        return "" if self.path is None else "folder" if self.path.is_dir() else self.path.suffix.lower()

    def digest(self, *, cache: Path) -> str:
        """Digest of the content: of the bytes of all files and, for folders, of their names, which are the classes.

        Raises:
            ConfigError: see `files`.
        """
        from embexp.system import caching, digests

        try:
            files = self.files()
        except Unreadable as unreadable:
            raise ConfigError(unreadable.faults) from None
        if self.path is None:
            return standard_library.digest()
        if self.path.is_dir():
            return digests.of_json([[file.parent.name, file.name, digests.of_file(file)] for file in files])
        return digests.of_json([caching.file_digest(file, cache=cache) for file in files])

    def head_faults(self) -> list[Fault]:
        """What is wrong with the files, their columns, or the first texts."""
        if self.path is None:
            return []
        try:
            self.files()
            for _ in itertools.islice(self.texts(), HEAD_LINES):
                pass
        except Unreadable as unreadable:
            return unreadable.faults
        except DataError as error:
            return [Fault("data.path", repr(str(self.path)), str(error))]
        return []

    def texts(self) -> Iterator[Text]:
        """All texts, in order.

        Raises:
            DataError: a line, or row, can't be read.
            Unreadable: see `files`.
        """
        if self.path is None:
            yield from self._of_the_library()
        elif self.path.is_dir():
            yield from self._of_folders(self.files())
        else:
            self._check_columns(self.path)
            match self.path.suffix.lower():
                case ".csv":
                    yield from self._of_csv(self.path)
                case ".parquet":
                    yield from self._of_parquet(self.path)
                case _:
                    yield from self._of_lines(self.path)

    def _of_the_library(self) -> Iterator[Text]:
        file = Path(standard_library.NAME)
        texts: list[tuple[str | None, str]]
        if self.label is None:
            texts = [(None, text) for text in standard_library.unlabelled()]
        else:
            texts = list(standard_library.labelled())
        for number, (label, text) in enumerate(texts, 1):
            yield Text(text, label, file, f"{file}, text {number}", number / len(texts))

    def _of_folders(self, files: list[Path]) -> Iterator[Text]:
        for number, file in enumerate(files, 1):
            text = _decoded(file.read_bytes(), str(file))
            label = None if self.label is None else file.parent.name
            yield Text(text, label, file.parent, str(file), number / len(files))

    def _of_lines(self, path: Path) -> Iterator[Text]:
        size, read = path.stat().st_size, 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                read += len(line)
                place = f"{path}, line {number}"
                content = _decoded(line, place).rstrip("\r\n")
                if not content.strip():
                    continue
                label, tab, text = content.partition("\t")
                if self.label is None:
                    # What stands before a tab is a label, no part of the text.
                    yield Text(text if tab else content, None, path, place, read / size)
                    continue
                if not tab:
                    raise DataError(f"{place}: found no tab, expected label<TAB>text")
                yield Text(text, _named(label, place), path, place, read / size)

    def _of_csv(self, path: Path) -> Iterator[Text]:
        limit = csv.field_size_limit(sys.maxsize)
        size, read = path.stat().st_size, 0
        try:
            with path.open("rb") as file:

                def lines() -> Iterator[str]:
                    nonlocal read
                    for number, line in enumerate(file, 1):
                        read += len(line)
                        yield _decoded(line, f"{path}, line {number}")

                rows = csv.reader(lines())
                header = next(rows, [])
                column, label = header.index(self.text), None if self.label is None else header.index(self.label)
                line = rows.line_num + 1
                for fields in rows:
                    if fields:
                        place = f"{path}, line {line}"
                        if len(fields) != len(header):
                            found = f"found {len(fields)} fields, expected {len(header)}"
                            raise DataError(f"{place}: {found}")
                        name = None if label is None else _named(fields[label], place)
                        yield Text(fields[column], name, path, place, read / size)
                    line = rows.line_num + 1
        finally:
            csv.field_size_limit(limit)

    def _of_parquet(self, path: Path) -> Iterator[Text]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = [self.text, *([] if self.label is None else [self.label])]
        row = 0
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=names):
                texts = batch[self.text].cast(pa.large_string()).to_pylist()
                labels = [None] * len(texts)
                if self.label is not None:
                    labels = batch[self.label].cast(pa.large_string()).to_pylist()
                for text, label in zip(texts, labels, strict=True):
                    row += 1
                    place = f"{path}, row {row}"
                    name = None if self.label is None else _named(label or "", place)
                    yield Text(text or "", name, path, place, row / file.metadata.num_rows)

    def _check_columns(self, path: Path) -> None:
        """Raises Unreadable if a file is empty or lacks a column."""
        if path.stat().st_size == 0:
            raise self._fault(path, "the file is empty")
        kind = path.suffix.lower()
        names: list[str]
        if kind == ".csv":
            with path.open("rb") as file:
                try:
                    first = _decoded(file.readline(), f"{path}, line 1")
                except DataError as error:
                    raise self._fault(path, str(error)) from None
            names = next(csv.reader([first]), [])
        elif kind == ".parquet":
            names = self._parquet_columns(path)
        else:
            return
        faults = []
        for key, name in (("text", self.text), ("label", self.label)):
            if name is not None and names.count(name) != 1:
                what = "no such column" if name not in names else f"{names.count(name)} columns of this name"
                rule, remedy = f"{path} has {what}", f"its columns are: {', '.join(names[:20])}"
                faults.append(Fault(f"data.{key}", repr(name), rule, remedy))
        if faults:
            raise Unreadable(faults)

    def _parquet_columns(self, path: Path) -> list[str]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            schema: Any = pq.read_schema(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise self._fault(path, f"the file can't be read as Parquet: {error}") from error
        for name in (self.text, self.label):
            kind = None if name is None or schema.names.count(name) != 1 else schema.field(name).type
            if kind is not None and not (
                pa.types.is_string(kind)
                or pa.types.is_large_string(kind)
                or pa.types.is_dictionary(kind)
                or pa.types.is_integer(kind)
            ):
                raise self._fault(path, f"column {name!r} holds {kind}, expected text")
        return list(schema.names)

    def _fault(self, path: Path, rule: str, remedy: str = "") -> Unreadable:
        return Unreadable([Fault("data.path", repr(str(path)), rule, remedy)])


def user_faults(split: Split) -> list[Fault]:
    """The fault of a split by users."""
    if split.kind is not SplitKind.LEAVE_ONE_OUT:
        return []
    rule = "texts have no users, of each of whom one could be left out"
    return [Fault("data.split.kind", str(split.kind), rule, "choose random, time or folds")]


def _named(label: str, place: str) -> str:
    if not label.strip():
        raise DataError(f"{place}: found no label, expected the name of a class")
    return label.strip()


def _decoded(content: bytes, place: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{place}: found bytes that are not UTF-8, expected text in UTF-8") from None
