"""Metrics of ranks, and what they are expected to be where candidates are put in an order at random."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from embexp.fields.graphs.tasks import RANKING
from embexp.specs import tasks as metric_specs
from embexp.training.baseline import Reference, approached


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
    return metric_specs.computed(RANKING, "value", ranks, predict_head)


def mrr(ranks: np.ndarray, predict_head: np.ndarray) -> float:
    """Mean of 1 / rank."""
    return float(np.mean(1 / ranks))


def mrr_tails(ranks: np.ndarray, predict_head: np.ndarray) -> float | None:
    """That of tail prediction."""
    own = ranks[~predict_head]
    return mrr(own, predict_head) if len(own) else None


def mrr_heads(ranks: np.ndarray, predict_head: np.ndarray) -> float | None:
    """That of head prediction."""
    return mrr_tails(ranks, ~predict_head)


def hits(ranks: np.ndarray, predict_head: np.ndarray, k: int) -> float:
    """Share of the ranks up to k."""
    return float(np.mean(ranks <= k))


def mean_rank(ranks: np.ndarray, predict_head: np.ndarray) -> float:
    """Mean rank."""
    return float(np.mean(ranks))


def at_random(choices: np.ndarray, predict_head: np.ndarray) -> dict[str, float]:
    """Expected metrics of queries whose candidates are put in an order at random.

    A rank is uniform on 1 to n.

    Args:
        choices: integers [N], the candidates n of each query that are ranked: without other known answers.
        predict_head: bool [N]: True for head prediction, False for tail prediction.
    """
    return metric_specs.computed(RANKING, "constant", choices, predict_head)


def mrr_at_random(choices: np.ndarray, predict_head: np.ndarray) -> float:
    """The mean of 1 / rank is the n-th harmonic number divided by n."""
    harmonic = np.cumsum(1.0 / np.arange(1, int(choices.max()) + 1))
    return float((harmonic[choices - 1] / choices).mean())


def mrr_tails_at_random(choices: np.ndarray, predict_head: np.ndarray) -> float | None:
    """That of tail prediction."""
    own = choices[~predict_head]
    return mrr_at_random(own, predict_head) if len(own) else None


def mrr_heads_at_random(choices: np.ndarray, predict_head: np.ndarray) -> float | None:
    """That of head prediction."""
    return mrr_tails_at_random(choices, ~predict_head)


def hits_at_random(choices: np.ndarray, predict_head: np.ndarray, k: int) -> float:
    """The chance of one of the first k places."""
    return float(np.mean(np.minimum(k, choices) / choices))


def mean_rank_at_random(choices: np.ndarray, predict_head: np.ndarray) -> float:
    """The middle."""
    return float(np.mean((choices + 1) / 2))


def _gains(found: Mapping[str, float], constant: Mapping[str, float]) -> list[float | None]:
    """The part of the way from the MRR of a random order to 1."""
    return [approached(found, constant, "mrr")]


REFERENCE = Reference("a random order", ("mrr",), _gains)
