"""What the shared batch has to give: the literal figures of tpu_embedding_base_test.py, and float64 formulas of ours.

The originals give the activations as figures and compute the rest in test code. Here the activations and losses stand
as figures, the gradients as figures worked out by hand, and the tables after one step come from the update rules in
float64, written down from the definitions (docs/tables.md) and not from TensorFlow's test code.
"""

from __future__ import annotations

import numpy as np

from tests.strategies.tpu_fixtures import world

# One core's two examples, then the other's: sums of rows of `video`, means of rows of `user`.
ACTIVATIONS = {
    "watched": np.array([[0, 1, 2, 3], [4, 6, 8, 10], [4, 6, 8, 10], [4, 5, 6, 7]], np.float64),
    "favorited": np.array([[4, 6, 8, 10], [4, 5, 6, 7], [0, 1, 2, 3], [4, 6, 8, 10]], np.float64),
    "friends": np.array([[6, 7], [2, 3], [6, 7], [2, 3]], np.float64),
}
# Sum over features of the mean over a core's examples of |activation|²: 115 + 171 + 49, and 171 + 115 + 49.
LOSS = 335.0

# Gradients of mean-over-cores loss by table row, by hand: every activation a gives back a/2 (2a over four examples).
# Only these rows are touched.
GRADIENTS = {
    "video": {0: [8.0, 13.0, 18.0, 23.0], 1: [12.0, 17.0, 22.0, 27.0]},
    "user": {0: [2 / 3, 1.0], 1: [2 / 3, 1.0], 2: [2 / 3, 1.0], 3: [6.0, 7.0]},
}
# Those rows after one step of SGD with rate 0.1.
AFTER_SGD = {
    "video": {0: [-0.8, -0.3, 0.2, 0.7], 1: [2.8, 3.3, 3.8, 4.3]},
    "user": {0: [-1 / 15, 0.9], 1: [2 - 1 / 15, 2.9], 2: [4 - 1 / 15, 4.9], 3: [5.4, 6.3]},
}


def combined(feature: str) -> np.ndarray:
    """[4, dim]: activations from ids, table and combiner."""
    table = {"video": world.VIDEO, "user": world.USER}[world.TABLE_OF[feature]]
    rows = [table[list(ids)].sum(0) for ids in world.IDS[feature]]
    if world.COMBINER_OF[world.TABLE_OF[feature]] == "mean":
        rows = [row / len(ids) for row, ids in zip(rows, world.IDS[feature], strict=True)]
    return np.stack(rows)


def loss_of(activations: list[np.ndarray]) -> float:
    """Sum over features of the mean over examples of the squared length."""
    return float(sum((value**2).sum(-1).mean() for value in activations))


def table_gradient(table: str) -> np.ndarray:
    """[vocabulary, dim]: gradient of (sum over cores of the core's loss) / cores, in float64."""
    gradient = np.zeros_like({"video": world.VIDEO, "user": world.USER}[table])
    for feature, ids_of_rows in world.IDS.items():
        if world.TABLE_OF[feature] != table:
            continue
        for ids, activation in zip(ids_of_rows, combined(feature), strict=True):
            share = 1 / len(ids) if world.COMBINER_OF[table] == "mean" else 1.0
            for identifier in ids:
                gradient[identifier] += share * 2 * activation / (world.PER_CORE * world.CORES)
    return gradient


def after_one_step(optimizer: str, rows: np.ndarray, gradient: np.ndarray) -> dict[str, np.ndarray]:
    """`parameters` and slots after the first step, in float64, with the settings of `world.optimizer`.

    Rows whose gradient is zero everywhere are not touched, so they and their slots keep the values they had.
    """
    rate = world.RATE
    touched = (gradient != 0).any(-1, keepdims=True)
    match optimizer:
        case "sgd":
            return {"parameters": rows - rate * gradient}
        case "adagrad":
            squares = 0.1 + gradient**2
            return {"parameters": rows - rate * gradient / np.sqrt(squares), "accumulators": squares}
        case "adam":
            momenta, velocities = 0.1 * gradient, 0.001 * gradient**2
            step = rate * momenta / np.sqrt(velocities + 1e-7**2)
            return {"parameters": rows - step, "momenta": momenta, "velocities": velocities}
        case "ftrl":
            squares = 0.1 + gradient**2
            linears = gradient - (np.sqrt(squares) - np.sqrt(0.1)) * rows / rate
            solved = -linears * rate / np.sqrt(squares)
            return {"parameters": np.where(touched, solved, rows), "accumulators": squares, "linears": linears}
        case "adagrad_momentum":
            squares = 0.1 * gradient**2
            momenta = gradient * (squares + 0.1) ** (-1 / 3)
            return {
                "parameters": rows - rate * (0.9 * momenta + momenta),
                "accumulators": squares,
                "momenta": momenta,
            }
        case _:
            raise ValueError(optimizer)
