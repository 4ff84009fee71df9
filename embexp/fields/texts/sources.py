"""Examples of texts: labelled texts as words, and pairs of words for skip-gram with negative sampling."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Columns
from embexp.data.sources.columnar import TokenSource
from embexp.data.sources.source import Description, Source, cached, single_columns, unknown_columns
from embexp.errors import ConfigError, Fault
from embexp.fields.texts.specs import SkipGram, Text
from embexp.fields.texts.texts import WORDS, Corpus
from embexp.specs.data import GivenFiles, Split, SplitKind
from embexp.system import digests
from embexp.system.parallel import Progress

if TYPE_CHECKING:
    import numpy as np

    from embexp.data.examples import Encoded
    from embexp.data.vocabularies.vocabulary import Vocabulary

PAIR = ("center", "context")
"""The id columns of pairs of words."""
_DRAWN = {"min_count", "max_words", "context_window", "subsample", "negatives", "power", "draws", "seed"}
"""The settings of which the pairs are a function, with the texts."""


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
        rule = "texts have no users, within whom they could be divided"
        return [Fault("data.split.within", str(split.within), rule, "set it to null")]
    if split.kind is not SplitKind.LEAVE_ONE_OUT:
        return []
    rule = "texts have no users, of each of whom one could be left out"
    return [Fault("data.split.kind", str(split.kind), rule, "choose random, time or folds")]


@dataclass(frozen=True)
class TextSource(TokenSource):
    """Texts and the classes that they belong to."""

    data: Text

    def own_values(self, counts: np.ndarray) -> np.ndarray:
        """Words, without n-grams."""
        from embexp.fields.texts.texts import without_ngrams

        return without_ngrams(counts, self.data.ngrams)

    def head_faults(self, columns: Columns) -> list[Fault]:
        """Columns that texts lack, a split by users, and the first text that can't be read."""
        rule = f"texts have no such column; the one column is {WORDS}"
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
        from embexp.data import splits

        splits.divide(self.data, encoded.layout.count, folder, given=self.given_counts(encoded))
        return {}

    def division_key(self) -> dict[str, Any]:
        """The split, and how many examples train."""
        return super().division_key() | {"train_examples": self.data.train_examples}

    def learn(self, columns: Columns, encoded: Encoded, folder: Path, *, progress: Progress) -> None:
        """Writes vocabularies and rows, before the training split is cut down."""
        from embexp.data import splits

        super().learn(columns, encoded, folder, progress=progress)
        if self.data.train_examples is not None:
            splits.keep_some(folder / "train.npy", self.data.train_examples, seed=self.data.split.seed)

    def encode(self, columns: Columns, *, cache: Path, progress: Progress) -> Encoded:
        """Words as codes, classes as numbers."""
        from embexp.data.examples import CLASSES, encode, extended
        from embexp.fields.texts import text_examples

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
                known = known or list(text_examples.class_names(corpus))
                if self.extends_classes:
                    known = list(extended(known, text_examples.class_names(corpus)))
                (folder / CLASSES).write_text(json.dumps(known), "utf-8")
            chunks = (text_examples.labelled_chunks(each, columns.label, known) for each in corpora)
            chained = itertools.chain.from_iterable(chunks)
            encode(chained, folder, columns, lists=frozenset([WORDS]), progress=progress)

        return cached("codes", self._digest(corpora, cache), settings, make, cache=cache)

    def _digest(self, corpora: Sequence[Corpus], cache: Path) -> str:
        found = [corpus.digest(cache=cache) for corpus in corpora]
        return found[0] if len(found) == 1 else self.with_splits(digests.of_json(found))

    def _corpora(self, label: str | None) -> list[Corpus]:
        """The texts of train, or all, and those of validation and test, as far as files are given for them."""
        data = self.data
        corpus = replace(corpus_of(data, label), max_length=data.max_length, ngrams=data.ngrams)
        if self.other is not None:
            return [replace(corpus, path=self.other, classes=tuple(self.classes))]
        paths = [Path(path) for [path] in self.data.given.values()]
        return [replace(corpus, path=path) for path in paths] or [corpus]


@dataclass(frozen=True)
class SkipGramSource(Source):
    """Pairs of words that stand together, and of words that do not."""

    no_other_file = "pairs of words are drawn from the run's own texts"

    data: SkipGram

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
        from embexp.fields.texts import text_examples

        if faults := user_faults(self.data.split):
            raise ConfigError(faults)
        corpus = self._corpus()
        settings = {"kind": self.data.kind, **corpus.settings(), **self.data.model_dump(mode="json", include=_DRAWN)}
        make = partial(text_examples.write_pairs, self.data, corpus, columns=PAIR, progress=progress)
        return cached("pairs", corpus.digest(cache=cache), settings, make, cache=cache)

    def division_key(self) -> dict[str, Any]:
        """The split; the vocabulary is that of all texts."""
        return super().division_key() | {"vocabulary": None}

    def vocabularies(self, columns: Columns, encoded: Encoded, folder: Path) -> dict[str, Vocabulary]:
        """One, of both columns."""
        from embexp.data.vocabularies.vocabulary import Vocabulary
        from embexp.fields.texts.text_examples import VOCABULARY

        return dict.fromkeys(columns.ids.values(), Vocabulary.read(encoded.folder / VOCABULARY))

    def _corpus(self) -> Corpus:
        return corpus_of(self.data, None)
