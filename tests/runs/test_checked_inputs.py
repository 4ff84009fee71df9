"""Checks of an exported model's inputs come before what reads them: its own messages are what a caller sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from embexp.runs.serving import lengths, with_same_counts

NUMBERS = tf.TensorSpec(None, tf.int32)


def before(tensor: Any) -> list[Any]:
    """The operations that have run before a tensor is there."""
    operations, waiting = {}, [tensor.op]
    while waiting:
        operation = waiting.pop()
        if operation.name not in operations:
            operations[operation.name] = operation
            waiting += [*(each.op for each in operation.inputs), *operation.control_inputs]
    return list(operations.values())


@pytest.mark.parametrize(
    ("checked", "checks"),
    [(lengths, 2), (lambda k, rows: with_same_counts({"k": k[None], "rows": rows[None]})["k"], 1)],
    ids=["lengths", "counts"],
)
def test_checks_come_first(checked: Callable[[Any, Any], Any], checks: int) -> None:
    inside: list[Any] = []  # what a graph returns waits for its checks anyway

    def function(k: Any, rows: Any) -> Any:
        inside.append(checked(k, rows))
        return inside[0]

    tf.function(function, autograph=False).get_concrete_function(NUMBERS, NUMBERS)
    assert sum(each.type in ("Assert", "If", "StatelessIf") for each in before(inside[0])) == checks
