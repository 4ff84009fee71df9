r"""Vocabularies: which row of a table stands for which token.

A token vocabulary is written as a TSV file with the header `token, frequency, kind`, one line per row of the table, in
the order of the rows: the out-of-vocabulary row first, if there is one, then tokens by falling frequency, then by
code point. Backslash, tab, newline and carriage return in a token are written `\\`, `\t`, `\n` and `\r`. An identity
vocabulary, whose ids are row numbers themselves, is a small JSON file.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from embexp.data.packed_tokens import places_in, sorted_places
from embexp.errors import DataError, VocabularyError, read_by_library
from embexp.specs.sources import UnknownPolicy, VocabularyRules
from embexp.system import regular
from embexp.system.files import write_text, written_whole

OOV_TOKEN = "<oov>"
"""How the out-of-vocabulary row is shown; a real token of this text differs in its kind."""
HEADER = "token\tfrequency\tkind"
"""The first line of a token vocabulary's file."""
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_PLAIN = {escape: plain for plain, escape in _ESCAPES}
_LINES = 65_536
_JSON_BYTES = 4096


class Vocabulary(ABC):
    """What a table's rows stand for.

    Attributes:
        size: number of rows.
        oov: whether row 0 stands for every value that has no row of its own.
    """

    size: int
    oov: bool

    @property
    @abstractmethod
    def digest(self) -> str:
        """Digest of what the rows stand for, in their order."""

    @abstractmethod
    def rows(self, tokens: Sequence[str | None] | pa.Array) -> np.ndarray:
        """int64 row of each token; for an unknown or missing one 0 if there is an OOV row, else -1."""

    @abstractmethod
    def tokens(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The tokens of rows start..stop, the OOV row shown as `<oov>`."""

    @abstractmethod
    def write(self, stem: Path) -> Path:
        """Writes `<stem>.tsv` or `<stem>.json`, whole, and returns its path."""

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
        text, identity = stem.parent / f"{stem.name}.tsv", stem.parent / f"{stem.name}.json"
        if not identity.exists() and not text.exists():
            raise DataError(f"there is no vocabulary {text}, nor {identity.name} beside it")
        path = identity if identity.exists() else text
        if fault := regular.fault_of(path):
            raise DataError(f"{path}: {fault}")
        if path == identity:
            return _read_json(identity)
        return _read_tsv(text)

    @staticmethod
    def read_for(stem: Path, rows: int, *, exactly: bool = False) -> Vocabulary:
        """Reads the vocabulary of a table with so many rows.

        Args:
            stem: see `read`.
            rows: of the table.
            exactly: whether each row has a token, so that a shorter vocabulary is not that of the table.

        Raises:
            DataError: there is none, it is damaged, or it is that of another table.
        """
        found = Vocabulary.read(stem)
        if found.size > rows or (exactly and found.size < rows and isinstance(found, TokenVocabulary)):
            raise DataError(
                f"{stem}: found a vocabulary of {found.size:,} rows, expected {rows:,}, those of the table {stem.name}:"
                " the file was changed, or is that of another run; put the one back with which the run was trained"
            )
        return found


@dataclass(frozen=True)
class TokenVocabulary(Vocabulary):
    """Rows that stand for tokens.

    Attributes:
        known: Arrow large_string, the tokens in the order of their rows, without the OOV row.
        known_frequencies: int64, how often each was seen in the training split.
        oov: whether row 0 stands for every other token.
        oov_frequency: how many values of the training split fell to that row.
    """

    known: pa.LargeStringArray
    known_frequencies: np.ndarray
    oov: bool
    oov_frequency: int = 0

    @property
    def size(self) -> int:  # type: ignore[override]
        """Number of rows."""
        return len(self.known) + self.oov

    @property
    def frequencies(self) -> np.ndarray:
        """int64 [size]: how often each row was meant in the training split."""
        return np.concatenate([[self.oov_frequency], self.known_frequencies]) if self.oov else self.known_frequencies

    @property
    def digest(self) -> str:
        """Digest of what the rows stand for, without frequencies."""
        state = hashlib.sha256(b"oov\n" if self.oov else b"\n")
        for start in range(0, len(self.known), _LINES):
            state.update(json.dumps(self.known.slice(start, _LINES).to_pylist()).encode() + b"\n")
        return state.hexdigest()

    def rows(self, tokens: Sequence[str | None] | pa.Array) -> np.ndarray:
        """int64 row of each token, see `Vocabulary.rows`."""
        array = tokens if isinstance(tokens, pa.Array) else pa.array(tokens, pa.large_string())
        places = places_in(self.known, array)
        return places + 1 if self.oov else places

    def tokens(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The tokens of rows start..stop."""
        stop = self.size if stop is None else min(stop, self.size)
        first = max(0, start - self.oov)
        shown = [OOV_TOKEN] if self.oov and start <= 0 < stop else []
        return [*shown, *self.known.slice(first, max(0, stop - self.oov - first)).to_pylist()]

    def write(self, stem: Path) -> Path:
        """Writes the vocabulary whole and returns the path of its file."""
        path = stem.parent / f"{stem.name}.tsv"
        with written_whole(path) as file:
            file.write(f"{HEADER}\n".encode())
            if self.oov:
                file.write(f"{OOV_TOKEN}\t{self.oov_frequency}\toov\n".encode())
            for start in range(0, len(self.known), _LINES):
                texts = self.known.slice(start, _LINES)
                for plain, escape in _ESCAPES:
                    texts = pc.replace_substring(texts, plain, escape)
                counts = pa.array(self.known_frequencies[start : start + _LINES]).cast(pa.large_string())
                kind = pa.scalar("token\n", pa.large_string())
                lines = pc.binary_join_element_wise(texts, counts, kind, pa.scalar("\t", pa.large_string()))
                file.write(_text_of(lines))
        return path


@dataclass(frozen=True)
class IdentityVocabulary(Vocabulary):
    """Ids that are row numbers, 0 to size - 1; as tokens, their decimal text."""

    size: int
    oov: bool = False

    @property
    def digest(self) -> str:
        """Digest of what the rows stand for, without frequencies."""
        return hashlib.sha256(f"identity {self.size}".encode()).hexdigest()

    def rows(self, tokens: Sequence[str | None] | pa.Array) -> np.ndarray:
        """int64 row of each token, see `Vocabulary.rows`."""
        values = tokens.to_pylist() if isinstance(tokens, pa.Array) else tokens
        return np.fromiter((self._row(value) for value in values), np.int64, len(values))

    def tokens(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The tokens of rows start..stop."""
        return [str(row) for row in range(start, self.size if stop is None else min(stop, self.size))]

    def write(self, stem: Path) -> Path:
        """Writes the vocabulary whole and returns the path of its file."""
        path = stem.parent / f"{stem.name}.json"
        write_text(path, json.dumps({"kind": "identity", "size": self.size}) + "\n")
        return path

    def _row(self, token: str | None) -> int:
        if token is None or not re.fullmatch(r"0|[1-9][0-9]{0,18}", token):
            return -1
        row = int(token)
        return row if row < self.size else -1


def from_counts(tokens: pa.LargeStringArray, counts: np.ndarray, rules: VocabularyRules) -> TokenVocabulary:
    """The vocabulary of tokens seen so often in the training split.

    Args:
        tokens: distinct; an empty one stands for missing values and gets no row of its own.
        counts: int64, as many.
        rules: which tokens get a row.
    """
    kept = np.flatnonzero((counts >= rules.min_frequency) & pc.not_equal(tokens, "").to_numpy(zero_copy_only=False))
    order = kept[sorted_places(tokens.take(pa.array(kept)), counts[kept])[: rules.max_size]]
    frequencies = counts[order]
    oov = rules.unknown is UnknownPolicy.OOV
    return TokenVocabulary(
        known=tokens.take(pa.array(order)),
        known_frequencies=frequencies,
        oov=oov,
        oov_frequency=int(counts.sum() - frequencies.sum()) if oov else 0,
    )


def _read_json(path: Path) -> IdentityVocabulary:
    with regular.opened(path) as file:
        written = file.read(_JSON_BYTES)
    try:
        content = json.loads(written)
    except (ValueError, RecursionError):
        content = None
    size = content.get("size") if isinstance(content, dict) and content.get("kind") == "identity" else None
    if type(size) is not int or not 0 <= size < 1 << 63:
        raise DataError(f"{path} is not a vocabulary: expected a JSON object with kind identity and size")
    return IdentityVocabulary(size)


def _read_tsv(path: Path) -> TokenVocabulary:
    with regular.opened(path) as file:
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
    oov = table.num_rows > 0 and table["kind"][0].as_py() == "oov"
    tokens = table.slice(int(oov))
    strange = pc.index(pc.equal(tokens["kind"], "token"), False).as_py()
    if strange >= 0:
        found = tokens["kind"][strange].as_py()
        raise DataError(f"{path}, line {strange + 2 + oov}: found kind {found!r}, expected 'token'")
    return TokenVocabulary(
        known=_unescaped(_one_array(tokens["token"])),
        known_frequencies=tokens["frequency"].to_numpy(),
        oov=oov,
        oov_frequency=table["frequency"][0].as_py() if oov else 0,
    )


def _unescaped(tokens: pa.LargeStringArray) -> pa.LargeStringArray:
    escaped = pc.match_substring(tokens, "\\")
    if not pc.any(escaped).as_py():
        return tokens
    plain = [
        re.sub(r"\\.", lambda match: _PLAIN.get(match[0], match[0]), text)
        for text in tokens.filter(escaped).to_pylist()
    ]
    return pc.replace_with_mask(tokens, escaped, pa.array(plain, pa.large_string()))


def _text_of(lines: pa.LargeStringArray) -> pa.Buffer:
    """The bytes of all lines, one after the other; none is null."""
    _, ends, text = lines.buffers()
    start, stop = np.frombuffer(ends, np.int64, len(lines) + 1, 8 * lines.offset)[[0, -1]]
    return text.slice(int(start), int(stop - start))


def _one_array(column: pa.ChunkedArray) -> pa.LargeStringArray:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays([pa.array([], pa.large_string()), *column.chunks])
