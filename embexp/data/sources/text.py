"""Labelled texts, as words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Columns
from embexp.data.sources.columnar import TokenSource
from embexp.data.sources.source import FORMAT, Description, Division, split_key, unknown_columns
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

    def encode(self, columns: Columns, *, cache: Path, progress: Progress) -> Encoded:
        """Words as codes, classes as numbers."""
        if faults := user_faults(self.data.split):
            raise ConfigError(faults)
        return self._encode(self._corpus(columns.label), columns, [], cache=cache, progress=progress)

    def division_key(self) -> Mapping[str, Any]:
        """The split, and how many examples train."""
        return split_key(self.data) | {"train_examples": self.data.train_examples}

    def divide(self, encoded: Encoded, folder: Path, *, progress: Progress) -> Division:
        """Writes splits."""
        from embexp.data import splits

        splits.divide(self.data, encoded.layout.count, folder)
        return Division()

    def learn(self, columns: Columns, encoded: Encoded, folder: Path, *, progress: Progress) -> None:
        """Writes vocabularies and rows, before the training split is cut down."""
        from embexp.data import splits

        super().learn(columns, encoded, folder, progress=progress)
        if self.data.train_examples is not None:
            splits.keep_some(folder / "train.npy", self.data.train_examples, seed=self.data.split.seed)

    def encode_other(
        self, path: Path, columns: Columns, *, classes: Sequence[str], cache: Path, progress: Progress
    ) -> Encoded:
        """Texts in any of the forms, of the run's classes."""
        corpus = replace(self._corpus(columns.label), path=path)
        return self._encode(corpus, columns, classes, cache=cache, progress=progress)

    def _corpus(self, label: str | None) -> Corpus:
        return corpus_of(self.data, label)

    def _encode(
        self, corpus: Corpus, columns: Columns, classes: Sequence[str], *, cache: Path, progress: Progress
    ) -> Encoded:
        """Encodes texts; without `classes` these follow from the labels."""
        from embexp.data import text_examples
        from embexp.data.examples import CLASSES, Encoded, encode
        from embexp.system import caching, digests

        content = corpus.digest(cache=cache)
        key = digests.of_json(
            {
                "format": FORMAT,
                "content": content,
                "kind": self.data.kind,
                **corpus.settings(),
                "ids": list(columns.ids.items()),
                "label": columns.label,
                "max_length": self.data.max_length,
                "classes": list(classes),
            }
        )

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

        return Encoded(caching.folder(cache, "codes", key, make), key, content)
