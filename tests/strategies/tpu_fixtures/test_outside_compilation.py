"""What the host of a TPU computes for a step: by request, for a gradient, or because a TPU can't."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import functional
from tensorflow.python.tpu.ops import tpu_ops

from tests.strategies.tpu_fixtures.cases import Case, original

FILE = "outside_compilation"
on_host = tf.compat.v1.tpu.outside_compilation
HOST_ATTRIBUTE = "_xla_outside_compilation"


@pytest.fixture
def hard_placement(strategy: Any) -> None:
    """Only what is marked goes to the host."""
    tf.config.set_soft_device_placement(False)


@pytest.fixture
def soft_placement(strategy: Any) -> None:
    """What a TPU can't compile goes to the host."""
    tf.config.set_soft_device_placement(True)


def results(strategy: Any, replica: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    """What a step in a tf.function returns, by replica."""
    step = tf.function(lambda: strategy.run(replica, args=args))
    return [one.numpy() for one in strategy.experimental_local_results(step())]


def printed(x: Any = None, more: float = 0.0) -> Any:
    tf.print("x is", x, output_stream=tf.compat.v1.logging.info)
    return None if x is None else x + more


def squared_twice(x: Any) -> Any:
    return (x * x) * (x * x)


def digits(x: Any) -> Any:
    """A 1 before a number, by way of its text."""
    return tf.strings.to_number(tf.strings.format("1{}", x))


def no_input(x: Any) -> Any:
    middle = x + 5.0
    on_host(printed)
    return middle + 5.0


def input_only(x: Any) -> Any:
    on_host(lambda y: printed(y) * 0, x + 5.0)
    return x + 10.0


@tf.function(jit_compile=True)
def jit_compile(x: Any) -> Any:
    return input_only(x)


def multiple_inputs(x: Any, y: Any) -> Any:
    def computed(a: Any, b: Any) -> Any:
        again = tf.reshape(b, tf.shape(a))
        return a + again, tf.matmul(a, b), tf.concat([a, again], 0)

    sums, product, both = on_host(computed, x + 7.0, y * 2.0)
    return tf.reduce_max(sums) + tf.reduce_min(product) + tf.reduce_sum(both)


def clusters(x: Any) -> Any:
    first = on_host(printed, x + 5.0, 6.0)
    return on_host(printed, first + 3.0, -18.0)


def in_a_condition(x: Any) -> Any:
    return tf.cond(x < 50.0, lambda: on_host(printed, x + 5.0, 6.0), lambda: x + 5.0)


def in_a_loop(x: Any) -> Any:
    return tf.while_loop(lambda y: y < 50.0, lambda y: (on_host(printed, y, 6.0),), (x + 5.0,))[0] + 4.0


def loop_on_host(x: Any) -> Any:
    def four_times(y: Any) -> Any:
        return tf.while_loop(lambda n, _: n < 4, lambda n, y: (n + 1, y + 6.0), (0, y))[1]

    return on_host(four_times, x + 5.0) + 4.0


def head_and_tail(x: Any) -> Any:
    def twice(y: Any) -> Any:
        return y * 2.0

    return on_host(twice, on_host(twice, x) + 1.0) + 5.0


def gradient(x: Any, y: Any) -> Any:
    return tf.gradients([on_host(squared_twice, x + 7.0) * y], [x])[0]


def second_gradient(x: Any, y: Any) -> Any:
    return tf.gradients([gradient(x, y)], [x])[0]


TWO_BY_THREE = np.arange(6, dtype=np.float32).reshape(2, 3)
MARKED: dict[str, tuple[Callable[..., Any], dict[str, tuple[tuple[Any, ...], float]]]] = {
    "test_host_no_input": (no_input, {"": ((25.0,), 35.0)}),
    "test_host_input_only": (input_only, {"": ((25.0,), 35.0)}),
    "test_jit_compile": (jit_compile, {"": ((25.0,), 35.0)}),
    "test_host_input_output": (lambda x: on_host(printed, x + 5.0, 6.0), {"": ((25.0,), 36.0)}),
    "test_host_multiple_inputs": (multiple_inputs, {"": ((TWO_BY_THREE, TWO_BY_THREE.reshape(3, 2)), 213.0)}),
    "test_multiple_clusters": (clusters, {"": ((25.0,), 21.0)}),
    "test_outside_compilation_control_flow_if": (
        in_a_condition,
        {"host": ((25.0,), 36.0), "core": ((51.0,), 56.0)},
    ),
    "test_outside_compilation_control_flow_while": (in_a_loop, {"": ((25.0,), 58.0)}),
    "test_outside_compilation_host_control_flow": (loop_on_host, {"": ((25.0,), 58.0)}),
    "test_outside_compilation_at_head_and_tail": (head_and_tail, {"": ((2.0,), 15.0)}),
    "test_gradient_across_outside_compilation": (gradient, {"": ((2.0, 3.0), 8748.0)}),
    "test_gradient_of_gradient_across_outside_compilation": (second_gradient, {"": ((2.0, 3.0), 2916.0)}),
}


@original(*((FILE, test) for test in MARKED))
@pytest.mark.usefixtures("hard_placement")
def test_marked(case: Case, strategy: Any) -> None:
    """Host and cores pass values to each other, in control flow and gradients, too."""
    replica, variants = MARKED[case.test]
    args, expected = variants[case.variant]
    assert results(strategy, replica, *args) == [expected, expected]


@original((FILE, "test_colocate_gradient_with_outside_compiled_op"))
@pytest.mark.usefixtures("hard_placement")
def test_colocate_gradient_with_outside_compiled_op(case: Case, strategy: Any) -> None:
    """The gradient of what the host computes is computed by the host: both have TensorFlow's mark."""
    marks = {}

    @tf.function
    def replica(x: Any) -> Any:
        root = on_host(tf.sqrt, x)
        slope = tf.compat.v1.gradients([root], [x], colocate_gradients_with_ops=True)[0]
        for one in tf.compat.v1.get_default_graph().get_operations():
            if one.type in ("Sqrt", "SqrtGrad"):
                marks.setdefault(one.type, one.get_attr(HOST_ATTRIBUTE))
        return slope

    np.testing.assert_allclose(results(strategy, replica, 25.0), [0.1, 0.1], rtol=1e-6)
    assert marks == {"Sqrt": b"0", "SqrtGrad": b"0.gradients/uid"}


@original((FILE, "test_string_op_with_manual_outside_compilation"))
@pytest.mark.usefixtures("soft_placement")
def test_string_op_with_manual_outside_compilation(case: Case, strategy: Any) -> None:
    assert results(strategy, lambda x: on_host(digits, x), 0) == [10.0, 10.0]


@original((FILE, "test_string_op_with_auto_outside_compilation"))
@pytest.mark.usefixtures("soft_placement")
def test_string_op_with_auto_outside_compilation(case: Case, strategy: Any) -> None:
    """Strings go to the host unmarked; without soft placement they are refused."""
    assert results(strategy, digits, 0) == [10.0, 10.0]
    tf.config.set_soft_device_placement(False)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"StringFormat \(.*a TPU has no strings"):
        results(strategy, digits, 0)


@original((FILE, "test_auto_outside_compilation_with_functional_nodes"))
@pytest.mark.usefixtures("soft_placement")
def test_auto_outside_compilation_with_functional_nodes(case: Case, strategy: Any) -> None:
    def replica(a: Any, b: Any) -> Any:
        return tf.identity(tf.cond(a >= b, lambda: digits(a * 100), lambda: digits(a)))

    assert results(strategy, replica, 0.0, -1.0) == [10.0, 10.0]
    assert results(strategy, replica, 2.0, 3.0) == [12.0, 12.0]


@original((FILE, "test_random_ops_with_auto_outside_compilation"))
@pytest.mark.usefixtures("soft_placement")
def test_random_ops_with_auto_outside_compilation(case: Case, strategy: Any) -> None:
    """A TPU can compile them: each replica draws its own."""
    first, second = results(strategy, lambda: tf.random.normal([1, 2, 3]))
    assert first.shape == second.shape == (1, 2, 3)
    assert not np.array_equal(first, second)


@original((FILE, "test_outside_compilation_with_tpu_partitioned_call_op"))
@pytest.mark.usefixtures("soft_placement")
def test_outside_compilation_with_tpu_partitioned_call_op(case: Case, strategy: Any) -> None:
    """How a TPU serves a model: `tpu.rewrite` in a function that a core, chosen at run time, calls."""

    @tf.function
    def model(x: Any) -> Any:
        return on_host(printed, x + 5.0, 1.0) + 4.0

    @tf.function
    def rewritten(x: Any) -> Any:
        return tf.compat.v1.tpu.rewrite(model.get_concrete_function(x).__call__, [x])

    @tf.function
    def served(x: Any) -> Any:
        called = rewritten.get_concrete_function(x)
        types = [one.type for one in called.function_def.signature.output_arg]
        args = [x, *called.captured_inputs]
        return functional.TPUPartitionedCall(
            args=args, device_ordinal=tpu_ops.tpu_ordinal_selector(), Tout=types, f=called
        )

    np.testing.assert_array_equal(served(tf.ones([1])), [[11.0]])


def doubled(x: Any, write: Callable[..., Any] = tf.summary.scalar) -> Any:
    write("x", x, step=0)
    return x * 2.0


def marked_twice(x: Any) -> Any:
    on_host(doubled, x)
    return on_host(doubled, x)


def marked_in_a_loop(x: Any) -> Any:
    return tf.while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, marked_twice(x + 1.0)), (0, x))[1] + 1.0


@tf.function
def in_a_function(x: Any) -> Any:
    return doubled(x + 1.0) + 1.0


SUMMARIES: dict[str, tuple[Callable[..., Any], dict[str, tuple[float, float, list[str]]]]] = {
    "test_summary": (lambda x: marked_twice(x + 1.0) + 1.0, {"": (2.0, 7.0, ["x", "x"])}),
    "test_summary_in_cond": (
        lambda x: tf.cond(x + 1.0 < 5.0, lambda: marked_twice(x + 1.0), lambda: x + 1.0) + 1.0,
        {"written": (2.0, 7.0, ["cond/x", "cond/x"]), "not_written": (10.0, 12.0, [])},
    ),
    "test_summary_in_while": (marked_in_a_loop, {"": (2.0, 31.0, ["while/x"] * 6)}),
    "test_summary_with_auto_outside_compilation": (lambda x: doubled(x + 1.0) + 1.0, {"": (2.0, 7.0, ["x"])}),
    "test_nested_function_scalar_summary": (in_a_function, {"": (2.0, 7.0, ["x"])}),
    "test_histogram_summary_with_auto_outside_compilation": (
        lambda x: doubled(x + 1.0, tf.summary.histogram) + 1.0,
        {"": (2.0, 7.0, ["x"])},
    ),
    "test_summary_control_flow_if_with_auto_outside_compilation": (
        lambda x: tf.cond(x + 1.0 < 5.0, lambda: doubled(x + 1.0), lambda: x + 1.0) + 1.0,
        {"written": (2.0, 7.0, ["cond/x"]), "not_written": (10.0, 12.0, [])},
    ),
}


def summaries(folder: Path) -> list[Any]:
    """All values in the one events file of a folder."""
    (file,) = folder.iterdir()
    return [value for event in tf.compat.v1.train.summary_iterator(str(file)) for value in event.summary.value]


@original(*((FILE, test) for test in SUMMARIES))
def test_summaries(case: Case, strategy: Any, tmp_path: Path) -> None:
    """The host writes them, once and not for each replica."""
    replica, variants = SUMMARIES[case.test]
    x, expected, tags = variants[case.variant]
    tf.config.set_soft_device_placement("auto" in case.test or "nested" in case.test)
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(), tf.summary.record_if(True):
        assert results(strategy, replica, x) == [expected, expected]
    writer.close()
    assert [value.tag for value in summaries(tmp_path)] == tags


@original((FILE, "test_image_summary"))
@pytest.mark.usefixtures("soft_placement")
def test_image_summary(case: Case, strategy: Any, tmp_path: Path) -> None:
    """Images of what a loop collected in a TensorArray: the pixels are those of the loop."""

    def replica() -> None:
        def drawn(step: Any, rows: Any) -> Any:
            return step + 1, rows.write(step, tf.fill([3], tf.cast(step, tf.float32) / 64.0))

        rows = tf.TensorArray(tf.float32, 64, element_shape=(3,), clear_after_read=False)
        rows = tf.while_loop(lambda step, _: step < 64, drawn, (0, rows))[1]
        pixels = tf.reshape(tf.transpose(rows.stack()), [3, 8, 8, 1])
        tf.summary.image("sample", tf.tile(pixels, [1, 1, 1, 3]), step=5)

    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(), tf.summary.record_if(True):
        tf.function(lambda: strategy.run(replica))()
    writer.close()
    (value,) = summaries(tmp_path)
    image = tf.io.decode_png(value.tensor.string_val[2])
    np.testing.assert_array_equal(image[..., 0], (np.arange(64).reshape(8, 8) / 64 * 255.5).astype(np.uint8))
