"""Tables and features as TensorFlow's own objects."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, ExponentialSchedule
from embexp.specs.tables import Combiner, Feature
from embexp.tables.tpu_backend import TableShape, to_tensorflow

FEATURES = {
    "item": Feature(table="item"),
    "history": Feature(table="item", max_sequence_length=5, validate_weights_and_indices=False),
    "user": Feature(table="user", output_shape=(4, 2)),
}
SHAPES = {"item": TableShape(10, 4, Combiner.SQRTN), "user": TableShape(7, 2)}


def test_tables_and_features_carry_their_settings_and_share_one_object() -> None:
    tables, features = to_tensorflow(SHAPES, FEATURES, {"item": Adagrad(), "user": SGD()})
    assert (tables["item"].vocabulary_size, tables["item"].dim, tables["item"].combiner) == (10, 4, "sqrtn")
    assert (tables["user"].name, tables["user"].combiner) == ("user", "mean")
    assert features["item"].table is features["history"].table is tables["item"]
    assert features["user"].table is tables["user"]
    assert (features["history"].max_sequence_length, features["history"].validate_weights_and_indices) == (5, False)
    assert features["user"].output_shape == tf.TensorShape([4, 2])
    assert features["item"].output_shape == tf.TensorShape(None)


def test_each_call_makes_fresh_objects_that_tpu_embedding_takes() -> None:
    for _ in range(2):
        tables, features = to_tensorflow(SHAPES, FEATURES, {"item": Adagrad(), "user": Adam()})
        embedding = tf.tpu.experimental.embedding.TPUEmbedding(features, optimizer=None)
        embedding.build([4, 4, 8])
        assert set(embedding.embedding_tables) == set(tables.values())


SHARED: dict[str, Any] = {
    "learning_rate": 0.3,
    "clip_weight_min": -2.0,
    "clip_weight_max": 3.0,
    "weight_decay_factor": 0.1,
    "multiply_weight_decay_factor_by_learning_rate": True,
}


@pytest.mark.parametrize(
    ("rule", "theirs", "own"),
    [
        (SGD, "SGD", {}),
        (Adagrad, "Adagrad", {"initial_accumulator_value": 0.7}),
        (
            AdagradMomentum,
            "AdagradMomentum",
            {"momentum": 0.5, "use_nesterov": True, "exponent": 3.0, "beta2": 0.75, "epsilon": 0.01},
        ),
        (Adam, "Adam", {"beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.01, "lazy_adam": False, "sum_inside_sqrt": False}),
        (
            FTRL,
            "FTRL",
            {
                "learning_rate_power": -0.25,
                "l1_regularization_strength": 0.1,
                "l2_regularization_strength": 0.2,
                "beta": 0.3,
                "initial_accumulator_value": 0.4,
                "multiply_linear_by_learning_rate": True,
            },
        ),
    ],
)
def test_every_setting_of_an_optimizer_arrives(rule: Any, theirs: str, own: dict[str, Any]) -> None:
    optimizer = rule(clipvalue=(-0.5, 0.25), **SHARED, **own)
    tables, _ = to_tensorflow({"item": TableShape(10, 4)}, {}, {"item": optimizer})
    made = tables["item"].optimizer
    assert type(made) is getattr(tf.tpu.experimental.embedding, theirs)
    for name, value in {**SHARED, **own}.items():
        assert getattr(made, name) == value, name
    assert (made.clip_gradient_min, made.clip_gradient_max) == (-0.5, 0.25)
    # No setting of the spec is forgotten here.
    assert set(optimizer.model_dump()) == {
        *SHARED,
        *own,
        "kind",
        "schedule",
        "clipvalue",
        "clipnorm",
        "weight_decay_per",
    }
    with pytest.raises(ValueError, match="norm"):
        to_tensorflow({"item": TableShape(10, 4)}, {}, {"item": optimizer.model_copy(update={"clipnorm": 1.0})})


def test_a_learning_rate_that_changes_is_a_callable_that_reads_the_step() -> None:
    rule = SGD(learning_rate=0.5, schedule=ExponentialSchedule(decay_steps=1, decay_rate=0.5))
    step = tf.Variable(0, dtype=tf.int64)
    tables, _ = to_tensorflow({"item": TableShape(10, 4)}, {}, {"item": rule}, step=step, total_steps=10)
    rate = tf.function(tables["item"].optimizer.learning_rate)
    assert float(rate()) == 0.5
    step.assign(2)
    assert float(rate()) == 0.125


def test_a_learning_rate_that_changes_needs_the_step() -> None:
    rule = SGD(schedule=ExponentialSchedule(decay_steps=1, decay_rate=0.5))
    with pytest.raises(
        ValueError, match="the learning rate of table 'item' changes over time: pass step and total_steps"
    ):
        to_tensorflow({"item": TableShape(10, 4)}, {}, {"item": rule})


def test_an_initializer_is_handed_on() -> None:
    shape = TableShape(10, 4, initializer=tf.ones_initializer())
    tables, features = to_tensorflow({"item": shape}, {"f": Feature(table="item")}, {"item": SGD()})
    embedding = tf.tpu.experimental.embedding.TPUEmbedding(features, optimizer=None)
    assert float(tf.reduce_min(embedding.embedding_tables[tables["item"]])) == 1.0
