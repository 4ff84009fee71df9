"""The object graph that is read, against TensorFlow's own view of it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.checkpoints import object_graph
from embexp.checkpoints.object_graph import ObjectGraph
from embexp.errors import CheckpointError, DataError
from embexp.system.tensor_bundle.tensor import type_name
from embexp.system.tensor_bundle.writer import OBJECT_GRAPH
from tests import object_graphs
from tests.thoroughness import examples

DTYPES = [tf.float32, tf.float64, tf.int64, tf.bool, tf.bfloat16, tf.float16, tf.int32, tf.uint8, tf.string]
ATTRIBUTES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


@st.composite
def objects(draw: st.DrawFn) -> Any:
    """An object of objects, lists, dicts and variables; some of them stand in several places."""
    made: list[Any] = [tf.Module()]
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["module", "list", "dict", "variable", "again"]))
        shape = draw(st.lists(st.integers(0, 3), max_size=2))
        dtype = draw(st.sampled_from(DTYPES))
        new: Any = {
            "module": tf.Module,
            "list": list,
            "dict": dict,
            "variable": lambda shape=shape, dtype=dtype: (
                tf.Variable(tf.fill(shape, tf.cast(0, dtype)))
                if dtype != tf.string
                else tf.Variable(tf.fill(shape, "a"))
            ),
            "again": lambda: draw(st.sampled_from(made)),
        }[kind]()
        parent = draw(st.sampled_from([each for each in made if isinstance(each, tf.Module)]))
        name = draw(st.sampled_from("abcdef"))
        if isinstance(new, list):
            new = [tf.Module(), tf.Variable(1.0)]
        elif isinstance(new, dict):
            new = {draw(ATTRIBUTES): tf.Variable(1.0), "module": tf.Module()}
        setattr(parent, name, new)
        made.append(new if isinstance(new, tf.Module | tf.Variable) else tf.Module())
    return made[0]


def check(graph: ObjectGraph, prefix: str) -> None:
    """Compares with `tf.train.CheckpointView` and the list of variables."""
    view = tf.train.CheckpointView(prefix)
    variables = dict(tf.train.list_variables(prefix))
    reader = tf.train.load_checkpoint(prefix)
    dtypes = reader.get_variable_to_dtype_map()
    assert len(graph.nodes) == len(view._object_graph_proto.nodes)
    keys = []
    for number, node in enumerate(graph.nodes):
        assert {edge.local_name: edge.node_id for edge in node.children} == dict(view.children(number))
        for value in node.attributes:
            key = value.checkpoint_key
            assert list(graph.entries[key].shape) == variables[key]
            assert type_name(graph.entries[key].kind) == dtypes[key].name
            keys.append(key)
    assert sorted(keys) == sorted(set(variables) - {OBJECT_GRAPH})


@examples(30)
@given(objects())
def test_it_is_what_tensorflow_reads(root: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        prefix = tf.train.Checkpoint(root).write(f"{folder}/checkpoint")
        check(object_graph.read(Path(f"{prefix}.index")), prefix)


@pytest.mark.parametrize("gan", [object_graphs.keras_gan, object_graphs.tensorflow_gan])
def test_a_gan(gan: Any, tmp_path: Path) -> None:
    index = gan(tmp_path / "gan")
    check(object_graph.read(index), str(index).removesuffix(".index"))


def test_slot_variables(tmp_path: Path) -> None:
    graph = object_graph.read(object_graphs.tensorflow_gan(tmp_path / "gan"))
    root = {edge.local_name: edge.node_id for edge in graph.nodes[0].children}
    slots = graph.nodes[root["generator_optimizer"]].slot_variables

    def name(number: int) -> str:
        return str(graph.nodes[number].attributes[0].full_name)

    names = {(name(slot.original_variable_node_id), slot.slot_name, name(slot.slot_variable_node_id)) for slot in slots}
    assert ("generator/layer1/bias", "v", "Adam/generator/layer1/bias/v") in names
    assert len(slots) == 8
    assert sum(len(node.slot_variables) for node in graph.nodes) == 16


def test_a_name_based_checkpoint_has_none(tmp_path: Path) -> None:
    prefix = str(tmp_path / "named")
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["a"], shape_and_slices=[""], tensors=[tf.zeros([2])])
    with pytest.raises(CheckpointError) as caught:
        object_graph.read(Path(f"{prefix}.index"))
    assert str(caught.value) == (
        f"{prefix} is a name-based checkpoint: it holds 1 tensor by name, and no object graph\n"
        f"    `embexp checkpoint convert {prefix} OUT --to object` writes an object-based one"
    )


@pytest.mark.parametrize("content", [b"no protocol buffer", b"\x0a\x04\x0a\x02\x08\x05", b""])
def test_what_is_no_graph(content: bytes, tmp_path: Path) -> None:
    """The second one has an edge to an object that is not there, the third has no object."""
    prefix = str(tmp_path / "checkpoint")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=[OBJECT_GRAPH],
        shape_and_slices=[""],
        tensors=[tf.constant(content, tf.string)],
    )
    with pytest.raises(DataError, match=f"checkpoint.index: {OBJECT_GRAPH} is not an object graph: "):
        object_graph.read(Path(f"{prefix}.index"))
