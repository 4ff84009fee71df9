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
    store.prefix_in(directory)  # raises if there is none, with the directory's own name
    like = tf.train.Checkpoint(model=model)
    with plain_path(directory) as path:
        try:
            like.read(store.prefix_in(path)).expect_partial().assert_existing_objects_matched()
        except (ValueError, AssertionError, tf.errors.OpError) as error:
            raise CheckpointError(f"{directory} does not fit the model: {error}") from error
