"""Values that wait for Keras models that are built after the restore, as `tf.train.Checkpoint` promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from embexp import checkpoints
from embexp.errors import CheckpointError

v1 = tf.compat.v1
X = np.ones([1, 2], np.float32)


class Net(keras.Model):
    """Has no `build`, so that Keras builds it by tracing its call."""

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.hidden, self.out = keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(outputs)

    def call(self, x: Any) -> Any:
        return self.out(self.hidden(x))


class Nested(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.rows = keras.layers.Embedding(5, 1)
        self.deep = keras.Sequential([keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(1)])

    def call(self, x: Any) -> Any:
        return self.net(x) + self.deep(x) + self.rows(np.zeros(1, int))


class Collected(keras.Model):
    """Layers in lists, tuples and dicts, which Keras 3 keeps from TensorFlow."""

    def __init__(self) -> None:
        super().__init__()
        self._towers = [Net(), [keras.layers.Dense(1)]]
        self.by_name = {"user": keras.layers.Dense(1), 7: Net()}
        self.pair = (keras.layers.Dense(1), keras.layers.Dense(1))

    def call(self, x: Any) -> Any:
        layers = [self._towers[0], *self._towers[1], *self.by_name.values(), *self.pair]
        return sum(layer(x) for layer in layers)


def trained(kind: type[keras.Model]) -> dict[str, Any]:
    """A model and its optimizer, all of whose values are random."""
    model, optimizer = kind(), keras.optimizers.Adam(0.1)
    model(X)
    optimizer.apply([tf.ones_like(each) for each in model.trainable_variables], model.trainable_variables)
    for each in model.variables + optimizer.variables[2:]:
        each.assign(tf.random.uniform(each.shape))
    return {"model": model, "optimizer": optimizer}


def values(parts: dict[str, Any]) -> list[np.ndarray]:
    return [each.numpy() for part in parts.values() for each in part.variables]


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert len(values(one)) == len(values(other))
    for a, b in zip(values(one), values(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", [Net, Nested, Collected])
@pytest.mark.parametrize("writer", ["TensorFlow", "embexp"])
def test_a_model_that_is_built_by_its_first_call(tmp_path: Path, kind: type[keras.Model], writer: str) -> None:
    """TensorFlow makes the first kernel anew, and leaves it random; of collections, an optimizer has the values."""
    first = trained(kind)
    if writer == "TensorFlow":
        path = tf.train.Checkpoint(**first).write(str(tmp_path / "c"))
    else:
        path = str(checkpoints.save(tmp_path / "c", first))
    second = {"model": kind(), "optimizer": keras.optimizers.Adam(0.1)}
    account = checkpoints.restore(path, second)
    assert (len(account.restored), account.missing, account.extra) == (2, (), ())
    second["model"](X)
    second["optimizer"].build(second["model"].trainable_variables)
    account.assert_consumed()
    assert_equal(first, second)
    assert len(second["model"].variables) == len(first["model"].variables)  # no layer was made twice
    if kind is not Collected:
        built = trained(kind)
        tf.train.Checkpoint(**built).read(path).assert_consumed()
        assert_equal(first, built)


def test_collections_are_saved_without_an_optimizer(tmp_path: Path) -> None:
    first, second = Collected(), Collected()
    first(X)
    nothing = tf.train.Checkpoint(first).write(str(tmp_path / "theirs"))
    assert len(tf.train.list_variables(nothing)) == 5  # the object graph, and the pair
    path = checkpoints.save(tmp_path / "ours", first)
    assert {"_towers/0/hidden/bias", "_towers/1/0/_kernel", "by_name/7/out/bias", "pair/1/bias"} < {
        key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for key in dict(tf.train.list_variables(str(path)))
    }
    account = checkpoints.restore(path, second)
    np.testing.assert_array_equal(second(X), first(X))
    account.assert_consumed()


def test_layers_that_nothing_leads_to(tmp_path: Path) -> None:
    def made(*layers: Any) -> keras.Model:
        model = Net()
        model.others = set(layers)
        model(X)
        return model

    (other := keras.layers.Dense(1, name="other")).build((1, 2))
    with pytest.raises(CheckpointError, match=r"checkpoints would lack other/kernel, other/bias: .* not in a set"):
        checkpoints.save(tmp_path / "c", made(other))
    account = checkpoints.restore(checkpoints.save(tmp_path / "c", made()), made(other))
    assert [each.name for each in account.missing] == ["other/kernel", "other/bias"]


def test_a_model_that_is_built_as_it_is_trained(tmp_path: Path) -> None:
    """`fit` builds model and optimizer, and goes on from the values of the checkpoint."""

    def made() -> keras.Model:
        model = Nested()
        model.compile("adam", "mse")
        return model

    def fit(model: keras.Model) -> None:
        model.fit(X, X[:, :1], verbose=0)

    first, second = made(), made()
    fit(first)
    path = checkpoints.save(tmp_path / "c", first)
    account = checkpoints.restore(path, second)
    fit(first), fit(second)
    account.assert_consumed()
    for a, b in zip(
        first.weights + first.optimizer.variables, second.weights + second.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_in_a_graph(tmp_path: Path) -> None:
    first = Net()
    first(X)
    wanted = [each.numpy() for each in first.variables]
    path = checkpoints.save(tmp_path / "c", first)
    with tf.Graph().as_default(), v1.Session() as session:
        second = Net()
        account = checkpoints.restore(path, second)
        second(tf.constant(X))
        session.run(v1.global_variables_initializer())
        account.run_restore_ops(session)
        account.assert_consumed()
        for a, b in zip(second.variables, wanted, strict=True):
            np.testing.assert_array_equal(session.run(a.value), b)


class Lazy(tf.Module):
    def __init__(self, units: int) -> None:
        super().__init__()
        self.units = units
        self.optimizer = v1.train.AdamOptimizer(0.1)

    def __call__(self, x: Any) -> None:
        if not hasattr(self, "kernel"):
            self.kernel = tf.Variable(tf.fill([x.shape[-1], self.units], 9.0), name="kernel")
            self.bias = tf.Variable(tf.zeros([2]), name="bias")
            self.initial = self.kernel.numpy()
        self.optimizer.apply_gradients([(tf.ones_like(self.kernel), self.kernel), (tf.ones([2]), self.bias)])


def test_a_variable_that_is_made_with_another_shape_keeps_its_value(tmp_path: Path) -> None:
    """TensorFlow raises when it is made."""
    first, second = Net(), Net(outputs=2)
    first(X)
    account = checkpoints.restore(checkpoints.save(tmp_path / "c", first), second)
    second(X)
    np.testing.assert_array_equal(second.hidden.kernel, first.hidden.kernel)
    assert [each.wanted.path for each in account.mismatched] == ["out/_kernel", "out/bias"]
    assert "float32 [3, 2], in the checkpoint float32 [3, 1]" in str(account)
    with pytest.raises(CheckpointError, match="2 with a different shape"):
        account.assert_consumed()

    (lazy := Lazy(2))(X)
    path = checkpoints.save(tmp_path / "d", lazy)
    other = Lazy(3)
    account = checkpoints.restore(path, other)
    other(X)
    np.testing.assert_array_equal(other.initial, np.full((2, 3), 9.0))
    listed = {each.stored.path: each.wanted.shape for each in account.mismatched}
    slots = "kernel/.OPTIMIZER_SLOT/optimizer"
    assert listed == {"kernel": (2, 3), f"{slots}/m": (2, 3), f"{slots}/v": (2, 3)}
    assert (account.missing, account.extra, account.waiting) == ((), (), ())
