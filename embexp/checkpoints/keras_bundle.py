"""Keras' files of weights as name-based checkpoints, so that they are restored like any others."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from embexp.checkpoints import locating, opening


def write(path: Path, folder: Path) -> Path:
    """Writes a name-based checkpoint with the weights of a `.weights.h5` or `.keras` file, and returns its index.

    Variables are named as datasets are, such as `layers/dense/vars/0`. One at a time is in memory.

    Args:
        path: of the file.
        folder: an empty one, for the checkpoint.

    Raises:
        DataError: the file can't be read.
    """
    prefix = folder / locating.NAME
    parts: list[str] = []
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:  # the caller may be building a graph
        for key, stored in opening.open_checkpoint(path).entries.items():
            if stored.numeric:
                parts.append(str(folder / f"part-{len(parts)}"))
                value = stored.values.value()
                fed = tf.compat.v1.placeholder(value.dtype, value.shape)
                saved = tf.raw_ops.SaveV2(prefix=parts[-1], tensor_names=[key], shape_and_slices=[""], tensors=[fed])
                session.run(saved, {fed: value})
        merged = tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=parts, destination_prefix=str(prefix), delete_old_dirs=False
        )
        session.run(merged)
    return prefix.with_name(f"{prefix.name}.index")
