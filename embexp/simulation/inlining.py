"""tf.functions inside a replica's step are traced into it.

Replicas meet in the graph that all are traced into; the graph of a tf.function inside would be in the way. A TPU
compiles all of them into one program likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph

from embexp.simulation import replicas
from embexp.simulation.as_written import as_written


def inlined(call: Callable[..., Any]) -> Callable[..., Any]:
    """`Function.__call__` of a tf.function, but for calls while a replica is traced.

    Args:
        call: TensorFlow's own.
    """

    @as_written
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not replicas.inside():
            return call(self, *args, **kwargs)
        function = self.python_function
        if self._autograph:
            function = autograph.tf_convert(function, ag_ctx.ControlStatusCtx(ag_ctx.Status.ENABLED))
        with replicas.function():
            return function(*args, **kwargs)

    return called
