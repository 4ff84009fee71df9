"""Tests of vectors in files: pairs of words that people have rated, analogies, words in categories.

The forms are those in which such tests are published: WordSim-353, SimLex-999, MEN, RG-65, SimVerb and rare words
differ in what separates their columns, in headers, and in columns that come before or after; which column is which is
told by what the columns hold.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from embexp.errors import DataError, excerpt, plural
from embexp.system import files

_ENDS = re.compile(r"\r\n|\n|\r")
_WITH_PART = re.compile(r".+-[a-z]")
"""A word with a letter for its part of speech, as MEN (`sun-n`) and BLESS have them."""
_HEADERS = ("category", "categories", "class", "classes", "cluster", "label", "group")


@dataclass(frozen=True)
class Pairs:
    """Pairs of words with the similarity that people gave them.

    Attributes:
        words: the two words of each pair.
        scores: float64 [pairs].
    """

    path: Path
    words: Sequence[tuple[str, str]]
    scores: np.ndarray


@dataclass(frozen=True)
class Analogies:
    """Questions: a is to b as c is to which word?

    Attributes:
        questions: a, b, c and the answer.
        sections: names, in the order of the file.
        section: of each question, its number in `sections`.
    """

    path: Path
    questions: Sequence[tuple[str, ...]]
    sections: Sequence[str]
    section: Sequence[int]


@dataclass(frozen=True)
class Categories:
    """Words, each with its category; a word that a file names several times has the first."""

    path: Path
    words: Sequence[str]
    categories: Sequence[str]


class Lookup:
    """Rows by word, of the first rows of a matrix.

    Attributes:
        keys: what each row is found by: its token, in capitals if case counts for nothing.
        first: int64 [rows], the first row with the same key, which is the one that is found.
    """

    def __init__(self, tokens: pa.Array, *, rows: int, any_case: bool = True) -> None:
        """Takes the token of each row.

        Args:
            rows: so many of the first rows can be found.
        """
        self._fold = str.upper if any_case else str
        self.keys = [self._fold(token) for token in tokens.slice(0, rows).to_pylist()]
        self._rows: dict[str, int] = {}
        self.first = np.array([self._rows.setdefault(key, row) for row, key in enumerate(self.keys)], np.int64)

    def rows(self, words: Sequence[str]) -> np.ndarray:
        """The row of each word, int64; -1: there is none.

        If each word ends in a letter for its part of speech, this may be missing in the tokens.
        """
        parts = all(map(_WITH_PART.fullmatch, words))
        found = [self._rows.get(self._fold(word), -1) for word in words]
        if parts:
            found = [self._rows.get(self._fold(word[:-2]), -1) if row < 0 else row for word, row in zip(words, found)]  # noqa: B905
        return np.array(found, np.int64)


def read_pairs(path: Path) -> Pairs:
    """Reads pairs: the first two columns of words, and the first column of numbers after them.

    Rows that are empty there, such as `252,,,`, are left out.

    Raises:
        DataError: there are no such columns, or a line does not fit them.
    """
    table = _table(path)
    numeric = _numeric(table)
    words = [column for column, each in enumerate(numeric) if not each][:2]
    scores = [column for column, each in enumerate(numeric) if each and len(words) == 2 and column > words[1]]
    if not scores:
        found = ", ".join("numbers" if each else "words" for each in numeric)
        raise DataError(
            f"{path}: found columns of {found}, expected two columns of words and one of numbers after them, such as"
            " `tiger,cat,7.35`; columns are separated by tabs, commas, semicolons or blanks"
        )
    rows = table[1:] if _number(table[0][1][scores[0]]) is None and len(table) > 1 else table
    rows = [row for row in rows if any(row[1][column] for column in (*words, scores[0]))]
    values = []
    for line, cells in rows:
        value = _number(cells[scores[0]])
        if value is None or not math.isfinite(value):
            raise DataError(f"{path}, line {line}: found {excerpt(cells[scores[0]])}, expected a number as similarity")
        values.append(value)
    return Pairs(path, [(cells[words[0]], cells[words[1]]) for _, cells in rows], np.array(values))


def read_analogies(path: Path) -> Analogies:
    """Reads lines of four words, in sections that begin with `: NAME`, as Google's file of questions has them.

    Raises:
        DataError: a line has another number of words; or there are none.
    """
    questions, sections, section = [], [], []
    for line, text in _lines(path):
        if text.startswith(":"):
            sections.append(text[1:].strip())
            continue
        words = tuple(text.split())
        if len(words) != 4:
            raise DataError(
                f"{path}, line {line}: found {plural(len(words), 'word')}, expected four, such as `Athens Greece Paris"
                " France`, or `: NAME`, which begins a section"
            )
        sections = sections or [path.stem]
        questions.append(words)
        section.append(len(sections) - 1)
    if not questions:
        raise DataError(f"{path}: found no questions, expected lines of four words")
    return Analogies(path, questions, sections, section)


def read_categories(path: Path) -> Categories:
    """Reads a word and its category per line; or lines of words in sections that begin with `: CATEGORY`.

    Raises:
        DataError: there are no such columns.
    """
    lines = _lines(path)
    found: dict[str, str] = {}
    if any(text.startswith(":") for _, text in lines):
        category = path.stem
        for _, text in lines:
            if text.startswith(":"):
                category = text[1:].strip()
            else:
                for word in text.split():
                    found.setdefault(word, category)
    else:
        table = _table(path)
        columns = [column for column, each in enumerate(_numeric(table)) if not each]
        if len(columns) == 1 and len(table[0][1]) > 1:  # categories that are numbers
            columns.append(next(column for column in range(len(table[0][1])) if column != columns[0]))
        if len(columns) < 2:
            raise DataError(
                f"{path}: found {plural(len(table[0][1]), 'column')}, expected a word and its category in each line,"
                " or sections of words that begin with `: CATEGORY`"
            )
        if table[0][1][columns[1]].lower() in _HEADERS:
            table = table[1:]
        for _, cells in table:
            found.setdefault(cells[columns[0]], cells[columns[1]])
    if not found:
        raise DataError(f"{path}: found no words")
    return Categories(path, list(found), list(found.values()))


def _lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a file with their numbers; without empty ones, and those that begin with #."""
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    try:
        with files.opened(path) as file:
            text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, byte {error.start + 1:,}: found bytes that are not UTF-8, expected text") from None
    lines = [(number, line) for number, line in enumerate(_ENDS.split(text), 1) if line.strip() and line[0] != "#"]
    if not lines:
        raise DataError(f"{path}: found no lines with words")
    return lines


def _table(path: Path) -> list[tuple[int, list[str]]]:
    """The cells of each line, as many in all, with its number."""
    lines = _lines(path)
    separator = next((each for each in "\t;," if each in lines[0][1]), None)
    table = []
    for number, line in lines:
        if separator is None or separator == "\t":
            cells = line.split(separator)
        else:
            try:
                cells = next(csv.reader([line], delimiter=separator))
            except csv.Error as error:
                raise DataError(f"{path}, line {number}: found {excerpt(line)}, expected CSV: {error}") from None
        table.append((number, [cell.strip() for cell in cells]))
        if len(cells) != len(table[0][1]):
            raise DataError(
                f"{path}, line {number}: found {plural(len(cells), 'column')}, expected {len(table[0][1])}, as in line"
                f" {table[0][0]}"
            )
    return table


def _numeric(table: Sequence[tuple[int, Sequence[str]]]) -> list[bool]:
    """Of each column, whether most of its cells below the first line, which may be a header, are numbers."""
    rows = [cells for _, cells in table[1:] or table]
    return [2 * sum(_number(cell) is not None for cell in column) > len(rows) for column in zip(*rows, strict=True)]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
