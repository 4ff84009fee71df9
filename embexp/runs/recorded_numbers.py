"""What a finished run fitted to its numeric columns, from its folder. No TensorFlow."""

from __future__ import annotations

from embexp.data import numbers
from embexp.data.columns import Columns
from embexp.data.numbers import FittedColumn
from embexp.errors import DataError
from embexp.records.folder import RunFolder


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
