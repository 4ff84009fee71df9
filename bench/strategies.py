"""Throughput of each strategy against one processor, and the part of a step that goes to the rows.

    python -m bench.strategies [--quick] [--strategies NAME…] [--json FILE]

Each strategy trains the same experiments in a process of its own, several times in turn; ratios are taken within a
repetition, and their median counts. "busy" is the time that all cores together spend on a step, which other processes
disturb less. A step of the rows alone looks up and updates what a whole step does, without the dense part; the time
that cores are busy with it, over that of a whole step, is the rows' share. On one machine replicas share its cores, so
a ratio below 1 is what sharing a batch costs here, not what other devices would gain.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench import machine
from embexp.system import files

STRATEGIES = ("cpu", "mirrored", "tpu_simulator")
EXPERIMENTS = {
    # Small steps, in which what a strategy adds to each weighs most.
    "clicks": ["experiment=clicks", "data.examples=200000", "train.batch_size=1024"],
    # Steps with work to share: wide rows, wide layers.
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
    """Trains one experiment in one strategy and prints its figures as JSON."""
    import tensorflow as tf

    import embexp
    from embexp.initialization import filling
    from embexp.pretrained.aligned import Pretrained
    from embexp.runs import assembly, scanned, story
    from embexp.runtimes import execution
    from embexp.runtimes.execution import Blueprint
    from embexp.specs.running import RuntimeKind
    from embexp.strategies import build as strategies

    spec = embexp.compose(
        [*EXPERIMENTS[experiment], f"strategy={strategy}", f"output.cache={cache}", "train.steps=1000000"]
    )
    spec = spec.model_copy(update={"train": spec.train.model_copy(update={"epochs": None})})
    placement = strategies.build(spec.strategy)
    with strategies.opened(placement):
        data = scanned.read_data(spec, lambda what, part: None)
        sizes, given = scanned.table_sizes(spec, data.vocabularies), Pretrained()
        frozen = story.freeze_policies(spec, data, sizes, given, RuntimeKind.FUNCTION)
        sources = filling.sources(spec, sizes, given)
        plan = story.rhythm_of(spec, examples=len(data.scan.splits["train"]))
        made: list[assembly.Assembly] = []

        def assemble(tables: Any, counter: Any, **on_tpu: Any) -> assembly.Assembly:
            made.append(
                assembly.assemble(
                    spec,
                    tables,
                    counter,
                    dense_width=0,
                    output_bias=0.0,
                    total_steps=plan.steps,
                    placement=placement,
                    **on_tpu,
                )
            )
            return made[0]

        training = story.training_data(spec, data, plan)
        running = execution.of(
            RuntimeKind.FUNCTION,
            Blueprint(
                spec=spec,
                given=given,
                sources=sources,
                policies=frozen,
                tables=partial(filling.tables, spec, given, sources, frozen),
                assemble=assemble,
                training_spec=training.element_spec,
                prediction_spec=training.element_spec,
                placement=placement,
                total_steps=plan.steps,
            ),
            cache / "unused",
        )
        step = made[0].step

        def rows_alone(part: Any) -> None:
            found = step.backend.activations()
            step.backend.apply_gradients({name: 1e-6 * value for name, value in found.items()})

        @tf.function  # type: ignore[untyped-decorator]
        def rows_steps(iterator: Any, steps: Any) -> None:
            for _ in tf.range(steps):
                batch = next(iterator)
                step.backend.enqueue(step.features(batch), training=True)
                placement.run(rows_alone, batch)

        iterator = iter(running.dataset(training))
        whole, busy = _milliseconds(lambda steps: running.runtime.train(iterator, steps), seconds)
        rows, rows_busy = _milliseconds(lambda steps: rows_steps(iterator, tf.constant(steps, tf.int64)), seconds)
        figures = {"step_ms": whole, "busy_ms": busy, "rows_ms": rows, "rows_busy_ms": rows_busy}
        print(json.dumps({**figures, "examples_per_second": 1e3 * spec.train.batch_size / whole}))


def _milliseconds(train: Any, seconds: float) -> tuple[float, float]:
    """Time of a step, and the time that cores are busy with it, which other processes disturb less.

    Medians over calls of about a fifth of a second, for some seconds after tracing.
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
    """The figures of one strategy in a process of its own."""
    command = [sys.executable, "-m", "bench.strategies", "--child", strategy, experiment, str(cache), str(seconds)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{strategy} failed on {experiment}:\n{result.stderr[-3000:]}")
    found: dict[str, float] = json.loads(result.stdout.strip().splitlines()[-1])
    return found


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.strategies", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one repetition of a second each")
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES, help="which, after cpu")
    parser.add_argument("--json", type=Path, help="write the results here too")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        strategy, experiment, cache, seconds = options.child
        child(strategy, experiment, Path(cache), float(seconds))
        return 0
    described = machine.describe()
    for key, value in described.items():
        print(f"{key:12} {value}")
    names = list(dict.fromkeys(["cpu", *options.strategies]))
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for experiment in EXPERIMENTS:
            runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
            for _ in range(1 if options.quick else ROUNDS):
                for name in names:
                    runs[name].append(measure(name, experiment, Path(cache), 1.0 if options.quick else SECONDS))
            results[experiment] = runs
            print(
                f"\n{experiment:14} {'examples/s':>11} {'against cpu':>12} {'step ms':>9} {'busy ms':>9} {'share':>6}"
            )
            for name, figures in runs.items():
                middle = {key: statistics.median(each[key] for each in figures) for key in figures[0]}
                ratio = statistics.median(
                    ours["examples_per_second"] / theirs["examples_per_second"]
                    for ours, theirs in zip(figures, runs["cpu"], strict=True)
                )
                share = statistics.median(each["rows_busy_ms"] / each["busy_ms"] for each in figures)
                print(
                    f"  {name:12} {middle['examples_per_second']:11,.0f} {ratio:11.2f}x {middle['step_ms']:9.2f}"
                    f" {middle['busy_ms']:9.2f} {share:6.0%}",
                    flush=True,
                )
    if options.json is not None:
        files.write_text(options.json, json.dumps({"machine": described, "results": results}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
