"""TensorFlow 1's optimizers with frozen rows: against the same optimizer without, to the bit, after some steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
import embexp.estimator
from embexp.training.freezing.optimizers import ROW_WISE

v1 = tf.compat.v1
train = v1.train
ROWS, DIM = 20, 4
START = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
FROZEN = np.array([0, 1, 2, 5, 9, 19])
OTHERS = np.setdiff1d(np.arange(ROWS), FROZEN)
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: train.GradientDescentOptimizer(0.1),
    "momentum": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "adam": lambda: train.AdamOptimizer(0.1),
    "rmsprop": lambda: train.RMSPropOptimizer(0.1, momentum=0.9, centered=True),
    "ftrl": lambda: train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "adadelta": lambda: train.AdadeltaOptimizer(0.1),
    "proximal": lambda: train.ProximalAdagradOptimizer(0.1, l2_regularization_strength=0.1),
}
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of NumPy, by old code of TensorFlow


def bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint32)


def ids_of(step: int) -> np.ndarray:
    return np.random.default_rng(step).integers(0, ROWS - 4, 12)


def trained(make: Callable[[], Any], *, resource: bool, dense: bool, frozen: bool, clip: bool = False) -> Any:
    """The state after two steps without frozen rows, and after four more with, and the last report."""
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.get_variable("table", initializer=START, use_resource=resource)
        kernel = v1.get_variable("kernel", initializer=np.ones((DIM, 1), np.float32), use_resource=resource)
        ids = v1.placeholder(tf.int64, [None])
        rows = tf.matmul(tf.one_hot(ids, ROWS), table) if dense else tf.gather(table, ids)
        loss = tf.reduce_sum(tf.sin(rows) * np.arange(1, 5, dtype=np.float32)) + tf.reduce_sum(kernel**2)
        plain, counter = make(), train.get_or_create_global_step()
        first = plain.minimize(loss, counter)
        optimizer = embexp.freeze(plain, {table: FROZEN}) if frozen else plain
        pairs = optimizer.compute_gradients(loss)
        if not frozen:
            pairs = [(_zeroed(gradient), to) if to is table else (gradient, to) for gradient, to in pairs]
        if clip:
            clipped, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
            pairs = list(zip(clipped, [to for _, to in pairs], strict=True))
        then = optimizer.apply_gradients(pairs, counter)
        slots = [optimizer.get_slot(table, name) for name in optimizer.get_slot_names()]
        state = [table, *slots, kernel]
        session.run(v1.global_variables_initializer())
        for step in range(2):
            session.run(first, {ids: ids_of(step)})
        before = session.run(state)
        for step in range(2, 6):
            session.run(then, {ids: ids_of(step)})
        assert session.run(counter) == 6
        assert v1.get_collection(v1.GraphKeys.TRAIN_OP)[-1] is then
        return before, session.run(state), optimizer.report(session) if frozen else None


def _zeroed(gradient: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        keep = np.isin(np.arange(ROWS), OTHERS).astype(np.float32)
        values = gradient.values * tf.gather(keep, gradient.indices)[:, None]
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * np.isin(np.arange(ROWS), OTHERS).astype(np.float32)[:, None]


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "ref"])
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "slices"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_frozen_rows_and_their_slots_stand_and_others_move_as_ever(name: str, dense: bool, resource: bool) -> None:
    ways = {"resource": resource, "dense": dense}
    before, found, report = trained(OPTIMIZERS[name], frozen=True, **ways)
    _, expected, _ = trained(OPTIMIZERS[name], frozen=False, **ways)
    for earlier, ours, theirs in zip(before[:-1], found[:-1], expected[:-1], strict=True):
        np.testing.assert_array_equal(bits(ours[FROZEN]), bits(earlier[FROZEN]))
        np.testing.assert_array_equal(bits(ours[OTHERS]), bits(theirs[OTHERS]))
    np.testing.assert_array_equal(found[-1], expected[-1])
    [table] = report.values()
    assert (table.frozen, table.frozen_changed) == (len(FROZEN), 0)
    assert table.moved == np.count_nonzero((found[0] != before[0])[OTHERS].any(axis=1)) > 0


def test_the_kernels_of_row_wise_optimizers_touch_no_other_row() -> None:
    """What the short way relies on: a step that looks up no row leaves all rows and slots, however they were filled."""
    for make in OPTIMIZERS.values():
        if type(make()) not in ROW_WISE:
            continue
        with tf.Graph().as_default(), v1.Session() as session:
            table = v1.get_variable("table", initializer=START)
            ids = v1.placeholder(tf.int64, [None])
            optimizer = make()
            step = optimizer.minimize(tf.reduce_sum(tf.gather(table, ids)))
            state = [table, *(optimizer.get_slot(table, name) for name in optimizer.get_slot_names())]
            session.run(v1.global_variables_initializer())
            session.run(step, {ids: np.arange(ROWS)})
            before = session.run(state)
            session.run(step, {ids: [7]})
            for earlier, now in zip(before, session.run(state), strict=True):
                np.testing.assert_array_equal(bits(np.delete(now, 7, 0)), bits(np.delete(earlier, 7, 0)))


def test_frozen_rows_do_not_count_for_a_norm_to_clip_by() -> None:
    ways = {"resource": True, "dense": False, "clip": True}
    _, ours, _ = trained(OPTIMIZERS["sgd"], frozen=True, **ways)
    _, theirs, _ = trained(OPTIMIZERS["sgd"], frozen=False, **ways)
    np.testing.assert_allclose(ours[0][OTHERS], theirs[0][OTHERS], rtol=1e-6)  # sums of fewer zeros
    np.testing.assert_array_equal(
        bits(ours[0][FROZEN]), bits(trained(OPTIMIZERS["sgd"], frozen=True, **ways)[0][0][FROZEN])
    )


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_eagerly_and_in_a_function(name: str) -> None:
    for wrapped in (lambda function: function, tf.function):
        table, optimizer = tf.Variable(START), OPTIMIZERS[name]()
        frozen = embexp.freeze(optimizer, [(table, range(8))])

        @wrapped
        def step(ids: Any, table: Any = table, frozen: Any = frozen) -> None:
            frozen.minimize(lambda: tf.reduce_sum(tf.gather(table, ids) ** 2), var_list=[table])

        for number in range(3):
            step(tf.constant(ids_of(number)))
        np.testing.assert_array_equal(bits(table.numpy()[:8]), bits(START[:8]))
        [report] = frozen.report().values()
        assert report.moved == len({row for number in range(3) for row in ids_of(number) if row >= 8})


def test_under_loss_scaling() -> None:
    scaling = v1.mixed_precision.MixedPrecisionLossScaleOptimizer
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.get_variable("table", initializer=START)
        with pytest.raises(ValueError, match=r"MixedPrecisionLossScaleOptimizer\(embexp\.freeze\(…\), …\)"):
            embexp.freeze(scaling(train.AdamOptimizer(0.1), 8.0), {table: FROZEN})
        frozen = embexp.freeze(train.AdamOptimizer(0.1), {table: FROZEN})
        step = scaling(frozen, "dynamic").minimize(tf.reduce_sum(tf.gather(table, np.arange(10)) ** 2))
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(step)
        changed = (session.run(table) != START).any(axis=1).nonzero()[0].tolist()
        assert changed == [row for row in range(10) if row not in FROZEN]
        [report] = frozen.report(session).values()
        assert report.moved == len(changed)


def test_in_an_estimator_from_a_checkpoint_with_slots(tmp_path: Path) -> None:
    module = embexp.estimator.load()
    made: list[Any] = []

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        table = v1.get_variable("table", initializer=START)
        loss = tf.reduce_sum(tf.gather(table, features) ** 2)
        optimizer = train.AdamOptimizer(0.1)
        if params["frozen"]:
            optimizer = embexp.freeze(optimizer, {table: params["frozen"]})
            made.append(optimizer)
        return module.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, train.get_global_step()))

    def own(frozen: Any) -> Any:
        config = module.RunConfig(model_dir=str(tmp_path), log_step_count_steps=None, save_summary_steps=None)
        return module.Estimator(model_fn, config=config, params={"frozen": frozen})

    def batches() -> Any:
        return tf.data.Dataset.from_tensors(np.arange(10)).repeat()

    own(None).train(batches, steps=3)
    names = ["table", "table/Adam", "table/Adam_1"]
    before = {name: own(None).get_variable_value(name) for name in names}
    own(range(6)).train(batches, steps=3)
    after = own(range(6))
    for name in names:
        changed = (bits(after.get_variable_value(name)) != bits(before[name])).any(axis=1)
        assert changed.nonzero()[0].tolist() == [6, 7, 8, 9], name
    [report] = made[0].report(after.get_variable_value).values()
    assert (report.frozen, report.frozen_changed, report.moved) == (6, 0, 4)
    never = {cause.value: mask.nonzero()[0].tolist() for cause, mask in report.never_moved.items()}
    assert never == {"never_met": list(range(10, 20))}


def test_the_graph_does_not_hold_the_frozen_rows() -> None:
    def size(rows: int) -> int:
        with tf.Graph().as_default() as graph:
            table = v1.get_variable("table", [rows, 1])
            scattered = np.flatnonzero(np.random.default_rng(0).random(rows) < 0.5)
            optimizer = embexp.freeze(train.AdamOptimizer(), {table: scattered})
            optimizer.minimize(tf.reduce_sum(tf.gather(table, [1, 2])))
            return int(graph.as_graph_def().ByteSize())

    assert size(200_000) - size(1_000) < 200


def test_refused() -> None:
    with tf.Graph().as_default():
        table = v1.get_variable("table", [4, 2])
        with pytest.raises(ValueError, match="table: frozen: row 4 is not in the variable, which has rows 0 to 3"):
            embexp.freeze(train.AdamOptimizer(), {table: [4]})
        frozen = embexp.freeze(train.AdamOptimizer(), {table: [3]})
        with pytest.raises(ValueError, match="table: no training step was run"):
            frozen.report()
