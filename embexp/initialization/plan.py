"""Plans of tables: everything from which their variables are made and filled."""

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
from embexp.tables.learning_rates import RowGroups
from embexp.tables.mapped import MappedTable
from embexp.tables.row_engine import AnyTable
from embexp.tables.split import SplitTable
from embexp.tables.table import EmbeddingTable
from embexp.tables.tpu_tables import TPUTable


@dataclass(frozen=True)
class FileRows:
    """A mapped file that holds frozen rows of a table.

    Attributes:
        mapping: float32 [file rows, dim], see `MappedTable`.
        rows: integers [rows], the file's row for each row of the table, -1 where it has none.
        others: the table's rows; only those that the file lacks are read.
    """

    mapping: np.ndarray
    rows: np.ndarray
    others: Rows


@dataclass(frozen=True)
class TablePlan:
    """A table before its variables are made, in any graph and strategy.

    Attributes:
        name: the table's name.
        source: its initial values.
        init: its init method.
        combiner: how several rows of one example become one vector.
        optimizer: the optimizer of its rows; None: the whole table is frozen.
        storage: how its rows are stored.
        by_reference: its rows can be read again from their file, so no checkpoint holds them.
        groups: makes the groups of rows with their freeze schedules and learning rates; None: all rows are alike.
        frozen_rows: bool [rows], rows that never move; None: all rows are alike.
        file: the file that holds its frozen rows; None: a variable does.
        slots: values of slots from an earlier checkpoint, by slot.
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
        """Makes the table in the current graph, with untouched memory for the values to be filled.

        Args:
            initial_value: initial value of the variable instead, for a table in one part.
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
        """The table on a TPU, whose backend makes and fills it; rows that never move are always stored separately.

        Args:
            hosts: number of the TPU's hosts.
            chunk_bytes: largest chunk of initial values that is read at once.
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
