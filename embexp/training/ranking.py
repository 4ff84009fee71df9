"""Ranks of right answers among all candidates, and the metrics made of them: NumPy, in whole numbers and float64.

A question of a knowledge graph may have several right answers. When one of them is ranked, the others that are known
are left out of the candidates ("filtered", Bordes et al. 2013). Where candidates tie with the answer, its rank is the
mean of the best and the worst place that it could have among them ("realistic", Berrendorf et al. 2020), so that a
model that scores everything alike gains nothing.
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
class Questions:
    """What ranks need to know of N questions beside scores and answers.

    Attributes:
        known: of each question all right answers, each once.
        for_heads: bool [N]: whether a question asks for a head; others ask for a tail.
    """

    known: ListColumn
    for_heads: np.ndarray


def ranks(scores: np.ndarray, answers: np.ndarray, known: ListColumn) -> np.ndarray:
    """Filtered, realistic rank of each question's answer, from 1: float64 [N], whole numbers or halves.

    Args:
        scores: of each candidate, float [N, C]; higher is better. Compared as they are, without rounding.
        answers: integers [N] below C.
        known: of each question all right answers, each once; the answer itself may be among them.

    Raises:
        DivergedError: a score is not finite.
    """
    if wrong := int(np.count_nonzero(~np.isfinite(scores).all(axis=1))):
        raise DivergedError(
            f"{wrong:,} of {len(scores):,} questions have scores that are not finite numbers: the training has diverged"
        )
    rows = np.arange(len(scores))
    own = scores[rows, answers]
    higher = np.count_nonzero(scores > own[:, None], axis=1)
    ties = np.count_nonzero(scores == own[:, None], axis=1) - 1  # all but the answer itself
    asked = np.repeat(rows, np.diff(known.splits))
    others = known.values != answers[asked]
    asked, filtered = asked[others], known.values[others]
    theirs = scores[asked, filtered]
    higher -= np.bincount(asked[theirs > own[asked]], minlength=len(scores))
    ties -= np.bincount(asked[theirs == own[asked]], minlength=len(scores))
    return np.asarray(1 + higher + ties / 2, np.float64)


def metrics(ranks: np.ndarray, for_heads: np.ndarray) -> dict[str, float]:
    """MRR, Hits@k and mean rank of all questions together, and the MRR of each direction that was asked.

    Args:
        ranks: float64 [N], from 1.
        for_heads: bool [N]: whether the question asks for a head; others ask for a tail.

    Raises:
        ValueError: there is nothing to evaluate.
    """
    if not len(ranks):
        raise ValueError("there is nothing to evaluate: no questions")
    directions = {"mrr_tails": ranks[~for_heads], "mrr_heads": ranks[for_heads]}
    return {
        "mrr": _mean_reciprocal(ranks),
        **{f"hits_at_{k}": float(np.mean(ranks <= k)) for k in HITS},
        "mean_rank": float(np.mean(ranks)),
        **{name: _mean_reciprocal(some) for name, some in directions.items() if len(some)},
    }


def evaluate(predicted: Iterable[tuple[np.ndarray, np.ndarray]], questions: Questions) -> dict[str, float]:
    """Metrics of questions that come in batches; no more than a batch's scores are held at once.

    Args:
        predicted: answers [B] and scores [B, C] of the questions in their order; what goes beyond them only fills the
            last batch up.
        questions: N of them.

    Raises:
        DivergedError: a score is not finite.
        ValueError: there are fewer questions than N, or none.
    """
    known, for_heads = questions.known, questions.for_heads
    found, count = [], 0
    for answers, scores in predicted:
        stop = min(count + len(scores), len(for_heads))
        size, splits = stop - count, known.splits[count : stop + 1]
        own = ListColumn(known.values[splits[0] : splits[-1]], splits - splits[0])
        found.append(ranks(scores[:size], answers[:size].astype(np.int64), own))
        count = stop
    if count != len(for_heads):
        raise ValueError(f"{len(for_heads)} questions, but predictions of {count}")
    return metrics(np.concatenate([np.empty(0), *found]), for_heads)


def _mean_reciprocal(ranks: np.ndarray) -> float:
    return float(np.mean(1 / ranks))
