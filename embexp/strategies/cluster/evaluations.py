"""Evaluations, in which worker 0 predicts, and the others look their rows up, score their candidates and keep items.

So no worker needs more than its own rows and a block of others. Worker 0 tells the others of each batch before it
predicts that.

Queries of a graph go to all workers. Each looks up all of them, and counts how its own candidates stand, see
`one_vs_all.standings`.

Of recommendation, worker 0 computes the vectors of items and users. Each worker keeps those of some neighbours in the
catalogue, see `training.ranking`. Vectors of users go to all workers, and what each knows of their lists comes back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.errors import DivergedError
from embexp.specs.tasks import CANDIDATES
from embexp.strategies.cluster.control import Follower, Leader
from embexp.training import ranking
from embexp.training.ranking import Best, Found, ItemPart, Listed, Lister, Pairs, UserVectors


class Announced:
    """Batches, each of which the other workers hear of before its rows are looked up.

    Attributes:
        element_spec: of the batches.
    """

    def __init__(self, batches: Any, leader: Leader, *, ranked: bool) -> None:
        """Takes a dataset.

        Args:
            ranked: whether all workers get the batches, as each has some of the candidates.
        """
        self._batches, self._leader, self._ranked = batches, leader, ranked
        self.element_spec = batches.element_spec

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            if self._ranked:
                flat = tf.nest.flatten(_sent(batch), expand_composites=True)
                self._leader.tell({"command": "rank"}, [np.asarray(each.numpy()) for each in flat])
            else:
                self._leader.tell({"command": "lookup"})
            yield batch


@dataclass(frozen=True)
class Told:
    """One batch of queries that worker 0 has announced.

    Attributes:
        element_spec: of batches of queries, the same as that of worker 0.
        arrays: what has come.
    """

    element_spec: Any
    arrays: Sequence[np.ndarray]

    def __iter__(self) -> Iterator[Any]:
        flat = [tf.constant(each) for each in self.arrays]
        batch = tf.nest.pack_sequence_as(_sent(self.element_spec), flat, expand_composites=True)
        candidates = tf.range(self.element_spec.ids[CANDIDATES].shape[1])[None]
        yield batch._replace(ids={**batch.ids, CANDIDATES: candidates})


def _sent(batch: Any) -> Any:
    """What of a batch of queries is sent: all but the candidates, which are all there are."""
    return batch._replace(ids={name: each for name, each in batch.ids.items() if name != CANDIDATES})


class SharedItems:
    """Items of which each worker keeps some; `KeptItems`."""

    def __init__(self, leader: Leader, workers: int, count: int) -> None:
        """Begins to keep items.

        Args:
            count: how many there will be; workers without any take no part.
        """
        self._leader, self._added = leader, 0
        ends = itertools.pairwise(part * count // workers for part in range(workers + 1))
        # Worker 0 has the last ones, as there may be fewer items than workers.
        parts = {(number + 1) % workers: part for number, part in enumerate(ends)}
        self._ranges = {worker: (start, stop) for worker, (start, stop) in parts.items() if start < stop}
        start, stop = self._ranges[0]
        self._own = ItemPart(start, stop - start)
        for worker, (start, stop) in self._others():
            leader.send(worker, {"command": "items", "first": start, "count": stop - start})

    def add(self, vectors: np.ndarray) -> None:
        """Sends the vectors of the next items, float32 [n, d], to the workers that keep them."""
        first, self._added = self._added, self._added + len(vectors)
        for worker, (start, stop) in self._ranges.items():
            part = vectors[max(0, start - first) : max(0, stop - first)]
            if not len(part):
                continue
            if worker:
                self._leader.send(worker, {"command": "item_vectors"}, [part])
            else:
                self._own.add(part)

    def lister(self, users: UserVectors) -> Lister:
        """Lists by the scores of all workers."""

        def lists(start: int, stop: int, seen: Pairs, relevant: Pairs, k: int) -> Listed:
            some = users(stop - start)
            for worker, of_part in self._others():
                arrays = [some, *_within(seen, of_part), *_within(relevant, of_part)]
                self._leader.send(worker, {"command": "find_items", "k": k}, arrays)
            own = self._ranges[0]
            found = [_found(self._own, some, _within(seen, own), _within(relevant, own), k)]
            found += [self._leader.reply(worker) for worker, _ in self._others()]
            if diverged := [head["diverged"] for head, _ in found if "diverged" in head]:
                raise DivergedError(diverged[0])
            parts = [Found(Best(items, scores), *columns) for _, (items, scores, *columns) in found]
            together = ranking.joined(parts, k)
            for worker, _ in self._others():
                self._leader.send(worker, {"command": "items_before"}, together[1:])
            places = 1.0 + self._own.before(*together[1:])
            for worker, _ in self._others():
                places += self._leader.reply(worker)[1][0]
            return Listed(together.best.items, places)

        return lists

    def _others(self) -> list[tuple[int, tuple[int, int]]]:
        return [(worker, of_part) for worker, of_part in self._ranges.items() if worker]


def _within(pairs: Pairs, items: tuple[int, int]) -> Pairs:
    """Those of some neighbouring items."""
    chosen = (pairs[1] >= items[0]) & (pairs[1] < items[1])
    return pairs[0][chosen], pairs[1][chosen]


class Keeper:
    """The items that another worker than 0 keeps."""

    def __init__(self) -> None:
        """Keeps none."""
        self._part = ItemPart(0, 0)

    def serve(self, follower: Follower, head: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> bool:
        """Does what worker 0 says of items; returns whether that was about items."""
        match head["command"]:
            case "items":
                self._part = ItemPart(head["first"], head["count"])
            case "item_vectors":
                self._part.add(arrays[0])
            case "find_items":
                users, of_seen, seen, of_relevant, relevant = arrays
                follower.answer(*_found(self._part, users, (of_seen, seen), (of_relevant, relevant), head["k"]))
            case "items_before":
                follower.answer({}, [self._part.before(*arrays)])
            case _:
                return False
        return True


def _found(part: ItemPart, users: np.ndarray, seen: Pairs, relevant: Pairs, k: int) -> tuple[dict[str, Any], list[Any]]:
    """What a worker answers about the lists of users."""
    try:
        best, *others = part.find(users, seen, relevant, k)
    except DivergedError as error:
        return {"diverged": str(error)}, []
    return {}, [*best, *others]
