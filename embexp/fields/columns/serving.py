"""What a served model returns of labels: numbers, probabilities, or classes."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from embexp.runs.serving.saved_model import FeatureModel, Pieces, feature_model
from embexp.specs.tasks import Labels


def model(pieces: Pieces) -> FeatureModel:
    """The model of a run, with the outputs of its task."""
    classes = tuple(pieces.run.summary.get("classes", ()))
    labels, outputs = pieces.run.spec.task.labels, _number
    if labels is Labels.BINARY:
        outputs = _rate
    elif labels is Labels.CLASS:
        outputs = partial(_classes, classes)
    return feature_model(pieces, outputs)


def _number(logits: Any) -> dict[str, Any]:
    return {"predictions": logits}


def _rate(logits: Any) -> dict[str, Any]:
    # In double precision, as `embexp predict` computes it.
    return {"predictions": tf.cast(tf.sigmoid(tf.cast(logits, tf.float64)), tf.float32)}


def _classes(classes: tuple[str, ...], logits: Any) -> dict[str, Any]:
    names = tf.constant(classes)
    return {
        "predictions": tf.gather(names, tf.argmax(logits, axis=1)),
        "probabilities": tf.cast(tf.nn.softmax(tf.cast(logits, tf.float64)), tf.float32),
        # A row for each example, as servers cut outputs by example.
        "classes": tf.tile(names[None], [tf.shape(logits)[0], 1]),
    }
