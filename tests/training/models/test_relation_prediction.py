"""The loss that predicts relations, against the scores of triples in float64, one by one, and their differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp.fields.graphs import models as knowledge_graph
from embexp.fields.graphs.models import RelationPrediction
from embexp.fields.graphs.specs import ComplEx, DistMult, KnowledgeGraph, RotatE, TransE
from embexp.specs.models import DENSE
from tests.training.models.triple_scores import score

DIM, BATCH, ENTITIES, RELATIONS, WEIGHT = 6, 5, 9, 8, 0.3
MODELS: dict[str, KnowledgeGraph] = {
    "transe, sum of differences": TransE(norm=1, margin=2.0, relation_prediction=WEIGHT),
    "transe, Euclidean": TransE(norm=2, relation_prediction=WEIGHT),
    "distmult": DistMult(relation_prediction=WEIGHT),
    "complex": ComplEx(relation_prediction=WEIGHT),
    "rotate": RotatE(margin=1.0, relation_prediction=WEIGHT),
}
SOURCES, RELATION_OF, ANSWERS = [0, 3, 3, 8, 5], [1, 0, 6, 6, 2], [4, 3, 0, 7, 5]
"""Of each query; the second is a triple of an entity with itself."""
INVERSE = [0.0, 1.0, 0.0, 1.0, 1.0]


def expected(model: KnowledgeGraph, entities: np.ndarray, relations: np.ndarray, *, inverse: bool) -> float:
    """The loss by triples: an inverse relation means that the answer is the head.

    Reciprocal relations, the rows with odd numbers, are predicted among themselves.
    """
    losses = []
    for place in range(BATCH):
        ends = entities[SOURCES[place]], entities[ANSWERS[place]]
        head, tail = ends[::-1] if inverse and INVERSE[place] else ends
        mine = relations if inverse else relations[RELATION_OF[place] % 2 :: 2]
        scores = np.array([score(model, head, relation, tail) for relation in mine])
        own = score(model, head, relations[RELATION_OF[place]], tail)
        losses.append(np.log(np.sum(np.exp(scores))) - own)
    return WEIGHT * float(np.mean(losses))


def differences(model: KnowledgeGraph, tables: Mapping[str, np.ndarray], *, inverse: bool) -> dict[str, np.ndarray]:
    """Gradients of the loss by every number of the tables, as central differences of float64."""
    found = {name: np.zeros_like(table) for name, table in tables.items()}
    for name, table in tables.items():
        for place in np.ndindex(table.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = {**tables, name: table.copy()}
                moved[name][place] += step
                ends.append(expected(model, **moved, inverse=inverse))
            found[name][place] = (ends[0] - ends[1]) / 2e-5
    return found


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The candidates of the queries.

    Attributes:
        rows: their entities, [1, C] or [B, C].
        labels: what says which of them are the answers.
    """

    rows: Any
    labels: Any


_SHARED = np.array([*ANSWERS, 2, 6, 4])
CANDIDATES: dict[str, Candidates] = {
    "all": Candidates(np.arange(ENTITIES)[None], np.float32(ANSWERS)),
    "drawn": Candidates(np.array([[answer, 1, 2] for answer in ANSWERS]), np.zeros(BATCH, np.float32)),
    "shared": Candidates(_SHARED[None], np.stack([_SHARED, np.ones(8)], 1).astype(np.float32)),
}


def given() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    return {"entities": generator.normal(size=(ENTITIES, DIM)), "relations": generator.normal(size=(RELATIONS, DIM))}


@pytest.mark.parametrize("inverse", [False, True], ids=["reciprocal", "inverse"])
@pytest.mark.parametrize("candidates", CANDIDATES)
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_against_float64(
    name: str, candidates: str, inverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge_graph, "DIFFERENCES", 4 * BATCH * DIM * 3)  # blocks of 3, 3 and 2 relations
    model, which, values = MODELS[name], CANDIDATES[candidates], given()
    loss_of = RelationPrediction(model)

    @tf.function(autograph=False)
    def loss_and_gradients(tables: dict[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tables)
            inputs = {
                "source": tf.gather(tables["entities"], SOURCES),
                "relation": tf.gather(tables["relations"], RELATION_OF),
                "candidates": tf.gather(tables["entities"], which.rows),
            }
            if inverse:
                inputs[DENSE] = tf.constant(INVERSE)[:, None]
            loss = loss_of(inputs, tables["relations"][None], tf.constant(RELATION_OF), tf.constant(which.labels))
            scaled = 2.0 * loss  # as a step's share of a batch scales it
        gradients = tape.gradient(scaled, tables)
        return loss, {key: tf.convert_to_tensor(each) / 2 for key, each in gradients.items()}

    loss, gradients = loss_and_gradients({key: tf.constant(value, tf.float32) for key, value in values.items()})
    assert (loss.shape, loss.dtype) == ((), tf.float32)
    assert float(loss) == pytest.approx(expected(model, **values, inverse=inverse), rel=2e-6)
    for key, wanted in differences(model, values, inverse=inverse).items():
        np.testing.assert_allclose(gradients[key], wanted, rtol=2e-4, atol=2e-6, err_msg=key)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_at_zero_are_numbers(name: str) -> None:
    """At the beginning, rows may be zero, and an entity may be related to itself."""
    inputs = {key: tf.zeros((BATCH, DIM)) for key in ("source", "relation")}
    inputs["candidates"], relations = tf.zeros((1, ENTITIES, DIM)), tf.zeros((1, RELATIONS, DIM))
    with tf.GradientTape() as tape:
        tape.watch((inputs, relations))
        labels = tf.constant(ANSWERS, tf.float32)
        loss = RelationPrediction(MODELS[name])(inputs, relations, tf.constant(RELATION_OF), labels)
    assert float(loss) == pytest.approx(WEIGHT * np.log(RELATIONS / 2), rel=1e-6)
    for gradient in tf.nest.flatten(tape.gradient(loss, (inputs, relations))):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()
