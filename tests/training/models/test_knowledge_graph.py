"""Scores of knowledge graph models, against float64 NumPy and the published formulas written for each triple."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from embexp.errors import ConfigError
from embexp.fields.graphs import models as losses
from embexp.fields.graphs.specs import ComplEx, DistMult, KnowledgeGraph, TransE
from embexp.specs.models import DENSE, RankingLoss, Shapes
from embexp.training import models
from tests.training.models.triple_scores import score

DIM = 6
SHAPES: Shapes = {"source": (DIM,), "relation": (DIM,), "candidates": (DIM,)}
MODELS = [TransE(norm=1, margin=2.0), TransE(norm=2, margin=0.5), DistMult(), ComplEx()]
NAMES = ["transe, sum of differences", "transe, Euclidean", "distmult", "complex"]


def build(model: KnowledgeGraph, *, inverse: bool = False, shapes: Shapes = SHAPES) -> keras.Model:
    return models.build_model(model, shapes=shapes, dense_width=int(inverse), output_bias=0.0, seed=0)


def drawn(batch: int, *candidates: int, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    wanted = {"source": (batch, DIM), "relation": (batch, DIM), "candidates": (*candidates, DIM)}
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in wanted.items()}


def tensors(inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: tf.constant(value) for name, value in inputs.items()}


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
@pytest.mark.parametrize("candidates", [(1, 7), (5, 3), (5, 1)], ids=["shared", "own", "one each"])
def test_tail_prediction(model: KnowledgeGraph, candidates: tuple[int, int]) -> None:
    inputs = drawn(5, *candidates)
    scores = build(model)(tensors(inputs))
    own = np.broadcast_to(inputs["candidates"], (5, candidates[1], DIM))
    expected = [
        [score(model, head, relation, tail) for tail in tails]
        for head, relation, tails in zip(inputs["source"], inputs["relation"], own, strict=True)
    ]
    assert (scores.shape, scores.dtype) == ((5, candidates[1]), tf.float32)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
@pytest.mark.parametrize("candidates", [(1, 7), (5, 3)], ids=["shared", "own"])
def test_a_triple_has_one_score_in_both_directions(model: KnowledgeGraph, candidates: tuple[int, int]) -> None:
    """Where the dense column is 1, the source is a tail and the candidates are heads."""
    inputs = drawn(5, *candidates)
    inverse = np.float32([[0], [1], [1], [0], [1]])
    scores = build(model, inverse=True)({**tensors(inputs), DENSE: tf.constant(inverse)})
    own = np.broadcast_to(inputs["candidates"], (5, candidates[1], DIM))
    expected = [
        [score(model, *((each, relation, source) if is_inverse else (source, relation, each))) for each in others]
        for source, relation, others, is_inverse in zip(
            inputs["source"], inputs["relation"], own, inverse[:, 0], strict=True
        )
    ]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


def test_shared_candidates_take_one_matrix_multiplication() -> None:
    specs = {"source": (None, DIM), "relation": (None, DIM), "candidates": (1, None, DIM)}
    built = build(ComplEx())
    traced = tf.function(lambda inputs: built(inputs), autograph=False).get_concrete_function(
        {name: tf.TensorSpec(shape, tf.float32) for name, shape in specs.items()}
    )
    kinds = {operation.type for operation in traced.graph.get_operations()}
    assert "MatMul" in kinds
    assert not any(kind.startswith("BatchMatMul") for kind in kinds)


@pytest.mark.parametrize("model", [DistMult, ComplEx, TransE])
def test_regularisation_by_its_formula(model: type[KnowledgeGraph]) -> None:
    built = build(model(n3=0.3, l2=0.07))
    inputs = drawn(5, 1, 4)
    for _ in range(2):  # what the first call added is gone at the second
        built(tensors(inputs), training=True)
        (found,) = built.losses
    total = 0.0
    for name in ("source", "relation"):
        x = inputs[name].astype(np.float64)
        sizes = np.hypot(x[:, : DIM // 2], x[:, DIM // 2 :]) if model is ComplEx else np.abs(x)
        total += 0.3 * np.sum(sizes**3) / 5 + 0.07 * np.sum(x**2) / 5
    assert float(found) == pytest.approx(total, rel=1e-5)
    built = build(model())
    built(tensors(inputs), training=True)
    assert built.losses == []


@pytest.mark.parametrize("model", [TransE(norm=1), TransE(norm=2), DistMult(n3=1.0), ComplEx(n3=1.0, l2=1.0)])
def test_gradients_at_zero_are_numbers(model: KnowledgeGraph) -> None:
    built, inputs = build(model), {name: tf.zeros_like(value) for name, value in drawn(2, 1, 3).items()}
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = tf.reduce_sum(built(inputs, training=True)) + sum(built.losses)
    for name, gradient in tape.gradient(loss, inputs).items():
        assert np.isfinite(gradient).all(), name


def test_dropout_applies_to_the_query_in_training_only() -> None:
    inputs = tensors(drawn(64, 1, 3))
    built = build(DistMult(dropout=0.5))
    np.testing.assert_array_equal(built(inputs), build(DistMult())(inputs))
    assert np.any(built(inputs, training=True) != built(inputs))


@pytest.mark.parametrize("kind", list(RankingLoss))
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses_of_rankings_against_float64(kind: RankingLoss, smoothing: float) -> None:
    generator = np.random.default_rng(0)
    scores, labels = generator.normal(size=(6, 5)) * 4, np.array([0, 4, 2, 2, 1, 3])
    targets = (1 - smoothing) * np.eye(5)[labels] + smoothing / 5
    if kind is RankingLoss.SOFTMAX:
        each = -np.sum(targets * (scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))), axis=1)
    else:
        p = 1 / (1 + np.exp(-scores))
        each = -np.mean(targets * np.log(p) + (1 - targets) * np.log1p(-p), axis=1)
    found = losses.ranking(kind, smoothing)(tf.constant(labels, tf.float32), tf.constant(scores, tf.float32))
    assert (found.shape, found.dtype) == ((), tf.float32)
    assert float(found) == pytest.approx(each.mean(), rel=1e-5)


@pytest.mark.parametrize("kind", list(RankingLoss))
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses_trace_without_a_warning(kind: RankingLoss, smoothing: float, capfd: pytest.CaptureFixture[str]) -> None:
    loss = tf.function(losses.ranking(kind, smoothing))(tf.constant([0.0]), tf.constant([[0.5, 1.0]], tf.float16))
    assert loss.dtype == tf.float32
    assert "AutoGraph" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (ComplEx(), {"source": (6,), "relation": (6,)}, "candidates is missing"),
        (DistMult(), {**SHAPES, "user": (6,)}, "every feature must be used, but distmult uses only source"),
        (
            TransE(),
            {**SHAPES, "relation": (4,)},
            "must have the same dim, but they have source 6, relation 4, candidates 6",
        ),
        (ComplEx(), dict.fromkeys(SHAPES, (5,)), "dims must be even, but there is source 5, relation 5, candidates 5"),
        (ComplEx(), {**SHAPES, "source": (3, 6)}, "complex takes one vector per feature"),
    ],
    ids=["a feature is missing", "one too many", "different dims", "an odd dim", "a sequence"],
)
def test_inputs_that_do_not_fit(model: KnowledgeGraph, inputs: Shapes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(model, shapes=inputs)


@pytest.mark.parametrize(("triples", "n3"), [(0, 0.1), (499, 0.1), (500, 0.05), (10_000, 0.05)])
def test_the_weight_of_n3_goes_by_triples_per_entity(triples: int, n3: float) -> None:
    assert ComplEx(n3="auto").with_n3(triples, 100).n3 == n3
    assert ComplEx(n3=0.5).with_n3(triples, 100).n3 == 0.5
