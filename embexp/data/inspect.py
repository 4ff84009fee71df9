"""A look at the data before anything starts: without TensorFlow, at the header and the first 1,000 lines."""

from __future__ import annotations

import itertools
from pathlib import Path

from embexp.data.columns import CLICK, PAIRS, WORDS, Columns
from embexp.data.corpus import Corpus
from embexp.data.files import ParquetTable, Source, Unreadable, locate
from embexp.data.text_table import TextTable, first_fault
from embexp.data.triple_files import files_of, lines_of
from embexp.data.wanted import Wanted, timestamp_faults, wanted
from embexp.errors import DataError, Fault
from embexp.specs.data import CANDIDATES, RELATION, SOURCE, Clicks, Columnar, Data, SkipGram, SplitKind, Text, Triples

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
    if isinstance(data, Triples):
        return _triples(data, columns)
    if not isinstance(data, Columnar):
        return faults + _texts(data, columns)
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


def _texts(data: Text | SkipGram, columns: Columns) -> list[Fault]:
    pairs = isinstance(data, SkipGram)
    names = PAIRS if pairs else (WORDS,)
    what = "pairs of words have" if pairs else "texts have"
    listed = f"the columns are {' and '.join(names)}" if pairs else f"the one column is {WORDS}"
    faults = [
        Fault(columns.asked_by.get(name, "features"), repr(name), f"{what} no such column; {listed}")
        for name in (*columns.ids, *columns.weights)
        if name not in names
    ]
    if pairs:
        faults += [
            Fault(need.path, need.value, f"column {name!r} holds one id per example, {need.why}", "leave it out")
            for name in names
            for need in columns.several.get(name, ())
        ]
    own = None if data.path is None else Path(data.path)
    corpus = Corpus(own, data.text, data.label if isinstance(data, Text) else None)
    if own is None:
        return faults
    try:
        corpus.files()
        for _ in itertools.islice(corpus.texts(), HEAD_LINES):
            pass
    except Unreadable as unreadable:
        faults += unreadable.faults
    except DataError as error:
        faults.append(Fault("data.path", repr(str(own)), str(error)))
    return faults


def _triples(data: Triples, columns: Columns) -> list[Fault]:
    names = (SOURCE, RELATION, CANDIDATES)
    rule = f"a knowledge graph's questions have no such column; the columns are {', '.join(names)}"
    faults = [
        Fault(columns.asked_by.get(name, "features"), repr(name), rule)
        for name in (*columns.ids, *columns.weights)
        if name not in names
    ]
    faults += [
        Fault(need.path, need.value, f"column {name!r} holds no lists, {need.why}", "leave it out")
        for name in names
        for need in columns.several.get(name, ())
    ]
    try:
        for file in files_of(Path(data.path)):
            for _ in itertools.islice(lines_of(file), HEAD_LINES):
                pass
    except Unreadable as unreadable:
        faults += unreadable.faults
    except DataError as error:
        faults.append(Fault("data.path", repr(data.path), str(error)))
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
