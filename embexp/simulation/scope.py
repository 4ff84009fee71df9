"""What TensorFlow knows of a replica while it traces it: that it is inside a TPU computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflow.python.tpu import tpu_replication


class ReplicaScope(tpu_replication.TPUReplicateContext):  # type: ignore[misc]
    """Tells TensorFlow that it is inside a TPU computation, and changes no operation.

    Attributes:
        replica: number of the replica.
        compiled: the operations that a TPU would compile.
        hosts: how many contexts are open whose operations run on the host.
    """

    def __init__(self, replica: int) -> None:
        """Does not enter the scope."""
        super().__init__(name=f"simulated_replica_{replica}", num_replicas=1, pivot=None)
        self.replica = replica
        self.compiled: list[Any] = []
        self.hosts = 0

    def IsXLAContext(self) -> bool:  # noqa: N802
        """False: nothing here is compiled."""
        return False

    def AddOp(self, op: Any) -> None:  # noqa: N802
        """Notes the operation, and does not change it."""
        if not self.hosts:
            self.compiled.append(op)
        if self.outer_context is not None:
            self.outer_context.AddInnerOp(op)

    def AddInnerOp(self, op: Any) -> None:  # noqa: N802
        """Changes no operation."""
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
