"""Lists by items that several workers keep, against those of one process, whose metrics have an oracle of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.data.examples import ListColumn
from embexp.errors import DivergedError
from embexp.fields.recommendation.evaluation import evaluate_lists
from embexp.strategies.cluster.multi_worker import Keeper, SharedItems
from embexp.training import ranking
from embexp.training.ranking import ItemPart, KeptItems, UserVectors

USERS, DIM, CUTOFFS = 12, 4, (3, 8)


class Workers:
    """Other workers than 0, which answer at once; as a leader and as their followers."""

    def __init__(self, workers: int) -> None:
        self.keepers = [Keeper() for _ in range(workers)]
        self.answers: list[deque[tuple[dict[str, Any], list[np.ndarray]]]] = [deque() for _ in range(workers)]
        self._asked = 0

    def send(self, worker: int, head: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> None:
        self._asked = worker
        assert self.keepers[worker].serve(self, head, arrays)  # type: ignore[arg-type]

    def answer(self, head: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> None:
        self.answers[self._asked].append((head, list(arrays)))

    def reply(self, worker: int) -> tuple[dict[str, Any], list[np.ndarray]]:
        return self.answers[worker].popleft()


def lists(random: np.random.Generator, items: int, avoided: ListColumn | None = None) -> ListColumn:
    """Some items of each user, of those that are not avoided."""
    found = []
    for user in range(USERS):
        left = np.arange(items)
        if avoided is not None:
            left = np.setdiff1d(left, avoided.values[avoided.splits[user] : avoided.splits[user + 1]])
        found.append(random.permutation(left)[: random.integers(0, min(len(left), 4) + 1)])
    return ListColumn(np.concatenate(found), np.concatenate([[0], np.cumsum([len(each) for each in found])]))


def measured(kept: KeptItems, of_items: np.ndarray, of_users: np.ndarray, random: np.random.Generator) -> Any:
    """Metrics of lists, of vectors that come in blocks of their own sizes."""
    for block in np.array_split(of_items, 3):
        kept.add(block)
    items = len(of_items)
    seen = lists(random, items)
    return evaluate_lists(
        kept.lister(UserVectors(np.array_split(of_users, 5))),
        items,
        relevant=lists(random, items, seen),
        unknown=np.ones(USERS, np.int64),
        seen=seen,
        cutoffs=CUTOFFS,
        listed=("novelty",),
        counts=np.arange(1, items + 1),
    )


class OneProcess:
    """All items and all users, by NumPy; `KeptItems`."""

    def __init__(self) -> None:
        self.blocks: list[np.ndarray] = []

    def add(self, vectors: np.ndarray) -> None:
        self.blocks.append(vectors)

    def lister(self, users: UserVectors) -> ranking.Lister:
        return ranking.listed_by(ranking.products(users(USERS), np.concatenate(self.blocks)))


@given(seed=st.integers(0, 2**32), items=st.integers(1, 40), workers=st.integers(2, 4), cells=st.integers(1, 200))
@settings(max_examples=40)
def test_workers_list_what_one_process_lists(seed: int, items: int, workers: int, cells: int) -> None:
    """Products of small whole numbers are exact, and often tie; some workers may have no item."""
    random = np.random.default_rng(seed)
    of_items, of_users = (random.integers(-2, 3, (count, DIM)).astype(np.float32) for count in (items, USERS))
    leader = Workers(workers)
    shared = SharedItems(leader, workers, items)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "_CELLS", cells)
        found, alone, expected = (
            measured(kept, of_items, of_users, np.random.default_rng(seed))
            for kept in (shared, ItemPart(0, items), OneProcess())
        )
    assert found == alone == expected
    assert not any(leader.answers)


@pytest.mark.parametrize("wrong", [0, 3, 5])
def test_scores_that_are_no_numbers_end_the_run_when_all_have_answered(wrong: int) -> None:
    of_items, of_users = np.ones((6, DIM), np.float32), np.ones((USERS, DIM), np.float32)
    of_items[wrong] = np.nan
    leader = Workers(3)
    with pytest.raises(DivergedError, match="scores of items are not finite numbers"):
        measured(SharedItems(leader, 3, 6), of_items, of_users, np.random.default_rng(0))  # type: ignore[arg-type]
    assert not any(leader.answers)
