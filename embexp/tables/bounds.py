"""Faults of a step's inputs: found while the traced step runs, told in words outside of it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from embexp.errors import RunError, VocabularyError

_OUTSIDE = re.compile(r"feature '[^']*' looks up id -?\d+ in table '[^']*', whose ids are .*? \(vocabulary size \d+\)")
_INPUT = re.compile(r"feature '[^']*': [^\]\n]*")


def check(table: str, rows: int, ids: Any, parts: Sequence[tuple[str, Any]]) -> Any:
    """An operation that fails if any id is outside [0, rows); `readable` makes a VocabularyError of it.

    Args:
        table: name of the table.
        rows: its vocabulary size.
        ids: all of them, int32 or int64 [n].
        parts: the same ids apart: name of the feature and its ids. Looked at only once something is wrong.
    """
    # As an unsigned number a negative id is a huge one: one pass over the ids finds both ends.
    unsigned = tf.uint32 if ids.dtype == tf.int32 else tf.uint64
    largest = tf.reduce_max(tf.bitcast(ids, unsigned))
    inside = largest < tf.constant(min(rows, unsigned.max), unsigned)
    return tf.cond(inside, tf.no_op, lambda: _fail(table, rows, parts))


def _fail(table: str, rows: int, parts: Sequence[tuple[str, Any]]) -> Any:
    names, ids = [], []
    for feature, part in parts:
        outside = tf.boolean_mask(part, (part < 0) | (part > rows - 1))
        ids.append(tf.cast(outside, tf.int64))
        names.append(tf.fill(tf.shape(outside), feature))
    message = tf.strings.join(
        [
            "feature '",
            tf.concat(names, 0)[0],
            "' looks up id ",
            tf.strings.as_string(tf.concat(ids, 0)[0]),
            f" in table '{table}', whose ids are 0 to {rows - 1} (vocabulary size {rows})",
        ]
    )
    return tf.debugging.Assert(False, [message])


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Gives what a step inside the block finds wrong with its inputs its proper class and words.

    Raises:
        VocabularyError: an id is outside its table; names feature, table, id and vocabulary size.
        RunError: weights or an output shape do not fit the ids; names the feature.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        text = str(error).replace("\\'", "'")  # TensorFlow escapes quotes
        if found := _OUTSIDE.search(text):
            raise VocabularyError(found.group()) from error
        if found := _INPUT.search(text):
            raise RunError(found.group()) from error
        raise
