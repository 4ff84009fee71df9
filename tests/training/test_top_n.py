"""Lists and their metrics against one user at a time in plain Python, and against ranx where it is installed."""

from __future__ import annotations

import importlib.util
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.data.examples import ListColumn
from embexp.errors import DivergedError
from embexp.fields.recommendation.evaluation import evaluate_lists
from embexp.fields.recommendation.tasks import RECOMMENDATION
from embexp.training import ranking

CUTOFFS = (1, 3, 10)
LISTED = ("precision_at_k", "map_at_k", "novelty_at_k")
User = tuple[list[float], set[int], set[int], int]
"""Scores, held-out items, seen items, and the number of held-out items that the catalogue lacks."""


def lists(sets: list[set[int]]) -> ListColumn:
    splits = np.cumsum([0, *map(len, sets)]).astype(np.int64)
    return ListColumn(np.array([value for each in sets for value in sorted(each)], np.int64), splits)


def ranked(scores: list[float], seen: set[int]) -> list[int]:
    return sorted(set(range(len(scores))) - seen, key=lambda item: (-scores[item], item))


def count_of(item: int) -> int:
    """How often an item is in the training split."""
    return item % 4 + 1


def by_hand(users: list[User]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    shown: dict[int, set[int]] = {k: set() for k in CUTOFFS}
    total = sum(map(count_of, range(len(users[0][0]))))
    for scores, relevant, seen, unknown in users:
        order, count = ranked(scores, seen), len(relevant) + unknown
        places = [place for place, item in enumerate(order, 1) if item in relevant]
        found.setdefault("mrr", []).append(1 / places[0] if places else 0.0)
        for k in CUTOFFS:
            hits = [place for place in places if place <= k]
            gain = math.fsum(1 / math.log2(place + 1) for place in hits)
            ideal = math.fsum(1 / math.log2(place + 1) for place in range(1, min(k, count) + 1))
            found.setdefault(f"recall_at_{k}", []).append(len(hits) / count)
            found.setdefault(f"hit_rate_at_{k}", []).append(float(bool(hits)))
            found.setdefault(f"ndcg_at_{k}", []).append(gain / ideal)
            shown[k] |= set(order[:k])
            precisions = [number / place for number, place in enumerate(hits, 1)]
            surprise = [-math.log2(count_of(item) / total) for item in order[:k]]
            found.setdefault(f"precision_at_{k}", []).append(len(hits) / k)
            found.setdefault(f"map_at_{k}", []).append(math.fsum(precisions) / count)
            found.setdefault(f"novelty_at_{k}", []).append(math.fsum(surprise) / max(1, len(surprise)))
    means = {name: math.fsum(values) / len(values) for name, values in found.items()}
    return means | {f"coverage_at_{k}": len(shown[k]) / len(users[0][0]) for k in CUTOFFS}


def evaluated(users: list[User]) -> dict[str, float]:
    scores = np.array([each[0] for each in users])
    return measured(ranking.listed_by(lambda start, stop: scores[start:stop].copy()), users)


def measured(lister: ranking.Lister, users: list[User]) -> dict[str, float]:
    items = len(users[0][0])
    return evaluate_lists(
        lister,
        items,
        relevant=lists([each[1] for each in users]),
        unknown=np.array([each[3] for each in users]),
        seen=lists([each[2] for each in users]),
        cutoffs=CUTOFFS,
        listed=LISTED,
        counts=np.array([count_of(item) for item in range(items)]),
    )


def user(items: int) -> st.SearchStrategy[User]:
    score = st.one_of(st.sampled_from([0.0, 1.0, -1.0]), st.floats(-9, 9))
    scores = st.lists(score, min_size=items, max_size=items)
    # Each item is held out, seen, or neither.
    kinds = st.lists(st.sampled_from("-hs"), min_size=items, max_size=items)

    def made(scores: list[float], kinds: list[str], unknown: int) -> User:
        held_out = {item for item, kind in enumerate(kinds) if kind == "h"}
        seen = {item for item, kind in enumerate(kinds) if kind == "s"}
        return scores, held_out, seen, unknown if held_out else unknown + 1

    return st.builds(made, scores, kinds, st.integers(0, 2))


@given(st.integers(1, 14).flatmap(lambda items: st.lists(user(items), min_size=1, max_size=6)), st.integers(1, 60))
@settings(max_examples=60)
def test_metrics_are_those_of_one_user_after_the_other(users: list[User], cells: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "_CELLS", cells)
        found = evaluated(users)
    expected = by_hand(users)
    assert set(found) == set(expected)
    assert list(found) == [name for name, _, _ in RECOMMENDATION.named_metrics(CUTOFFS, LISTED)]
    assert found == pytest.approx(expected, abs=1e-12)


@given(st.integers(1, 14).flatmap(lambda items: st.lists(user(items), min_size=1, max_size=6)), st.integers(1, 60))
@settings(max_examples=60)
def test_the_same_scores_for_all_give_the_lists_that_each_would_get(users: list[User], cells: int) -> None:
    users = [(users[0][0], *others) for _, *others in users]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "_CELLS", cells)
        assert measured(ranking.same_for_all(np.array(users[0][0])), users) == evaluated(users)


@pytest.mark.skipif(importlib.util.find_spec("ranx") is None, reason="ranx is not installed")
def test_metrics_are_those_of_ranx(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import numba

        monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)  # to compile ranx takes half a minute
        import ranx

        generator = np.random.default_rng(0)
        users: list[User] = []
        for _ in range(50):
            order = generator.permutation(60).tolist()
            held_out = set(order[: int(generator.integers(1, 15))])
            users.append((generator.normal(0, 1, 60).tolist(), held_out, set(order[20:30]), 0))
        truth = ranx.Qrels({str(number): {str(item): 1 for item in each[1]} for number, each in enumerate(users)})
        run = ranx.Run(
            {
                str(number): {str(item): each[0][item] for item in ranked(each[0], each[2])}
                for number, each in enumerate(users)
            }
        )
        theirs = {"ndcg_at_{}": "ndcg@{}", "recall_at_{}": "recall@{}", "hit_rate_at_{}": "hit_rate@{}"}
        theirs |= {"precision_at_{}": "precision@{}", "map_at_{}": "map@{}"}
        names = {our.format(k): their.format(k) for k in CUTOFFS for our, their in theirs.items()} | {"mrr": "mrr"}
        expected = ranx.evaluate(truth, run, list(names.values()))
    found = evaluated(users)
    assert {name: found[name] for name in names} == pytest.approx(
        {our: expected[their] for our, their in names.items()}, abs=1e-9
    )


def test_equal_scores_are_listed_by_number_and_seen_items_are_not() -> None:
    scores = np.array([[2.0, 3.0, 3.0, 2.0, 2.0, -np.inf], [-np.inf, 1.0, -np.inf, -np.inf, -np.inf, -np.inf]])
    found = ranking.best_items(scores, 3)
    assert found.items.tolist() == [[1, 2, 0], [1, -1, -1]]
    assert ranking.best_items(scores[:, :2], 4).items.tolist() == [[1, 0, -1, -1], [1, -1, -1, -1]]


def test_a_score_that_is_no_number_ends_the_run() -> None:
    with pytest.raises(DivergedError, match="diverged"):
        evaluated([([1.0, math.nan], {0}, set(), 0)])


@pytest.mark.parametrize("items", [640, 641, 5_000])
@pytest.mark.parametrize("values", [3, 50, None], ids=["few values", "many values", "all different"])
def test_the_best_of_many_items_are_those_of_a_sort(items: int, values: int | None) -> None:
    generator = np.random.default_rng(items)
    scores = generator.normal(0, 1, (40, items)).astype(np.float32)
    if values is not None:
        scores = np.floor(scores * values / 4).astype(np.float32)
    scores[generator.random(scores.shape) < 0.2] = -np.inf
    scores[0], scores[1, 5:] = -np.inf, -np.inf  # of users who have seen all, or all but a few
    found = ranking.best_items(scores, 10)
    for row, (chosen, best) in enumerate(zip(found.items.tolist(), found.scores.tolist(), strict=True)):
        order = np.lexsort((np.arange(items), -scores[row]))[:10]
        assert chosen == [int(item) if scores[row, item] > -np.inf else -1 for item in order]
        assert best == scores[row, order].tolist()
