"""The synthetic click log: drawn, not read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Columns
from embexp.data.sources.source import FORMAT, Description, Source, unknown_columns
from embexp.errors import Fault
from embexp.specs.data import Clicks
from embexp.system import caching, digests
from embexp.system.parallel import Progress

if TYPE_CHECKING:
    from embexp.data.examples import Encoded
    from embexp.data.vocabularies.vocabulary import Vocabulary

_DRAWN = {"examples", "users", "items", "rank", "history_length", "zipf", "signal", "seed"}
"""The settings of which the log is a function."""


@dataclass(frozen=True)
class ClickSource(Source):
    """Clicks of users on items."""

    no_other_file = "a synthetic click log can't be read from another file"

    data: Clicks

    def head_faults(self, columns: Columns) -> list[Fault]:
        """Columns and groups that the log lacks."""
        sizes = self._sizes()
        listed = f"{', '.join(sizes)} and {self.data.label_column}"
        rule = f"the synthetic click log has no such column; its columns are {listed}"
        faults = list(unknown_columns(columns, sizes, rule))
        group = self.data.split.group_column
        if group not in (None, "user", "item"):
            faults.append(Fault("data.split.group", repr(group), "clicks are grouped by user or item"))
        return faults

    def vocabulary_size(self, column: str) -> int | None:
        """Users, or items: ids are their numbers."""
        return self._sizes().get(column)

    def description(self) -> Description:
        """How many clicks, and the split."""
        return Description(f"{self.data.examples:,} synthetic clicks; {self.data.described_split()}")

    def digest(self, columns: Columns, *, cache: Path) -> str:
        """Of the settings that the log is drawn with."""
        return digests.of_json({"clicks": FORMAT, **self.data.model_dump(mode="json", include=_DRAWN)})

    def encode(self, columns: Columns, *, cache: Path, progress: Progress) -> Encoded:
        """Draws the log: all columns, whichever the run reads."""
        from embexp.data import click_log
        from embexp.data.examples import Encoded

        content = self.digest(columns, cache=cache)
        make = partial(click_log.write, self.data, progress=progress)
        return Encoded(caching.folder(cache, "clicks", content, make), content, content)

    def division_key(self) -> dict[str, Any]:
        """The split; vocabularies depend on nothing else."""
        return super().division_key() | {"vocabulary": None}

    def divide(self, encoded: Encoded, folder: Path) -> dict[str, Any]:
        """Writes splits, an example's position being its time; the truth is the best possible on the test split."""
        from embexp.data import click_log, splits
        from embexp.system.arrays import mapped_array

        layout, groups = encoded.layout, None
        if (group := self.data.split.group_column) is not None:
            groups = mapped_array(encoded.folder / "ids.npy")[:, layout.ids.index(group)]
        splits.divide(self.data, layout.count, folder, groups=groups)
        test = mapped_array(folder / "test.npy")
        labels, probability = (mapped_array(encoded.folder / f"{name}.npy")[test] for name in ("labels", "probability"))
        return {"truth": click_log.bayes(labels, probability)}

    def vocabularies(self, columns: Columns, encoded: Encoded, folder: Path) -> dict[str, Vocabulary]:
        """Numbers of users, and of items."""
        from embexp.data.vocabularies.vocabulary import IdentityVocabulary

        known = self._sizes()
        sizes: dict[str, int] = {}
        for column, table in columns.ids.items():
            sizes[table] = max(sizes.get(table, 0), known[column])
        return {table: IdentityVocabulary(size) for table, size in sizes.items()}

    def _sizes(self) -> dict[str, int]:
        """Id column -> how many ids it may hold."""
        return {"user": self.data.users, "item": self.data.items, "history": self.data.items}
