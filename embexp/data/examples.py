"""Encoded examples: the files of a folder of the cache, mapped into memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from embexp.system.arrays import mapped_array

CLASSES = "classes.json"
"""File, in the folder, with the names of classes by label number, of a source that names them."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What an encoded folder holds; written beside the arrays as `layout.json`.

    Attributes:
        ids: id columns with one value per example, the columns of `ids.npy`, [count, len(ids)].
        lists: id columns with several, `list.N.values.npy` and `list.N.splits.npy` by their place N here.
        tables: id column -> table, for `tokens.N.arrow` by the place N of the table in `token_tables`.
        token_tables: tables whose ids are codes of tokens; others' are row numbers already.
        weights: weight column -> its id column; `weights.N.npy`, as many values as ids.
        dense: numeric columns, the columns of `dense.npy`, float32 [count, len(dense)].
        label: whether there is `labels.npy`, float32 [count].
        files: name and number of examples of each file, in order.
        bucketed: columns of numbers for buckets, the columns of `bucketed.npy`, float32 [count, len(bucketed)].
    """

    count: int
    ids: list[str]
    lists: list[str] = field(default_factory=list)
    tables: dict[str, str] = field(default_factory=dict)
    token_tables: list[str] = field(default_factory=list)
    weights: dict[str, str] = field(default_factory=dict)
    dense: list[str] = field(default_factory=list)
    label: bool
    files: list[tuple[str, int]] = field(default_factory=list)
    bucketed: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Writes `layout.json`."""
        (folder / "layout.json").write_text(json.dumps(asdict(self)), "utf-8")

    @staticmethod
    def read(folder: Path) -> Layout:
        """Reads `layout.json`."""
        return Layout(**json.loads((folder / "layout.json").read_text("utf-8")))

    def place(self, example: int) -> str:
        """File and row of an example, for errors."""
        for name, count in self.files:
            if example < count:
                return f"{name}, row {example + 1}"
            example -= count
        return f"example {example + 1}"


@dataclass(frozen=True)
class Encoded:
    """All examples of a source, encoded; not divided yet.

    Attributes:
        digest: of the source's content.
        only_ones: whether only examples with label 1 belong to a split.
    """

    folder: Path
    key: str
    digest: str
    only_ones: bool = False

    def divided(self) -> np.ndarray | None:
        """int64, the examples that belong to a split; None: all."""
        return np.flatnonzero(mapped_array(self.folder / "labels.npy") == 1) if self.only_ones else None

    @cached_property
    def layout(self) -> Layout:
        """What the folder holds."""
        return Layout.read(self.folder)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes by label number, of a source that names them."""
        file = self.folder / CLASSES
        return tuple(json.loads(file.read_text("utf-8"))) if file.exists() else ()


def read_tokens(folder: Path, layout: Layout, table: str) -> pa.LargeStringArray:
    """The tokens of a table in the order of their codes; the first is empty and stands for missing values."""
    path = folder / f"tokens.{layout.token_tables.index(table)}.arrow"
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)["token"]


@dataclass(frozen=True)
class ListColumn:
    """Several values per example: those of example i are values[splits[i]:splits[i + 1]]."""

    values: np.ndarray
    splits: np.ndarray


@dataclass(frozen=True)
class Examples:
    """Encoded examples, memory-mapped.

    Attributes:
        id_columns: names of the columns of `ids`.
        ids: int32 or int64 [count, len(id_columns)], rows of the tables.
        lists: id columns with several values per example.
        weights: weight column -> float32, one for each id of its id column.
        dense: float32 [count, number of dense columns].
        labels: float32 [count]; None if there are none.
        key: of the folder in the cache that has what is not rows of tables; "" of examples that are in none.
    """

    count: int
    id_columns: tuple[str, ...]
    ids: np.ndarray
    lists: Mapping[str, ListColumn]
    weights: Mapping[str, np.ndarray]
    dense: np.ndarray
    labels: np.ndarray | None
    key: str = ""


def examples(folder: Path, rows: Path, buckets: Sequence[str] = ()) -> Examples:
    """Maps encoded examples.

    Args:
        folder: what `encode` wrote.
        rows: folder with `ids.npy` and `list.N.values.npy` that hold rows of the tables instead of codes.
        buckets: names of further columns of that `ids.npy`: buckets of numbers.
    """
    layout = Layout.read(folder)
    return Examples(
        count=layout.count,
        id_columns=(*layout.ids, *buckets),
        ids=mapped_array(rows / "ids.npy"),
        lists={
            name: ListColumn(
                mapped_array(rows / f"list.{number}.values.npy"), mapped_array(folder / f"list.{number}.splits.npy")
            )
            for number, name in enumerate(layout.lists)
        },
        weights={name: mapped_array(folder / f"weights.{number}.npy") for number, name in enumerate(layout.weights)},
        dense=mapped_array(folder / "dense.npy"),
        labels=mapped_array(folder / "labels.npy") if layout.label else None,
        key=folder.name,
    )
