"""Checks of a step's inputs while the traced step runs, and their errors translated outside of it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tensorflow as tf

from embexp.errors import RunError, VocabularyError

_OUTSIDE = re.compile(r"\[ids of feature (.*?) in table (.*?) of (\d+) rows, int(32|64)\] \[(\d+)\]")
UNCOMPILED = "a TPU can't compile this step:"
"""How the message begins of an error about operations that no TPU compiles."""
_INPUT = re.compile(r"feature '[^']*': [^\]\n]*")
_F = TypeVar("_F", bound=Callable[..., Any])
without_autograph: Callable[[_F], _F] = tf.autograph.experimental.do_not_convert
"""Decorator of traced functions that need no rewriting: AutoGraph warns about those that it can't rewrite."""


def check(feature: str, table: str, rows: int, ids: Any) -> Any:
    """An operation that fails if any id is outside [0, rows); `translated_errors` turns this into a VocabularyError.

    Args:
        rows: the table's vocabulary size.
        ids: int32 or int64 [n].
    """
    # As an unsigned number a negative id is huge: one pass over the ids checks both bounds.
    unsigned = tf.uint32 if ids.dtype == tf.int32 else tf.uint64
    largest = tf.reduce_max(tf.bitcast(ids, unsigned))
    # The bare operation: tf.debugging would add a condition with two branches, several times as slow.
    return tf.raw_ops.Assert(
        condition=largest < tf.constant(min(rows, unsigned.max), unsigned),
        data=[subject(feature, table, rows, ids.dtype), largest],
    )


def subject(feature: str, table: str, rows: int, dtype: tf.DType) -> str:
    """How the message of an id outside of a table begins, in brackets; the id follows, unsigned, in brackets."""
    return f"ids of feature {feature} in table {table} of {rows} rows, {dtype.name}"


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Translates TensorFlow's errors about a step's inputs into embexp's.

    Raises:
        VocabularyError: an id is outside its table; names feature, table, id and vocabulary size.
        RunError: weights or an output shape do not fit the ids; names the feature. Or a TPU can't compile a step.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        text = str(error).replace("\\'", "'")  # TensorFlow escapes quotes
        if found := _OUTSIDE.search(text):
            feature, table, rows, bits, unsigned = found.groups()
            number = int(unsigned) - (1 << int(bits)) * (int(unsigned) >= 1 << (int(bits) - 1))
            raise VocabularyError(
                f"feature '{feature}' looks up id {number} in table '{table}', whose ids are 0 to {int(rows) - 1}"
                f" (vocabulary size {rows})"
            ) from error
        _, begun, rest = text.partition(UNCOMPILED)
        if begun:
            lines = [line.strip() for line in rest.splitlines() if line.strip()]  # AutoGraph indents them
            raise RunError("\n  ".join([begun, *lines])) from error
        if found := _INPUT.search(text):
            raise RunError(found.group()) from error
        raise
