"""What a step finds of the thread that traces it: the summary writer, Keras' dtype policy, XLA's marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import embexp


@pytest.fixture(scope="module")
def strategy() -> Iterator[Any]:
    with embexp.tpu_simulator(cores=2) as strategy:
        tf.config.set_soft_device_placement(False)
        yield strategy


def written(folder: Path) -> list[tuple[str, int]]:
    """Tag and step of each summary."""
    return [
        (value.tag, event.step)
        for file in folder.iterdir()
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
    ]


def test_summaries_are_written_once(strategy: Any, tmp_path: Path) -> None:
    """By the first replica, with the writer around the step, in a condition and outside of one."""

    def replica(x: Any) -> Any:
        tf.summary.scalar("outside", x)
        tf.summary.text("words", "a" + tf.strings.as_string(x))
        if x > 1.5:
            tf.summary.histogram("inside", tf.stack([x, x]))
        return x

    @tf.function
    def step(x: Any) -> None:
        strategy.run(replica, args=(x,))

    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(step=7):
        with pytest.raises(tf.errors.InvalidArgumentError, match="it writes a summary, which the host does"):
            step(tf.constant(1.0))
        tf.config.set_soft_device_placement(True)
        try:
            step(tf.constant(1.0))
            step(tf.constant(2.0))
        finally:
            tf.config.set_soft_device_placement(False)
    writer.close()
    assert sorted(written(tmp_path)) == [("cond/inside", 7), *[("outside", 7)] * 2, *[("words", 7)] * 2]


def test_summaries_that_are_not_recorded(strategy: Any, tmp_path: Path) -> None:
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(step=0), tf.summary.record_if(False):
        strategy.run(tf.function(lambda: tf.summary.scalar("x", 1.0)))
    writer.close()
    assert written(tmp_path) == []


def test_dtype_policy(strategy: Any) -> None:
    """A layer that a step makes computes in the policy's dtype, and so does one that was made before."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        with strategy.scope():
            made = keras.layers.Dense(2)
            made.build((None, 3))
        inside = []

        def replica(x: Any) -> Any:
            layer = keras.layers.Activation("relu")
            inside.append(keras.config.dtype_policy().name)
            return layer(x), made(x)

        own, other = strategy.run(tf.function(replica), args=(tf.ones([1, 3]),))
    finally:
        keras.config.set_dtype_policy(before)
    assert inside == ["mixed_bfloat16"] * 2
    assert {one.dtype for pair in (own, other) for one in pair.values} == {tf.bfloat16}
    assert made.kernel.dtype == "float32"


def test_jit_compile_has_no_effect(strategy: Any) -> None:
    """A print in a compiled function is an error; functions made before the block keep the setting after it."""

    @tf.function(jit_compile=True)
    def outer(x: Any) -> Any:
        @tf.function(jit_compile=True)
        def replica(x: Any) -> Any:
            return tf.distribute.get_replica_context().all_reduce("sum", x)

        tf.raw_ops.PrintV2(input="", output_stream="log(info)")
        return strategy.run(replica, args=(x,))

    assert [float(one) for one in outer(tf.constant(1.0)).values] == [2.0, 2.0]
    assert vars(outer)["_jit_compile"] is True
