"""A signature of whole texts, for models of their words."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from embexp.data.columns import Columns
from embexp.runs.serving.inputs import words_of_texts
from embexp.runs.serving.saved_model import FeatureModel, Signatures
from embexp.specs.data.texts import Text


def signatures(data: Text, module: FeatureModel, columns: Columns) -> Signatures:
    """The signature that takes texts, which it divides into words as the run did."""
    column = next(iter(columns.ids))

    def call(**given: Any) -> Any:
        found = words_of_texts(given["text"], data.max_length, data.token_separator, data.words, data.ngrams)
        return module.predict({column: found})

    function = tf.function(call, autograph=False)
    return {"serving_text": function.get_concrete_function(text=tf.TensorSpec([None], tf.string))}
