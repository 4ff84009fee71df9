"""Histories of users, from rows of interactions. At the top, neither NumPy nor Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Columns
from embexp.data.sources import csv
from embexp.data.sources.columnar import ColumnarSource
from embexp.data.sources.source import Description, OtherFile, Source, cached, single_columns, unknown_columns
from embexp.errors import Fault
from embexp.specs.tasks import CANDIDATES
from embexp.system.parallel import Progress
from embexp_sequences.specs import HISTORY, LENGTH, Sequences

if TYPE_CHECKING:
    from embexp.data.examples import Encoded, Examples
    from embexp.data.vocabularies.vocabulary import Vocabulary

VOCABULARY = "items"
"""Stem of the file, in the folder, with the items."""


@dataclass(frozen=True)
class SequenceSource(Source):
    """Histories of users, and the items that follow them."""

    data: Sequences
    unit = ("users", 1)
    answers = True

    def head_faults(self, columns: Columns) -> list[Fault]:
        """Columns that histories lack, and what is wrong with the rows."""
        rule = f"histories have no such column; the columns are {HISTORY}, {CANDIDATES} and {LENGTH}"
        unknown = unknown_columns(columns, (HISTORY, CANDIDATES, LENGTH), rule)
        single = single_columns(columns, (CANDIDATES,), "no lists")
        return [*unknown, *single, *self.rows(self.data.path).head_faults(self.read)]

    def description(self) -> Description:
        """The file and the split."""
        text = f"sequences {self.data.path}; each user's last item tests, the one before validates"
        return Description(text, ids_per_example={CANDIDATES: "all"})

    def digest(self, columns: Columns, *, cache: Path) -> str:
        """Of the bytes of the file."""
        return self.rows(self.data.path).digest(self.read, cache=cache)

    def encode(self, columns: Columns, *, cache: Path, progress: Progress) -> Encoded:
        """A history for each user and split; ids are rows already."""
        from embexp_sequences import histories

        def make(folder: Path) -> None:
            histories.write(histories.read(self, self.data.path, progress), folder)

        return cached("sequences", self.digest(columns, cache=cache), self._form, make, cache=cache)

    def division_key(self) -> dict[str, Any]:
        """Nothing: what divides histories is in them."""
        return {}

    def divide(self, encoded: Encoded, folder: Path) -> dict[str, Any]:
        """Writes splits."""
        from embexp.data import splits

        splits.write(splits.in_order([count for _, count in encoded.layout.files]), encoded.layout.count, folder)
        return {}

    def vocabularies(self, columns: Columns, encoded: Encoded, folder: Path) -> dict[str, Vocabulary]:
        """The one of items."""
        from embexp.data.vocabularies.vocabulary import Vocabulary

        return dict.fromkeys(columns.ids.values(), Vocabulary.read(encoded.folder / VOCABULARY))

    def encode_file(self, file: OtherFile, columns: Columns, *, cache: Path, progress: Progress) -> Examples:
        """The histories of another file, without items that the run does not know; their last items are answers."""
        from embexp.data.examples import examples
        from embexp_sequences import histories

        known, labelled = file.vocabularies[columns.ids[HISTORY]], columns.label is not None

        def make(folder: Path) -> None:
            histories.write_known(histories.read(self, str(file.path), progress), known, folder, labelled=labelled)

        content = self.rows(str(file.path)).digest(self.read, cache=cache)
        settings = {**self._form, "vocabulary": known.digest, "labelled": labelled}
        made = cached("sequences", content, settings, make, cache=cache).folder
        return examples(made, made)

    def read_columns(self, path: Path, names: Sequence[str]) -> dict[str, list[str]]:
        """The users of another file."""
        from embexp.system.parallel import quiet
        from embexp_sequences import histories

        if set(names) != {self.data.user}:
            return super().read_columns(path, names)
        return {self.data.user: histories.read(self, str(path), quiet).users}

    def rows(self, path: str) -> ColumnarSource:
        """The rows of a file."""
        return csv.source(self.data.interactions(path))

    @property
    def read(self) -> Columns:
        """What is read of each row, beside the time."""
        names = (self.data.user, self.data.item)
        paths = {name: f"data.{key}" for name, key in zip(names, ("user", "item"), strict=True)}
        return Columns(ids={name: name for name in names}, asked_by=paths)

    @property
    def _form(self) -> dict[str, Any]:
        return self.data.model_dump(mode="json", exclude={"path", "rank_seen", "shuffle", "window"})
