"""Ranks of correct answers among candidates, and lists of the best items for each user.

A query of a knowledge graph may have several correct answers. When one of them is ranked, the other known ones are
removed from the candidates ("filtered", Bordes et al. 2013). Where candidates tie with the answer, its rank is the mean
of the best and the worst rank that it could have among them ("realistic", Berrendorf et al. 2020), so that a model that
gives all candidates the same score gains nothing.

Lists of the best items for each user are of the whole catalogue, by the highest scores in float32 or float64, without
the items that the user has seen. Items with equal scores are listed by their number in the catalogue.

The vectors of all items are in one process, or in several that have some each. A process scores the items that it has,
for some users at a time. The best items of all are among the best of each process. The place of a relevant item is
known when each has counted how many of its items are listed before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

from embexp.data.examples import ListColumn
from embexp.errors import DivergedError

_CELLS = 1 << 22
"""Number of scores in memory at once: 16 MB of float32, and a few times as much to rank them."""
_GROUPS_OF_PLACE = 32
"""Groups of items per place of a list. With more groups, fewer items but more maxima are sorted."""
_QUERIES = 1 << 14
"""Number of queries whose known answers are in memory at once."""

Scores = Callable[[int, int], np.ndarray]
"""Scores of all items for users start..stop: float [stop - start, I], a new array."""
Pairs = tuple[np.ndarray, np.ndarray]
"""Some items of some users: the user of each, rising, from 0; and the item's number in the catalogue."""


class Listed(NamedTuple):
    """What is known of the lists of n users.

    Attributes:
        items: int64 [n, k], see `Best`.
        first_places: float64, the place of the first relevant item of each user with any, among all items, from 1.
    """

    items: np.ndarray
    first_places: np.ndarray


Lister = Callable[[int, int, Pairs, Pairs, int], Listed]
"""From users start..stop, in their order, their seen items, their relevant ones and k, to their lists.

Raises DivergedError: a score is not finite.
"""


@dataclass(frozen=True)
class KnownAnswers:
    """The known answers of N queries; queries that ask the same share them.

    Attributes:
        lists: the answers of each distinct query, each once, rising.
        places: int64 [N], the list of each query; its own answer is among them.
    """

    lists: ListColumn
    places: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """Number of answers of each query, int64 [N]."""
        return np.asarray(np.diff(self.lists.splits)[self.places])

    def between(self, start: int, stop: int) -> ListColumn:
        """The answers of the queries [start, stop), which are copied."""
        places = self.places[start:stop]
        starts, lengths = self.lists.splits[places], np.diff(self.lists.splits)[places]
        ends = np.cumsum(lengths)
        taken = np.arange(lengths.sum()) + np.repeat(starts - (ends - lengths), lengths)
        return ListColumn(self.lists.values[taken], np.concatenate([[0], ends]))


def ranks(scores: np.ndarray, answers: np.ndarray, known: ListColumn) -> np.ndarray:
    """Filtered, realistic rank of each query's answer, from 1: float64 [N], multiples of 0.5.

    Args:
        scores: of each candidate, float [N, C]; higher is better. Compared without rounding.
        answers: integers [N] below C.
        known: all known correct answers of each query, each once; the answer itself may be among them.

    Raises:
        DivergedError: a score is not finite.
    """
    _check_finite(np.isfinite(scores).all(axis=1))
    rows = np.arange(len(scores))
    own = scores[rows, answers]
    higher = np.count_nonzero(scores > own[:, None], axis=1)
    ties = np.count_nonzero(scores == own[:, None], axis=1) - 1  # all but the answer itself
    query = np.repeat(rows, np.diff(known.splits))
    others = known.values != answers[query]
    query, filtered = query[others], known.values[others]
    removed = scores[query, filtered]
    higher -= np.bincount(query[removed > own[query]], minlength=len(scores))
    ties -= np.bincount(query[removed == own[query]], minlength=len(scores))
    return np.asarray(1 + higher + ties / 2, np.float64)


def ranks_of_standings(standings: np.ndarray, known: np.ndarray, entities: int) -> np.ndarray:
    """The same ranks from what `one_vs_all.standings` counted: float64 [N].

    Args:
        standings: candidates with a higher score minus those with a lower one, float [N]; NaN if a score is not finite.
        known: number of known answers of each query, its own answer among them, integers [N].

    Raises:
        DivergedError: a score is not finite.
    """
    _check_finite(np.isfinite(standings))
    # Of all others, those that are neither higher nor lower tie, and count one half.
    return np.asarray(1 + (entities - known + standings.astype(np.float64)) / 2)


def ranks_by_frequency(
    trained: tuple[np.ndarray, np.ndarray],
    kinds: np.ndarray,
    answers: np.ndarray,
    known: KnownAnswers,
    entities: int,
) -> np.ndarray:
    """The same ranks where the score of a candidate is how often it answers training queries of the same kind.

    Takes memory for the training answers only, not for each kind and entity.

    Args:
        trained: kind and answer of each training query, integers [T].
        kinds: of each query, such as its relation and direction, integers [N].
        answers: integers [N] below `entities`.
        known: all known correct answers of each query; its own is among them.
    """
    kind, answer = (each.astype(np.int64) for each in trained)
    pairs, counts = np.unique(kind * entities + answer, return_counts=True)
    base = int(counts.max(initial=0)) + 1
    ordered = np.sort(pairs // entities * base + counts)  # by kind, then by how often

    def counted(kinds: np.ndarray, answers: np.ndarray) -> np.ndarray:
        wanted = kinds.astype(np.int64) * entities + answers
        place = np.searchsorted(pairs, wanted)
        there = place < len(pairs)
        there[there] = pairs[place[there]] == wanted[there]
        return np.where(there, counts[np.where(there, place, 0)], 0) if len(pairs) else np.zeros(len(wanted), np.int64)

    found = []
    for start in range(0, len(answers), _QUERIES):
        own_kinds, others = kinds[start : start + _QUERIES].astype(np.int64), known.between(start, start + _QUERIES)
        own = counted(own_kinds, answers[start : start + _QUERIES])
        first, last = np.searchsorted(ordered, own_kinds * base), np.searchsorted(ordered, (own_kinds + 1) * base)
        above = np.searchsorted(ordered, own_kinds * base + own, "right")
        higher = last - above
        equal = np.where(own > 0, above - np.searchsorted(ordered, own_kinds * base + own), entities - (last - first))
        query = np.repeat(np.arange(len(own)), np.diff(others.splits))
        removed = counted(own_kinds[query], others.values)
        higher -= np.bincount(query[removed > own[query]], minlength=len(own))
        equal -= np.bincount(query[removed == own[query]], minlength=len(own))  # the answer itself among them
        found.append(1 + higher + equal / 2)
    return np.concatenate([np.empty(0), *found])


def ranks_of_queries(
    predictions: Iterable[tuple[np.ndarray, np.ndarray]], known: KnownAnswers, entities: int
) -> np.ndarray:
    """Ranks, float64 [N], of queries that come in batches; only one batch of scores is in memory at a time.

    Args:
        predictions: answers [B], and standings [B] or scores [B, C], of the queries in their order; any beyond them are
            padding of the last batch.
        known: all known correct answers of each query.
        entities: number of entities that answers are ranked among.

    Raises:
        DivergedError: a score is not finite.
        ValueError: there are predictions for fewer than N queries, or no queries.
    """
    counts, found, count = known.counts, [], 0
    for answers, scores in predictions:
        stop = min(count + len(scores), len(counts))
        own = scores[: stop - count]
        if own.ndim == 1:
            found.append(ranks_of_standings(own, counts[count:stop], entities))
        else:
            found.append(ranks(own, answers[: stop - count].astype(np.int64), known.between(count, stop)))
        count = stop
    if count != len(counts):
        raise ValueError(f"{len(counts)} queries, but predictions for {count}")
    return np.concatenate([np.empty(0), *found])


def _check_finite(finite: np.ndarray) -> None:
    if wrong := int(np.count_nonzero(~finite)):
        raise DivergedError(
            f"{wrong:,} of {len(finite):,} queries have scores that are not finite numbers: training has diverged"
        )


class Best(NamedTuple):
    """The lists of some users.

    Attributes:
        items: int64 [n, k], numbers in the catalogue, best first; -1 where nothing is left to recommend.
        scores: float [n, k]; -inf there.
    """

    items: np.ndarray
    scores: np.ndarray


def products(users: np.ndarray, items: np.ndarray) -> Scores:
    """Scores as dot products of vectors of users [N, d] and of items [I, d]."""
    columns = np.ascontiguousarray(items.T)
    return lambda start, stop: users[start:stop] @ columns


def best_items(scores: np.ndarray, k: int) -> Best:
    """The k highest scores of each row [n, I], those of seen items being -inf; equal ones by rising number."""
    rows, items_of = scores.shape
    count = min(k, items_of)
    row, item = np.divmod(np.flatnonzero(scores >= _at_most_kth(scores, count)[:, None]), items_of)
    value = scores[row, item]
    order = np.lexsort((item, -value, row))
    place = np.arange(len(row)) - np.searchsorted(row, np.arange(rows))[row]
    kept = order[place < count]  # `row` is sorted, so the order within a row is all that changes
    items = item[kept].reshape(rows, count)
    found = value[kept].reshape(rows, count)
    items = np.where(np.isneginf(found), -1, items)
    missing = ((0, 0), (0, k - count))
    return Best(np.pad(items, missing, constant_values=-1), np.pad(found, missing, constant_values=-np.inf))


def _at_most_kth(scores: np.ndarray, k: int) -> np.ndarray:
    """A bound for each row, [n]: at most its k-th highest score, but so high that few scores reach it.

    It is the k-th highest of the maxima of groups of items, because at least k items are as high. A group has every
    n-th item, so that its items are not neighbours. If there are few items, each is its own group, and the bound is the
    k-th highest score.
    """
    rows, items = scores.shape
    groups = _GROUPS_OF_PLACE * k
    if items <= 2 * groups:
        return np.asarray(np.partition(scores, items - k, axis=1)[:, items - k])
    whole = items // groups * groups
    highest = scores[:, :whole].reshape(rows, -1, groups).max(axis=1)
    return np.asarray(np.partition(highest, groups - k, axis=1)[:, groups - k])


def user_blocks(scores: Scores, users: int, items: int, seen: ListColumn) -> Iterator[tuple[int, int, np.ndarray]]:
    """Users start..stop and their scores, -inf for seen items, in bounded memory.

    Raises:
        DivergedError: a score is not finite.
    """
    for start, stop in blocks(users, items):
        yield start, stop, without(scores(start, stop), pairs(seen, start, stop))


def blocks(users: int, items: int) -> Iterator[tuple[int, int]]:
    """First and last of so many users that their scores of all items are in memory at once."""
    size = max(1, _CELLS // items)
    return ((start, min(start + size, users)) for start in range(0, users, size))


def without(scores: np.ndarray, seen: Pairs) -> np.ndarray:
    """The scores, which change: -inf for seen items.

    Raises:
        DivergedError: a score is not finite.
    """
    if not np.isfinite(scores).all():
        raise DivergedError("scores of items are not finite numbers: training has diverged")
    scores[seen] = -np.inf
    return scores


def listed_by(scores: Scores) -> Lister:
    """Lists by the scores of all items."""

    def found(start: int, stop: int, seen: Pairs, relevant: Pairs, k: int) -> Listed:
        values = without(scores(start, stop), seen)
        first = best_relevant(values, relevant)
        return Listed(best_items(values, k).items, 1.0 + before(values, *first))

    return found


def same_for_all(scores: np.ndarray) -> Lister:
    """Lists by the same scores [I] for every user, such as popularity: they are sorted once.

    Raises:
        DivergedError: a score is not finite.
    """
    without(scores[None], (np.empty(0, np.int64), np.empty(0, np.int64)))
    order = np.argsort(-scores, kind="stable")
    place_of = np.empty(len(order), np.int64)
    place_of[order] = np.arange(len(order))

    def found(start: int, stop: int, seen: Pairs, relevant: Pairs, k: int) -> Listed:
        user, place = seen[0], place_of[seen[1]]
        most = int(np.bincount(user).max(initial=0))  # this many places suffice, whatever a user has seen
        left = np.ones((stop - start, min(k + most, len(order))), bool)
        near = place < left.shape[1]
        left[user[near], place[near]] = False
        row, free = np.nonzero(left & (np.cumsum(left, axis=1) <= k))
        items = np.full((stop - start, k), -1)
        items[row, np.arange(len(row)) - np.searchsorted(row, row)] = order[free]
        who, _, best = firsts(*relevant, -place_of[relevant[1]])
        bounds = np.searchsorted(user, who), np.searchsorted(user, who, "right")
        seen_before = [
            np.count_nonzero(place[first:last] < -own) for first, last, own in zip(*bounds, best, strict=True)
        ]
        return Listed(items, 1.0 - best - np.array(seen_before, np.int64))

    return found


def best_relevant(scores: np.ndarray, relevant: Pairs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each row that has relevant items its number, and the item that is listed first and its score; see `firsts`."""
    return firsts(*relevant, scores[relevant])


def firsts(row: np.ndarray, item: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of items with their rows and scores, those that are listed first: one for each row, by rising row."""
    order = np.lexsort((item, -value, row))
    row, item, value = row[order], item[order], value[order]
    first = np.flatnonzero(np.r_[True, row[1:] != row[:-1]]) if len(row) else np.empty(0, np.int64)
    return row[first], item[first], value[first]


def before(scores: np.ndarray, row: np.ndarray, item: np.ndarray, value: np.ndarray) -> np.ndarray:
    """In each of m rows of scores [n, I], how many are listed before an item with a number and a score: int64 [m]."""
    counts = np.empty(len(row), np.int64)
    for place, (which, number, own) in enumerate(zip(row, item, value, strict=True)):
        of_row = scores[which]  # NumPy counts a whole row far faster than along an axis
        counts[place] = np.count_nonzero(of_row > own) + np.count_nonzero(of_row[: max(0, number)] == own)
    return counts


def pairs(lists: ListColumn, start: int, stop: int) -> Pairs:
    """The entries of lists start..stop."""
    splits = lists.splits[start : stop + 1]
    row = np.repeat(np.arange(stop - start), np.diff(splits))
    return row, lists.values[splits[0] : splits[-1]]


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
        self._scores = without(product(users, self._vectors), self._own(seen))
        best = best_items(self._scores, k)
        rows, items, values = best_relevant(self._scores, self._own(relevant))
        return Found(
            Best(np.where(best.items < 0, -1, best.items + self.first), best.scores), rows, items + self.first, values
        )

    def before(self, rows: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        """How many items of the part are listed before some items with their scores, int64 [m]."""
        return before(self._scores, rows, items - self.first, values)

    def _own(self, pairs: Pairs) -> Pairs:
        return pairs[0], pairs[1] - self.first


def joined(parts: Sequence[Found], k: int) -> Found:
    """What all parts know together."""
    items = np.concatenate([part.best.items for part in parts], 1)
    scores = np.concatenate([part.best.scores for part in parts], 1)
    order = np.lexsort((items, -scores), axis=1)[:, :k]
    best = Best(np.take_along_axis(items, order, 1), np.take_along_axis(scores, order, 1))
    columns = [np.concatenate(each) for each in zip(*(part[1:] for part in parts), strict=True)]
    return Found(best, *firsts(*columns))
