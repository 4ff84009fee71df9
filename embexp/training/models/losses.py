"""Losses of labels, and the user's own. The step adds those that a user's model adds by `add_loss`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from embexp.specs.base import Choice, implementation
from embexp.specs.fields import imported
from embexp.specs.models import CustomLoss, LossOfTask, Model
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
    return {Labels.NUMBER: _squared_error, Labels.BINARY: _log_loss, Labels.CLASS: softmax_log_loss}[task.labels]


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


def _squared_error(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.math.squared_difference(_like(labels, logits), labels)


def _log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=_like(labels, logits))


def softmax_log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """-log p[label] of each example, with p = softmax(logits)."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(labels, tf.int32), logits=tf.cast(logits, tf.float32)
    )


def _like(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    # [B, 1] against [B] would silently broadcast to [B, B].
    return tf.reshape(tf.cast(logits, tf.float32), tf.shape(labels))
