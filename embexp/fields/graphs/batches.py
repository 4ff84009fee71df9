"""Batches of queries, with the entities among which their answers are ranked, and with their known answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import tensorflow as tf

from embexp.data import batches
from embexp.data.batches import Batch, Read, SharedArray, negatives_seed, plain
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.fields.graphs.queries import Candidates
from embexp.runs.prepare import Data
from embexp.specs.run import RunSpec
from embexp.specs.tasks import ALL_RELATIONS, CANDIDATES, KNOWN
from embexp.training.ranking import KnownAnswers


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
        self, batches: tf.data.Dataset, read: Callable[[Columns], Read], start_step: int, share: slice | None
    ) -> tf.data.Dataset:
        """The batches with candidates; see `batches.Additions`."""
        batches = batches.enumerate(start_step).map(plain(self._for_training))
        return batches if share is None else batches.map(plain(partial(_of_share, share=share)))

    def _for_training(self, step: Any, batch: Any) -> Any:
        """Adds the column to the batch of a step of training."""
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
        assert self._made.shares is not None  # they are shared
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
        # One fewer than there are, and those from the answer on moved up by one: uniform on all others.
        drawn = self._uniform(step, shape, self._made.entities - 1)
        drawn += tf.cast(drawn >= answers, tf.int32)
        drawn = tf.ensure_shape(drawn, [batch.labels.shape[0], self._made.negatives])
        return self._added(batch, tf.concat([answers, drawn], 1))._replace(labels=tf.zeros_like(batch.labels))


def stored(columns: Columns) -> Columns:
    """The columns without the one that is made."""
    return replace(columns, ids={name: table for name, table in columns.ids.items() if name != CANDIDATES})


def _of_share(batch: Batch, share: slice) -> Batch:
    """Some examples of a batch; the numbers of all relations are not those of examples."""
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
