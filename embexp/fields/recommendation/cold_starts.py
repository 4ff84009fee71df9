"""Vectors of items that nobody has yet, from their content, and of users by a few items, without any training.

What was trained is not touched: new vectors are put next to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import RidgeCV

from embexp.data.examples import ListColumn

MOST_ITEMS = 50_000
"""Items that a map is fitted to, the most frequent ones: in some seconds for some hundred numbers of content."""
_PENALTIES = np.logspace(-2, 4, 25)
UNOBSERVED = (0.01, 0.1, 0.3)
"""Weights of items that a user does not have, next to 1 for those that the user has."""
PENALTIES = (1.0, 10.0, 100.0)
"""Ridge penalties of a user's vector, in units of the mean squared length of the items' vectors."""
_USERS_AT_ONCE = 1_024


@dataclass(frozen=True)
class ContentMap:
    """An affine map from vectors of content to what was learned of items: ridge regression.

    Attributes:
        penalty: the ridge penalty.
    """

    penalty: float
    _predict: Callable[[np.ndarray], np.ndarray]

    def __call__(self, content: np.ndarray) -> np.ndarray:
        """float32 [n, k] for vectors of content, [n, c]."""
        return np.asarray(self._predict(np.asarray(content, np.float64)), np.float32).reshape(len(content), -1)


def content_map(content: np.ndarray, learned: np.ndarray, counts: np.ndarray) -> ContentMap:
    """The map from the content of known items that predicts best what was learned of an item that is left out.

    An item counts by log(1 + its interactions): more of them tell more of it. The penalty is the best of 25 by the
    error of each item predicted from all others, in closed form (Golub, Heath & Wahba 1979).

    Args:
        content: [I, c], of the known items.
        learned: [I, k], such as their vectors.
        counts: [I], their interactions, at least 1; the first items are the most frequent.
    """
    some = slice(MOST_ITEMS)
    values = np.asarray(content[some], np.float64), np.asarray(learned[some], np.float64)
    fitted = RidgeCV(alphas=_PENALTIES).fit(*values, sample_weight=np.log1p(counts[some]))
    return ContentMap(float(fitted.alpha_), fitted.predict)


def of_length_one(vectors: np.ndarray, bias: bool) -> np.ndarray:
    """Vectors [n, d] scaled to length 1, but for the last number if that is a bias; one of length 0 stays.

    A predicted vector is a mean of likely ones, so it is shorter; the others are compared by their direction alone.
    """
    width = vectors.shape[1] - bias
    lengths = np.linalg.norm(vectors[:, :width], axis=1, keepdims=True)
    scaled = vectors[:, :width] / np.where(lengths > 0, lengths, 1)
    return np.ascontiguousarray(np.concatenate([scaled, vectors[:, width:]], axis=1), np.float32)


def folded_in(items: np.ndarray, lists: ListColumn, unobserved: float, penalty: float) -> np.ndarray:
    """Vectors of users by the items that they have, float32 [U, d], for trained vectors of items.

    A user's vector u minimises the sum of (1 - u·v)² over the user's items, plus `unobserved` times that of (u·v)² over
    all items, plus a multiple of |u|²: a step of the alternating least squares of Hu, Koren & Volinsky (2008), eq. 4.

    Args:
        items: [I, d].
        lists: numbers of the items that each of U users has.
        penalty: the multiple of |u|², in units of the mean squared length of the items' vectors.
    """
    vectors = np.asarray(items, np.float64)
    dim, gram = vectors.shape[1], vectors.T @ vectors
    # Vectors that are all 0 would leave nothing to solve for.
    unit = np.trace(gram) / len(vectors) or 1.0
    shared = unobserved * gram + penalty * unit * np.eye(dim)
    users = len(lists.splits) - 1
    found = np.empty((users, dim), np.float32)
    for start in range(0, users, _USERS_AT_ONCE):
        stop = min(start + _USERS_AT_ONCE, users)
        systems, sums = np.empty((stop - start, dim, dim)), np.empty((stop - start, dim))
        for place in range(stop - start):
            own = vectors[lists.values[lists.splits[start + place] : lists.splits[start + place + 1]]]
            systems[place], sums[place] = shared + own.T @ own, own.sum(axis=0)
        found[start:stop] = np.linalg.solve(systems, sums[..., None])[..., 0]
    return found
