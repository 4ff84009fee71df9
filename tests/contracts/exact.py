"""The training of `experiments` in float64: forward, back, and the update rules, by their formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.contracts.experiments import DIMS, LENGTH, RATE, ROWS, TABLES, Examples

Values = dict[str, dict[str | None, np.ndarray]]
Factors = Callable[[str, int], np.ndarray]
"""From a table and the number of a step to the factor on each row's learning rate; 0: it does not move."""


@dataclass
class Exact:
    """Where a training ends.

    Attributes:
        values: rows (None) and slots of each table.
        moved: how far each of them has come from 0, counting every way there and back: what float32 is exact to.
        losses: of each step.
    """

    values: Values
    moved: Values
    losses: list[float]


def train(
    batches: list[Examples],
    rule: Any,
    combiner: str,
    first: Mapping[str, np.ndarray],
    slots: Mapping[str | None, float],
    kernel: np.ndarray,
    bias: np.ndarray,
    factors: Factors,
) -> Exact:
    """Trains."""
    kernel, bias = kernel.astype(np.float64), bias.astype(np.float64)
    values: Values = {
        name: {
            None: rows.astype(np.float64),
            **{slot: np.full(rows.shape, float(np.float32(start))) for slot, start in slots.items()},
        }
        for name, rows in first.items()
    }
    moved = {name: {slot: np.abs(each) for slot, each in some.items()} for name, some in values.items()}
    losses = []
    for step, batch in enumerate(batches):
        size = len(batch.labels)
        inputs = {name: _activations(batch, name, combiner, values[table][None]) for name, table in TABLES.items()}
        inputs["~dense"] = batch.dense.astype(np.float64)
        names = sorted(inputs, key=lambda name: "dense." if name == "~dense" else name)
        x = np.concatenate([inputs[name].reshape(size, -1) for name in names], 1)
        error = x @ kernel[:, 0] + bias[0] - batch.labels
        losses.append(float(np.mean(error**2)))
        back = 2 * error / size
        into, start = {}, 0
        for name in names:
            width = inputs[name].reshape(size, -1).shape[1]
            into[name] = (back[:, None] * kernel[start : start + width, 0]).reshape(inputs[name].shape)
            start += width
        gradients, touched = _row_gradients(batch, combiner, into)
        kernel = kernel - RATE * (x.T @ back)[:, None]
        bias = bias - RATE * back.sum()
        for name in ROWS:
            before, factor = values[name], factors(name, step)
            values[name] = applied(rule, before, gradients[name], touched[name], factor)
            for slot, each in values[name].items():
                moved[name][slot] = moved[name][slot] + np.abs(each - before[slot])
    return Exact(values, moved, losses)


def _factors(some: list[tuple[int, int, float]], combiner: str) -> list[float]:
    weights = np.array([weight for _, _, weight in some])
    if combiner == "mean":
        weights = weights / weights.sum()
    elif combiner == "sqrtn":
        weights = weights / np.sqrt((weights**2).sum())
    return [float(each) for each in weights]


def _activations(batch: Examples, name: str, combiner: str, rows: np.ndarray) -> np.ndarray:
    lists, dim = batch.given[name], rows.shape[1]
    if name in ("sequence", "gaps"):
        found = np.zeros((len(lists), LENGTH, dim))
        for example, some in enumerate(lists):
            for place, row, _ in some:
                if place < LENGTH:
                    found[example, place] = rows[row]
        return found
    found = np.zeros((len(lists), dim))
    for example, some in enumerate(lists):
        for factor, (_, row, _) in zip(_factors(some, combiner), some, strict=True):
            found[example] += factor * rows[row]
    return found


def _row_gradients(
    batch: Examples, combiner: str, into: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Gradient of each row, and whether it was looked up."""
    gradients = {name: np.zeros((rows, DIMS[name])) for name, rows in ROWS.items()}
    touched = {name: np.zeros(rows, bool) for name, rows in ROWS.items()}
    for name, table in TABLES.items():
        for example, some in enumerate(batch.given[name]):
            for factor, (place, row, _) in zip(_factors(some, combiner), some, strict=True):
                if name in ("sequence", "gaps"):
                    if place >= LENGTH:
                        continue
                    term = into[name][example, place]
                else:
                    term = factor * into[name][example]
                gradients[table][row] += term
                touched[table][row] = True
    return gradients, touched


def applied(
    rule: Any, values: dict[str | None, np.ndarray], g: np.ndarray, touched: np.ndarray, factor: np.ndarray
) -> dict[str | None, np.ndarray]:
    """One application of an update rule to the rows that were looked up and may move."""
    lr = rule.learning_rate * np.where(factor == 0, 1, factor)[:, None]
    w = values[None] - np.where(touched[:, None], rule.weight_decay_factor * values[None], 0)
    g = g if rule.clipvalue is None else np.clip(g, -rule.clipvalue, rule.clipvalue)
    new: dict[str | None, np.ndarray]
    match rule.kind:
        case "sgd":
            new = {None: w - lr * g}
        case "adagrad":
            a = values["accumulators"] + g**2
            new = {None: w - lr * g / np.sqrt(a), "accumulators": a}
        case "adagrad_momentum":
            a = values["accumulators"] + g**2
            m = rule.momentum * values["momenta"] + np.where(g == 0, 0, g / np.sqrt(a + rule.epsilon))
            new = {None: w - lr * m, "accumulators": a, "momenta": m}
        case "adam":
            m = rule.beta_1 * values["momenta"] + (1 - rule.beta_1) * g
            v = rule.beta_2 * values["velocities"] + (1 - rule.beta_2) * g**2
            new = {None: w - lr * m / np.sqrt(v + rule.epsilon**2), "momenta": m, "velocities": v}
        case "ftrl":
            a = values["accumulators"] + g**2
            linear = values["linears"] + g - (np.sqrt(a) - np.sqrt(values["accumulators"])) * w / lr
            new = {None: -linear / (np.sqrt(a) / lr + 2 * rule.l2_regularization_strength)}
            new |= {"accumulators": a, "linears": linear}
        case _:
            raise ValueError(rule.kind)
    if rule.clip_weight_max is not None:
        new[None] = np.minimum(new[None], rule.clip_weight_max)
    moves = (factor != 0) & (touched | (rule.kind == "adam" and not rule.lazy_adam))
    return {slot: np.where(moves[:, None], new[slot], values[slot]) for slot in values}
