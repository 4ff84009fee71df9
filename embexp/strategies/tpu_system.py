"""The connection to a real TPU, or an error that says why there is none, within the time that the settings allow.

TensorFlow's own resolver retries for minutes before it gives up.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from embexp.errors import RunError
from embexp.strategies.tpu_address import LOCAL, REMEDY, within


def connect(
    address: str, zone: str | None, project: str | None, timeout_seconds: float, initialization_seconds: float
) -> Any:
    """Connects to the TPU and initialises it.

    Args:
        address: the address that `tpu_address.check` returns.
        zone: zone of a TPU that has a name.
        project: project of a TPU that has a name.
        timeout_seconds: time limit for an answer.
        initialization_seconds: time limit for the initialisation after that.

    Returns:
        A `tf.distribute.TPUStrategy`.

    Raises:
        RunError: nothing answers in time, or what answers is no TPU.
    """

    def resolve() -> Any:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address, zone=zone, project=project)
        if address != LOCAL:
            tf.config.experimental_connect_to_cluster(resolver)
        return resolver

    waited, setting = timeout_seconds, "timeout_seconds"
    try:
        resolver = within(timeout_seconds, resolve)
        waited, setting = initialization_seconds, "initialization_seconds"
        within(initialization_seconds, lambda: tf.tpu.experimental.initialize_tpu_system(resolver))
        return tf.distribute.TPUStrategy(resolver)
    except TimeoutError:
        raise RunError(
            f"strategy=tpu: {address} was found, but did not become a TPU within {waited:g} s (strategy.{setting});"
            f" see that it is up and free, {REMEDY}"
        ) from None
    except (ValueError, RuntimeError, ImportError, tf.errors.OpError) as error:
        reason = str(error).strip().splitlines()
        raise RunError(
            f"strategy=tpu: {address} can't be used as a TPU ({type(error).__name__}: {reason[0] if reason else ''});"
            f" see that it is up and free, {REMEDY}"
        ) from error
