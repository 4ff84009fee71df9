"""Optimizers and slot variables are recognised in what Keras, TensorFlow and embexp write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from hypothesis import given

from embexp.checkpoints import object_graph
from embexp.checkpoints.object_graph import ObjectGraph, Role, roles
from tests import object_graphs, short_runs
from tests.thoroughness import examples


def saved(folder: Path, **objects: Any) -> ObjectGraph:
    prefix = tf.train.Checkpoint(**objects).write(str(folder / "checkpoint"))
    return object_graph.read(Path(f"{prefix}.index"))


def by_role(graph: ObjectGraph) -> dict[Role, set[str]]:
    """All paths of up to five edges, by role of the object at their end."""
    found: dict[Role, set[str]] = {role: set() for role in Role}
    known = roles(graph)

    def walk(number: int, path: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
        yield number, path
        if len(path) < 5:
            for edge in graph.nodes[number].children:
                yield from walk(edge.node_id, (*path, edge.local_name))

    for number, path in walk(0, ()):
        found[known[number]].add("/".join(path))
    return found


OPTIMIZERS: dict[str, tuple[Callable[[], Any], int]] = {
    "SGD": (lambda: keras.optimizers.SGD(), 0),
    "momentum": (lambda: keras.optimizers.SGD(momentum=0.9), 1),
    "Adagrad": (lambda: keras.optimizers.Adagrad(), 1),
    "Adadelta": (lambda: keras.optimizers.Adadelta(), 2),
    "Adam": (lambda: keras.optimizers.Adam(), 2),
    "AdamW": (lambda: keras.optimizers.AdamW(), 2),
    "amsgrad": (lambda: keras.optimizers.Adam(amsgrad=True), 3),
    "Adamax": (lambda: keras.optimizers.Adamax(), 2),
    "Nadam": (lambda: keras.optimizers.Nadam(), 2),
    "RMSprop": (lambda: keras.optimizers.RMSprop(), 1),
    "Ftrl": (lambda: keras.optimizers.Ftrl(), 2),
    "Lion": (lambda: keras.optimizers.Lion(), 1),
    "schedule": (lambda: keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)), 2),
    "average": (lambda: keras.optimizers.Adam(use_ema=True), 3),
    "accumulation": (lambda: keras.optimizers.Adam(gradient_accumulation_steps=2), 3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_keras_optimizers(name: str, tmp_path: Path) -> None:
    """Those of two variables: so many slot variables each, none else, and one optimizer."""
    make, slots = OPTIMIZERS[name]
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    optimizer = make()
    optimizer.apply([tf.ones_like(each) for each in model.trainable_variables], model.trainable_variables)
    graph = saved(tmp_path, model=model, optimizer=optimizer)
    known = roles(graph)
    keys = [
        each.attributes[0].checkpoint_key for each, role in zip(graph.nodes, known, strict=True) if role is Role.SLOT
    ]
    shapes = sorted(graph.entries[key].shape for key in keys)
    assert shapes == [(2,)] * slots + [(3, 2)] * slots
    assert by_role(graph)[Role.OPTIMIZER] == {"optimizer"}
    # Only the optimizer, whose model is then nowhere else.
    alone = roles(saved(tmp_path, optimizer=optimizer))
    assert [alone.count(role) for role in (Role.SLOT, Role.OPTIMIZER)] == [2 * slots, 1]


def test_variables_of_the_model_that_an_optimizer_keeps_are_no_slots(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization()])
    optimizer = keras.optimizers.SGD(momentum=0.9)
    optimizer.build(model.trainable_variables)
    optimizer.kept = list(model.trainable_variables)
    alone = by_role(saved(tmp_path, optimizer=optimizer))
    assert {"optimizer/kept/0", "optimizer/kept/1"} <= alone[Role.VARIABLE]
    optimizer.all_kept = list(model.variables)
    beside = by_role(saved(tmp_path, model=model, optimizer=optimizer))
    assert {f"optimizer/all_kept/{number}" for number in range(4)} <= beside[Role.VARIABLE]
    assert {"optimizer/momentums/0", "optimizer/momentums/1"} <= alone[Role.SLOT] & beside[Role.SLOT]


def test_a_compiled_model_with_a_scaled_loss(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)])
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(momentum=0.9))
    model.compile(optimizer, "mse", metrics=["mae"])
    model.fit(tf.zeros([4, 3]), tf.zeros([4, 1]), verbose=0)
    found = by_role(saved(tmp_path, model=model))
    assert found[Role.OPTIMIZER] == {"model/optimizer", "model/optimizer/inner_optimizer"}
    assert {path.split("/")[1] for path in found[Role.SLOT]} == {"optimizer"}
    momentums = {path for path in found[Role.SLOT] if "/momentums/" in path}
    assert momentums == {f"model/optimizer/inner_optimizer/momentums/{number}" for number in range(4)}
    assert {"model/optimizer/dynamic_scale", "model/optimizer/inner_optimizer/_iterations"} <= found[Role.VARIABLE]


def test_optimizers_that_record_slot_variables(tmp_path: Path) -> None:
    graph = object_graph.read(object_graphs.tensorflow_gan(tmp_path / "gan"))
    known = roles(graph)
    slots = {slot.slot_variable_node_id for node in graph.nodes for slot in node.slot_variables}
    assert {number for number in range(len(known)) if known[number] is Role.SLOT} == slots
    assert by_role(graph)[Role.OPTIMIZER] == {"generator_optimizer", "discriminator_optimizer"}


def test_the_optimizer_of_keras_2_without_slots(tmp_path: Path) -> None:
    from tensorflow.python.keras.optimizer_v2.gradient_descent import SGD

    variable = tf.Variable([1.0])
    optimizer = SGD(0.1)
    optimizer.apply_gradients([(tf.constant([1.0]), variable)])
    found = by_role(saved(tmp_path, optimizer=optimizer, variable=variable))
    assert found[Role.OPTIMIZER] == {"optimizer"}
    assert found[Role.SLOT] == set()


def test_tables_of_tensorflow(tmp_path: Path) -> None:
    table = tf.tpu.experimental.embedding.TableConfig(8, 4, name="item")
    optimizer = tf.tpu.experimental.embedding.Adam(0.1)
    embedding = tf.tpu.experimental.embedding.TPUEmbedding(
        tf.tpu.experimental.embedding.FeatureConfig(table), optimizer
    )
    embedding.build(tf.TensorShape([2, 1]))
    found = by_role(saved(tmp_path, embedding=embedding))
    slots = {"momenta", "velocities"}
    assert found[Role.SLOT] == {f"embedding/{path}item/{slot}" for path in ("", "_variables/") for slot in slots}
    assert {"embedding/item", "embedding/_variables/item/parameters"} <= found[Role.VARIABLE]


def test_a_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    result = short_runs.runner(tmp_path_factory)("model=mlp", "train.steps=2")
    prefix = result.directory / "checkpoints" / "final" / "checkpoint"
    graph = object_graph.read(Path(f"{prefix}.index"))
    view = tf.train.CheckpointView(str(prefix))
    assert [{edge.local_name: edge.node_id for edge in node.children} for node in graph.nodes] == [
        dict(view.children(number)) for number in range(len(graph.nodes))
    ]
    found = by_role(graph)
    assert found[Role.OPTIMIZER] == {"optimizer"}
    tables = {path for path in found[Role.SLOT] if path.startswith("embedding/") and "_variables" not in path}
    assert tables == {f"embedding/{table}/{slot}" for table in ("user", "item") for slot in ("momenta", "velocities")}
    dense = {path for path in found[Role.SLOT] if not path.startswith("embedding/")}
    assert {path.split("/")[1] for path in dense} == {"_variables", "_momentums", "_velocities"}
    assert {"embedding/user", "step", "optimizer/_iterations", "model/_operations/5/bias"} <= found[Role.VARIABLE]
    assert {"embedding", "model", "model/_operations/5"} <= found[Role.OBJECT]


def test_what_only_looks_like_an_optimizer(tmp_path: Path) -> None:
    """Names that a user may give to variables of a model."""
    module = tf.Module()
    module.iter = tf.Variable(1)
    module.iterations = tf.Variable(1)
    module._variables = [tf.Variable(1.0)]
    found = by_role(saved(tmp_path, module=module))
    assert found[Role.OPTIMIZER] == set()
    assert found[Role.SLOT] == set()


@examples(60)
@given(object_graphs.graphs())
def test_any_graph_has_roles(graph: ObjectGraph) -> None:
    known = roles(graph)
    assert len(known) == len(graph.nodes)
    for number, node in enumerate(graph.nodes):
        assert (known[number] in (Role.VARIABLE, Role.SLOT)) <= bool(node.attributes)
