"""Ranks of correct answers among all candidates, and ranking metrics: NumPy, integers and float64.

A query of a knowledge graph may have several correct answers. When one of them is ranked, the other known ones are
removed from the candidates ("filtered", Bordes et al. 2013). Where candidates tie with the answer, its rank is the mean
of the best and the worst rank that it could have among them ("realistic", Berrendorf et al. 2020), so that a model that
gives all candidates the same score gains nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from embexp.data.examples import ListColumn
from embexp.data.queries import KnownAnswers
from embexp.errors import DivergedError
from embexp.training.metric_names import HITS


@dataclass(frozen=True)
class Queries:
    """What is known of N queries, beside the scores and answers that predictions hold.

    Attributes:
        known: all known correct answers of each query.
        predict_head: bool [N]: True for head prediction, False for tail prediction.
        entities: number of entities that answers are ranked among.
    """

    known: KnownAnswers
    predict_head: np.ndarray
    entities: int


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
    """The same ranks from what `entity_ranks.standings` counted: float64 [N].

    Args:
        standings: candidates with a higher score minus those with a lower one, float [N]; NaN if a score is not finite.
        known: number of known answers of each query, its own answer among them, integers [N].
        entities: how many there are.

    Raises:
        DivergedError: a score is not finite.
    """
    _check_finite(np.isfinite(standings))
    # Of all others, those that are neither higher nor lower tie, and count one half.
    return np.asarray(1 + (entities - known + standings.astype(np.float64)) / 2)


def metrics(ranks: np.ndarray, predict_head: np.ndarray) -> dict[str, float]:
    """MRR, Hits@k and mean rank over all queries, and the MRR of tail prediction and of head prediction.

    Args:
        ranks: float64 [N], from 1.
        predict_head: bool [N]: True for head prediction, False for tail prediction. A direction without queries has
            no MRR.

    Raises:
        ValueError: there are no queries.
    """
    if not len(ranks):
        raise ValueError("there is nothing to evaluate: no queries")
    directions = {"mrr_tails": ranks[~predict_head], "mrr_heads": ranks[predict_head]}
    return {
        "mrr": _mean_reciprocal(ranks),
        **{f"hits_at_{k}": float(np.mean(ranks <= k)) for k in HITS},
        "mean_rank": float(np.mean(ranks)),
        **{name: _mean_reciprocal(own) for name, own in directions.items() if len(own)},
    }


def evaluate(predictions: Iterable[tuple[np.ndarray, np.ndarray]], queries: Queries) -> dict[str, float]:
    """Metrics of queries that come in batches; only one batch of scores is in memory at a time.

    Args:
        predictions: answers [B], and standings [B] or scores [B, C], of the queries in their order; any beyond them are
            padding of the last batch.
        queries: N of them.

    Raises:
        DivergedError: a score is not finite.
        ValueError: there are predictions for fewer than N queries, or no queries.
    """
    known, predict_head, counts = queries.known, queries.predict_head, queries.known.counts
    found, count = [], 0
    for answers, scores in predictions:
        stop = min(count + len(scores), len(predict_head))
        own = scores[: stop - count]
        if own.ndim == 1:
            found.append(ranks_of_standings(own, counts[count:stop], queries.entities))
        else:
            found.append(ranks(own, answers[: stop - count].astype(np.int64), known.between(count, stop)))
        count = stop
    if count != len(predict_head):
        raise ValueError(f"{len(predict_head)} queries, but predictions for {count}")
    return metrics(np.concatenate([np.empty(0), *found]), predict_head)


def _check_finite(finite: np.ndarray) -> None:
    if wrong := int(np.count_nonzero(~finite)):
        raise DivergedError(
            f"{wrong:,} of {len(finite):,} queries have scores that are not finite numbers: the training has diverged"
        )


def _mean_reciprocal(ranks: np.ndarray) -> float:
    return float(np.mean(1 / ranks))
