"""Texts, one after the other, their words, and the examples that they become.

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

Labelled texts become words and the number of their class.

Examples for skip-gram with negative sampling, drawn from texts in chunks. Mikolov, Sutskever, Chen, Corrado and Dean:
"Distributed representations of words and phrases and their compositionality" (2013). Words seen less often than
`min_count` are removed. Of the others, an occurrence of a word of frequency f is removed with probability 1 - sqrt(t /
f) (eq. 5). Each word draws a distance b from 1 to the window and makes an example of label 1 with every word that
stands at most b from it in the same text. For each of these, negatives are drawn with p ~ count^power; one that is the
context itself makes no example, as in word2vec.c.
"""

from __future__ import annotations

import ast
import hashlib
import io
import itertools
import json
import os
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from embexp.data import splits
from embexp.data.columns import Columns, Wanted
from embexp.data.contract import Contract, grown
from embexp.data.examples import CLASSES, Encoded, Layout, encode, extended, in_order, one_of
from embexp.data.files.arrow_columns import Chunk, Column
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
from embexp.data.sources.columnar import TokenSource
from embexp.data.sources.source import HEAD_LINES, Description, Source, cached, single_columns, unknown_columns
from embexp.data.vocabularies.token_rows import from_counts
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import ConfigError, DataError, Fault
from embexp.fields.texts.specs import SkipGram, Text, Words
from embexp.specs.data import UTF8, GivenFiles, Split, SplitKind
from embexp.specs.vocabularies import UnknownPolicy, VocabularyRules
from embexp.system import caching, compressed, digests, parallel
from embexp.system.arrays import ArrayWriter
from embexp.system.files import fault_of
from embexp.system.parallel import Progress

WORDS = "words"
"""The one id column of labelled texts, several words per example."""
_STANDARD_LIBRARY = "Python's standard library"
_LIBRARY_CLASSES = {
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
    class_of = {module: name for name, modules in _LIBRARY_CLASSES.items() for module in modules.split()}
    texts: dict[str, list[str]] = {name: [] for name in _LIBRARY_CLASSES}
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


PAIR = ("center", "context")
"""The id columns of pairs of words."""
_DRAWN = {"min_count", "max_words", "context_window", "subsample", "negatives", "power", "draws", "seed"}
"""The settings that determine the pairs, together with the texts."""
_TEXTS, _CHARACTERS = 4096, 1 << 23
VOCABULARY = "vocabulary"
"""Stem of the file, in the folder, with what the ids stand for."""
_CHUNK = 16_384  # words that are drawn from together; about 36 examples of 12 bytes come from each


def corpus_of(data: Text | SkipGram, label: str | None) -> Corpus:
    """The texts of a source, with their labels in column `label`, or without."""
    path = data.path.parts["train"][0] if isinstance(data.path, GivenFiles) else data.path
    where = None if path is None else Path(path)
    return Corpus(where, data.text, label, data.token_separator, data.delimiter, data.encoding, kind=data.words)


def described(data: Text | SkipGram) -> Description:
    """Where the texts of a source are, and their split."""
    path = data.path.parts["train"][0] if isinstance(data.path, GivenFiles) else data.path
    return Description(f"{data.kind} {path or 'of the standard library'}; {data.described_split()}")


def user_faults(split: Split) -> list[Fault]:
    """A fault if the split is by users, as texts have none."""
    if split.within is not None:
        rule = "texts have no users, so they can't be divided within users"
        return [Fault("data.split.within", str(split.within), rule, "set it to null")]
    if split.kind is not SplitKind.LEAVE_ONE_OUT:
        return []
    rule = "texts have no users, so leave_one_out can't be used"
    return [Fault("data.split.kind", str(split.kind), rule, "choose random, time or folds")]


@dataclass(frozen=True)
class TextSource(TokenSource):
    """Texts and the classes that they belong to."""

    data: Text

    def own_values(self, counts: np.ndarray) -> np.ndarray:
        """Words, without n-grams."""
        return without_ngrams(counts, self.data.ngrams)

    def head_faults(self, columns: Columns) -> list[Fault]:
        """Columns that texts lack, a split by users, and the first text that can't be read."""
        rule = f"texts have no such column; their only column is {WORDS}"
        unknown = unknown_columns(columns, (WORDS,), rule)
        heads = [fault for corpus in self._corpora(self.data.label) for fault in corpus.head_faults()]
        return [*user_faults(self.data.split), *unknown, *heads]

    def description(self) -> Description:
        """Where the texts are, and the split."""
        return described(self.data)

    def digest(self, columns: Columns, *, cache: Path) -> str:
        """Of the bytes of all files and, where folders are the classes, of their names."""
        return self._digest(self._corpora(columns.label), cache)

    def files_of_splits(self) -> dict[str, int]:
        """One file, or as many as a folder has folders of texts."""
        if self.other or not self.data.given:
            return {}
        corpora = zip(self.data.given, self._corpora(self.data.label), strict=True)
        return {name: corpus.parts() for name, corpus in corpora}

    def divide(self, encoded: Encoded, folder: Path) -> dict[str, Any]:
        """Writes splits."""
        splits.divide(self.data, encoded.layout.count, folder, given=self.given_counts(encoded))
        return {}

    def division_key(self) -> dict[str, Any]:
        """The split, and how many examples train."""
        return super().division_key() | {"train_examples": self.data.train_examples}

    def learn(self, columns: Columns, encoded: Encoded, folder: Path, *, progress: Progress) -> None:
        """Writes vocabularies and rows, before the training split is cut down."""
        super().learn(columns, encoded, folder, progress=progress)
        if self.data.train_examples is not None:
            splits.keep_some(folder / "train.npy", self.data.train_examples, seed=self.data.split.seed)

    def encode(self, columns: Columns, *, cache: Path, progress: Progress) -> Encoded:
        """Words as codes, classes as numbers."""
        if faults := user_faults(self.data.split):
            raise ConfigError(faults)
        corpora = self._corpora(columns.label)
        corpus, others = corpora[0], corpora[1:]
        settings = {
            "kind": self.data.kind,
            **corpus.settings(),
            "ids": list(columns.ids.items()),
            "label": columns.label,
            **self.data.model_dump(include={"max_length", "ngrams"}),
            "classes": list(self.classes),
            **({"further_classes": True} if self.extends_classes else {}),
            **({"forms": [other.form for other in others]} if others else {}),
        }

        def make(folder: Path) -> None:
            progress("reading the texts", None)
            known = list(self.classes)
            if corpus.label is not None:
                known = known or list(class_names(corpus))
                if self.extends_classes:
                    known = list(extended(known, class_names(corpus)))
                (folder / CLASSES).write_text(json.dumps(known), "utf-8")
            extends = self.extends_classes
            chunks = (labelled_chunks(each, columns.label, known, extends=extends) for each in corpora)
            chained = itertools.chain.from_iterable(chunks)
            encode(chained, folder, columns, lists=frozenset([WORDS]), progress=progress)

        return cached("codes", self._digest(corpora, cache), settings, make, cache=cache)

    def _digest(self, corpora: Sequence[Corpus], cache: Path) -> str:
        found = [corpus.digest(cache=cache) for corpus in corpora]
        return found[0] if len(found) == 1 else self.with_splits(digests.of_json(found))

    def _corpora(self, label: str | None) -> list[Corpus]:
        """The texts of the training split, or all texts, and those of validation and test if they have files."""
        data = self.data
        corpus = replace(corpus_of(data, label), max_length=data.max_length, ngrams=data.ngrams)
        if self.other is not None:
            return [replace(corpus, path=self.other, classes=tuple(self.classes))]
        paths = [Path(path) for [path] in self.data.given.values()]
        return [replace(corpus, path=path) for path in paths] or [corpus]


@dataclass(frozen=True)
class SkipGramSource(Source):
    """Pairs of words that stand together, and of words that do not.

    Attributes:
        contract: of a run that goes on: its words have the first rows.
    """

    no_other_file = "pairs of words are drawn from the run's own texts"

    data: SkipGram
    contract: Contract | None = None

    def going_on(self, contract: Contract) -> SkipGramSource:
        """With its words."""
        return replace(self, contract=contract)

    def head_faults(self, columns: Columns) -> list[Fault]:
        """Columns that pairs lack, a split by users, and the first text that can't be read."""
        rule = f"pairs of words have no such column; the columns are {' and '.join(PAIR)}"
        return [
            *user_faults(self.data.split),
            *unknown_columns(columns, PAIR, rule),
            *single_columns(columns, PAIR, "one id per example"),
            *self._corpus().head_faults(),
        ]

    def description(self) -> Description:
        """Where the texts are, and the split."""
        return described(self.data)

    def digest(self, columns: Columns, *, cache: Path) -> str:
        """Of the bytes of all files."""
        return self._corpus().digest(cache=cache)

    def encode(self, columns: Columns, *, cache: Path, progress: Progress) -> Encoded:
        """Draws the pairs; ids are rows already."""
        if faults := user_faults(self.data.split):
            raise ConfigError(faults)
        corpus = self._corpus()
        settings = {"kind": self.data.kind, **corpus.settings(), **self.data.model_dump(mode="json", include=_DRAWN)}
        earlier = None
        if self.contract is not None:
            settings["contract"] = self.contract.digest
            found = self.contract.vocabularies.get(columns.ids[PAIR[0]])
            earlier = found if isinstance(found, TokenVocabulary) else None
        make = partial(write_pairs, self.data, corpus, columns=PAIR, earlier=earlier, progress=progress)
        return cached("pairs", corpus.digest(cache=cache), settings, make, cache=cache)

    def division_key(self) -> dict[str, Any]:
        """The split; the vocabulary is that of all texts."""
        return super().division_key() | {"vocabulary": None}

    def vocabularies(self, columns: Columns, encoded: Encoded, folder: Path) -> dict[str, Vocabulary]:
        """One, of both columns."""
        return dict.fromkeys(columns.ids.values(), Vocabulary.read(encoded.folder / VOCABULARY))

    def _corpus(self) -> Corpus:
        return corpus_of(self.data, None)


def class_names(corpus: Corpus) -> tuple[str, ...]:
    """Names of the classes, in the order of their numbers.

    Raises:
        DataError: a line, or row, can't be read.
    """
    return in_order(text.label for text in corpus.texts() if text.label is not None)


def labelled_chunks(
    corpus: Corpus, label: str | None, known: Sequence[str], *, extends: bool | None
) -> Iterator[Chunk]:
    """The texts, in order.

    Args:
        label: column for the numbers of the classes; None: they are not read.
        extends: whether there may be others; None: the run does not go on from another.

    Raises:
        DataError: a line, or row, can't be read, or a label is none of the classes.
    """
    numbers = {name: number for number, name in enumerate(known)}
    for file, texts in itertools.groupby(corpus.texts(), key=lambda text: text.file):
        for some in _portions(texts):
            found = [corpus.words(text) for text in some]
            splits = np.zeros(len(found) + 1, np.int64)
            np.cumsum([len(each) for each in found], out=splits[1:])
            flat = pa.array(itertools.chain.from_iterable(found), pa.large_string())
            labels = {} if label is None else {label: Column(_numbers(some, numbers, extends=extends), None)}
            yield Chunk(file, len(some), some[-1].done, {WORDS: Column(flat, splits)}, labels)


def _portions(texts: Iterable[Document]) -> Iterator[list[Document]]:
    some: list[Document] = []
    characters = 0
    for text in texts:
        some.append(text)
        characters += len(text.text) if text.tokens is None else sum(map(len, text.tokens))
        if len(some) == _TEXTS or characters > _CHARACTERS:
            yield some
            some, characters = [], 0
    if some:
        yield some


def _numbers(texts: Sequence[Document], numbers: dict[str, int], *, extends: bool | None) -> np.ndarray:
    """The number of each text's class, float64 [n]."""
    for text in texts:
        if text.label not in numbers:
            expected = one_of(list(numbers), extends=extends)
            raise DataError(f"{text.place}: found the label {text.label!r}, expected {expected}")
    return np.array([numbers[str(text.label)] for text in texts], np.float64)


class Pairs:
    """The examples that a `SkipGram` spec describes; chunk by chunk a pure function of the texts, spec and number.

    Args:
        vocabulary: of the words that are used, without an OOV row.
    """

    def __init__(self, data: SkipGram, corpus: Corpus, vocabulary: TokenVocabulary) -> None:
        self._data = data
        self._corpus = corpus
        self._rows = {token: row for row, token in enumerate(vocabulary.tokens())}
        counts = vocabulary.known_frequencies.astype(np.float64)
        self._kept = np.ones(len(counts))
        if data.subsample:  # a word of a run that goes on may not be in these texts
            self._kept = np.minimum(1.0, np.sqrt(data.subsample * counts.sum() / np.maximum(counts, 1.0)))
        weights = np.cumsum(counts**data.power)
        self._drawn_below = weights / weights[-1]

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
        """Of each chunk: int64 [n, 2] rows of center and context, bool [n] labels, and the fraction that is done."""
        draws = self._data.draws

        def made(part: tuple[int, int, np.ndarray, np.ndarray, float]) -> tuple[np.ndarray, np.ndarray, float]:
            draw, number, rows, texts, done = part
            names = ("skipgram", number, draw) if draw else ("skipgram", number)
            random = np.random.Generator(np.random.Philox(key=digests.seed_of(self._data.seed, *names)))
            kept = random.random(len(rows)) < self._kept[rows]
            return *self._draw(random, rows[kept], texts[kept]), (draw + done) / draws

        words = ((draw, number, *some) for draw in range(draws) for number, some in enumerate(self._words()))
        yield from parallel.in_order(made, words)

    def _words(self) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
        """The rows of words in order, the number of each word's text, and the finished fraction of the work."""
        rows: list[int] = []
        texts: list[int] = []
        done = 0.0
        for number, text in enumerate(self._corpus.texts()):
            found = [row for word in self._corpus.words(text) if (row := self._rows.get(word)) is not None]
            # A long text, such as a book in one file, is split, so that memory stays bounded.
            for start in range(0, len(found), _CHUNK):
                part = found[start : start + _CHUNK]
                if len(rows) + len(part) > _CHUNK:
                    yield np.array(rows, np.int64), np.array(texts, np.int64), done
                    rows, texts = [], []
                rows += part
                texts += [number] * len(part)
            done = text.done
        if rows:
            yield np.array(rows, np.int64), np.array(texts, np.int64), 1.0

    def _draw(self, random: np.random.Generator, rows: np.ndarray, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        data = self._data
        reach = random.integers(1, data.context_window, len(rows), endpoint=True)
        pairs = []
        for distance in range(1, min(data.context_window, len(rows) - 1) + 1):
            together = texts[distance:] == texts[:-distance]
            for center, context in (
                (slice(distance, None), slice(-distance)),
                (slice(-distance), slice(distance, None)),
            ):
                near = together & (reach[center] >= distance)
                pairs.append(np.stack([rows[center][near], rows[context][near]], axis=1))
        positive = np.concatenate([np.empty((0, 2), np.int64), *pairs])
        drawn = np.searchsorted(self._drawn_below, random.random((len(positive), data.negatives)), "right")
        negative = np.stack([np.repeat(positive[:, 0], data.negatives), drawn.reshape(-1)], axis=1)
        negative = negative[negative[:, 1] != np.repeat(positive[:, 1], data.negatives)]
        ids = np.concatenate([positive, negative])
        order = random.permutation(len(ids))
        return ids[order], order < len(positive)


def vocabulary_of(
    data: SkipGram, corpus: Corpus, progress: Progress, earlier: TokenVocabulary | None = None
) -> TokenVocabulary:
    """The words that are used: those of a run that goes on, then the others by falling frequency.

    Raises:
        DataError: fewer than two words are common enough.
    """
    counts: Counter[str] = Counter()
    for text in corpus.texts():
        counts.update(corpus.words(text))
        progress("counting words", text.done or None)
    rules = VocabularyRules(unknown=UnknownPolicy.ERROR, min_frequency=data.min_count, max_size=data.max_words)
    numbers = np.fromiter(counts.values(), np.int64, len(counts))
    words = pa.array(counts, pa.large_string(), size=len(counts))
    if earlier is None:
        vocabulary, _ = from_counts(words, numbers, rules)
    else:
        found, _ = grown(earlier, words, numbers, rules)
        assert isinstance(found, TokenVocabulary)  # because the earlier one is
        vocabulary = found
    if vocabulary.size < 2:
        raise DataError(
            f"{corpus.path}: found {vocabulary.size} of {len(counts)} distinct words at least {data.min_count} times, "
            "expected 2 or more; choose a smaller data.min_count, or more texts"
        )
    return vocabulary


def write_pairs(
    data: SkipGram,
    corpus: Corpus,
    folder: Path,
    *,
    columns: Sequence[str],
    earlier: TokenVocabulary | None = None,
    progress: Progress,
) -> None:
    """Writes all examples into an empty folder: ids are rows already.

    Args:
        columns: names of those of the center and the context.
        earlier: the vocabulary of a run that goes on; None: there is none.

    Raises:
        DataError: the texts can't be read, or no two words stand together in them.
    """
    vocabulary = vocabulary_of(data, corpus, progress, earlier)
    vocabulary.write(folder / VOCABULARY)
    with ExitStack() as stack:
        ids = stack.enter_context(ArrayWriter(folder / "ids.npy", np.int32, 2))
        labels = stack.enter_context(ArrayWriter(folder / "labels.npy", np.float32))
        dense = stack.enter_context(ArrayWriter(folder / "dense.npy", np.float32, 0))
        for pairs, label, done in Pairs(data, corpus, vocabulary).chunks():
            ids.append(pairs)
            labels.append(label)
            dense.append(np.empty((len(label), 0)))
            progress("drawing pairs of words", done or None)
    if not ids.rows:
        raise DataError(f"{corpus.path}: found no text with two words next to each other")
    Layout(count=ids.rows, ids=list(columns), label=True).write(folder)
