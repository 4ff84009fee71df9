"""The loss of 1-vs-all by blocks, against the same loss and its gradients in float64, by TensorFlow, all at once."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp.fields.graphs import models as knowledge_graph
from embexp.fields.graphs.specs import ComplEx, DistMult, KnowledgeGraph, RotatE, TransE
from embexp.specs.models import DENSE, RankingLoss
from embexp.training import models, one_vs_all
from embexp.training.one_vs_all import OneVsAll
from tests.thoroughness import left_out

DIM, BATCH, ENTITIES = 6, 7, 23
MODELS: list[KnowledgeGraph] = [
    TransE(norm=1, margin=2.0),
    TransE(norm=2, margin=0.5),
    DistMult(n3=0.1),
    ComplEx(),
    RotatE(margin=1.0),
]
NAMES = ["transe, sum of differences", "transe, Euclidean", "distmult", "complex", "rotate"]
KNOWN = [[0, 7], [22], [1, 5, 6, 9, 20], [5], [1, 2], [0, 17, 22], [11]]
LABELS = [0.0, 22.0, 5.0, 5.0, 1.0, 17.0, 11.0]


Case = tuple[str, RankingLoss, float, bool, bool]
CASES: list[Case] = [*itertools.product(NAMES, RankingLoss, (0.0, 0.1), (False, True), (False, True))]
ALWAYS: list[Case] = [
    *((name, RankingLoss.SOFTMAX, 0.1, True, True) for name in NAMES),
    *(("complex", kind, 0.0, several, True) for kind in RankingLoss for several in (False, True)),
    ("complex", RankingLoss.BINARY, 0.1, True, False),
]
"""Model, loss, label smoothing, whether queries have several positives, and whether there are several blocks."""


def set_blocks(monkeypatch: pytest.MonkeyPatch, *, several: bool) -> None:
    monkeypatch.setattr(one_vs_all, "SMALL", 0)
    monkeypatch.setattr(knowledge_graph, "DIFFERENCES", 0)
    if several:
        monkeypatch.setattr(one_vs_all, "TRAINED_SCORES", 4 * ENTITIES * 3)  # blocks of 3, 3 and 1 queries
        monkeypatch.setattr(knowledge_graph, "DIFFERENCES", 4 * 3 * DIM * 5)  # of 5 entities each, the last of 3


def given() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    shapes = {"source": (BATCH, DIM), "relation": (BATCH, DIM), "candidates": (1, ENTITIES, DIM)}
    inputs = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return {**inputs, DENSE: np.float32([[0], [1], [0], [0], [1], [1], [0]])}


def expected(
    model: KnowledgeGraph, kind: RankingLoss, smoothing: float, known: list[list[int]]
) -> tuple[Any, dict[str, Any]]:
    """By the published formulas, in complex numbers where they have them."""
    inputs = {name: tf.constant(value, tf.float64) for name, value in given().items()}
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        s, r, c = inputs["source"], inputs["relation"], inputs["candidates"][0]
        inverse = inputs[DENSE] == 1
        if isinstance(model, ComplEx | RotatE):
            s, r, c = (tf.complex(each[:, : DIM // 2], each[:, DIM // 2 :]) for each in (s, r, c))
            r = tf.where(inverse, tf.math.conj(r), r)
        match model:
            case TransE():
                query = s + tf.where(inverse, -r, r)
                scores = model.margin - tf.norm(query[:, None] - c, ord=model.norm, axis=-1)
            case DistMult():
                scores = (s * r) @ tf.transpose(c)
            case ComplEx():
                scores = tf.math.real((s * r) @ tf.transpose(tf.math.conj(c)))
            case RotatE():
                turned = s * r / tf.cast(tf.abs(r), r.dtype)
                scores = model.margin - tf.reduce_sum(tf.abs(turned[:, None] - c), -1)
        positives = np.zeros((BATCH, ENTITIES))
        for query, rows in enumerate(known):
            positives[query, rows] = 1 / len(rows) if kind is RankingLoss.SOFTMAX else 1
        targets = (1 - smoothing) * positives + smoothing / ENTITIES
        if kind is RankingLoss.SOFTMAX:
            each = -tf.reduce_sum(targets * tf.nn.log_softmax(scores), 1)
        else:
            each = -tf.reduce_mean(
                targets * tf.math.log_sigmoid(scores) + (1 - targets) * tf.math.log_sigmoid(-scores), 1
            )
        loss = tf.reduce_mean(each)
        if model.n3:
            cubes = (tf.abs(inputs[name]) ** 3 for name in ("source", "relation"))
            loss += model.n3 * sum(tf.reduce_mean(tf.reduce_sum(cube, 1)) for cube in cubes)
    return loss, tape.gradient(loss, {name: inputs[name] for name in ("source", "relation", "candidates")})


@pytest.mark.parametrize("case", [pytest.param(case, marks=() if case in ALWAYS else left_out()) for case in CASES])
def test_loss_and_gradients_against_float64(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    name, kind, smoothing, several, blocks = case
    model, known = MODELS[NAMES.index(name)], KNOWN if several else None
    set_blocks(monkeypatch, several=blocks)
    built = models.build_model(
        model,
        shapes=dict.fromkeys(("source", "relation", "candidates"), (DIM,)),
        dense_width=1,
        output_bias=0.0,
        seed=0,
    )
    loss_of = OneVsAll(built, kind, smoothing)

    @tf.function(autograph=False, input_signature=[{name: tf.TensorSpec(x.shape) for name, x in given().items()}])
    def loss_and_gradients(inputs: Any) -> Any:
        assert loss_of.takes(inputs, tf.constant(LABELS))
        watched = {name: value for name, value in inputs.items() if name != DENSE}
        with tf.GradientTape() as tape:
            tape.watch(watched)
            ragged = None if known is None else tf.ragged.constant(known, dtype=tf.int32)
            loss = loss_of({**inputs, **watched}, tf.constant(LABELS), ragged)
        return loss, tape.gradient(loss, watched)

    loss, gradients = loss_and_gradients({name: tf.constant(value) for name, value in given().items()})
    wanted, wanted_gradients = expected(model, kind, smoothing, known or [[int(label)] for label in LABELS])
    assert float(loss) == pytest.approx(float(wanted), rel=2e-6)
    for key, gradient in wanted_gradients.items():
        np.testing.assert_allclose(gradients[key], gradient, rtol=2e-5, atol=2e-6, err_msg=key)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_likelihoods_below_float32(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    set_blocks(monkeypatch, several=False)
    shapes = dict.fromkeys(("source", "relation", "candidates"), (DIM,))
    built = models.build_model(DistMult(), shapes=shapes, dense_width=0, output_bias=0.0, seed=0)
    values = {name: tf.constant(value) for name, value in given().items() if name != DENSE}
    values["source"] *= 100.0
    scores = tf.cast(values["source"] * values["relation"], tf.float64) @ tf.transpose(
        tf.cast(values["candidates"][0], tf.float64)
    )
    logs = tf.nn.log_softmax(scores).numpy()
    own = logs[np.arange(BATCH), np.int64(LABELS)]
    assert own.min() < np.log(np.finfo(np.float32).tiny) < own.max()
    loss = OneVsAll(built, RankingLoss.SOFTMAX, smoothing)(values, tf.constant(LABELS))
    assert float(loss) == pytest.approx(-((1 - smoothing) * own + smoothing * logs.mean(1)).mean(), rel=1e-5)


def test_few_candidates_or_own_ones_are_left_to_the_whole_model() -> None:
    built = models.build_model(
        DistMult(),
        shapes=dict.fromkeys(("source", "relation", "candidates"), (DIM,)),
        dense_width=0,
        output_bias=0.0,
        seed=0,
    )
    loss_of = OneVsAll(built, RankingLoss.SOFTMAX, 0.0)

    def takes(*candidates: int) -> bool:
        inputs = {"source": tf.TensorSpec([512, DIM]), "candidates": tf.TensorSpec([*candidates, DIM])}
        return loss_of.takes(inputs, tf.TensorSpec([512]))

    assert [takes(1, 135), takes(1, 40_943), takes(512, 40_943)] == [False, True, False]
    shared = {"source": tf.TensorSpec([512, DIM]), "candidates": tf.TensorSpec([1, 40_943, DIM])}
    assert not loss_of.takes(shared, tf.TensorSpec([40_943, 2]))
