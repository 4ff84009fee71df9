"""embexp's side of `bench.models`: a run that has begun, its batches for the peers, and the profile of its steps."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from bench import models_profile
from bench.models_cases import Case

BATCHES = 24
"""Different batches that the peers get."""


@dataclass(frozen=True)
class Ours:
    """A run that has begun.

    Attributes:
        train: does so many steps.
        spec: describes it.
        sizes: rows and dim of its tables, by name.
    """

    train: Any
    spec: Any
    sizes: dict[str, tuple[int, int]]

    def profile(self, steps: int) -> dict[str, float]:
        """Milliseconds of a step by part, see `models_profile`."""
        import tensorflow as tf

        with tempfile.TemporaryDirectory() as folder:
            tf.profiler.experimental.start(folder)
            self.train(steps)
            tf.profiler.experimental.stop()
            return models_profile.parts(Path(folder), steps)


def composed(case: Case, folder: Path, threads: int) -> Any:
    """Writes the data of a case into the folder, and returns the spec of a run that does not end by itself."""
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
    """A run with its tables filled; writes `batches.npz` and `sizes.json` into the folder."""
    from embexp.runs.execute import execute
    from embexp.runs.prepare import prepare
    from embexp.runs.run import prepare_machine

    spec = composed(case, folder, threads)
    prepared = prepare(spec)
    with execute(prepared, prepare_machine(spec.strategy), folder / "estimator") as started:
        dataset = started.execution.dataset(started.batches)
        tables = started.execution.tables
        sizes = {name: (table.rows, table.dim) for name, table in tables.items()}
        (folder / "sizes.json").write_text(json.dumps({"tables": sizes, "model": spec.model.model_dump(mode="json")}))
        np.savez(folder / "batches.npz", **cast(dict[str, Any], _columns(dataset)))
        iterator = iter(dataset)
        runtime = started.execution.runtime
        yield Ours(train=lambda steps: runtime.train(iterator, steps), spec=spec, sizes=sizes)


def _columns(dataset: Any) -> dict[str, np.ndarray]:
    """Arrays [BATCHES, ...] of the first batches: ids by column, `dense` and `label`.

    Lists are padded with -1 to the longest of all.
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
