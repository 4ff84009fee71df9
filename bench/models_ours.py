"""embexp in `bench.models`: a run that has started, its batches for the others, its profile, and its limit.

The limit is the least time of a step: its products, and for DLRM its memory traffic, at this machine's measured speed.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from bench.models_cases import LONGEST, NUMBERS, SHORTEST, Case
from embexp.system import environment

BATCHES = 24
"""Number of different batches that the other libraries get."""
PARTS = ("rows", "forward", "backward", "dense_rule")
"""The name scopes in a training step (`embexp.training.step`)."""
LARGEST = 8
_SCOPE = re.compile(f"({'|'.join(PARTS)})(?:_[0-9]+)?")
_SIDE, _COPIED = 2048, 64 << 20
_REPEATS = 7


@dataclass(frozen=True)
class Ours:
    """A run that has started.

    Attributes:
        train: trains so many steps.
        spec: spec of the run.
        sizes: rows and dim of each table by name.
    """

    train: Any
    spec: Any
    sizes: dict[str, tuple[int, int]]

    def profile(self, steps: int) -> dict[str, float]:
        """Milliseconds of a step by part; see `parts`."""
        import tensorflow as tf

        with tempfile.TemporaryDirectory() as folder:
            tf.profiler.experimental.start(folder)
            self.train(steps)
            tf.profiler.experimental.stop()
            return parts(Path(folder), steps)


def composed(case: Case, folder: Path, threads: int) -> Any:
    """Writes the data of a case into the folder, and returns the spec of a run without an end."""
    import embexp

    overrides = [
        *case.overrides,
        f"data.path={case.data(folder)}",
        f"output.cache={folder}/cache",
        "train.steps=1000000",
        "train.epochs=null",
        f"strategy.intra_op_threads={threads}",
    ]
    return embexp.compose(overrides, config_dir=folder / "conf" if (folder / "conf").exists() else None)


@contextlib.contextmanager
def begun(case: Case, folder: Path, threads: int) -> Iterator[Ours]:
    """Starts a run and fills its tables. Writes `batches.npz` and `sizes.json` into the folder."""
    spec = composed(case, folder, threads)
    environment.load_tensorflow(**spec.strategy.kernels)
    from embexp.records.folder import RunFolder
    from embexp.runs import run
    from embexp.runs.execute import execute
    from embexp.runs.prepare import prepare

    run.prepare_operations(spec.strategy, print)
    prepared = prepare(spec)
    with execute(prepared, run.prepare_machine(spec.strategy), RunFolder(folder)) as started:
        dataset = started.execution.dataset(started.batches)
        tables = started.execution.tables
        sizes = {name: (table.rows, table.dim) for name, table in tables.items()}
        (folder / "sizes.json").write_text(json.dumps({"tables": sizes, "model": spec.model.model_dump(mode="json")}))
        np.savez(folder / "batches.npz", **cast(dict[str, Any], _columns(dataset)))
        iterator = iter(dataset)
        runtime = started.execution.runtime
        yield Ours(train=lambda steps: runtime.train(iterator, steps), spec=spec, sizes=sizes)


def _columns(dataset: Any) -> dict[str, np.ndarray]:
    """The first batches as arrays [BATCHES, ...]: ids by column, `dense` and `label`.

    Lists are padded with -1 to the length of the longest.
    """
    batches = list(dataset.take(BATCHES))
    found = {}
    for name, ids in batches[0].ids.items():
        each = [batch.ids[name] for batch in batches]
        if hasattr(ids, "to_tensor"):
            longest = max(int(one.bounding_shape()[1]) for one in each)
            each = [one.to_tensor(-1, shape=[None, longest]) for one in each]
        found[name] = np.stack([one.numpy() for one in each])
    found["dense"] = np.stack([batch.dense.numpy() for batch in batches])
    found["label"] = np.stack([batch.labels.numpy() for batch in batches])
    return found


def parts(folder: Path, steps: int) -> dict[str, float]:
    """Milliseconds of a step by part. They are summed over threads, so the total may exceed the step's duration.

    Args:
        folder: the folder given to `tf.profiler.experimental.start`.
        steps: number of steps that were profiled.

    Returns:
        Milliseconds of each name in `PARTS`, of `input` (the threads of tf.data) and of `other`, and then of the
        `LARGEST` kinds of operation.
    """
    found: dict[str, float] = dict.fromkeys((*PARTS, "input", "other"), 0.0)
    kinds: collections.defaultdict[str, float] = collections.defaultdict(float)
    for name, milliseconds in _events(folder):
        if name == "PrefetchProduce":
            found["input"] += milliseconds / steps
            continue
        scopes, colon, kind = name.rpartition(":")
        if not colon or "::" in name or "/" not in scopes:
            continue
        part = _part(scopes)
        found[part] += milliseconds / steps
        kinds[f"{part}: {kind}"] += milliseconds / steps
    largest = sorted(kinds.items(), key=lambda kind: -kind[1])[:LARGEST]
    return {**found, **dict(largest)}


def _part(scopes: str) -> str:
    """The part of a step that an operation belongs to, by its name. TensorFlow numbers scopes of the same name."""
    if "/gradient_tape/" in scopes:  # belongs to the operations in the scope whose name follows
        return "backward"
    return next((found[1] for scope in scopes.split("/") if (found := _SCOPE.fullmatch(scope))), "other")


def _events(folder: Path) -> Iterator[tuple[str, float]]:
    """Names and milliseconds of all events on the CPU."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    [file] = folder.rglob("*.xplane.pb")
    space = xplane_pb2.XSpace()
    space.ParseFromString(file.read_bytes())
    for plane in space.planes:
        if "CPU" in plane.name:
            for line in plane.lines:
                for event in line.events:
                    yield plane.event_metadata[event.metadata_id].name, event.duration_ps / 1e9


def limit(spec: Any, tables: Mapping[str, tuple[int, int]]) -> dict[str, float] | None:
    """The least cost of a step; None for models that are neither DLRM nor mostly products.

    Args:
        spec: spec of the run.
        tables: rows and dim of each table by name.

    Returns:
        `gflop`, `mib` (0 if only products are counted), the speeds `gflops` and `gib_per_second`, and `ms`, the time
        that both take at these speeds.
    """
    batch, count = spec.train.batch_size, len(tables)
    rows, dim = next(iter(tables.values()))
    moved = 0.0
    match spec.model.kind:
        case "dlrm":
            flops = _flops(spec.model, batch, count, dim)
            moved = _bytes(spec.model, batch, count, dim, 0 if spec.optimizer.kind == "sgd" else 1)
        case "dcn_v2":
            flops = _cross_flops(spec.model, batch, NUMBERS + count * dim)
        case "text_cnn":
            flops = _text_flops(batch, dim, spec.model.maps, spec.model.widths)
        case "complex" if spec.data.negatives is None:
            flops = 6.0 * batch * rows * dim
        case _:
            return None
    gflops, speed = _product_speed(), _copy_speed()
    milliseconds = flops / gflops / 1e6 + moved / speed / 2**30 * 1e3
    return {"gflop": flops / 1e9, "mib": moved / 2**20, "gflops": gflops, "gib_per_second": speed, "ms": milliseconds}


def _cross_flops(model: Any, batch: int, width: int) -> float:
    """Three products per matrix: forward, gradient of the inputs, and gradient of the weights."""
    rank = model.low_rank(width)
    crosses = model.layers * (width**2 if rank is None else 2 * width * rank)
    deep = sum(a * b for a, b in itertools.pairwise([width, *model.hidden]))
    return 6.0 * batch * (crosses + deep + width + model.hidden[-1])


def _text_flops(batch: int, dim: int, maps: int, widths: Sequence[int]) -> float:
    """Forward, each word with each tap of each map. Backward, two sums over one window per text and map.

    Only the window with the maximum has a gradient. Products with padding are 0.
    """
    words = (SHORTEST + LONGEST) / 2
    return 2.0 * batch * dim * maps * sum(widths) * (words + 2)


def _widths(model: Any, count: int, dim: int) -> tuple[list[int], list[int]]:
    vectors = count + 1
    top = dim + vectors * (vectors - 1) // 2 + (count * dim if model.concat else 0)
    return [NUMBERS, *model.bottom, dim], [top, *model.top, 1]


def _flops(model: Any, batch: int, count: int, dim: int) -> float:
    """Three products per layer: forward, gradient of the inputs, except in the first layer, and of the weights."""
    bottom, top = _widths(model, count, dim)
    layers = sum(a * b for widths in (bottom, top) for a, b in itertools.pairwise(widths))
    pairs = 2 * (count + 1) ** 2 * dim  # the Gram matrix and its gradient
    return 2.0 * batch * (3 * layers - bottom[0] * bottom[1] + pairs)


def _bytes(model: Any, batch: int, count: int, dim: int, slots: int) -> float:
    """The least number of float32 values that are read or written, if intermediate results are written and read once.

    For each looked-up vector, the row is read, the vector and its gradient are written and read, and the row and its
    slots are read and written. Each layer's output and its gradient are written once and read twice.
    """
    bottom, top = _widths(model, count, dim)
    vectors = batch * count * dim * (1 + 2 + 2 + 2 + 2 * slots)
    outputs = batch * 2 * 3 * (sum(bottom[1:]) + sum(top))
    return 4.0 * (vectors + outputs)


def _product_speed() -> float:
    """GFLOP/s of a product of two large matrices."""
    import tensorflow as tf

    x = tf.random.stateless_normal([_SIDE, _SIDE], [0, 0])
    product = tf.function(lambda: tf.matmul(x, x)[0, 0])
    return 2 * _SIDE**3 / _least(product) / 1e9


def _copy_speed() -> float:
    """GiB/s of a copy, counting reads and writes, with as many threads as any operation."""
    import tensorflow as tf

    x = tf.Variable(tf.zeros([_COPIED // 4]))
    y = tf.Variable(tf.zeros([_COPIED // 4]))

    @tf.function  # type: ignore[untyped-decorator]
    def copy() -> Any:
        y.assign(-x)  # one operation in one pass; an assignment alone would share the memory
        return tf.constant(0.0)

    return 2 * _COPIED / _least(copy) / 2**30


def _least(function: Any) -> float:
    function()
    seconds = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        function().numpy()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
