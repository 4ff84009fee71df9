"""The vectors of all items in an evaluation of recommendation: in one process, or in several that have some each.

Scores are products of vectors of users and items. A process scores the items that it has, for some users at a time. The
best items of all are among the best of each process. The place of a relevant item is known when each has counted how
many of its items are listed before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

from embexp.training import ranking
from embexp.training.ranking import Best, Listed, Lister, Pairs


def product(users: np.ndarray, items: Any) -> np.ndarray:
    """Scores as dot products of vectors of users [n, d] and of items [I, d]: float32 [n, I].

    By TensorFlow, whose products have the same bits whatever other items there are. NumPy's have not. So items with the
    same vector tie, also where several processes score some of the items each.
    """
    with tf.device("/CPU:0"):
        found: np.ndarray = tf.matmul(users, items, transpose_b=True).numpy()
    return found


class UserVectors:
    """Vectors of users, which come in blocks and are asked for once each, in their order."""

    def __init__(self, blocks: Iterable[np.ndarray]) -> None:
        """Takes blocks, float32 [n, d]; reads none."""
        self._blocks: Iterator[np.ndarray] = iter(blocks)
        self._rest: np.ndarray | None = None

    def __call__(self, count: int) -> np.ndarray:
        """The next vectors, float32 [count, d]."""
        found = [] if self._rest is None else [self._rest]
        while sum(map(len, found)) < count:
            found.append(next(self._blocks))
        joined = found[0] if len(found) == 1 else np.concatenate(found)
        self._rest = joined[count:]
        return joined[:count]


class KeptItems(Protocol):
    """Keeps the vectors of items, and makes lists of them."""

    def add(self, vectors: np.ndarray) -> None:
        """Keeps those of the next items, float32 [n, d]."""

    def lister(self, users: UserVectors) -> Lister:
        """Lists by dot products with the vectors of users, when all items are there."""


@runtime_checkable
class SharesItems(Protocol):
    """A runtime of several processes, which keep some items each."""

    def keep(self, count: int) -> KeptItems:
        """Begins to keep so many items."""


class Found(NamedTuple):
    """What a part of the items knows of the lists of n users.

    Attributes:
        best: the best items of the part.
        rows: int64 [m], users with relevant items in the part, rising.
        items: int64 [m], of each the one that is listed first.
        values: float32 [m], its score.
    """

    best: Best
    rows: np.ndarray
    items: np.ndarray
    values: np.ndarray


class ItemPart:
    """Some neighbours of a catalogue; `KeptItems` if these are all.

    Attributes:
        first: the number of the first of them.
    """

    def __init__(self, first: int, count: int) -> None:
        """Has no items yet; `count` will be added."""
        self.first, self._count, self._added = first, count, 0
        self._vectors: Any = None  # a variable, as TensorFlow would copy an array for each product
        self._scores = np.empty((0, 0), np.float32)

    def add(self, vectors: np.ndarray) -> None:
        """Keeps the vectors of the next items, float32 [n, d]."""
        with tf.device("/CPU:0"):
            if self._vectors is None:
                self._vectors = tf.Variable(tf.zeros([self._count, vectors.shape[1]]), trainable=False)
            first, self._added = self._added, self._added + len(vectors)
            self._vectors[first : self._added].assign(vectors)

    def lister(self, users: UserVectors) -> Lister:
        """Lists of these items alone."""

        def found(start: int, stop: int, seen: Pairs, relevant: Pairs, k: int) -> Listed:
            of_part = self.find(users(stop - start), seen, relevant, k)
            return Listed(of_part.best.items, 1.0 + self.before(of_part.rows, of_part.items, of_part.values))

        return found

    def find(self, users: np.ndarray, seen: Pairs, relevant: Pairs, k: int) -> Found:
        """What is known of the lists of users, by their vectors [n, d]; `before` is about the same users.

        Args:
            seen: items of the part that are not listed.
            relevant: items of the part.

        Raises:
            DivergedError: a score is not finite.
        """
        self._scores = ranking.without(product(users, self._vectors), self._own(seen))
        best = ranking.best_items(self._scores, k)
        rows, items, values = ranking.best_relevant(self._scores, self._own(relevant))
        return Found(
            Best(np.where(best.items < 0, -1, best.items + self.first), best.scores), rows, items + self.first, values
        )

    def before(self, rows: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        """How many items of the part are listed before some items with their scores, int64 [m]."""
        return ranking.before(self._scores, rows, items - self.first, values)

    def _own(self, pairs: Pairs) -> Pairs:
        return pairs[0], pairs[1] - self.first


def joined(parts: Sequence[Found], k: int) -> Found:
    """What all parts know together."""
    items = np.concatenate([part.best.items for part in parts], 1)
    scores = np.concatenate([part.best.scores for part in parts], 1)
    order = np.lexsort((items, -scores), axis=1)[:, :k]
    best = Best(np.take_along_axis(items, order, 1), np.take_along_axis(scores, order, 1))
    columns = [np.concatenate(each) for each in zip(*(part[1:] for part in parts), strict=True)]
    return Found(best, *ranking.firsts(*columns))
