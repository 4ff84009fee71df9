"""The maximum over windows and its gradient, against NumPy with loops, Keras' convolution, and each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.fields.texts import models as texts
from embexp.fields.texts.specs import TextCNN
from embexp.system import native
from embexp.training import models
from tests.thoroughness import examples

built = pytest.mark.skipif(native.library("windows") is None, reason="nothing was built: no C++ compiler")
SHAPES = [(64, 3, 100, 100), (1, 3, 8, 4), (6, 5, 3, 7), (30, 1, 17, 33), (20, 4, 40, 64)]
"""Words of the longest text, width, dim, maps."""


@pytest.fixture
def tried_again() -> Any:
    yield
    texts._same_bits.cache_clear()


def with_gradients(way: Callable[..., Any], words: Any, lengths: Any, kernel: Any, upstream: Any) -> list[np.ndarray]:
    """Maxima, and the gradients by words and kernel, of a traced step."""

    @tf.function(reduce_retracing=True)
    def step(words: Any, kernel: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([words, kernel])
            found = way(words, tf.constant(lengths, tf.int32), kernel)
        return [found, *tape.gradient(found, [words, kernel], output_gradients=tf.constant(upstream))]

    return [each.numpy() for each in step(tf.constant(words), tf.constant(kernel))]


def by_loops(words: np.ndarray, lengths: Any, kernel: np.ndarray, upstream: np.ndarray) -> list[np.ndarray]:
    """The same in float64; the first window that is the maximum has the whole gradient."""
    words, kernel = words.astype(np.float64), kernel.astype(np.float64)
    edge, maps = len(kernel) - 1, kernel.shape[2]
    found, to_words, to_kernel = np.full((len(words), maps), -np.inf), np.zeros_like(words), np.zeros_like(kernel)
    for text, length in enumerate(lengths):
        for feature in range(maps):
            best = None
            for start in range(-edge, length if length else -edge):
                inside = [i for i in range(len(kernel)) if 0 <= start + i < length]
                value = sum(words[text, start + i] @ kernel[i, :, feature] for i in inside)
                if best is None or value > found[text, feature]:
                    best, found[text, feature] = start, value
            for i in range(len(kernel)) if best is not None else ():
                if 0 <= best + i < words.shape[1]:
                    to_words[text, best + i] += upstream[text, feature] * kernel[i, :, feature]
                    to_kernel[i, :, feature] += upstream[text, feature] * words[text, best + i]
    return [found, to_words, to_kernel]


def small(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Small whole numbers, whose sums float32 has exactly: many windows tie, and half of all words are zeros."""
    return random.integers(-2, 3, shape).astype(np.float32)


@examples(8)
@given(
    lengths=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    width=st.integers(1, 9),
    dim=st.integers(1, 9),
    maps=st.sampled_from([1, 7, 16, 17, 65]),
    seed=st.integers(0, 99),
)
def test_maxima_and_gradients_are_exact(lengths: list[int], width: int, dim: int, maps: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    longest = max(*lengths, 1)
    words = small(random, len(lengths), longest, dim)
    words[random.random(words.shape[:2]) < 0.3] = 0
    for text, length in enumerate(lengths):
        words[text, length:] = 0
    kernel, upstream = small(random, width, dim, maps), small(random, len(lengths), maps)
    expected = by_loops(words, lengths, kernel, upstream)
    ways = [texts._by_sparse_products]
    if native.library("windows") is not None:  # whether it is used or not: sums here are exact in any order
        ways.append(texts._by_library)
    for way in ways:
        for one, other in zip(with_gradients(way, words, lengths, kernel, upstream), expected, strict=True):
            np.testing.assert_array_equal(one, other)
    served = texts.maxima_over_windows(tf.constant(words), tf.constant(lengths), tf.constant(kernel), training=False)
    np.testing.assert_array_equal(served, expected[0])


@pytest.mark.parametrize("training", [True, False])
def test_without_ties_gradients_are_those_of_keras_layers(training: bool) -> None:
    random = np.random.default_rng(0)
    words, upstream = random.normal(size=(5, 12, 10)).astype("f"), random.normal(size=(5, 9)).astype("f")
    kernel = random.normal(size=(4, 10, 9)).astype("f")
    convolution = keras.layers.Conv1D(9, 4, use_bias=False)
    convolution.build((None, None, 10))

    def keras_way(words: Any, lengths: Any, kernel: Any) -> Any:
        padded = keras.layers.ZeroPadding1D(3)(words)
        maps = convolution.stateless_call([kernel], [], padded)[0]
        return keras.layers.GlobalMaxPooling1D()(maps)

    def ours(words: Any, lengths: Any, kernel: Any) -> Any:
        return texts.maxima_over_windows(words, lengths, kernel, training=training)

    lengths = [12] * 5
    found = with_gradients(ours, words, lengths, kernel, upstream)
    for one, other in zip(found, with_gradients(keras_way, words, lengths, kernel, upstream), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@built
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_library_has_the_same_bits(shape: tuple[int, int, int, int]) -> None:
    if not texts._same_bits(*shape):
        pytest.skip("TensorFlow's convolutions have other bits on this processor, so the library is not used")
    longest, _, dim, maps = shape
    random = np.random.default_rng(1)
    lengths = random.integers(0, longest + 1, 50)
    words = random.normal(size=(50, longest, dim)).astype("f")
    words[np.arange(longest) >= lengths[:, None]] = 0
    kernel, upstream = random.normal(size=shape[1:]).astype("f"), random.normal(size=(50, maps)).astype("f")
    upstream[random.random(upstream.shape) < 0.5] = 0
    given = (words, lengths, kernel, upstream)
    for one, other in zip(*(with_gradients(way, *given) for way in WAYS), strict=True):
        np.testing.assert_array_equal(one.view(np.int32), other.view(np.int32))
    # Without AVX-512 as well.
    library = native.library("windows")
    wide, narrow = (library.embexp_windows(words, lengths.astype("i"), kernel, wide=each) for each in (True, False))
    for one, other in zip(wide, narrow, strict=True):
        np.testing.assert_array_equal(one.numpy().view(np.int32), other.numpy().view(np.int32))


WAYS = (texts._by_library, texts._by_sparse_products)


@pytest.mark.parametrize("way", [pytest.param(WAYS[0], marks=built), WAYS[1]], ids=["library", "sparse products"])
def test_what_is_not_a_number_is_not_hidden(way: Callable[..., Any]) -> None:
    words = np.ones((1, 5, 2), np.float32)
    words[0, 2, 1] = np.nan
    found = with_gradients(way, words, [5], np.ones((2, 2, 3), np.float32), np.ones((1, 3), np.float32))
    assert np.isnan(found[0]).all()


@built
def test_the_library_refuses_other_shapes() -> None:
    library = native.library("windows")
    words, kernel = tf.ones([2, 3, 4]), tf.ones([2, 4, 5])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[B, L, d\]"):
        library.embexp_windows(words, [3, 3], tf.ones([2, 3, 5]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="one length per text"):
        library.embexp_windows(words, [3], kernel)
    with pytest.raises(tf.errors.InvalidArgumentError, match="positions and the gradient"):
        library.embexp_windows_grad(words, kernel, tf.zeros([2, 5], tf.int32), tf.ones([2, 4]))


def operations(*, training: bool, longest: int | None = 6) -> set[str]:
    @tf.function
    def step(words: Any, lengths: Any, kernel: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([words, kernel])
            found = texts.maxima_over_windows(words, lengths, kernel, training=training)
        return tape.gradient(found, [words, kernel])

    specs = [tf.TensorSpec([None, longest, 8]), tf.TensorSpec([None], tf.int32), tf.TensorSpec([2, 8, 16])]
    return {operation.type for operation in step.get_concrete_function(*specs).graph.get_operations()}


def test_only_steps_on_a_processor_have_their_own_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"EmbexpWindows", "EmbexpWindowsGrad", "SparseTensorDenseMatMul"}
    dense = {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}
    assert operations(training=False) >= dense
    assert not operations(training=False) & own
    with monkeypatch.context() as patched:
        patched.setattr(models, "on_processor", lambda: False)
        assert operations(training=True) >= dense
        assert not operations(training=True) & own
    if native.library("windows") is not None and texts._same_bits(6, 2, 8, 16):
        assert operations(training=True) & (own | dense) == {"EmbexpWindows", "EmbexpWindowsGrad"}
    assert "SparseTensorDenseMatMul" in operations(training=True, longest=None)
    monkeypatch.setattr(native, "library", lambda name: None)
    assert operations(training=True) & (own | dense) == {"Conv2D", "SparseTensorDenseMatMul"}


@built
def test_other_bits_are_noticed(tried_again: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = texts._convolved
    monkeypatch.setattr(texts, "_convolved", lambda *given: real(*given) * (1 + 2**-23))
    texts._same_bits.cache_clear()
    assert not texts._same_bits(6, 2, 8, 16)
    assert "EmbexpWindows" not in operations(training=True)


class EarlierMaximum(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """As models had it before; texts here have all their words."""

    def call(self, inputs: list[Any]) -> Any:
        return keras.ops.max(inputs[0], axis=1)


def test_checkpoints_of_earlier_models_load(tmp_path: Any) -> None:
    """Their layers were padding, convolution with ReLU, and maximum."""
    words, other = keras.Input((6, 3), name="words"), keras.Input((2,), name="other")
    found = [other]
    for width in (2, 3):
        padded = keras.layers.ZeroPadding1D(width - 1, name=f"pad.words.{width}")(words)
        maps = keras.layers.Conv1D(5, width, activation="relu", name=f"windows.words.{width}")(padded)
        found.append(EarlierMaximum(name=f"max.words.{width}")([maps, words]))
    x = keras.layers.Concatenate(name="texts.inputs")(found)
    x = keras.layers.Dropout(0.5, seed=0, name="texts.dropout")(x)
    earlier = keras.Model(
        {"words": words, "other": other}, keras.layers.Dense(4, name="head.logit")(x), name="text_cnn"
    )
    now = models.build_model(
        TextCNN(widths=(2, 3), maps=5),
        shapes={"words": (6, 3), "other": (2,)},
        dense_width=0,
        output_bias=0.0,
        seed=0,
        outputs=4,
    )
    assert [(each.path, each.shape) for each in now.weights] == [(each.path, each.shape) for each in earlier.weights]
    random = np.random.default_rng(0)
    for weight in earlier.weights:
        weight.assign(random.normal(size=weight.shape))
    tf.train.Checkpoint(model=now).read(
        tf.train.Checkpoint(model=earlier).write(str(tmp_path / "saved"))
    ).assert_consumed()
    given = {"words": random.normal(size=(4, 6, 3)).astype("f"), "other": random.normal(size=(4, 2)).astype("f")}
    np.testing.assert_allclose(now(given), earlier(given), rtol=1e-5, atol=1e-6)


def test_initial_weights_are_those_of_earlier_models() -> None:
    """They depend on the seed and the layer's name alone."""
    layer = models.build_model(
        TextCNN(widths=(2,), maps=5), shapes={"words": (6, 3)}, dense_width=0, output_bias=0.0, seed=7, outputs=4
    ).get_layer("windows.words.2")

    earlier = keras.layers.Conv1D(5, 2, kernel_initializer=models.glorot(7, "windows.words.2"))
    earlier.build((None, 6, 3))
    np.testing.assert_array_equal(layer.weights[0], earlier.kernel)
    np.testing.assert_array_equal(layer.weights[1], np.zeros(5))
