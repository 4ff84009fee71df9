"""What a TPU could not compile is refused, with the line that made it; what it can compile or its host does is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import embexp

Step = Callable[[Any], Any]


@pytest.fixture(scope="module")
def strategy() -> Iterator[Any]:
    with embexp.tpu_simulator(cores=1) as strategy:
        tf.config.set_soft_device_placement(False)
        yield strategy


def squares(x: Any) -> Any:
    result = tf.numpy_function(lambda value: value**2, [x], tf.float32)
    result.set_shape(x.shape)
    return result


def in_a_branch(x: Any) -> Any:
    return tf.cond(x[0] > 0, lambda: tf.strings.length(tf.strings.as_string(x)), lambda: tf.zeros([3], tf.int32))


def in_a_loop(x: Any) -> Any:
    return tf.while_loop(lambda x: x[0] < 9, lambda x: (squares(x),), (x,))


def table(x: Any) -> Any:
    initial = tf.lookup.KeyValueTensorInitializer([0, 1], [5, 6], tf.int64, tf.int64)
    with tf.init_scope():
        made = tf.lookup.StaticHashTable(initial, -1)
    return made.lookup(tf.cast(x, tf.int64))


def host(x: Any) -> Any:
    kept = tf.boolean_mask(x, x > 1)
    return tf.pad(tf.unique(kept)[0], [[0, 3 - tf.size(tf.unique(kept)[0])]])


def outside(x: Any) -> Any:
    return tf.compat.v1.tpu.outside_compilation(host, x)


def printed(x: Any) -> Any:
    tf.print("x is", x, output_stream=tf.compat.v1.logging.info)
    return x


REFUSED: dict[str, tuple[Step, str, str]] = {
    "py_function": (lambda x: tf.py_function(lambda y: y, [x], tf.float32), "EagerPyFunc", "it calls Python"),
    "numpy_function": (squares, "PyFunc", "it calls Python"),
    "hash table": (table, "LookupTableFindV2", "it needs a table in the host's memory"),
    "strings": (lambda x: tf.strings.as_string(x), "AsString", "a TPU has no strings"),
    "strings in a branch": (in_a_branch, "StringLength", "a TPU has no strings"),
    "python in a loop": (in_a_loop, "PyFunc", "it calls Python"),
    "unique": (lambda x: tf.unique(x)[0], "Unique", "the shape of its result depends on values"),
    "boolean_mask": (lambda x: tf.boolean_mask(x, x > 1), "Where", "the shape of its result depends on values"),
    "where": (lambda x: tf.where(x > 1), "Where", "the shape of its result depends on values"),
    "range": (lambda x: tf.range(tf.cast(x[0], tf.int32)), "Range", "the shape of its result depends on values"),
    "slice": (lambda x: x[: tf.cast(x[0], tf.int32)], "StridedSlice", "the shape of its result depends on values"),
    "partition": (
        lambda x: tf.dynamic_partition(x, tf.cast(x > 1, tf.int32), 2)[0],
        "DynamicPartition",
        "the shape of its result depends on values",
    ),
    "sparse": (lambda x: tf.sparse.from_dense(x).values, "Where", "the shape of its result depends on values"),
    "print": (printed, "PrintV2", "it prints, which the host does"),
    "shape from the host": (lambda x: outside(x) * 2, "Pad", "a TPU must know its shape"),
    "no kernel": (lambda x: x + tf.cast(tf.timestamp(), tf.float32), "Timestamp", "TensorFlow has no XLA kernel"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(strategy: Any, name: str) -> None:
    step, kind, why = REFUSED[name]
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        strategy.run(tf.function(step), args=(tf.constant([1.0, 2.0, 3.0]),))
    message = str(caught.value)
    assert "a TPU can't compile this step" in message
    assert any(f" {kind} (" in line and why in line and "test_compilation.py:" in line for line in message.splitlines())
    assert "tf.compat.v1.tpu.outside_compilation" in message


def length_of_text(x: Any) -> Any:
    return tf.strings.length(tf.strings.as_string(x))


MOVED: dict[str, tuple[Step, Any]] = {
    "print": (printed, [1.0, 2.0, 3.0]),
    "numpy_function": (lambda x: squares(x) + 1, [2.0, 5.0, 10.0]),
    "hash table": (lambda x: table(x) + 1, [7, 0, 0]),
    "strings": (length_of_text, [8, 8, 8]),
    "strings in a branch": (in_a_branch, [8, 8, 8]),
    "python in a loop": (lambda x: in_a_loop(x * 3)[0], [9.0, 36.0, 81.0]),
    "strings to nobody": (lambda x: (length_of_text(x), x)[1], [1.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("name", MOVED)
def test_moved_to_the_host_by_soft_placement(strategy: Any, name: str) -> None:
    step, expected = MOVED[name]
    tf.config.set_soft_device_placement(True)
    try:
        found = strategy.run(tf.function(step), args=(tf.constant([1.0, 2.0, 3.0]),))
    finally:
        tf.config.set_soft_device_placement(False)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["unique", "boolean_mask", "range", "py_function"])
def test_soft_placement_gives_no_shapes(strategy: Any, name: str) -> None:
    """Neither those that a TPU computes from values, nor that of a result from the host."""
    step, _, _ = REFUSED[name]
    tf.config.set_soft_device_placement(True)
    try:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"depends on values|a TPU must know its shape"):
            strategy.run(tf.function(lambda x: step(x) + 1), args=(tf.constant([1.0, 2.0, 3.0]),))
    finally:
        tf.config.set_soft_device_placement(False)


def test_the_value_of_an_argument_is_not_known(strategy: Any) -> None:
    """A TPU compiles a step for any value of its arguments, also of those that are constants here."""

    def step(count: Any) -> Any:
        assert tf.get_static_value(count) is None
        return tf.range(count)

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Range \(.*depends on values"):
        tf.function(lambda: strategy.run(step, args=(3,)))()


def test_all_are_named_at_once(strategy: Any) -> None:
    def step(x: Any) -> Any:
        return tf.unique(x)[0], squares(x)

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s) Unique \(.*tf\.unique\(x\).* PyFunc \("):
        strategy.run(tf.function(step), args=(tf.ones([3]),))


def asserted(x: Any) -> Any:
    tf.debugging.assert_positive(x, message="not positive")
    tf.strings.as_string(x)  # nobody needs it
    return x


def repeated(x: Any) -> Any:
    total = tf.TensorArray(tf.float32, 3)
    for number in tf.range(3):
        if x[number] > 1:
            x = x + tf.random.uniform([3])
        total = total.write(number, tf.reduce_sum(x))
    return total.stack()


def masked(x: Any) -> Any:
    x = tf.reshape(x, [1, -1])
    return tf.where(x > 1, x, 0.0), tf.gather(x, tf.argmax(x, 1), axis=1), tf.math.top_k(x, 2), tf.sort(x), x[:, ::2]


def differentiated(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = repeated(tf.nn.softmax(x)) * tf.vectorized_map(lambda one: one * 2, x)
    return tape.gradient(y, x)


ALLOWED: dict[str, Step] = {
    "outside compilation": lambda x: tf.ensure_shape(outside(x), [3]),
    "assert": asserted,
    "loops": repeated,
    "masks": masked,
    "gradients": differentiated,
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(strategy: Any, name: str) -> None:
    x = tf.constant([1.0, 2.0, 3.0])
    found = strategy.run(tf.function(ALLOWED[name]), args=(x,))
    if name == "outside compilation":
        np.testing.assert_array_equal(found, [2.0, 3.0, 0.0])


def test_layers_metrics_and_optimizers_of_keras_are_allowed(strategy: Any) -> None:
    """Recurrence, attention, normalisation and dropout with their gradients, and metrics."""
    with strategy.scope():
        inputs = keras.Input((2, 4))
        x = keras.layers.MultiHeadAttention(1, 2, dropout=0.5)(inputs, inputs)
        x = keras.layers.SimpleRNN(2)(keras.layers.BatchNormalization()(x))
        model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(x))
        optimizer, metrics = keras.optimizers.SGD(clipnorm=1.0), [keras.metrics.AUC(5), keras.metrics.Precision()]
        optimizer.build(model.trainable_variables)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x, training=True))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        for metric in metrics:
            metric.update_state(tf.ones([4, 1]), model(x))
        return loss

    assert np.isfinite(strategy.run(tf.function(step), args=(tf.ones([4, 2, 4]),)))


def test_an_input_of_strings_that_no_operation_takes(strategy: Any) -> None:
    """As TensorFlow drops it from the program."""
    found = strategy.run(tf.function(lambda x: x["a"] + 1), args=({"a": tf.constant(1), "b": tf.constant("text")},))
    assert int(found) == 2
