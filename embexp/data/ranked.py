"""Batches of queries whose answers are ranked among all entities, with the known answers that ranks leave aside."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from embexp.data.batches import Batch, evaluation_batches
from embexp.data.candidates import Candidates, KnownAnswers
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.data.shared_memory import SharedArray
from embexp.specs.triples import KNOWN


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
        examples: encoded.
        rows: int64, the queries.
        columns: what to read.
        batch_size: queries per batch.
        candidates: all entities.
        known: the known answers of the queries.
    """
    places, values, splits = (SharedArray(each) for each in (known.places, known.lists.values, known.lists.splits))

    def with_known(number: tf.Tensor, batch: Batch) -> Batch:
        start = number * batch_size
        lists = places.at(tf.range(start, start + tf.size(batch.labels, tf.int64)))
        span = tf.ragged.range(splits.at(lists), splits.at(lists + 1))
        known_rows = span.with_values(values.at(span.values))
        return batch._replace(ids={**batch.ids, KNOWN: known_rows})

    queries = evaluation_batches(examples, rows, columns, batch_size=batch_size, candidates=candidates)
    return queries.enumerate().map(tf.autograph.experimental.do_not_convert(with_known))
