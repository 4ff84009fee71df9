"""The models of `bench.models` in plain Keras: `Embedding`, and a compiled step with Adam for the dense part.

The step is a compiled loop over a tf.data dataset, as in `fit` with `steps_per_execution`. So the cost of callbacks and
of Python is not included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from bench.models_cases import ADAGRAD_RATES, ADAM_RATES, Setting


def advance(setting: Setting, threads: int) -> Callable[[int], None]:
    """A function that trains so many steps."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    net = _NETS[setting.family](setting)
    rules: dict[str, Any] = {
        "sgd": keras.optimizers.SGD(0.05),
        "adagrad": keras.optimizers.Adagrad(
            ADAGRAD_RATES["lr"], initial_accumulator_value=ADAGRAD_RATES["initial_accumulator_value"]
        ),
        "adam": keras.optimizers.Adam(ADAM_RATES),
    }
    rule, of_dense = rules[setting.rule], keras.optimizers.Adam(ADAM_RATES)
    columns = {name: np.stack([batch[name] for batch in setting.batches]) for name in setting.batches[0]}
    dataset = tf.data.Dataset.from_tensor_slices(columns).repeat().prefetch(4)
    net.loss_of({name: tf.constant(array) for name, array in setting.batches[0].items()})  # creates the variables
    tables = [each for layer in net.tables() for each in layer.trainable_variables]
    dense = [each for each in net.trainable_variables if not any(each is table for table in tables)]
    rule.build(tables)
    if dense:
        of_dense.build(dense)

    @tf.function  # type: ignore[untyped-decorator]
    def train(iterator: Any, count: Any) -> None:
        for _ in tf.range(count):
            batch = next(iterator)
            with tf.GradientTape() as tape:
                loss = net.loss_of(batch)
            gradients = tape.gradient(loss, [each.value for each in (*tables, *dense)])
            rule.apply(gradients[: len(tables)], tables)
            if dense:
                of_dense.apply(gradients[len(tables) :], dense)

    iterator = iter(dataset)
    return lambda count: train(iterator, tf.constant(count))


class _Net(keras.Model):  # type: ignore[misc]  # Keras is untyped
    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting
        self.embeddings = {
            name: layers.Embedding(rows + 1, dim, name=name) for name, (rows, dim) in setting.tables.items()
        }

    def tables(self) -> list[Any]:
        """The tables as layers."""
        return list(self.embeddings.values())


class Clicks(_Net):
    """DLRM, whose top MLP may also get the embeddings, or an MLP of all inputs."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        model, dim = setting.model, next(iter(setting.tables.values()))[1]
        self.mlp = model["kind"] == "mlp"
        bottom = [] if self.mlp else [*model["bottom"], dim]
        top = model["hidden"] if self.mlp else model["top"]
        self.bottom = keras.Sequential([layers.Dense(width, "relu") for width in bottom])
        self.top = keras.Sequential([*(layers.Dense(width, "relu") for width in top), layers.Dense(1)])
        count = len(setting.tables) + 1
        left, right = np.triu_indices(count, 1)
        self.pairs = left * count + right

    def loss_of(self, batch: dict[str, Any]) -> Any:
        """The model's mean loss over a batch."""
        vectors = [table(batch[name]) for name, table in self.embeddings.items()]
        if self.mlp:
            inputs = [batch["dense"], *vectors]
        else:
            bottom = self.bottom(batch["dense"])
            stacked = ops.stack([bottom, *vectors], 1)
            gram = ops.matmul(stacked, ops.transpose(stacked, (0, 2, 1)))
            count = stacked.shape[1]
            products = ops.take(ops.reshape(gram, (-1, count * count)), self.pairs, axis=1)
            inputs = [bottom, *(vectors if self.setting.model["concat"] else ()), products]
        logits = self.top(ops.concatenate(inputs, 1))
        return ops.mean(keras.losses.binary_crossentropy(batch["label"][:, None], logits, from_logits=True))


class Products(_Net):
    """A factorization machine, alone or with an MLP (DeepFM), or a Deep & Cross Network."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        model, dim = setting.model, next(iter(setting.tables.values()))[1]
        width, hidden, self.kind = setting.numbers + len(setting.tables) * dim, model.get("hidden", []), model["kind"]
        self.deep = keras.Sequential([layers.Dense(units, "relu") for units in hidden])
        if self.kind == "dcn_v2":
            self.downs = [layers.Dense(model["rank"], use_bias=False) for _ in range(model["layers"])]
            self.crosses = [layers.Dense(width) for _ in range(model["layers"])]
            self.head = layers.Dense(1)
            return
        self.first = layers.Dense(1)
        normal = keras.initializers.RandomNormal(stddev=0.01)
        self.factors = self.add_weight(shape=(setting.numbers, dim), initializer=normal, name="factors")
        self.head = layers.Dense(1, use_bias=False) if hidden else None

    def loss_of(self, batch: dict[str, Any]) -> Any:
        """The model's mean loss over a batch."""
        vectors = [table(batch[name]) for name, table in self.embeddings.items()]
        numbers = batch["dense"]
        row = x = ops.concatenate([numbers, *vectors], 1)
        if self.kind == "dcn_v2":
            for down, cross in zip(self.downs, self.crosses, strict=True):
                x = row * cross(down(x)) + x
            logits = self.head(ops.concatenate([x, self.deep(row)], 1))
        else:
            stacked = ops.stack(vectors, 1)
            total = ops.sum(stacked, axis=1) + ops.matmul(numbers, self.factors)
            squares = ops.sum(ops.square(stacked), axis=1)
            squares = squares + ops.matmul(ops.square(numbers), ops.square(self.factors))
            logits = self.first(row) + ops.sum(ops.square(total) - squares, axis=1, keepdims=True) / 2
            if self.head is not None:
                logits = logits + self.head(self.deep(row))
        return ops.mean(keras.losses.binary_crossentropy(batch["label"][:, None], logits, from_logits=True))


class Dot(_Net):
    """Products of two vectors, with biases for ratings."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.bias = self.add_weight(shape=(1,), initializer="zeros", name="bias")

    def loss_of(self, batch: dict[str, Any]) -> Any:
        """The model's mean loss over a batch."""
        left, right = (self.embeddings[table](batch[column]) for table, column in self.setting.sides.items())
        logits = ops.sum(left * right, axis=1) + self.bias
        for table, column in self.setting.biases.items():
            logits = logits + self.embeddings[table](batch[column])[:, 0]
        if self.setting.biases:
            return ops.mean(ops.square(logits - batch["label"]))
        labels = batch["label"][:, None]
        return ops.mean(keras.losses.binary_crossentropy(labels, logits[:, None], from_logits=True))


class Texts(_Net):
    """The mean of word vectors, or Kim's convolutional network."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        model = setting.model
        self.cnn = model["kind"] == "text_cnn"
        self.windows = [layers.Conv1D(model["maps"], w, activation="relu") for w in model.get("widths", ())]
        self.pads = [layers.ZeroPadding1D(width - 1) for width in model.get("widths", ())]
        self.dropout = layers.Dropout(model["dropout"])
        norm = model.get("max_norm")
        self.head = layers.Dense(setting.classes, kernel_constraint=norm and keras.constraints.MaxNorm(norm, axis=0))

    def loss_of(self, batch: dict[str, Any]) -> Any:
        """The model's mean loss over a batch."""
        ids = batch["words"]
        used = ops.cast(ids < self.setting.tables["word"][0], "float32")[:, :, None]
        words = self.embeddings["word"](ids) * used
        if self.cnn:
            x = ops.concatenate(
                [ops.max(each(pad(words)), axis=1) for each, pad in zip(self.windows, self.pads, strict=True)], 1
            )
        else:
            x = ops.sum(words, axis=1) / batch["lengths"][:, None]
        logits = self.head(self.dropout(x, training=True))
        return ops.mean(keras.losses.sparse_categorical_crossentropy(batch["label"], logits, from_logits=True))


class Graph(_Net):
    """ComplEx or TransE, with negatives or all entities as candidates."""

    def loss_of(self, batch: dict[str, Any]) -> Any:
        """The model's mean loss over a batch."""
        entity, relation = (self.embeddings[name] for name in ("entity", "relation"))
        s, r = entity(batch["source"]), relation(batch["relation"])
        whole, model = self.setting.every_entity, self.setting.model
        candidates = entity.embeddings[: self.setting.tables["entity"][0]] if whole else entity(batch["candidates"])
        penalty = 0.0
        if model["kind"] == "transe":
            scores = model["margin"] - ops.sum(ops.abs((s + r)[:, None] - candidates), axis=2)
        else:
            (a, b), (c, d) = ops.split(s, 2, axis=1), ops.split(r, 2, axis=1)
            query = ops.concatenate([a * c - b * d, a * d + b * c], 1)
            scores = (
                ops.matmul(query, ops.transpose(candidates))
                if whole
                else ops.matmul(candidates, query[:, :, None])[:, :, 0]
            )
            moduli = ops.sum((a * a + b * b) ** 1.5, axis=1) + ops.sum((c * c + d * d) ** 1.5, axis=1)
            penalty = model["n3"] * ops.mean(moduli)
        labels = ops.cast(batch["label"], "int32")
        return penalty + ops.mean(keras.losses.sparse_categorical_crossentropy(labels, scores, from_logits=True))


_NETS: dict[str, Any] = {"clicks": Clicks, "products": Products, "dot": Dot, "texts": Texts, "graph": Graph}
