"""Scores of each query's own candidates: by a library of fused operations they have the bits of TensorFlow's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp.fields.graphs import models as knowledge_graph
from embexp.system import native

KINDS = {"products": knowledge_graph.products_of_own, "absolute": knowledge_graph.absolute_of_own}
built = pytest.mark.skipif(native.library("candidates") is None, reason="nothing was built: no C++ compiler")


@pytest.fixture(autouse=True)
def tried_again() -> Any:
    yield
    knowledge_graph._same_bits.cache_clear()


def operations(kind: str, *, training: bool, count: int | None = 5, dim: int = 16) -> set[str]:
    step = tf.function(lambda query, candidates: KINDS[kind](query, candidates, training=training))
    graph = step.get_concrete_function(tf.TensorSpec([None, dim]), tf.TensorSpec([None, count, dim])).graph
    return {operation.type for operation in graph.get_operations()}


def given(batch: int, count: int, dim: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=(batch, *shape)).astype(np.float32) for shape in ((dim,), (count, dim), (count,))]


def scored(kind: str, query: Any, candidates: Any, upstream: Any, *, training: bool) -> list[np.ndarray]:
    """Scores, and the gradients by queries and by candidates."""

    @tf.function
    def step(query: Any, candidates: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch((query, candidates))
            scores = KINDS[kind](query, candidates, training=training)
        return [scores, *tape.gradient(scores, (query, candidates), output_gradients=tf.constant(upstream))]

    return [each.numpy() for each in step(tf.constant(query), tf.constant(candidates))]


@built
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch", "count", "dim"), [(512, 129, 200), (3, 1, 8), (70, 16, 64), (33, 31, 400)])
def test_steps_have_the_bits_of_tensorflows_operations(kind: str, batch: int, count: int, dim: int) -> None:
    if not knowledge_graph._same_bits(kind, count, dim):
        pytest.skip("TensorFlow's operations have other bits on this processor, so the library is not used")
    query, candidates, upstream = given(batch, count, dim)
    candidates[0, 0] = query[0]  # a difference of 0
    fused, stock = (scored(kind, query, candidates, upstream, training=training) for training in (True, False))
    for one, other in zip(fused, stock, strict=True):
        np.testing.assert_array_equal(one.view(np.int32), other.view(np.int32))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [True, False])
def test_scores_and_gradients_are_those_of_numpy(kind: str, training: bool) -> None:
    query, candidates, upstream = given(7, 5, 24)
    scores, of_query, of_candidates = scored(kind, query, candidates, upstream, training=training)
    q, c, g = query.astype(np.float64)[:, None], candidates.astype(np.float64), upstream.astype(np.float64)[..., None]
    if kind == "products":
        expected = (q * c).sum(-1), (g * c).sum(1), g * q
    else:
        expected = np.abs(q - c).sum(-1), (g * np.sign(q - c)).sum(1), -g * np.sign(q - c)
    for one, other in zip((scores, of_query, of_candidates), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=24 * np.finfo(np.float32).eps * np.abs(other).max())


@built
def test_values_that_are_no_numbers_stay_so() -> None:
    query, candidates, upstream = given(2, 3, 8)
    candidates[1, 2, 4] = np.nan
    _, of_query, of_candidates = scored("absolute", query, candidates, upstream, training=True)
    assert np.argwhere(np.isnan(of_query)).tolist() == [[1, 4]]
    assert np.argwhere(np.isnan(of_candidates)).tolist() == [[1, 2, 4]]


@built
@pytest.mark.parametrize("kind", KINDS)
def test_only_steps_use_the_library(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "EmbexpOwnScores" not in operations(kind, training=False)
    assert "EmbexpOwnScores" not in operations(kind, training=True, dim=12)
    assert "EmbexpOwnScores" not in operations(kind, training=True, count=None)
    assert ("EmbexpOwnScores" in operations(kind, training=True)) == knowledge_graph._same_bits(kind, 5, 16)
    monkeypatch.setattr(native, "library", lambda name: None)
    assert "EmbexpOwnScores" not in operations(kind, training=True)


@built
@pytest.mark.parametrize("kind", KINDS)
def test_other_bits_are_noticed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = knowledge_graph._PLAIN[kind]
    monkeypatch.setitem(knowledge_graph._PLAIN, kind, lambda *vectors: real(*vectors) * (1 + 2**-23))
    knowledge_graph._same_bits.cache_clear()
    assert "EmbexpOwnScores" not in operations(kind, training=True)


@built
def test_other_shapes_are_refused() -> None:
    library = native.library("candidates")
    for query, candidates in (((2, 8), (3, 4, 8)), ((2, 8), (2, 4, 16)), ((2, 9), (2, 4, 9)), ((8,), (2, 4, 8))):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"queries must be|multiple of 8"):
            library.embexp_own_scores(tf.zeros(query), tf.zeros(candidates), kind="absolute")
    with pytest.raises(tf.errors.InvalidArgumentError, match="the shape of the scores"):
        library.embexp_own_scores_grad(tf.zeros([2, 8]), tf.zeros([2, 4, 8]), tf.zeros([2, 5]), kind="absolute")
