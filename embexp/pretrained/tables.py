"""The rows that a run's tables take from its pretrained files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from embexp.specs.pretrained import Checkpoint, File
from embexp.vectors.alignment import Alignment, Coverage
from embexp.vectors.file_source import VectorSource


@dataclass(frozen=True)
class PretrainedTable:
    """A table that takes rows of a file, or of an earlier checkpoint.

    Attributes:
        setting: of the config, a sample with the path of its file.
        source: the file.
        alignment: the provenance of each row.
        coverage: how much of the vocabulary the file has.
        old: bool [rows], whether a row came from a checkpoint as a trained one; None: from a file.
        slots: of the table's optimizer, those that go with their rows, aligned as these are.
        notes: what the user should know about slots that don't.
    """

    setting: File | Checkpoint
    source: VectorSource
    alignment: Alignment
    coverage: Coverage
    old: np.ndarray | None = None
    slots: Mapping[str, VectorSource] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return len(self.alignment.kinds)


@dataclass(frozen=True)
class Pretrained:
    """The rows that a run's tables take from its pretrained files.

    Attributes:
        tables: those that take rows of a file.
        mismatches: why the top-level file does not fit a table, by table.
        digests: of each file's content, by the config path of its setting.
    """

    tables: Mapping[str, PretrainedTable] = field(default_factory=dict)
    mismatches: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    def pretrained_rows(self, table: str) -> np.ndarray | None:
        """Bool [rows]: whether a row of a table came from its file; None: the table has none."""
        return self.tables[table].alignment.pretrained if table in self.tables else None

    def old_rows(self, table: str) -> np.ndarray | None:
        """Bool [rows]: whether a row came from a checkpoint as a trained one; None: the table has none of these."""
        return self.tables[table].old if table in self.tables else None

    def __bool__(self) -> bool:
        """Whether any file was read."""
        return bool(self.digests)

    def as_json(self) -> dict[str, Any]:
        """The content of coverage.json."""
        tables = {
            name: {
                "path": table.setting.path,
                "digest": table.source.digest,
                "file_rows": table.source.rows,
                "file_dim": table.source.dim,
                "match": _match(table),
                "missing": table.setting.missing.value,
                "project": table.setting.project.value,
                **({} if table.old is None else {"slots": list(table.slots), "rows_old": int(table.old.sum())}),
                **table.coverage.as_json(),
            }
            for name, table in self.tables.items()
        }
        return {"tables": tables, "unfit": dict(self.mismatches)}


def _match(table: PretrainedTable) -> str:
    by_token = isinstance(table.setting, Checkpoint) or table.source.tokens is not None
    return table.setting.match.value if by_token else "position"
