"""The rows that a run's tables take from its pretrained files, and their initial values in all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np

from embexp.errors import RunError
from embexp.specs.pretrained import Checkpoint, File, MissingRows, Project
from embexp.specs.tables import Constant, Initializer, Normal, Table, Uniform
from embexp.system.arrays import MappableRows, Rows
from embexp.vectors import projection
from embexp.vectors.alignment import Alignment, Coverage
from embexp.vectors.file_source import VectorSource
from embexp.vectors.initial_rows import AlignedRows, InitializerRows, like_the_file


@dataclass(frozen=True)
class PretrainedTable:
    """A table that takes rows of a file, or of an earlier checkpoint.

    Attributes:
        setting: of the config, a sample with the path of its file.
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


def row_source(name: str, table: Table, rows: int, seed: int, pretrained: PretrainedTable | None) -> MappableRows:
    """The initial values of a table.

    Args:
        pretrained: the rows that it takes from a file; None: none.
    """
    if pretrained is None:
        return InitializerRows(table.initializer, rows=rows, dim=table.width, seed=seed, table=name)
    projected = projection.fit(pretrained.setting.project, pretrained.source, table.width)
    fill = pretrained.setting.missing
    if not np.any(pretrained.alignment.file_rows < 0):
        fill = MissingRows.ZEROS  # nothing is missing: nothing to take a mean for
    drawn: Initializer
    match fill:
        case MissingRows.INITIALIZER:
            drawn = table.initializer
        case MissingRows.ZEROS | MissingRows.MEAN:
            drawn = Constant(value=0.0)
        case MissingRows.NORMAL:
            drawn = Normal(stddev=1.0)
        case MissingRows.UNIFORM:
            drawn = Uniform(scale=math.sqrt(3))  # of variance 1
        case _:
            assert_never(fill)
    others: Rows = InitializerRows(drawn, rows=rows, dim=table.width, seed=seed, table=name)
    if fill in (MissingRows.MEAN, MissingRows.NORMAL, MissingRows.UNIFORM):
        others = like_the_file(others, pretrained.source, projected)
    return AlignedRows(pretrained.source, pretrained.alignment, others, projected)


def beside_file(rows: MappableRows) -> Rows:
    """The initial values that are not in a table's file; reads nothing of the file."""
    return rows.missing if isinstance(rows, AlignedRows) else rows


def slot_sources(name: str, pretrained: PretrainedTable, initial: Mapping[str, float]) -> dict[str, MappableRows]:
    """Initial values of the slots that go with their rows; slots of other rows begin at the optimizer's value.

    Args:
        pretrained: the rows that it takes from an earlier checkpoint.
        initial: value of each slot of the table's optimizer before the first step.
    """
    return {
        slot: AlignedRows(
            source,
            pretrained.alignment,
            InitializerRows(Constant(value=initial[slot]), rows=pretrained.rows, dim=source.dim, seed=0, table=name),
        )
        for slot, source in pretrained.slots.items()
    }


def mapping_of(name: str, pretrained: PretrainedTable) -> np.ndarray:
    """The rows of a table as one mapping of its file, float32 [rows of the file, dim].

    Raises:
        RunError: its rows can't be mapped from the file.
    """
    mapping, setting = pretrained.source.memory_map(), pretrained.setting
    if mapping is None and isinstance(setting, Checkpoint):
        raise RunError(
            f"tables.{name}.init = memory_map: the rows of {setting.path} are not in its checkpoint but in the"
            " file that the table was made from, in another form; choose init=assign"
        )
    if mapping is None or setting.project is not Project.NONE:
        raise RunError(
            f"tables.{name}.init = memory_map: rows of {setting.path} must be projected"
            f" (pretrained.project={setting.project.value}) before they fit, so they can't stay in the file;"
            " write them to a file first with embexp vectors convert, or choose init=assign"
        )
    return mapping
