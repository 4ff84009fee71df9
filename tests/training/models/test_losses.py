from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.fields.columns.tasks import BINARY, CLASSIFICATION, REGRESSION
from embexp.fields.graphs import models as graph_losses
from embexp.specs import tasks
from embexp.specs.models import RankingLoss
from embexp.specs.tasks import Task
from embexp.training import models

TASKS = [task for task in tasks.every() if task.labels is not None]  # which have losses to choose


def exact(task: Task, label: float, logit: float) -> float:
    """The textbook formula, in float64 with the small probability computed directly."""
    if task is REGRESSION:
        return (logit - label) ** 2
    small = math.exp(-abs(logit)) / (1 + math.exp(-abs(logit)))
    log_small, log_large = -abs(logit) - math.log1p(math.exp(-abs(logit))), math.log1p(-small)
    log_p, log_q = (log_large, log_small) if logit >= 0 else (log_small, log_large)
    return -label * log_p - (1 - label) * log_q


@pytest.mark.parametrize("task", [REGRESSION, BINARY])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)], ids=["[B]", "[B, 1]"])
@given(examples=st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.floats(-80, 80, width=32)), min_size=1, max_size=9))
def test_losses_against_float64(task: Task, shape: tuple[int, ...], examples: list[tuple[float, float]]) -> None:
    labels = tf.constant([label for label, _ in examples], tf.float32)
    logits = tf.reshape(tf.constant([logit for _, logit in examples], tf.float32), shape)
    expected = [exact(task, label, logit) for label, logit in examples]
    each = models.per_example(task)(labels, logits)
    assert each.shape == labels.shape
    np.testing.assert_allclose(each, expected, rtol=1e-5, atol=1e-30)
    mean = models.mean_loss(task)(labels, logits)
    assert (mean.shape, mean.dtype) == ((), tf.float32)
    np.testing.assert_allclose(mean, np.mean(expected), rtol=1e-5, atol=1e-30)


@settings(max_examples=25)
@given(
    examples=st.lists(
        st.tuples(st.sampled_from([0, 1, 2]), st.lists(st.floats(-80, 80, width=32), min_size=3, max_size=3)),
        min_size=1,
        max_size=9,
    )
)
def test_log_loss_of_classes_against_float64(examples: list[tuple[int, list[float]]]) -> None:
    labels, logits = [label for label, _ in examples], [logits for _, logits in examples]
    expected = [math.log(math.fsum(math.exp(z - row[label]) for z in row)) for label, row in examples]
    given_logits = tf.constant(logits, tf.float32)
    each = models.per_example(CLASSIFICATION)(tf.constant(labels, tf.float32), given_logits)
    assert (each.shape, each.dtype) == ((len(labels),), tf.float32)
    np.testing.assert_allclose(each, expected, rtol=1e-5, atol=1e-5)
    mean = models.mean_loss(CLASSIFICATION)(tf.constant(labels, tf.float32), given_logits)
    np.testing.assert_allclose(mean, np.mean(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("task", [REGRESSION, BINARY])
def test_weights_multiply_the_losses_of_a_batch(task: Task) -> None:
    labels, logits, weights = np.float32([[0, 1, 1], [0.3, -0.2, 1.5], [0.5, 2, 0]])
    found = models.mean_loss(task)(tf.constant(np.stack([labels, weights], 1)), tf.constant(logits))
    each = (logits - labels) ** 2 if task is REGRESSION else np.log1p(np.exp(logits)) - labels * logits
    assert float(found) == pytest.approx(np.sum(each * weights) / 3, rel=1e-6)


def test_gradient_of_the_log_loss_of_classes() -> None:
    logits = tf.constant([[1.0, -2.0, 0.5], [0.0, 3.0, 3.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = models.mean_loss(CLASSIFICATION)(tf.constant([2.0, 0.0]), logits)
    shares = np.exp(logits.numpy().astype(np.float64))
    shares /= shares.sum(axis=1, keepdims=True)  # (softmax - one hot) / B
    np.testing.assert_allclose(tape.gradient(loss, logits), (shares - [[0, 0, 1], [1, 0, 0]]) / 2, rtol=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_half_precision_logits_give_a_float32_loss(task: Task) -> None:
    assert models.mean_loss(task)(tf.constant([0.0]), tf.constant([[0.5]], tf.float16)).dtype == tf.float32


@pytest.mark.parametrize("task", TASKS)
def test_losses_trace_without_a_warning(task: Task, capfd: pytest.CaptureFixture[str]) -> None:
    tf.function(models.mean_loss(task))(tf.constant([0.0]), tf.constant([[0.5]]))
    assert "AutoGraph" not in capfd.readouterr().err


def shared_loss(entities: list[int], logs: np.ndarray, scores: np.ndarray) -> float:
    labels = np.stack([np.array(entities, np.float64), logs], 1).astype(np.float32)
    return float(graph_losses.ranking(RankingLoss.SOFTMAX, 0.0)(tf.constant(labels), tf.constant(scores, tf.float32)))


@given(
    entities=st.lists(st.integers(0, 5), min_size=3, max_size=12),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([0.1, 3.0, 40.0]),
)
def test_shared_candidates_against_float64(entities: list[int], seed: int, scale: float) -> None:
    """Another candidate counts 1 / q times, one that is the answer not at all, and the answer once."""
    random, batch = np.random.default_rng(seed), 3
    logs = random.normal(0, 2, 6)[entities].astype(np.float32)
    scores = (scale * random.standard_normal((batch, 6)))[:, entities].astype(np.float32)
    each = []
    for row in range(batch):
        own = float(scores[row, row])
        terms = [float(scores[row, i]) - float(logs[i]) for i, e in enumerate(entities) if e != entities[row]]
        each.append(np.logaddexp.reduce([own, *terms]) - own)
    assert shared_loss(entities, logs, scores) == pytest.approx(np.mean(each), rel=1e-5, abs=1e-5)


def test_shared_candidates_estimate_the_sum_over_all_entities() -> None:
    """By many draws of the batch and of the negatives, whose mean is the softmax's denominator."""
    random, entities, batch, negatives = np.random.default_rng(0), 6, 4, 5
    shares, scores = random.dirichlet(np.ones(entities)), random.standard_normal(entities)
    logs = np.log(batch * shares + negatives / entities)
    found = []
    for _ in range(3_000):
        drawn = [*random.choice(entities, batch, p=shares).tolist(), *random.integers(0, entities, negatives).tolist()]
        # The first query's answer is entity 0, whatever was drawn in its place.
        drawn[0] = 0
        others = [each for each in drawn[1:] if each]
        found.append(np.sum(np.exp(scores[others] - logs[others])))
    # One place of the batch is the answer's own, and draws no others.
    expected = np.sum(np.exp(scores[1:]) * (logs_of_others := np.exp(logs) - shares)[1:] / np.exp(logs)[1:])
    assert logs_of_others.min() > 0
    assert np.mean(found) == pytest.approx(expected, abs=5 * np.std(found) / np.sqrt(len(found)))
