"""How an answer stands among all entities, counted where the scores are, in bounded memory.

Scores [B, C] are compared as they are and dropped, so only one number for each query leaves the device. The score of an
answer is taken from those of all entities: computed by itself it could differ in its last bit, and lose its ties.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from embexp.specs.graph_sizes import ROWS


def block_rows(entities: int, dim: int) -> int:
    """Entities whose rows are gathered at once."""
    return min(entities, max(1, ROWS // (4 * dim)))


def standings(score: Callable[[int, int], Any], entities: int, block: int, answers: Any, known: Any) -> Any:
    """Candidates with a higher score minus those with a lower one, by query; NaN if the scores have no finite sum.

    Args:
        score: from [start, stop) to the scores of these entities, float32 [B, stop - start]; called for each block.
        entities: how many there are, at most 2^24, up to which float32 counts exactly.
        block: entities in each block.
        answers: int32 [B].
        known: ragged integers [B, None], all known answers of each query, each once. They are no candidates; whether
            the answer itself is among them makes no difference.

    Returns:
        float32 [B], whole numbers.
    """
    parts: list[Any] = []
    for start in range(0, entities, block):
        with tf.control_dependencies(parts[-1:]):  # one block of rows at a time
            parts.append(score(start, min(start + block, entities)))
    scores = parts[0] if len(parts) == 1 else tf.concat(parts, 1)
    queries = tf.range(tf.shape(scores)[0])
    own = tf.gather_nd(scores, tf.stack([queries, answers], 1))
    standing = tf.reduce_sum(_sign(scores, own[:, None]), 1)
    query = tf.cast(known.value_rowids(), tf.int32)
    removed = tf.gather_nd(scores, tf.stack([query, tf.cast(known.values, tf.int32)], 1))
    standing -= tf.math.unsorted_segment_sum(_sign(removed, tf.gather(own, query)), query, tf.size(queries))
    # No sum of infinities is finite. Scores of 1e33 could overflow in theirs; they mean a training gone wrong, too.
    return tf.where(tf.math.is_finite(tf.reduce_sum(scores, 1)), standing, float("nan"))


def _sign(scores: Any, own: Any) -> Any:
    """1 where a score is higher, -1 where it is lower, 0 where they tie, NaN where one is NaN."""
    return tf.sign(scores - own)
