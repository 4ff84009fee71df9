"""The click log in Keras as its users write it: tf.data on the CSV file, StringLookup, Normalization, Embedding.

    python -m bench.clicks_in_keras LOG ROWS JSON

JSON has the keys optimizer, rate, batch, dim, hidden, limit (training rows; null: all), test and adapt. The script
prints one line of JSON. It transforms counts by log1p, and adds an indicator of missing values. The normalization and
the lookups are adapted to the training rows in one of two ways:

- `each layer`: `layer.adapt(dataset.map(...))` for each layer, as in Keras' guides: one pass over the rows per layer.
- `one pass`: a hand-written loop with `update_state` and `finalize_state` adapts all layers together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from bench.click_log import CATEGORIES, HELD_OUT, NUMBERS, auc

_AT = 1


def dataset(file: str, first: int, last: int, batch: int) -> tf.data.Dataset:
    """Batches of some rows: (numbers, missing, tokens), labels."""
    kinds: list[Any] = [tf.constant([0.0])] * (2 + NUMBERS) + [tf.constant([""])] * CATEGORIES
    kinds[2 : 2 + NUMBERS] = [tf.constant([-1.0])] * NUMBERS

    def parsed(lines: tf.Tensor) -> Any:
        fields = tf.io.decode_csv(lines, kinds)
        numbers = tf.stack(fields[2 : 2 + NUMBERS], axis=1)
        missing = tf.cast(numbers < 0, tf.float32)
        tokens = dict(enumerate(fields[2 + NUMBERS :]))
        return {
            "numbers": tf.math.log1p(tf.maximum(numbers, 0)),
            "missing": missing,
            **{f"C{k}": v for k, v in tokens.items()},
        }, fields[0]

    lines = tf.data.TextLineDataset(file).skip(1 + first).take(last - first)
    return lines.batch(batch).map(parsed, num_parallel_calls=tf.data.AUTOTUNE)


def model(normalization: Any, lookups: list[Any], dim: int, hidden: list[int]) -> keras.Model:
    """Concatenates the embeddings of all categories and the numbers, and adds hidden layers."""
    numbers = keras.Input((NUMBERS,), name="numbers")
    missing = keras.Input((NUMBERS,), name="missing")
    ids = [keras.Input((), dtype="int64", name=f"C{n}") for n in range(CATEGORIES)]
    rows = [
        keras.layers.Embedding(lookup.vocabulary_size(), dim)(each) for lookup, each in zip(lookups, ids, strict=True)
    ]
    x = keras.layers.Concatenate()([normalization(numbers), missing, *rows])
    for width in hidden:
        x = keras.layers.Dense(width, activation="relu")(x)
    inputs = {"numbers": numbers, "missing": missing, **{f"C{n}": each for n, each in enumerate(ids)}}
    return keras.Model(inputs, keras.layers.Dense(1)(x))


def each_adapted(train: tf.data.Dataset, rows: int) -> tuple[Any, list[Any]]:
    """The normalization and the lookups, each adapted by its own `adapt`."""
    del rows
    normalization = keras.layers.Normalization()
    normalization.adapt(train.map(lambda inputs, labels: inputs["numbers"]))
    lookups = [keras.layers.StringLookup() for _ in range(CATEGORIES)]
    for number, lookup in enumerate(lookups):
        lookup.adapt(train.map(lambda inputs, labels, name=f"C{number}": inputs[name]))
    return normalization, lookups


def adapted_in_one_pass(train: tf.data.Dataset, rows: int) -> tuple[Any, list[Any]]:
    """The same layers, adapted by hand in one pass over so many rows."""
    lookups = [keras.layers.StringLookup() for _ in range(CATEGORIES)]
    total, squares = np.zeros(NUMBERS), np.zeros(NUMBERS)
    for inputs, _ in train:
        numbers = inputs["numbers"].numpy().astype(np.float64)
        total, squares = total + numbers.sum(0), squares + (numbers**2).sum(0)
        for number, lookup in enumerate(lookups):
            lookup.update_state(inputs[f"C{number}"])
    for lookup in lookups:
        lookup.finalize_state()
    mean = total / rows
    return keras.layers.Normalization(mean=mean, variance=squares / rows - mean**2), lookups


def main(argv: list[str]) -> int:
    """Adapts, trains one epoch, and evaluates."""
    start = time.perf_counter()
    file, rows, settings = argv[0], int(argv[1]), json.loads(argv[2])
    keras.utils.set_random_seed(0)
    tested = int(rows * (1 - HELD_OUT))
    trained = int(rows * (1 - 2 * HELD_OUT))
    used = min(trained, settings["limit"] or trained)
    batch = settings["batch"]
    adapt = {"one pass": adapted_in_one_pass, "each layer": each_adapted}[settings["adapt"]]
    normalization, lookups = adapt(dataset(file, 0, used, 8192).prefetch(2), used)
    adapted = time.perf_counter()

    def looked_up(inputs: Any, labels: Any) -> Any:
        ids = {f"C{n}": lookup(inputs[f"C{n}"]) for n, lookup in enumerate(lookups)}
        return {"numbers": inputs["numbers"], "missing": inputs["missing"], **ids}, labels

    def read(first: int, last: int) -> tf.data.Dataset:
        return dataset(file, first, last, batch).map(looked_up, num_parallel_calls=tf.data.AUTOTUNE)

    network = model(normalization, lookups, settings["dim"], settings["hidden"])
    optimizer = getattr(keras.optimizers, settings["optimizer"])(settings["rate"])
    network.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    train = read(0, used).shuffle(64, seed=0).prefetch(2)
    network.fit(train, epochs=1, verbose=0)
    fitted = time.perf_counter()

    def measured(first: int, last: int) -> float:
        data = read(first, last)
        labels = np.concatenate([each.numpy() for _, each in data])
        return auc(labels, network.predict(data.prefetch(2), verbose=0)[:, 0])

    found = {"validation": measured(trained, tested)}
    if settings["test"]:
        found["test"] = measured(tested, rows)
    done = time.perf_counter()
    times = {"adapt": adapted - start, "epoch": fitted - adapted, "evaluation": done - fitted}
    print(json.dumps({**found, "times": times, "parameters": network.count_params()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
