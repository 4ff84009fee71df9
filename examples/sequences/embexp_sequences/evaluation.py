"""Evaluation: the rank of each user's held-out item among all items, and the best next item of each history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.data import batches
from embexp.data.batches import plain
from embexp.data.columns import Columns
from embexp.data.examples import Examples, lists_of
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.runs.evaluations import EVALUATING, Details, Evaluation, Evaluator, Metrics, Predicted, Reporting
from embexp.runs.prepare import Data
from embexp.specs import tasks as metric_specs
from embexp.specs.run import RunSpec
from embexp.specs.tasks import CANDIDATES, KNOWN
from embexp.system.parallel import Progress, quiet
from embexp.training import ranking
from embexp.training.baseline import Reference, approached
from embexp.training.loop import Predictor
from embexp.training.ranking import KnownAnswers
from embexp_sequences.batches import stored
from embexp_sequences.specs import HISTORY, NEXT_ITEM, Sequences


class NextItemEvaluator(Evaluator):
    """Ranks the next item among all items."""

    def __init__(self, spec: RunSpec) -> None:
        """Reads from the spec how long histories are, and whether their items are ranked."""
        super().__init__(spec)
        assert isinstance(spec.data, Sequences)  # a rule between the settings
        self._feature, self._rank_seen = spec.features[HISTORY], spec.data.rank_seen

    def batch_spec(self, data: Data) -> Any:
        """`element_spec` of the evaluation batches of a run's data."""
        examples, rows, items = data.scan.examples, data.scan.splits["train"][:1], data.candidates
        return self._ranked(examples, rows, data.columns, items, self._known(examples, rows, items)).element_spec

    def of_rows(self, data: Data, split: str, rows: np.ndarray) -> Evaluation:
        """Ranks of the items that follow these histories."""
        return self._examples(data.columns, data.scan.examples, rows, data.candidates)

    def file(self, columns: Columns, examples: Examples, read_data: Callable[[], Data]) -> Evaluation:
        """Ranks of the last items of all users in a file."""
        return self._examples(columns, examples, np.arange(examples.count), read_data().candidates)

    def _examples(self, columns: Columns, examples: Examples, rows: np.ndarray, items: int) -> Evaluation:
        known = self._known(examples, rows, items)
        some = self._ranked(examples, rows, columns, items, known)

        def measured(runtime: Predictor, progress: Progress = quiet, details: Details | None = None) -> Metrics:
            predicted = Reporting(runtime, len(rows), EVALUATING, progress).predict(some)
            return metrics(ranking.ranks_of_queries(predicted, known, items))

        return measured

    def _ranked(
        self, examples: Examples, rows: np.ndarray, columns: Columns, items: int, known: KnownAnswers | None = None
    ) -> tf.data.Dataset:
        """The histories in order, with all items as candidates, and with the items that ranks leave out if `known`."""
        columns = stored(columns)
        if known is not None:
            examples = replace(examples, lists={**examples.lists, KNOWN: known.lists})
            columns = replace(columns, ids={**columns.ids, KNOWN: self._feature.table})

        def add(batch: Any) -> Any:
            history = batch.ids[HISTORY][:, 1 - self._feature.max_sequence_length :]
            return batch._replace(ids={**batch.ids, HISTORY: history, CANDIDATES: tf.range(items)[None]})

        return batches.evaluation_batches(examples, rows, columns, batch_size=self._batch_size).map(plain(add))

    def _known(self, examples: Examples, rows: np.ndarray, items: int) -> KnownAnswers:
        """The items that ranks leave out: the answers, which are not compared with themselves, and the histories."""
        who, what = rows, np.asarray(examples.labels)[rows].astype(np.int64)
        if not self._rank_seen:
            places, splits = examples.lists[HISTORY].taken(rows)
            who = np.concatenate([who, np.repeat(rows, np.diff(splits))])
            what = np.concatenate([what, examples.lists[HISTORY].values[places]])
        return KnownAnswers(lists_of(who, what, np.arange(examples.count), items), rows)

    def baselines(self, data: Data, progress: Progress = quiet) -> dict[str, dict[str, Metrics]]:
        """A random order of the mean number of candidates per user, and the order by frequency in training."""
        examples, items, column = data.scan.examples, data.candidates, data.scan.examples.lists[HISTORY]
        trained = column.values[column.taken(data.scan.splits["train"])[0]]
        found: dict[str, dict[str, Metrics]] = {"constant": {}, "popularity": {}}
        for name, rows in data.scan.splits.items():
            if name != "train" and len(rows):
                known, answers = self._known(examples, rows, items), np.asarray(examples.labels)[rows]
                found["constant"][name] = metrics(np.arange(1.0, items + 2 - known.counts.mean()))
                of_all, kinds = (np.zeros_like(trained), trained), np.zeros(len(rows), np.int64)
                ranks = ranking.ranks_by_frequency(of_all, kinds, answers.astype(np.int64), known, items)
                found["popularity"][name] = metrics(ranks)
        return found

    def predictions(
        self,
        runtime: Predictor,
        columns: Columns,
        examples: Examples,
        classes: Sequence[str],
        vocabularies: Mapping[str, Vocabulary],
        progress: Progress = quiet,
    ) -> Predicted:
        """The best next item of each history, str [n]."""
        tokens = np.asarray(vocabularies[self._feature.table].tokens(), object)
        best, start = np.empty(examples.count, np.int64), 0
        some = self._ranked(examples, np.arange(examples.count), columns, len(tokens))
        for _, scores in Reporting(runtime, examples.count, "predicting", progress).predict(some):
            stop = start + len(scores)
            seen = ranking.pairs(examples.lists[HISTORY], start, stop)
            best[start:stop] = np.argmax(scores if self._rank_seen else ranking.without(scores, seen), axis=1)
            start = stop
        return Predicted(tokens[best])


def metrics(ranks: np.ndarray) -> Metrics:
    """The metrics of ranks, float64 [N]; the best rank is 1."""
    return metric_specs.computed(NEXT_ITEM, "value", ranks)


def ndcg(ranks: np.ndarray, k: int) -> float:
    """Mean of 1 / log2(1 + rank), where ranks after k count 0."""
    return float(np.mean(np.where(ranks <= k, 1 / np.log2(1 + ranks), 0)))


def hit_rate(ranks: np.ndarray, k: int) -> float:
    """Share of the ranks that are at most k."""
    return float(np.mean(ranks <= k))


def mrr(ranks: np.ndarray) -> float:
    """Mean of 1 / rank."""
    return float(np.mean(1 / ranks))


REFERENCE = Reference("a random order", ("mrr",), lambda found, constant: [approached(found, constant, "mrr")])
