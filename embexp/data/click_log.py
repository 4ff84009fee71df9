"""The synthetic click log: a planted truth, drawn from it in chunks.

Users and items are drawn by rank r with p(r) ~ 1 / (r + 1)^zipf, their ids scattered by a fixed permutation. The
history of an example holds items that its user likes: of two drawn items the one with the larger <p_user, q_item>.
The click is drawn with

    logit = scale * (a_u b_user + a_i b_item + a_p <p_user, q_item> + a_h <mean of q over the history, q_item>) + shift

where biases b and vectors p, q are standard normal. All of it is linear in what a model with user, item and history
(combined by mean) can look up. Biases and vectors are hashes of the rank, so a table of any size costs no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embexp.data.examples import Layout, SplitsWriter
from embexp.data.splits import key_of, mix, permuted
from embexp.specs.data import Clicks
from embexp.system import digests
from embexp.system.arrays import ArrayWriter
from embexp.system.parallel import Progress

CHUNK = 65_536
"""Examples that are drawn together; example g is the (g % CHUNK)-th of chunk g // CHUNK."""
_USER_BIAS, _ITEM_BIAS, _AFFINITY, _HISTORY = 0.7, 0.7, 0.5, 1.0
_SHIFT = -0.5
_KEPT = 1 << 20  # values of tables up to this many rows are computed once and kept


class _Drawn(NamedTuple):
    """Some examples: ranks of users and items, histories (flat, with row splits) and the logit before scaling."""

    users: np.ndarray
    items: np.ndarray
    history: np.ndarray
    splits: np.ndarray
    raw: np.ndarray


@dataclass(frozen=True)
class _Population:
    """Users, or items: drawn by rank, each with a bias and a vector."""

    size: int
    rank: int
    zipf: float
    key: int

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """int64 [count] ranks. Rejection-inversion (Hörmann and Derflinger 1996): exact, without a table."""
        first, last = self._integral(np.array([1.5, self.size + 0.5]))
        first -= 1.0
        sure = 2.0 - self._inverse(self._integral(np.array(2.5)) - 2.0**-self.zipf)
        ranks = np.empty(count, np.int64)
        open_places = np.arange(count)
        while open_places.size:
            height = last + random.random(open_places.size) * (first - last)
            x = self._inverse(height)
            k = np.clip(np.floor(x + 0.5), 1, self.size)
            good = (k - x <= sure) | (height >= self._integral(k + 0.5) - k**-self.zipf)
            ranks[open_places[good]] = k[good].astype(np.int64) - 1
            open_places = open_places[~good]
        return ranks

    def ids(self, ranks: np.ndarray) -> np.ndarray:
        """The ids of ranks, int64."""
        return self._ids[ranks] if self.size <= _KEPT else permuted(ranks, self.size, self.key)

    def vectors(self, ranks: np.ndarray) -> np.ndarray:
        """float32 [..., rank + 1]: the vectors, and the bias as the last component."""
        return self._vectors[ranks] if self.size <= _KEPT else self._normals(ranks)

    @cached_property
    def _ids(self) -> np.ndarray:
        return permuted(np.arange(self.size), self.size, self.key)

    @cached_property
    def _vectors(self) -> np.ndarray:
        return self._normals(np.arange(self.size))

    def _normals(self, ranks: np.ndarray) -> np.ndarray:
        """Standard normals by Box and Muller from the two halves of a hash."""
        width = self.rank + 1
        place = ranks.astype(np.uint64)[..., None] * np.uint64(width) + np.arange(width, dtype=np.uint64)
        bits = mix(mix(place) ^ np.uint64(self.key))
        radius = np.sqrt(-2.0 * np.log(((bits >> np.uint64(32)) + 0.5) / 2.0**32))
        angle = (bits & np.uint64(0xFFFFFFFF)) * (2.0 * np.pi / 2.0**32)
        return np.asarray(radius * np.cos(angle), np.float32)

    def _integral(self, x: np.ndarray) -> np.ndarray:
        """Of t^-zipf over t from 1 to x."""
        power = 1.0 - self.zipf
        logarithm: np.ndarray = np.log(x)
        return np.asarray(logarithm if power == 0 else np.expm1(power * logarithm) / power)

    def _inverse(self, height: np.ndarray) -> np.ndarray:
        power = 1.0 - self.zipf
        logarithm: np.ndarray = height if power == 0 else np.log1p(np.maximum(power * height, -1.0)) / power
        return np.asarray(np.exp(logarithm))


class ClickLog:
    """The log that a `Clicks` spec describes; chunk by chunk a pure function of `data.seed` and the chunk's number."""

    def __init__(self, data: Clicks) -> None:
        self._data = data
        self._users = _Population(data.users, data.rank, data.zipf, key_of(data.seed, "users"))
        self._items = _Population(data.items, data.rank, data.zipf, key_of(data.seed, "items"))
        spectrum = 1.0 / np.arange(1, data.rank + 1)
        self._spectrum = (spectrum / np.linalg.norm(spectrum)).astype(np.float32)
        raw = self._draw(self._random("calibration"), CHUNK).raw
        self._mean, self._scale = raw.mean(), data.signal / raw.std()

    def chunks(self) -> Iterator[dict[str, np.ndarray]]:
        """Of each chunk: user, item, history (flat, with `splits`) as int64 ids, click, and its true probability."""
        for number, start in enumerate(range(0, self._data.examples, CHUNK)):
            random = self._random("chunk", number)
            drawn = self._draw(random, CHUNK)
            probability = 1.0 / (1.0 + np.exp(-(self._scale * (drawn.raw - self._mean) + _SHIFT)))
            click = random.random(CHUNK) < probability
            count = min(CHUNK, self._data.examples - start)
            yield {
                "user": self._users.ids(drawn.users[:count]),
                "item": self._items.ids(drawn.items[:count]),
                "history": self._items.ids(drawn.history[: drawn.splits[count]]),
                "splits": drawn.splits[: count + 1],
                "click": click[:count],
                "probability": probability[:count],
            }

    def _draw(self, random: np.random.Generator, count: int) -> _Drawn:
        users, items = self._users.draw(random, count), self._items.draw(random, count)
        lengths = random.integers(0, self._data.history_length, count, endpoint=True)
        splits = np.concatenate([[0], np.cumsum(lengths)])
        owner = np.repeat(np.arange(count), lengths)
        user, item = self._users.vectors(users), self._items.vectors(items)
        p, q = user[:, :-1], item[:, :-1]

        liked = self._items.draw(random, len(owner))
        other = self._items.draw(random, len(owner))
        liked_q, other_q = self._items.vectors(liked)[:, :-1], self._items.vectors(other)[:, :-1]
        p_owner = p[owner]
        better = np.einsum("ij,ij->i", p_owner, other_q) > np.einsum("ij,ij->i", p_owner, liked_q)
        liked[better] = other[better]
        liked_q[better] = other_q[better]

        sums = np.concatenate([np.zeros((1, self._data.rank)), np.cumsum(liked_q, axis=0, dtype=np.float64)])
        mean = (sums[splits[1:]] - sums[splits[:-1]]) / np.maximum(lengths, 1)[:, None]
        taste = (_AFFINITY * p + _HISTORY * mean) * self._spectrum
        raw = _USER_BIAS * user[:, -1] + _ITEM_BIAS * item[:, -1] + np.einsum("ij,ij->i", taste, q)
        return _Drawn(users, items, liked, splits, raw)

    def _random(self, *names: str | int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=digests.seed_of(self._data.seed, "clicks", *names)))


def write(data: Clicks, folder: Path, progress: Progress) -> None:
    """Writes the whole log into an empty folder: ids are rows already; `probability.npy` is the truth."""
    kind = np.int32 if max(data.users, data.items) <= 2**31 else np.int64
    done = 0
    with ExitStack() as stack:
        ids = stack.enter_context(ArrayWriter(folder / "ids.npy", kind, 2))
        values = stack.enter_context(ArrayWriter(folder / "list.0.values.npy", kind))
        splits = SplitsWriter(stack.enter_context(ArrayWriter(folder / "list.0.splits.npy", np.int64)))
        labels = stack.enter_context(ArrayWriter(folder / "labels.npy", np.float32))
        dense = stack.enter_context(ArrayWriter(folder / "dense.npy", np.float32, 0))
        truth = stack.enter_context(ArrayWriter(folder / "probability.npy", np.float64))
        for chunk in ClickLog(data).chunks():
            ids.append(np.stack([chunk["user"], chunk["item"]], axis=1))
            values.append(chunk["history"])
            splits.append(chunk["splits"])
            labels.append(chunk["click"])
            dense.append(np.empty((len(chunk["click"]), 0)))
            truth.append(chunk["probability"])
            done += len(chunk["click"])
            progress("drawing clicks", done / data.examples)
    Layout(count=data.examples, ids=["user", "item"], lists=["history"], label=True).write(folder)


def bayes(labels: np.ndarray, probability: np.ndarray) -> dict[str, float]:
    """The best possible AUC and log loss on these examples: of the true probabilities; AUC only with both labels."""
    result = {}
    positive = labels > 0.5
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if ones and zeros:
        _, place, counts = np.unique(probability, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[place]
        result["bayes_auc"] = float((ranks[positive].sum() - ones * (ones + 1) / 2.0) / (ones * zeros))
    if len(labels):
        # The logarithm of a probability that rounds to 0 or 1 is bounded, as in the metrics of a run.
        safe = np.clip(probability, 1e-15, 1 - 1e-15)
        result["bayes_log_loss"] = float(-np.mean(np.where(positive, np.log(safe), np.log1p(-safe))))
    return result
