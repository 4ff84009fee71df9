"""What vectors are worth by themselves: similarity as people see it, analogies, categories.

Figures are those of gensim's `evaluate_word_pairs` and `evaluate_word_analogies` by default: only the first rows count,
upper and lower case are the same, of several rows with one word the first counts, and what has a word without a row is
left out and counted. Rows of zeros have no direction, and count as missing.

Tests of vectors in files: pairs of words that people have rated, analogies, words in categories.

The forms are those in which such tests are published: WordSim-353, SimLex-999, MEN, RG-65, SimVerb and rare words
differ in what separates their columns, in headers, and in columns that come before or after; which column is which is
told by what the columns hold.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from embexp.errors import DataError, excerpt, plural
from embexp.system import files
from embexp.system.arrays import Rows, SomeRows
from embexp.system.parallel import Progress, at_once, quiet
from embexp.vectors.neighbors import directions

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


KINDS = {
    "similarity": read_pairs,
    "analogies": read_analogies,
    "categories": read_categories,
}
"""What reads the files of each kind of test."""
ROWS = 300_000
"""So many of the first rows count, if nothing else is asked for."""

_EPSILON = 0.001
"""In the denominator of 3CosMul (Levy & Goldberg 2014, section 4)."""
_NORMAL = 1.959963984540054
"""97.5% of a normal distribution are below."""
_COSINES_BYTES = 32 * 1024 * 1024
_MOST_ROWS, _FEWEST_ROWS = 8192, 64
_CELLS = 1 << 17
"""Scores that are worked on at a time, so that they stay in the cache of a processor."""
_STARTS = 10
"""Clusterings of k-means, of which the one with the smallest distances counts."""
_SHUFFLES = 200


@dataclass(frozen=True)
class Similarity:
    """How the cosines of pairs agree with the similarity that people gave them.

    Attributes:
        pairs, covered: of the file, and those whose words have rows.
        spearman, pearson: correlations; None: fewer than two pairs are covered, or all have the same value.
        p: of the Spearman correlation, two-sided.
        low, high: ends of its 95% interval; None for fewer than four pairs.
        cosines: [pairs]; NaN where a pair is not covered.
    """

    pairs: int
    covered: int
    spearman: float | None
    low: float | None
    high: float | None
    p: float | None
    pearson: float | None
    cosines: np.ndarray


@dataclass(frozen=True)
class Share:
    """How many of some questions were answered right.

    Attributes:
        low, high: ends of Wilson's 95% interval.
    """

    right: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Section:
    """The questions of a section, or of several.

    Attributes:
        questions, covered: in the file, and those whose words have rows.
        add, mul: those answered right by 3CosAdd and by 3CosMul; None: none is covered.
    """

    name: str
    questions: int
    covered: int
    add: Share | None
    mul: Share | None


@dataclass(frozen=True)
class Answers:
    """The answers to analogies.

    Attributes:
        sections: of the file, and `all`; with `semantic` and `syntactic` before it where some begin with `gram`, as
            those of Google do.
        add, mul: int64 [questions], the row that each question was answered with; -1 where it is not covered.
    """

    sections: Sequence[Section]
    add: np.ndarray
    mul: np.ndarray


@dataclass(frozen=True)
class Categorisation:
    """How well clusters of the vectors keep to categories.

    Attributes:
        words, covered: of the file, and those that have rows.
        categories: of the covered words.
        purity: share of the words in whose cluster their category is the most frequent; None: fewer than two
            categories, or no more words than categories.
        low, high: the range of the purities of all starts.
        chance: the mean purity of the same clusters with the categories shuffled.
        clusters: [words], the cluster of each word; -1 where it is not covered.
    """

    words: int
    covered: int
    categories: int
    purity: float | None
    low: float | None
    high: float | None
    chance: float | None
    clusters: np.ndarray


def read_tests(files: Mapping[str, Sequence[str]]) -> dict[str, list[Any]]:
    """Reads the files of tests, by kind, so that nothing is computed before all are known to be tests.

    Raises:
        DataError: a file is not of its form.
    """
    return {kind: [read(Path(file)) for file in files.get(kind, ())] for kind, read in KINDS.items()}


def evaluate(
    name: str,
    matrix: Rows,
    tokens: pa.Array | None,
    tests: Mapping[str, Sequence[Any]],
    *,
    rows: int = ROWS,
    any_case: bool = True,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """Evaluates vectors by tests.

    Args:
        name: of the vectors.
        tests: by kind, see `read_tests`.
        rows: so many of the first rows count.

    Returns:
        What `embexp vectors evaluate --json` prints.

    Raises:
        DataError: the vectors have no tokens.
    """
    if tokens is None:
        raise DataError(
            f"{name}: found rows without tokens, expected one token per row, so that the words of a test can be "
            f"found: name a token file with --tokens, or put NAME.tokens.txt next to the file"
        )
    lookup = Lookup(tokens, rows=rows, any_case=any_case)
    return {
        "vectors": name,
        "rows": matrix.rows,
        "dim": matrix.dim,
        "counted": len(lookup.keys),
        "similarity": [_similarity(test, similarity(matrix, lookup, test)) for test in tests["similarity"]],
        "analogies": [
            _analogies(test, analogies(matrix, lookup, test, progress=progress), tokens) for test in tests["analogies"]
        ],
        "categories": [_categories(test, categorisation(matrix, lookup, test)) for test in tests["categories"]],
    }


def _similarity(test: Pairs, found: Similarity) -> dict[str, Any]:
    rows = zip(test.words, test.scores.tolist(), found.cosines.tolist(), strict=True)
    listed = [{"a": a, "b": b, "score": score, "cosine": cosine} for (a, b), score, cosine in rows]
    return {"file": str(test.path), **_plain(found), "each": listed}


def _analogies(test: Analogies, found: Answers, tokens: pa.Array) -> dict[str, Any]:
    add, mul = ([tokens[row].as_py() if row >= 0 else None for row in rows.tolist()] for rows in (found.add, found.mul))
    listed = [
        {"question": list(question), "section": test.sections[section], "3CosAdd": by_add, "3CosMul": by_mul}
        for question, section, by_add, by_mul in zip(test.questions, test.section, add, mul, strict=True)
    ]
    return {"file": str(test.path), "sections": [_plain(each) for each in found.sections], "each": listed}


def _categories(test: Categories, found: Categorisation) -> dict[str, Any]:
    rows = zip(test.words, test.categories, found.clusters.tolist(), strict=True)
    listed = [
        {"word": word, "category": category, "cluster": None if cluster < 0 else cluster}
        for word, category, cluster in rows
    ]
    return {"file": str(test.path), **_plain(found), "each": listed}


def _plain(found: Any) -> dict[str, Any]:
    """A data class as objects of JSON, without its arrays."""
    return {key: value for key, value in dataclasses.asdict(found).items() if not isinstance(value, np.ndarray)}


def by_test(content: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """The figures of an evaluation for the summary of a run: by kind, and by the name of the test.

    Tests of which the vectors have no word are left out. A name has no dots, so that it can be a part of a key.

    Args:
        content: of `evaluate`.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for kind in KINDS:
        for each in content[kind]:
            figures = {key: value for key, value in each.items() if key not in ("file", "each")}
            if kind == "analogies":
                whole = each["sections"][-1]
                figures |= {key: whole[key] for key in ("questions", "covered")}
                figures |= {way: (whole[way] or {}).get("share") for way in ("add", "mul")}
            if figures["covered"]:
                found.setdefault(kind, {})[test_name(each["file"])] = figures
    return found


def test_name(file: str) -> str:
    """The name of the test in a file."""
    return Path(file).stem.replace(".", "_")


def similarity(matrix: Rows, lookup: Lookup, test: Pairs) -> Similarity:
    """Correlates the cosines of pairs with the scores of people.

    The interval is that of Bonett & Wright (2000): Fisher's z ± 1.96 · √((1 + ρ²/2) / (n - 3)).
    """
    from scipy import stats

    rows = lookup.rows([word for pair in test.words for word in pair])
    units, place = _units(matrix, rows)
    pairs = place.reshape(-1, 2)
    covered = (pairs >= 0).all(axis=1)
    left, right = units[pairs[covered].T]
    cosines = np.full(len(pairs), np.nan, np.float32)  # float32, in which equal vectors tie at 1
    cosines[covered] = np.einsum("ij,ij->i", left, right)
    count, found, scores = int(covered.sum()), cosines[covered], test.scores[covered]
    if count < 2 or np.ptp(found) == 0 or np.ptp(scores) == 0:
        return Similarity(len(pairs), count, None, None, None, None, None, cosines)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of p-values of two pairs
        rank, p = stats.spearmanr(scores, found)
        pearson = float(stats.pearsonr(scores, found)[0])
    low, high = _of_correlation(float(rank), count)
    return Similarity(
        len(pairs), count, float(rank), low, high, float(p) if math.isfinite(p) else None, pearson, cosines
    )


def _of_correlation(rank: float, count: int) -> tuple[float | None, float | None]:
    if count < 4:
        return None, None
    if abs(rank) >= 1:
        return rank, rank
    half = _NORMAL * math.sqrt((1 + rank**2 / 2) / (count - 3))
    return math.tanh(math.atanh(rank) - half), math.tanh(math.atanh(rank) + half)


def analogies(matrix: Rows, lookup: Lookup, test: Analogies, *, progress: Progress = quiet) -> Answers:
    """Answers analogies with the row that is best by 3CosAdd, and by 3CosMul, but for rows with a word of the question.

    3CosAdd (Mikolov et al. 2013) looks for the largest cos(x, b) - cos(x, a) + cos(x, c) and 3CosMul (Levy & Goldberg
    2014) for the largest cos(x, b) · cos(x, c) / (cos(x, a) + 0.001), with cosines moved into [0, 1].
    """
    rows = lookup.rows([word for question in test.questions for word in question]).reshape(-1, 4)
    distinct, place = np.unique(rows, return_inverse=True)
    known, _ = _units(matrix, distinct)
    nowhere = (distinct < 0) | ~known.any(axis=1)
    place = place.reshape(rows.shape)
    covered = np.asarray(~nowhere[place].any(axis=1))
    add, mul = np.full(len(rows), -1, np.int64), np.full(len(rows), -1, np.int64)
    if covered.any():
        asked = rows[covered, :3]
        add[covered], mul[covered] = _best(matrix, lookup, asked, progress)
    expected = rows[:, 3]
    right = [covered & (found >= 0) & (lookup.first[found] == expected) for found in (add, mul)]
    of_section = np.array(test.section)
    parts = {name: of_section == number for number, name in enumerate(test.sections)}
    syntactic = np.isin(of_section, [number for number, name in enumerate(test.sections) if name.startswith("gram")])
    if syntactic.any() and not syntactic.all():
        parts |= {"semantic": ~syntactic, "syntactic": syntactic}
    parts["all"] = np.ones(len(rows), bool)
    sections = [_section(name, part, covered, right) for name, part in parts.items()]
    return Answers(sections, add, mul)


def _section(name: str, part: np.ndarray, covered: np.ndarray, right: Sequence[np.ndarray]) -> Section:
    count = int((part & covered).sum())
    add, mul = (_share(int((part & each).sum()), count) for each in right)
    return Section(name, int(part.sum()), count, add, mul)


def _share(right: int, count: int) -> Share | None:
    if not count:
        return None
    from scipy import stats

    low, high = stats.binomtest(right, count).proportion_ci(0.95, "wilson")
    return Share(right, right / count, float(low), float(high))


def _best(matrix: Rows, lookup: Lookup, asked: np.ndarray, progress: Progress) -> tuple[np.ndarray, np.ndarray]:
    """The best row for each question, by 3CosAdd and by 3CosMul.

    Both need the cosines of every row with the few words of the questions only: a product of matrices for each block
    of rows, whose results the questions share.

    Args:
        asked: [questions, 3], rows of a, b and c.
    """
    distinct, place = np.unique(asked, return_inverse=True)
    a, b, c = place.reshape(asked.shape).T
    words, _ = directions(SomeRows(matrix, distinct).read(0, len(distinct)))
    questions, barred = _barred(lookup, distinct, place.reshape(asked.shape))
    count, rows = len(asked), len(lookup.keys)
    found = np.full((2, count), -1, np.int64)
    best = np.full((2, count), -np.inf, np.float32)
    parts = [part for part in np.array_split(np.arange(count), os.cpu_count() or 1) if len(part)]
    step = min(max(_COSINES_BYTES // (4 * len(distinct)), _FEWEST_ROWS), _MOST_ROWS)
    for start in range(0, rows, step):
        units, nowhere = directions(matrix.read(start, min(start + step, rows)))
        cosines = words @ units.T
        near = (cosines + 1) / 2
        inverse = 1 / (near + np.float32(_EPSILON))
        first, last = np.searchsorted(barred, (start, start + len(units)))
        order = np.argsort(questions[first:last], kind="stable")
        never = questions[first:last][order], barred[first:last][order] - start

        def answer(
            part: np.ndarray,
            tables: tuple[np.ndarray, ...] = (cosines, near, inverse),
            never: tuple[np.ndarray, np.ndarray] = never,
            nowhere: np.ndarray = nowhere,
            start: int = start,
        ) -> None:
            width = tables[0].shape[1]
            chunk = max(1, _CELLS // width)
            scores, more = np.empty((2, chunk, width), np.float32)
            for low in range(int(part[0]), int(part[-1]) + 1, chunk):
                high = min(low + chunk, int(part[-1]) + 1)
                some, other = scores[: high - low], more[: high - low]
                begin, end = np.searchsorted(never[0], (low, high))
                for way in (0, 1):
                    table = tables[way]
                    table.take(b[low:high], 0, some, "clip")
                    table.take(c[low:high], 0, other, "clip")
                    (np.multiply if way else np.add)(some, other, some)
                    (tables[2] if way else table).take(a[low:high], 0, other, "clip")
                    (np.multiply if way else np.subtract)(some, other, some)
                    some[:, nowhere] = -np.inf
                    some[never[0][begin:end] - low, never[1][begin:end]] = -np.inf
                    top = some.argmax(axis=1)
                    value = some[np.arange(high - low), top]
                    better = np.flatnonzero(value > best[way, low:high])
                    best[way, low + better] = value[better]
                    found[way, low + better] = top[better] + start

        at_once(answer, parts)
        progress("answering analogies", min(1.0, (start + step) / rows))
    return found[0], found[1]


def _barred(lookup: Lookup, distinct: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Questions and rows that can't be their answers, those with the key of a word of the question; by row."""
    order = np.argsort(lookup.first, kind="stable")
    starts, stops = (np.searchsorted(lookup.first[order], distinct, side) for side in ("left", "right"))
    counts = (stops - starts)[place.ravel()]
    questions = np.repeat(np.arange(len(place)).repeat(3), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    barred = order[np.repeat(starts[place.ravel()], counts) + within]
    by_row = np.argsort(barred, kind="stable")
    return questions[by_row], barred[by_row]


def categorisation(matrix: Rows, lookup: Lookup, test: Categories, *, seed: int = 0) -> Categorisation:
    """Clusters the directions of words by k-means, one cluster per category, and compares clusters with categories.

    Purity: Zhao & Karypis (2001). Of ten starts, the clustering with the smallest distances counts.
    """
    from sklearn.cluster import KMeans

    units, place = _units(matrix, lookup.rows(test.words))
    covered = place >= 0
    names, category = np.unique(np.array(test.categories)[covered], return_inverse=True)
    count, clusters = int(covered.sum()), np.full(len(place), -1, np.int64)
    points = units[place[covered]]
    if len(names) < 2 or len(np.unique(points, axis=0)) <= len(names):
        return Categorisation(len(place), count, len(names), None, None, None, None, clusters)
    fitted = [KMeans(len(names), n_init=1, random_state=seed + start).fit(points) for start in range(_STARTS)]
    purities = [purity(each.labels_, category) for each in fitted]
    best = int(np.argmin([each.inertia_ for each in fitted]))
    clusters[covered] = fitted[best].labels_
    generator = np.random.default_rng(seed)
    shuffled = [purity(clusters[covered], generator.permutation(category)) for _ in range(_SHUFFLES)]
    return Categorisation(
        len(place), count, len(names), purities[best], min(purities), max(purities), float(np.mean(shuffled)), clusters
    )


def purity(clusters: np.ndarray, categories: np.ndarray) -> float:
    """The share of items whose category is the most frequent of their cluster.

    Args:
        clusters, categories: of each item, numbers from 0.
    """
    counts = np.zeros((int(clusters.max()) + 1, int(categories.max()) + 1), np.int64)
    np.add.at(counts, (clusters, categories), 1)
    return float(counts.max(axis=1).sum() / len(clusters))


def _units(matrix: Rows, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The directions of some rows, and which of them each is.

    Returns:
        float64 [distinct, dim]; and of each row its place in them, -1 for a row that is -1 or all zeros.
    """
    distinct, place = np.unique(rows, return_inverse=True)
    known = distinct >= 0
    values = np.zeros((len(distinct), matrix.dim))
    if known.any():
        units, nowhere = directions(SomeRows(matrix, distinct[known]).read(0, int(known.sum())), np.float64)
        values[known] = units
        known[known] = ~nowhere
    return values, np.where(known[place], place, -1)
