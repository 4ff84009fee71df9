"""Arrays whose memory does not begin where TensorFlow's kernels want it to: they abort the process on such."""

from __future__ import annotations

import subprocess
from pathlib import Path

CODE = """
import numpy as np
from embexp.data.batches import evaluation_batches, training_batches
from embexp.data.columns import Columns
from embexp.data.examples import Examples, ListColumn

def shifted(array, offset):
    memory = np.empty(array.nbytes + 128, np.uint8)
    first = (offset - memory.ctypes.data) % 64
    result = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    assert result.ctypes.data % 64 == offset
    return result

def check(shift, shift_wide):
    n = 1003
    random = np.random.default_rng(0)
    splits = np.arange(n + 1, dtype=np.int64)
    examples = Examples(
        count=n,
        id_columns=("a", "b"),
        ids=shift(random.integers(0, 99, (n, 2)).astype(np.int32)),
        lists={"c": ListColumn(shift(random.integers(0, 99, n).astype(np.int32)), shift_wide(splits))},
        weights={"w": shift(random.random(n).astype(np.float32))},
        dense=shift(random.random((n, 3)).astype(np.float32)),
        labels=shift(random.random(n).astype(np.float32)),
    )
    columns = Columns(ids={"a": "a", "b": "a", "c": "c"}, weights={"w": "c"}, dense=("x", "y", "z"), label="l")
    rows = shift_wide(np.arange(1, n, 2, dtype=np.int64))
    whole = list(evaluation_batches(examples, rows, columns, batch_size=97))
    for read, expected in (
        (np.concatenate([b.ids["a"] for b in whole]), examples.ids[rows, 0]),
        (np.concatenate([b.ids["b"] for b in whole]), examples.ids[rows, 1]),
        (np.concatenate([b.ids["c"].flat_values for b in whole]), examples.lists["c"].values[rows]),
        (np.concatenate([b.weights["w"].flat_values for b in whole]), examples.weights["w"][rows]),
        (np.concatenate([b.dense for b in whole]), examples.dense[rows]),
        (np.concatenate([b.labels for b in whole]), examples.labels[rows]),
    ):
        np.testing.assert_array_equal(read, expected)
    [batch] = training_batches(
        examples, rows, columns, batch_size=len(rows), seed=0, shuffle=False, window=100, steps=1
    )
    np.testing.assert_array_equal(batch.labels, examples.labels[rows])

for offset in (4, 16, 32):
    wide = 8 if offset == 4 else offset  # int64 begins at multiples of 8 at least
    check(lambda array: shifted(array, offset), lambda array: shifted(array, wide))
"""


def test_unaligned_arrays_do_not_abort_the_process(forked: Path) -> None:
    result = subprocess.run([forked / "python", "-c", CODE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
