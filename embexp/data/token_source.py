"""Sources of tokens, whose vocabularies are made from the training split."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Columns
from embexp.data.source import Source
from embexp.specs.data import Columnar
from embexp.specs.texts import Text
from embexp.specs.vocabularies import VocabularyRules
from embexp.system.progress import Progress

if TYPE_CHECKING:
    from embexp.data.examples import Encoded, Examples
    from embexp.data.vocabulary import Vocabulary


class TokenSource(Source):
    """A source whose `encode` writes codes of tokens, and perhaps numbers for buckets.

    Attributes:
        data: its settings.
    """

    data: Columnar | Text

    def learning_key(self, columns: Columns) -> Mapping[str, Any]:
        """The rules of vocabularies, and buckets."""
        rules = {table: self._rules(columns, table).model_dump(mode="json") for table in columns.ids.values()}
        buckets = [
            [name, each.column, each.table, each.settings.model_dump(mode="json")]
            for name, each in columns.buckets.items()
        ]
        return {"vocabularies": rules, **({"buckets": buckets} if buckets else {})}

    def learn(self, columns: Columns, encoded: Encoded, folder: Path, *, progress: Progress) -> None:
        """Writes vocabularies and rows."""
        from embexp.data import rows

        rules = {table: self._rules(columns, table) for table in encoded.layout.token_tables}
        rows.learn(encoded, rules, columns.buckets, folder, progress=progress)

    def _rules(self, columns: Columns, table: str) -> VocabularyRules:
        return columns.rules.get(table, self.data.vocabulary)

    @abstractmethod
    def encode_other(
        self, path: Path, columns: Columns, *, classes: Sequence[str], cache: Path, progress: Progress
    ) -> Encoded:
        """Codes of the tokens of another file, or folder, of the same form; see `Source.encode_file`."""

    def vocabularies(self, columns: Columns, encoded: Encoded, folder: Path) -> dict[str, Vocabulary]:
        """Those that `learn` made from the training split."""
        from embexp.data import rows

        return rows.learned(encoded, columns.buckets, folder)

    def encode_file(
        self,
        path: Path,
        columns: Columns,
        vocabularies: Mapping[str, Vocabulary],
        *,
        classes: Sequence[str],
        cache: Path,
        progress: Progress,
    ) -> Examples:
        """The codes of the other file, as rows of the run's tables."""
        from embexp.data import rows

        encoded = self.encode_other(path, columns, classes=classes, cache=cache, progress=progress)
        return rows.numbered(encoded, vocabularies, columns.buckets, cache=cache)
