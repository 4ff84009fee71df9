"""Labelled texts as a stream of examples: column `words`, and the number of the class as the label."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from embexp.data.arrow_columns import Column
from embexp.data.corpus import Corpus
from embexp.data.readers import Chunk
from embexp.data.text_forms import Text
from embexp.errors import DataError

WORDS = "words"
"""The one id column, several words per example."""
_TEXTS, _CHARACTERS = 4096, 1 << 23


def classes(corpus: Corpus) -> tuple[str, ...]:
    """Names of the classes: by number if all are whole numbers, else by code point.

    Raises:
        DataError: a line, or row, can't be read.
    """
    names = {text.label for text in corpus.texts() if text.label is not None}
    numbers = all(name.isascii() and name.isdigit() for name in names)
    if not numbers:
        return tuple(sorted(names))
    # As numbers, but not by `int`, which takes none of thousands of digits.
    return tuple(sorted(names, key=lambda name: (len(name.lstrip("0")), name.lstrip("0"), name)))


def chunks(corpus: Corpus, label: str | None, known: Sequence[str], *, max_length: int | None) -> Iterator[Chunk]:
    """The texts, in order.

    Args:
        corpus: where they are.
        label: column for the numbers of the classes; None: they are not read.
        known: names of the classes by number.
        max_length: words of a text that are read; None: all.

    Raises:
        DataError: a line, or row, can't be read, or a label is none of the classes.
    """
    numbers = {name: number for number, name in enumerate(known)}
    for file, texts in itertools.groupby(corpus.texts(), key=lambda text: text.file):
        for some in _portions(texts):
            found = [corpus.words(text)[:max_length] for text in some]
            splits = np.zeros(len(found) + 1, np.int64)
            np.cumsum([len(each) for each in found], out=splits[1:])
            flat = pa.array(itertools.chain.from_iterable(found), pa.large_string())
            labels = {} if label is None else {label: Column(_numbers(some, numbers), None)}
            yield Chunk(file, len(some), some[-1].done, {WORDS: Column(flat, splits)}, labels)


def _portions(texts: Iterable[Text]) -> Iterator[list[Text]]:
    some: list[Text] = []
    characters = 0
    for text in texts:
        some.append(text)
        characters += len(text.text) if text.tokens is None else sum(map(len, text.tokens))
        if len(some) == _TEXTS or characters > _CHARACTERS:
            yield some
            some, characters = [], 0
    if some:
        yield some


def _numbers(texts: Sequence[Text], numbers: dict[str, int]) -> np.ndarray:
    """float64 [n]: the number of each text's class."""
    for text in texts:
        if text.label not in numbers:
            raise DataError(
                f"{text.place}: found the label {text.label!r}, expected one of the classes {', '.join(numbers)}"
            )
    return np.array([numbers[str(text.label)] for text in texts], np.float64)
