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
from embexp.errors import DivergedError

HITS = (1, 3, 10)
"""The k of Hits@k."""


@dataclass(frozen=True)
class Queries:
    """What is known of N queries, beside the scores and answers that predictions hold.

    Attributes:
        known: all known correct answers of each query, each once.
        predict_head: bool [N]: True for head prediction, False for tail prediction.
    """

    known: ListColumn
    predict_head: np.ndarray


def ranks(scores: np.ndarray, answers: np.ndarray, known: ListColumn) -> np.ndarray:
    """Filtered, realistic rank of each query's answer, from 1: float64 [N], multiples of 0.5.

    Args:
        scores: of each candidate, float [N, C]; higher is better. Compared without rounding.
        answers: integers [N] below C.
        known: all known correct answers of each query, each once; the answer itself may be among them.

    Raises:
        DivergedError: a score is not finite.
    """
    if wrong := int(np.count_nonzero(~np.isfinite(scores).all(axis=1))):
        raise DivergedError(
            f"{wrong:,} of {len(scores):,} queries have scores that are not finite numbers: the training has diverged"
        )
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
        predictions: answers [B] and scores [B, C] of the queries in their order; any beyond them are padding of the
            last batch.
        queries: N of them.

    Raises:
        DivergedError: a score is not finite.
        ValueError: there are predictions for fewer than N queries, or no queries.
    """
    known, predict_head = queries.known, queries.predict_head
    found, count = [], 0
    for answers, scores in predictions:
        stop = min(count + len(scores), len(predict_head))
        size, splits = stop - count, known.splits[count : stop + 1]
        own = ListColumn(known.values[splits[0] : splits[-1]], splits - splits[0])
        found.append(ranks(scores[:size], answers[:size].astype(np.int64), own))
        count = stop
    if count != len(predict_head):
        raise ValueError(f"{len(predict_head)} queries, but predictions for {count}")
    return metrics(np.concatenate([np.empty(0), *found]), predict_head)


def _mean_reciprocal(ranks: np.ndarray) -> float:
    return float(np.mean(1 / ranks))
