"""The object graph of checkpoints, against the class of its protocol buffer."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from embexp.tensor_bundle import object_graph
from embexp.tensor_bundle.object_graph import OBJECT_GRAPH
from tests.checkpoints import made


def test_it_is_what_tensorflow_parses(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        optimizer = tf.compat.v1.train.AdamOptimizer()
        weight = tf.compat.v1.get_variable("weight", [3], use_resource=True)
        optimizer.minimize(tf.reduce_sum(weight**2))
        session.run(tf.compat.v1.global_variables_initializer())
        with_slots = tf.compat.v1.train.Checkpoint(weight=weight, opt=optimizer).save(str(tmp_path / "c"), session)
    slots = 0
    for prefix in (made.keras_checkpoint(tmp_path / "model"), with_slots):
        graph = tf.train.load_checkpoint(str(prefix)).get_tensor(OBJECT_GRAPH)
        expected = tf.train.CheckpointView(str(prefix))._object_graph_proto.nodes
        nodes = object_graph.parse(graph)
        assert len(nodes) == len(expected)
        for found, node in zip(nodes, expected, strict=True):
            assert found.children == {each.local_name: each.node_id for each in node.children}
            assert [(each.name, each.variable, each.key) for each in found.attributes] == [
                (each.name, each.full_name, each.checkpoint_key) for each in node.attributes
            ]
            assert [(each.name, each.original, each.variable) for each in found.slots] == [
                (each.slot_name, each.original_variable_node_id, each.slot_variable_node_id)
                for each in node.slot_variables
            ]
            slots += len(found.slots)
        names = {each.checkpoint_key: each.full_name for node in expected for each in node.attributes if each.full_name}
        assert object_graph.variable_names(nodes) == names
    assert slots == 2


@pytest.mark.parametrize("content", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\x08\x01\x0a\x02\x0a\x01", b"\x0a\x02\x08\x80"])
def test_what_is_no_object_graph(content: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        object_graph.parse(content)
