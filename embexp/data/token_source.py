"""Sources of tokens, whose vocabularies are made from the training split."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.data.columns import Columns
from embexp.data.source import Source
from embexp.system.progress import Progress

if TYPE_CHECKING:
    from embexp.data.examples import Encoded, Examples
    from embexp.data.vocabulary import Vocabulary


class TokenSource(Source):
    """A source whose `encode` writes codes of tokens, and whose `divide` calls `rows.learn`."""

    @abstractmethod
    def encode_other(
        self, path: Path, columns: Columns, *, classes: Sequence[str], cache: Path, progress: Progress
    ) -> Encoded:
        """Codes of the tokens of another file, or folder, of the same form; see `Source.encode_file`."""

    def vocabularies(self, columns: Columns, encoded: Encoded, folder: Path) -> dict[str, Vocabulary]:
        """Those that `divide` made from the training split."""
        from embexp.data import rows

        return rows.learned(encoded, folder)

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
        return rows.numbered(encoded, vocabularies, cache=cache)
