"""Evaluation of queries: the ranks of their answers among all entities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.fields.graphs import batches, footprint, metrics
from embexp.fields.graphs.queries import Candidates, head_predictions, kinds_and_answers, known_answers
from embexp.runs.evaluations import EVALUATING, INTERVALS, Details, Evaluation, Evaluator, Metrics, Reporting
from embexp.runs.prepare import Data
from embexp.system.parallel import Progress, quiet
from embexp.training import intervals, ranking
from embexp.training.intervals import MOST, Interval, bootstrap, unheard
from embexp.training.loop import Predictor
from embexp.training.ranking import KnownAnswers


class RankingEvaluator(Evaluator):
    """Evaluates ranks."""

    no_predictions = "task ranking has no predictions; evaluate ranks the heads and tails of triples among all entities"

    def batch_spec(self, data: Data) -> Any:
        """`element_spec` of the evaluation batches of a run's data."""
        examples, some = data.scan.examples, data.scan.splits["train"][:1]
        return self._batches(data.columns, examples, some, data.candidates, known_answers(examples, some)).element_spec

    def of_rows(self, data: Data, split: str, rows: np.ndarray) -> Evaluation:
        """Ranks of the answers to these queries, without other answers in any split."""
        return self._examples(data.columns, data.scan.examples, rows, data.candidates)

    def file(self, columns: Columns, examples: Examples, read_data: Callable[[], Data]) -> Evaluation:
        """Ranks of the answers to all queries, without other answers in them or in the data of the run."""
        data = read_data()
        return self._examples(columns, examples, np.arange(examples.count), data.candidates, [data.scan.examples])

    def _batches(
        self, columns: Columns, examples: Examples, rows: np.ndarray, candidates: Candidates, known: KnownAnswers
    ) -> Any:
        """Batches that are so small that their scores are bounded.

        A TPU gets batches of its own size, with all entities as candidates: it looks rows up by their numbers only.
        """
        size = self._batch_size
        if self._fixed_batch:
            return batches.all_entities(examples, rows, columns, batch_size=size, full=True, candidates=candidates)
        size = footprint.evaluation_batch(candidates.entities, size)
        return batches.ranked_batches(examples, rows, columns, batch_size=size, candidates=candidates, known=known)

    def _examples(
        self,
        columns: Columns,
        examples: Examples,
        rows: np.ndarray,
        candidates: Candidates,
        known: Sequence[Examples] = (),
    ) -> Evaluation:
        answers = known_answers(examples, rows, known)
        heads = head_predictions(rows)
        some = self._batches(columns, examples, rows, candidates, answers)

        def measured(runtime: Predictor, progress: Progress = quiet, details: Details | None = None) -> Metrics:
            reporting = Reporting(runtime, len(rows), EVALUATING, progress)
            ranks = ranking.ranks_of_queries(reporting.predict(some), answers, candidates.entities)
            found = metrics.metrics(ranks, heads)
            if details is not None:
                deviations = of_queries(ranks, heads, self._seed, partial(progress, INTERVALS))
                details["intervals"] = intervals.around(found, deviations)
            return found

        return measured

    def baselines(self, data: Data, progress: Progress = quiet) -> dict[str, dict[str, Metrics]]:
        """A random order of the candidates, and how often each answers training queries of the same kind."""
        splits = {name: rows for name, rows in data.scan.splits.items() if len(rows)}
        examples, entities = data.scan.examples, data.candidates.entities
        trained = kinds_and_answers(examples, splits.pop("train"))
        random, popularity = {}, {}
        for name, rows in splits.items():
            known, heads = known_answers(examples, rows), head_predictions(rows)
            # Of each query, all entities are ranked but for its other known answers.
            random[name] = metrics.at_random(entities + 1 - known.counts, heads)
            asked = kinds_and_answers(examples, rows)
            popularity[name] = metrics.metrics(ranking.ranks_by_frequency(trained, *asked, known, entities), heads)
        return {"constant": random, "popularity": popularity}


def of_queries(
    ranks: np.ndarray, predict_head: np.ndarray, seed: int, progress: Callable[[float], object] = unheard
) -> dict[str, Interval]:
    """Intervals of the metrics of `metrics.metrics`, by name; queries are drawn again."""
    generator = np.random.default_rng(seed)

    def measured(rows: np.ndarray, counts: np.ndarray) -> dict[str, float]:
        again = np.repeat(rows, counts)
        return metrics.metrics(ranks[again], predict_head[again]) if len(again) else {}

    rows = np.arange(len(ranks))
    drawn = np.sort(generator.choice(rows, MOST, replace=False)) if len(rows) > MOST else rows
    return bootstrap(measured, drawn, len(rows), generator, progress)
