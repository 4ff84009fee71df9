"""Batches of queries whose answers are ranked among all entities, with the known answers that ranks leave aside."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from embexp.data.batches import Batch, Known, evaluation_batches
from embexp.data.candidates import Candidates, KnownAnswers
from embexp.data.columns import Columns
from embexp.data.examples import Examples


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
    answers = Known(known)

    def with_known(number: tf.Tensor, batch: Batch) -> Batch:
        start = number * batch_size
        return answers.added(batch, tf.range(start, start + tf.size(batch.labels, tf.int64)))

    queries = evaluation_batches(examples, rows, columns, batch_size=batch_size, candidates=candidates)
    return queries.enumerate().map(tf.autograph.experimental.do_not_convert(with_known))
