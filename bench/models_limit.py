"""The least time of a step: its products, and for DLRM its memory traffic, at this machine's measured speeds."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.models_cases import LONGEST, NUMBERS, SHORTEST

_SIDE, _COPIED = 2048, 64 << 20
_REPEATS = 7


def limit(spec: Any, tables: Mapping[str, tuple[int, int]]) -> dict[str, float] | None:
    """What a step costs at least; None for models that are neither DLRM nor mostly products.

    Args:
        spec: of the run.
        tables: rows and dim by name.

    Returns:
        `gflop`, `mib` (0 where only products are counted), the speeds `gflops` and `gib_per_second`, and `ms`, the sum
        of both at these speeds.
    """
    batch, count = spec.train.batch_size, len(tables)
    rows, dim = next(iter(tables.values()))
    moved = 0.0
    match spec.model.kind:
        case "dlrm":
            flops = _flops(spec.model, batch, count, dim)
            moved = _bytes(spec.model, batch, count, dim, 0 if spec.optimizer.kind == "sgd" else 1)
        case "text_cnn":
            flops = _text_flops(batch, dim, spec.model.maps, spec.model.widths)
        case "complex" if spec.data.negatives is None:
            flops = 6.0 * batch * rows * dim
        case _:
            return None
    gflops, speed = _product_speed(), _copy_speed()
    milliseconds = flops / gflops / 1e6 + moved / speed / 2**30 * 1e3
    return {"gflop": flops / 1e9, "mib": moved / 2**20, "gflops": gflops, "gib_per_second": speed, "ms": milliseconds}


def _text_flops(batch: int, dim: int, maps: int, widths: Sequence[int]) -> float:
    """Forward, each word with each tap of each map; backward, two sums over one window of each text and map.

    Only the window that is the maximum has a gradient. Products with the padding are 0.
    """
    words = (SHORTEST + LONGEST) / 2
    return 2.0 * batch * dim * maps * sum(widths) * (words + 2)


def _widths(model: Any, count: int, dim: int) -> tuple[list[int], list[int]]:
    vectors = count + 1
    top = dim + vectors * (vectors - 1) // 2 + (count * dim if model.concat else 0)
    return [NUMBERS, *model.bottom, dim], [top, *model.top, 1]


def _flops(model: Any, batch: int, count: int, dim: int) -> float:
    """Forward, by the inputs, and by the weights: three products of a layer; the first has no gradient by its input."""
    bottom, top = _widths(model, count, dim)
    layers = sum(a * b for widths in (bottom, top) for a, b in itertools.pairwise(widths))
    pairs = 2 * (count + 1) ** 2 * dim  # the Gram matrix, and its gradient
    return 2.0 * batch * (3 * layers - bottom[0] * bottom[1] + pairs)


def _bytes(model: Any, batch: int, count: int, dim: int, slots: int) -> float:
    """Numbers of float32 that are read or written at least, if every intermediate result is written and read once.

    Of each looked-up vector: the row is read, the vector written and read, its gradient written and read, and the row
    and its slots read and written. Of each layer's output and its gradient: written once and read twice.
    """
    bottom, top = _widths(model, count, dim)
    vectors = batch * count * dim * (1 + 2 + 2 + 2 + 2 * slots)
    outputs = batch * 2 * 3 * (sum(bottom[1:]) + sum(top))
    return 4.0 * (vectors + outputs)


def _product_speed() -> float:
    """GFLOP/s of a product of large matrices."""
    import tensorflow as tf

    x = tf.random.stateless_normal([_SIDE, _SIDE], [0, 0])
    product = tf.function(lambda: tf.matmul(x, x)[0, 0])
    return 2 * _SIDE**3 / _least(product) / 1e9


def _copy_speed() -> float:
    """GiB/s of a copy, read and written, with as many threads as any operation."""
    import tensorflow as tf

    x = tf.Variable(tf.zeros([_COPIED // 4]))
    y = tf.Variable(tf.zeros([_COPIED // 4]))

    @tf.function  # type: ignore[untyped-decorator]
    def copy() -> Any:
        y.assign(-x)  # an operation of one pass; an assignment alone would share the memory
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
