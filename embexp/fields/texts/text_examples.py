"""Examples made of texts: labelled texts, as words and the number of their class, and pairs of words for skip-gram.

Examples for skip-gram with negative sampling, drawn from texts in chunks. Mikolov, Sutskever, Chen, Corrado and Dean:
"Distributed representations of words and phrases and their compositionality" (2013). Words seen less often than
`min_count` are removed. Of the others, an occurrence of a word of frequency f is removed with probability 1 - sqrt(t /
f) (eq. 5). Each word draws a distance b from 1 to the window and makes an example of label 1 with every word that
stands at most b from it in the same text. For each of these, negatives are drawn with p ~ count^power; one that is the
context itself makes no example, as in word2vec.c.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from embexp.data.examples import Layout, in_order
from embexp.data.files.arrow_columns import Chunk, Column
from embexp.data.vocabularies.token_rows import from_counts
from embexp.data.vocabularies.vocabulary import TokenVocabulary
from embexp.errors import DataError
from embexp.fields.texts.specs import SkipGram
from embexp.fields.texts.texts import WORDS, Corpus, Document
from embexp.specs.vocabularies import UnknownPolicy, VocabularyRules
from embexp.system import digests, parallel
from embexp.system.arrays import ArrayWriter
from embexp.system.parallel import Progress

_TEXTS, _CHARACTERS = 4096, 1 << 23
VOCABULARY = "vocabulary"
"""Stem of the file, in the folder, with what the ids stand for."""
_CHUNK = 16_384  # words that are drawn from together; about 36 examples of 12 bytes come from each


def class_names(corpus: Corpus) -> tuple[str, ...]:
    """Names of the classes, in the order of their numbers.

    Raises:
        DataError: a line, or row, can't be read.
    """
    return in_order(text.label for text in corpus.texts() if text.label is not None)


def labelled_chunks(corpus: Corpus, label: str | None, known: Sequence[str]) -> Iterator[Chunk]:
    """The texts, in order.

    Args:
        label: column for the numbers of the classes; None: they are not read.

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
            labels = {} if label is None else {label: Column(_numbers(some, numbers), None)}
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


def _numbers(texts: Sequence[Document], numbers: dict[str, int]) -> np.ndarray:
    """float64 [n]: the number of each text's class."""
    for text in texts:
        if text.label not in numbers:
            raise DataError(
                f"{text.place}: found the label {text.label!r}, expected one of the classes {', '.join(numbers)}"
            )
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
        if data.subsample:
            self._kept = np.minimum(1.0, np.sqrt(data.subsample * counts.sum() / counts))
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
        """Rows of words in their order, the number of the text of each, and the fraction that is done."""
        rows: list[int] = []
        texts: list[int] = []
        done = 0.0
        for number, text in enumerate(self._corpus.texts()):
            found = [row for word in self._corpus.words(text) if (row := self._rows.get(word)) is not None]
            # A long text, such as a book in one file, is cut, so that memory stays bounded.
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


def vocabulary_of(data: SkipGram, corpus: Corpus, progress: Progress) -> TokenVocabulary:
    """The words that are used, by falling frequency.

    Raises:
        DataError: fewer than two words are common enough.
    """
    counts: Counter[str] = Counter()
    for text in corpus.texts():
        counts.update(corpus.words(text))
        progress("counting words", text.done or None)
    rules = VocabularyRules(unknown=UnknownPolicy.ERROR, min_frequency=data.min_count, max_size=data.max_words)
    numbers = np.fromiter(counts.values(), np.int64, len(counts))
    vocabulary, _ = from_counts(pa.array(counts, pa.large_string(), size=len(counts)), numbers, rules)
    if vocabulary.size < 2:
        raise DataError(
            f"{corpus.path}: found {vocabulary.size} of {len(counts)} distinct words at least {data.min_count} times, "
            "expected 2 or more; choose a smaller data.min_count, or more texts"
        )
    return vocabulary


def write_pairs(data: SkipGram, corpus: Corpus, folder: Path, *, columns: Sequence[str], progress: Progress) -> None:
    """Writes all examples into an empty folder: ids are rows already.

    Args:
        columns: names of those of the center and the context.

    Raises:
        DataError: the texts can't be read, or no two words stand together in them.
    """
    vocabulary = vocabulary_of(data, corpus, progress)
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
        raise DataError(f"{corpus.path}: found no two words that stand together in a text")
    Layout(count=ids.rows, ids=list(columns), label=True).write(folder)
