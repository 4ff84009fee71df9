"""The weights of a dense part, without its optimizer and without tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from embexp.checkpoints import store
from embexp.checkpoints.plain_paths import plain_path
from embexp.errors import CheckpointError


def restore(model: Any, directory: Path) -> None:
    """Restores all weights of a Keras model from a run's checkpoint.

    Raises:
        CheckpointError: a weight is missing or of another shape.
    """
    store.prefix_in(directory)  # there is one
    like = tf.train.Checkpoint(model=model)
    with plain_path(directory) as path:
        prefix = store.prefix_in(path)
        _, _, missing = tf.train.CheckpointView(prefix).diff(like)
        if lacking := sorted(each.name for each in missing if isinstance(each, tf.Variable)):
            raise CheckpointError(f"{directory} does not fit the model: it lacks {', '.join(lacking)}")
        try:
            like.read(prefix).assert_existing_objects_matched().expect_partial()
        except (ValueError, AssertionError, tf.errors.OpError) as error:
            raise CheckpointError(f"{directory} does not fit the model: {error}") from error
