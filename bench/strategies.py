"""Throughput of each strategy relative to the CPU, and the share of a step that the rows take.

    python -m bench.strategies [--quick] [--strategies NAME…] [--json FILE]

Each strategy trains the same experiments in its own process, in several repetitions. Ratios are taken within a
repetition, and their median is reported. "busy" is the CPU time of a step over all cores, which other processes disturb
less. A step of only the rows has the same lookups and updates, but no dense part. Its CPU time relative to a whole step
is the share of the rows. On one machine, replicas share its cores. So a ratio below 1 is the cost of sharing a batch,
and does not predict separate devices.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import harness

STRATEGIES = ("cpu", "mirrored", "tpu_simulator", "tpu_simulator V2")
"""Strategies by name, some with the embedding hardware of their TPU."""
EXPERIMENTS = {
    # Small steps, where the overhead of a strategy counts most.
    "clicks": ["experiment=clicks", "data.examples=200000", "train.batch_size=1024"],
    # Large steps: wide rows, wide layers.
    "wide": [
        "experiment=clicks",
        "data.examples=200000",
        "data.users=100000",
        "data.items=50000",
        "model=mlp",
        "model.hidden=[512,256]",
        "tables.user.dim=64",
        "tables.item.dim=64",
        "train.batch_size=4096",
    ],
}
SECONDS, ROUNDS = 3.0, 3


def child(strategy: str, experiment: str, cache: Path, seconds: float) -> None:
    """Trains one experiment with one strategy, and prints its figures as JSON."""
    import tensorflow as tf

    import embexp
    from embexp.runs import execute
    from embexp.runs.execute import start
    from embexp.runs.prepare import prepare
    from embexp.runs.runtimes.execution import Blueprint
    from embexp.specs.running import RuntimeKind
    from embexp.strategies import strategy as strategies
    from embexp.training.step import Assembly

    kind, _, feature = strategy.partition(" ")
    hardware = [f"strategy.embedding_feature={feature}"] if feature else []
    words = [f"strategy={kind}", *hardware, f"output.cache={cache}", "train.steps=1000000"]
    spec = embexp.compose([*EXPERIMENTS[experiment], *words])
    spec = spec.model_copy(update={"train": spec.train.model_copy(update={"epochs": None})})
    place = strategies.build(spec.strategy)
    with place.active():
        prepared = prepare(spec)
        total = prepared.schedule.steps
        made: list[Assembly] = []

        def assemble(embeddings: Any, counter: Any) -> Assembly:
            dense = execute.dense_settings(spec, rows=prepared.tables.rows, width=0, total_steps=total)
            made.append(execute.assemble(dense, place, embeddings, counter))
            return made[0]

        training = execute.training_batches(prepared, place)
        running = start(
            RuntimeKind.FUNCTION,
            Blueprint(
                plans=execute.table_plans(prepared.tables, execute.initial_rows(prepared.tables)),
                features=spec.features,
                columns={name: spec.column_of(name) for name in spec.features},
                assemble=assemble,
                training_spec=training.element_spec,
                strategy=place,
                total_steps=total,
                estimator_folder=cache / "unused",
            ),
        )
        step = made[0].step

        def rows_alone(part: Any) -> None:
            found = step.backend.activations()
            step.backend.apply_gradients({name: 1e-6 * value for name, value in found.items()})

        @tf.function  # type: ignore[untyped-decorator]
        def rows_steps(iterator: Any, steps: Any) -> None:
            for _ in tf.range(steps):
                batch = next(iterator)
                step.backend.enqueue(step.features(batch, training=True), training=True)
                place.run(rows_alone, batch)

        iterator = iter(running.dataset(training))
        whole, busy = _milliseconds(lambda steps: running.runtime.train(iterator, steps), seconds)
        rows, rows_busy = _milliseconds(lambda steps: rows_steps(iterator, tf.constant(steps, tf.int64)), seconds)
        figures = {"step_ms": whole, "busy_ms": busy, "rows_ms": rows, "rows_busy_ms": rows_busy}
        print(json.dumps({**figures, "examples_per_second": 1e3 * spec.train.batch_size / whole}))


def _milliseconds(train: Any, seconds: float) -> tuple[float, float]:
    """Wall time and CPU time of a step, in milliseconds.

    They are medians over calls of about 0.2 s each, during `seconds` after tracing.
    """
    train(1)
    began = time.perf_counter()
    train(10)
    steps = max(1, round(2.0 / max(time.perf_counter() - began, 1e-6)))
    times, busy = [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began, began_busy = time.perf_counter(), time.process_time()
        train(steps)
        times.append(1e3 * (time.perf_counter() - began) / steps)
        busy.append(1e3 * (time.process_time() - began_busy) / steps)
    return statistics.median(times), statistics.median(busy)


def measure(strategy: str, experiment: str, cache: Path, seconds: float) -> dict[str, float]:
    """Measures one strategy in its own process."""
    return dict(harness.figures("strategies", "--child", strategy, experiment, cache, seconds))


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0."""
    parser = harness.parser("strategies", __doc__, quick="one repetition of a second each")
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES, help="strategies to measure in addition to cpu")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        strategy, experiment, cache, seconds = options.child
        child(strategy, experiment, Path(cache), float(seconds))
        return 0
    described = harness.introduce()
    names = list(dict.fromkeys(["cpu", *options.strategies]))
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for experiment in EXPERIMENTS:
            runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
            for _ in range(1 if options.quick else ROUNDS):
                for name in names:
                    runs[name].append(measure(name, experiment, Path(cache), 1.0 if options.quick else SECONDS))
            results[experiment] = runs
            print(f"\n{experiment:18} {'examples/s':>11} {'vs. cpu':>12} {'step ms':>9} {'busy ms':>9} {'share':>6}")
            for name, figures in runs.items():
                middle = {key: statistics.median(each[key] for each in figures) for key in figures[0]}
                speeds = [[each["examples_per_second"] for each in those] for those in (figures, runs["cpu"])]
                ratio = statistics.median(harness.ratios(*speeds))
                share = statistics.median(each["rows_busy_ms"] / each["busy_ms"] for each in figures)
                print(
                    f"  {name:16} {middle['examples_per_second']:11,.0f} {ratio:11.2f}x {middle['step_ms']:9.2f}"
                    f" {middle['busy_ms']:9.2f} {share:6.0%}",
                    flush=True,
                )
    harness.save(options, described, results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
