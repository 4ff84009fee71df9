"""Texts, one after the other, from files, from a folder for each class, or from the standard library; and their words.

| path | holds |
|---|---|
| NAME.csv | a header line; columns of the label and the text |
| NAME.parquet, NAME.jsonl | columns of the label and the text |
| any other file | a text per line, `label<TAB>text`, or with another delimiter; no header line |
| a folder | a folder for each class, named as it is, with a text per file, NAME.txt |
| None | the standard library's documentation |

Texts that every Python has: the documentation in its standard library, read from the source files. Nothing of the
library is imported but the topics of `help()`. The texts are the same for one version of Python; a module that an
installation lacks has no texts.
"""

from __future__ import annotations

import ast
import hashlib
import io
import itertools
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from embexp.data.columns import Wanted
from embexp.data.files.arrow_table import ArrowTable, type_faults
from embexp.data.files.dialect import WHITESPACE, Dialect
from embexp.data.files.table_files import (
    LONGEST,
    TOO_LONG,
    bounded,
    lines_of,
    looked,
    missing,
    stop_at,
    unreadable,
    whole,
)
from embexp.data.files.text_table import BadLine, header_fields, names_of, no_utf8, records_of
from embexp.data.sources import jsonl
from embexp.data.sources.source import HEAD_LINES
from embexp.errors import ConfigError, DataError, Fault
from embexp.fields.texts.specs import Words
from embexp.specs.data import UTF8
from embexp.system import caching, compressed, digests
from embexp.system.files import fault_of

WORDS = "words"
"""The one id column of labelled texts, several words per example."""
_STANDARD_LIBRARY = "Python's standard library"
CLASSES = {
    "concurrency": "asyncio concurrent multiprocessing queue sched subprocess threading",
    "files": "_pyio bz2 filecmp fileinput genericpath glob gzip lzma ntpath pathlib posixpath shutil tarfile tempfile "
    "zipapp zipfile",
    "imports": "importlib modulefinder pkgutil py_compile runpy site sysconfig venv zipimport",
    "language": "abc ast codeop contextlib dataclasses dis enum functools inspect pickle pickletools symtable tokenize "
    "types typing",
    "mail": "email imaplib mailbox poplib smtplib",
    "markup": "html plistlib xml xmlrpc",
    "numbers": "_pydatetime _pydecimal calendar datetime fractions heapq ipaddress numbers random statistics",
    "settings": "argparse configparser getopt getpass gettext locale logging optparse",
    "testing": "bdb cProfile doctest pdb profile pstats timeit trace traceback unittest",
    "web": "ftplib http selectors socket socketserver ssl urllib wsgiref",
    "windows": "tkinter turtle",
}
"""The modules, or packages, that make a class of texts."""
_MOST = 400  # texts of a class, lest one outnumber the others
_FEWEST_WORDS = 5
_REMEDY = ": if it has another encoding, set data.encoding, such as latin-1"
_NO_UTF8 = f"found bytes that are not UTF-8, expected text in UTF-8{_REMEDY}"
_PASSED_OVER = {"__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tests"}
_Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_PATTERNS = {Words.LONG: r"\b\w\w+\b", Words.ALL: r"\w+", Words.PUNCTUATION: r"\w+|[^\w\s]"}
"""Patterns of words. The one of long words is scikit-learn's default `token_pattern` (`CountVectorizer`)."""


@dataclass(frozen=True)
class Corpus:
    """Where texts are.

    Attributes:
        path: file or folder; None: the standard library.
        text: column of the text.
        label: column of the label; None: labels are not read, and may be missing.
        separator: between the tokens of texts that are split already; None: texts are split into words.
        delimiter: between a label and its text in lines, or between columns; None: a tab, or a comma.
        encoding: of the text, by the name that Python has for it.
        classes: names of the classes, where they are known.
        kind: of the words.
        max_length: words of a text that are read; None: all.
        ngrams: most words of an n-gram; 1: there are none.
    """

    path: Path | None
    text: str
    label: str | None
    separator: str | None = None
    delimiter: str | None = None
    encoding: str = UTF8
    classes: tuple[str, ...] = ()
    kind: Words = Words.LONG
    max_length: int | None = None
    ngrams: int = 1

    @property
    def dialect(self) -> Dialect:
        """Of CSV."""
        delimiter = self.delimiter or ","
        return Dialect(delimiter, quoted=len(delimiter) == 1, encoding=self.encoding, remedy=_REMEDY)

    def words(self, text: Document) -> list[str]:
        """The words of a text, or its tokens; and their n-grams."""
        found = words(text.text, self.separator, self.kind) if text.tokens is None else list(text.tokens)
        return with_ngrams(found[: self.max_length], self.ngrams)

    def files(self) -> list[Path]:
        """The files of texts; none for the standard library.

        Raises:
            ConfigError: there are none, or a column is missing.
        """
        if self.path is None:
            return []
        if not self.path.exists():
            raise unreadable(self.path, "there is no such file or folder", looked(self.path))
        if not self.path.is_dir():
            self._check_columns(self.path)
            return [self.path]
        folders = sorted(path for path in self.path.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
        if not folders and self.label is not None:
            raise unreadable(self.path, "a folder of labelled texts must hold one folder per class")
        found = [file for folder in folders or [self.path] for file in sorted(folder.glob("*.txt"))]
        if not found:
            raise unreadable(self.path, "the folder holds no texts (NAME.txt)" + (" in folders" if folders else ""))
        for file in found:
            if fault := fault_of(file):
                raise unreadable(file, fault)
        return found

    def parts(self) -> int:
        """How many different `Document.file` its texts have: of a folder, the folders that they are in."""
        return len({file.parent for file in self.files()}) if self.form == "folder" else 1

    @property
    def form(self) -> str:
        """How the texts are written: the file's suffix, "folder", or "" for the standard library."""
        return "" if self.path is None else "folder" if self.path.is_dir() else compressed.form_of(self.path)

    def settings(self) -> dict[str, str]:
        """JSON of what decides, with the content, how texts become words."""
        return {
            "words": _PATTERNS[self.kind] if self.separator is None else self.separator,
            "text": self.text,
            "form": self.form,
            **({} if self.delimiter is None else {"delimiter": self.delimiter}),
            **({} if self.encoding == UTF8 else {"encoding": self.encoding}),
        }

    def digest(self, *, cache: Path) -> str:
        """Digest of the content: of the bytes of all files and, for folders, of their names, which are the classes.

        Raises:
            ConfigError: see `files`.
        """
        files = self.files()
        if self.path is None:
            return _library_digest()
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
        except ConfigError as error:
            return list(error.faults)
        except DataError as error:
            return [Fault("data.path", repr(str(self.path)), str(error))]
        return []

    def texts(self) -> Iterator[Document]:
        """All texts, in order.

        Raises:
            DataError: a line, or row, can't be read.
            ConfigError: see `files`.
        """
        labelled = self.label is not None
        if self.path is None:
            yield from _from_library(labelled=labelled)
        elif self.path.is_dir():
            yield from _from_folders(self.files(), self.encoding, labelled=labelled)
        else:
            self._check_columns(self.path)
            match self.form:
                case ".csv":
                    yield from _from_csv(self.path, self.dialect, self.text, self.label)
                case ".parquet" | ".jsonl" | ".ndjson" | ".json":
                    yield from _from_typed(self.path, self.text, self.label)
                case _:
                    yield from self._from_lines(self.path)

    def _from_lines(self, path: Path) -> Iterator[Document]:
        """Reads one text per line, after its class and a delimiter."""
        size, read, delimiter = path.stat().st_size, 0, self.delimiter or "\t"
        name = {"\t": "tab", " ": "blank", WHITESPACE: "blank"}.get(delimiter, repr(delimiter))
        classed = self.label is not None or self._begins_with_classes(path, delimiter)
        for number, line in _lines(path, self.encoding):
            read += len(line)
            place = f"{path}, line {number}"
            content = line.rstrip("\r\n")
            if not content.strip():
                continue
            label, found, text = _parted(content, delimiter)
            done = min(1.0, read / size)
            if self.label is None:
                # The part before the delimiter is a label, and does not belong to the text.
                yield Document(text if found and classed else content, None, path, place, done)
                continue
            if not found:
                raise DataError(f"{place}: found no {name}, expected label<{name.upper()}>text")
            yield Document(text, _named(label, place), path, place, done)

    def _begins_with_classes(self, path: Path, delimiter: str) -> bool:
        """Whether a file has labels that are not read. A blank may also separate the words of a text."""
        if delimiter == "\t":
            return True
        lines = (line.rstrip("\r\n") for _, line in itertools.islice(_lines(path, self.encoding), HEAD_LINES))
        return all(_parted(line, delimiter)[0].strip() in self.classes for line in lines if line.strip())

    def _check_columns(self, path: Path) -> None:
        """Raises a ConfigError if a file is empty, or a file of columns has no text column."""
        if fault := fault_of(path):
            raise unreadable(path, fault)
        if path.stat().st_size == 0:
            raise unreadable(path, "the file is empty")
        wanted = _columns(self.text, self.label)
        match compressed.form_of(path):
            case ".csv":
                stop_at(missing(path, names_of(header_fields(path, self.dialect)), wanted))
            case ".parquet" | ".jsonl" | ".ndjson" | ".json":
                table = _typed(path, wanted)
                lists = [one for one in wanted[1:] if one.name in table.lists]
                stop_at(missing(path, table.names, wanted) + type_faults(table, wanted))
                rule = "the column holds lists; it must hold text"
                stop_at([Fault(one.asked_by, repr(one.name), rule) for one in lists])


@dataclass(frozen=True)
class Document:
    """One text.

    Attributes:
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


def _from_library(*, labelled: bool) -> Iterator[Document]:
    """Reads the documentation in the standard library, whose parts are the classes."""
    file = Path(_STANDARD_LIBRARY)
    texts: Sequence[tuple[str | None, str]] = (
        _library_labelled() if labelled else [(None, text) for text in _library_unlabelled()]
    )
    for number, (label, text) in enumerate(texts, 1):
        yield Document(text, label, file, f"{file}, text {number}", number / len(texts))


def _from_folders(files: Sequence[Path], encoding: str, *, labelled: bool) -> Iterator[Document]:
    """Reads one text per file. The folder of a file is its class."""
    for number, file in enumerate(files, 1):
        text = _decoded(whole(file), str(file), encoding)
        label = file.parent.name if labelled else None
        yield Document(text, label, file.parent, str(file), number / len(files))


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """The number and the text of each line.

    Raises:
        DataError: the file can't be read, or is not in the encoding.
    """
    if encoding == UTF8:
        for number, line in enumerate(lines_of(path), 1):
            yield number, _decoded(line, f"{path}, line {number}", encoding)
        return
    if fault := fault_of(path):
        raise DataError(f"{path}: {fault}")
    number = 0
    with compressed.opened(path) as (data, _), io.TextIOWrapper(data, encoding=encoding, newline="\n") as text:
        try:
            for number, content in enumerate(bounded(text), 1):
                if len(content) > LONGEST:
                    raise DataError(f"{path}, line {number}: found {TOO_LONG}")
                yield number, content
        except UnicodeError:
            place = f"{path}, near line {number + 1}"
            raise DataError(f"{place}: found bytes that are not {encoding}, expected such text") from None


def _parted(line: str, delimiter: str) -> tuple[str, bool, str]:
    """The part before the first delimiter, whether there is a delimiter, and the part after it."""
    if delimiter == WHITESPACE:
        label, *rest = line.split(None, 1) or [""]
        return label, bool(rest), "".join(rest)
    label, found, text = line.partition(delimiter)
    return label, bool(found), text


def _from_csv(path: Path, dialect: Dialect, text: str, label: str | None) -> Iterator[Document]:
    """The columns of a CSV file with a header line: texts and, if given, classes."""
    rows = records_of(path, dialect)
    size, read = path.stat().st_size, 0
    try:
        header = names_of(next(rows)[1])
        column, name_column = header.index(text), None if label is None else header.index(label)
        for line, fields in rows:
            place = f"{path}, line {line}"
            if len(fields) != len(header):
                raise DataError(f"{place}: found {len(fields)} fields, expected {len(header)}")
            if dialect.utf8 and no_utf8("".join(fields)) is not None:
                raise DataError(f"{place}: {_NO_UTF8}")
            read += sum(map(len, fields)) + len(fields)
            name = None if name_column is None else _named(fields[name_column], place)
            yield Document(fields[column], name, path, place, min(1.0, read / size))
    except BadLine as error:
        raise DataError(f"{path}, {error}") from None


def _typed(path: Path, wanted: Sequence[Wanted]) -> ArrowTable:
    """Reads a file of Parquet or JSON Lines."""
    from embexp.data.files import arrow_table

    return (
        jsonl.table(path, [one.name for one in wanted])
        if compressed.form_of(path) in jsonl.FORMS
        else arrow_table.table(path)
    )


def _from_typed(path: Path, text: str, label: str | None) -> Iterator[Document]:
    """The columns of a file: texts or lists of tokens and, if given, classes."""
    import pyarrow as pa

    table, row = _typed(path, _columns(text, label)), 0
    several = text in table.lists
    kind = pa.large_list(pa.large_string()) if several else pa.large_string()
    for block in table.blocks(_columns(text, label)):
        texts = block.tokens[text].cast(kind).to_pylist()
        names = [None] * block.count if label is None else block.tokens[label].cast(pa.large_string()).to_pylist()
        for one, name in zip(texts, names, strict=True):
            row += 1
            place = f"{path}, row {row}"
            name = None if label is None else _named(name or "", place)
            tokens = tuple(token for token in one or () if token) if several else None
            yield Document("" if several else one or "", name, path, place, block.done, tokens)


def _columns(text: str, label: str | None) -> list[Wanted]:
    named = {text: "data.text"} if label is None else {text: "data.text", label: "data.label"}
    return [Wanted(name, path, tokens=True) for name, path in named.items()]


def _named(label: str, place: str) -> str:
    if not label.strip():
        raise DataError(f"{place}: found no label, expected the name of a class")
    return label.strip()


def _decoded(content: bytes, place: str, encoding: str) -> str:
    try:
        return content.decode("utf-8-sig" if encoding == UTF8 else encoding)
    except UnicodeDecodeError:
        wrong = _NO_UTF8 if encoding == UTF8 else f"found bytes that are not {encoding}, expected such text"
        raise DataError(f"{place}: {wrong}") from None


def _library_sources() -> list[Path]:
    """The source files of the library, sorted by name, without tests.

    Raises:
        DataError: this Python has no source files.
    """
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for folder, inner, files in os.walk(root):
        inner[:] = [name for name in inner if name not in _PASSED_OVER and not name.startswith("config-")]
        found += [Path(folder, name) for name in files if name.endswith(".py")]
    if not found:
        raise DataError(f"{root}: this Python holds no source files of its standard library; set data.path")
    return sorted(found, key=lambda path: path.relative_to(root).parts)


def _library_digest() -> str:
    """The digest of all source files."""
    root = Path(sysconfig.get_path("stdlib"))
    state = hashlib.sha256()
    for path in _library_sources():
        content = path.read_bytes()
        state.update(f"{path.relative_to(root).as_posix()}\n{len(content)}\n".encode() + content)
    return state.hexdigest()


@cache
def _library_labelled() -> list[tuple[str, str]]:
    """Classes and texts: the docstrings of functions, methods and classes in a group of modules, without duplicates.

    Texts with fewer than five words are ignored. A class with more than 400 texts keeps 400, which are chosen by their
    hash.
    """
    root = Path(sysconfig.get_path("stdlib"))
    class_of = {module: name for name, modules in CLASSES.items() for module in modules.split()}
    texts: dict[str, list[str]] = {name: [] for name in CLASSES}
    seen: set[tuple[str, ...]] = set()
    for path in _library_sources():
        name = class_of.get(path.relative_to(root).parts[0].removesuffix(".py"))
        if name is None:
            continue
        for node in _nodes(path.read_bytes()):
            text = ast.get_docstring(node) if isinstance(node, _Documented) else None
            known = tuple(words(text or ""))
            if text is not None and len(known) >= _FEWEST_WORDS and known not in seen:
                seen.add(known)
                texts[name].append(text)
    return [(name, text) for name, all_of_it in texts.items() for text in _some(all_of_it)]


@cache
def _library_unlabelled() -> list[str]:
    """Docstrings, comments, and the topics of `help()`."""
    texts: list[str] = []
    for path in _library_sources():
        content = path.read_bytes()
        for node in _nodes(content):
            if isinstance(node, _Documented | ast.Module) and (text := ast.get_docstring(node)):
                texts.append(text)
        texts += _comments(content.decode("utf-8", "replace"))
    from pydoc_data import topics  # type: ignore[import-not-found, unused-ignore]

    return [*texts, *topics.topics.values()]


def _nodes(source: bytes) -> Iterator[ast.AST]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about odd escapes in the library's own texts
        tree = ast.parse(source)
    return ast.walk(tree)


def _some(texts: list[str]) -> list[str]:
    if len(texts) <= _MOST:
        return texts
    kept = set(sorted(texts, key=lambda text: hashlib.sha256(text.encode("utf-8", "replace")).digest())[:_MOST])
    return [text for text in texts if text in kept]


def _comments(source: str) -> Iterator[str]:
    """Comments that fill whole lines. Comments on consecutive lines are one text."""
    block: list[str] = []
    for line in [*source.splitlines(), ""]:
        stripped = line.strip()
        if stripped.startswith("#"):
            block.append(stripped.lstrip("#!"))
        elif block:
            yield "\n".join(block)
            block = []


def words(text: str, separator: str | None = None, kind: Words = Words.LONG) -> list[str]:
    """The words of a text in their order, in lower case; or its tokens, as they are, with a separator between them."""
    if separator is not None:
        return [token for token in text.split(separator) if token]
    return re.findall(_PATTERNS[kind], text.lower())


def with_ngrams(words: list[str], longest: int) -> list[str]:
    """Words, and behind them their n-grams of at most so many words: all pairs in their order, then triples, …."""
    starts = ((size, at) for size in range(2, longest + 1) for at in range(len(words) - size + 1))
    return words + [" ".join(words[at : at + size]) for size, at in starts]


def without_ngrams(sizes: np.ndarray, longest: int) -> np.ndarray:
    """How many words texts have, which have so many words and n-grams: int64 [n] -> int64 [n]; see `with_ngrams`."""
    words = np.arange(sizes.max(initial=0) + 1)
    return np.searchsorted(np.sum([np.maximum(words - less, 0) for less in range(longest)], axis=0), sizes)
