"""What TensorFlow knows of a replica while it traces it: that it is inside a TPU computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.tpu import tpu_replication


class ReplicaScope(tpu_replication.TPUReplicateContext):  # type: ignore[misc]
    """Tells TensorFlow that it is inside a TPU computation, and only marks the operations of the host.

    Attributes:
        replica: number of the replica.
        operations: all that the replica makes.
    """

    def __init__(self, replica: int, devices: Any) -> None:
        """Does not enter the scope.

        Args:
            replica: number of the replica.
            devices: the device functions around it, under which TensorFlow makes the host's operations.
        """
        super().__init__(name=f"simulated_replica_{replica}", num_replicas=1, pivot=None)
        self._outer_device_function_stack = devices
        self.replica = replica
        self.operations: list[Any] = []

    def IsXLAContext(self) -> bool:  # noqa: N802
        """False: nothing here is compiled."""
        return False

    def AddOp(self, op: Any) -> None:  # noqa: N802
        """Notes the operation, and marks it if it is the gradient of one that the host computes."""
        self.operations.append(op)
        if self._outside_compilation_cluster:
            cluster = attr_value_pb2.AttrValue(s=self._outside_compilation_cluster.encode())
            op._set_attr(tpu_replication._OUTSIDE_COMPILATION_ATTR, cluster)
        if self.outer_context is not None:
            self.outer_context.AddInnerOp(op)

    def AddInnerOp(self, op: Any) -> None:  # noqa: N802
        """As `AddOp`."""
        self.AddOp(op)

    def AddValue(self, val: Any) -> Any:  # noqa: N802
        """Changes no value."""
        return val if self.outer_context is None else self.outer_context.AddValue(val)

    def get_replicated_var_handle(
        self, name: str, handle_id: str, vars_: Sequence[Any], is_mirrored: bool = False, is_packed: bool = False
    ) -> Any:
        """The handle of this replica's copy of a variable."""
        copy = vars_[self.replica]
        return copy.handle if hasattr(copy, "handle") else copy
