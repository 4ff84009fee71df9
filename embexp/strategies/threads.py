"""TensorFlow's numbers of threads."""

from __future__ import annotations

import tensorflow as tf


def prepare(intra_op_threads: int, inter_op_threads: int) -> None:
    """Sets the numbers of threads; 0: TensorFlow decides. `embexp.system.machine.kernel_threads` tells how it does.

    They can't change once TensorFlow has run its first operation.

    Raises:
        RuntimeError: TensorFlow is already running with other numbers.
    """
    threading = tf.config.threading
    for wanted, current, set_threads in (
        (
            intra_op_threads,
            threading.get_intra_op_parallelism_threads(),
            threading.set_intra_op_parallelism_threads,
        ),
        (
            inter_op_threads,
            threading.get_inter_op_parallelism_threads(),
            threading.set_inter_op_parallelism_threads,
        ),
    ):
        if wanted != current:
            set_threads(wanted)
