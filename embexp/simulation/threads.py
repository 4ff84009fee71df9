"""What a replica's thread takes over from the thread that traces: state that TensorFlow and Keras keep by thread.

On a TPU one thread traces one program for all replicas.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tensorflow.python.ops import summary_ops_v2


def inherited(*, first: bool) -> Callable[[], None]:
    """Takes a copy of the calling thread's state, and returns the function that gives it to another thread.

    - `tf.summary`: writer, step and `record_if`. Only the first replica writes, as under TensorFlow's strategies.
    - Keras: the dtype policy, the numbers in names, and whatever else its global state holds.

    Args:
        first: whether that thread is the first replica's.
    """
    summary = dict(vars(summary_ops_v2._summary_state))
    if not first:
        summary["is_recording_distribution_strategy"] = False
    keras = _keras_state()
    state = {} if keras is None else dict(vars(keras))

    def take_over() -> None:
        vars(summary_ops_v2._summary_state).update(summary)
        if keras is not None:
            vars(keras).update(state)

    return take_over


def _keras_state() -> Any:
    """Keras' global state, a `threading.local`; None if Keras is not imported."""
    module = sys.modules.get("keras.src.backend.common.global_state")
    return None if module is None else module.GLOBAL_STATE_TRACKER
