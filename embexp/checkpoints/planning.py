"""The account of a restore before it is done: what fits an object, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from embexp.checkpoints import graph_protos, live, matching
from embexp.checkpoints.account import Account, Dropped
from embexp.checkpoints.matching import Matching
from embexp.tensor_bundle.increments import entries_as_whole
from embexp.tensor_bundle.rekeying import OBJECT_GRAPH


def account(source: str, checkpoint: Any, index: Path) -> Account:
    """Compares an object-based checkpoint with an object all of whose variables exist; reads no values.

    Args:
        source: the checkpoint, for readers.
        checkpoint: a `tf.train.Checkpoint`.
        index: of the checkpoint, which may be incremental.

    Raises:
        CheckpointError: the object graph can't be read.
        DataError: the index is damaged.
    """
    graph, entries = live.graph_of(checkpoint), entries_as_whole(index)
    proto = graph_protos.read(index)
    found = Matching(proto, matching.values_in(proto, entries, {key: key for key in entries if key != OBJECT_GRAPH}))
    found.objects = matching.match(proto, graph)
    found.mismatched = matching.mismatches(found, graph)
    found.dropped = matching.dropped(found)
    filled = {id(found.objects[each.node]) for each in found.stored if each.node in found.objects}
    return Account(
        source,
        restored=tuple(
            each.value for each in found.stored if each.node in found.objects and each.key not in found.unused
        ),
        missing=tuple(matching.wanted(each) for each in graph.values if id(each.object) not in filled),
        extra=tuple(each.value for each in found.stored if each.node not in found.objects),
        mismatched=tuple(found.mismatched.values()),
        dropped=tuple(
            Dropped(each.value, found.dropped[each.key].value) for each in found.stored if each.key in found.dropped
        ),
    )
