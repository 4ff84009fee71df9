"""A served model of recommendation: scores of users' items, and the best items for users."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from embexp.fields.recommendation.recommending import Vectors
from embexp.runs.finished import load_run
from embexp.runs.serving import (
    LENGTH,
    FeatureModel,
    Pieces,
    Served,
    Signatures,
    feature_model,
    lengths,
    longest,
    traced,
)

_MORE = 128
"""Number of items after the first k whose scores are computed again in float64.

A matrix product in float32, or in a GPU's shorter formats, moves an item by at most a few places.
"""


class BestItems(tf.Module):  # type: ignore[misc]  # TensorFlow is untyped
    """The vectors of users and items, and what each user has seen, as variables of a SavedModel.

    Attributes:
        recommend: `recommend(user, k, exclude)`, a `tf.function`: the best items without those that the user has seen
            in the run's data.
        recommend_with_seen: the same with these.
    """

    def __init__(self, vectors: Vectors, users: Served, items: Served) -> None:
        """Makes the variables.

        Args:
            users: the vocabulary of the users in the graph.
            items: that of the items.

        Raises:
            DivergedError: a vector has a number that is not finite.
        """
        super().__init__()
        vectors.check_finite()
        self._users, self._items = users, items
        names = vectors.items if items.takes == tf.int64 else np.array(vectors.tokens()[1], object)
        self._nothing = np.int64(-1) if items.takes == tf.int64 else ""
        with tf.device("/cpu:0"):
            self._names = _kept(names, items.takes, "items")
            self._place = _kept(_numbers(vectors.users, users.size), tf.int32, "place_of_user")
            self._number = _kept(_numbers(vectors.items, items.size), tf.int32, "number_of_item")
            self._seen = _kept(vectors.seen.values, tf.int32, "seen")
            self._splits = _kept(vectors.seen.splits, tf.int64, "seen_splits")
            self._of_users = _kept(vectors.of_users, tf.float32, "users")
            self._of_items = _kept(vectors.of_items, tf.float32, "vectors")
        self._takes = {
            "user": tf.TensorSpec([None], users.takes, "user"),
            "k": LENGTH,
            "exclude": tf.TensorSpec([None, None], items.takes, "exclude"),
        }
        takes = tuple(self._takes.values())
        self.recommend = tf.function(self._without_seen, takes, autograph=False)
        self.recommend_with_seen = tf.function(self._with_seen, takes, autograph=False)

    def signatures(self) -> dict[str, Any]:
        """The two functions by the names under which a SavedModel lists them."""
        return {
            "recommend": traced(self.recommend, **self._takes),
            "recommend_with_seen": traced(self.recommend_with_seen, **self._takes),
        }

    def _without_seen(self, user: Any, k: Any, exclude: Any) -> dict[str, Any]:
        place = self._places(user)
        seen = tf.gather(tf.RaggedTensor.from_row_splits(self._seen.read_value(), self._splits, validate=False), place)
        hidden = tf.stack([seen.value_rowids(), tf.cast(seen.values, tf.int64)], axis=1)
        return self._best(place, k, exclude, hidden)

    def _with_seen(self, user: Any, k: Any, exclude: Any) -> dict[str, Any]:
        return self._best(self._places(user), k, exclude, tf.zeros([0, 2], tf.int64))

    def _best(self, place: Any, k: Any, exclude: Any, hidden: Any) -> dict[str, Any]:
        """Items and scores [B, k], best first, equal scores by rising number; at the end "" or -1, and -inf.

        Args:
            place: place of each user, [B].
            k: int32, a scalar or [B]. With [B], all lists have the length of the longest.
            hidden: pairs of a place in the batch and the number of an item, int64 [n, 2].
        """
        count = tf.shape(place)[0]
        each = lengths(k, count)
        number = _found(self._number, self._items.find(exclude))
        number = tf.broadcast_to(number, [count, tf.shape(number)[1]])  # all users share one row
        at = tf.where(number >= 0)
        others = tf.stack([at[:, 0], tf.cast(tf.gather_nd(number, at), tf.int64)], axis=1)
        hidden = tf.concat([hidden, others], 0)
        users, items = tf.gather(self._of_users, place), self._of_items.read_value()
        scores = tf.matmul(users, items, transpose_b=True)
        lowest = tf.fill([tf.shape(hidden)[0]], -np.inf)
        scores = tf.tensor_scatter_nd_update(scores, hidden, lowest)
        size = tf.shape(items)[0]
        k = longest(each, size)
        rough, candidates = tf.math.top_k(scores, tf.minimum(k + _MORE, size))
        order = tf.argsort(candidates, axis=1)  # among equal scores, `top_k` takes the first
        rough, candidates = (tf.gather(each, order, batch_dims=1) for each in (rough, candidates))
        products = tf.cast(users, tf.float64)[:, None] * tf.cast(tf.gather(items, candidates), tf.float64)
        exact = tf.cast(tf.reduce_sum(products, 2), tf.float32)
        exact = tf.where(tf.math.is_inf(rough), rough, exact)
        best, chosen = tf.math.top_k(exact, k)
        best = tf.where(tf.range(k)[None] < each, best, -np.inf)
        names = tf.gather(self._names.read_value(), tf.gather(candidates, chosen, batch_dims=1))
        return {"items": tf.where(tf.math.is_inf(best), self._nothing, names), "scores": best}

    def _places(self, user: Any) -> Any:
        """The place of each user among the vectors. For an unknown user, the graph raises an InvalidArgumentError."""
        place = _found(self._place, self._users.find(user))
        unknown = tf.boolean_mask(user, place < 0)
        message = "users that are not in the run's training split, so that it has learned nothing of them:"
        with tf.control_dependencies(
            [tf.raw_ops.Assert(condition=tf.equal(tf.size(unknown), 0), data=[message, unknown])]
        ):
            return tf.identity(place)


def _kept(values: np.ndarray, dtype: Any, name: str) -> Any:
    return tf.Variable(values, trainable=False, dtype=dtype, name=name)


def _numbers(rows: np.ndarray, size: int) -> np.ndarray:
    """The place of each row of a vocabulary among some rows, or -1: int32 [size]."""
    found = np.full(size, -1, np.int32)
    found[rows] = np.arange(len(rows))
    return found


def _found(numbers: Any, rows: Any) -> Any:
    """The numbers of rows, or -1 if no row has it."""
    numbers = numbers.read_value()
    size = tf.shape(numbers, tf.int64)[0]
    known = (rows >= 0) & (rows < size)
    return tf.where(known, tf.gather(numbers, tf.where(known, rows, 0)), -1)


class ListModel(FeatureModel):
    """A model of features that also lists items."""

    best: BestItems

    def signatures(self) -> Signatures:
        """Those of scores and of lists."""
        return {**super().signatures(), **self.best.signatures()}


def model(pieces: Pieces) -> ListModel:
    """The model of a run, which also lists items for users."""
    run = pieces.run
    found = load_run(run.folder.path, allow_code=pieces.allow_code).vectors(progress=pieces.progress)
    names = run.spec.recommendation
    tables = (run.spec.features[each].table for each in (names.user, names.item))
    best = BestItems(found, *(pieces.vocabularies[pieces.shared[table]] for table in tables))
    served = feature_model(pieces, _scores, ListModel)
    served.best, served.recommend, served.recommend_with_seen = best, best.recommend, best.recommend_with_seen
    return served


def _scores(logits: Any) -> dict[str, Any]:
    # In double precision, as in `embexp predict`.
    user, item = (tf.cast(logits[:, side], tf.float64) for side in (0, 1))
    return {"predictions": tf.cast(tf.reduce_sum(user * item, 1), tf.float32)}
