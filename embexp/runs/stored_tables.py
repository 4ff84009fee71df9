"""The tables of a finished run, from the files of its checkpoint: without its model, its code and TensorFlow."""

from __future__ import annotations

import numpy as np

from embexp.pretrained import earlier
from embexp.pretrained.aligned import earlier_rows
from embexp.records.folder import RunFolder
from embexp.specs.run import RunSpec
from embexp.system import caching, digests


def read(folder: RunFolder, spec: RunSpec, table: str) -> np.ndarray:
    """The final rows of a table, float32 [vocabulary_size, dim], in memory.

    Args:
        folder: of the run.
        spec: of the run.
        table: one of its tables.

    Raises:
        NotARunError: the run left no checkpoint.
        DataError: the checkpoint is damaged.
        RunError: the rows are in a pretrained file, which has changed.
    """
    source = earlier_rows(earlier.open_run(folder.path, cache=caching.cache_folder(spec.output.cache)), table)
    values = np.empty((source.rows, source.dim), np.float32)
    for start in range(0, source.rows, digests.ROWS_PER_BLOCK):
        stop = min(start + digests.ROWS_PER_BLOCK, source.rows)
        values[start:stop] = source.read(start, stop)
    return values
