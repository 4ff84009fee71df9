"""Ranks against counting candidate by candidate in Python, and against figures worked out by hand."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.examples import ListColumn
from embexp.errors import DivergedError
from embexp.fields.graphs import evaluation as rank_metrics
from embexp.fields.graphs.tasks import RANKING
from embexp.specs import tasks as metric_specs
from embexp.specs.tasks import Direction
from embexp.training import ranking
from embexp.training.ranking import KnownAnswers

Query = tuple[list[float], int, set[int]]


def evaluate(predictions: Any, known: KnownAnswers, predict_head: np.ndarray, entities: int) -> dict[str, float]:
    return rank_metrics.metrics(ranking.ranks_of_queries(predictions, known, entities), predict_head)


def lists(known: list[set[int]]) -> ListColumn:
    splits = np.cumsum([0, *map(len, known)]).astype(np.int64)
    return ListColumn(np.array([value for each in known for value in sorted(each)], np.int32), splits)


def answers_of(known: list[set[int]]) -> KnownAnswers:
    return KnownAnswers(lists(known), np.arange(len(known)))


def counted(scores: list[float], answer: int, known: set[int]) -> Fraction:
    """The mean of the best and the worst place among the candidates that are no other right answers."""
    rivals = [score for number, score in enumerate(scores) if number != answer and number not in known]
    best = 1 + sum(score > scores[answer] for score in rivals)
    worst = 1 + sum(score >= scores[answer] for score in rivals)
    return Fraction(best + worst, 2)


def query(candidates: int) -> st.SearchStrategy[Query]:
    score = st.one_of(st.sampled_from([0.0, 1.0, -1.0]), st.floats(-9, 9, width=32))
    number = st.integers(0, candidates - 1)
    return st.tuples(st.lists(score, min_size=candidates, max_size=candidates), number, st.sets(number))


QUERIES = st.integers(1, 7).flatmap(lambda candidates: st.lists(query(candidates), min_size=1, max_size=9))


@given(queries=QUERIES, batch=st.integers(1, 10), filled=st.integers(0, 2), data=st.data())
def test_metrics_by_their_definitions(queries: list[Query], batch: int, filled: int, data: st.DataObject) -> None:
    predict_head = data.draw(st.lists(st.booleans(), min_size=len(queries), max_size=len(queries)))
    expected = [counted(*each) for each in queries]
    shown = [*queries, *queries[-1:] * filled]
    batches = [
        (np.float32([answer for _, answer, _ in part]), np.float32([scores for scores, _, _ in part]))
        for part in (shown[start : start + batch] for start in range(0, len(queries), batch))
    ]
    known = answers_of([known for _, _, known in queries])
    found = evaluate(batches, known, np.array(predict_head), len(queries[0][0]))

    def mean(values: list[Fraction]) -> float:
        return float(sum(values) / len(values))

    names = ["mrr", "hits_at_1", "hits_at_3", "hits_at_10", "mean_rank"]
    assert list(found)[:5] == names
    assert found["mrr"] == pytest.approx(mean([1 / rank for rank in expected]), rel=1e-14)
    for k in (1, 3, 10):
        assert found[f"hits_at_{k}"] == pytest.approx(mean([Fraction(rank <= k) for rank in expected]), rel=1e-14)
    assert found["mean_rank"] == pytest.approx(mean(expected), rel=1e-14)
    for name, wanted in (("mrr_heads", True), ("mrr_tails", False)):
        own = [1 / rank for rank, is_head in zip(expected, predict_head, strict=True) if is_head is wanted]
        assert found.get(name) == (pytest.approx(mean(own), rel=1e-14) if own else None)


NONE: set[int] = set()


@pytest.mark.parametrize(
    ("scores", "answer", "known", "rank"),
    [
        ([3, 2, 1], 0, NONE, 1.0),
        ([3, 2, 1], 2, NONE, 3.0),
        ([3, 2, 1], 2, {0, 2}, 2.0),
        ([3, 2, 1], 2, {0, 1}, 1.0),
        ([0, 0, 0, 0, 0], 1, NONE, 3.0),
        ([0, 0, 0, 0], 1, NONE, 2.5),
        ([0, 0, 0, 0], 1, {1, 2}, 2.0),
        ([1, 0, 0, -1], 1, NONE, 2.5),
        ([1.0, np.nextafter(np.float32(1), np.float32(2))], 0, NONE, 2.0),
    ],
    ids=[
        "first",
        "last",
        "another right answer above it",
        "all above it are right",
        "all alike: the middle",
        "all alike: between two places",
        "a right answer among the ties",
        "a tie in the middle",
        "the smallest difference counts",
    ],
)
def test_named_ranks(scores: list[float], answer: int, known: set[int], rank: float) -> None:
    assert ranking.ranks(np.float32([scores]), np.array([answer]), lists([known])).tolist() == [rank]


def test_a_model_that_scores_everything_alike_gains_nothing() -> None:
    """Its MRR is that of the middle of 101 places; the optimistic rank would give it an MRR of 1."""
    answers = np.arange(101)
    found = evaluate([(answers, np.zeros((101, 101)))], answers_of([set()] * 101), np.zeros(101, bool), 101)
    assert found["mrr"] == pytest.approx(1 / 51, rel=1e-15)
    assert (found["hits_at_10"], found["mean_rank"]) == (0.0, 51.0)


def test_scores_that_are_no_numbers_have_no_rank() -> None:
    scores = np.float32([[0, 1], [math.nan, 0], [0, math.inf]])
    with pytest.raises(DivergedError, match="2 of 3 queries have scores that are not finite numbers"):
        ranking.ranks(scores, np.array([0, 1, 1]), lists([set()] * 3))


def test_every_metric_has_a_name_and_a_direction() -> None:
    answers, half = np.zeros(2, np.int64), np.array([False, True])
    names = metric_specs.metrics_of(RANKING)
    better = evaluate([(answers, np.float32([[2, 1, 1]] * 2))], answers_of([set()] * 2), half, 3)
    worse = evaluate([(answers, -np.float32([[2, 1, 1] * 5] * 2))], answers_of([set()] * 2), half, 3)
    assert tuple(better) == names
    assert (metric_specs.watched(RANKING, None), metric_specs.headline(RANKING)) == ("mrr", "mrr")
    for name in names:
        lower = metric_specs.direction(name) is Direction.LOWER
        assert (better[name] < worse[name]) is lower, name


def test_queries_without_predictions_are_not_passed_over() -> None:
    with pytest.raises(ValueError, match="3 queries, but predictions for 1"):
        evaluate([(np.zeros(1), np.zeros((1, 2)))], answers_of([set()] * 3), np.zeros(3, bool), 2)
    with pytest.raises(ValueError, match="no queries"):
        evaluate([], answers_of([]), np.zeros(0, bool), 2)
