"""Simulated devices, described well enough for the real `tf.distribute.TPUStrategy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.tpu import topology_pb2
from tensorflow.python.client import session
from tensorflow.python.tpu import tpu_system_metadata

_TASK = "/job:localhost/replica:0/task:0"


class SimulatedCluster:
    """The cluster resolver of `tf.distribute.TPUStrategy`.

    All hosts are this process. Host h is device CPU:h, and its cores are numbered on from those of host h - 1. A real
    host is a separate task that numbers its cores from 0, but operations on devices of other tasks can't run here,
    while those on CPU:1 run on CPU:0 by soft placement.

    Attributes:
        hosts: number of hosts.
        cores_per_host: cores of each.
        tpu_hardware_feature: of a TPU generation that `TPUEmbedding` supports.
    """

    def __init__(self, hosts: int, cores_per_host: int) -> None:
        """Describes `hosts` hosts with `cores_per_host` cores each."""
        self.hosts, self.cores_per_host = hosts, cores_per_host
        feature = topology_pb2.TPUHardwareFeature
        self.tpu_hardware_feature = feature(embedding_feature=feature.V1)

    def get_tpu_system_metadata(self) -> Any:
        """The devices, as a TPU system would report them."""
        kinds = (("CPU", self.hosts), ("TPU", self.hosts * self.cores_per_host))
        names = [(f"{_TASK}/device:{kind}:{number}", kind) for kind, count in kinds for number in range(count)]
        return tpu_system_metadata.TPUSystemMetadata(
            num_cores=self.hosts * self.cores_per_host,
            num_hosts=self.hosts,
            num_of_cores_per_host=self.cores_per_host,
            topology=None,
            devices=[session._DeviceAttributes(name, kind, 0, 0) for name, kind in names],
        )

    def host_of(self, real: Callable[..., str]) -> Callable[..., str]:
        """`device_util.get_host_for_device` for the simulated cores.

        Args:
            real: TensorFlow's own function, for all other devices.
        """

        def get_host_for_device(device: str, device_index: int = 0) -> str:
            spec = tf.DeviceSpec.from_string(device)
            if spec.device_type == "TPU" and spec.device_index is not None:
                return f"{_TASK}/device:CPU:{spec.device_index // self.cores_per_host}"
            return real(device, device_index)

        return get_host_for_device

    def topology(self) -> Any:
        """A grid with one row of cores, as initialising a TPU would report it."""
        cores = self.hosts * self.cores_per_host
        coordinates = np.zeros([self.hosts, self.cores_per_host, 4], np.int32)
        coordinates[..., 0] = np.arange(cores).reshape(self.hosts, self.cores_per_host)
        return tf.tpu.experimental.Topology(mesh_shape=[cores, 1, 1, 1], device_coordinates=coordinates)


def get_next_on_cores(real: Callable[..., Any]) -> Callable[..., Any]:
    """`OwnedMultiDeviceIterator.get_next` that puts each traced batch on its core.

    TensorFlow refuses to enqueue batches that were fetched to the cores. It recognises them by their device, which
    would otherwise be the CPU here.

    Args:
        real: TensorFlow's own function.
    """

    def get_next(self: Any, device: str | None = None) -> Any:
        batches = real(self, device)
        if tf.executing_eagerly():
            return batches
        if device is not None:
            return _on(device, batches)
        return [_on(one, batch) for one, batch in zip(self._devices, batches, strict=True)]

    return get_next


def _on(device: str, batch: Any) -> Any:
    with tf.device(device):
        return tf.nest.map_structure(tf.identity, batch, expand_composites=True)
