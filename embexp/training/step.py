"""One training step and one forward pass: ids → rows → activations → loss → row updates, for every runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.models import build as models
from embexp.strategies.own_draws import own_draws
from embexp.strategies.placement import Part, Placement
from embexp.tables.backend import EmbeddingBackend


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
        model: the dense part; maps activations to logits.
        loss: (labels [B], logits [B], [B, 1] or [B, C]) → scalar, the mean over the batch.
        optimizer: Keras optimizer of the dense part, built for the model's trainable variables.
        inputs: for each feature the columns it reads.
        counter: int64 variable, the number of steps done; schedules read it.
        placement: where the step runs, and how its replicas share a batch.
    """

    backend: EmbeddingBackend
    model: Any
    loss: Callable[[Any, Any], Any]
    optimizer: Any
    inputs: Mapping[str, Input]
    counter: Any
    placement: Placement

    def train(self, batch: Any) -> Any:
        """Trains on one batch and returns its loss, a float32 scalar with the model's own losses in it."""
        self.backend.enqueue(self.features(batch), training=True)
        loss = self.placement.total(self.placement.run(self._train, batch))
        self.counter.assign_add(1)
        return loss

    def _train(self, part: Part) -> Any:
        """What a replica does; returns its share of the loss."""
        activations = self.backend.activations()
        variables = [variable.value for variable in self.model.trainable_variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(activations)
            tape.watch(variables)
            with own_draws(models.random_state(self.model), self.placement.replicas):
                logits = self.model(models.inputs(activations, part.dense), training=True)
            loss = self.loss(part.labels, logits)
            if self.model.losses:  # add_loss and regularisers
                loss += tf.add_n([tf.cast(extra, loss.dtype) for extra in self.model.losses])
            if part.share is not None:
                loss *= part.share
        row_gradients, gradients = tape.gradient(loss, (activations, variables))
        self.backend.apply_gradients(row_gradients)
        if variables:
            self.optimizer.apply(self.placement.summed(gradients), self.model.trainable_variables)
        # Such as the running means of a batch normalisation.
        weights = [variable.value for variable in self.model.non_trainable_weights]
        self.placement.averaged([weight for weight in weights if weight.dtype.is_floating])
        return loss

    def predict(self, batch: Any) -> Any:
        """Logits of one batch, float32 [B], or [B, C] where there are several; changes nothing."""
        self.backend.enqueue(self.features(batch), training=False)
        return self.placement.joined(self.placement.run(self._predict, batch))

    def _predict(self, part: Part) -> Any:
        logits = self.model(models.inputs(self.backend.activations(), part.dense), training=False)
        several = logits.shape.rank == 2 and logits.shape[1] != 1
        return logits if several else tf.reshape(logits, [-1])

    def features(self, batch: Any) -> dict[str, Any]:
        """By feature, what the backend looks up for a batch: ids, or pairs of ids and weights."""
        return {
            feature: batch.ids[source.ids]
            if source.weights is None
            else (batch.ids[source.ids], batch.weights[source.weights])
            for feature, source in self.inputs.items()
        }
