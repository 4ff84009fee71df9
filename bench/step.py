"""Time of a training step: independent of the vocabulary size, and compared with Keras and PyTorch.

    python -m bench.step [--quick] [--repetitions N] [--json FILE]

Every measurement runs in a new process. Every repetition measures all contenders in sequence, so that other load
affects all of them alike. Ratios are taken within a repetition, and their median is reported.

All train the same model: 4096 × 8 uniform ids, rows of 32, the eight rows concatenated, an MLP 256 → 64 → 1, log loss,
and one kind of optimizer for everything. The batches are also the same, in memory and in the same order. Each library
is used in its usual way: embexp as in a run (many steps per call of a `tf.function`), Keras with `fit`, PyTorch in a
loop with sparse gradients, and FBGEMM with its fused tables for CPUs, whose backward pass is the update.

The second part freezes 90% of the rows, anywhere in the table. PyTorch has two ways to do that. Either frozen rows are
removed from the sparse gradient (`torch filtered`), or frozen and other rows are in two tables, and each activation is
picked from one of them (`torch apart`). Keras does the latter (`keras apart`). The last part compares each rule of
embexp with decay and clipping to the plain rule.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bench import harness

SMALL, MIDDLE, LARGE = 10**4, 10**6, 10**7
STEPS = {"keras": 192, "keras apart": 48, "torch": 100, "torch filtered": 100, "torch apart": 100, "fbgemm": 100}
"""Steps of a measurement by contender; all others have `OUR_STEPS`."""
OUR_STEPS = 200
BATCH, IDS, DIM, HIDDEN = 4096, 8, 32, 64
BATCHES = 64
"""Number of different batches, so large that their rows do not stay in the CPU caches."""
RATE = 0.01
FROZEN = 0.9
LIMITS = {"clipvalue": 1.0, "weight_decay_factor": 1e-6, "clip_weight_max": 10.0}
"""Settings of the contender `limited`."""


@dataclass(frozen=True)
class Measurement:
    """A library, an optimizer and a number of rows."""

    contender: str
    optimizer: str
    vocabulary: int

    def __str__(self) -> str:
        return f"{self.contender} {self.optimizer} V={self.vocabulary:.0e}"


@dataclass(frozen=True)
class Target:
    """A ratio of two step times, and its bound."""

    numerator: Measurement
    denominator: Measurement
    bound: float
    at_most: bool = False

    def __str__(self) -> str:
        return f"{self.numerator} / {self.denominator}"


def _targets() -> list[Target]:
    def ours(optimizer: str, vocabulary: int = MIDDLE) -> Measurement:
        return Measurement("embexp", optimizer, vocabulary)

    flat = [Target(ours(o, LARGE), ours(o, SMALL), 2.5, at_most=True) for o in ("sgd", "adagrad", "adam")]
    keras = [Target(Measurement("keras", o, MIDDLE), ours(o), 8.0) for o in ("adagrad", "adam")]
    bounds = {"sgd": 1.5, "adagrad": 2.0, "adam": 3.0}
    torch = [Target(Measurement("torch", o, MIDDLE), ours(o), b) for o, b in bounds.items()]
    bounds = {"sgd": 2.0, "adagrad": 2.5, "rowwise_adagrad": 1.5}
    fused = [Target(Measurement("fbgemm", o, MIDDLE), ours(o), b) for o, b in bounds.items()]
    apart = {"torch filtered": 4.0, "torch apart": 4.0, "keras apart": 20.0}
    frozen = [
        Target(Measurement(peer, o, MIDDLE), Measurement("frozen", o, MIDDLE), bound)
        for o in ("adagrad", "adam")
        for peer, bound in apart.items()
    ]
    limited = [
        Target(Measurement("limited", o, MIDDLE), ours(o), 1.25, at_most=True) for o in ("sgd", "adagrad", "adam")
    ]
    others = [
        Target(Measurement(contender, o, MIDDLE), ours(plain), 1.25, at_most=True)
        for o, plain in (("adagrad_momentum", "adam"), ("ftrl", "adam"))
        for contender in ("embexp", "limited")
    ]
    narrow = [
        Target(Measurement(contender, "rowwise_adagrad", MIDDLE), ours("adagrad"), bound, at_most=True)
        for contender, bound in (("embexp", 1.25), ("bfloat16", 2.0))
    ]
    return [*flat, *keras, *torch, *fused, *frozen, *limited, *others, *narrow]


def data(vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """All batches: ids, int32 [BATCHES, BATCH, IDS], as in a run, and labels, float32 [BATCHES, BATCH, 1]."""
    generator = np.random.default_rng(0)
    ids = generator.integers(0, vocabulary, size=(BATCHES, BATCH, IDS), dtype=np.int32)
    return ids, generator.integers(0, 2, size=(BATCHES, BATCH, 1)).astype(np.float32)


def timed(advance: Callable[[int], object], steps: int, parts: int = 5) -> float:
    """Median over `parts` of the milliseconds per step, after a warm-up as long as one part."""
    each = max(steps // parts, 1)
    advance(each)
    milliseconds = []
    for _ in range(parts):
        start = time.perf_counter()
        advance(each)
        milliseconds.append((time.perf_counter() - start) / each * 1e3)
    return statistics.median(milliseconds)


def frozen_rows(vocabulary: int) -> np.ndarray:
    """The frozen rows, bool [vocabulary]."""
    found: np.ndarray = np.random.default_rng(1).random(vocabulary) < FROZEN
    return found


def embexp(
    optimizer: str,
    vocabulary: int,
    steps: int,
    *,
    frozen: str | None = None,
    limited: bool = False,
    dtype: str = "float32",
) -> float:
    """Milliseconds per step of the row engine and a Keras model; `frozen` is the layout of the frozen rows."""
    import keras
    import tensorflow as tf

    from embexp.initialization.method import assign_rows
    from embexp.specs import optimizers as specs
    from embexp.specs.tables import Feature, Uniform
    from embexp.tables import optimizers
    from embexp.tables.optimizers import RowGroups
    from embexp.tables.row_engine import RowEngine
    from embexp.tables.table import EmbeddingTable, SplitTable
    from embexp.tables.variables import Precision
    from embexp.vectors.initial_rows import InitializerRows

    kinds: dict[str, Any] = {
        "sgd": specs.SGD,
        "adagrad": specs.Adagrad,
        "rowwise_adagrad": specs.RowwiseAdagrad,
        "adam": specs.Adam,
        "adagrad_momentum": partial(specs.AdagradMomentum, momentum=0.9),
        "ftrl": specs.FTRL,
    }
    rule = kinds[optimizer](learning_rate=RATE, **(LIMITS if limited else {}))
    groups: Any = None
    if frozen is not None:
        multipliers = np.array([[1.0, 0.0]], np.float32)
        groups = RowGroups("item", frozen_rows(vocabulary).astype(np.uint8), multipliers, [0])
    slots, rows = optimizers.slots_of(rule), InitializerRows(Uniform(), rows=vocabulary, dim=DIM, seed=0, table="item")
    table: Any
    if frozen == "split":
        table = SplitTable("item", groups, DIM, slots=slots)
        for part, source in table.fills(rows):
            assign_rows(part, source)
    else:
        kind = tf.as_dtype(dtype)
        table = EmbeddingTable(
            "item",
            vocabulary,
            DIM,
            slots=slots,
            row_slots=rule.row_slots,
            groups=groups,
            precision=Precision(kind, kind, (0, 0)),
        )
        assign_rows(table, rows)
    counter = tf.Variable(0, dtype=tf.int64)
    engine = RowEngine(
        {"item": table}, {"item": Feature(table="item")}, {"item": rule}, step=counter, total_steps=10**9
    )
    model = keras.Sequential(
        [
            keras.layers.Input((IDS, DIM)),
            keras.layers.Flatten(),
            keras.layers.Dense(HIDDEN, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    dense = _keras_optimizer(optimizer if optimizer in ("sgd", "adagrad") else "adam")
    dense.build(model.trainable_variables)

    @tf.function
    def train(iterator, count):  # type: ignore[no-untyped-def]
        for _ in tf.range(count):
            ids, labels = next(iterator)
            engine.enqueue({"item": ids}, training=True)
            activations = engine.activations()
            variables = [variable.value for variable in model.trainable_variables]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(activations)
                tape.watch(variables)
                logits = model(activations["item"], training=True)
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
            row_gradients, gradients = tape.gradient(loss, (activations, variables))
            engine.apply_gradients(row_gradients)
            dense.apply(gradients, model.trainable_variables)
            counter.assign_add(1)

    iterator = iter(_dataset(vocabulary))
    return timed(lambda count: train(iterator, tf.constant(count)), steps)


def keras(optimizer: str, vocabulary: int, steps: int, *, apart: bool = False) -> float:
    """Milliseconds per step of `keras.layers.Embedding` in `fit`; `apart`: frozen rows have their own layer."""
    import keras

    ids = keras.layers.Input((IDS,), dtype="int32")
    if apart:
        mask = frozen_rows(vocabulary)
        places = np.where(mask, np.cumsum(mask) - 1, np.cumsum(~mask) - 1).astype(np.int32)

        class Apart(keras.layers.Layer):  # type: ignore[misc]
            def build(self, shape: Any) -> None:
                self.fixed = keras.layers.Embedding(int(mask.sum()), DIM, trainable=False)
                self.moving = keras.layers.Embedding(int((~mask).sum()), DIM)
                self.mask, self.places = keras.ops.convert_to_tensor(mask), keras.ops.convert_to_tensor(places)
                for layer in (self.fixed, self.moving):
                    layer.build(shape)

            def call(self, ids: Any) -> Any:
                frozen, place = keras.ops.take(self.mask, ids), keras.ops.take(self.places, ids)
                fixed = self.fixed(keras.ops.where(frozen, place, 0))
                moving = self.moving(keras.ops.where(frozen, 0, place))
                return keras.ops.where(frozen[..., None], fixed, moving)

        layer = Apart()
    else:
        layer = keras.layers.Embedding(vocabulary, DIM)
    model = keras.Sequential(
        [
            ids,
            layer,
            keras.layers.Flatten(),
            keras.layers.Dense(HIDDEN, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(_keras_optimizer(optimizer), keras.losses.BinaryCrossentropy(from_logits=True))
    # An epoch over arrays, as users call `fit`. Calls with a few steps would repeat the same few batches.
    ids, labels = (array.reshape(BATCHES * BATCH, -1) for array in data(vocabulary))

    def advance(count: int) -> None:
        examples = slice(count * BATCH)
        model.fit(ids[examples], labels[examples], batch_size=BATCH, shuffle=False, verbose=0)

    return timed(advance, steps, parts=3)


def torch(optimizer: str, vocabulary: int, steps: int, *, frozen: str | None = None) -> float:
    """Milliseconds per step of `torch.nn.Embedding(sparse=True)`; `frozen` is the way to freeze: filtered or apart."""
    import torch

    torch.set_num_threads(harness.CORES)
    batches = [(torch.from_numpy(ids), torch.from_numpy(labels)) for ids, labels in zip(*data(vocabulary), strict=True)]
    mask = torch.from_numpy(frozen_rows(vocabulary))
    embedding = torch.nn.Embedding(int((~mask).sum()) if frozen == "apart" else vocabulary, DIM, sparse=True)
    fixed = torch.nn.Embedding(int(mask.sum()), DIM).requires_grad_(False) if frozen == "apart" else None
    places = torch.where(mask, torch.cumsum(mask, 0) - 1, torch.cumsum(~mask, 0) - 1)

    def look_up(ids: Any) -> Any:
        if fixed is None:
            return embedding(ids)
        moves, place = ~mask[ids], places[ids]
        found = fixed(torch.where(moves, 0, place))
        return found.index_put((moves,), embedding(place[moves]))

    def remove_frozen() -> None:
        gradient = embedding.weight.grad.coalesce()
        moves = ~mask[gradient.indices()[0]]
        embedding.weight.grad = torch.sparse_coo_tensor(
            gradient.indices()[:, moves], gradient.values()[moves], gradient.shape, is_coalesced=True
        )

    mlp = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(IDS * DIM, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1)
    )
    sparse_kinds = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.SparseAdam}
    dense_kinds = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam}
    optimizers = [
        sparse_kinds[optimizer](list(embedding.parameters()), lr=RATE),
        dense_kinds[optimizer](mlp.parameters(), lr=RATE),
    ]
    loss_of = torch.nn.BCEWithLogitsLoss()
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        for _ in range(count):
            batch_ids, batch_labels = batches[done % BATCHES]
            for each in optimizers:
                each.zero_grad()
            loss_of(mlp(look_up(batch_ids.long() if frozen else batch_ids)), batch_labels).backward()
            if frozen == "filtered":
                remove_frozen()
            for each in optimizers:
                each.step()
            done += 1

    return timed(advance, steps)


def fbgemm(optimizer: str, vocabulary: int, steps: int) -> float:
    """Milliseconds per step of FBGEMM's `SplitTableBatchedEmbeddingBagsCodegen`, in which each id is its own bag."""
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    torch.set_num_threads(harness.CORES)
    kinds = {
        "sgd": EmbOptimType.EXACT_SGD,
        "adagrad": EmbOptimType.EXACT_ADAGRAD,
        "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    }
    tables = SplitTableBatchedEmbeddingBagsCodegen(
        [(vocabulary, DIM, EmbeddingLocation.HOST, ComputeDevice.CPU)],
        feature_table_map=[0] * IDS,
        optimizer=kinds[optimizer],
        learning_rate=RATE,
    )
    tables.init_embedding_weights_uniform(-0.05, 0.05)
    ids, labels = data(vocabulary)
    by_feature = torch.from_numpy(np.ascontiguousarray(ids.transpose(0, 2, 1)).reshape(BATCHES, -1)).long()
    offsets, answers = torch.arange(BATCH * IDS + 1), torch.from_numpy(labels)
    mlp = torch.nn.Sequential(torch.nn.Linear(IDS * DIM, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1))
    dense_kinds = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "rowwise_adagrad": torch.optim.Adam}
    dense = dense_kinds[optimizer](mlp.parameters(), lr=RATE)
    loss_of = torch.nn.BCEWithLogitsLoss()
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        for _ in range(count):
            dense.zero_grad()
            loss_of(mlp(tables(by_feature[done % BATCHES], offsets)), answers[done % BATCHES]).backward()
            dense.step()
            done += 1

    return timed(advance, steps)


def _dataset(vocabulary: int):  # type: ignore[no-untyped-def]
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(data(vocabulary)).repeat().prefetch(4)


def _keras_optimizer(optimizer: str):  # type: ignore[no-untyped-def]
    import keras

    kinds = {"sgd": keras.optimizers.SGD, "adagrad": keras.optimizers.Adagrad, "adam": keras.optimizers.Adam}
    return kinds[optimizer](RATE)


CONTENDERS: dict[str, Callable[[str, int, int], float]] = {
    "embexp": embexp,
    "frozen": partial(embexp, frozen="variable"),
    "split": partial(embexp, frozen="split"),
    "limited": partial(embexp, limited=True),
    "bfloat16": partial(embexp, dtype="bfloat16"),
    "keras": keras,
    "keras apart": partial(keras, apart=True),
    "torch": torch,
    "torch filtered": partial(torch, frozen="filtered"),
    "torch apart": partial(torch, frozen="apart"),
    "fbgemm": fbgemm,
}


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if every target is met, else 1."""
    quick, repetitions = "one repetition with fewer steps", "number of repetitions (3; quick: 1)"
    parser = harness.parser("step", __doc__, quick=quick, repetitions=repetitions)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one:
        contender, optimizer, vocabulary, steps = options.one
        print(CONTENDERS[contender](optimizer, int(vocabulary), int(steps)))
        return 0
    count = options.repetitions or (1 if options.quick else 3)

    described = harness.introduce()
    targets = _targets()
    measurements = list(dict.fromkeys(m for target in targets for m in (target.denominator, target.numerator)))
    measurements += [Measurement("split", o, MIDDLE) for o in ("adagrad", "adam")]
    times: dict[Measurement, list[float]] = {m: [] for m in measurements}
    for repetition in range(count):
        print(f"\nrepetition {repetition + 1} of {count}")
        for what in times:
            steps = STEPS.get(what.contender, OUR_STEPS) // (2 if options.quick else 1)
            which = (what.contender, what.optimizer, what.vocabulary, steps)
            times[what].append(float(harness.figures("step", "--one", *which)))
            print(f"  {what!s:28} {times[what][-1]:8.2f} ms", flush=True)

    print("\nratio of step times" + " " * 41 + "median   target")
    ratios, verdicts = {}, []
    for target in targets:
        each = harness.ratios(times[target.numerator], times[target.denominator])
        ratio, met, words = harness.judged(each, target.bound, at_most=target.at_most)
        ratios[str(target)] = ratio
        verdicts.append(met)
        print(f"  {target!s:56} {ratio:6.2f} {words}")
    milliseconds = {str(what): values for what, values in times.items()}
    quotable: dict[str, Any] = {"ms": {}}
    for target in targets:
        of = target.numerator
        quotable.setdefault(of.contender, {})[of.optimizer] = ratios[str(target)]
    for what, values in times.items():
        quotable["ms"].setdefault(what.contender, {}).setdefault(what.optimizer, {})[what.vocabulary] = values
    bounds = {str(target): target.bound for target in targets}
    harness.save(options, described, quotable, milliseconds=milliseconds, ratios=ratios, targets=bounds)
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
