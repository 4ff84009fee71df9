"""A signature of whole texts, for models of their words."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from embexp.data.columns import Columns
from embexp.fields.texts.specs import Text, Words
from embexp.runs.serving.inputs import lowered
from embexp.runs.serving.saved_model import FeatureModel, Signatures

_NO_WORD = r"[^\p{L}\p{N}_]+"
"""What Python's `\\W` is, in the words of RE2."""
_BLANK = r"[\s\v\x1c-\x1f\x{85}\p{Z}]+"
"""What Python's `\\s+` is."""
_MARK = r"([^\p{L}\p{N}_ ])"


def signatures(data: Text, module: FeatureModel, columns: Columns) -> Signatures:
    """The signature that takes texts, which it divides into words as the run did."""
    column = next(iter(columns.ids))

    def call(**given: Any) -> Any:
        found = words_of_texts(given["text"], data.max_length, data.token_separator, data.words, data.ngrams)
        return module.predict({column: found})

    function = tf.function(call, autograph=False)
    return {"serving_text": function.get_concrete_function(text=tf.TensorSpec([None], tf.string))}


def words_of_texts(
    texts: Any, max_length: int | None, separator: str | None = None, kind: Words = Words.LONG, ngrams: int = 1
) -> Any:
    """The words of texts in their order, in lower case, or their tokens; and behind them their n-grams.

    Args:
        texts: string [B], UTF-8.
        max_length: only the first words of a text; None: all.
        separator: between the tokens of texts that are split already; None: they are split into words.
        kind: of the words.
        ngrams: most words of an n-gram; 1: there are none.

    Returns:
        Ragged string [B, None].
    """
    if separator is None:
        texts = lowered(texts)
        if kind is Words.PUNCTUATION:
            texts = tf.strings.regex_replace(tf.strings.regex_replace(texts, _BLANK, " "), _MARK, r" \1 ")
        else:
            texts = tf.strings.regex_replace(texts, _NO_WORD, " ")
    found = tf.strings.split(texts, sep=separator)
    shortest = 2 if separator is None and kind is Words.LONG else 1
    long_enough = tf.strings.length(found.values, unit="UTF8_CHAR") >= shortest
    kept = tf.ragged.boolean_mask(found, found.with_values(long_enough))
    kept = kept if max_length is None else kept[:, :max_length]
    return kept if ngrams == 1 else tf.strings.ngrams(kept, tuple(range(1, ngrams + 1)), separator=" ")
