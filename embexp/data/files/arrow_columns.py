"""Columns of tokens and of numbers as Arrow has them: flattened, converted and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.columns import NUMBER, Wanted


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a file.

    Attributes:
        done: fraction of the file that has been read with them, 0 to 1.
        tokens: Arrow arrays, or lists of them, of columns that are read as tokens, by name.
        numbers: float64, or lists of it, of columns that are read as numbers, by name.
    """

    count: int
    done: float
    tokens: dict[str, pa.Array]
    numbers: dict[str, pa.Array]

    def after(self, rows: int) -> Block:
        """The block without its first rows."""
        if not rows:
            return self
        tokens, numbers = (
            {name: array.slice(rows) for name, array in columns.items()} for columns in (self.tokens, self.numbers)
        )
        return Block(self.count - rows, self.done, tokens, numbers)


@dataclass(frozen=True)
class Column:
    """Values of consecutive examples.

    Attributes:
        values: the values of all examples, one after the other: Arrow text, integers or dictionary where they are
            tokens, float64 NumPy where they are numbers.
        splits: int64 [examples + 1], where each example's values begin; None: each has one.
    """

    values: Any
    splits: np.ndarray | None


class BadValue(Exception):  # noqa: N818 - turned into a DataError that names the line
    """A value that can't be read, in the example `row` of its chunk."""

    def __init__(self, row: int, found: str, expected: str) -> None:
        super().__init__(found)
        self.row, self.found, self.expected = row, found, expected


def split_lists(array: pa.Array, separator: str) -> pa.Array:
    """Text -> list of its parts that are not empty."""
    lists = flat(pc.split_pattern(array, separator))
    kept = pc.not_equal(lists.values, "")
    places = np.concatenate([[0], np.cumsum(kept.to_numpy(zero_copy_only=False))])
    return pa.LargeListArray.from_arrays(pa.array(places[lists.splits]), lists.values.filter(kept))


def as_float64(array: pa.Array) -> pa.Array:
    """Numbers, or lists of numbers, as float64, or as lists of it."""
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = flat(array)
        return pa.LargeListArray.from_arrays(pa.array(inner.splits), as_float64(inner.values))
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    elif pa.types.is_string(kind):
        array = pc.utf8_trim_whitespace(array)
    return array.cast(pa.float64(), safe=False)


def flat(array: pa.Array) -> Column:
    """The values of all rows one after the other, and where each row's begin if it holds lists."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        array = array.cast(pa.large_list(kind.value_type))
    elif not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return Column(array, None)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    splits = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    return Column(array.flatten(), splits)


def row_splits(tokens: Mapping[str, pa.Array]) -> dict[str, np.ndarray | None]:
    """int64 [rows + 1] of each column that holds lists, see `Column.splits`."""
    return {name: flat(array).splits for name, array in tokens.items()}


def finite_numbers(
    numbers: Mapping[str, pa.Array], wanted: Sequence[Wanted], ids: Mapping[str, np.ndarray | None]
) -> dict[str, Column]:
    """The number columns, every value finite, or NaN where it may be missing; weights as many as ids."""
    result = {}
    for one in wanted:
        if not one.numbers:
            continue
        column = flat(numbers[one.name])
        values = column.values.to_numpy(zero_copy_only=False)  # a null becomes NaN
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = values.astype(np.float32)
        bad = np.flatnonzero(np.isinf(rounded) if one.may_be_missing else ~np.isfinite(rounded))
        if bad.size:
            place = int(bad[0])
            row = place if column.splits is None else int(np.searchsorted(column.splits, place, "right")) - 1
            found = column.values[place].as_py()
            raise BadValue(row, f"{'nothing' if found is None else found} in column {one.name!r}", NUMBER)
        if one.weighs is not None and column.splits is not None and (splits := ids.get(one.weighs)) is not None:
            unequal = np.flatnonzero(np.diff(column.splits) != np.diff(splits))
            if unequal.size:
                row = int(unequal[0])
                raise BadValue(
                    row,
                    f"{int(np.diff(column.splits)[row])} weights in column {one.name!r}",
                    f"{int(np.diff(splits)[row])}, one for each value in column {one.weighs!r}",
                )
        result[one.name] = Column(values, column.splits)
    return result
