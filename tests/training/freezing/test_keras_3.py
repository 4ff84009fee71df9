"""Keras' optimizers with frozen rows: against the same optimizer without, to the bit, after it has filled its slots."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import embexp

# Keras, as it saves
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
optimizers = keras.optimizers
ROWS, DIM = 20, 4
FROZEN = np.array([0, 1, 2, 5, 9, 19])
OTHERS = np.setdiff1d(np.arange(ROWS), FROZEN)
ROW_WISE: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optimizers.SGD(0.1),
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adagrad": lambda: optimizers.Adagrad(0.1),
    "adam": lambda: optimizers.Adam(0.1, amsgrad=True, clipvalue=0.5),
    "adamw": lambda: optimizers.AdamW(0.1, global_clipnorm=0.5),
    "nadam": lambda: optimizers.Nadam(0.1, clipnorm=0.5),
    "rmsprop": lambda: optimizers.RMSprop(0.1, momentum=0.9, centered=True),
    "ftrl": lambda: optimizers.Ftrl(0.1),
    "lion": lambda: optimizers.Lion(0.1),
    "averaged": lambda: optimizers.Adam(0.1, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2),
    "accumulated": lambda: optimizers.Adam(0.1, gradient_accumulation_steps=2),
    "scaled": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.1), initial_scale=4.0),
    "schedule": lambda: optimizers.Adam(optimizers.schedules.CosineDecay(0.1, 10)),
}
MIXED = {
    "adafactor": lambda: optimizers.Adafactor(0.1),
    "lamb": lambda: optimizers.Lamb(0.1),
    "muon": lambda: optimizers.Muon(0.1, exclude_embeddings=False),
}
"""The update of a row depends on others."""


def bits(values: Any) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(values)).view(np.uint32)


def gradients(step: int, *, sparse: bool) -> Any:
    random = np.random.default_rng(step)
    ids = random.integers(0, ROWS - 4, 12)
    values = tf.constant(random.normal(size=(12, DIM)), tf.float32)
    slices = tf.IndexedSlices(values, tf.constant(ids), tf.constant([ROWS, DIM]))
    return slices if sparse else tf.math.unsorted_segment_sum(values, ids, ROWS)


def without_frozen(gradient: Any) -> Any:
    """In NumPy."""
    if not isinstance(gradient, tf.IndexedSlices):
        values = gradient.numpy()
        values[FROZEN] = 0
        return tf.constant(values)
    values = gradient.values.numpy()
    values[np.isin(gradient.indices.numpy(), FROZEN)] = 0
    return tf.IndexedSlices(tf.constant(values), gradient.indices, gradient.dense_shape)


class Program:
    """A table and a kernel, of which the table has been trained for two steps."""

    def __init__(self, make: Callable[[], Any], sparse: bool) -> None:
        start = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
        self.table, self.kernel = (
            keras.Variable(start, name="table"),
            keras.Variable(np.ones((DIM, 2), np.float32), name="kernel"),
        )
        self.optimizer, self.sparse, self.done = make(), sparse, 0
        self.train(2)

    def train(self, steps: int, change: Callable[[Any], Any] = lambda gradient: gradient) -> None:
        for _ in range(steps):
            gradient = change(gradients(self.done, sparse=self.sparse))
            pairs = [(gradient, self.table), (tf.fill([DIM, 2], 0.1 * self.done), self.kernel)]
            scaled = getattr(self.optimizer, "dynamic_scale", None)
            if scaled is not None:
                pairs = [
                    (each * scaled.value if each is not gradient else _times(each, scaled), to) for each, to in pairs
                ]
            self.optimizer.apply_gradients(pairs)
            self.done += 1

    def state(self) -> list[np.ndarray]:
        """The table, the kernel, and all that the optimizer has."""
        return [each.numpy() for each in (self.table, self.kernel, *self.optimizer.variables)]


def _times(gradient: Any, factor: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor.value, gradient.indices, gradient.dense_shape)
    return gradient * factor.value


def row_like(values: np.ndarray) -> bool:
    return values.ndim >= 1 and values.shape[0] == ROWS


@pytest.mark.parametrize("sparse", [True, False], ids=["slices", "dense"])
@pytest.mark.parametrize("name", [*ROW_WISE, *MIXED])
def test_frozen_rows_and_their_slots_stand_and_others_move_as_ever(name: str, sparse: bool) -> None:
    make = {**ROW_WISE, **MIXED}[name]
    plain, ours = Program(make, sparse), Program(make, sparse)
    before = ours.state()
    ours.optimizer = embexp.freeze(ours.optimizer, [(ours.table, FROZEN)])
    ours.train(4)
    ours.optimizer.finalize_variable_values([ours.table, ours.kernel])
    plain.train(4, without_frozen)
    plain.optimizer.finalize_variable_values([plain.table, plain.kernel])
    averages = name == "averaged"
    for earlier, found, expected in zip(before, ours.state(), plain.state(), strict=True):
        if row_like(found):
            held = found[FROZEN]
            stands = np.array_equal(bits(held), bits(earlier[FROZEN]))
            assert stands or (averages and np.array_equal(bits(held), bits(ours.table.numpy()[FROZEN])))
        if name in ROW_WISE:
            some = OTHERS if row_like(found) else ...
            np.testing.assert_array_equal(found[some], expected[some])
    assert ours.optimizer.iterations.numpy() == plain.optimizer.iterations.numpy()
    assert not np.array_equal(before[0][OTHERS], ours.table.numpy()[OTHERS])


@pytest.mark.parametrize("compiled", [True, False], ids=["xla", "plain"])
def test_fit_saves_and_loads_the_frozen_rows(compiled: bool, tmp_path: Path) -> None:
    """Against a table of the trainable rows only, and a constant one of the frozen rows."""
    random = np.random.default_rng(0)
    start = random.normal(size=(ROWS, DIM)).astype(np.float32)
    ids, labels = random.integers(0, ROWS - 4, (24, 2)), random.normal(size=(24, 1)).astype(np.float32)

    def adam() -> Any:
        return optimizers.AdamW(0.05, weight_decay=0.1, global_clipnorm=0.5)

    layer = keras.layers.Embedding(ROWS, DIM)
    ends = [keras.layers.Flatten(), keras.layers.Dense(1, kernel_initializer="ones")]
    model = keras.Sequential([keras.Input([2], dtype="int32"), layer, *ends])
    layer.set_weights([start])
    optimizer = embexp.freeze(adam(), {layer: FROZEN})
    model.compile(optimizer, loss="mse", jit_compile=compiled)
    model.fit(ids, labels, epochs=3, batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_array_equal(bits(layer.embeddings)[FROZEN], bits(start)[FROZEN])

    trained = keras.layers.Embedding(len(OTHERS), DIM)
    constant = keras.layers.Embedding(ROWS, DIM, trainable=False)
    places = np.zeros(ROWS, np.int32)
    places[OTHERS] = np.arange(len(OTHERS))
    mask = np.isin(np.arange(ROWS), OTHERS).astype(np.float32)[:, None]
    rows, chosen, moves = (keras.Input([2], dtype="int32"), keras.Input([2], dtype="int32"), keras.Input([2, 1]))
    joined = constant(rows) * (1 - moves) + trained(chosen) * moves
    ends = [keras.layers.Flatten(), keras.layers.Dense(1, kernel_initializer="ones")]
    reference = keras.Model([rows, chosen, moves], ends[1](ends[0](joined)))
    constant.set_weights([start])
    trained.set_weights([start[OTHERS]])
    reference.compile(adam(), loss="mse", jit_compile=compiled)
    inputs = [ids, places[ids], mask[ids]]
    reference.fit(inputs, labels, epochs=3, batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(layer.embeddings.numpy()[OTHERS], trained.embeddings.numpy(), rtol=1e-5, atol=1e-6)

    [report] = optimizer.report().values()
    assert (report.frozen, report.frozen_changed, report.moved) == (len(FROZEN), 0, len(OTHERS)), "by weight decay"
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for mine, theirs in zip(optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
    loaded.train_on_batch(ids, labels)
    model.train_on_batch(ids, labels)
    np.testing.assert_array_equal(bits(loaded.layers[0].embeddings), bits(layer.embeddings))
    np.testing.assert_array_equal(bits(loaded.layers[0].embeddings)[FROZEN], bits(start)[FROZEN])


def test_a_saved_model_is_frozen_in_a_process_that_does_not_know_embexp(forked: Path, tmp_path: Path) -> None:
    model = keras.Sequential(
        [keras.Input([2], dtype="int32"), keras.layers.Embedding(ROWS, DIM), keras.layers.Flatten()]
    )
    model.compile(embexp.freeze(optimizers.Adam(0.1), {model.layers[0]: range(8)}), loss="mse")
    model.train_on_batch(np.array([[0, 9]]), np.ones((1, 8)))
    model.save(tmp_path / "model.keras")
    script = (
        "import sys, keras, numpy as np; model = keras.models.load_model(sys.argv[1]); table = model.layers[0];"
        "before = table.get_weights()[0]; model.train_on_batch(np.array([[0, 9]]), np.ones((1, 8)));"
        "print((before != table.get_weights()[0]).any(axis=1).nonzero()[0].tolist())"
    )
    command = [forked / "python", "-c", script, str(tmp_path / "model.keras")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout == "[9]\n", result.stderr


def test_the_report_says_why_rows_never_moved() -> None:
    table = keras.Variable(np.ones((6, 2), np.float32), name="table")
    optimizer = embexp.freeze(optimizers.SGD(0.1), [(table, [0, 1])])
    with pytest.raises(ValueError, match="table: no training step was run"):
        optimizer.report()
    slices = tf.IndexedSlices(tf.constant([[1.0, 1.0], [0.0, 0.0], [2.0, 0.0]]), tf.constant([0, 2, 3]), [6, 2])
    optimizer.apply_gradients([(slices, table)])
    report = optimizer.report()[table.path]
    assert (report.rows, report.frozen, report.frozen_changed, report.moved) == (6, 2, 0, 1)
    never = {cause.value: mask.nonzero()[0].tolist() for cause, mask in report.never_moved.items()}
    assert never == {"never_met": [4, 5], "no_gradient": [2]}
    assert "1 never moved: they were looked up, but their gradient was 0" in str(optimizer.report())
    optimizer.apply_gradients([(tf.zeros([6, 2]), table)])
    report = optimizer.report()[table.path]
    never = {cause.value: mask.nonzero()[0].tolist() for cause, mask in report.never_moved.items()}
    assert never == {"no_gradient": [2, 4, 5]}
    assert "dense gradients can't tell which" in str(report)


def test_settings_and_learning_rates_are_those_of_the_optimizer() -> None:
    table = keras.Variable(np.ones((6, 2), np.float32))
    inner = optimizers.Adam(0.1, weight_decay=0.01)
    optimizer = embexp.freeze(inner, [(table, range(3))])
    optimizer.learning_rate = 0.5
    assert (float(inner.learning_rate), optimizer.weight_decay, optimizer.beta_1) == (0.5, 0.01, inner.beta_1)
    optimizer.build([table])
    assert [each is mine for each, mine in zip(optimizer.variables, inner.variables, strict=True)] == [True] * 4


class Hidden(optimizers.SGD):
    """Keeps a slot where nobody finds it."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.hidden = {"of": self.add_variable_from_reference(variables[0], "hidden")}


def test_what_is_refused() -> None:
    table, other = (keras.Variable(np.ones((6, 2), np.float32), name=name) for name in ("table", "other"))
    with pytest.raises(
        ValueError, match=r"expected an optimizer of tf\.compat\.v1\.train or of Keras 3, found builtins\.str"
    ):
        embexp.freeze("adam", [(table, range(3))])
    with pytest.raises(ValueError, match="no variable is given"):
        embexp.freeze(optimizers.SGD(), {})
    with pytest.raises(ValueError, match="table: frozen: row 6 is not in the variable, which has rows 0 to 5"):
        embexp.freeze(optimizers.SGD(), [(table, [6])])
    with pytest.raises(ValueError, match=r"expected a variable \[rows, …\] of TensorFlow or Keras, found ndarray"):
        embexp.freeze(optimizers.SGD(), [(np.ones((6, 2)), [3])])
    with pytest.raises(ValueError, match="table is not among the variables that the optimizer trains"):
        embexp.freeze(optimizers.SGD(), [(table, [3])]).build([other])
    layer = keras.layers.Dense(2, name="dense")
    layer.build([6])
    with pytest.raises(ValueError, match="layer 'dense' has 2 variables, expected one"):
        embexp.freeze(optimizers.SGD(), {layer: [3]}).build(layer.trainable_weights)
    with pytest.raises(ValueError, match="which may belong to table, but is not in a list with one entry per trained"):
        embexp.freeze(Hidden(), [(table, [3])]).build([table])
    square = keras.Variable(np.ones((8, 8), np.float32), name="square")
    with pytest.raises(ValueError, match="square has as many rows as columns"):
        embexp.freeze(optimizers.Adafactor(), [(square, [3])]).build([square])
    with pytest.raises(ValueError, match=r"call optimizer\.build\(model\.trainable_variables\) first"):
        embexp.freeze(optimizers.SGD(), [(table, [3])]).get_config()
    saved = embexp.freeze(optimizers.SGD(), [(table, [3])])
    saved.build([other, table])
    with pytest.raises(ValueError, match="freezes rows of trained variable 1, but the model has 1"):
        type(saved).from_config(saved.get_config()).build([table])
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        embexp.freeze(optimizers.SGD(), [(table, [3])])  # one replica
