"""Models of texts, against the formulas written out in NumPy with loops."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import ConfigError
from embexp.fields.texts.models import lengths
from embexp.fields.texts.specs import BagOfWords, TextCNN
from embexp.specs.models import DENSE, MLP, Model
from embexp.training import models
from tests.thoroughness import examples

LENGTH, DIM, CLASSES = 6, 3, 4


def new_model(model: Model, shapes: Any, *, outputs: int = CLASSES, dense_width: int = 0, seed: int = 0) -> Any:
    return models.build_model(
        model, shapes=shapes, dense_width=dense_width, output_bias=0.0, seed=seed, outputs=outputs
    )


def scrambled(model: Any, seed: int = 1) -> dict[str, np.ndarray]:
    """Gives every weight, biases too, values of our own and returns them by path, in float64."""
    generator = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(generator.normal(size=variable.shape).astype(np.float32))
    return {variable.path: variable.numpy().astype(np.float64) for variable in model.weights}


def texts(*counts: int, length: int = LENGTH, dim: int = DIM, seed: int = 0) -> np.ndarray:
    """Random word vectors, zeros behind the first `counts[i]` of text i."""
    words = np.random.default_rng(seed).normal(size=(len(counts), length, dim)).astype(np.float32)
    for row, count in enumerate(counts):
        words[row, count:] = 0
    return words


def kim(words: np.ndarray, weights: dict[str, np.ndarray], widths: tuple[int, ...], name: str) -> np.ndarray:
    """Kim 2014, eq. 2 and 3, of one text without its padding: every window that holds a word of it."""
    maxima = []
    for width in widths:
        kernel, bias = weights[f"windows.{name}.{width}/kernel"], weights[f"windows.{name}.{width}/bias"]
        best = np.zeros(len(bias))
        if len(words):
            edge = np.zeros((width - 1, words.shape[1]))
            padded = np.concatenate([edge, words, edge])
            for start in range(len(words) + width - 1):
                window = padded[start : start + width]
                best = np.maximum(best, np.einsum("hd,hdm->m", window, kernel) + bias)
        maxima.append(best)
    return np.concatenate(maxima)


@examples(5)
@given(
    counts=st.lists(st.integers(0, LENGTH), min_size=1, max_size=4),
    widths=st.sampled_from([(1,), (3,), (2, 5), (3, 4, 5)]),
    seed=st.integers(0, 99),
)
def test_text_cnn_is_kim_s(counts: list[int], widths: tuple[int, ...], seed: int) -> None:
    model = new_model(TextCNN(widths=widths, maps=7), {"words": (LENGTH, DIM)})
    weights = scrambled(model, seed)
    words = texts(*counts, seed=seed)
    maxima = [
        kim(text[:count].astype(np.float64), weights, widths, "words")
        for text, count in zip(words, counts, strict=True)
    ]
    expected = np.stack(maxima) @ weights["head.logit/kernel"] + weights["head.logit/bias"]
    logits = model({"words": tf.constant(words)})
    assert (logits.shape, logits.dtype) == ((len(counts), CLASSES), tf.float32)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", [TextCNN(widths=(2, 3), maps=5), BagOfWords()], ids=["text_cnn", "bag_of_words"])
def test_padding_changes_nothing(model: Model) -> None:
    short, long = new_model(model, {"words": (5, DIM)}), new_model(model, {"words": (11, DIM)})
    for variable, value in zip(long.weights, scrambled(short).values(), strict=True):
        variable.assign(value)
    words = texts(5, 3, 1, 0, length=5)
    padded = np.concatenate([words, np.zeros((4, 6, DIM), np.float32)], axis=1)
    np.testing.assert_allclose(short({"words": words}), long({"words": padded}), rtol=1e-5, atol=1e-6)


def test_padding_never_is_the_maximum() -> None:
    """Where all words are disliked, a window of padding would win with its bias."""
    model = new_model(TextCNN(widths=(2,), maps=1), {"words": (4, 1)}, outputs=1)
    kernel, bias = model.get_layer("windows.words.2").weights
    kernel.assign(tf.ones_like(kernel))
    bias.assign([2.0])
    head = model.get_layer("head.logit")
    head.kernel.assign([[1.0]])
    # Windows of the text -3: (0, -3) and (-3, 0), both ReLU(-1) = 0; one of padding alone would be 2.
    assert model({"words": tf.constant([[[-3.0], [0], [0], [0]]])}).numpy().item() == 0.0
    # And of the text -1: ReLU(1).
    assert model({"words": tf.constant([[[-1.0], [0], [0], [0]]])}).numpy().item() == 1.0
    # A text without words has no window.
    assert model({"words": tf.zeros([1, 4, 1])}).numpy().item() == 0.0


def test_bag_of_words_is_linear_in_the_mean_of_the_words() -> None:
    model = new_model(BagOfWords(), {"words": (LENGTH, DIM), "bag": (2,)}, dense_width=1)
    weights = scrambled(model)
    counts = (LENGTH, 2, 1, 0)
    words, generator = texts(*counts), np.random.default_rng(3)
    bag, dense = generator.normal(size=(4, 2)).astype(np.float32), generator.normal(size=(4, 1)).astype(np.float32)
    means = [
        text[:count].astype(np.float64).mean(0) if count else np.zeros(DIM)
        for text, count in zip(words, counts, strict=True)
    ]
    row = np.concatenate([bag, dense, np.stack(means)], axis=1)  # by name: bag, dense.features, words
    expected = row @ weights["head.logit/kernel"] + weights["head.logit/bias"]
    logits = model({"words": words, "bag": bag, DENSE: dense})
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


def test_other_inputs_are_concatenated_with_the_maxima() -> None:
    model = new_model(TextCNN(widths=(2,), maps=5), {"words": (LENGTH, DIM), "author": (2,)}, dense_width=1)
    weights = scrambled(model)
    words, author, dense = texts(4, seed=1), np.float32([[0.5, -1]]), np.float32([[2]])
    row = np.concatenate([author[0], dense[0], kim(words[0, :4].astype(np.float64), weights, (2,), "words")])
    expected = row @ weights["head.logit/kernel"] + weights["head.logit/bias"]
    logits = model({"words": words, "author": author, DENSE: dense})
    np.testing.assert_allclose(logits[0], expected, rtol=1e-5, atol=1e-5)


def test_a_vector_of_zeros_inside_a_text_is_a_word() -> None:
    words = texts(6, 3, 0)
    words[0, 2] = words[1, 0] = 0
    assert lengths(tf.constant(words)).numpy().tolist() == [6, 3, 0]
    # One number that is not zero is enough, whichever sign it has.
    words[2, 1] = [0, 0, -1e-30]
    assert lengths(tf.constant(words)).numpy().tolist() == [6, 3, 2]


@pytest.mark.parametrize("model", [TextCNN(widths=(2, 3), maps=5), BagOfWords()], ids=["text_cnn", "bag_of_words"])
def test_padding_has_no_share_in_the_gradient_of_weights(model: Model) -> None:
    """The same text, padded more: the same gradients, to its words too."""
    short, long = new_model(model, {"words": (4, DIM)}), new_model(model, {"words": (9, DIM)})
    for variable, value in zip(long.weights, scrambled(short).values(), strict=True):
        variable.assign(value)
    words = texts(4, 2, 1, length=4)
    found = []
    for network, padding in ((short, 0), (long, 5)):
        given = tf.constant(np.pad(words, ((0, 0), (0, padding), (0, 0))))
        with tf.GradientTape() as tape:
            tape.watch(given)
            loss = tf.reduce_sum(tf.square(network({"words": given})))
        variables = [variable.value for variable in network.trainable_variables]
        to_words, *to_weights = tape.gradient(loss, [given, *variables])
        found.append([to_words[0, :4], to_words[1, :2], to_words[2, :1], *to_weights])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        assert np.any(np.asarray(one) != 0)


@pytest.mark.parametrize("optimizer", [keras.optimizers.SGD, keras.optimizers.Adam])
def test_the_weights_of_each_class_keep_their_norm(optimizer: Any) -> None:
    model = new_model(TextCNN(widths=(2,), maps=20, max_norm=1.5), {"words": (LENGTH, DIM)})
    scrambled(model)
    kernel = model.get_layer("head.logit").kernel
    before = kernel.numpy()
    kernel.assign(before := before * np.float32([0.1, 1, 10, 100]))
    chosen = optimizer(learning_rate=1e-12)
    chosen.build(model.trainable_variables)
    gradients = [tf.ones_like(variable.value) for variable in model.trainable_variables]
    tf.function(lambda: chosen.apply(gradients, model.trainable_variables))()
    norms = np.linalg.norm(before.astype(np.float64), axis=0)
    assert norms[0] < 1.5 < norms[1], "both cases are wanted"
    np.testing.assert_allclose(kernel, before * np.minimum(1, 1.5 / norms), rtol=1e-5)


def test_without_a_bound_the_weights_grow() -> None:
    assert new_model(TextCNN(max_norm=None), {"words": (LENGTH, DIM)}).get_layer("head.logit").kernel_constraint is None


def test_widths_and_maps_have_weights_of_their_own() -> None:
    model = new_model(TextCNN(), {"words": (LENGTH, DIM)})
    shapes = {variable.path: tuple(variable.shape) for variable in model.trainable_variables}
    assert shapes == {
        **{f"windows.words.{width}/kernel": (width, DIM, 100) for width in (3, 4, 5)},
        **{f"windows.words.{width}/bias": (100,) for width in (3, 4, 5)},
        "head.logit/kernel": (300, CLASSES),
        "head.logit/bias": (CLASSES,),
    }
    again = new_model(TextCNN(), {"words": (LENGTH, DIM)})
    other = new_model(TextCNN(), {"words": (LENGTH, DIM)}, seed=1)
    for one, same, different in zip(model.weights, again.weights, other.weights, strict=True):
        np.testing.assert_array_equal(one, same)
        assert one.path.endswith("bias") or not np.array_equal(one, different)


@pytest.mark.parametrize("model", [TextCNN(widths=(2,), maps=50), BagOfWords()], ids=["text_cnn", "bag_of_words"])
def test_dropout_only_while_training(model: Model) -> None:
    network = new_model(model, {"words": (LENGTH, DIM)})
    words = {"words": tf.constant(texts(4, 2))}
    np.testing.assert_array_equal(network(words, training=False), network(words, training=False))
    assert not np.array_equal(network(words, training=True), network(words, training=True))
    assert len(models.random_state(network)) == 1
    bare = new_model(model.model_copy(update={"dropout": 0.0}), {"words": (LENGTH, DIM)})
    np.testing.assert_array_equal(bare(words, training=True), bare(words, training=False))


def test_a_logit_for_each_class() -> None:
    model = new_model(MLP(hidden=(5,)), {"words": (LENGTH, DIM)})
    assert model({"words": tf.constant(texts(4, 2))}).shape == (2, CLASSES)


def test_widths_must_differ() -> None:
    with pytest.raises(
        ValueError, match=r"the widths must all be different; set maps for more feature maps of each width"
    ):
        TextCNN(widths=(3, 4, 3))


def test_text_cnn_without_a_text_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="it needs a sequence of words, but every feature here is one vector"):
        new_model(TextCNN(), {"user": (4,)})
