"""Recommendations by the similarities of items alone: a strong and simple model to compare with.

Each list is that of the items that are most similar to what the user has in the training split. Small catalogues get
EASE (Steck: "Embarrassingly shallow autoencoders for sparse data", 2019), a linear model in closed form; large ones the
nearest neighbours of each item by the cosine of their users (Sarwar et al. 2001). Of some penalties, that is
taken whose NDCG on the validation split is best, or the middle one if there is none.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse

from embexp.data.examples import ListColumn
from embexp.training.ranking import Scores

FORMAT = 2
"""Version of what is fitted, raised when that changes."""
MOST_ITEMS = 4_000
"""Of a catalogue for EASE: a matrix of them is inverted, in some seconds."""
MOST_PAIRS = 200_000_000
"""Pairs of items of the same user that are counted, in some seconds."""
MOST_CATALOGUE = 200_000
"""Items of which neighbours are found, one item after the other, in some seconds."""
MOST_SCORED, MOST_PRODUCTS = 2_000_000_000, 5_000_000_000
"""Scores of users for items that an evaluation makes, and products that EASE adds up for them, in some seconds."""
NEIGHBOURS = 100
PENALTIES = {"ease": (30.0, 150.0, 700.0), "item_knn": (10.0, 100.0)}
"""Of EASE the ridge penalty, of neighbours what is added to the denominator of the cosine, so that items of few users
count less."""
_ROWS_AT_ONCE = 2_048


def name_of(items: int) -> str:
    """The model for a catalogue, a key of `PENALTIES`."""
    return "ease" if items <= MOST_ITEMS else "item_knn"


def matrix(lists: ListColumn, items: int) -> scipy.sparse.csr_matrix:
    """Which items, of so many, each of U lists has: 0 and 1, float32 [U, I]."""
    ones = np.ones(len(lists.values), np.float32)
    return scipy.sparse.csr_matrix((ones, lists.values, lists.splits), (len(lists.splits) - 1, items))


def shortened(lists: ListColumn) -> ListColumn:
    """The lists with at most so many items each that they have `MOST_PAIRS` pairs; longer ones are drawn from."""
    lengths = np.diff(lists.splits).astype(np.int64)
    most = int(lengths.max(initial=1))
    while most > 1 and (np.minimum(lengths, most) ** 2).sum() > MOST_PAIRS:
        most = most * 9 // 10
    row = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((np.random.default_rng(0).random(len(row)), row))
    kept = np.sort(order[np.arange(len(row)) - lists.splits[:-1][row] < most])
    return ListColumn(lists.values[kept], np.concatenate([[0], np.cumsum(np.minimum(lengths, most))]))


def fit(name: str, train: scipy.sparse.csr_matrix, penalty: float) -> np.ndarray | scipy.sparse.csr_matrix:
    """The weights of a model by its name, [I, I], from which items each user has, [U, I].

    Raises:
        ValueError: there are too many items.
    """
    if train.shape[1] > MOST_CATALOGUE:
        raise ValueError(f"it would take too long: {train.shape[1]:,} items are more than {MOST_CATALOGUE:,}")
    return ease(train, penalty) if name == "ease" else item_knn(train, penalty)


def most_users(name: str, seen: ListColumn, items: int) -> int:
    """Users of a split that a model by its name is evaluated on: evenly spread ones, where there are more.

    Args:
        seen: the items that each of them has.
    """
    most = max(1, MOST_SCORED // items)
    if name == "ease":
        most = min(most, max(1, MOST_PRODUCTS * max(1, len(seen.splits) - 1) // max(1, len(seen.values) * items)))
    return most


def ease(train: scipy.sparse.csr_matrix, penalty: float) -> np.ndarray:
    """Weights B, float32 [I, I] with a diagonal of 0, that minimise |X - X B|² + penalty |B|²: Steck 2019, eq. 8."""
    gram = (train.T @ train).toarray().astype(np.float64)
    gram[np.diag_indices_from(gram)] += penalty
    inverse = scipy.linalg.inv(gram, overwrite_a=True, check_finite=False)
    weights = np.asarray(inverse / -np.diag(inverse), np.float32)
    np.fill_diagonal(weights, 0.0)
    return weights


def item_knn(train: scipy.sparse.csr_matrix, shrinkage: float) -> scipy.sparse.csr_matrix:
    """Similarities, float32 [I, I]: in column j those of item j's nearest neighbours, else 0.

    Those of i and j are c_ij / (sqrt(c_i c_j) + shrinkage), for c_ij users who have both.
    """
    counts = np.asarray(train.sum(axis=0), np.float32).ravel()
    norms, by_item = np.sqrt(counts), train.T.tocsr()
    lengths, items, values = [0], [], []
    for start in range(0, train.shape[1], _ROWS_AT_ONCE):
        both = by_item[start : start + _ROWS_AT_ONCE] @ train
        for place, row in enumerate(range(start, start + both.shape[0])):
            some = slice(both.indptr[place], both.indptr[place + 1])
            others = both.indices[some]
            cosines = both.data[some] / (norms[row] * norms[others] + shrinkage)
            cosines[others == row] = 0.0
            nearest = _largest(cosines, others)
            lengths.append(len(nearest))
            items.append(others[nearest])
            values.append(cosines[nearest])
    cells = np.concatenate(values), np.concatenate(items), np.cumsum(lengths)
    return scipy.sparse.csr_matrix(cells, (train.shape[1], train.shape[1])).T.tocsr()


def _largest(values: np.ndarray, items: np.ndarray) -> np.ndarray:
    """The places of the `NEIGHBOURS` largest values above 0. Among equal values, the lowest items count."""
    least = 0.0 if len(values) <= NEIGHBOURS else np.partition(values, -NEIGHBOURS)[-NEIGHBOURS]
    above = np.flatnonzero(values > max(least, 0.0))
    if least <= 0:
        return above
    equal = np.flatnonzero(values == least)
    return np.concatenate([above, equal[np.argsort(items[equal])][: NEIGHBOURS - len(above)]])


def scores(users: scipy.sparse.csr_matrix, weights: np.ndarray | scipy.sparse.csr_matrix) -> Scores:
    """Scores of all items for N users with items `users`, [N, I]: sums of the weights of these items."""

    def some(start: int, stop: int) -> np.ndarray:
        found = users[start:stop] @ weights
        return np.asarray(found.toarray() if scipy.sparse.issparse(found) else found, np.float32)

    return some
