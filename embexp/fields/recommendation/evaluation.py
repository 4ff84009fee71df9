"""Evaluation of recommendation: lists of the best items for each user, and their metrics, in float64.

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

import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embexp.data.columns import Columns
from embexp.data.examples import Examples, ListColumn
from embexp.fields.recommendation import item_models
from embexp.fields.recommendation.data import SEEN, HeldOut, Recommended
from embexp.fields.recommendation.tasks import RECOMMENDATION
from embexp.runs.evaluations import (
    EVALUATING,
    INTERVALS,
    NOT_FITTED,
    Details,
    Evaluation,
    Evaluator,
    Fit,
    FittedBaseline,
    Metrics,
    Predicted,
    Reporting,
    Splits,
    once,
    stage,
)
from embexp.runs.prepare import Data
from embexp.specs import tasks as metric_specs
from embexp.specs.run import RunSpec
from embexp.system.parallel import Progress, part, quiet
from embexp.training import baseline, intervals, ranking
from embexp.training.intervals import MOST, Drawn, Intervals, Outcomes, bootstrap, unheard
from embexp.training.loop import Predictor
from embexp.training.ranking import ItemPart, Lister, SharesItems, UserVectors, blocks, pairs


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


_USERS_TO_CHOOSE = 2_000
"""Number of users of the validation split that choose a penalty."""


class ListEvaluator(Evaluator):
    """Evaluates lists of items."""

    parts = False  # all items are ranked for all users

    def __init__(self, spec: RunSpec) -> None:
        """Stores the lengths of lists."""
        super().__init__(spec)
        self._cutoffs = self.task.cutoffs_of(spec)

    def of_rows(self, data: Data, split: str, rows: np.ndarray) -> Evaluation:
        """Lists for the users of a split."""
        return self._users(data, _recommended(data).held_out(split), data.columns, data.scan.examples)

    def file(self, columns: Columns, examples: Examples, read_data: Callable[[], Data]) -> Evaluation:
        """Lists for the users in all examples, without what they have in the run's training and validation splits."""
        data, rows = read_data(), np.arange(examples.count)
        seen = [data.scan.splits[name] for name in SEEN["test"]]
        held = _recommended(data).interactions.held_out(examples, rows, data.scan.examples, seen)
        return self._users(data, held, columns, examples)

    def baselines(self, data: Data, progress: Progress = quiet) -> dict[str, dict[str, Metrics]]:
        """The items that are most frequent in the training split."""
        counts = _recommended(data).interactions.catalogue.counts.astype(np.float64)
        lister = ranking.same_for_all(counts)
        held_out = [name for name, rows in data.scan.splits.items() if len(rows) and name != "train"]
        found = {}
        for place, name in enumerate(held_out):
            of_split = part(progress, place / len(held_out), (place + 1) / len(held_out))
            held = _recommended(data).held_out(name)
            found[name] = self.of_lists(data, held, lister, len(counts), "evaluating the most popular items", of_split)
        return {"popularity": found}

    def learned(self, final: Splits, baselines: Mapping[str, Splits]) -> bool:
        """Whether lists are better than those of the most popular items."""
        popularity = baselines["popularity"]
        return all(final[split][self.first] > each[self.first] for split, each in popularity.items() if split in final)

    def predicted(self, logits: np.ndarray, classes: Sequence[str]) -> Predicted:
        """Scores of users' items, from the vectors of both, float32 [n, 2, d]."""
        return Predicted(np.asarray((logits[:, 0].astype(np.float64) * logits[:, 1]).sum(axis=1), np.float32))

    @property
    def first(self) -> str:
        """The metric of lists by which a model is chosen."""
        return f"ndcg_at_{self._cutoffs[0]}"

    @property
    def measured_of_lists(self) -> dict[str, Any]:
        """The settings that decide which metrics lists have."""
        return {"cutoffs": list(self._cutoffs), "listed": sorted(self._listed)}

    def _users(self, data: Data, held: HeldOut, columns: Columns, examples: Examples) -> Evaluation:
        """Prepares the evaluation of some users.

        Args:
            columns: the columns that are read from the held-out examples.
        """

        def measured(runtime: Predictor, progress: Progress = quiet, details: Details | None = None) -> Metrics:
            catalogue = _recommended(data).interactions.catalogue
            items = runtime.keep(catalogue.size) if isinstance(runtime, SharesItems) else ItemPart(0, catalogue.size)
            for block in self._vectors(runtime, data.columns, data.scan.examples, catalogue.examples, progress):
                items.add(block[:, 1])
            users = (block[:, 0] for block in self._vectors(runtime, columns, examples, held.examples, quiet))
            lister = items.lister(UserVectors(users))
            return self.of_lists(data, held, lister, catalogue.size, EVALUATING, progress, details)

        return measured

    def of_lists(
        self,
        data: Data,
        held: HeldOut,
        lister: ranking.Lister,
        items: int,
        stage: str,
        progress: Progress,
        details: Details | None = None,
    ) -> Metrics:
        """The metrics of lists of so many items, for the users of `held`."""
        reported = _reported(lister, len(held.unknown), stage, progress)
        of_users: dict[str, list[np.ndarray]] = {}
        found = evaluate_lists(
            reported,
            items,
            relevant=held.relevant,
            unknown=held.unknown,
            seen=held.seen,
            cutoffs=self._cutoffs,
            listed=self._listed,
            counts=_recommended(data).interactions.catalogue.counts,
            of_users=None if details is None else of_users,
        )
        if details is not None:
            values = {name: np.concatenate(blocks) for name, blocks in of_users.items()}
            who = (_recommended(data).interactions.user,)
            outcomes = Outcomes(held.examples, values[self.first], self.first, columns=who)
            details["intervals"] = intervals.around(
                found,
                intervals_over_users(values, self._seed, partial(progress, INTERVALS), outcomes, users=held.users),
            )
        return found

    def vectors(
        self,
        data: Data,
        runtime: Predictor,
        columns: Columns,
        examples: Examples,
        rows: np.ndarray,
        progress: Progress = quiet,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of the users of some examples, float32 [N, d], and of all items, [I, d]; scores are dot products.

        Args:
            rows: int64 [N], which examples.
        """
        users = np.concatenate([*self._vectors(runtime, columns, examples, rows, progress)])[:, 0]
        catalogue = _recommended(data).interactions.catalogue.examples
        items = np.concatenate([*self._vectors(runtime, data.columns, data.scan.examples, catalogue, progress)])
        return users, items[:, 1]

    def _vectors(
        self, runtime: Predictor, columns: Columns, examples: Examples, rows: np.ndarray, progress: Progress
    ) -> Iterator[np.ndarray]:
        """The vectors of the user and the item of some examples, float32 [n, 2, d], batch by batch."""
        reporting = Reporting(runtime, len(rows), "computing vectors", progress)
        left = len(rows)
        for _, vectors in reporting.predict(self.batches(columns, examples, rows)):
            yield vectors[:left]  # the last batch may be padded
            left -= len(vectors)

    def warnings(self, data: Data, final: Splits, baselines: Mapping[str, Splits]) -> list[str]:
        """Users that were left out, and a model that learned too little."""
        found: list[str] = []
        popularity = baselines["popularity"]
        first = self.first
        for split, popular in popularity.items():
            if skipped := _recommended(data).held_out(split).skipped:
                found.append(
                    f"{split}: {skipped:,} users are not evaluated: they are not in the training split, or they have"
                    " seen their held-out items before"
                )
            if split not in final:
                continue
            others = [name for name in baseline.worse(final[split], popular) if name != first]
            figures = ", ".join(f"{name} {final[split][name]:.4f} ({popular[name]:.4f})" for name in others)
            if final[split][first] <= popular[first]:
                found.append(
                    f"{split}: {first} is {final[split][first]:.4f}, no better than recommending the most popular"
                    f" items, {popular[first]:.4f}{f'; nor are {figures}' if others else ''}: train longer, or try"
                    " another learning rate or loss"
                )
            elif others:
                found.append(
                    f"{split}: worse than recommending the most popular items: {figures}, in brackets"
                    " those of the most popular items"
                )
        fitted = {
            name: {split: {first: values[first]} for split, values in splits.items()}
            for name, splits in baselines.items()
            if name in baseline.FITTED
        }
        return found + baseline.warnings_of_others(final, fitted)

    def fitted(self, data: Data, cache: Path, progress: Progress = quiet) -> FittedBaseline:
        """Lists by the similarities of items alone, see `item_models`. What is kept are their metrics."""
        others = {split: rows for split, rows in data.scan.splits.items() if split != "train" and len(rows)}
        if not others:
            return NOT_FITTED
        recommended = _recommended(data)
        known, catalogue = recommended.interactions, recommended.interactions.catalogue
        name = item_models.name_of(catalogue.size)

        def make(folder: Path) -> None:
            started = time.perf_counter()
            examples, train = data.scan.examples, data.scan.splits["train"]
            everyone = known.seen(examples, [train], np.unique(known.pairs(examples, train)[0]))
            used = item_models.shortened(everyone)
            trained = item_models.matrix(used, catalogue.size)

            def items_of(held: HeldOut) -> Any:
                return item_models.matrix(known.seen(examples, [train], held.users), catalogue.size)

            def measured(held: HeldOut, users: Any, weights: Any, stage: str, progress: Progress) -> Metrics:
                lister = ranking.listed_by(item_models.scores(users, weights))
                return self.of_lists(data, held, lister, catalogue.size, stage, progress)

            penalties, words = item_models.PENALTIES[name], baseline.FITTED[name]
            penalty, best, reached = penalties[len(penalties) // 2], None, -math.inf
            if "validation" in others:
                some = recommended.held_out("validation").some(_USERS_TO_CHOOSE)
                theirs = items_of(some)
                for place, each in enumerate(penalties):
                    progress(stage(name), place / len(penalties))
                    weights = item_models.fit(name, trained, each)
                    value = measured(some, theirs, weights, f"choosing a penalty of {words}", quiet)[self.first]
                    if value > reached:
                        penalty, best, reached = each, weights, value
            if best is None:
                best = item_models.fit(name, trained, penalty)
            metrics, evaluated, held_out = {}, 0, 0
            for place, split in enumerate(others):
                of_split, everybody = (
                    part(progress, place / len(others), (place + 1) / len(others)),
                    recommended.held_out(split),
                )
                held = everybody.some(item_models.most_users(name, everybody.seen, catalogue.size))
                metrics[split] = measured(held, items_of(held), best, f"evaluating {words}", of_split)
                evaluated, held_out = evaluated + len(held.users), held_out + len(everybody.users)
            counts = len(used.values), len(everyone.values), catalogue.size
            fit = Fit(*counts, penalty, True, time.perf_counter() - started, evaluated, held_out)
            (folder / "metrics.json").write_text(json.dumps(metrics), "utf-8")
            (folder / "fit.json").write_text(json.dumps(asdict(fit)), "utf-8")

        key = {
            "format": item_models.FORMAT,
            "data": data.scan.key,
            "columns": [known.user, known.item],
            "metrics": self.measured_of_lists,
        }
        folder = once(name, key, make, cache, progress)
        if isinstance(folder, FittedBaseline):
            return folder
        metrics, fit = (json.loads((folder / f"{each}.json").read_text("utf-8")) for each in ("metrics", "fit"))
        return FittedBaseline({name: metrics}, {name: fit})


def _reported(lister: ranking.Lister, users: int, stage: str, progress: Progress) -> ranking.Lister:
    """The same lists; reports the share of users that have theirs."""

    def found(start: int, stop: int, *more: Any) -> ranking.Listed:
        progress(stage, start / max(1, users))
        return lister(start, stop, *more)

    return found


def _recommended(data: Data) -> Recommended:
    found: Recommended = data.candidates
    return found


def intervals_over_users(
    values: Mapping[str, np.ndarray],
    seed: int,
    progress: Callable[[float], object] = unheard,
    outcomes: Outcomes | None = None,
    *,
    users: np.ndarray | None = None,
) -> Intervals:
    """Intervals of metrics that are means over users; users are drawn again.

    Args:
        values: by name, of each user, float64 [N].
        outcomes: of the users; None: nobody asks.
        users: int64 [N], their rows in the vocabulary, rising; None: they are compared with nobody.
    """
    if not values:
        return Intervals()
    generator, count = np.random.default_rng(seed), len(next(iter(values.values())))

    def measured(rows: np.ndarray, counts: np.ndarray) -> dict[str, float]:
        return (
            {name: float(np.sum(each[rows] * counts) / counts.sum()) for name, each in values.items()}
            if counts.any()
            else {}
        )

    rows = np.arange(count)
    some = np.sort(generator.choice(rows, MOST, replace=False)) if count > MOST else rows
    drawn = Drawn(measured, count, unit="users", outcomes=outcomes, names=users)
    return bootstrap(drawn, some, generator, progress)
