"""Incremental checkpoints of every strategy: each point is restored to the bit, also by another strategy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from embexp.checkpoints import store, streaming
from embexp.specs.freezing import FreezeRows
from embexp.specs.optimizers import Adam
from embexp.specs.strategies import CPU, Mirrored
from embexp.specs.tables import Storage
from embexp.system.tensor_bundle.increments import is_incremental
from tests import checkpoint_values
from tests.checkpoint_values import write_checkpoint
from tests.contracts import experiments
from tests.contracts.strategies import STRATEGIES, kinds, marked
from tests.contracts.test_touched_rows import BATCHES

SPLIT: dict[str, Any] = {"freeze": FreezeRows(rows=((2, 5), (9, 10))), "storage": Storage.SPLIT}


def bits(directory: Path) -> dict[str, bytes]:
    return {key: value.tobytes() for key, value in checkpoint_values.every(directory).items()}


def series(strategy: Any, adam: Adam, folder: Path, **settings: Any) -> dict[Path, dict[str, bytes]]:
    """A whole checkpoint and three incremental ones, and what whole ones of the same steps hold."""
    points: dict[Path, dict[str, bytes]] = {}
    base: Path | None = None
    with experiments.making(experiments.spec_of(strategy, adam, **settings)) as made:
        changes = streaming.Changes(made.execution.tables, made.execution.tables if not adam.lazy_adam else ())
        batches = iter(made.execution.dataset(experiments.dataset(BATCHES[:4])))
        for number in range(4):
            made.execution.runtime.train(batches, 1)
            directory, changed = folder / f"step_{number:08d}", changes.collect()
            if base is None:
                write_checkpoint(made.checkpoint, directory)
            else:
                prefix = store.prefix_in(base)
                write = partial(streaming.write, made.checkpoint, base=prefix, changed=changed)
                store.write_by(lambda prefix, write=write: write(prefix), directory)
            changes.saved()
            points[directory] = bits(write_checkpoint(made.checkpoint, folder / f"whole_{number}"))
            base = directory
    return points


def check_restored(
    points: dict[Path, dict[str, bytes]], strategy: Any, adam: Adam, folder: Path, **settings: Any
) -> None:
    with experiments.making(experiments.spec_of(strategy, adam, seed=7, **settings)) as made:
        for directory, expected in points.items():
            made.execution.restore(directory)
            found = bits(write_checkpoint(made.checkpoint, folder / f"again_{directory.name}"))
            assert {key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)} == set()


@pytest.mark.parametrize("strategy", marked(kinds()))
def test_every_point_is_restored_to_the_bit(strategy: str, tmp_path: Path) -> None:
    check(strategy, tmp_path)


@pytest.mark.parametrize("strategy", ["cpu", "tpu_simulator, 2"])
def test_split_tables_too(strategy: str, tmp_path: Path) -> None:
    check(strategy, tmp_path, **SPLIT)


def check(strategy: str, tmp_path: Path, **settings: Any) -> None:
    points = series(STRATEGIES[strategy], Adam(learning_rate=0.0625), tmp_path, **settings)
    assert [is_incremental(directory / "checkpoint") for directory in points] == [False, True, True, True]
    check_restored(points, STRATEGIES[strategy], Adam(), tmp_path, **settings)
    other = CPU() if strategy != "cpu" else Mirrored(replicas=2)
    check_restored(points, other, Adam(), tmp_path, **settings)


def test_an_optimizer_that_moves_every_row_writes_whole_tables(tmp_path: Path) -> None:
    adam = Adam(learning_rate=0.0625, lazy_adam=False)
    points = series(CPU(), adam, tmp_path)
    assert not any(is_incremental(directory / "checkpoint") for directory in points)
    check_restored(points, CPU(), adam, tmp_path)
