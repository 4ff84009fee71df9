"""Evaluation of next items: the rank of each user's held-out item among all, and the best items after histories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.data.histories import lists_of
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.runs.evaluations import EVALUATING, Details, Evaluation, Evaluator, Metrics, Predicted, Reporting
from embexp.runs.prepare import Data
from embexp.specs import metrics as metric_specs
from embexp.specs.run import RunSpec
from embexp.system.parallel import Progress, quiet
from embexp.training import intervals, ranking
from embexp.training.baseline import Reference, approached
from embexp.training.loop import Predictor
from embexp.training.ranking import Best, KnownAnswers
from embexp_sequences import batches
from embexp_sequences.specs import HISTORY
from embexp_sequences.tasks import NEXT_ITEM


class NextItemEvaluator(Evaluator):
    """Ranks next items."""

    def __init__(self, spec: RunSpec) -> None:
        """Takes the longest history, and whether its items are ranked, too."""
        super().__init__(spec)
        feature = spec.features[HISTORY]
        self._most, self._table, self._rank_seen = feature.max_sequence_length, feature.table, spec.data.rank_seen
        self._batches = partial(batches.ranked, most=self._most, batch_size=self._batch_size)

    def batch_spec(self, data: Data) -> Any:
        """`element_spec` of the evaluation batches of a run's data."""
        examples, rows, items = data.scan.examples, data.scan.splits["train"][:1], data.candidates.count
        known = self._known(examples, rows, items).lists
        return self._batches(examples, rows, data.columns, items=items, known=known).element_spec

    def of_rows(self, data: Data, split: str, rows: np.ndarray) -> Evaluation:
        """Ranks of the items that follow these histories."""
        return self._examples(data.columns, data.scan.examples, rows, data.candidates.count)

    def file(self, columns: Columns, examples: Examples, read_data: Callable[[], Data]) -> Evaluation:
        """Ranks of the last items of all users."""
        return self._examples(columns, examples, np.arange(examples.count), read_data().candidates.count)

    def _examples(self, columns: Columns, examples: Examples, rows: np.ndarray, items: int) -> Evaluation:
        known = self._known(examples, rows, items)
        some = self._batches(examples, rows, columns, items=items, known=known.lists)

        def measured(runtime: Predictor, progress: Progress = quiet, details: Details | None = None) -> Metrics:
            reporting = Reporting(runtime, len(rows), EVALUATING, progress)
            ranks = ranking.ranks_of_queries(reporting.predict(some), known, items)
            found = metric_specs.computed(NEXT_ITEM, "value", ranks)
            if details is not None:
                details["intervals"] = intervals.around(found, self._intervals(ranks))
            return found

        return measured

    def _intervals(self, ranks: np.ndarray) -> Mapping[str, intervals.Interval]:
        """Of the metrics; users are drawn again."""

        def again(rows: np.ndarray, counts: np.ndarray) -> Metrics:
            drawn = np.repeat(ranks[rows], counts)
            return metric_specs.computed(NEXT_ITEM, "value", drawn) if len(drawn) else {}

        generator, rows = np.random.default_rng(self._seed), np.arange(len(ranks))
        some = np.sort(generator.choice(rows, intervals.MOST, replace=False)) if len(rows) > intervals.MOST else rows
        return intervals.bootstrap(again, some, len(rows), generator, intervals.unheard)

    def _known(self, examples: Examples, rows: np.ndarray, items: int) -> KnownAnswers:
        """What ranks leave aside: the answers, which are no other candidates, and items of the histories."""
        who, what = rows, np.asarray(examples.labels)[rows].astype(np.int64)
        if not self._rank_seen:
            places, splits = examples.lists[HISTORY].taken(rows)
            who = np.concatenate([who, np.repeat(rows, np.diff(splits))])
            what = np.concatenate([what, examples.lists[HISTORY].values[places]])
        return KnownAnswers(lists_of(who, what, np.arange(examples.count), items), rows)

    def baselines(self, data: Data, progress: Progress = quiet) -> dict[str, dict[str, Metrics]]:
        """A random order, and the items that are most frequent in the training split."""
        splits = {name: rows for name, rows in data.scan.splits.items() if len(rows)}
        examples, items, column = data.scan.examples, data.candidates.count, data.scan.examples.lists[HISTORY]
        trained = column.values[column.taken(splits.pop("train"))[0]]
        random, popularity = {}, {}
        for name, rows in splits.items():
            known, answers = self._known(examples, rows, items), np.asarray(examples.labels)[rows].astype(np.int64)
            random[name] = metric_specs.computed(NEXT_ITEM, "constant", items + 1 - known.counts)
            of_all = np.zeros(len(trained), np.int64), trained
            ranks = ranking.ranks_by_frequency(of_all, np.zeros(len(rows), np.int64), answers, known, items)
            popularity[name] = metric_specs.computed(NEXT_ITEM, "value", ranks)
        return {"constant": random, "popularity": popularity}

    def predictions(
        self,
        runtime: Predictor,
        columns: Columns,
        examples: Examples,
        classes: tuple[str, ...],
        vocabularies: Mapping[str, Vocabulary],
        progress: Progress = quiet,
    ) -> Predicted:
        """The best item after each history, str [n]."""
        tokens = np.asarray(vocabularies[self._table].tokens(), object)
        found = [best.items[:, 0] for best in self.best(runtime, columns, examples, len(tokens), 1, progress)]
        return Predicted(tokens[np.concatenate([np.empty(0, np.int64), *found])])

    def best(
        self,
        runtime: Predictor,
        columns: Columns,
        examples: Examples,
        items: int,
        count: int,
        progress: Progress = quiet,
    ) -> Iterator[Best]:
        """The best items after histories, batch by batch."""
        rows, start = np.arange(examples.count), 0
        reporting = Reporting(runtime, len(rows), "predicting", progress)
        for _, scores in reporting.predict(self._batches(examples, rows, columns, items=items)):
            stop = start + len(scores)
            places, splits = examples.lists[HISTORY].taken(rows[start:stop])
            seen = np.repeat(np.arange(len(scores)), np.diff(splits)), examples.lists[HISTORY].values[places]
            none = np.empty(0, np.int64)
            yield ranking.best_items(ranking.without(scores, (none, none) if self._rank_seen else seen), count)
            start = stop


def ndcg(ranks: np.ndarray, k: int) -> float:
    """Mean of 1 / log2(1 + rank), or 0 below the first k places."""
    return float(np.mean(np.where(ranks <= k, 1 / np.log2(1 + ranks), 0)))


def hits(ranks: np.ndarray, k: int) -> float:
    """Share of the ranks up to k."""
    return float(np.mean(ranks <= k))


def mrr(ranks: np.ndarray) -> float:
    """Mean of 1 / rank."""
    return float(np.mean(1 / ranks))


def ndcg_at_random(choices: np.ndarray, k: int) -> float:
    """What it is expected to be in a random order of so many candidates."""
    return _expected(1 / np.log2(2 + np.arange(k)), choices)


def hits_at_random(choices: np.ndarray, k: int) -> float:
    """The same."""
    return _expected(np.ones(k), choices)


def mrr_at_random(choices: np.ndarray) -> float:
    """The same."""
    return _expected(1 / np.arange(1, int(choices.max()) + 1), choices)


def _expected(gains: np.ndarray, choices: np.ndarray) -> float:
    """The mean gain, by rank, of ranks that are uniform on 1 to each of `choices`."""
    return float(np.mean(np.cumsum(gains)[np.minimum(choices, len(gains)) - 1] / choices))


REFERENCE = Reference("a random order", ("mrr",), lambda found, constant: [approached(found, constant, "mrr")])
