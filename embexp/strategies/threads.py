"""TensorFlow's numbers of threads."""

from __future__ import annotations

import tensorflow as tf


def prepare(intra_op_threads: int, inter_op_threads: int) -> dict[str, int]:
    """Sets the numbers of threads (0: TensorFlow decides) and returns those in force.

    They can't change once TensorFlow has run its first operation.

    Raises:
        RuntimeError: TensorFlow is already running with other numbers.
    """
    for wanted, current, set_threads in (
        (
            intra_op_threads,
            tf.config.threading.get_intra_op_parallelism_threads(),
            tf.config.threading.set_intra_op_parallelism_threads,
        ),
        (
            inter_op_threads,
            tf.config.threading.get_inter_op_parallelism_threads(),
            tf.config.threading.set_inter_op_parallelism_threads,
        ),
    ):
        if wanted != current:
            set_threads(wanted)
    return {
        "intra_op": tf.config.threading.get_intra_op_parallelism_threads(),
        "inter_op": tf.config.threading.get_inter_op_parallelism_threads(),
    }
