"""The loss of each task, and the losses of recommendation. The step adds those that a user's model adds by `add_loss`.

Losses of recommendation: from vectors of users [B, d] and items [N, d] to the mean over the interactions. `labels` are
float32 [B, 2]: the number of the item of each interaction in the catalogue (float32 is exact up to 2^24), and the
logarithm of its share of the training split.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf

from embexp.specs.base import Choice, implementation
from embexp.specs.fields import imported
from embexp.specs.losses import BPR, CosineContrastive, CustomLoss, LossOfTask, SampledSoftmax, Softmax
from embexp.specs.models import KnowledgeGraph, Model, RankingLoss
from embexp.specs.tasks import Labels, Task
from embexp.system.user_code import NamedFunction, kind_of

_AT_ONCE = 1 << 16
"""Examples of a split whose loss is computed at once."""
Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""From labels, float32 [B], and logits, any float type [B] or [B, 1] ([B, C] for classes), to a float32 tensor."""
PairLoss = Callable[[tf.Tensor, tuple[tf.Tensor, tf.Tensor]], tf.Tensor]
"""From labels and (users, items) to a float32 scalar."""


def build(loss: Choice, model: Model, task: Task, outputs: int) -> Loss | PairLoss:
    """The loss of a run.

    Args:
        outputs: number of classes, or 1.

    Raises:
        ConfigError: the user's own function can't be imported or called, or returns something else than losses.
    """
    built: Loss | PairLoss = implementation(loss)(model, task, outputs)
    return built


def of_task(loss: LossOfTask, model: Model, task: Task, outputs: int) -> Loss:
    """The loss that follows from the task and the model."""
    found: Loss = imported(task.loss)(model, task)
    return found


def of_queries(model: KnowledgeGraph, task: Task) -> Loss:
    """The loss of a model of knowledge graphs."""
    return ranking(model.loss, model.label_smoothing)


def of_labels(model: Model, task: Task) -> Loss:
    """The loss of labels, whatever the model."""
    return mean_loss(task)


def mean_loss(task: Task) -> Loss:
    """The loss that training minimises: the mean of `per_example(task)` over the batch, a scalar."""
    return _mean(per_example(task))


def _mean(loss: Loss) -> Loss:
    """The mean over the batch of the loss of each example.

    Labels [B, 2] have weights in their second column, by which losses are multiplied. They are 1 on average over the
    training split, see `data.example_weights`.
    """

    def mean(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        if labels.shape.rank == 2:
            return tf.reduce_mean(loss(labels[:, 0], logits) * labels[:, 1])
        return tf.reduce_mean(loss(labels, logits))

    return mean


def per_example(task: Task) -> Loss:
    """The loss of each example, [B], of a task that has labels.

    regression: (logit - label)^2. binary: -label log p - (1 - label) log(1 - p) with p = sigmoid(logit), computed from
    the logit, so that it neither overflows nor loses digits. classification: -log p[label] with p = softmax(logits),
    computed from logits [B, C]; labels are the numbers of classes.
    """
    assert task.labels is not None
    return {Labels.NUMBER: _squared_error, Labels.BINARY: _log_loss, Labels.CLASS: _softmax_log_loss}[task.labels]


def custom(loss: CustomLoss, model: Model, task: Task, outputs: int) -> Loss:
    """The mean over the batch of what the user's own function returns for each example, a scalar.

    The function is `function(labels, logits, **args)`. Labels are float32 [B], of classes their numbers; logits float32
    [B], or [B, C] of classes. It returns the loss of each example, floating-point [B].
    """
    function = NamedFunction("loss", loss.function, loss.args, "labels, logits")
    loaded = function.load()

    def each(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.cast(loaded(labels, _logits(labels, logits, outputs), **function.args), tf.float32)

    def check(labels: tf.Tensor, logits: tf.Tensor) -> None:
        losses = function(labels, logits)
        if not tf.is_tensor(losses) or not losses.dtype.is_floating or losses.shape.rank not in (1, None):
            found = f"{losses.dtype.name} {losses.shape}" if tf.is_tensor(losses) else kind_of(losses)
            rule = f"it must return the loss of each example, a floating-point tensor [B], but returned {found}"
            raise function.fault(rule, "leave out the mean over the batch")

    shape = [None] if outputs == 1 else [None, outputs]
    specs = tf.TensorSpec([None], tf.float32), tf.TensorSpec(shape, tf.float32)
    tf.function(check, autograph=False).get_concrete_function(*specs)  # before the first step, and without its stack
    return _mean(each)


def over_split(
    function: NamedFunction, labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """The mean, weighted where there are weights [N], of the user's own loss over the examples of a split.

    Args:
        function: see `custom`.
        labels: float32 [N].
        logits: float32 [N], or [N, C].
    """
    total, outputs = 0.0, 1 if logits.ndim == 1 else logits.shape[1]
    with tf.init_scope():  # an evaluation may run while the graph of a session is the current one
        for start in range(0, len(labels), _AT_ONCE):
            some = tf.constant(labels[start : start + _AT_ONCE]), tf.constant(logits[start : start + _AT_ONCE])
            each = function(some[0], _logits(*some, outputs)).numpy()
            if weights is None:
                total += float(np.sum(each, dtype=np.float64))
            else:
                total += float(np.sum(each.astype(np.float64) * weights[start : start + _AT_ONCE]))
    return total / (len(labels) if weights is None else float(weights.sum()))


def _logits(labels: tf.Tensor, logits: tf.Tensor, outputs: int) -> tf.Tensor:
    return _like(labels, logits) if outputs == 1 else tf.cast(logits, tf.float32)


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
            return tf.reduce_mean(_softmax_log_loss(labels, scores))  # needs no targets [B, C]
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


def _squared_error(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.math.squared_difference(_like(labels, logits), labels)


def _log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=_like(labels, logits))


def _softmax_log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(labels, tf.int32), logits=tf.cast(logits, tf.float32)
    )


def _like(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    # [B, 1] against [B] would silently broadcast to [B, B].
    return tf.reshape(tf.cast(logits, tf.float32), tf.shape(labels))


def bpr(loss: BPR, model: Model, task: Task, outputs: int) -> PairLoss:
    """`loss=bpr`."""
    return pairwise


def pairwise(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """The mean of -log sigmoid(positive - negative) over all B k pairs (Rendle et al. 2009, without its regularizer).

    Args:
        labels: not used.
        vectors: of users [B, d], and of items [B + B k, d]: the B positives, then k negatives of each user in turn.
    """
    users, items = vectors
    batch = tf.shape(users)[0]
    positives, negatives = items[:batch], items[batch:]
    negatives = tf.reshape(negatives, [batch, -1, users.shape[-1]])
    ahead = tf.reduce_sum(users * positives, -1, keepdims=True) - tf.linalg.matvec(negatives, users)
    return tf.reduce_mean(tf.nn.softplus(-ahead))


def sampled_softmax(loss: SampledSoftmax, model: Model, task: Task, outputs: int) -> PairLoss:
    """`loss=sampled_softmax`."""
    return partial(over_batch if loss.of_batch else over_drawn, log_q=loss.log_q)


def over_batch(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor], *, log_q: bool = True) -> tf.Tensor:
    """The mean of -log softmax over the items of the batch, as negatives of each other (Yi et al. 2019, eq. 3 to 6).

    The score of item j is corrected by - log q[j], as it is a negative as often as it is in the data. Another place of
    the batch with the item itself is no negative.

    Args:
        labels: see above, of all items.
        vectors: of users [b, d] and of the batch's items [B, d], those of the users first: b is less than B where
            several processes share the batch.
        log_q: whether to correct.
    """
    users, items = vectors
    scores, own = tf.matmul(users, items, transpose_b=True), tf.shape(users)[0]
    numbers, logs = labels[:, 0], labels[:, 1]
    if log_q:
        scores -= logs[None]
    same = tf.equal(numbers[:own, None], numbers[None])
    same = tf.linalg.set_diag(same, tf.zeros([own], tf.bool))
    scores = tf.where(same, scores.dtype.min, scores)
    answers = tf.range(own)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=answers, logits=scores))


def over_drawn(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor], *, log_q: bool = True) -> tf.Tensor:
    """The mean of -log softmax over the item of an interaction and n items that are drawn for the whole batch.

    Jean et al.: "On using very large target vocabulary for neural machine translation" (2015), eq. 6. An item that was
    drawn is no negative of itself.

    Args:
        labels: float32 [B + n, 2]: of the items, their numbers, and the logarithms of the shares with which each is
            drawn.
        vectors: of users [B, d], and of items [B + n, d]: those of the interactions, then the drawn ones.
        log_q: whether scores are corrected by these logarithms.
    """
    positives, negatives = _of_drawn(labels, vectors)
    if log_q:
        batch = tf.shape(positives)[0]
        positives, negatives = positives - labels[:batch, 1], negatives - labels[batch:, 1]
    return tf.reduce_mean(tf.reduce_logsumexp(tf.concat([positives[:, None], negatives], 1), 1) - positives)


def _of_drawn(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Scores of the items of the interactions, [B], and of the drawn ones, [B, n], very low of the item itself."""
    users, items = vectors
    batch = tf.shape(users)[0]
    positives = tf.reduce_sum(users * items[:batch], 1)
    negatives = tf.matmul(users, items[batch:], transpose_b=True)
    same = tf.equal(labels[:batch, :1], labels[batch:, 0])
    return positives, tf.where(same, negatives.dtype.min, negatives)


def cosine_contrastive(loss: CosineContrastive, model: Model, task: Task, outputs: int) -> PairLoss:
    """`loss=cosine_contrastive`."""
    return partial(contrastive, margin=loss.margin, weight=loss.negative_weight, of_batch=loss.of_batch)


def contrastive(
    labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor], *, margin: float, weight: float, of_batch: bool
) -> tf.Tensor:
    """The mean of 1 - s[item] + weight * mean of max(0, s[negative] - margin), for cosines s.

    Mao et al.: "SimpleX: a simple and strong baseline for collaborative filtering" (2021), eq. 1.

    Args:
        labels: see `over_drawn`, or with `of_batch` above.
        vectors: see `over_drawn`, or with `of_batch` as in `over_batch`.
    """
    if of_batch:
        (users, items), own = vectors, tf.shape(vectors[0])[0]
        vectors, labels = (users, tf.concat([items[:own], items], 0)), tf.concat([labels[:own], labels], 0)
    positives, negatives = _of_drawn(labels, vectors)
    over = tf.nn.relu(negatives - margin)
    return tf.reduce_mean(1.0 - positives + weight * tf.reduce_mean(over, 1))


def softmax(loss: Softmax, model: Model, task: Task, outputs: int) -> PairLoss:
    """`loss=softmax`."""
    return over_catalogue


def over_catalogue(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """The mean of -log softmax over the catalogue.

    Args:
        labels: see above.
        vectors: of users [B, d] and of all items [I, d].
    """
    users, items = vectors
    scores = tf.matmul(users, items, transpose_b=True)
    answers = tf.cast(labels[:, 0], tf.int32)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=answers, logits=scores))
