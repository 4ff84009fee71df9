"""Metrics of lists of items, in float64.

With H, the held-out items of a user, and h(i), 1 if item i of the list is in H:

| metric | of a user |
|---|---|
| recall_at_k | sum h(1..k) / |H| |
| ndcg_at_k | sum h(i) / log2(i + 1) over i = 1..k, divided by the same sum of the ideal list (min(k, |H|) ones) |
| hit_rate_at_k | 1 if any of h(1..k) is, else 0 |
| mrr | 1 / place of the first item of H in the list of the whole catalogue; 0 if the catalogue has none of H |

Those that a config lists:

| metric | of a user |
|---|---|
| precision_at_k | sum h(1..k) / k |
| map_at_k | sum of h(i) (sum h(1..i) / i) over i = 1..k, divided by |H|, as ranx has it |
| novelty_at_k | the mean of -log2 of the share that each item of the list has of the training split |

Each is the mean over the users. coverage_at_k is the share of the catalogue that stands in the list of at least one
user. Järvelin and Kekäläinen: "Cumulated gain-based evaluation of IR techniques" (2002), with gains of 0 and 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from embexp.data.examples import ListColumn
from embexp.fields.recommendation.tasks import RECOMMENDATION
from embexp.specs import tasks as metric_specs
from embexp.training.ranking import Lister, blocks, pairs


def evaluate_lists(
    lister: Lister,
    items: int,
    *,
    relevant: ListColumn,
    unknown: np.ndarray,
    seen: ListColumn,
    cutoffs: Sequence[int],
    listed: Collection[str] = (),
    counts: np.ndarray | None = None,
    of_users: dict[str, list[np.ndarray]] | None = None,
) -> dict[str, float]:
    """The metrics of N users.

    Args:
        lister: makes their lists, some users at a time; see `listed_by`.
        items: I, the number of items.
        relevant: held-out items of each user, by number in the catalogue, none of them seen.
        unknown: int64 [N], held-out items of each user that are not in the catalogue.
        seen: items that are left out of each user's list.
        listed: keys of further metrics.
        counts: of each item in the training split, [I], at least 1, for the novelty of lists.
        of_users: gets the values of users, block by block, of metrics that are means over them.

    Raises:
        DivergedError: a score is not finite.
        ValueError: there are no users.
    """
    users, longest = len(unknown), max(cutoffs)
    if not users:
        raise ValueError("there is nothing to evaluate: no users")
    names = [name for name, _, _ in RECOMMENDATION.named_metrics(cutoffs, listed)]
    sums: dict[str, float] = dict.fromkeys(names, 0.0)
    recommended = {k: np.zeros(items, bool) for k in cutoffs}
    information = np.zeros(items) if counts is None else np.log2(counts.sum() / np.maximum(counts, 1))
    for start, stop in blocks(users, items):
        row, item = pairs(relevant, start, stop)
        wanted = np.zeros((stop - start, items), bool)
        wanted[row, item] = True
        top, first_places = lister(start, stop, pairs(seen, start, stop), (row, item), longest)
        hits = np.take_along_axis(wanted, np.maximum(top, 0), 1) & (top >= 0)
        held_out = np.bincount(row, minlength=stop - start) + unknown[start:stop]
        surprise = np.where(top >= 0, information[np.maximum(top, 0)], np.nan)
        lists = Lists(hits, held_out, first_places, surprise)
        measured = metric_specs.computed(RECOMMENDATION, "value", lists, cutoffs=cutoffs, listed=listed)
        for name, values in measured.items():
            sums[name] += float(values.sum())
            if of_users is not None:
                every = values
                if len(values) < stop - start:
                    every = np.zeros(stop - start)
                    every[np.unique(row)] = values
                of_users.setdefault(name, []).append(every)
        for k in cutoffs:
            shown = top[:, :k]
            recommended[k][shown[shown >= 0]] = True
    found_metrics = {name: value / users for name, value in sums.items()}
    return found_metrics | {f"coverage_at_{k}": float(recommended[k].mean()) for k in cutoffs}


class Lists(NamedTuple):
    """The lists of n users; a metric of them is float64 [n], that of `first_places` without users who have none.

    Attributes:
        hits: bool [n, longest cutoff], whether each place holds a relevant item.
        held_out: integers [n], how many items are relevant.
        first_places: float64, the place of the first relevant item of each user with any, among all items, from 1.
        surprise: float64 [n, longest cutoff], -log2 of the share that the item at each place has of the training split;
            NaN where there is none.
    """

    hits: np.ndarray
    held_out: np.ndarray
    first_places: np.ndarray
    surprise: np.ndarray


def precision(lists: Lists, k: int) -> np.ndarray:
    """How many of the first k are relevant, divided by k."""
    return np.asarray(lists.hits[:, :k].sum(axis=1) / k)


def average_precision(lists: Lists, k: int) -> np.ndarray:
    """The sum of the precisions at the places of the hits among the first k, divided by the relevant items."""
    hit = lists.hits[:, :k]
    precisions = np.cumsum(hit, axis=1) / (np.arange(hit.shape[1]) + 1)
    return np.asarray((hit * precisions).sum(axis=1) / lists.held_out)


def novelty(lists: Lists, k: int) -> np.ndarray:
    """The mean surprise of the first k, in bits; 0 for an empty list (Castells et al. 2015)."""
    first = lists.surprise[:, :k]
    return np.asarray(np.nansum(first, axis=1) / np.maximum(np.count_nonzero(~np.isnan(first), axis=1), 1))


def recall(lists: Lists, k: int) -> np.ndarray:
    """Share of the relevant items among the first k."""
    return np.asarray(lists.hits[:, :k].sum(axis=1) / lists.held_out)


def ndcg(lists: Lists, k: int) -> np.ndarray:
    """The sum of 1 / log2(place + 1) over the hits among the first k, divided by the largest possible one."""
    discounts = 1 / np.log2(np.arange(k) + 2)
    ideal = np.concatenate([[0.0], np.cumsum(discounts)])
    hit = lists.hits[:, :k]
    gain = (hit * discounts[: hit.shape[1]]).sum(axis=1)
    return np.asarray(gain / ideal[np.minimum(k, lists.held_out)])


def hit_rate(lists: Lists, k: int) -> np.ndarray:
    """Whether any of the first k is relevant."""
    return np.asarray(lists.hits[:, :k].any(axis=1), np.float64)


def first_hit(lists: Lists) -> np.ndarray:
    """1 / place of the first relevant item, of the users with any."""
    return np.asarray(1 / lists.first_places)
