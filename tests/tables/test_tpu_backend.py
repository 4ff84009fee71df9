"""Tables on a (simulated) TPU: `TPUEmbedding`, set up and used by embexp, against the row engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.errors import RunError, VocabularyError
from embexp.specs.optimizers import FTRL, SGD, Adagrad, Adam, PiecewiseSchedule
from embexp.specs.sparse_cores import Limits
from embexp.specs.tables import Combiner, Feature
from embexp.tables import optimizers as rules
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable
from embexp.tables.tpu_backend import TPUBackend, shard_initializer
from embexp.tables.tpu_tables import TPUTable
from tests.thoroughness import thorough

ROWS, DIM, BATCH, STEPS = 13, 3, 4, 6
FIRST = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)
FROZEN = np.isin(np.arange(ROWS), [0, 3, 4, 12])
LISTS = [[1, 1, 3], [], [12, 0, 5, 6], [4]]
WEIGHTS = [[0.5, 1.0, 2.0], [], [0.25, 1.5, 1.0, 1.0], [3.0]]


class Recorded:
    """A matrix that remembers which rows were read."""

    def __init__(self, values: np.ndarray = FIRST) -> None:
        self.values, self.ranges = values, [(0, 0)][:0]
        self.rows, self.dim = values.shape

    def read(self, start: int, stop: int) -> np.ndarray:
        self.ranges.append((start, stop))
        return self.values[start:stop]


def ragged(lists: Any, dtype: Any = tf.int64) -> Any:
    return tf.ragged.constant(lists, dtype=dtype, ragged_rank=1)


def sparse(lists: Any, dtype: Any = tf.int64) -> Any:
    places = [(row, place) for row, some in enumerate(lists) for place in range(len(some))]
    values = tf.constant([value for some in lists for value in some], dtype)
    return tf.SparseTensor(np.array(places, np.int64), values, [len(lists), 5])


Ids = Callable[[], Any]
INPUTS: dict[str, tuple[Feature, Ids]] = {
    "dense": (Feature(table="t"), lambda: tf.constant([1, 3, 12, 1])),
    "dense, rank 2": (Feature(table="t"), lambda: tf.constant([[1, 3], [12, 1], [0, 0], [7, 8]], tf.int32)),
    "ragged": (Feature(table="t"), lambda: ragged(LISTS)),
    "ragged, weights": (Feature(table="t"), lambda: (ragged(LISTS), ragged(WEIGHTS, tf.float32))),
    "ragged, int32": (Feature(table="t"), lambda: ragged(LISTS, tf.int32)),
    "sparse": (Feature(table="t"), lambda: sparse(LISTS)),
    "sparse, weights": (Feature(table="t"), lambda: (sparse(LISTS), sparse(WEIGHTS, tf.float32))),
    "sparse, pruned": (
        Feature(table="t"),
        lambda: (sparse([[1, -1], [2, 3], [], [4]]), sparse([[1.0, 1.0], [-1.0, 2.0], [], [0.0]], tf.float32)),
    ),
    "sequence": (Feature(table="t", max_sequence_length=2), lambda: ragged(LISTS)),
    "sequence of 1": (Feature(table="t", max_sequence_length=1), lambda: ragged(LISTS)),
    "sparse sequence": (Feature(table="t", max_sequence_length=3), lambda: sparse(LISTS)),
    "bags, reshaped": (Feature(table="t", output_shape=(2, 2)), lambda: ragged(LISTS)),
    "sequences, reshaped": (Feature(table="t", output_shape=(4, 3)), lambda: ragged(LISTS)),
}


WEIGHTED = ("ragged, weights", "sparse, pruned")


def spec_of(ids: Any) -> Any:
    """The type of a replica's ids, from a dataset with one batch size."""
    spec = tf.type_spec_from_value(ids[0] if isinstance(ids, tuple) else ids)
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec([BATCH, None], spec.dtype, 1, spec.row_splits_dtype)
    return tf.SparseTensorSpec([BATCH, None], spec.dtype) if isinstance(spec, tf.SparseTensorSpec) else spec


def on_tpu(
    strategy: Any,
    feature: Feature,
    spec: Any,
    *,
    optimizer: Any = None,
    combiner: Combiner = Combiner.MEAN,
    frozen_rows: np.ndarray | None = None,
    first: np.ndarray = FIRST,
    **options: Any,
) -> tuple[TPUBackend, TPUTable, Any]:
    with strategy.scope():
        step = tf.Variable(0, dtype=tf.int64)
    table = TPUTable(
        "t",
        Recorded(first),
        ROWS,
        DIM,
        combiner=combiner,
        optimizer=optimizer or SGD(learning_rate=0.5),
        frozen_rows=frozen_rows,
    )
    if strategy.extended.tpu_hardware_feature.num_embedding_devices_per_chip:
        options["sparse_cores"] = Limits()
    backend = TPUBackend(strategy, {"t": table}, {"f": feature}, {"f": spec}, step=step, total_steps=STEPS, **options)
    return backend, table, step


def slope(activations: Any) -> Any:
    """Some loss's gradient, different everywhere."""
    return tf.cos(activations * 3.0)


def trained_on_tpu(strategy: Any, ids: Ids, backend: TPUBackend, step: Any, steps: int) -> list[np.ndarray]:
    """Activations of each step, with the same batch each time; every replica has all of it."""

    several = strategy.num_replicas_in_sync > 1
    given = strategy.experimental_distribute_values_from_function(lambda _: ids()) if several else ids()

    @tf.function(autograph=False)
    def train(given: Any) -> Any:
        backend.enqueue({"f": given}, training=True)

        def replica() -> Any:
            found = backend.activations()
            backend.apply_gradients({"f": slope(found["f"])})
            return found["f"]

        found = backend.run(replica)
        step.assign_add(1)
        return found

    return [strategy.experimental_local_results(train(given))[0].numpy() for _ in range(steps)]


def trained_alone(
    feature: Feature, ids: Ids, optimizer: Any, combiner: Combiner, steps: int
) -> tuple[list[np.ndarray], EmbeddingTable]:
    step = tf.Variable(0, dtype=tf.int64)
    table = EmbeddingTable("t", ROWS, DIM, combiner=combiner, slots=rules.slots_of(optimizer))
    table.write(0, FIRST)
    engine = RowEngine({"t": table}, {"f": feature}, {"t": optimizer}, step=step, total_steps=STEPS)

    @tf.function(autograph=False)
    def train() -> Any:
        engine.enqueue({"f": ids()}, training=True)
        found = engine.activations()
        engine.apply_gradients({"f": slope(found["f"])})
        step.assign_add(1)
        return found["f"]

    return [train().numpy() for _ in range(steps)], table


def chosen(kind: str, combiner: Combiner) -> tuple[Feature, Ids]:
    """An input of `INPUTS`; skips the test where it is not combined so, or not in every run."""
    feature, ids = INPUTS[kind]
    if combiner is not Combiner.MEAN and feature.max_sequence_length:
        pytest.skip("sequences are not combined")
    if combiner is not Combiner.MEAN and kind not in WEIGHTED and not thorough():
        pytest.skip("in every run, those with weights: see `make test-thorough`")
    return feature, ids


@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("combiner", [Combiner.MEAN, Combiner.SUM, Combiner.SQRTN])
@pytest.mark.parametrize("kind", INPUTS)
def test_each_input_trains_as_in_the_row_engine(kind: str, combiner: Combiner, split: bool) -> None:
    feature, ids = chosen(kind, combiner)
    expected, alone = trained_alone(feature, ids, SGD(learning_rate=0.5), combiner, 1)
    with embexp.tpu_simulator(cores=1) as strategy:
        backend, table, step = on_tpu(
            strategy, feature, spec_of(ids()), combiner=combiner, frozen_rows=FROZEN if split else None
        )
        [found] = trained_on_tpu(strategy, ids, backend, step, 1)
        rows = table.read(0, ROWS)
    np.testing.assert_allclose(found, expected[0], rtol=1e-6, atol=1e-6)
    moved = alone.read(0, ROWS).copy()
    if split:
        assert rows[FROZEN].tobytes() == FIRST[FROZEN].tobytes()
        moved[FROZEN] = FIRST[FROZEN]
    np.testing.assert_allclose(rows, moved, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
def test_learning_rates_follow_the_step(split: bool) -> None:
    feature, ids = INPUTS["ragged"]
    schedule = PiecewiseSchedule(boundaries=(1, 3), values=(1.0, 0.25, 0.5), warmup_steps=1)
    optimizer = Adagrad(learning_rate=0.5, schedule=schedule)
    _, alone = trained_alone(feature, ids, optimizer, Combiner.MEAN, STEPS)
    with embexp.tpu_simulator(cores=1) as strategy:
        backend, table, step = on_tpu(strategy, feature, spec_of(ids()), optimizer=optimizer)
        trained_on_tpu(strategy, ids, backend, step, STEPS)
        np.testing.assert_allclose(table.read(0, ROWS), alone.read(0, ROWS), rtol=1e-5, atol=1e-6)


def test_tables_of_one_schedule_share_one_learning_rate() -> None:
    optimizer = SGD(schedule=PiecewiseSchedule(boundaries=(1,), values=(1.0, 0.5)))
    with embexp.tpu_simulator(cores=1) as strategy:
        with strategy.scope():
            step = tf.Variable(0, dtype=tf.int64)
        tables = {name: TPUTable(name, Recorded(), ROWS, DIM, optimizer=optimizer) for name in ("a", "b")}
        features = {name: Feature(table=name) for name in tables}
        specs = dict.fromkeys(tables, tf.TensorSpec([BATCH], tf.int64))
        backend = TPUBackend(strategy, tables, features, specs, step=step, total_steps=STEPS, pipelined=True)
        rates = [each.optimization_parameters.learning_rate for each in backend.configuration().table_descriptor]
        assert [rate.WhichOneof("learning_rate") for rate in rates] == ["dynamic", "dynamic"]
        assert [rate.dynamic.tag for rate in rates] == [0, 0]
        assert backend.configuration().pipeline_execution_with_tensor_core


def test_rows_that_never_move_keep_their_bits_whatever_comes() -> None:
    first = FIRST.copy()
    first[3] = -0.0
    first[4] = np.finfo(np.float32).tiny
    ids = lambda: tf.constant([3, 4, 12, 1])  # noqa: E731
    with embexp.tpu_simulator(cores=1) as strategy:
        spec = tf.TensorSpec([BATCH], tf.int32)
        decayed = Adam(learning_rate=0.5, weight_decay_factor=0.125, clip_weight_max=0.25, lazy_adam=False)
        backend, table, step = on_tpu(
            strategy, Feature(table="t"), spec, optimizer=decayed, frozen_rows=FROZEN, first=first
        )

        @tf.function(autograph=False)
        def train() -> None:
            backend.enqueue({"f": ids()}, training=True)

            def replica() -> Any:
                found = backend.activations()["f"]
                backend.apply_gradients({"f": found * np.float32(np.inf)})
                return tf.reduce_sum(found)

            strategy.run(replica)
            step.assign_add(1)

        train()
        rows = table.read(0, ROWS)
        assert rows[FROZEN].tobytes() == first[FROZEN].tobytes()
        assert not np.array_equal(rows[1], first[1])
        assert (table.read(0, ROWS, "momenta")[FROZEN] == 0).all()
        assert table.touched_rows() == 1
        assert table.storage == "split"


def test_subnormal_numbers_in_frozen_rows_are_errors() -> None:
    first = FIRST.copy()
    first[4, 1] = np.float32(1e-42)
    spec = tf.TensorSpec([BATCH], tf.int32)
    with embexp.tpu_simulator(cores=1) as strategy:
        with pytest.raises(RunError, match=r"table 't': frozen rows hold numbers below 1.2e-38 that are not 0"):
            on_tpu(strategy, Feature(table="t"), spec, frozen_rows=FROZEN, first=first)
        tf.tpu.experimental.initialize_tpu_system(strategy.cluster_resolver)
        on_tpu(strategy, Feature(table="t"), spec, first=first)  # where they may move, they may vanish


def test_a_frozen_table_has_no_slots_and_is_sent_zeros() -> None:
    with embexp.tpu_simulator(cores=1) as strategy:
        with strategy.scope():
            step = tf.Variable(0, dtype=tf.int64)
        table = TPUTable("t", Recorded(), ROWS, DIM, optimizer=None)
        spec = tf.TensorSpec([BATCH], tf.int64)
        backend = TPUBackend(strategy, {"t": table}, {"f": Feature(table="t")}, {"f": spec}, step=step, total_steps=1)
        trained_on_tpu(strategy, lambda: tf.constant([0, 1, 2, 3], tf.int64), backend, step, 2)
        assert table.read(0, ROWS).tobytes() == FIRST.tobytes()
        assert (table.slots, table.frozen, table.touched_rows()) == ({}, True, 0)
        [described] = backend.configuration().table_descriptor
        assert described.optimization_parameters.WhichOneof("parameters") == "stochastic_gradient_descent"


@pytest.mark.parametrize(
    ("hosts", "shards"), [(1, [(0, 13)]), (2, [(0, 7), (7, 13)]), (4, [(0, 4), (4, 7), (7, 10), (10, 13)])]
)
def test_each_host_reads_its_own_rows_and_no_others(hosts: int, shards: list[tuple[int, int]]) -> None:
    with embexp.tpu_simulator(cores=1, hosts=hosts) as strategy:
        _, table, _ = on_tpu(strategy, Feature(table="t"), tf.TensorSpec([BATCH], tf.int64))
        source = table.source
        assert isinstance(source, Recorded)
        assert source.ranges == shards
        assert table.read(0, ROWS).tobytes() == FIRST.tobytes()
        assert table.read(5, 9).tobytes() == FIRST[5:9].tobytes()


def test_initial_values_are_read_in_pieces() -> None:
    source = Recorded()
    filled = shard_initializer(source, ROWS, DIM, chunk_bytes=5 * DIM * 4)
    assert filled((ROWS, DIM)).numpy().tobytes() == FIRST.tobytes()
    assert source.ranges == [(0, 5), (5, 10), (10, 13)]
    with pytest.raises(ValueError, match="a shard of 5 rows of 13 was asked for, but not which"):
        filled((5, DIM))


def test_a_tpu_holds_the_tables_of_one() -> None:
    spec = tf.TensorSpec([BATCH], tf.int64)
    with embexp.tpu_simulator(cores=1) as strategy:
        on_tpu(strategy, Feature(table="t"), spec)
        with pytest.raises(RunError, match=r"already set up for embeddings: since it was last initialised"):
            on_tpu(strategy, Feature(table="t"), spec)
        tf.tpu.experimental.initialize_tpu_system(strategy.cluster_resolver)
        on_tpu(strategy, Feature(table="t"), spec)


def test_an_id_outside_its_table_is_named() -> None:
    def train() -> None:
        with embexp.tpu_simulator(cores=1) as strategy:
            backend, _, step = on_tpu(
                strategy, Feature(table="t"), tf.TensorSpec([BATCH], tf.int32), frozen_rows=FROZEN
            )
            trained_on_tpu(strategy, lambda: tf.constant([1, 13, 0, 2]), backend, step, 1)

    with pytest.raises(VocabularyError, match="feature 'f' looks up id 13 in table 't', whose ids are 0 to 12"):
        train()


@pytest.mark.parametrize(
    ("feature", "spec", "words"),
    [
        (Feature(table="t"), tf.TensorSpec([None], tf.int64), "must know the shape of its activations beforehand"),
        (Feature(table="t"), tf.RaggedTensorSpec([None, None], tf.int64), "is not fully known"),
        (Feature(table="t", output_shape=(3, 2)), tf.TensorSpec([3, 2], tf.int64), "has 3 examples, which 2"),
        (Feature(table="u"), tf.TensorSpec([2], tf.int64), "feature 'f' uses table 'u', which does not exist"),
    ],
)
def test_what_a_tpu_must_know(feature: Feature, spec: Any, words: str) -> None:
    with embexp.tpu_simulator(cores=2) as strategy, pytest.raises(ValueError, match=words):
        on_tpu(strategy, feature, spec)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"optimizer": None, "frozen_rows": FROZEN}, "has no optimizer"),
        ({"optimizer": SGD(), "by_reference": True}, "must be frozen"),
        ({"optimizer": SGD(), "frozen_rows": FROZEN[1:]}, r"frozen_rows is bool \(12,\), expected bool \(13,\)"),
        (
            {"optimizer": SGD(), "frozen_rows": np.zeros(ROWS, bool)},
            "split only if some rows are frozen and some are trainable",
        ),
    ],
)
def test_tables_that_contradict_themselves(arguments: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TPUTable("t", Recorded(), ROWS, DIM, **arguments)


def their_keys(checkpoint: str) -> dict[str, list[int]]:
    return {key: shape for key, shape in tf.train.list_variables(checkpoint) if key.startswith("embedding/")}


@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_tensorflow_restores_our_checkpoints_and_we_its(hosts: int, split: bool, tmp_path: Any) -> None:
    feature, ids = INPUTS["dense"]
    optimizer = FTRL(learning_rate=0.5)
    api = tf.tpu.experimental.embedding
    with embexp.tpu_simulator(cores=1, hosts=hosts) as strategy:
        backend, table, step = on_tpu(
            strategy, feature, spec_of(ids()), optimizer=optimizer, frozen_rows=FROZEN if split else None
        )
        trained_on_tpu(strategy, ids, backend, step, 3)
        prefix = tf.train.Checkpoint(embedding=TableCheckpoint([table])).write(str(tmp_path / "ours"))
        saved = {slot: table.read(0, ROWS, slot) for slot in (None, *table.slots)}

    config = api.TableConfig(ROWS, DIM, name="t", optimizer=api.FTRL(0.5))
    theirs = api.TPUEmbedding({"f": api.FeatureConfig(config)}, optimizer=None)
    theirs.build()
    tf.train.Checkpoint(embedding=theirs).read(prefix).assert_existing_objects_matched()
    for slot, values in saved.items():
        assert theirs._variables["t"][slot or "parameters"].numpy().tobytes() == values.tobytes()
    again = tf.train.Checkpoint(embedding=theirs).write(str(tmp_path / "theirs"))
    assert their_keys(again) == their_keys(prefix)

    with embexp.tpu_simulator(cores=1, hosts=3 - hosts) as strategy:
        backend, table, _ = on_tpu(
            strategy,
            feature,
            spec_of(ids()),
            optimizer=optimizer,
            frozen_rows=FROZEN if split else None,
            first=FIRST * 0,
        )
        tf.train.Checkpoint(embedding=TableCheckpoint([table])).read(again).assert_existing_objects_matched()
        backend.load()
        for slot, values in saved.items():
            assert table.read(0, ROWS, slot).tobytes() == values.tobytes()
