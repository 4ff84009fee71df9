"""A table before its variables are made: all that they are made and filled from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from embexp.initialization.method import CHUNK_BYTES
from embexp.specs.inits import Init
from embexp.specs.optimizers import TableOptimizer
from embexp.specs.tables import Combiner, Storage
from embexp.system.rows import MappableRows, Rows
from embexp.tables import optimizers
from embexp.tables.groups import RowGroups
from embexp.tables.mapped import MappedTable
from embexp.tables.row_engine import AnyTable
from embexp.tables.split import SplitTable
from embexp.tables.table import EmbeddingTable
from embexp.tables.tpu_tables import TPUTable


@dataclass(frozen=True)
class FileRows:
    """A mapped file in which frozen rows of a table stay.

    Attributes:
        mapping: float32 [file rows, dim], see `MappedTable`.
        rows: integers [rows], the row of the file that is each row of the table, -1 where it has none.
        others: the table's rows; only those that the file lacks are read.
    """

    mapping: np.ndarray
    rows: np.ndarray
    others: Rows


@dataclass(frozen=True)
class TablePlan:
    """What becomes of a table, in whatever graph and strategy its variables are made.

    Attributes:
        name: of the table.
        source: its initial values.
        init: how they get in.
        combiner: how several rows of one example become one vector.
        optimizer: of the rows that may move; None: none may.
        storage: how the rows are kept.
        by_reference: the rows can be had again from their file, so no checkpoint holds them.
        groups: makes what says which rows move when, and how fast; None: all rows are alike.
        frozen_rows: bool [rows], rows that never move; None: all rows are alike in this.
        file: in which frozen rows stay; None: they are copied out of their file.
        slots: values of slots that an earlier checkpoint has, by slot.
    """

    name: str
    source: MappableRows
    init: Init
    combiner: Combiner = Combiner.MEAN
    optimizer: TableOptimizer | None = None
    storage: Storage = Storage.VARIABLE
    by_reference: bool = False
    groups: Callable[[], RowGroups] | None = None
    frozen_rows: np.ndarray | None = None
    file: FileRows | None = None
    slots: Mapping[str, MappableRows] = field(default_factory=dict)

    def variables(self, initial_value: Callable[..., Any] | None = None) -> AnyTable:
        """Makes the table in the graph that is current; what is to be filled is memory that nothing has touched.

        Args:
            initial_value: what the variable of a table in one part is made with instead.
        """
        rows, dim, file = self.source.rows, self.source.dim, self.file
        if file is not None and self.optimizer is None:
            return MappedTable(self.name, file.mapping, file.rows, file.others, combiner=self.combiner)
        slots = {} if self.optimizer is None else optimizers.slots_of(self.optimizer)
        groups = None if self.groups is None else self.groups()
        if groups is not None and self.storage in (Storage.SPLIT, Storage.MEMORY_MAP):
            return SplitTable(
                self.name,
                groups,
                dim,
                mapping=None if file is None else file.mapping,
                file_rows=None if file is None else file.rows,
                combiner=self.combiner,
                slots=slots,
            )
        return EmbeddingTable(
            self.name,
            rows,
            dim,
            combiner=self.combiner,
            slots=slots,
            frozen=self.optimizer is None,
            by_reference=self.by_reference,
            initial_value=initial_value,
            groups=groups,
        )

    def on_tpu(self, hosts: int, chunk_bytes: int = CHUNK_BYTES) -> TPUTable:
        """Says what a TPU is to hold of the table; its backend makes and fills it.

        Rows that never move are kept apart, always.

        Args:
            hosts: machines over which the TPU spreads its tables.
            chunk_bytes: largest piece of initial values that is read at once.
        """
        return TPUTable(
            self.name,
            self.source,
            self.source.rows,
            self.source.dim,
            combiner=self.combiner,
            optimizer=self.optimizer,
            frozen_rows=self.frozen_rows,
            by_reference=self.by_reference,
            hosts=hosts,
            chunk_bytes=chunk_bytes,
        )
