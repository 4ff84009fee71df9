"""A look at the data before anything starts: without TensorFlow, at the header and the first 1,000 lines."""

from __future__ import annotations

from embexp.data.columns import CLICK, Columns
from embexp.data.located import ParquetTable, Source, Unreadable, locate
from embexp.data.text import TextTable, first_fault
from embexp.data.wanted import Wanted, timestamp_faults, wanted
from embexp.errors import Fault
from embexp.specs.data import Clicks, Data, SplitKind

HEAD_LINES = 1_000
CLICKS_IDS = ("user", "item", "history")


def head_faults(data: Data, columns: Columns) -> list[Fault]:
    """What is wrong with the data, as far as its header and first 1,000 lines tell.

    A path that is missing or holds nothing; every missing column; contradictions between the split and the columns;
    the first malformed line of each file.
    """
    if isinstance(data, Clicks):
        return _clicks(data, columns)
    faults = timestamp_faults(data)
    needed = wanted(data, columns, divided=True)
    try:
        source = locate(data, needed)
    except Unreadable as unreadable:
        return faults + unreadable.faults
    return faults + _heads(source, needed)


def _heads(source: Source, needed: tuple[Wanted, ...]) -> list[Fault]:
    faults = []
    for table in (*source.tables, *(side.table for side in source.sides)):
        beside = table not in source.tables
        here = [one for one in needed if not beside or one.name in (source.side_of or {})]
        match table:
            case TextTable():
                wrong = first_fault(table, here, lines=HEAD_LINES + 1)
                if wrong is not None:
                    faults.append(
                        Fault(
                            "data.path",
                            repr(str(wrong.path)),
                            f"line {wrong.line}: found {wrong.found}, expected {wrong.expected}",
                        )
                    )
            case ParquetTable():
                from embexp.data.readers import parquet_head_fault

                if text := parquet_head_fault(table, here, rows=HEAD_LINES):
                    faults.append(Fault("data.path", repr(str(table.path)), text))
    return faults


def _clicks(data: Clicks, columns: Columns) -> list[Fault]:
    faults = [
        Fault(
            columns.asked_by.get(name, "features"),
            repr(name),
            f"the synthetic click log has no such column; its columns are {', '.join(CLICKS_IDS)} and {CLICK}",
        )
        for name in (*columns.ids, *columns.weights, *columns.dense)
        if name not in CLICKS_IDS
    ]
    if data.split.kind is SplitKind.LEAVE_ONE_OUT and data.split.group not in ("user", "item"):
        faults.append(Fault("data.split.group", repr(data.split.group), "clicks are grouped by user or item"))
    return faults
