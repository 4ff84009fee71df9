"""One training step and one forward pass: ids → rows → activations → loss → row updates, for every runtime.

Its replicas share a batch by the part of a strategy that is here, `Replication`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf

from embexp.specs.tasks import ALL_RELATIONS, CANDIDATES, KNOWN, RELATION
from embexp.tables.inputs import EveryRow
from embexp.tables.row_engine import EmbeddingBackend
from embexp.training import models

if TYPE_CHECKING:
    from embexp.training.one_vs_all import Part

_STRIDE = 506_952_115
"""Distance between the seeds of neighbouring replicas: 2^32 / golden ratio, modulo 2^31 - 2.

Keras takes seeds modulo that number. The distance is far from the small numbers that people choose as seeds of layers,
so no replica draws the same numbers as another replica in another layer. It shares no factor with the modulus, so the
seeds of any number of replicas differ.
"""


@dataclass(frozen=True)
class ReplicaBatch:
    """A replica's share of a batch, but for the activations, which come from its backend.

    Attributes:
        dense: float32 [b, number of dense columns].
        labels: float32 [b].
        share: b / the batch's examples, a float32 scalar or a Python float; None: the replica has all of them. The step
            multiplies the loss by it, so that the sum over replicas is the mean over the batch.
        known: ragged integers [b, None], all known answers of each query: in an evaluation those that ranks leave
            aside, in training (KvsAll) all positives. None: the batch has none.
        relations: int32 [b], the relation of each query, where relations are predicted; see `relations_of`.
    """

    dense: Any
    labels: Any
    share: Any = None
    known: Any = None
    relations: Any = None


def relations_of(batch: Any) -> Any:
    """The relation of each query of a batch, int32 [B], where relations are predicted; else None."""
    return batch.ids[RELATION] if ALL_RELATIONS in batch.ids else None


class Replication(Protocol):
    """The replicas of a step: one, or several that share each batch.

    `run` calls a function in every replica. That function may call `summed` and `averaged`; all else is for the host.
    """

    @property
    def replicas(self) -> int:
        """Number of replicas."""

    def run(self, function: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
        """Calls `function` in every replica with its share of a batch, and returns the results by replica."""

    def total(self, results: Any) -> Any:
        """The sum of the replicas' results, a scalar from each."""

    def joined(self, results: Any) -> Any:
        """The replicas' results, a tensor [b, ...] from each, as one [B, ...] in the batch's order."""

    def part(self, feature: str, rows: int) -> Part:
        """Of a feature's first rows, so many, those that `EmbeddingBackend.rows` has: all, or this process's own."""

    def summed(self, gradients: Sequence[Any]) -> list[Any]:
        """In a replica: the sums of tensors over all replicas."""

    def number(self) -> Any:
        """In a replica: its number, an int or a scalar."""

    def averaged(self, variables: Sequence[Any]) -> None:
        """In a replica: sets each variable, such as a running mean, to its mean over all replicas."""


@contextlib.contextmanager
def replica_seeds(states: Sequence[Any], replicas: int, number: Callable[[], Any]) -> Iterator[None]:
    """In a replica: random numbers within the block depend on the states and on the replica's number.

    Keras keeps the state of a layer's randomness in a variable, [seed, number of draws], which is mirrored like any
    other. So all replicas would draw the same, and dropout would drop the same units in each replica's examples.

    The seeds change for the block only. So the states in checkpoints are those of one device, and the first replica
    draws what one device draws.

    Args:
        states: int64 variables [2] of which each replica has a copy: the states of `keras.random.SeedGenerator`s.
        replicas: number of replicas; with one nothing is added to the graph.
        number: returns that of this replica.
    """
    if replicas == 1 or not states:
        yield
        return
    offset = tf.stack([tf.cast(number(), tf.int64) * _STRIDE, tf.constant(0, tf.int64)])
    distinct = list({id(state): state for state in states}.values())
    for state in distinct:
        state.assign(tf.convert_to_tensor(state) + offset)
    yield
    for state in distinct:
        state.assign(tf.convert_to_tensor(state) - offset)


class LossOfInputs(Protocol):
    """A loss that reads what the model gets, instead of logits: of many candidates, or of each place of a sequence."""

    def takes(self, inputs: Mapping[str, Any], labels: Any) -> bool:
        """Whether it is the loss of a batch without known answers; else logits have one."""

    def __call__(self, inputs: Mapping[str, Any], labels: Any, known: Any = None) -> Any:
        """The mean over the examples, a float32 scalar, with losses that layers add.

        Args:
            inputs: of the whole model.
            labels: of the batch, as the task's additions make them.
            known: ragged integers [B, None], all positives of each query; None: the batch has none.
        """


@dataclass(frozen=True)
class Input:
    """The columns of a batch that hold a feature's ids and weights.

    Attributes:
        ids: name of the column.
        weights: name of the column; None: without weights.
        every_row: whether ids [1, C] of a training batch are the first C rows of the table in order.
    """

    ids: str
    weights: str | None = None
    every_row: bool = False


@dataclass(frozen=True)
class Step:
    """The computation that a runtime executes, in plain TensorFlow operations.

    Attributes:
        backend: looks up activations and applies their gradients to rows.
        model: the dense part; maps activations to logits, or to vectors of users and of items.
        inputs: for each feature the columns it reads.
        strategy: how the step's replicas share a batch.
        loss: (labels [B], logits [B], [B, 1] or [B, C]) → scalar, the mean over the batch; of recommendation, see
            `models.recommendation_losses`. Not needed to predict, nor are the next two.
        optimizer: Keras optimizer of the dense part, built for the model's trainable variables.
        counter: int64 variable, the number of steps done; schedules read it.
        loss_of_inputs: the loss of batches that it takes; None: `loss` is that of all.
        relation_prediction: (inputs, rows of all relations, those of the queries, labels) → scalar, added to the loss;
            None: nothing is.
        gradient_scale: factor of all gradients; the loss that is returned does not have it.
    """

    backend: EmbeddingBackend
    model: Any
    inputs: Mapping[str, Input]
    strategy: Replication
    loss: Callable[[Any, Any], Any] = lambda labels, logits: None
    optimizer: Any = None
    counter: Any = None
    loss_of_inputs: LossOfInputs | None = None
    relation_prediction: Callable[[Mapping[str, Any], Any, Any, Any], Any] | None = None
    gradient_scale: float = 1.0

    def train(self, batch: Any) -> Any:
        """Trains on one batch and returns its loss, a float32 scalar that includes the model's own losses."""
        # Names of operations, by which a profile tells the parts of a step.
        with tf.name_scope("rows"):
            self.backend.enqueue(self.features(batch, training=True), training=True)
        loss = self.strategy.total(self.strategy.run(self._train, batch))
        self.counter.assign_add(1)
        return loss

    def _train(self, batch: ReplicaBatch) -> Any:
        """Trains in a replica, and returns its share of the loss."""
        with tf.name_scope("rows"):
            activations = self.backend.activations()
        variables = [variable.value for variable in self.model.trainable_variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(activations)
            tape.watch(variables)
            random, replication = models.random_state(self.model), self.strategy
            with tf.name_scope("forward"), replica_seeds(random, replication.replicas, replication.number):
                loss = self._loss(models.inputs(activations, batch.dense), batch)
                if self.relation_prediction is not None:
                    inputs = models.inputs(activations, batch.dense)
                    loss += self.relation_prediction(inputs, activations[ALL_RELATIONS], batch.relations, batch.labels)
            if batch.share is not None:
                loss *= batch.share
            scaled = loss if self.gradient_scale == 1.0 else loss * self.gradient_scale
        with tf.name_scope("backward"):
            row_gradients, gradients = tape.gradient(scaled, (activations, variables))
        with tf.name_scope("rows"):
            self.backend.apply_gradients(row_gradients)
        if variables:
            with tf.name_scope("dense_rule"):
                self.optimizer.apply(self.strategy.summed(gradients), self.model.trainable_variables)
        # Such as the running means of a batch normalisation.
        weights = [variable.value for variable in self.model.non_trainable_weights]
        self.strategy.averaged([weight for weight in weights if weight.dtype.is_floating])
        return loss

    def _loss(self, inputs: dict[str, Any], batch: ReplicaBatch) -> Any:
        own = self.loss_of_inputs
        if own is not None and (batch.known is not None or own.takes(inputs, batch.labels)):
            return own(inputs, batch.labels, batch.known)
        loss = self.loss(batch.labels, self.model(inputs, training=True))
        if self.model.losses:  # add_loss and regularisers
            loss += tf.add_n([tf.cast(extra, loss.dtype) for extra in self.model.losses])
        return loss

    def predict(self, batch: Any) -> Any:
        """Logits of one batch, float32 [B], or [B, C] where an example has several; changes no variable.

        Where the batch has the known answers of queries, their `one_vs_all.standings`, float32 [B]; of
        recommendation, the vectors of each example's user and item, [B, 2, d].
        """
        self.backend.enqueue(self.features(batch, training=False), training=False)
        function = self._predict
        if KNOWN in batch.ids:
            function = partial(self._standings, entities=batch.ids[CANDIDATES].shape[1])
        return self.strategy.joined(self.strategy.run(function, batch))

    def _predict(self, batch: ReplicaBatch) -> Any:
        logits = self.model(models.inputs(self.backend.activations(), batch.dense), training=False)
        if isinstance(logits, list):
            users, items = logits
            return tf.stack([users, items[: users.shape[0]]], 1)  # a TPU looks up as many items as in training
        several = logits.shape.rank == 2 and logits.shape[1] != 1
        return logits if several else tf.reshape(logits, [-1])

    def _standings(self, batch: ReplicaBatch, entities: int) -> Any:
        from embexp.training.one_vs_all import block_rows, standings  # which most models don't need

        inputs = models.inputs(self.backend.activations(), batch.dense)

        def score(start: int, stop: int) -> Any:
            return self.model({**inputs, CANDIDATES: self.backend.rows(CANDIDATES, start, stop)[None]}, training=False)

        part, dim = self.strategy.part(CANDIDATES, entities), inputs[CANDIDATES].shape[-1]
        return standings(score, part, block_rows(part.count, dim), tf.cast(batch.labels, tf.int32), batch.known)

    def features(self, batch: Any, *, training: bool) -> dict[str, Any]:
        """The backend's input for a batch, by feature: ids, or pairs of ids and weights.

        Candidates of queries that are ranked are none: all entities take their turns, block by block.
        """
        found: dict[str, Any] = {}
        for feature, source in self.inputs.items():
            ids = batch.ids[source.ids]
            if not training and source.ids in (CANDIDATES, ALL_RELATIONS) and KNOWN in batch.ids:
                found[feature] = ids[:, :0]
            elif training and source.every_row:
                found[feature] = EveryRow(ids)
            else:
                found[feature] = ids if source.weights is None else (ids, batch.weights[source.weights])
        return found


@dataclass(frozen=True)
class Assembly:
    """A step and its checkpoint, with all variables; the rows of the tables may not be filled yet.

    Attributes:
        checkpoint: a `tf.train.Checkpoint` of everything that is learned.
    """

    step: Step
    checkpoint: Any
