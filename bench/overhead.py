"""Overhead of the framework: `embexp run` compared with a hand-written `tf.function` loop.

    python -m bench.overhead [--quick] [--json FILE]

Both train the same model with the same row updates, on the same number of examples, which are shuffled in each epoch.
The hand-written loop is as fast as we can make it. Its examples are in memory, it neither logs nor evaluates, and it
shares no code with embexp. `embexp run` has its usual output, and its figure is the one in its own summary.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import harness

TARGET = 0.95
EXAMPLES, USERS, ITEMS, DIM = 400_000, 2_000, 1_000, 16
RATE, ACCUMULATOR, DENSE_RATE = 0.05, 0.1, 0.001
CASES = {
    "dot, batch 1024": ["graph=bench_pairs", "model=bench_dot", "train.batch_size=1024"],
    "mlp, batch 1024": ["graph=bench_pairs", "model=mlp", "model.hidden=[64]", "train.batch_size=1024"],
    "mlp, batch 4096": ["graph=bench_pairs", "model=mlp", "model.hidden=[64]", "train.batch_size=4096"],
}


def ours(case: str, steps: int) -> float:
    """Examples per second of `embexp run`, called as a user would call it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "embexp", *harness.experiment(Path(folder), DIM)]
        command += [*CASES[case], f"data.examples={EXAMPLES}", f"data.users={USERS}", f"data.items={ITEMS}"]
        command += ["optimizer=adagrad", f"optimizer.learning_rate={RATE}", f"train.steps={steps}", "train.epochs=null"]
        subprocess.run([*command, f"hydra.run.dir={folder}/run"], check=True, capture_output=True)
        summary = json.loads((Path(folder) / "run" / "summary.json").read_bytes())
    return float(summary["throughput"]["examples_per_second"])


def by_hand(case: str, steps: int) -> float:
    """Examples per second of the hand-written loop, in its own process."""
    return float(harness.figures("overhead", "--by-hand", case, "--steps", steps))


def _train_by_hand(case: str, steps: int) -> float:
    import keras
    import numpy as np
    import tensorflow as tf

    batch = int(case.split()[-1])
    random = np.random.default_rng(0)
    count = EXAMPLES * 8 // 10

    def zipf(size: int) -> Any:
        weights = 1 / np.arange(1, size + 1)
        return tf.constant(random.choice(size, p=weights / weights.sum(), size=count), tf.int64)

    columns = zipf(USERS), zipf(ITEMS), tf.constant(random.integers(0, 2, count), tf.float32)

    def epoch(_: Any) -> Any:
        order = tf.random.shuffle(tf.range(count, dtype=tf.int64))[: count // batch * batch]
        return tf.data.Dataset.from_tensor_slices(tf.reshape(order, [-1, batch]))

    def gathered(rows: Any) -> Any:
        return tuple(tf.gather(column, rows) for column in columns)

    data = tf.data.Dataset.range(10**6).flat_map(epoch).map(gathered).prefetch(4)

    names = {"user": USERS, "item": ITEMS}
    tables = {name: tf.Variable(tf.random.normal([size, DIM], stddev=0.25)) for name, size in names.items()}
    slots = {name: tf.Variable(tf.fill([size, DIM], ACCUMULATOR)) for name, size in names.items()}
    model: Callable[[Any, Any], Any]
    if case.startswith("dot"):
        bias = tf.Variable([0.0])
        variables = [bias]

        def model(user: Any, item: Any) -> Any:
            return tf.reduce_sum(user * item, 1) + bias
    else:
        net = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
        net.build([None, 2 * DIM])
        variables = [variable.value for variable in net.trainable_variables]

        def model(user: Any, item: Any) -> Any:
            return net(tf.concat([item, user], 1), training=True)[:, 0]

    moments = [(tf.Variable(tf.zeros_like(v)), tf.Variable(tf.zeros_like(v))) for v in variables]
    beta1_power, beta2_power = tf.Variable(1.0), tf.Variable(1.0)

    def step(users: Any, items: Any, y: Any) -> Any:
        ids = {"user": users, "item": items}
        distinct = {name: tf.unique(each) for name, each in ids.items()}
        rows = {
            name: tf.raw_ops.ResourceGather(resource=tables[name].handle, indices=found.y, dtype=tf.float32)
            for name, found in distinct.items()
        }
        vectors = {name: tf.gather(rows[name], found.idx) for name, found in distinct.items()}
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(vectors)
            tape.watch(variables)
            logits = model(vectors["user"], vectors["item"])
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(y, logits))
        of_vectors, of_variables = tape.gradient(loss, (vectors, variables))
        for name, found in distinct.items():
            g = tf.math.unsorted_segment_sum(of_vectors[name], found.idx, tf.size(found.y))
            a = tf.raw_ops.ResourceGather(resource=slots[name].handle, indices=found.y, dtype=tf.float32) + g * g
            tf.raw_ops.ResourceScatterUpdate(resource=slots[name].handle, indices=found.y, updates=a)
            new = rows[name] - RATE * g * tf.math.rsqrt(a)
            tf.raw_ops.ResourceScatterUpdate(resource=tables[name].handle, indices=found.y, updates=new)
        beta1_power.assign(beta1_power * 0.9)
        beta2_power.assign(beta2_power * 0.999)
        for variable, (m, v), g in zip(variables, moments, of_variables, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle, m=m.handle, v=v.handle, beta1_power=beta1_power, beta2_power=beta2_power,
                lr=DENSE_RATE, beta1=0.9, beta2=0.999, epsilon=1e-7, grad=g,
            )  # fmt: skip
        return loss

    @tf.function
    def train(iterator: Any, n: Any) -> Any:
        total = tf.constant(0.0)
        for _ in tf.range(n):
            total += step(*next(iterator))
        return total

    iterator = iter(data)
    train(iterator, tf.constant(1))
    began = time.perf_counter()
    train(iterator, tf.constant(steps)).numpy()
    return batch * steps / (time.perf_counter() - began)


def main(argv: list[str]) -> int:
    """Measures both in turns, and prints the ratios; returns 0 if every case reaches the target, else 1."""
    parser = harness.parser("overhead", __doc__, quick="fewer steps and repetitions")
    parser.add_argument("--by-hand", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.by_hand:
        print(_train_by_hand(options.by_hand, options.steps))
        return 0
    described = harness.introduce()
    repetitions, steps = (2, 2_000) if options.quick else (7, 10_000)
    results: dict[str, dict[str, Any]] = {}
    print(f"\nexamples/s{'embexp run':>24}{'by hand':>14}{'ratio':>8}")
    for case in CASES:
        pairs = [(ours(case, steps), by_hand(case, steps)) for _ in range(repetitions)]
        mine, theirs = (statistics.median(each) for each in zip(*pairs, strict=True))
        ratios = harness.ratios(*zip(*pairs, strict=True))
        ratio, _, words = harness.judged(ratios, TARGET)
        print(f"{case:18}{mine:16,.0f}{theirs:14,.0f}{ratio:8.2f}  {words}", flush=True)
        results[case] = {"embexp": mine, "by_hand": theirs, "ratio": ratio, "ratios": ratios}
    harness.save(options, described, results=results)
    return 0 if all(result["ratio"] >= TARGET for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
