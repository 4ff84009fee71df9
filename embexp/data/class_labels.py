"""Labels that are names of classes, such as `yes` and `no`, or `cat`, `cow` and `dog`, as numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.columns import SKIP_UNLABELLED, ClassNames
from embexp.data.examples import CLASSES, Layout
from embexp.data.files.dialect import NULLS
from embexp.data.files.text_table import is_number
from embexp.errors import DataError, excerpt
from embexp.specs.base import summarize_names
from embexp.specs.data import POSITIVE

_MOST_CLASSES = 10_000
"""More different labels are a mistake, such as an amount for task classification."""
_MISSING = -1
_ROWS = 1 << 20


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Names of classes, each once: by number if all are whole numbers, else by code point."""
    distinct = set(names)
    if not all(name.isascii() and name.isdigit() for name in distinct):
        return tuple(sorted(distinct))
    # As numbers, but not by `int`, which takes none of thousands of digits.
    return tuple(sorted(distinct, key=lambda name: (len(name.lstrip("0")), name.lstrip("0"), name)))


class LabelNumbers:
    """Numbers names of classes as they come; at the end, when all are known, gives each its label."""

    def __init__(self, how: ClassNames, column: str, known: Sequence[str] = ()) -> None:
        """Takes the rules.

        Args:
            column: of the label, for messages.
            known: names of the classes of a finished run, by label; empty: they follow from the values.
        """
        self._how, self._column, self._known = how, column, tuple(known)
        self._numbers: dict[str, int] = {}

    def encode(self, values: pa.Array) -> np.ndarray:
        """float32: the number of each value, in the order in which they come; -1 for a missing one.

        Args:
            values: text, numbers, truth values, or a dictionary of these.

        Raises:
            DataError: there are too many different values.
        """
        distinct = values if pa.types.is_dictionary(values.type) else pc.dictionary_encode(values)
        names = [_name(value) for value in distinct.dictionary.to_pylist()]
        numbers = [_MISSING if name is None else self._numbers.setdefault(name, len(self._numbers)) for name in names]
        if len(self._numbers) > _MOST_CLASSES:
            some = ", ".join(map(excerpt, islice(self._numbers, 3)))
            raise DataError(
                f"data.label: column {self._column!r} has over {_MOST_CLASSES:,} different values ({some}, …), which"
                " can't be classes; name another column, or set task=regression for a number"
            )
        places = pc.fill_null(distinct.indices.cast(pa.int64()), len(numbers)).to_numpy(zero_copy_only=False)
        found: np.ndarray = np.array([*numbers, _MISSING], np.float32)[places]
        return found

    def finish(self, folder: Path, layout: Layout) -> None:
        """Writes the labels over their numbers, and the names of the classes.

        Args:
            folder: of the examples, with the numbers in `labels.npy`.

        Raises:
            DataError: a label is missing or is none of the classes, or it is not known which value is label 1.
        """
        names = list(self._numbers)
        self._check_numbers(names)
        classes = self._two(names) if self._how.two else self._known or in_order(names)
        labels = np.array([*(self._label(name, classes) for name in names), _MISSING], np.float32)
        written = np.lib.format.open_memmap(folder / "labels.npy", "r+")
        for start in range(0, len(written), _ROWS):
            numbers = written[start : start + _ROWS].astype(np.int64)  # -1 is the last of `labels`
            found = labels[numbers]
            if len(wrong := np.flatnonzero(found < 0)):
                number, place = int(numbers[wrong[0]]), layout.place(start + int(wrong[0]))
                value = "nothing" if number == _MISSING else excerpt(names[number])
                expected = f"one of the classes {summarize_names(classes)}"
                if number == _MISSING:
                    expected += f"; {SKIP_UNLABELLED}"
                raise DataError(f"{place}: found {value} in column {self._column!r}, expected {expected}")
            written[start : start + _ROWS] = found
        written.flush()
        (folder / CLASSES).write_text(json.dumps(classes), "utf-8")

    def _check_numbers(self, names: Sequence[str]) -> None:
        """Raises DataError for amounts; classes that are numbers are whole ones."""
        if self._how.two or self._known or not all(map(is_number, names)):
            return
        if broken := [name for name in names if not float(name).is_integer()]:
            raise DataError(
                f"task classification needs classes as labels, names or whole numbers, and column {self._column!r} has"
                f" numbers such as {broken[0]}; set task=regression, or name another column"
            )

    def _label(self, name: str, classes: Sequence[str]) -> int:
        if self._how.positive is not None:
            return int(name == self._how.positive)
        return classes.index(name) if name in classes else _MISSING

    def _two(self, names: Sequence[str]) -> tuple[str, str]:
        """The names of labels 0 and 1."""
        positive = self._how.positive
        if self._known:
            return self._known[0], self._known[1]
        listed = summarize_names([excerpt(name) for name in in_order(names)])
        if positive is not None:
            if positive not in names:
                raise DataError(f"data.positive={positive}: column {self._column!r} has no such value; it has {listed}")
            others = [name for name in names if name != positive]
            return (others[0] if len(others) == 1 else f"not {positive}"), positive
        meant = {name.casefold(): name for name in names}
        for yes, no in POSITIVE.items():
            if len(names) == 2 and meant.keys() == {yes, no}:
                return meant[no], meant[yes]
        remedy = f"set data.positive to the value that is label 1, such as data.positive='{names[0] if names else 1}'"
        if len(names) > 2:
            remedy += ", or task=classification to tell all of them apart"
        raise DataError(
            f"task binary needs labels of 0 and 1, yes and no, or true and false, and column {self._column!r} has"
            f" {listed}; {remedy}"
        )


def _name(value: Any) -> str | None:
    """The name of a class, from a value of the label; None if it is missing."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if np.isnan(value):
            return None
        return str(int(value)) if value.is_integer() else str(value)
    name = "" if value is None else str(value).strip()
    return None if name in NULLS else name
