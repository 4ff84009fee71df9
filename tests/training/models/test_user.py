from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp.errors import ConfigError
from embexp.specs.models import KerasModel
from embexp.system import user_code
from embexp.training import models

SHAPES = {"user": (4,), "words": (3, 2)}

GOOD = """
import keras

def tower(activations, width=8, rate=0.0):
    flat = [keras.layers.Flatten()(x) for x in activations.values()]
    x = keras.layers.Concatenate()(flat)
    x = keras.layers.Dense(width, activation="relu", kernel_regularizer=keras.regularizers.L2(0.1))(x)
    x = keras.layers.BatchNormalization()(x)
    if rate:
        x = keras.layers.Dropout(rate)(x)
    return keras.Model(inputs=activations, outputs=keras.layers.Dense(1)(x))

class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(1)

    def call(self, inputs):
        self.add_loss(0.25 * keras.ops.mean(keras.ops.square(inputs["user"])))
        return self.inner(inputs["user"])[:, 0]

def subclass(activations):
    return Subclass()

def one_idle(activations):
    return keras.Model(inputs=activations, outputs=keras.layers.Dense(1)(activations["user"]))

def classifier(activations, classes):
    return keras.Model(inputs=activations, outputs=keras.layers.Dense(classes)(activations["user"]))

def order(activations):
    assert list(activations) == ["dense.features", "user", "words"], list(activations)
    return one_idle(activations)
"""

BAD = """
import keras

NUMBER = 3

def nothing(activations):
    pass

def raises(activations):
    raise KeyError("itm")

def type_error(activations):
    return len(3)

def wide(activations):
    return keras.Model(inputs=activations, outputs=keras.layers.Dense(2)(activations["user"]))

def sequence(activations):
    return keras.Model(inputs=activations, outputs=keras.layers.Dense(1)(activations["words"]))

def two(activations):
    x = keras.layers.Dense(1)(activations["user"])
    return keras.Model(inputs=activations, outputs=[x, x])

def whole_numbers(activations):
    cast = keras.layers.Lambda(lambda x: keras.ops.cast(x[:, :1], "int32"))
    return keras.Model(inputs=activations, outputs=cast(activations["user"]))

def subset(activations):
    return keras.Model(inputs={"user": activations["user"]}, outputs=keras.layers.Dense(1)(activations["user"]))

def no_arguments():
    return None

class Lacking(keras.Model):
    def call(self, inputs):
        return inputs["no_such_feature"]

def lacking(activations):
    return Lacking()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with the user's modules, and no trace of them afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "good.py").write_text(GOOD)
    (package / "bad.py").write_text(BAD)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("mine", "broken", "marked", "hidden_names"):
            del sys.modules[name]


def build(function: str, seed: int = 0, dense_width: int = 2, **args: Any) -> Any:
    return models.build_model(
        KerasModel(function=function, args=args), shapes=SHAPES, dense_width=dense_width, output_bias=0.0, seed=seed
    )


def inputs(batch: int = 6) -> dict[str, tf.Tensor]:
    generator = np.random.default_rng(0)
    shapes = {"user": (batch, 4), "words": (batch, 3, 2), "dense.features": (batch, 2)}
    return {name: tf.constant(generator.normal(size=shape), tf.float32) for name, shape in shapes.items()}


def test_arguments_are_passed_on(folder: Path) -> None:
    model = build("mine.good:tower", width=5)
    assert model(inputs()).shape == (6, 1)
    assert [tuple(v.shape) for v in model.trainable_variables][:2] == [(12, 5), (5,)]


def test_a_classifier_gets_the_number_of_classes(folder: Path) -> None:
    def build_classes(function: str, **args: Any) -> Any:
        return models.build_model(
            KerasModel(function=function, args=args),
            shapes=SHAPES,
            dense_width=2,
            output_bias=0.0,
            seed=0,
            outputs=3,
        )

    assert build_classes("mine.good:classifier")(inputs()).shape == (6, 3)
    message = r"its model must return logits of shape \[B, 3\], one per class, but returns \[B, 4\]"
    with pytest.raises(ConfigError, match=message):
        build_classes("mine.good:classifier", classes=4)
    with pytest.raises(ConfigError, match=r"does not match its signature \(activations\): .*unexpected .*'classes'"):
        build_classes("mine.good:one_idle")


def test_the_run_s_seed_decides_on_unseeded_initializers_and_dropout(folder: Path) -> None:
    one, same, other = (build("mine.good:tower", seed=seed, rate=0.5) for seed in (0, 0, 1))
    for a, b in zip(one.weights, same.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(one.trainable_variables[0], other.trainable_variables[0])
    np.testing.assert_array_equal(one(inputs(), training=True), same(inputs(), training=True))


def test_regularisers_and_batch_normalisation_count_in_a_traced_step(folder: Path) -> None:
    model = build("mine.good:tower")
    kernel = model.trainable_variables[0].numpy().astype(np.float64)

    @tf.function
    def step(x: dict[str, tf.Tensor]) -> tf.Tensor:
        model(x, training=True)
        return tf.add_n(model.losses)

    np.testing.assert_allclose(step(inputs()), 0.1 * (kernel**2).sum(), rtol=1e-5)
    moving_mean = next(v for v in model.non_trainable_variables if v.path.endswith("moving_mean"))
    assert np.abs(moving_mean.numpy()).max() > 0


def test_a_subclass_is_built_and_its_add_loss_counts(folder: Path) -> None:
    model = build("mine.good:subclass")
    assert [tuple(v.shape) for v in model.trainable_variables] == [(4, 1), (1,)]

    @tf.function
    def step(x: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        logits = model(x, training=True)
        (extra,) = model.losses
        return logits, extra

    for _ in range(2):  # losses must not pile up
        logits, extra = step(inputs())
    assert logits.shape == (6,)
    np.testing.assert_allclose(extra, 0.25 * (inputs()["user"].numpy() ** 2).mean(), rtol=1e-5)


def test_an_input_may_stand_idle_in_a_user_s_model(folder: Path) -> None:
    assert build("mine.good:one_idle")(inputs()).shape == (6, 1)


def test_activations_come_in_the_order_of_their_names(folder: Path) -> None:
    build("mine.good:order")


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        ("mine.bad:nothing", {}, "it must return a keras.Model, but returned None."),
        ("mine.bad:raises", {}, r"it raised KeyError: 'itm' \(.*bad.py:10\)"),
        ("mine.bad:type_error", {}, r"it raised TypeError: object of type 'int' has no len\(\) \(.*bad.py:13\)"),
        ("mine.bad:wide", {}, r"must return logits of shape \[B\] or \[B, 1\], but returns \[B, 2\]"),
        ("mine.bad:sequence", {}, r"must return logits of shape \[B\] or \[B, 1\], but returns \[B, 3, 1\]"),
        ("mine.bad:two", {}, "must return one tensor of logits, but returns a list"),
        ("mine.bad:whole_numbers", {}, "must return floating-point logits, but returns int32"),
        (
            "mine.bad:subset",
            {},
            "its model must take a dict of dense.features, user, words, but calling it with one raised "
            "UserWarning: The "
            "structure of `inputs` doesn't match the expected structure. Expected: {'user': 'user'} Received: "
            "[^\\n]*}\\.\n    build",
        ),
        ("mine.bad:lacking", {}, "calling it with one raised KeyError.*no_such_feature"),
        ("mine.bad:NUMBER", {}, "it must be a function, but is a int"),
        ("mine.good:tower", {"widht": 3}, r"model\.args = \{'widht': 3\}: .*unexpected keyword argument 'widht'"),
        ("mine.bad:no_arguments", {}, r"model\.args = \{\}: .*too many positional arguments"),
        ("mine.good:towr", {}, r"(?s)good\.py defines no 'towr'.*did you mean mine\.good:tower\?"),
        ("mine.nowhere:f", {}, r"there is no module 'mine\.nowhere' in the working directory"),
        ("nowhere_at_all:f", {}, "there is no module 'nowhere_at_all' in the working directory"),
        ("mine.good.deeper:f", {}, r"there is no module 'mine\.good\.deeper'"),
    ],
)
def test_faults_of_the_function(folder: Path, function: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(function, **args)


def test_an_exception_on_import_is_the_user_s(folder: Path) -> None:
    (folder / "broken.py").write_text("def f(activations): ...\n1 / 0\n")
    with pytest.raises(ConfigError, match=r"importing 'broken' raised ZeroDivisionError: .*broken\.py:2"):
        build("broken:f")


@pytest.mark.parametrize(
    ("source", "function", "message"),
    [
        ("def f(x): ...", "marked:f", None),
        ("from json import loads as f", "marked:f", None),
        ("if True:\n    class f: ...", "marked:f", None),
        ("f = 1", "marked:f", None),
        ("from json import *", "marked:f", None),
        ("def __getattr__(name): ...", "marked:f", None),
        ("def g():\n    f = 1", "marked:f", "marked.py defines no 'f'"),
        ("def factory(x): ...", "marked:factroy", "did you mean marked:factory?"),
        ("def f(:", "marked:f", "marked.py:1 can't be parsed: invalid syntax"),
        ("# -*- coding: latin-1 -*-\nf = '\xe9'", "marked:f", None),
    ],
    ids=["def", "import", "in a block", "value", "star", "getattr", "local", "misspelt", "syntax", "encoding"],
)
def test_the_path_is_looked_up_without_running_anything(
    folder: Path, source: str, function: str, message: str | None
) -> None:
    (folder / "marked.py").write_text(source + "\nraise SystemExit('the module was run')\n", encoding="latin-1")
    found = "\n".join(map(str, user_code.faults_of_function(function, "model.function")))
    assert message in found if message else found == ""


def test_parent_packages_are_not_run_either(folder: Path) -> None:
    (folder / "mine" / "__init__.py").write_text("raise SystemExit('the package was run')")
    assert user_code.faults_of_function("mine.good:tower", "model.function") == []


def test_the_working_directory_comes_last(folder: Path) -> None:
    elsewhere = folder / "elsewhere"
    (elsewhere / "mine").mkdir(parents=True)
    (elsewhere / "mine" / "__init__.py").write_text("")
    (folder / "mine" / "good.py").write_text("raise SystemExit('the wrong module was run')")
    (elsewhere / "mine" / "good.py").write_text(GOOD)
    sys.path.insert(0, str(elsewhere))
    assert user_code.faults_of_function("mine.good:tower", "model.function") == []
    build("mine.good:tower")
    assert sys.path[-1] == str(folder)


def test_a_file_of_the_working_directory_hides_no_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that a model imports late."""
    (folder / "sched.py").write_text("raise SystemExit('the wrong module was run')")
    (folder / "mine" / "good.py").write_text(f"import sched\n{GOOD}")
    monkeypatch.delitem(sys.modules, "sched", raising=False)
    build("mine.good:tower")


def test_where_the_user_has_put_the_working_directory_it_stays(folder: Path) -> None:
    for entry in ("", str(folder)):
        sys.path[:] = [entry, *(each for each in sys.path if each not in ("", str(folder)))]
        assert user_code.search_path() == sys.path
