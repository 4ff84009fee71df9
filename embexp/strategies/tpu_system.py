"""A real TPU: connected to, or given up within seconds and in words that help.

TensorFlow's own resolver asks for minutes, again and again, before it gives up. So `tpu_address` first looks for what
it would need, and the rest is left no more time than the settings say.
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
        address: see `tpu_address.check`.
        zone: of a TPU that is given by name.
        project: of a TPU that is given by name.
        timeout_seconds: to wait for an answer.
        initialization_seconds: to wait for the TPU to be ready after that.

    Returns:
        A `tf.distribute.TPUStrategy`.

    Raises:
        RunError: it does not answer in time, or there is no TPU behind the address.
    """

    def resolved() -> Any:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address, zone=zone, project=project)
        if address != LOCAL:
            tf.config.experimental_connect_to_cluster(resolver)
        return resolver

    waited, setting = timeout_seconds, "timeout_seconds"
    try:
        resolver = within(timeout_seconds, resolved)
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
