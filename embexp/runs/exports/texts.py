"""Texts to words inside a TensorFlow graph, as `embexp.data.texts` cuts them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_NO_WORD = r"[^\p{L}\p{N}_]+"
"""What Python's `\\W` is, in the words of RE2."""
_SHORTEST = 2


def words(texts: Any, *, max_length: int | None, separator: str | None = None) -> Any:
    """The words of texts in their order, in lower case; or their tokens.

    Args:
        texts: string [B], UTF-8.
        max_length: only the first words of a text; None: all.
        separator: between the tokens of texts that are split already; None: they are split into words.

    Returns:
        Ragged string [B, None].
    """
    if separator is None:
        texts = tf.strings.regex_replace(tf.strings.lower(texts, encoding="utf-8"), _NO_WORD, " ")
    found = tf.strings.split(texts, sep=separator)
    shortest = _SHORTEST if separator is None else 1
    long_enough = tf.strings.length(found.values, unit="UTF8_CHAR") >= shortest
    kept = tf.ragged.boolean_mask(found, found.with_values(long_enough))
    return kept if max_length is None else kept[:, :max_length]
