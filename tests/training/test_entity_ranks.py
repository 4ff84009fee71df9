"""Standings, counted by TensorFlow in blocks of entities, against ranks counted by NumPy from all scores."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.data.examples import ListColumn
from embexp.errors import DivergedError
from embexp.fields.graphs import tasks
from embexp.strategies.cluster.partition import Partition
from embexp.training import one_vs_all, ranking
from embexp.training.ranking import KnownAnswers

QUERIES = 6


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), entities=st.integers(2, 40), block=st.integers(1, 41), levels=st.integers(1, 9))
def test_ranks_are_those_of_all_scores(seed: int, entities: int, block: int, levels: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.choice(random.normal(size=levels).astype(np.float32), (QUERIES, entities))  # many ties
    answers = random.integers(0, entities, QUERIES)
    known = [np.unique([answer, *random.integers(0, entities, entities // 2)]) for answer in answers]
    counts = np.array([len(each) for each in known])
    lists = ListColumn(np.concatenate(known).astype(np.int32), np.concatenate([[0], np.cumsum(counts)]))
    ragged = tf.RaggedTensor.from_row_splits(lists.values, lists.splits)
    found = one_vs_all.standings(
        lambda start, stop: tf.constant(scores[:, start:stop]),
        one_vs_all.Part.whole(entities),
        block,
        tf.constant(answers, tf.int32),
        ragged,
    )
    expected = ranking.ranks(scores, answers, lists)
    np.testing.assert_array_equal(ranking.ranks_of_standings(found.numpy(), counts, entities), expected)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), entities=st.integers(1, 90), workers=st.integers(2, 4))
def test_workers_that_share_the_candidates_add_up_the_same(seed: int, entities: int, workers: int) -> None:
    """Also one that has none of them; and a score that is no number is known to all."""
    random = np.random.default_rng(seed)
    scores = random.choice(random.normal(size=5).astype(np.float32), (QUERIES, entities))
    scores[0, random.integers(entities)] = np.nan
    answers = tf.constant(random.integers(0, entities, QUERIES), tf.int32)
    lists = [np.unique(random.integers(0, entities, 4)).tolist() for _ in range(QUERIES)]
    known = tf.ragged.constant(lists, dtype=tf.int32)
    partition = Partition(entities, workers, 1 << int(random.integers(3)), 2)
    sums: list[np.ndarray] = []

    def of_worker(worker: int, number: int) -> np.ndarray:
        """What a worker adds to a sum, with the sums before it."""
        added = {}

        def summed(values: tf.Tensor, which: int) -> tf.Tensor:
            added[which] = values.numpy()
            return tf.constant(sums[which]) if which < len(sums) else values

        def places(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            owners, own = partition.split(ids.numpy())
            which = np.flatnonzero(owners == worker)
            return tf.constant(which, tf.int32), tf.constant(own[which], tf.int32)

        own = partition.numbers(worker, 0, partition.count(worker))
        part = one_vs_all.Part(len(own), places, summed)
        one_vs_all.standings(lambda start, stop: tf.constant(scores[:, own[start:stop]]), part, 3, answers, known)
        return np.asarray(added[number])

    for number in (0, 1):
        sums.append(np.sum([of_worker(worker, number) for worker in range(workers)], axis=0, dtype=np.float32))
    whole = one_vs_all.Part.whole(entities)
    expected = one_vs_all.standings(lambda start, stop: scores[:, start:stop], whole, 3, answers, known)
    np.testing.assert_array_equal(sums[1], expected)
    assert np.isnan(sums[1]).tolist() == [True, *([False] * (QUERIES - 1))]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1, 4])
def test_scores_that_are_no_numbers_have_no_rank(wrong: float, place: int) -> None:
    """Wherever it is: the answer's own score, that of a known answer, or any other."""
    scores = np.float32([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]])
    scores[1, place] = wrong
    known = tf.ragged.constant([[0, 1], [0, 1]], dtype=tf.int32)
    found = one_vs_all.standings(
        lambda start, stop: tf.constant(scores[:, start:stop]),
        one_vs_all.Part.whole(5),
        2,
        tf.constant([0, 0]),
        known,
    )
    assert np.isnan(found).tolist() == [False, True]
    with pytest.raises(DivergedError, match="1 of 2 queries have scores that are not finite numbers"):
        ranking.ranks_of_standings(found.numpy(), np.array([2, 2]), 5)


@pytest.mark.parametrize("entities", [2, 14_541, 40_943, 1_000_000, 1 << 24])
def test_batches_are_bounded(entities: int) -> None:
    size = tasks.evaluation_batch(entities, 512)
    assert 1 <= size <= 512
    assert size in (1, 512) or 4 * size * entities <= tasks.SCORES < 4 * (size + 1) * entities
    assert 4 * 400 * one_vs_all.block_rows(entities, 400) <= tasks.ROWS


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32),
    entities=st.integers(2, 12),
    kinds=st.integers(1, 4),
    trained=st.integers(0, 60),
    some=st.integers(1, 30),
)
def test_ranks_by_frequency_are_those_of_counts_as_scores(
    seed: int, entities: int, kinds: int, trained: int, some: int
) -> None:
    """Also of kinds, and answers, that no training query has."""
    random = np.random.default_rng(seed)
    kind, answer = random.integers(0, kinds, trained), random.integers(0, entities, trained)
    asked, answers = random.integers(0, kinds + 1, some), random.integers(0, entities, some)
    lists = [np.unique([each, *random.integers(0, entities, entities // 2)]) for each in answers]
    splits = np.concatenate([[0], np.cumsum([len(each) for each in lists])])
    known = KnownAnswers(ListColumn(np.concatenate(lists).astype(np.int32), splits), np.arange(some))
    counts = np.zeros((kinds + 1, entities))
    np.add.at(counts, (kind, answer), 1)
    expected = ranking.ranks(counts[asked], answers, known.lists)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ranking, "_QUERIES", 7)  # several blocks
        found = ranking.ranks_by_frequency((kind, answer), asked, answers, known, entities)
    np.testing.assert_array_equal(found, expected)
