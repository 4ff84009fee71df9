"""Drift from pretrained values: against whole tables in NumPy, in every runtime and layout, in bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import embexp
from embexp.runs import run as single
from embexp.specs.optimizers import SGD
from embexp.specs.tables import Combiner, Feature
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable
from embexp.training.freezing import watching
from embexp.training.freezing.watching import Origin, draw_sample
from tests.thoroughness import left_out

ITEMS, DIM, KNOWN = 80, 16, 50
LAYOUTS = {
    "variable": ["tables.item.storage=variable"],
    "split": ["tables.item.storage=split"],
    "memory_map": ["init@tables.item.init=memory_map"],
}


@dataclass(frozen=True)
class Matrix:
    """Rows in memory: a source, and a table that has them now."""

    values: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.values)

    @property
    def dim(self) -> int:
        return int(self.values.shape[1])

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]

    def memory_map(self) -> None:
        return None

    def take(self, numbers: np.ndarray) -> np.ndarray:
        return np.asarray(self.values[numbers])

    def blocks(self) -> Iterator[np.ndarray]:
        for start in range(0, self.rows, 7_000):
            yield self.values[start : start + 7_000]


def distances(now: np.ndarray, first: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.norm(now.astype(np.float64) - first.astype(np.float64), axis=1))


@settings(deadline=None, max_examples=30)
@given(rows=st.integers(1, 30_000), dim=st.integers(1, 5), part=st.floats(0.01, 1), seed=st.integers(0, 100))
def test_it_is_that_of_whole_tables(rows: int, dim: int, part: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    first, now = (generator.normal(size=(rows, dim)).astype(np.float32) for _ in range(2))
    mask = generator.random(rows) < part
    mask[int(generator.integers(rows))] = True
    origin = Origin(Matrix(first), lambda start, stop: mask[start:stop], seed)
    expected = distances(now[mask], first[mask])
    for found in (origin.full_drift(Matrix(now)), origin.sample_drift(Matrix(now))):
        assert found.rows == np.count_nonzero(mask)
        assert found.mean == pytest.approx(expected.mean(), rel=1e-12)
        assert found.largest == pytest.approx(expected.max(), rel=1e-12)
        norm = np.linalg.norm(first[mask].astype(np.float64), axis=1).mean()
        assert found.start_norm == pytest.approx(norm, rel=1e-12)
        assert found.relative == pytest.approx(expected.mean() / norm, rel=1e-12)
    assert origin.full_drift(Matrix(first)).largest == 0
    origin.close()


@settings(deadline=None, max_examples=30)
@given(rows=st.integers(1, 200_000), most=st.integers(1, 300), part=st.floats(0, 1), seed=st.integers(0, 50))
def test_a_sample_is_of_the_rows_in_question_and_each_once(rows: int, most: int, part: float, seed: int) -> None:
    mask = np.random.default_rng(seed).random(rows) < part

    def some(start: int, stop: int) -> np.ndarray:
        return mask[start:stop]

    found = draw_sample(some, rows, seed, most=most)
    assert len(found) == min(most, np.count_nonzero(mask))
    assert np.all(np.diff(found) > 0)
    assert mask[found].all()
    np.testing.assert_array_equal(found, draw_sample(some, rows, seed, most=most))


def test_a_sample_is_drawn_from_everywhere() -> None:
    found = draw_sample(lambda start, stop: np.ones(stop - start, np.bool_), 1_000_000, 1, most=10_000)
    counts = np.histogram(found, bins=10, range=(0, 1_000_000))[0]
    assert counts.min() > 850
    assert counts.max() < 1150
    assert not np.array_equal(found, draw_sample(lambda a, b: np.ones(b - a, np.bool_), 1_000_000, 2, most=10_000))


def test_no_second_copy_of_the_table_is_held() -> None:
    values = np.random.default_rng(0).normal(size=(400_000, 16)).astype(np.float32)
    now = Matrix(values + np.float32(0.25))
    tracemalloc.start()
    origin = Origin(Matrix(values), lambda start, stop: np.ones(stop - start, np.bool_), 0)
    assert tracemalloc.get_traced_memory()[0] < 0.05 * values.nbytes
    origin.sample_drift(now)
    found = origin.full_drift(now)
    assert tracemalloc.get_traced_memory()[1] < 0.3 * values.nbytes
    tracemalloc.stop()
    assert len(origin.sample) == watching.MOST_SAMPLED
    assert (found.rows, found.mean) == (400_000, pytest.approx(1.0, rel=1e-6))
    origin.close()


def test_one_step_of_known_length() -> None:
    """SGD at 0.5, a gradient of (3, 4) per occurrence: 2.5 for each time that a row is looked up."""
    first = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    table = EmbeddingTable("t", 6, 2, combiner=Combiner.SUM)
    table.write(0, first)
    pretrained = np.array([True, True, False, True, True, False])
    origin = Origin(Matrix(first), lambda start, stop: pretrained[start:stop], 0)
    step = tf.Variable(0, dtype=tf.int64)
    rule = SGD(learning_rate=0.5)
    engine = RowEngine({"t": table}, {"f": Feature(table="t")}, {"t": rule}, step=step, total_steps=1)
    engine.enqueue({"f": tf.constant([0, 1, 2, 1, 2, 2, 1])}, training=True)
    engine.activations()
    engine.apply_gradients({"f": tf.tile([[3.0, 4.0]], [7, 1])})
    for found in (origin.sample_drift(table), origin.full_drift(table)):
        assert found.mean == pytest.approx((2.5 + 3 * 2.5) / 4, rel=1e-6)
        assert found.largest == pytest.approx(7.5, rel=1e-6)
    origin.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of 50 of the 80 items, in no order."""
    path = tmp_path_factory.mktemp("file") / "item.npy"
    generator = np.random.default_rng(0)
    np.save(path, generator.normal(0, 0.3, (KNOWN, DIM)).astype(np.float32))
    tokens = generator.permutation(ITEMS)[:KNOWN]
    path.with_suffix(".tokens.txt").write_text("".join(f"{token}\n" for token in tokens))
    return path


def run(file: Path, directory: Path, *overrides: str) -> single.RunResult:
    spec = embexp.compose(
        [
            "experiment=clicks",
            "data.examples=4000",
            "data.users=60",
            f"data.items={ITEMS}",
            "train.batch_size=128",
            "train.steps=30",
            "train.epochs=null",
            "train.evaluate_every=10",
            "optimizer.learning_rate=0.1",
            f"output.cache={file.parent / 'cache'}",
            "pretrained@tables.item.pretrained=file",
            f"tables.item.pretrained.path={file}",
            *overrides,
        ]
    )
    directory.mkdir()
    return single.run(spec, directory)


def lines(result: single.RunResult) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (result.directory / "metrics.jsonl").read_text().splitlines()]
    return [line for line in found if line["event"] == "drift"]


PAIRS = [("function", layout) for layout in LAYOUTS] + [("session", "variable")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runtime", "layout"),
    [*PAIRS, *(pytest.param(*each, marks=left_out()) for each in (("session", "split"), ("estimator", "variable")))],
)
def test_runs_report_it(file: Path, tmp_path: Path, runtime: str, layout: str) -> None:
    frozen = ["freeze@tables.item.freeze=rows", "tables.item.freeze.rows=[[0,30]]"]
    quiet = ["output.plots=false", "output.baselines=false", "output.tensorboard=false"]
    result = run(file, tmp_path / "run", f"runtime={runtime}", *LAYOUTS[layout], *frozen, *quiet)
    tokens = np.array([int(line) for line in file.with_suffix(".tokens.txt").read_text().split()])
    moving = tokens >= 30
    table = embexp.load_run(result.directory).table("item")
    expected = distances(table[tokens], np.load(file))
    assert not expected[~moving].any()
    found = result.summary["drift"]
    assert list(found) == ["item"]
    assert found["item"]["rows"] == np.count_nonzero(moving)
    assert found["item"]["mean"] == pytest.approx(expected[moving].mean(), rel=1e-9)
    assert found["item"]["largest"] == pytest.approx(expected[moving].max(), rel=1e-9)
    reported = lines(result)
    assert [line["step"] for line in reported] == [10, 20, 30]
    assert reported[-1]["drift"] == found
    assert 0 < reported[0]["drift"]["item"]["mean"] < reported[1]["drift"]["item"]["mean"] < found["item"]["mean"]


def test_it_is_drawn_and_reported_to_tensorboard(file: Path, tmp_path: Path) -> None:
    early = ["train.early_stopping.patience=1", "train.early_stopping.min_delta=0.5"]
    result = run(file, tmp_path / "run", *early, "output.baselines=false")
    assert result.summary["best_step"] == 10
    assert result.summary["steps"] == 20
    # The values of step 10 are kept, and looked at again.
    reported = lines(result)
    assert [line["step"] for line in reported] == [10, 20, 10]
    assert reported[0]["drift"] == reported[2]["drift"] == result.summary["drift"]
    assert (result.directory / "plots" / "drift.png").stat().st_size > 10_000
    written = [
        (event.step, value.tag, float(tf.make_ndarray(value.tensor)))
        for path in (result.directory / "events" / "train").iterdir()
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]
    means = {step: value for step, tag, value in written if tag == "drift/item/mean"}
    assert means == {line["step"]: pytest.approx(line["drift"]["item"]["mean"]) for line in reported}


def test_without_evaluations_it_is_reported_at_the_end_and_by_a_sample_without_digests(
    file: Path, tmp_path: Path
) -> None:
    result = run(
        file,
        tmp_path / "run",
        "data.split.validation=0.0",
        "output.plots=false",
        "output.baselines=false",
        "output.digests=false",
    )
    assert [line["step"] for line in lines(result)] == [30]
    assert result.summary["drift"]["item"]["rows"] == KNOWN


def test_projected_rows_are_compared_as_they_were_filled(file: Path, tmp_path: Path) -> None:
    short = ["tables.item.dim=8", "tables.user.dim=8", "tables.item.pretrained.transform=truncate"]
    result = run(file, tmp_path / "run", *short, "output.plots=false", "output.baselines=false", "train.steps=3")
    tokens = np.array([int(line) for line in file.with_suffix(".tokens.txt").read_text().split()])
    expected = distances(embexp.load_run(result.directory).table("item")[tokens], np.load(file)[:, :8])
    assert result.summary["drift"]["item"]["mean"] == pytest.approx(expected.mean(), rel=1e-9)


def test_frozen_and_drawn_tables_have_none(file: Path, tmp_path: Path) -> None:
    quiet = ["output.baselines=false", "output.tensorboard=false"]
    result = run(file, tmp_path / "run", "freeze@tables.item.freeze=table", "train.steps=2", *quiet)
    assert result.summary["drift"] == {}
    assert not lines(result)
    assert not (result.directory / "plots" / "drift.png").exists()
