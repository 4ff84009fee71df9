"""What the plain models of `bench.models` are made from: batches and sizes that embexp's run has left in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.models_cases import NUMBERS, Case

ADAGRAD_RATES = {"lr": 0.05, "initial_accumulator_value": 1e-7}
ADAM_RATES = 0.001


@dataclass(frozen=True)
class Setting:
    """A model and its batches.

    Attributes:
        family: see `Case`.
        rule: optimizer of the tables.
        model: embexp's settings of it.
        tables: rows and dim by name.
        batches: ids by column, `dense`, `label`, and of texts `lengths`; lists are padded with a row of their own, the
            one after the last.
        sides: of products, the column of each table.
        biases: the same of tables of biases.
        numbers: dense columns.
        classes: of labels.
        every_entity: whether all entities are the candidates of each query.
    """

    family: str
    rule: str
    model: Mapping[str, Any]
    tables: Mapping[str, tuple[int, int]]
    batches: list[dict[str, np.ndarray]]
    sides: Mapping[str, str]
    biases: Mapping[str, str]
    numbers: int = NUMBERS
    classes: int = 2
    every_entity: bool = False


def setting(case: Case, folder: Path) -> Setting:
    """Reads what `models_ours.begun` has written."""
    told = json.loads((folder / "sizes.json").read_text())
    tables = {name: (rows, dim) for name, (rows, dim) in told["tables"].items()}
    with np.load(folder / "batches.npz") as file:
        columns = {name: file[name] for name in file.files}
    every_entity = "candidates" in columns and columns["candidates"].shape[1] == 1
    if every_entity:
        del columns["candidates"]
    if case.family == "texts":
        words = columns["words"]
        columns["lengths"] = np.maximum((words >= 0).sum(2), 1).astype(np.float32)
        columns["words"] = np.where(words < 0, tables["word"][0], words)
    count = len(columns["label"])
    words_of_pairs = {"word": "center", "context": "context"}
    ratings = "user_bias" in tables
    return Setting(
        family=case.family,
        rule=case.rule,
        model=told["model"],
        tables=tables,
        batches=[{name: array[number] for name, array in columns.items()} for number in range(count)],
        sides={"user": "user", "item": "item"} if ratings else words_of_pairs,
        biases={"user_bias": "user", "item_bias": "item"} if ratings else {},
        every_entity=every_entity,
    )
