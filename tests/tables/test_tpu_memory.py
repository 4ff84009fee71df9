"""Tables on (simulated) SparseCores: `TPUEmbeddingV2`, set up and used by embexp, against the row engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.errors import RunError, VocabularyError
from embexp.specs.optimizers import FTRL, SGD, Adagrad, PiecewiseSchedule
from embexp.specs.sparse_cores import Limits
from embexp.specs.tables import Combiner, Feature
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.tpu_backend import TPUBackend
from embexp.tables.tpu_tables import TPUTable
from tests.strategies.simulation.programs import rows_of
from tests.tables.test_tpu_backend import (
    BATCH,
    DIM,
    FIRST,
    FROZEN,
    INPUTS,
    ROWS,
    STEPS,
    Recorded,
    chosen,
    on_tpu,
    spec_of,
    trained_alone,
    trained_on_tpu,
)

SPEC = tf.TensorSpec([BATCH], tf.int64)


def on_sparse_cores(cores: int = 1, sparse_cores: int = 4, feature: str = "V2") -> Any:
    return embexp.tpu_simulator(cores=cores, embedding_feature=feature, sparse_cores=sparse_cores)


@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("combiner", [Combiner.MEAN, Combiner.SUM, Combiner.SQRTN])
@pytest.mark.parametrize("kind", INPUTS)
def test_each_input_trains_as_in_the_row_engine(kind: str, combiner: Combiner, split: bool) -> None:
    feature, ids = chosen(kind, combiner)
    expected, alone = trained_alone(feature, ids, SGD(learning_rate=0.5), combiner, 1)
    with on_sparse_cores() as strategy:
        frozen = FROZEN if split else None
        backend, table, step = on_tpu(strategy, feature, spec_of(ids()), combiner=combiner, frozen_rows=frozen)
        assert table.read(0, ROWS).tobytes() == FIRST.tobytes()
        [found] = trained_on_tpu(strategy, ids, backend, step, 1)
        rows = table.read(0, ROWS)
    np.testing.assert_allclose(found, expected[0], rtol=1e-6, atol=1e-6)
    moved = alone.read(0, ROWS).copy()
    if split:
        assert rows[FROZEN].tobytes() == FIRST[FROZEN].tobytes()
        moved[FROZEN] = FIRST[FROZEN]
    np.testing.assert_allclose(rows, moved, rtol=1e-6, atol=1e-6)


def test_learning_rates_follow_the_step() -> None:
    feature, ids = INPUTS["ragged"]
    schedule = PiecewiseSchedule(boundaries=(1, 3), values=(1.0, 0.25, 0.5), warmup_steps=1)
    optimizer = Adagrad(learning_rate=0.5, schedule=schedule)
    _, alone = trained_alone(feature, ids, optimizer, Combiner.MEAN, STEPS)
    with on_sparse_cores() as strategy:
        backend, table, step = on_tpu(strategy, feature, spec_of(ids()), optimizer=optimizer)
        trained_on_tpu(strategy, ids, backend, step, STEPS)
        np.testing.assert_allclose(table.read(0, ROWS), alone.read(0, ROWS), rtol=1e-5, atol=1e-6)


def test_rows_that_never_move_keep_their_bits_whatever_comes() -> None:
    first = FIRST.copy()
    first[3], first[4] = -0.0, np.finfo(np.float32).tiny
    with on_sparse_cores() as strategy:
        backend, table, step = on_tpu(strategy, Feature(table="t"), SPEC, frozen_rows=FROZEN, first=first)

        @tf.function(autograph=False)
        def train() -> None:
            backend.enqueue({"f": tf.constant([3, 4, 12, 1], tf.int64)}, training=True)

            def replica() -> None:
                found = backend.activations()["f"]
                backend.apply_gradients({"f": found * np.float32(np.inf)})

            backend.run(replica)
            step.assign_add(1)

        train()
        rows = table.read(0, ROWS)
    assert rows[FROZEN].tobytes() == first[FROZEN].tobytes()
    assert not np.isfinite(rows[1]).any()


@pytest.mark.parametrize(("source", "target"), [("V1", "V2"), ("V2", "V1"), ("V2", "V2")])
def test_checkpoints_are_of_rows_and_not_of_places(source: str, target: str, tmp_path: Any) -> None:
    """The same bits in any memory, here from one chip to two."""
    feature, ids = INPUTS["dense"]
    with on_sparse_cores(1, 4, source) as strategy:
        backend, table, step = on_tpu(strategy, feature, spec_of(ids()), optimizer=FTRL(), frozen_rows=FROZEN)
        trained_on_tpu(strategy, ids, backend, step, 3)
        prefix = tf.train.Checkpoint(embedding=TableCheckpoint([table])).write(str(tmp_path / "saved"))
        saved = {slot: table.read(0, ROWS, slot) for slot in (None, *table.slots)}
    with on_sparse_cores(2, 2, target) as strategy:
        first = FIRST.copy()
        first[~FROZEN] = 0
        backend, table, _ = on_tpu(strategy, feature, spec_of(ids()), optimizer=FTRL(), frozen_rows=FROZEN, first=first)
        tf.train.Checkpoint(embedding=TableCheckpoint([table])).read(prefix).assert_existing_objects_matched()
        backend.load()
        for slot, values in saved.items():
            assert table.read(0, ROWS, slot).tobytes() == values.tobytes()
            assert table.read(5, 9, slot).tobytes() == values[5:9].tobytes()
            assert table.take(np.array([0, 2, 12]), slot).tobytes() == values[[0, 2, 12]].tobytes()


def plain(strategy: Any) -> Any:
    """TensorFlow's own object for the table, not built yet."""
    api = tf.tpu.experimental.embedding
    with strategy.scope():
        table = api.TableConfig(ROWS, DIM, tf.zeros_initializer(), api.Adagrad(0.1), "sum", "t")
        return api.TPUEmbeddingV2(api.FeatureConfig(table, output_shape=[BATCH], name="f"))


def of_tensorflow(strategy: Any, prefix: str) -> dict[str | None, np.ndarray]:
    """The table and its slot by a restoration with TensorFlow's own adapter."""
    restored = plain(strategy)
    tf.train.Checkpoint(embedding=restored).read(prefix)
    restored.build()
    return {None: rows_of(restored, "t"), "accumulators": rows_of(restored, "t", "accumulators")}


def test_tensorflow_restores_slots_on_as_many_chips_only(tmp_path: Any) -> None:
    """Its own adapter restores rows on any number of chips, and from a run's checkpoint; slots then start anew."""
    feature, ids = INPUTS["dense"]
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    with on_sparse_cores(2, 2) as strategy:
        backend, table, step = on_tpu(strategy, feature, spec_of(ids()), optimizer=Adagrad(learning_rate=0.1))
        trained_on_tpu(strategy, ids, backend, step, 3)
        tf.train.Checkpoint(embedding=TableCheckpoint([table])).write(ours)
        tf.train.Checkpoint(embedding=backend.embedding).write(theirs)
        saved = {slot: table.read(0, ROWS, slot) for slot in (None, "accumulators")}
    with on_sparse_cores(2, 2) as strategy:
        for slot, values in of_tensorflow(strategy, theirs).items():
            assert values.tobytes() == saved[slot].tobytes(), slot
    with on_sparse_cores(2, 2) as strategy:  # and a run's tables are restored from it
        zeros = np.zeros_like(FIRST)
        backend, table, _ = on_tpu(strategy, feature, SPEC, optimizer=Adagrad(learning_rate=0.1), first=zeros)
        tf.train.Checkpoint(embedding=backend.embedding).read(theirs)
        for slot, values in saved.items():
            assert table.read(0, ROWS, slot).tobytes() == values.tobytes(), slot
    for chips, prefix in ((2, ours), (1, theirs)):
        with on_sparse_cores(chips, 2) as strategy:
            found = of_tensorflow(strategy, prefix)
            assert found[None].tobytes() == saved[None].tobytes(), (chips, prefix)
            assert (found["accumulators"] == np.float32(0.1)).all(), (chips, prefix)


def test_tables_of_one_optimizer_and_width_are_stacked() -> None:
    with on_sparse_cores(2) as strategy:
        with strategy.scope():
            step = tf.Variable(0, dtype=tf.int64)
        sources = {"a": FIRST, "b": -FIRST}
        tables = {name: TPUTable(name, Recorded(rows), ROWS, DIM, optimizer=SGD()) for name, rows in sources.items()}
        features = {name: Feature(table=name) for name in tables}
        backend = TPUBackend(
            strategy, tables, features, dict.fromkeys(tables, SPEC), step=step, total_steps=1, sparse_cores=Limits()
        )
        assert list(backend.embedding.embedding_tables) == ["a_b"]
        for name, rows in sources.items():
            assert tables[name].read(0, ROWS).tobytes() == rows.tobytes()


def test_an_id_outside_its_table_is_named() -> None:
    def train() -> None:
        with on_sparse_cores() as strategy:
            backend, _, step = on_tpu(strategy, Feature(table="t"), SPEC, frozen_rows=FROZEN)
            trained_on_tpu(strategy, lambda: tf.constant([1, 13, 0, 2], tf.int64), backend, step, 1)

    with pytest.raises(VocabularyError, match="feature 'f' looks up id 13 in table 't', whose ids are 0 to 12"):
        train()


def test_sparse_cores_share_the_vectors_of_a_chip() -> None:
    words = "each chip has 6 vectors of it, and its 4 SparseCores can't share them equally"
    with on_sparse_cores() as strategy, pytest.raises(RunError, match=words):
        on_tpu(strategy, Feature(table="t"), tf.TensorSpec([6], tf.int64))
