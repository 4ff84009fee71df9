"""The update rules of the optimizers in float64, by their formulas, and a table on its way through a training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from embexp.specs.optimizers import slots_of

Values = dict[str | None, np.ndarray]
"""Rows, under None, and slots of a table: [rows, dim], or [rows, 1] of slots with a number for each row."""

PROMISED = 2e-6
"""float32 ends within this part of |w0| + sum of |dw|, per element."""
ROUNDED = 2.0**-21
"""A gradient that is a sum is exact to this part of its terms: eight roundings to 24 bits."""


def applied(rule: Any, values: Mapping[str | None, np.ndarray], g: Any, lr: Any, decayed: Any = True) -> Values:
    """One application of a rule to every row.

    Args:
        rule: a table optimizer; its own learning rate is not looked at.
        values: before it.
        g: gradients.
        lr: learning rate, of all or of each row.
        decayed: which rows weight decay acts on.
    """
    if rule.clipvalue is not None:
        g = np.clip(g, *(rule.clipvalue if isinstance(rule.clipvalue, tuple) else (-rule.clipvalue, rule.clipvalue)))
    if rule.clipnorm is not None:
        g = g * (rule.clipnorm / np.maximum(np.linalg.norm(g, axis=1, keepdims=True), rule.clipnorm))
    decay = rule.weight_decay_factor * (lr if rule.multiply_weight_decay_factor_by_learning_rate else 1)
    w = values[None] - np.where(decayed, decay * values[None], 0)
    slots: dict[str | None, np.ndarray] = {}
    match rule.kind:
        case "sgd":
            w = w - lr * g
        case "adagrad":
            a = values["accumulators"] + g**2
            w, slots = w - lr * g / np.sqrt(a), {"accumulators": a}
        case "rowwise_adagrad":
            a = values["row_accumulators"] + np.mean(g**2, axis=1, keepdims=True)
            w, slots = w - lr * g / (np.sqrt(a) + rule.epsilon), {"row_accumulators": a}
        case "adagrad_momentum":
            a, b = values["accumulators"], rule.beta2
            a = a + g**2 if b == 1 else b * a + (1 - b) * g**2
            s = (a + rule.epsilon) ** (-1 / rule.exponent) * g
            m = rule.momentum * values["momenta"] + s
            w, slots = w - lr * (rule.momentum * m + s if rule.use_nesterov else m), {"accumulators": a, "momenta": m}
        case "adam":
            m = rule.beta_1 * values["momenta"] + (1 - rule.beta_1) * g
            v = rule.beta_2 * values["velocities"] + (1 - rule.beta_2) * g**2
            by = np.sqrt(v + rule.epsilon**2) if rule.sum_inside_sqrt else np.sqrt(v) + rule.epsilon
            w, slots = w - lr * m / by, {"momenta": m, "velocities": v}
        case "ftrl":
            p, l1, l2 = -rule.learning_rate_power, rule.l1_regularization_strength, rule.l2_regularization_strength
            a = values["accumulators"] + g**2
            d = a**p - values["accumulators"] ** p
            if rule.multiply_linear_by_learning_rate:
                linear = values["linears"] + lr * g - d * w
                w = (np.clip(linear, -lr * l1, lr * l1) - linear) / (a**p + 2 * lr * l2 + rule.beta)
            else:
                linear = values["linears"] + g - d * w / lr
                w = (np.clip(linear, -l1, l1) - linear) / ((a**p + rule.beta) / lr + 2 * l2)
            slots = {"accumulators": a, "linears": linear}
        case _:
            raise ValueError(rule.kind)
    low, high = rule.clip_weight_min, rule.clip_weight_max
    return {None: np.clip(w, -np.inf if low is None else low, np.inf if high is None else high), **slots}


class Course:
    """A table in float64 on its way through a training.

    Attributes:
        values: as they are now.
        moved: how far each has come from 0, counting every way there and back: what float32 is exact to.
        apart: how far each would have come apart if gradients were as inexact as sums are.
    """

    def __init__(self, rule: Any, first: Mapping[str | None, np.ndarray]) -> None:
        """Begins with rows, and with slots at their initial values where they are not given."""
        self._rule = rule
        rows, dim = first[None].shape
        initial = {
            slot: np.full((rows, 1 if slot in rule.row_slots else dim), np.float32(value))
            for slot, value in slots_of(rule).items()
        }
        self.values: Values = {slot: each.astype(np.float64) for slot, each in {**initial, **first}.items()}
        self.moved: Values = {slot: np.abs(each) for slot, each in self.values.items()}
        self.apart: Values = {slot: np.zeros_like(each) for slot, each in self.values.items()}

    def step(
        self, g: np.ndarray, touched: np.ndarray, factor: Any = 1.0, rate: float | None = None, size: Any = 0.0
    ) -> None:
        """A step: rows that were looked up move (with an Adam that is not lazy, all), and none whose factor is 0.

        Args:
            g: gradient of each row.
            touched: bool [rows], whether it was looked up.
            factor: [rows], what its learning rate is multiplied by.
            rate: learning rate of the table; None: that of its rule.
            size: how large the terms are whose sum `g` is. A sum that cancels is only as exact as its terms are large,
                and rules that divide by the size of gradients make as much of a small one as of a large one.
        """
        rule, before = self._rule, self.values
        factor = np.broadcast_to(factor, touched.shape)
        lr = (rule.learning_rate if rate is None else rate) * np.where(factor == 0, 1, factor)[:, None]
        after, *nearby = (applied(rule, before, g + sign * ROUNDED * size, lr, touched[:, None]) for sign in (0, -1, 1))
        moves = ((factor != 0) & (touched | (rule.kind == "adam" and not rule.lazy_adam)))[:, None]
        self.values = {slot: np.where(moves, after[slot], before[slot]) for slot in before}
        for slot in before:
            self.moved[slot] = self.moved[slot] + np.abs(self.values[slot] - before[slot])
            found = np.max([np.abs(each[slot] - after[slot]) for each in nearby], axis=0)
            self.apart[slot] = self.apart[slot] + np.where(moves, found, 0)

    def errors(self, found: Mapping[str | None, np.ndarray], *, sums: bool = False) -> Values:
        """How far found values are from these, as a part of what float32 promises: at most 1.

        Args:
            found: rows and slots.
            sums: allow for sums that cancel too, where nothing was chosen so that none does.
        """
        least = np.finfo(np.float64).tiny
        return {
            slot: np.abs(each - self.values[slot])
            / np.maximum(PROMISED * self.moved[slot] + (self.apart[slot] if sums else 0), least)
            for slot, each in found.items()
        }
