"""Restoring into objects of any kind, with an account of every value.

TensorFlow restores: from a view of the checkpoint, which is an index of its own over the same data files. What it must
not restore is left out of the view's object graph, and names are made keys in it. So nothing is copied, TensorFlow's
own restore on creation holds, and the view's path is plain. Large variables that exist are assigned in blocks.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.checkpoint import util

from embexp.checkpoints import blocks, graph_protos, live, locating, matching, objects, renaming, taking
from embexp.checkpoints.account import LiveAccount
from embexp.checkpoints.matching import Matching
from embexp.checkpoints.plain_paths import plain_temporary
from embexp.errors import CheckpointError
from embexp.tensor_bundle import increments, rekeying
from embexp.tensor_bundle.index import Entry, read_index
from embexp.tensor_bundle.rekeying import OBJECT_GRAPH


def restore(
    path: Path | str,
    into: Any,
    *,
    only: Collection[str] | None = None,
    rename: Mapping[str, Any] | None = None,
) -> LiveAccount:
    """Restores a checkpoint into objects.

    An object-based checkpoint is matched by the graph of objects; variables that are created later get their values
    then. A name-based one is matched by the variables' global names, of Keras variables by their paths, and can't wait.
    Eagerly, what exists has its values at once; in a graph of TensorFlow 1, `run_restore_ops` of the account assigns
    them. Variables of another shape or type keep what they have. Large variables need no second copy in memory.

    Args:
        path: of the checkpoint: its prefix, one of its files, or its folder; a SavedModel; or a run's directory.
        into: a `tf.train.Checkpoint`, a `tf.Module`, a Keras model or another trackable; a mapping of trackables or
            variables by name; or a list of variables. Keys of a mapping are edges from the root.
        only: object paths or names of what to restore, with `*` for anything; an object stands for all that it has.
            None: everything.
        rename: where to restore what the checkpoint has under another path or name: by that, the new path or name, or
            the variable. An object is moved with all that it has.

    Returns:
        The account, which changes as waiting variables are created. Check it: `assert_complete`, `assert_consumed`.

    Raises:
        CheckpointError: the checkpoint is damaged, or `only` or `rename` name what it does not have.
        DataError: there is no such checkpoint, or one of its files is damaged.
    """
    index = locating.index_of(path)
    increments.require_whole(index)
    entries = read_index(index)
    checkpoint = objects.checkpoint_of(into)
    graph = live.graph_of(checkpoint)
    found, tensor_of = _matched(index, entries, into, graph, dict(rename or {}))
    _leave_out(index, found, only)
    found.mismatched = matching.mismatches(found, graph)
    assigned = blocks.assignable(found, entries, tensor_of) if tf.executing_eagerly() else {}
    status = _read(checkpoint, index, found, tensor_of, {*found.left_out, *found.mismatched, *assigned}, into)
    for key, variable in assigned.items():
        blocks.assign(variable, tensor_of[key], entries[tensor_of[key]])
    account = taking.Taking(str(path), checkpoint, found, status._checkpoint, only)

    def initialize(session: Any) -> None:
        status.run_restore_ops(session=_session(session))
        account.initialize(_session(session))

    return LiveAccount(account.take, lambda session: status.run_restore_ops(session=_session(session)), initialize)


def _matched(
    index: Path, entries: Mapping[str, Entry], into: Any, graph: live.LiveGraph, rename: dict[str, Any]
) -> tuple[Matching, dict[str, str]]:
    """The matching, and for each key in its object graph that of the tensor."""
    names = objects.names_of(into, graph)
    targets = renaming.targets(rename, graph, names)
    if OBJECT_GRAPH in entries:
        proto = graph_protos.read(index)
        faults = renaming.move(proto, targets)
        tensor_of = {key: key for key in entries if key != OBJECT_GRAPH}
        extra = []
    else:
        source_of, faults = renaming.sources(targets, names, entries)
        proto, tensor_of = graph_protos.named(graph, source_of)
        unused = sorted(entries.keys() - tensor_of.values())
        extra = [matching.Stored(name, None, matching.described("", name, entries[name])) for name in unused]
    if faults:
        raise CheckpointError(f"{index}: can't rename: {'; '.join(faults)}")
    found = Matching(proto, [*matching.values_in(proto, entries, tensor_of), *extra])
    found.objects = matching.match(proto, graph)
    return found, tensor_of


def _leave_out(index: Path, found: Matching, only: Collection[str] | None) -> None:
    unknown = [each for each in only or () if not any(matching.fits(stored.value, each) for stored in found.stored)]
    if unknown:
        known = ", ".join(str(each.value) for each in found.stored[:20])
        raise CheckpointError(
            f"{index} has nothing of the name {', '.join(unknown)}, to restore only that; it has {known}"
        )
    found.left_out = {each.key for each in found.stored if not matching.selected(each.value, only)}


def _read(
    checkpoint: Any, index: Path, found: Matching, tensor_of: Mapping[str, str], without: Collection[str], into: Any
) -> Any:
    """Has TensorFlow restore all but some keys; returns its status object."""
    proto = type(found.proto)()
    proto.CopyFrom(found.proto)
    for node in proto.nodes:
        kept = [each for each in node.attributes if each.checkpoint_key not in without]
        del node.attributes[:]
        node.attributes.extend(kept)
        if matching.registered_key(node) in without:
            node.ClearField("registered_saver")
    util.add_checkpoint_values_check(proto)
    keys = {key: tensor for key, tensor in tensor_of.items() if key not in without}
    folder = tempfile.TemporaryDirectory(prefix="embexp-", dir=plain_temporary(index.parent))
    prefix = Path(folder.name) / locating.NAME
    counts = isinstance(into, tf.train.Checkpoint) and taking.SAVE_COUNTER in tensor_of and tf.executing_eagerly()
    try:
        rekeying.rekey(index, prefix, keys, {OBJECT_GRAPH: proto.SerializeToString()}, rekeying.symbolic)
        status = (checkpoint.restore if counts else checkpoint.read)(str(prefix)).expect_partial()
    except BaseException as error:
        folder.cleanup()
        if isinstance(error, tf.errors.OpError | ValueError | IndexError):
            raise CheckpointError(f"{index}: TensorFlow can't restore it: {error}") from error
        raise
    # What waits is read when it is created: the view lasts as long as TensorFlow's record of what waits.
    weakref.finalize(status._checkpoint, folder.cleanup)
    return status


def _session(session: Any) -> Any:
    found = session if session is not None else tf.compat.v1.get_default_session()
    if found is None and not tf.executing_eagerly():
        raise CheckpointError("no session: give one, or call this in a `with session.as_default():` block")
    return found
