"""The results of a TPU, in float64: combine, sum gradients per row, one application per touched row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Ids = list[list[tuple[int, float]]]
"""For each vector the ids it is combined of, with their weights."""


@dataclass
class Rule:
    """An optimizer, with what the reference needs of it."""

    kind: str
    rate: float
    slots: dict[str, float]
    own: dict[str, Any] = field(default_factory=dict)
    decay: float = 0.0
    decay_times_rate: bool = False
    clip: tuple[float, float] = (-np.inf, np.inf)
    clip_gradient: float = np.inf
    every_row: bool = False


RULES = {
    "SGD": Rule("SGD", 0.1, {}),
    "Adagrad": Rule("Adagrad", 0.1, {"accumulators": 0.1}),
    "AdagradMomentum": Rule(
        "AdagradMomentum",
        0.05,
        {"accumulators": 0.0, "momenta": 0.0},
        {"momentum": 0.5, "use_nesterov": True, "exponent": 2.0, "beta2": 0.9, "epsilon": 1e-3},
    ),
    "Adam": Rule("Adam", 0.02, {"momenta": 0.0, "velocities": 0.0}),
    "FTRL": Rule(
        "FTRL",
        0.1,
        {"accumulators": 0.1, "linears": 0.0},
        {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.02, "beta": 0.1},
    ),
}


class Table:
    """One table in float64, and how far each element has moved."""

    def __init__(self, start: np.ndarray, rule: Rule) -> None:
        self.rows, self.rule = start.astype(np.float64), rule
        self.slots = {name: np.full_like(self.rows, value) for name, value in rule.slots.items()}
        self.path = np.abs(self.rows)
        self._ids: set[int] = set()
        self._gradient = np.zeros_like(self.rows)

    def look_up(self, vectors: Ids, combiner: str) -> np.ndarray:
        """Activations, [vectors, dim]."""
        return np.stack([sum((s * self.rows[i] for i, s in _scaled(one, combiner)), self._zero()) for one in vectors])

    def add(self, vectors: Ids, combiner: str, gradient: np.ndarray) -> None:
        """Adds d loss / d activations to the rows' gradients."""
        for one, of_vector in zip(vectors, gradient, strict=True):
            for number, scale in _scaled(one, combiner):
                self._ids.add(number)
                self._gradient[number] += scale * of_vector

    def step(self, rate: float | None = None) -> None:
        """One application of the rule to each touched row."""
        before, touched = self.rows.copy(), np.zeros(len(self.rows), bool)
        touched[list(self._ids)] = True
        rule, moving = self.rule, touched | self.rule.every_row
        lr = rule.rate if rate is None else rate
        g = np.clip(self._gradient, -rule.clip_gradient, rule.clip_gradient)[moving]
        w = self.rows[moving]
        factor = rule.decay * (lr if rule.decay_times_rate else 1.0)
        w = w - factor * w * touched[moving][:, None]
        slots = {name: values[moving] for name, values in self.slots.items()}
        w, slots = _RULES[rule.kind](w, g, lr, slots, rule.own)
        self.rows[moving] = np.clip(w, *rule.clip)
        for name, values in slots.items():
            self.slots[name][moving] = values
        self.path += np.abs(self.rows - before)
        self._gradient[:] = 0
        self._ids.clear()

    def _zero(self) -> np.ndarray:
        return np.zeros(self.rows.shape[1])


def _scaled(one: list[tuple[int, float]], combiner: str) -> list[tuple[int, float]]:
    weights = np.array([w for _, w in one], np.float64)
    by = {"sum": 1.0, "mean": weights.sum(), "sqrtn": np.sqrt((weights**2).sum())}[combiner]
    return [(number, weight / by if by else 0.0) for number, weight in one]


def _sgd(w: Any, g: Any, lr: float, s: Any, own: Any) -> Any:
    return w - lr * g, {}


def _adagrad(w: Any, g: Any, lr: float, s: Any, own: Any) -> Any:
    a = s["accumulators"] + g**2
    return w - lr * g / np.sqrt(a), {"accumulators": a}


def _adagrad_momentum(w: Any, g: Any, lr: float, s: Any, own: Any) -> Any:
    beta2, momentum = own["beta2"], own["momentum"]
    a = s["accumulators"] + g**2 if beta2 == 1 else beta2 * s["accumulators"] + (1 - beta2) * g**2
    step = (a + own["epsilon"]) ** (-1 / own["exponent"]) * g
    m = momentum * s["momenta"] + step
    return w - lr * (momentum * m + step if own["use_nesterov"] else m), {"accumulators": a, "momenta": m}


def _adam(w: Any, g: Any, lr: float, s: Any, own: Any) -> Any:
    m, v = 0.9 * s["momenta"] + 0.1 * g, 0.999 * s["velocities"] + 0.001 * g**2
    epsilon = own.get("epsilon", 1e-7)
    by = np.sqrt(v + epsilon**2) if own.get("sum_inside_sqrt", True) else np.sqrt(v) + epsilon
    return w - lr * m / by, {"momenta": m, "velocities": v}


def _ftrl(w: Any, g: Any, lr: float, s: Any, own: Any) -> Any:
    l1, l2, beta = own["l1_regularization_strength"], own["l2_regularization_strength"], own["beta"]
    before = s["accumulators"]
    a, p = before + g**2, -own.get("learning_rate_power", -0.5)
    if own.get("multiply_linear_by_learning_rate"):
        linear = s["linears"] + lr * g - (a**p - before**p) * w
        w = (np.clip(linear, -lr * l1, lr * l1) - linear) / (a**p + 2 * lr * l2 + beta)
    else:
        linear = s["linears"] + g - (a**p - before**p) / lr * w
        w = (np.clip(linear, -l1, l1) - linear) / ((a**p + beta) / lr + 2 * l2)
    return w, {"accumulators": a, "linears": linear}


_RULES = {"SGD": _sgd, "Adagrad": _adagrad, "AdagradMomentum": _adagrad_momentum, "Adam": _adam, "FTRL": _ftrl}
