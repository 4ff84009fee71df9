"""Object graphs of checkpoints for tests: random ones, and a GAN as Keras and TensorFlow write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tensorboard.compat.proto.trackable_object_graph_pb2 import TrackableObjectGraph

from embexp.checkpoints.object_graph import ObjectGraph
from embexp.system.tensor_bundle.index import Entry

NAMES = st.one_of(
    st.sampled_from(["_variables", "_trainable_variables", "_iterations", "iter", "kernel", "0", "1", "_momentums"]),
    st.text(max_size=12),
)


@dataclass(frozen=True)
class Variable:
    """A variable of a graph: its name, shape (None: it has no tensor of its own) and the name of its attribute."""

    full_name: str = "dense/kernel"
    shape: tuple[int, ...] | None = (2, 3)
    name: str = "VARIABLE_VALUE"


def graph(
    *nodes: Mapping[str, int] | Variable, slots: Mapping[int, Sequence[tuple[str, int, int]]] = {}
) -> ObjectGraph:
    """A graph of objects with these edges, and of float32 variables."""
    proto, entries = TrackableObjectGraph(), {}
    for number, each in enumerate(nodes):
        node = proto.nodes.add()
        if isinstance(each, Variable):
            node.attributes.add(name=each.name, full_name=each.full_name, checkpoint_key=str(number))
            if each.shape is not None:
                entries[str(number)] = Entry(each.shape, 1, ())
        else:
            for name, child in each.items():
                node.children.add(node_id=child, local_name=name)
        for slot, variable, place in slots.get(number, ()):
            node.slot_variables.add(slot_name=slot, original_variable_node_id=variable, slot_variable_node_id=place)
    return ObjectGraph(proto, entries)


@st.composite
def graphs(draw: st.DrawFn) -> ObjectGraph:
    """Any graph that a file can hold, sensible or not: cycles, unreachable objects, names of any characters."""
    count = draw(st.integers(1, 14))
    numbers = st.integers(0, count - 1)
    shapes = st.none() | st.lists(st.integers(0, 10**7), max_size=3).map(tuple)
    variables = st.builds(Variable, NAMES, shapes, st.sampled_from(["VARIABLE_VALUE", "STATE"]))
    nodes = st.dictionaries(NAMES, numbers, max_size=4) | variables
    slots = st.dictionaries(numbers, st.lists(st.tuples(NAMES, numbers, numbers), max_size=1), max_size=count)
    return graph(*draw(st.lists(nodes, min_size=count, max_size=count)), slots=draw(slots))


def keras_gan(prefix: Path) -> Path:
    """Writes a GAN of two Keras models with an optimizer each, after a step of both. Returns the index."""
    import keras
    import tensorflow as tf

    generator = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(6)])
    discriminator = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    parts = {"generator": generator, "discriminator": discriminator}
    objects: dict[str, Any] = dict(parts)
    for name, model in parts.items():
        optimizer = keras.optimizers.Adam(1e-4)
        optimizer.apply([tf.ones_like(each) for each in model.trainable_variables], model.trainable_variables)
        objects[f"{name}_optimizer"] = optimizer
    return Path(f"{tf.train.Checkpoint(**objects).write(str(prefix))}.index")


def tensorflow_gan(prefix: Path) -> Path:
    """The same of `tf.Module`s, with optimizers of Keras 2, which record slot variables as such."""
    import tensorflow as tf
    from tensorflow.python.keras.optimizer_v2.adam import Adam

    class Dense(tf.Module):
        def __init__(self, inputs: int, outputs: int, name: str) -> None:
            super().__init__(name)
            with self.name_scope:
                self.kernel = tf.Variable(tf.ones([inputs, outputs]), name="kernel")
                self.bias = tf.Variable(tf.zeros([outputs]), name="bias")

    class Net(tf.Module):
        def __init__(self, sizes: list[int], name: str) -> None:
            super().__init__(name)
            with self.name_scope:
                pairs = pairwise(sizes)
                self.layers = [Dense(*pair, name=f"layer{number}") for number, pair in enumerate(pairs)]

    objects: dict[str, Any] = {}
    for name, sizes in (("generator", [4, 8, 6]), ("discriminator", [6, 8, 1])):
        model, optimizer = Net(sizes, name), Adam(1e-4)
        optimizer.apply_gradients([(tf.ones_like(each), each) for each in model.trainable_variables])
        objects |= {name: model, f"{name}_optimizer": optimizer}
    return Path(f"{tf.train.Checkpoint(**objects).write(str(prefix))}.index")
