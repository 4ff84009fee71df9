"""A table of a finished run, read as a file of vectors is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from embexp.errors import CommandLineError


@dataclass(frozen=True)
class RunTable:
    """A table in memory.

    Attributes:
        values: float32 [rows, dim].
        tokens: what each row stands for; None where rows are known by number.
        files: none, as it is not read from one that could be overwritten.
    """

    values: np.ndarray
    tokens: pa.LargeStringArray | None
    files: tuple[Path, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.values)

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return int(self.values.shape[1])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, float32 [stop - start, dim]."""
        return self.values[start:stop]


def is_run(path: Path) -> bool:
    """Whether a path is the folder of a run."""
    return path.is_dir() and (path / "spec.json").exists()


def read(path: Path, table: str | None, *, whole: bool) -> RunTable:
    """Restores a table of a run, which takes TensorFlow.

    Args:
        path: folder of the run.
        table: name; None: the only one.
        whole: with the row of unknown values, and with numbers as tokens where ids are row numbers; False: only rows
            that a token stands for, and no tokens for row numbers.

    Raises:
        CommandLineError: it has to be said which table.
        RunError: there is no such table, or the run left no checkpoint.
    """
    from embexp.system import environment

    environment.load_tensorflow()
    from embexp.data.vocabulary import IdentityVocabulary
    from embexp.runs.finished import load_run

    run = load_run(path)
    tables = list(run.spec.tables)
    if table is None and len(tables) > 1:
        raise CommandLineError(f"{path} has several tables, say which with --table: {', '.join(tables)}")
    name = table or tables[0]
    values, vocabulary = run.table(name), run.vocabulary(name)
    if whole:
        return RunTable(values, pa.array(vocabulary.tokens(), pa.large_string()))
    if isinstance(vocabulary, IdentityVocabulary):
        return RunTable(values, None)
    # A table may have more rows than the data had values for: nothing stands for those.
    first = int(vocabulary.oov)
    tokens = pa.array(vocabulary.tokens(first), pa.large_string())
    return RunTable(values[first : vocabulary.size], tokens)
