"""A table of a finished run, as a source of vectors."""

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
        tokens: of each row; None where rows are identified by number.
        files: empty; a `FileSource` lists the files that it reads.
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
    """Whether a path is the directory of a run."""
    return path.is_dir() and (path / "spec.json").exists()


def read(path: Path, table: str | None, *, whole: bool) -> RunTable:
    """Restores a table of a run. Loads TensorFlow.

    Args:
        path: directory of the run.
        table: name; None: the only one.
        whole: all rows, the OOV row included, with row numbers as tokens where ids are row numbers; False: only rows
            that have a token, and no tokens where ids are row numbers.

    Raises:
        CommandLineError: the run has several tables, and `table` is None.
        RunError: there is no such table, or the run has no checkpoint.
    """
    from embexp.system import environment

    environment.load_tensorflow()
    from embexp.data.vocabulary import IdentityVocabulary
    from embexp.runs.finished import load_run

    run = load_run(path)
    tables = list(run.spec.tables)
    if table is None and len(tables) > 1:
        raise CommandLineError(f"{path} has several tables, choose one with --table: {', '.join(tables)}")
    name = table or tables[0]
    values, vocabulary = run.table(name), run.vocabulary(name)
    if whole:
        return RunTable(values, pa.array(vocabulary.tokens(), pa.large_string()))
    if isinstance(vocabulary, IdentityVocabulary):
        return RunTable(values, None)
    # A table may have more rows than its vocabulary: the rest have no token.
    first = int(vocabulary.oov)
    tokens = pa.array(vocabulary.tokens(first), pa.large_string())
    return RunTable(values[first : vocabulary.size], tokens)
