"""Examples of texts: labelled texts as words, and pairs of words for skip-gram with negative sampling.

Labelled texts become words and the number of their class.

Examples for skip-gram with negative sampling, drawn from texts in chunks. Mikolov, Sutskever, Chen, Corrado and Dean:
"Distributed representations of words and phrases and their compositionality" (2013). Words seen less often than
`min_count` are removed. Of the others, an occurrence of a word of frequency f is removed with probability 1 - sqrt(t /
f) (eq. 5). Each word draws a distance b from 1 to the window and makes an example of label 1 with every word that
stands at most b from it in the same text. For each of these, negatives are drawn with p ~ count^power; one that is the
context itself makes no example, as in word2vec.c.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from embexp.data import splits
from embexp.data.columns import Columns
from embexp.data.contract import Contract, grown
from embexp.data.examples import CLASSES, Encoded, Layout, encode, extended, in_order, one_of
from embexp.data.files.arrow_columns import Chunk, Column
from embexp.data.sources.columnar import TokenSource
from embexp.data.sources.source import Description, Source, cached, single_columns, unknown_columns
from embexp.data.vocabularies.token_rows import from_counts
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import ConfigError, DataError, Fault
from embexp.fields.texts.specs import SkipGram, Text
from embexp.fields.texts.texts import WORDS, Corpus, Document, without_ngrams
from embexp.specs.data import GivenFiles, Split, SplitKind
from embexp.specs.vocabularies import UnknownPolicy, VocabularyRules
from embexp.system import digests, parallel
from embexp.system.arrays import ArrayWriter
from embexp.system.parallel import Progress

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
