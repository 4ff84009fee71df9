"""What the folder of a finished run holds, without its model and TensorFlow: tables, fitted numbers, its code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from embexp.data import numbers
from embexp.data.columns import Columns
from embexp.data.numbers import FittedColumn
from embexp.errors import DataError
from embexp.freezing.policies import RowFacts
from embexp.pretrained import earlier
from embexp.pretrained.aligned import earlier_rows, pretrained_before
from embexp.pretrained.tables import settings_of
from embexp.records.folder import RunFolder
from embexp.runs.prepare import PreparedTables, prepare_tables
from embexp.specs.freezing import FreezeTable, NoFreeze
from embexp.specs.inits import Assign, MemoryMap
from embexp.specs.pretrained import NoPretrained
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage
from embexp.system import caching, digests, user_code


def read_table(folder: RunFolder, table: str, *, cache: str | None) -> np.ndarray:
    """The final rows of a table, float32 [vocabulary_size, dim], in memory.

    Args:
        cache: see `output.cache` of the config.

    Raises:
        NotARunError: the run left no checkpoint.
        DataError: the checkpoint is damaged.
        RunError: the rows are in a pretrained file, which has changed.
    """
    source = earlier_rows(earlier.open_run(folder.path, cache=caching.cache_folder(cache)), table)
    values = np.empty((source.rows, source.dim), np.float32)
    for start in range(0, source.rows, digests.ROWS_PER_BLOCK):
        stop = min(start + digests.ROWS_PER_BLOCK, source.rows)
        values[start:stop] = source.read(start, stop)
    return values


def fitted_numbers(folder: RunFolder, columns: Columns) -> tuple[FittedColumn, ...]:
    """The numeric columns, in the order in which the model gets them; empty: all are used as they are.

    Raises:
        DataError: the file is missing or damaged, or is that of another run.
    """
    settings = columns.dense_settings
    if all(each.plain for each in settings.values()):
        return ()
    folder.check(folder.numbers)
    found = numbers.read(folder.numbers)
    wanted = [(name, each.transforms, each.may_be_missing, each.indicator) for name, each in settings.items()]
    if [(each.name, each.transforms, each.fill is not None, each.indicator) for each in found] != wanted:
        raise DataError(
            f"{folder.numbers} has other numeric columns than data.dense_features of the run: it is that of another"
            " run; put the one back with which the run was trained"
        )
    return found


def import_sentences(folder: RunFolder, functions: Iterable[str]) -> list[str]:
    """From where the code is imported that a recorded spec names, and whether it is still what the run has recorded."""
    found = []
    for file in user_code.read_user_code(*functions).files.values():
        copy = folder.code / file.name
        state = "" if not copy.is_file() or copy.read_bytes() == file.content else f"; it differs from {copy}"
        found.append(f"code: {file.path}{state}")
    return found


def restored_tables(folder: RunFolder, spec: RunSpec, summary: Mapping[str, Any]) -> PreparedTables:
    """Prepares the tables of a finished run for the function runtime.

    Raises:
        RunError: a pretrained file of the run has changed.
    """
    initialized, tables = summary["initialization"]["tables"], summary["tables"]
    # A table counts as pretrained only if its file had rows for it.
    spec = spec.settled({}, [name for name in spec.tables if initialized[name]["pretrained"] is None])
    settings = {name: each for name, each in settings_of(spec).items() if spec.kept_by_reference(name)}
    pretrained = pretrained_before(folder, settings, summary, cache=caching.cache_folder(spec.output.cache))
    facts = {
        name: RowFacts(known["vocabulary_size"], None, pretrained.pretrained_rows(name), pretrained.old_rows(name))
        for name, known in tables.items()
    }
    # The init method no longer matters: a checkpoint or a file has the values. Nor does the storage, which checkpoints
    # don't record. Which rows were frozen matters only if all were, as the table then has no slots.
    unsplit = {
        name: table.model_copy(
            update={
                "dim": tables[name]["dim"],
                "init": MemoryMap()
                if isinstance(spec.init_of(name), MemoryMap) and spec.kept_by_reference(name)
                else Assign(),
                "freeze": FreezeTable() if not summary["freeze"][name]["trainable_rows"] else NoFreeze(),
                "storage": Storage.AUTO,
                **({} if spec.kept_by_reference(name) else {"pretrained": NoPretrained()}),
            }
        )
        for name, table in spec.tables.items()
    }
    settled = spec.model_copy(update={"tables": unsplit})
    return prepare_tables(settled, facts, pretrained, steps_per_epoch=1.0, runtime=RuntimeKind.FUNCTION)
