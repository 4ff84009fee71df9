"""One training step and one forward pass: ids → rows → activations → loss → row updates, for every runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.models import build as models
from embexp.tables.backend import EmbeddingBackend
from embexp.training.replica_seeds import replica_seeds
from embexp.training.replication import ReplicaBatch, Replication


@dataclass(frozen=True)
class Input:
    """The columns of a batch that hold a feature's ids and weights."""

    ids: str
    weights: str | None = None


@dataclass(frozen=True)
class Step:
    """The computation that a runtime executes, in plain TensorFlow operations.

    Attributes:
        backend: looks up activations and applies their gradients to rows.
        model: the dense part; maps activations to logits, or to vectors of users and of items.
        loss: (labels [B], logits [B], [B, 1] or [B, C]) → scalar, the mean over the batch; of recommendation, see
            `models.recommendation_losses`.
        optimizer: Keras optimizer of the dense part, built for the model's trainable variables.
        inputs: for each feature the columns it reads.
        counter: int64 variable, the number of steps done; schedules read it.
        strategy: how the step's replicas share a batch.
    """

    backend: EmbeddingBackend
    model: Any
    loss: Callable[[Any, Any], Any]
    optimizer: Any
    inputs: Mapping[str, Input]
    counter: Any
    strategy: Replication

    def train(self, batch: Any) -> Any:
        """Trains on one batch and returns its loss, a float32 scalar that includes the model's own losses."""
        self.backend.enqueue(self.features(batch), training=True)
        loss = self.strategy.total(self.strategy.run(self._train, batch))
        self.counter.assign_add(1)
        return loss

    def _train(self, batch: ReplicaBatch) -> Any:
        """Trains in a replica and returns its share of the loss."""
        activations = self.backend.activations()
        variables = [variable.value for variable in self.model.trainable_variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(activations)
            tape.watch(variables)
            with replica_seeds(models.random_state(self.model), self.strategy.replicas):
                logits = self.model(models.inputs(activations, batch.dense), training=True)
            loss = self.loss(batch.labels, logits)
            if self.model.losses:  # add_loss and regularisers
                loss += tf.add_n([tf.cast(extra, loss.dtype) for extra in self.model.losses])
            if batch.share is not None:
                loss *= batch.share
        row_gradients, gradients = tape.gradient(loss, (activations, variables))
        self.backend.apply_gradients(row_gradients)
        if variables:
            self.optimizer.apply(self.strategy.summed(gradients), self.model.trainable_variables)
        # Such as the running means of a batch normalisation.
        weights = [variable.value for variable in self.model.non_trainable_weights]
        self.strategy.averaged([weight for weight in weights if weight.dtype.is_floating])
        return loss

    def predict(self, batch: Any) -> Any:
        """Logits of one batch, float32 [B], or [B, C] where an example has several; changes no variable.

        Of recommendation, the vectors of each example's user and item, [B, 2, d].
        """
        self.backend.enqueue(self.features(batch), training=False)
        return self.strategy.joined(self.strategy.run(self._predict, batch))

    def _predict(self, batch: ReplicaBatch) -> Any:
        logits = self.model(models.inputs(self.backend.activations(), batch.dense), training=False)
        if isinstance(logits, list):
            return tf.stack(logits, 1)
        several = logits.shape.rank == 2 and logits.shape[1] != 1
        return logits if several else tf.reshape(logits, [-1])

    def features(self, batch: Any) -> dict[str, Any]:
        """The backend's input for a batch, by feature: ids, or pairs of ids and weights."""
        return {
            feature: batch.ids[source.ids]
            if source.weights is None
            else (batch.ids[source.ids], batch.weights[source.weights])
            for feature, source in self.inputs.items()
        }


@dataclass(frozen=True)
class Assembly:
    """A step and its checkpoint, with all variables; the rows of the tables may not be filled yet.

    Attributes:
        step: the functions of a step.
        checkpoint: a `tf.train.Checkpoint` of everything that is learned.
    """

    step: Step
    checkpoint: Any
