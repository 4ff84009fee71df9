"""The loss of queries: of their answers among candidates."""

from __future__ import annotations

import tensorflow as tf

from embexp.fields.graphs.specs import KnowledgeGraph
from embexp.specs.models import RankingLoss
from embexp.specs.tasks import Task
from embexp.training.models.losses import Loss, softmax_log_loss


def of_queries(model: KnowledgeGraph, task: Task) -> Loss:
    """The loss of a model of knowledge graphs."""
    return ranking(model.loss, model.label_smoothing)


def ranking(kind: RankingLoss, label_smoothing: float) -> Loss:
    """The loss of queries with candidates: the mean over the queries, a scalar.

    Args:
        kind: softmax: -sum over c of y[c] log p[c] with p = softmax(scores). binary: the mean over c of
            -y[c] log p[c] - (1 - y[c]) log(1 - p[c]) with p = sigmoid(scores).
        label_smoothing: e in y[c] = (1 - e) [c is the answer] + e / C (Szegedy et al. 2016).

    Returns:
        A function of labels, float32 [B], the answers' positions among the candidates, and scores, [B, C]; or of the
        labels and scores of `over_shared`.
    """

    def mean(labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        scores = tf.cast(scores, tf.float32)
        if labels.shape.rank == 2:
            return over_shared(labels, scores)
        if kind is RankingLoss.SOFTMAX and not label_smoothing:
            return tf.reduce_mean(softmax_log_loss(labels, scores))  # needs no targets [B, C]
        candidates = tf.shape(scores)[1]
        share = label_smoothing / tf.cast(candidates, tf.float32)
        targets = tf.one_hot(tf.cast(labels, tf.int32), candidates, 1.0 - label_smoothing + share, share)
        if kind is RankingLoss.SOFTMAX:
            return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=scores))
        each = tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=scores)
        return tf.reduce_mean(tf.reduce_mean(each, axis=1))

    return mean


def over_shared(labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """The mean of -log softmax of each query's answer over all entities, estimated from B + k candidates of a batch.

    An entity that is a candidate m times, where a step is expected to have it q times, counts m / q times in the sum of
    exp(score), so that its expectation is the sum over all entities; the answer itself counts once, as it is. See
    Bengio and Senécal: "Adaptive importance sampling to accelerate training of a neural probabilistic language model"
    (2008), for one distribution; q here is the sum of those of the answers of a batch, and of k uniform draws.

    Args:
        labels: float32 [B + k, 2], of each candidate the entity, and log q. Candidate i is the answer of query i.
        scores: float32 [B, B + k].
    """
    batch = tf.shape(scores)[0]
    answers = tf.linalg.diag_part(scores)
    same = tf.equal(labels[:batch, :1], labels[None, :, 0])
    others = tf.where(same, scores.dtype.min, scores - labels[None, :, 1])
    return tf.reduce_mean(tf.reduce_logsumexp(tf.concat([answers[:, None], others], 1), 1) - answers)
