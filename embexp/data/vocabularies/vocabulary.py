r"""Vocabularies: which row of a table stands for which token; written to files, and read.

| vocabulary | rows |
|---|---|
| `TokenVocabulary` | those of values without a row of their own, then tokens by falling frequency, then by code point |
| `HashVocabulary` | hash buckets of all tokens |
| `BucketVocabulary` | buckets of numbers |
| `IdentityVocabulary` | ids that are row numbers |

A token vocabulary is a TSV file with the header `token, frequency, kind`, one line per row of the table, in the order
of the rows; kinds are `oov`, `missing`, `rare` and `token`. Behind the rows there may be lines of kind `rare_token`,
the tokens that share the row of kind `rare`. Backslash, tab, newline and carriage return in a token are written `\\`,
`\t`, `\n` and `\r`. Other vocabularies are small JSON files.

A SavedModel has tokens in a file with one per line, as TensorFlow's reader of lines takes them.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from embexp.data.vocabularies import token_keys
from embexp.data.vocabularies.spelling import normalized
from embexp.data.vocabularies.token_keys import places_in
from embexp.errors import DataError, VocabularyError, read_by_library
from embexp.specs.vocabularies import Steps
from embexp.system import files
from embexp.system.files import atomic_write, write_text

OOV_TOKEN, MISSING_TOKEN, RARE_TOKEN = "<oov>", "<missing>", "<rare>"
"""How rows are shown that stand for no token; a real token of this text differs in its kind."""
HASH_FUNCTION = "farmhash.Fingerprint64"
_HASH, _BUCKETS = "hash", "buckets"
HEADER = "token\tfrequency\tkind"
"""The first line of a token vocabulary's file."""
_LINES = 65_536
LINE_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"))
"""How line ends are written in a file for a graph, if one of its tokens has any."""
_ESCAPES = (*LINE_ESCAPES, ("\t", "\\t"))
_ROW_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


class Vocabulary(ABC):
    """What a table's rows stand for.

    Attributes:
        size: number of rows.
        first: number of rows in front of those of tokens: rows that stand for no token of their own.
        oov: rows for values that no other row stands for; 0: they have no row.
        steps: by which tokens are normalised before they are looked up. Those of the rows are already.
    """

    size: int
    first: int
    oov: int
    steps: Steps = ()

    @property
    def digest(self) -> str:
        """Digest of what the rows stand for, in their order; without frequencies."""
        return hashlib.sha256(self._meaning().encode()).hexdigest()

    @abstractmethod
    def _rows(self, tokens: pa.LargeStringArray) -> np.ndarray: ...

    @abstractmethod
    def _texts(self, start: int, stop: int) -> list[str]: ...

    def _meaning(self) -> str:
        """What the rows of a small vocabulary stand for."""
        raise NotImplementedError

    def _content(self) -> dict[str, Any]:
        """What the file of a small vocabulary holds."""
        raise NotImplementedError

    def rows(self, tokens: Sequence[str | None] | pa.Array) -> np.ndarray:
        """int64 row of each token; of one without a row -1."""
        text = pa.large_string()
        texts = tokens.cast(text) if isinstance(tokens, pa.Array) else pa.array(tokens, text)
        return self._rows(normalized(texts, self.steps))

    def normalizing(self, steps: Steps | None) -> Vocabulary:
        """The vocabulary, which normalises tokens by some steps; itself where its rows are those of no tokens."""
        return replace(self, steps=steps) if steps and isinstance(self, TokenVocabulary | HashVocabulary) else self

    def tokens(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The tokens of rows start..stop; rows that stand for none are shown as `<oov>` and the like."""
        return self._texts(start, self.size if stop is None else min(stop, self.size))

    def write(self, stem: Path) -> Path:
        """Writes `<stem>.tsv` or `<stem>.json`, whole, and returns its path."""
        path = stem.parent / f"{stem.name}.json"
        write_text(path, json.dumps(self._content()) + "\n")
        return path

    def lookup(self, tokens: Sequence[str | None] | pa.Array) -> np.ndarray:
        """int64 row of each token.

        Raises:
            VocabularyError: a token is unknown and there is no OOV row.
        """
        rows = self.rows(tokens)
        unknown = np.flatnonzero(rows < 0)
        if unknown.size:
            first = tokens[int(unknown[0])]
            value = first.as_py() if isinstance(first, pa.Scalar) else first
            raise VocabularyError(
                f"{value!r} is not in the vocabulary of {self.size} rows (unknown values in all: {unknown.size})"
            )
        return rows

    @staticmethod
    def read(stem: Path) -> Vocabulary:
        """Reads what `write(stem)` wrote.

        Raises:
            DataError: there is no such file, or it is not a vocabulary.
        """
        text, small = stem.parent / f"{stem.name}.tsv", stem.parent / f"{stem.name}.json"
        if not small.exists() and not text.exists():
            raise DataError(f"there is no vocabulary {text}, nor {small.name} next to it")
        path, read = (small, _read_json) if small.exists() else (text, _read_tsv)
        if fault := files.fault_of(path):
            raise DataError(f"{path}: {fault}")
        return read(path)

    @staticmethod
    def read_for(stem: Path, rows: int, *, exactly: bool = False) -> Vocabulary:
        """Reads the vocabulary of a table with so many rows.

        Args:
            stem: see `read`.
            exactly: whether each row has a token, so that a shorter vocabulary is not that of the table.

        Raises:
            DataError: there is none, it is damaged, or it is that of another table.
        """
        found = Vocabulary.read(stem)
        if found.size > rows or (exactly and found.size < rows and not isinstance(found, IdentityVocabulary)):
            raise DataError(
                f"{stem}: found a vocabulary of {found.size:,} rows, expected {rows:,}, those of table "
                f"{stem.name}: the file was changed, or it belongs to another run; restore the one that the run "
                f"was trained with"
            )
        return found


@dataclass(frozen=True)
class TokenVocabulary(Vocabulary):
    """Rows that stand for tokens, behind those of values that have no row of their own: OOV rows, missing, rare.

    Attributes:
        known: the tokens in the order of their rows.
        known_frequencies: int64, how often each was seen in the training split.
        oov: how many OOV rows there are, for every other token; of several, a token has that of its hash.
        oov_frequencies: how many values of the training split fell to each of them; () of none.
        missing_frequency: how many missing values the training split has; None: they have no row of their own.
        rare: the tokens that share the row of rare values; None: there is no such row.
        rare_frequency: how many values of the training split they are.
    """

    known: pa.LargeStringArray
    known_frequencies: np.ndarray
    oov: int
    oov_frequencies: tuple[int, ...] = ()
    missing_frequency: int | None = None
    rare: pa.LargeStringArray | None = None
    rare_frequency: int = 0
    steps: Steps = ()

    @property
    def size(self) -> int:  # type: ignore[override]
        """Number of rows."""
        return self.first + len(self.known)

    @property
    def first(self) -> int:  # type: ignore[override]
        """Row of the first token."""
        return len(self.special)

    @property
    def special(self) -> tuple[tuple[str, str, int], ...]:
        """Token as it is shown, kind and frequency of each row in front of those of tokens."""
        counts = (*self.oov_frequencies, *[0] * (self.oov - len(self.oov_frequencies)))
        shown = [OOV_TOKEN] if self.oov == 1 else [f"<oov {number}>" for number in range(self.oov)]
        found = [(text, "oov", count) for text, count in zip(shown, counts, strict=True)]
        if self.missing_frequency is not None:
            found.append((MISSING_TOKEN, "missing", self.missing_frequency))
        if self.rare is not None:
            found.append((RARE_TOKEN, "rare", self.rare_frequency))
        return tuple(found)

    @property
    def seen_once(self) -> float:
        """The share of the training split's values, 0 to 1, that occur once there, or share the OOV row as too rare."""
        rare = int(np.count_nonzero(self.known_frequencies == 1)) + sum(self.oov_frequencies)
        return rare / max(1, int(self.known_frequencies.sum()) + sum(self.oov_frequencies))

    @property
    def frequencies(self) -> np.ndarray:
        """int64 [size]: how often each row was meant in the training split."""
        return np.concatenate([np.array([count for *_, count in self.special], np.int64), self.known_frequencies])

    @property
    def digest(self) -> str:
        """Digest of what the rows stand for, in their order; without frequencies."""
        several = self.oov > 1 or self.missing_frequency is not None or self.rare is not None
        begin = f"{self.oov} {self.missing_frequency is not None} {self.rare is not None}" if several else "oov"
        state = hashlib.sha256(f"{begin}\n".encode() if self.first else b"\n")
        for tokens in (self.known, *([self.rare] if self.rare is not None else [])):
            for start in range(0, len(tokens), _LINES):
                state.update(json.dumps(tokens.slice(start, _LINES).to_pylist()).encode() + b"\n")
        return state.hexdigest()

    def _rows(self, tokens: pa.LargeStringArray) -> np.ndarray:
        rows = places_in(self.known, tokens)
        others = np.flatnonzero(rows < 0)
        rows += self.first
        if others.size:
            rows[others] = self.special_rows(tokens.take(pa.array(others)))
        return rows

    def special_rows(self, tokens: pa.LargeStringArray) -> np.ndarray:
        """int64 row of each of some tokens that have no row of their own; -1: none is for them."""
        rows = np.full(len(tokens), 0 if self.oov == 1 else -1, np.int64)
        if self.oov > 1:
            rows = token_keys.buckets(tokens, self.oov)
        if self.missing_frequency is not None:
            rows[pc.equal(pc.fill_null(tokens, ""), "").to_numpy(zero_copy_only=False)] = self.oov
        if self.rare is not None:
            rare = pc.is_in(tokens, value_set=self.rare, skip_nulls=True)
            rows[rare.to_numpy(zero_copy_only=False)] = self.first - 1
        return rows

    def rare_without(self, tokens: pa.LargeStringArray) -> pa.LargeStringArray | None:
        """The rare tokens without some that have rows of their own now."""
        return None if self.rare is None else self.rare.filter(pc.invert(pc.is_in(self.rare, value_set=tokens)))

    def _texts(self, start: int, stop: int) -> list[str]:
        begin = max(0, start - self.first)
        known = self.known.slice(begin, max(0, stop - self.first - begin)).to_pylist()
        return [*[text for text, *_ in self.special][start:stop], *known]

    def write(self, stem: Path) -> Path:
        """Writes its file whole, and returns the path."""
        path = stem.parent / f"{stem.name}.tsv"
        with atomic_write(path) as file:
            file.write(f"{HEADER}\n".encode())
            for text, kind, count in self.special:
                file.write(f"{text}\t{count}\t{kind}\n".encode())
            rare = pa.array([], pa.large_string()) if self.rare is None else self.rare
            for tokens, counts, kind in (
                (self.known, self.known_frequencies, "token"),
                (rare, np.zeros(len(rare), np.int64), "rare_token"),  # counted in the row that they share
            ):
                for start in range(0, len(tokens), _LINES):
                    part = slice(start, start + _LINES)
                    file.write(_lines(tokens.slice(start, _LINES), counts[part], kind))
        return path


def _lines(texts: pa.LargeStringArray, counts: np.ndarray, kind: str) -> pa.Buffer:
    texts = _escaped(texts, _ESCAPES)
    written = pa.array(counts).cast(pa.large_string())
    tab, end = (pa.scalar(text, pa.large_string()) for text in ("\t", f"{kind}\n"))
    return _text_of(pc.binary_join_element_wise(texts, written, end, tab))


def _text_of(lines: pa.LargeStringArray) -> pa.Buffer:
    """The bytes of all lines, one after the other; none is null."""
    _, ends, text = lines.buffers()
    start, stop = np.frombuffer(ends, np.int64, len(lines) + 1, 8 * lines.offset)[[0, -1]]
    return text.slice(int(start), int(stop - start))


@dataclass(frozen=True)
class IdentityVocabulary(Vocabulary):
    """Ids that are row numbers, 0 to size - 1; as tokens, their decimal text."""

    size: int
    oov: int = 0
    first: int = 0

    def _meaning(self) -> str:
        return f"identity {self.size}"

    def _rows(self, tokens: pa.LargeStringArray) -> np.ndarray:
        rows = (int(text) if text is not None and _ROW_NUMBER.fullmatch(text) else -1 for text in tokens.to_pylist())
        return np.fromiter((row if row < self.size else -1 for row in rows), np.int64, len(tokens))

    def _texts(self, start: int, stop: int) -> list[str]:
        return [str(row) for row in range(start, stop)]

    def _content(self) -> dict[str, Any]:
        return {"kind": "identity", "size": self.size}


@dataclass(frozen=True)
class BucketVocabulary(Vocabulary):
    """Row 0 is that of missing values; row n + 1 that of numbers from boundary n - 1 on, and below boundary n.

    Attributes:
        boundaries: float32 numbers, rising.
        oov: 0: every number has a bucket.
        first: 1, the row of the first bucket.
    """

    boundaries: tuple[float, ...]
    oov: int = 0
    first: int = 1

    @property
    def size(self) -> int:  # type: ignore[override]
        """Number of rows."""
        return len(self.boundaries) + 2

    def _meaning(self) -> str:
        return f"{_BUCKETS} {json.dumps(self.boundaries)}"

    def rows_of(self, numbers: np.ndarray) -> np.ndarray:
        """int64: the row of each number, compared in float32; NaN is missing."""
        with np.errstate(over="ignore"):  # what is too large for float32 is in the last bucket, or in the first
            single = numbers.astype(np.float32)
        rows = np.searchsorted(np.array(self.boundaries, np.float32), single, "right").astype(np.int64) + 1
        rows[np.isnan(single)] = 0
        return rows

    def _rows(self, tokens: pa.LargeStringArray) -> np.ndarray:
        """Of each text, which is a number or a bucket as it is shown."""
        shown: dict[str | None, int] = {"": 0, None: 0, **{text: row for row, text in enumerate(self.tokens())}}

        def row(text: str | None) -> int:
            if text is None or text in shown:
                return shown[text]
            try:
                return int(self.rows_of(np.array([float(text)]))[0])
            except ValueError:
                return -1

        return np.array([row(text) for text in tokens.to_pylist()], np.int64)

    def _texts(self, start: int, stop: int) -> list[str]:
        """The buckets, such as `[18, 25)`."""
        marks = [
            f"{np.float32(mark):g}" if float(f"{mark:g}") == mark else str(np.float32(mark)) for mark in self.boundaries
        ]
        ends = ["-inf", *marks, "inf"]
        buckets = [f"{'[' if place else '('}{a}, {b})" for place, (a, b) in enumerate(pairwise(ends))]
        return [MISSING_TOKEN, *buckets][start:stop]

    def _content(self) -> dict[str, Any]:
        return {"kind": _BUCKETS, "boundaries": list(self.boundaries)}


@dataclass(frozen=True)
class HashVocabulary(Vocabulary):
    """A token's row is its fingerprint modulo the number of buckets, as of `tf.strings.to_hash_bucket_fast`.

    Attributes:
        missing: whether missing values have a row of their own, row 0, in front of the buckets; else they have the
            bucket of the empty text.
        oov: 0: every value has a bucket.
    """

    buckets: int
    missing: bool = False
    oov: int = 0
    steps: Steps = ()

    @property
    def size(self) -> int:  # type: ignore[override]
        """Number of rows."""
        return self.buckets + self.missing

    @property
    def first(self) -> int:  # type: ignore[override]
        """All rows: none stands for one token."""
        return self.size

    def _meaning(self) -> str:
        return f"{_HASH} {HASH_FUNCTION} {self.buckets} {self.missing}"

    def _rows(self, tokens: pa.LargeStringArray) -> np.ndarray:
        rows = token_keys.buckets(tokens, self.buckets) + self.missing
        if self.missing:
            rows[pc.equal(pc.fill_null(tokens, ""), "").to_numpy(zero_copy_only=False)] = 0
        return rows

    def _texts(self, start: int, stop: int) -> list[str]:
        return [
            MISSING_TOKEN if self.missing and not row else f"<hash {row - self.missing}>" for row in range(start, stop)
        ]

    def _content(self) -> dict[str, Any]:
        return {"kind": _HASH, "function": HASH_FUNCTION, "buckets": self.buckets, "missing": self.missing}


def tokens_of_file(path: Path, steps: Steps = ()) -> pa.LargeStringArray:
    """The tokens of a file, normalised: one a line, or a vocabulary as a run writes it.

    Raises:
        DataError: it is no such file, or a token is empty or repeated.
    """
    if is_written_by_a_run(path):
        found = _read_tsv(path)
        tokens, first = normalized(found.known, steps), 2 + found.first
    else:
        tokens, first = normalized(token_lines(path), steps), 1
    check_tokens(path, tokens, first=first)
    return tokens


def is_written_by_a_run(path: Path) -> bool:
    """Whether a file is a token vocabulary with frequencies, and no list of tokens."""
    if path.suffix != ".tsv" or files.fault_of(path):
        return False
    with path.open("rb") as file:
        return file.readline().rstrip(b"\n") == HEADER.encode()


def token_lines(path: Path) -> pa.LargeStringArray:
    """The lines of a file.

    Args:
        path: of the file, UTF-8, with LF or CR LF.

    Raises:
        DataError: it is not UTF-8, or no file.
    """
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    data = path.read_bytes().replace(b"\r\n", b"\n")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"bytes that are not UTF-8 ({data[error.start : error.end]!r})"
        raise DataError(f"{path}, line {line}: found {found}, expected text in UTF-8") from None
    if not text:
        return pa.array([], pa.large_string())
    # Not as Python's strings, which take several times the memory.
    return pc.split_pattern(pa.scalar(text.removesuffix("\n"), pa.large_string()), "\n").values


def check_tokens(path: Path, tokens: pa.LargeStringArray, *, first: int) -> None:
    """Raises DataError where a token is empty or repeated; `first` is the line of the first."""
    if not len(tokens):
        raise DataError(f"{path}: found no token, expected at least one")
    if (empty := pc.index(tokens, "").as_py()) >= 0:
        raise DataError(f"{path}, line {empty + first}: found an empty line, expected a token")
    encoded = tokens.dictionary_encode()
    if len(encoded.dictionary) == len(tokens):
        return
    codes = encoded.indices.to_numpy()
    _, earliest = np.unique(codes, return_index=True)
    again = np.setdiff1d(np.arange(len(codes)), earliest)
    some = [
        f"line {place + first}: {tokens[int(place)].as_py()!r}, as in line {earliest[codes[place]] + first}"
        for place in again[:_SHOWN]
    ]
    more = f"; and {len(again) - _SHOWN} more" if len(again) > _SHOWN else ""
    raise DataError(f"{path}: found tokens more than once, expected each once ({'; '.join(some)}{more})")


def stands_for_tokens(vocabulary: Vocabulary) -> bool:
    """Whether rows stand for one token, or row number, each; else they are buckets of many."""
    return not isinstance(vocabulary, HashVocabulary | BucketVocabulary)


def described(vocabulary: Vocabulary) -> str:
    """What the rows of a vocabulary are, in the plural."""
    match vocabulary:
        case HashVocabulary():
            return f"{vocabulary.buckets:,} hash buckets"
        case BucketVocabulary():
            return f"{vocabulary.size - 1:,} buckets of numbers"
        case TokenVocabulary():
            return "tokens"
        case _:
            return "row numbers"


_PLAIN = {escape: plain for plain, escape in _ESCAPES}
_JSON_BYTES = 1 << 26
_SHOWN = 3
"""Repeated tokens that an error lists."""
_MOST_SPECIAL = 1 << 20
_LARGEST = float(np.finfo(np.float32).max)
_BEFORE_TOKENS = ("oov", "missing", "rare")


def _read_json(path: Path) -> Vocabulary:
    with files.opened(path) as file:
        written = file.read(_JSON_BYTES)
    try:
        content = json.loads(written)
    except (ValueError, RecursionError):
        content = None
    found = _of_json(content) if isinstance(content, dict) else None
    if found is None:
        raise DataError(
            f"{path} is not a vocabulary: expected a JSON object with kind identity and size, kind hash and buckets, or"
            " kind buckets and boundaries"
        )
    return found


def _of_json(content: dict[str, Any]) -> Vocabulary | None:
    match content:
        case {"kind": "identity", "size": int(size)} if type(size) is int and 0 <= size < 1 << 63:
            return IdentityVocabulary(size)
        case {"kind": "hash", "function": "farmhash.Fingerprint64", "buckets": int(count), "missing": bool(missing)}:
            return HashVocabulary(count, missing) if type(count) is int and 0 < count < 1 << 31 else None
        case {"kind": "buckets", "boundaries": list(marks)}:
            numbers = all(type(mark) in (int, float) and abs(mark) <= _LARGEST for mark in marks)
            if numbers and all(a < b for a, b in pairwise(marks)):
                return BucketVocabulary(tuple(map(float, marks)))
    return None


def _read_tsv(path: Path) -> TokenVocabulary:
    with files.opened(path) as file:
        header = file.readline(len(HEADER) + 1).decode("utf-8", "replace").rstrip("\n")
    if header != HEADER:
        raise DataError(f"{path}, line 1: found {header!r}, expected {HEADER!r}")
    types = {"token": pa.large_string(), "frequency": pa.int64(), "kind": pa.string()}
    with read_by_library(f"{path} is not a vocabulary"):
        table = pyarrow.csv.read_csv(
            path,
            parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types, null_values=[]),
        )
    special = _special(table)
    first = sum(map(len, special.values()))
    rest = table.slice(first)
    shared = pc.index(rest["kind"], "rare_token").as_py() if special["rare"] else -1
    tokens = rest if shared < 0 else rest.slice(0, shared)
    rare = rest.slice(len(rest) if shared < 0 else shared)
    _check(path, tokens, "token", first + 2)
    _check(path, rare, "rare_token", first + 2 + len(tokens))
    return TokenVocabulary(
        known=unescaped(tokens["token"].combine_chunks()),
        known_frequencies=tokens["frequency"].to_numpy(),
        oov=len(special["oov"]),
        oov_frequencies=tuple(special["oov"]),
        missing_frequency=special["missing"][0] if special["missing"] else None,
        rare=unescaped(rare["token"].combine_chunks()) if special["rare"] else None,
        rare_frequency=special["rare"][0] if special["rare"] else 0,
    )


def _special(table: pa.Table) -> dict[str, list[int]]:
    """The frequencies of the rows in front of those of tokens, by kind: OOV rows, then one of missing, one of rare."""
    found: dict[str, list[int]] = {}
    place = 0
    for kind in _BEFORE_TOKENS:
        begin, most = place, _MOST_SPECIAL if kind == "oov" else 1
        while place < min(table.num_rows, begin + most) and table["kind"][place].as_py() == kind:
            place += 1
        found[kind] = table["frequency"][begin:place].to_pylist()
    return found


def _check(path: Path, lines: pa.Table, kind: str, first: int) -> None:
    """Raises DataError for a line of another kind; `first` is the number of the first line."""
    strange = pc.index(pc.equal(lines["kind"], kind), False).as_py()
    if strange >= 0:
        found = lines["kind"][strange].as_py()
        raise DataError(f"{path}, line {strange + first}: found kind {found!r}, expected {kind!r}")


def _escaped(texts: pa.LargeStringArray, escapes: Sequence[tuple[str, str]]) -> pa.LargeStringArray:
    for plain, escape in escapes:
        texts = pc.replace_substring(texts, plain, escape)
    return texts


def unescaped(tokens: pa.LargeStringArray) -> pa.LargeStringArray:
    """The tokens of escaped ones; what is no escape stays as it is."""
    escaped = pc.match_substring(tokens, "\\")
    if not pc.any(escaped).as_py():
        return tokens
    plain = [
        re.sub(r"\\.", lambda match: _PLAIN.get(match[0], match[0]), text)
        for text in tokens.filter(escaped).to_pylist()
    ]
    return pc.replace_with_mask(tokens, escaped, pa.array(plain, pa.large_string()))


def lines_of(vocabulary: TokenVocabulary) -> pa.LargeStringArray:
    """The tokens in the order of their lines in a file for a graph: of rows, then those that share the rare row."""
    if vocabulary.rare is None:
        return vocabulary.known
    return pa.concat_arrays([vocabulary.known, vocabulary.rare])


def has_line_ends(tokens: pa.LargeStringArray) -> bool:
    """Whether the lines of tokens are escaped: TensorFlow's reader ends them at line feeds, drops carriage returns."""
    return bool(pc.any(pc.match_substring_regex(tokens, "[\n\r]")).as_py())


def write_tokens(file: Path, tokens: pa.LargeStringArray) -> None:
    """Writes tokens for a graph, one per line."""
    escaped = has_line_ends(tokens)
    with files.atomic_write(file) as out:
        for start in range(0, len(tokens), _LINES):
            some = tokens.slice(start, _LINES)
            texts = _escaped(some, LINE_ESCAPES) if escaped else some
            out.write("".join(f"{token}\n" for token in texts.to_pylist()).encode())
