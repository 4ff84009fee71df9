"""Your own Estimator, with embedding tables that start from matrices on disk.

    pip install 'embexp[estimator]'
    python examples/own_estimator.py [--items ITEMS.npy] [--model-dir DIR]

The model predicts which items users click. Item vectors are given and frozen. Their table refers to the matrix, and is
not in checkpoints. A user's vector starts as the sum of some clicked items, and is trained. The matrices are
memory-mapped and not copied. Neither the graph nor the event files contain them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
import tensorflow as tf

import embexp.estimator
from embexp.initialization import scaffold

v1 = tf.compat.v1
estimator = embexp.estimator.load()  # the former tf.estimator


def model_fn(features, labels, mode, params):
    """Predicts clicks from the dot product of a user and an item."""
    users, items = (np.load(params[name], mmap_mode="r") for name in ("users", "items"))
    user_table = v1.get_variable("user", users.shape)
    # A table in LOCAL_VARIABLES is not in checkpoints. Every new session (train, evaluate, predict) fills it.
    item_table = v1.get_variable(
        "item", items.shape, trainable=False, use_resource=True, collections=[v1.GraphKeys.LOCAL_VARIABLES]
    )
    # A table in GLOBAL_VARIABLES, the default, is filled once, and then restored from the checkpoint.
    filled = scaffold({user_table: users, item_table: items})

    user = tf.nn.embedding_lookup(user_table, features["user"])
    item = tf.gather(item_table.read_value(), features["item"])  # read_value: a lookup without a copy of the table
    logits = tf.reduce_sum(user * item, axis=1)
    if mode == estimator.ModeKeys.PREDICT:
        return estimator.EstimatorSpec(mode, predictions={"click": tf.sigmoid(logits)}, scaffold=filled)
    loss = v1.losses.sigmoid_cross_entropy(labels, logits)
    train_op = v1.train.AdagradOptimizer(0.3).minimize(loss, v1.train.get_global_step())
    metrics = {"accuracy": v1.metrics.accuracy(labels, tf.cast(logits > 0, tf.int32))}
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics, scaffold=filled)


def main() -> None:
    """Generates clicks and vectors, trains and evaluates, then continues training and evaluates again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=Path, help=".npy file with item vectors (default: random vectors)")
    parser.add_argument("--model-dir", type=Path, help="folder of the checkpoints (default: a temporary folder)")
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        items = arguments.items or Path(folder, "items.npy")
        if arguments.items is None:
            np.save(items, random.normal(size=(1000, 16)).astype(np.float32))
        vectors = np.load(items, mmap_mode="r")

        user, item = random.integers(0, 200, 20_000), random.integers(0, len(vectors), 20_000)
        taste = random.normal(size=(200, vectors.shape[1]))
        clicked = (np.einsum("nd,nd->n", taste[user], vectors[item]) > 0).astype(np.int32)
        users = np.stack([vectors[item[:1000][(user[:1000] == u) & (clicked[:1000] == 1)]].sum(0) for u in range(200)])
        np.save(Path(folder, "users.npy"), (0.1 * users).astype(np.float32))

        def clicks(first: int, last: int):
            def batches():  # a generator, because from_tensor_slices would store the clicks as constants in the graph
                for start in range(first, last, 250):
                    rows = slice(start, start + 250)
                    yield {"user": user[rows], "item": item[rows]}, clicked[rows]

            column = tf.TensorSpec([None], tf.int64)
            signature = ({"user": column, "item": column}, tf.TensorSpec([None], tf.int32))
            return lambda: tf.data.Dataset.from_generator(batches, output_signature=signature)

        own = estimator.Estimator(
            model_fn,
            # None disables the hook that logs steps per second. It would read the step during its update, and warn.
            config=estimator.RunConfig(str(arguments.model_dir or Path(folder, "model")), log_step_count_steps=None),
            params={"users": str(Path(folder, "users.npy")), "items": str(items)},
        )
        for _ in range(2):  # the second call continues from the checkpoint of the first
            own.train(clicks(0, 16_000))
            found = own.evaluate(clicks(16_000, 20_000))
            print(f"step {found['global_step']}: accuracy {found['accuracy']:.3f}")
        print(
            "in the checkpoint:", ", ".join(f"{name} {shape}" for name, shape in tf.train.list_variables(own.model_dir))
        )


if __name__ == "__main__":
    main()
