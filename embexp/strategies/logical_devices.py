"""Several logical devices on one processor."""

from __future__ import annotations

import tensorflow as tf

from embexp.errors import RunError


def processors(count: int) -> None:
    """Makes sure that there are `count` logical processors, CPU:0 to CPU:count-1.

    Must come before TensorFlow's first operation, after which devices can't change. More than are asked for do no harm.

    Raises:
        RunError: TensorFlow is already running, with fewer.
    """
    if count == 1:
        return
    [processor] = tf.config.list_physical_devices("CPU")
    configured = tf.config.get_logical_device_configuration(processor)
    if configured is not None and len(configured) >= count:
        return
    try:
        tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError:
        there = len(tf.config.list_logical_devices("CPU"))
        raise RunError(
            f"{count} logical processors are needed, and TensorFlow is already running in this process with {there};"
            " devices can't change any more: start the run in a process of its own (a sweep does), or before anything"
            " else that uses TensorFlow"
        ) from None
