"""Pairs of words for skip-gram with negative sampling, drawn from texts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Columns
from embexp.data.sources.source import Description, DrawnSource, cached, single_columns, unknown_columns
from embexp.data.texts import Corpus, corpus_of, described, user_faults
from embexp.errors import ConfigError, Fault
from embexp.specs.data import SkipGram
from embexp.system.parallel import Progress

if TYPE_CHECKING:
    from embexp.data.examples import Encoded
    from embexp.data.vocabularies.vocabulary import Vocabulary

PAIR = ("center", "context")
"""Its id columns."""
_DRAWN = {"min_count", "max_words", "context_window", "subsample", "negatives", "power", "seed"}
"""The settings of which the pairs are a function, with the texts."""


@dataclass(frozen=True)
class SkipGramSource(DrawnSource):
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
        from embexp.data import text_examples

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
        from embexp.data.text_examples import VOCABULARY
        from embexp.data.vocabularies.vocabulary import Vocabulary

        return dict.fromkeys(columns.ids.values(), Vocabulary.read(encoded.folder / VOCABULARY))

    def _corpus(self) -> Corpus:
        return corpus_of(self.data, None)
