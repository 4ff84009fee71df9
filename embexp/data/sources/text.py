"""Labelled texts, as words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Columns
from embexp.data.sources.columnar import TokenSource
from embexp.data.sources.source import Description, cached, unknown_columns
from embexp.data.texts import Corpus, corpus_of, described, user_faults
from embexp.errors import ConfigError, Fault
from embexp.specs.data import Text
from embexp.system.parallel import Progress

if TYPE_CHECKING:
    from embexp.data.examples import Encoded


@dataclass(frozen=True)
class TextSource(TokenSource):
    """Texts and the classes that they belong to."""

    data: Text

    def head_faults(self, columns: Columns) -> list[Fault]:
        """Columns that texts lack, a split by users, and the first text that can't be read."""
        from embexp.data.text_examples import WORDS

        rule = f"texts have no such column; the one column is {WORDS}"
        unknown = unknown_columns(columns, (WORDS,), rule)
        return [*user_faults(self.data.split), *unknown, *self._corpus(self.data.label).head_faults()]

    def description(self) -> Description:
        """Where the texts are, and the split."""
        return described(self.data)

    def digest(self, columns: Columns, *, cache: Path) -> str:
        """Of the bytes of all files and, where folders are the classes, of their names."""
        return self._corpus(columns.label).digest(cache=cache)

    def division_key(self) -> dict[str, Any]:
        """The split, and how many examples train."""
        return super().division_key() | {"train_examples": self.data.train_examples}

    def learn(self, columns: Columns, encoded: Encoded, folder: Path, *, progress: Progress) -> None:
        """Writes vocabularies and rows, before the training split is cut down."""
        from embexp.data import splits

        super().learn(columns, encoded, folder, progress=progress)
        if self.data.train_examples is not None:
            splits.keep_some(folder / "train.npy", self.data.train_examples, seed=self.data.split.seed)

    def encode(
        self,
        columns: Columns,
        *,
        cache: Path,
        progress: Progress,
        other: Path | None = None,
        classes: Sequence[str] = (),
    ) -> Encoded:
        """Words as codes, classes as numbers; without `classes` these follow from the labels."""
        from embexp.data import text_examples
        from embexp.data.examples import CLASSES, encode

        if faults := user_faults(self.data.split):
            raise ConfigError(faults)
        corpus = self._corpus(columns.label)
        if other is not None:
            corpus = replace(corpus, path=other)
        settings = {
            "kind": self.data.kind,
            **corpus.settings(),
            "ids": list(columns.ids.items()),
            "label": columns.label,
            "max_length": self.data.max_length,
            "classes": list(classes),
        }

        def make(folder: Path) -> None:
            progress("reading the texts", None)
            known = list(classes)
            if corpus.label is not None:
                known = known or list(text_examples.class_names(corpus))
                (folder / CLASSES).write_text(json.dumps(known), "utf-8")
            encode(
                text_examples.labelled_chunks(corpus, columns.label, known, max_length=self.data.max_length),
                folder,
                columns,
                lists=frozenset([text_examples.WORDS]),
                progress=progress,
            )

        return cached("codes", corpus.digest(cache=cache), settings, make, cache=cache)

    def _corpus(self, label: str | None) -> Corpus:
        return corpus_of(self.data, label)
