"""Generates a click log with a planted truth, so that the best possible AUC is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from embexp.system import files

NUMBERS, CATEGORIES = 13, 26
VALUES = np.geomspace(10, 1_000_000, CATEGORIES).astype(np.int64)
"""Number of values of each category, from 10 to a million."""
ZIPF = 1.1
"""Exponent of the popularity of values."""
HELD_OUT = 0.1
"""Fraction of the rows in the validation split, and in the test split; both are at the end."""
_BLOCK = 100_000
_PAIRS = 6
_RANK = 4
_CLICKS = -1.2


class Truth:
    """The planted truth: numbers, categories and pairs of categories each add to the logit."""

    def __init__(self) -> None:
        """Draws the planted truth."""
        random = np.random.default_rng(11)
        self.popularity = [np.cumsum(p / p.sum()) for p in (np.arange(1, n + 1.0) ** -ZIPF for n in VALUES)]
        self.slopes = random.normal(0, 0.15, NUMBERS)
        self.scales = random.uniform(0.5, 2.0, NUMBERS)
        self.missing = np.linspace(0, 0.3, NUMBERS)
        self.of_missing = random.normal(0, 0.3, NUMBERS)
        self.weights = [random.normal(0, 0.3, count) for count in VALUES]
        self.vectors = [random.normal(0, 0.4, (count, _RANK)) for count in VALUES[: 2 * _PAIRS]]

    def block(self, start: int, count: int) -> tuple[dict[str, Any], np.ndarray]:
        """Columns of some rows, with categories as numbers, and the logits."""
        random = np.random.default_rng([7, start])
        logits = np.full(count, _CLICKS)
        columns: dict[str, Any] = {}
        for number in range(NUMBERS):
            logarithms = random.normal(1.5, self.scales[number], count)
            values = np.floor(np.exp(logarithms)).clip(0, 1e7)
            absent = random.random(count) < self.missing[number]
            logits += np.where(absent, self.of_missing[number], self.slopes[number] * (np.log1p(values) - 1.7))
            columns[f"I{number + 1}"] = pa.array(values.astype(np.int64), mask=absent)
        found = [np.searchsorted(each, random.random(count)) for each in self.popularity]
        for place, values in enumerate(found):
            values[:] = values.clip(0, VALUES[place] - 1)
            logits += self.weights[place][values]
            columns[f"C{place + 1}"] = values
        for pair in range(_PAIRS):
            left, right = 2 * pair, 2 * pair + 1
            logits += (self.vectors[left][found[left]] * self.vectors[right][found[right]]).sum(1)
        columns["label"] = (random.random(count) < 1 / (1 + np.exp(-logits))).astype(np.int8)
        return columns, logits


def blocks(rows: int) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Rows as in the file (a label, the time, counts with missing values, hexadecimal tokens), and their logits."""
    truth = Truth()
    tokens = [
        pa.array([f"{(value * 2_654_435_761 + place) % 2**32:08x}" for value in range(count)])
        for place, count in enumerate(VALUES)
    ]
    for start in range(0, rows, _BLOCK):
        count = min(_BLOCK, rows - start)
        columns, logits = truth.block(start, count)
        for place, known in enumerate(tokens):
            columns[f"C{place + 1}"] = known.take(pa.array(columns[f"C{place + 1}"]))
        order = ["label", *(f"I{n + 1}" for n in range(NUMBERS)), *(f"C{n + 1}" for n in range(CATEGORIES))]
        table = pa.table(
            {"label": columns["label"], "at": np.arange(start, start + count)} | {k: columns[k] for k in order[1:]}
        )
        yield table, logits


def write(folder: Path, rows: int) -> Path:
    """Writes `log.csv`, and `truth.json` with the best possible AUC of the test rows, unless both exist."""
    file, told = folder / "log.csv", folder / "truth.json"
    if told.exists() and json.loads(told.read_text())["rows"] == rows:
        return file
    folder.mkdir(parents=True, exist_ok=True)
    logits, labels, writer = [], [], None
    for table, found in blocks(rows):
        if writer is None:
            options = pyarrow.csv.WriteOptions(quoting_style="none")
            writer = pyarrow.csv.CSVWriter(file, table.schema, write_options=options)
        writer.write_table(table)
        logits.append(found)
        labels.append(table["label"].to_numpy())
    assert writer is not None
    writer.close()
    tested = int(rows * (1 - HELD_OUT))
    best = auc(np.concatenate(labels)[tested:], np.concatenate(logits)[tested:])
    files.write_text(told, json.dumps({"rows": rows, "auc": best, "bytes": file.stat().st_size}))
    return file


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """The area under the ROC curve: the share of pairs in the right order; a tie counts half (Mann and Whitney)."""
    different, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    del different
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    clicks = int(labels.sum())
    others = len(labels) - clicks
    return float((ranks[labels == 1].sum() - clicks * (clicks + 1) / 2) / (clicks * others))
