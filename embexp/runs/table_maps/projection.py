"""Principal components of sampled rows, packed for the page. NumPy alone."""

from __future__ import annotations

import base64

import numpy as np

MOST_ROWS = 2_000
"""Rows of a table on a map, at most."""
COMPONENTS = 10
"""Components that the page gets; the map shows two, UMAP begins with all."""
_INT16 = 32_767


def sampled(rows: int, *, ranked: bool, seed: int = 0) -> np.ndarray:
    """Numbers of the rows of a map, int64, rising: all, or `MOST_ROWS` of them.

    Args:
        rows: of the table.
        ranked: whether the first rows are the most frequent: then half of the sample are these, the other half is
            drawn from the rest.
        seed: of the draw.
    """
    if rows <= MOST_ROWS:
        return np.arange(rows)
    first = MOST_ROWS // 2 if ranked else 0
    drawn = np.random.default_rng(seed).choice(rows - first, MOST_ROWS - first, replace=False, shuffle=False)
    return np.sort(np.concatenate([np.arange(first), first + drawn]))


def principal_components(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first principal components of rows, by singular value decomposition of the centred matrix, in float64.

    Args:
        values: [rows, dim], finite.

    Returns:
        Scores [rows, k] with k = min(`COMPONENTS`, rows, dim), and each component's share of the variance, [k]. The
        sign of a component is such that its largest loading is positive.
    """
    centred = values.astype(np.float64) - values.mean(axis=0, dtype=np.float64)
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    count = min(COMPONENTS, *values.shape)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    signs[signs == 0] = 1
    scores = (left * sizes * signs)[:, :count]
    variance = sizes**2
    total = variance.sum()
    return scores, variance[:count] / total if total > 0 else np.zeros(count)


def packed(scores: np.ndarray) -> tuple[str, float]:
    """Scores as little-endian int16 in base64, row by row, and what 32,767 of them stands for."""
    scale = float(np.abs(scores).max(initial=0.0)) or 1.0
    whole = np.rint(scores / scale * _INT16).astype("<i2")
    return base64.b64encode(whole.tobytes()).decode("ascii"), scale
