"""Which layout a table with frozen rows gets, where the config leaves it open."""

from __future__ import annotations

from embexp.specs.tables import Storage

_FLOAT_BYTES = 4
_INDEX_BYTES = 4
_WORTH_BYTES = 1 << 20
_WORTH_PART = 0.1


def saved_by_split(*, rows: int, dim: int, slots: int, frozen_rows: int) -> int:
    """Bytes that a split table takes less than a variable: slots of frozen rows, less the index that finds each row."""
    return _FLOAT_BYTES * dim * slots * frozen_rows - _INDEX_BYTES * rows


def automatic(*, rows: int, dim: int, slots: int, frozen_rows: int, splits: bool) -> Storage:
    """The layout of a table that is not mapped: split where that saves a tenth of its memory, and a megabyte.

    Args:
        rows: vocabulary size.
        dim: length of a row.
        slots: numbers that the optimizer keeps for each parameter.
        frozen_rows: rows that never move.
        splits: whether the init method and the runtime allow it.
    """
    saved = saved_by_split(rows=rows, dim=dim, slots=slots, frozen_rows=frozen_rows)
    whole = _FLOAT_BYTES * rows * dim * (1 + slots)
    worth = saved >= _WORTH_BYTES and saved >= _WORTH_PART * whole
    return Storage.SPLIT if splits and 0 < frozen_rows < rows and worth else Storage.VARIABLE
