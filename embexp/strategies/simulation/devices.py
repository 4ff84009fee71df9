"""Simulated devices, described well enough for the real `tf.distribute.TPUStrategy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.tpu import topology_pb2
from tensorflow.python.client import session
from tensorflow.python.eager import context
from tensorflow.python.tpu import topology, tpu_system_metadata

_TASK = "/job:localhost/replica:0/task:0"


class SimulatedDevices:
    """The hosts and cores of a simulated TPU.

    All hosts are this process. Host h is device CPU:h, and its cores are numbered on from those of host h - 1. A real
    host is a separate task that numbers its cores from 0, but operations on devices of other tasks can't run here,
    while those on CPU:1 run on CPU:0 by soft placement.

    Attributes:
        hosts: number of hosts.
        cores_per_host: cores of each.
        ended: whether they are no longer simulated.
    """

    def __init__(self, hosts: int, cores_per_host: int) -> None:
        """Describes `hosts` hosts with `cores_per_host` cores each."""
        self.hosts, self.cores_per_host = hosts, cores_per_host
        self.ended = False

    @property
    def cores(self) -> int:
        """Cores of all hosts."""
        return self.hosts * self.cores_per_host

    def metadata(self) -> Any:
        """The devices, as a TPU system reports them: `TPUSystemMetadata`."""
        kinds = (("CPU", self.hosts), ("TPU", self.cores))
        names = [(f"{_TASK}/device:{kind}:{number}", kind) for kind, count in kinds for number in range(count)]
        return tpu_system_metadata.TPUSystemMetadata(
            num_cores=self.cores,
            num_hosts=self.hosts,
            num_of_cores_per_host=self.cores_per_host,
            topology=None,
            devices=[session._DeviceAttributes(name, kind, 0, 0) for name, kind in names],
        )

    def logical(self) -> list[Any]:
        """The cores as `tf.config.LogicalDevice`."""
        return [context.LogicalDevice(_core(number), "TPU") for number in range(self.cores)]

    def topology(self) -> SimulatedTopology:
        """Two cores on each chip if each host has an even number of cores, and chips in one row, host after host.

        So a replica of two cores is `computation_shape=[1, 1, 1, 2]`, as in TensorFlow's examples.
        """
        per_chip = 1 if self.cores_per_host % 2 else 2
        places = np.zeros([self.hosts, self.cores_per_host, 4], np.int32)
        numbers = np.arange(self.cores).reshape(self.hosts, self.cores_per_host)
        places[..., 0], places[..., 3] = numbers // per_chip, numbers % per_chip
        return SimulatedTopology(
            mesh_shape=np.array([self.cores // per_chip, 1, 1, per_chip], np.int32), device_coordinates=places
        )

    def host_of(self, real: Callable[..., str]) -> Callable[..., str]:
        """`device_util.get_host_for_device` for the simulated cores.

        Args:
            real: TensorFlow's own function, for all other devices.
        """

        def get_host_for_device(device: str, device_index: int = 0) -> str:
            spec = tf.DeviceSpec.from_string(device)
            if spec.device_type == "TPU" and spec.device_index is not None:
                return _host(spec.device_index // self.cores_per_host)
            return real(device, device_index)

        return get_host_for_device


class SimulatedTopology(topology.Topology):  # type: ignore[misc]
    """A topology whose devices have the names that `SimulatedDevices` gives them."""

    def tpu_device_ordinal_at_coordinates(self, device_coordinates: Any) -> int:
        """Number of the core."""
        task = int(self.task_ordinal_at_coordinates(device_coordinates))
        own = int(super().tpu_device_ordinal_at_coordinates(device_coordinates))
        return task * int(self.num_tpus_per_task) + own

    def tpu_device_name_at_coordinates(self, device_coordinates: Any, job: str | None = None) -> str:
        """Name of the core; there is one job."""
        return _core(self.tpu_device_ordinal_at_coordinates(device_coordinates))

    def cpu_device_name_at_coordinates(self, device_coordinates: Any, job: str | None = None) -> str:
        """Name of the core's host; there is one job."""
        return _host(int(self.task_ordinal_at_coordinates(device_coordinates)))

    def serialized(self) -> Any:
        """With the hardware that `TPUEmbedding` asks for: embedding hardware of the first generation."""
        proto = topology_pb2.TopologyProto.FromString(super().serialized())
        feature = topology_pb2.TPUHardwareFeature
        proto.tpu_hardware_feature.CopyFrom(feature(embedding_feature=feature.V1))
        return proto.SerializeToString()


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


def _core(number: int) -> str:
    return f"{_TASK}/device:TPU:{number}"


def _host(number: int) -> str:
    return f"{_TASK}/device:CPU:{number}"


def _on(device: str, batch: Any) -> Any:
    with tf.device(device):
        return tf.nest.map_structure(tf.identity, batch, expand_composites=True)
