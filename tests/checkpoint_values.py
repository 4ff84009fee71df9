"""What a checkpoint holds, read by TensorFlow's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.checkpoints import store, streaming
from tests.exact_rules import Values

_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def every(directory: Path) -> dict[str, np.ndarray]:
    """All of it, by key."""
    reader = tf.train.load_checkpoint(store.prefix_in(directory))
    return {
        key.removesuffix(_SUFFIX): np.asarray(reader.get_tensor(key))
        for key in reader.get_variable_to_shape_map()
        if key.endswith(_SUFFIX)
    }


def tables(directory: Path) -> dict[str, Values]:
    """Rows and slots of each table that it holds, by name."""
    found: dict[str, Values] = {}
    for key, values in every(directory).items():
        if key.startswith("embedding/"):
            name, _, slot = key.removeprefix("embedding/").partition(".S")
            found.setdefault(name, {})[slot or None] = values
    return found


def write_checkpoint(checkpoint: Any, directory: Path) -> Path:
    """Writes a `tf.train.Checkpoint` as runs do, in the place of an older one of that name."""
    return store.write_by(lambda prefix: streaming.write(checkpoint, prefix), directory)
