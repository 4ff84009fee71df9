"""Evaluation of queries: their batches, the ranks of their answers among all entities, and metrics of ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import tensorflow as tf

from embexp.data import batches
from embexp.data.batches import Batch, Read, SharedArray, negatives_seed, plain
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.fields.graphs import tasks
from embexp.fields.graphs.queries import Candidates, head_predictions, kinds_and_answers, known_answers
from embexp.fields.graphs.tasks import RANKING
from embexp.runs.evaluations import EVALUATING, INTERVALS, Details, Evaluation, Evaluator, Metrics, Reporting
from embexp.runs.prepare import Data
from embexp.specs import tasks as metric_specs
from embexp.specs.run import RunSpec
from embexp.specs.tasks import ALL_RELATIONS, CANDIDATES, KNOWN
from embexp.system.parallel import Progress, quiet
from embexp.training import intervals, ranking, significance
from embexp.training.baseline import Reference, approached
from embexp.training.intervals import MOST, Drawn, Intervals, Outcomes, bootstrap, unheard
from embexp.training.loop import Predictor
from embexp.training.ranking import KnownAnswers
from embexp.training.significance import Tested


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


def mcnemar_of_hits(labels: None, before: np.ndarray, after: np.ndarray, k: int) -> Tested:
    """McNemar's exact test of two models, by their ranks."""
    return significance.mcnemar(before <= k, after <= k)


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
    """How far the MRR has come from a random order to 1, as a share."""
    return [approached(found, constant, "mrr")]


REFERENCE = Reference("a random order", ("mrr",), _gains)


def additions(spec: RunSpec, data: Data) -> Entities:
    """What a run adds to training batches."""
    return Entities(data.candidates)


class Entities:
    """Adds the column of candidates, and known answers where a query has several; `batches.Additions`."""

    def __init__(self, made: Candidates) -> None:
        """Shares the memory of known answers."""
        self._made = made
        self._positives = None if made.positives is None else Known(made.positives)
        self.of_batch = made.negatives is not None

    def columns(self, columns: Columns) -> Columns:
        """All but the one that is made."""
        return stored(columns)

    def of_rows(self, batch: Batch, rows: Any) -> Batch:
        """The batch with its known answers, if all are learned at once."""
        return batch if self._positives is None else self._positives.added(batch, rows)

    def added(
        self,
        batches: tf.data.Dataset,
        read: Callable[[Columns], Read],
        start_step: int,
        share: slice | None,
        parts: int = 1,
    ) -> tf.data.Dataset:
        """The batches with candidates, which replicas share; see `batches.Additions`."""
        batches = batches.enumerate(start_step).map(plain(self._for_training))
        return batches if share is None else batches.map(plain(partial(_of_share, share=share)))

    def _for_training(self, step: Any, batch: Any) -> Any:
        """Adds the column of candidates to a training batch."""
        if self._made.negatives is None:
            return self.all_entities(batch)
        return self._drawn(step, batch) if self._made.shares is None else self._shared(step, batch)

    def all_entities(self, batch: Any) -> Any:
        """Adds all entities to a batch."""
        return self._added(batch, tf.range(self._made.entities, dtype=tf.int32)[None])

    def _added(self, batch: Any, candidates: Any) -> Any:
        every = {ALL_RELATIONS: tf.range(self._made.relations, dtype=tf.int32)[None]} if self._made.relations else {}
        return batch._replace(ids={**batch.ids, CANDIDATES: candidates, **every})

    def _uniform(self, step: Any, shape: Any, below: int) -> Any:
        return tf.random.stateless_uniform(shape, negatives_seed(self._made.seed, step), 0, below, tf.int32)

    def _shared(self, step: Any, batch: Any) -> Any:
        assert self._made.shares is not None  # the batch shares them
        assert self._made.negatives is not None
        answers = tf.cast(batch.labels, tf.int32)
        candidates = tf.concat([answers, self._uniform(step, [self._made.negatives], self._made.entities)], 0)
        of_batch = tf.cast(tf.size(answers), tf.float64) * tf.gather(self._made.shares, candidates)
        expected = tf.math.log(of_batch + self._made.negatives / self._made.entities)
        labels = tf.stack([tf.cast(candidates, tf.float32), tf.cast(expected, tf.float32)], 1)
        return self._added(batch, candidates[None])._replace(labels=labels)

    def _drawn(self, step: Any, batch: Any) -> Any:
        answers = tf.cast(batch.labels, tf.int32)[:, None]
        shape = tf.concat([tf.shape(batch.labels), [self._made.negatives]], 0)
        # Draw from one entity fewer, and add 1 to all from the answer on: that is uniform over all others.
        drawn = self._uniform(step, shape, self._made.entities - 1)
        drawn += tf.cast(drawn >= answers, tf.int32)
        drawn = tf.ensure_shape(drawn, [batch.labels.shape[0], self._made.negatives])
        return self._added(batch, tf.concat([answers, drawn], 1))._replace(labels=tf.zeros_like(batch.labels))


def stored(columns: Columns) -> Columns:
    """The columns without the one that is made."""
    return replace(columns, ids={name: table for name, table in columns.ids.items() if name != CANDIDATES})


def _of_share(batch: Batch, share: slice) -> Batch:
    """Some examples of a batch. The numbers of all relations do not belong to examples, so they stay."""
    some = tf.nest.map_structure(lambda part: part[share], batch)
    whole = {name: ids for name, ids in batch.ids.items() if name == ALL_RELATIONS}
    return cast(Batch, some._replace(ids={**some.ids, **whole}))


class Known:
    """The known answers of queries, as TensorFlow sees them."""

    def __init__(self, known: KnownAnswers) -> None:
        self._places, self._values, self._splits = (
            SharedArray(each) for each in (known.places, known.lists.values, known.lists.splits)
        )

    def added(self, batch: Batch, places: Any) -> Batch:
        """The batch with the column of known answers, those at some places of `KnownAnswers.places`, int64 [B]."""
        lists = self._places.at(places)
        span = tf.ragged.range(self._splits.at(lists), self._splits.at(lists + 1))
        return batch._replace(ids={**batch.ids, KNOWN: span.with_values(self._values.at(span.values))})


def all_entities(
    examples: Examples, rows: np.ndarray, columns: Columns, *, batch_size: int, full: bool, candidates: Candidates
) -> tf.data.Dataset:
    """Queries in their order, with all entities as candidates; see `batches.evaluation_batches`."""
    found = batches.evaluation_batches(examples, rows, stored(columns), batch_size=batch_size, full=full)
    return found.map(plain(Entities(candidates).all_entities))


def ranked_batches(
    examples: Examples,
    rows: np.ndarray,
    columns: Columns,
    *,
    batch_size: int,
    candidates: Candidates,
    known: KnownAnswers,
) -> tf.data.Dataset:
    """Queries in their order, each with its known answers; the last batch may be smaller.

    Args:
        rows: int64, the queries.
        batch_size: queries per batch.
    """
    answers = Known(known)

    def with_known(number: tf.Tensor, batch: Batch) -> Batch:
        start = number * batch_size
        return answers.added(batch, tf.range(start, start + tf.size(batch.labels, tf.int64)))

    queries = all_entities(examples, rows, columns, batch_size=batch_size, full=False, candidates=candidates)
    return queries.enumerate().map(plain(with_known))


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
        """Batches so small that their scores fit into bounded memory.

        A TPU gets batches of its usual size, with all entities as candidates, because it can only look up rows by their
        numbers.
        """
        size = self._batch_size
        if self._fixed_batch:
            return all_entities(examples, rows, columns, batch_size=size, full=True, candidates=candidates)
        size = tasks.evaluation_batch(candidates.entities, size)
        return ranked_batches(examples, rows, columns, batch_size=size, candidates=candidates, known=known)

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
            found = metrics(ranks, heads)
            if details is not None:
                deviations = of_queries(rows, ranks, heads, self._seed, partial(progress, INTERVALS))
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
            # For each query, all entities are ranked, except its other known answers.
            random[name] = at_random(entities + 1 - known.counts, heads)
            asked = kinds_and_answers(examples, rows)
            popularity[name] = metrics(ranking.ranks_by_frequency(trained, *asked, known, entities), heads)
        return {"constant": random, "popularity": popularity}


def of_queries(
    examples: np.ndarray,
    ranks: np.ndarray,
    predict_head: np.ndarray,
    seed: int,
    progress: Callable[[float], object] = unheard,
) -> Intervals:
    """Intervals of the metrics of `metrics.metrics`, by name; queries are drawn again.

    Args:
        examples: int64 [N], which queries they are.
    """
    generator = np.random.default_rng(seed)

    def measured(rows: np.ndarray, counts: np.ndarray) -> dict[str, float]:
        again = np.repeat(rows, counts)
        return metrics(ranks[again], predict_head[again]) if len(again) else {}

    rows = np.arange(len(ranks))
    some = np.sort(generator.choice(rows, MOST, replace=False)) if len(rows) > MOST else rows
    drawn = Drawn(measured, len(rows), unit="queries", outcomes=Outcomes(examples, ranks, "rank"))
    return bootstrap(drawn, some, generator, progress)
