"""A table of a finished run, as a source of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from embexp.errors import CommandLineError, UsageError


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


def read(path: Path, table: str | None, *, whole: bool, allow_code: Sequence[str] = ()) -> RunTable:
    """Reads a table of a run: of a finished one from its checkpoint, without its model and TensorFlow.

    Args:
        path: directory of the run.
        table: name; None: the only one.
        whole: all rows, the OOV row included, with row numbers as tokens where ids are row numbers; False: only rows
            that have a token, and no tokens where ids are row numbers.
        allow_code: functions that the spec of a run that has not ended may run.

    Raises:
        CommandLineError: the run has several tables, and `table` is None.
        UsageError: the run has no such table; or it has not ended, and its model is code that isn't allowed.
        RunError: the run has no checkpoint.
    """
    from embexp.data.vocabularies.buckets import stands_for_tokens
    from embexp.data.vocabularies.vocabulary import IdentityVocabulary, Vocabulary
    from embexp.records.folder import RunFolder
    from embexp.runs import recorded

    folder = RunFolder(path)
    folder.check(folder.spec)
    spec = folder.read_spec()
    tables = list(spec.tables)
    if table is None and len(tables) > 1:
        raise CommandLineError(f"{path} has several tables, choose one with --table: {', '.join(tables)}")
    name = table or tables[0]
    if name not in tables:
        raise UsageError(f"{path} has no table {name!r}; its tables are {', '.join(tables)}")
    if folder.summary.exists():
        values = recorded.read_table(folder, spec, name)
    else:
        from embexp.cli.finished import load_finished

        values = load_finished(str(path), "vectors", allow_code=allow_code).table(name)
    vocabulary = Vocabulary.read(folder.checked_vocabulary(name))
    if whole:
        return RunTable(values, pa.array(vocabulary.tokens(), pa.large_string()))
    if isinstance(vocabulary, IdentityVocabulary):
        return RunTable(values, None)
    # A table may have more rows than its vocabulary: the rest have no token.
    first = vocabulary.first if stands_for_tokens(vocabulary) else 0
    tokens = pa.array(vocabulary.tokens(first), pa.large_string())
    return RunTable(values[first : vocabulary.size], tokens)
