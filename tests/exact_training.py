"""A training of the linear model on any graph of tables and features in float64: forward, back, update rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.exact_rules import PROMISED, ROUNDED, Course

Lists = list[list[tuple[int, int, float]]]
"""For each example the places, rows and weights that a feature names; a single row is a list of one."""
Factors = Callable[[str, int], np.ndarray]
"""From a table and the number of a step to the factor on each row's learning rate; 0: it does not move."""


@dataclass(frozen=True)
class Examples:
    """A batch."""

    given: Mapping[str, Lists]
    dense: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Looked:
    """How a feature is looked up.

    Attributes:
        table: where.
        combiner: sum, mean or sqrtn.
        length: of the sequence that is not combined; 0: it is.
    """

    table: str
    combiner: str
    length: int = 0


@dataclass(frozen=True)
class Exact:
    """Where a training ends.

    Attributes:
        tables: their values, by name.
        losses: of each step.
        met: of each table, bool [rows], whether a row was ever looked up while it moved.
    """

    tables: Mapping[str, Course]
    losses: list[float]
    met: Mapping[str, np.ndarray]


def train(
    batches: Sequence[Examples],
    features: Mapping[str, Looked],
    rules: Mapping[str, Any],
    first: Mapping[str, np.ndarray],
    kernel: np.ndarray,
    bias: np.ndarray,
    *,
    rate: float,
    factors: Factors,
    clicks: bool = False,
) -> Exact:
    """Trains.

    Args:
        batches: one for each step.
        features: by name.
        rules: table optimizers, by table.
        first: rows before the first step, by table.
        kernel: [inputs, 1], of features by name, then of what is dense.
        bias: [1].
        rate: learning rate of these two, which plain gradient descent trains.
        factors: by definition of the freeze policies.
        clicks: whether the loss is the log loss, not the squared error.
    """
    kernel, bias = kernel.astype(np.float64), bias.astype(np.float64)
    moved = np.abs(kernel)  # how far it has come from 0, counting every way there and back
    tables = {name: Course(rules[name], {None: rows}) for name, rows in first.items()}
    met = {name: np.zeros(len(rows), bool) for name, rows in first.items()}
    losses = []
    for step, batch in enumerate(batches):
        size = len(batch.labels)
        found = {name: _occurrences(batch.given[name], feature) for name, feature in features.items()}
        inputs = {"dense.features": batch.dense.astype(np.float64)} if batch.dense.shape[1] else {}
        for name, feature in features.items():
            inputs[name] = activations(batch.given[name], feature, tables[feature.table].values[None])
        names = sorted(inputs)
        x = np.concatenate([inputs[name].reshape(size, -1) for name in names], 1)
        logits = x @ kernel[:, 0] + bias[0]
        terms = np.abs(x) @ np.abs(kernel[:, 0]) + np.abs(bias[0]) + 1  # of which a logit less a label is the sum
        if clicks:
            losses.append(float(np.mean(np.logaddexp(0, logits) - batch.labels * logits)))
            back = (1 / (1 + np.exp(-logits)) - batch.labels) / size
        else:
            losses.append(float(np.mean((logits - batch.labels) ** 2)))
            back = 2 * (logits - batch.labels) / size
        gradients = {name: np.zeros(rows.shape) for name, rows in first.items()}
        sizes = {name: np.zeros(rows.shape) for name, rows in first.items()}
        touched = {name: np.zeros(len(rows), bool) for name, rows in first.items()}
        start = 0
        for name in names:
            width = inputs[name].reshape(size, -1).shape[1]
            if name in features:
                example, place, row, factor = found[name]
                own = slice(start, start + width)
                # The kernel is as exact as anything that float32 has trained, also where it comes near 0.
                inexact = PROMISED / ROUNDED * moved[own, 0] * np.abs(back)[:, None]
                for summed, each in (
                    (gradients, back[:, None] * kernel[own, 0]),
                    (sizes, 2 * terms[:, None] / size * np.abs(kernel[own, 0]) + inexact),
                ):
                    part = factor[:, None] * each.reshape(inputs[name].shape)[example, place]
                    np.add.at(summed[features[name].table], row, part if summed is gradients else np.abs(part))
                touched[features[name].table][row] = True
            start += width
        change = rate * (x.T @ back)[:, None]
        kernel, moved = kernel - change, moved + np.abs(change)
        bias = bias - rate * back.sum()
        for name, course in tables.items():
            met[name] |= touched[name] & (factors(name, step) != 0)
            course.step(gradients[name], touched[name], factors(name, step), size=sizes[name])
    return Exact(tables, losses, met)


def activations(lists: Lists, feature: Looked, rows: np.ndarray) -> np.ndarray:
    """What a feature gives the model: [examples, places, dim] of a sequence, else one place."""
    example, place, row, factor = _occurrences(lists, feature)
    found = np.zeros((len(lists), max(1, feature.length), rows.shape[1]))
    np.add.at(found, (example, place), factor[:, None] * rows[row])
    return found


def _occurrences(lists: Lists, feature: Looked) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """[n] each: example, place in its sequence, row, and what the row is multiplied by."""
    found = []
    for example, some in enumerate(lists):
        weights = np.array([weight for _, _, weight in some])
        by = {"sum": 1.0, "mean": weights.sum(), "sqrtn": np.sqrt((weights**2).sum())}[feature.combiner]
        for place, row, weight in some:
            if not feature.length:
                found.append((example, 0, row, weight / by if by else 0.0))
            elif place < feature.length:
                found.append((example, place, row, 1.0))
    example, place, row, factor = np.array(found or np.zeros((0, 4))).T
    return example.astype(int), place.astype(int), row.astype(int), factor
