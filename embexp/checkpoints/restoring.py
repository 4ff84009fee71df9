"""Restoring into objects of any kind, with an account of every value.

TensorFlow restores: from a view of the checkpoint, which is an index of its own over the same data files. What it must
not restore is left out of the view's object graph, and names are made keys in it. So nothing is copied, TensorFlow's
own restore on creation holds, and the view's path is plain. Large variables that exist are assigned in blocks.
"""

from __future__ import annotations

import contextlib
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import util
from tensorflow.python.ops import resource_variable_ops

from embexp.checkpoints import matching, naming, objects, opening, paths, taking
from embexp.checkpoints.account import LiveAccount
from embexp.checkpoints.matching import Matching
from embexp.checkpoints.objects import Restored, part_of
from embexp.checkpoints.paths import plain_temporary
from embexp.errors import CheckpointError
from embexp.tables.reading import StreamedTable
from embexp.tensor_bundle import rekeying
from embexp.tensor_bundle.index import Entry, read_index
from embexp.tensor_bundle.rekeying import OBJECT_GRAPH
from embexp.tensor_bundle.tensor import read_blocks, read_content

_BLOCK_BYTES = 1 << 22


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
        path: a checkpoint's prefix, one of its files, or its folder, also of TensorFlow's first format (V1); a
            SavedModel; a run's directory; or a `.weights.h5` or `.keras` file. The names in such a file are those of
            its datasets, such as `layers/dense/vars/0`.
        into: a `tf.train.Checkpoint`, a `tf.Module`, a Keras model or another trackable; a mapping of trackables or
            variables by name; or a list of variables. Keys of a mapping are edges from the root. Parts of a partitioned
            variable of TensorFlow 1 get their slices of a name-based checkpoint, whatever its parts.
        only: object paths or names of what to restore, with `*` for anything; an object stands for all that it has.
            Slot variables of TensorFlow 1's optimizers belong to the optimizer. None: everything.
        rename: where to restore what the checkpoint has under another path or name: by that, the new path or name, or
            the variable. An object is moved with all that it has.

    Returns:
        The account, which changes as waiting variables are created. Check it: `assert_complete`, `assert_consumed`.

    Raises:
        CheckpointError: the checkpoint is damaged, `only` or `rename` name what it does not have, or the graph is
            finalized.
        DataError: there is no such checkpoint, or one of its files is damaged.
    """
    objects.require_open_graph(
        path, "restored", "restore before the session is made, and run the account's operations in it"
    )
    checkpoint = objects.checkpoint_of(into)
    names = objects.names_of(into, objects.graph_of(checkpoint))
    target = _Target(checkpoint, names, {}, counts=isinstance(into, tf.train.Checkpoint))
    return _restored(Path(path), target, only, rename or {})


def restore_run(
    path: Path, checkpoint: Any, *, only: Collection[str] | None = None, rename: Mapping[str, str] | None = None
) -> LiveAccount:
    """Restores a checkpoint, of whatever program, into a run, whose variables have the names of `naming`.

    See `restore`. Tables are assigned in blocks.

    Args:
        checkpoint: the run's `tf.train.Checkpoint`, all of whose variables exist.
        only: what to restore; None: everything.
        rename: where to restore what has another path or name in the checkpoint.
    """
    names = naming.variable_names(checkpoint)
    return _restored(path, _Target(checkpoint, names, names, counts=False), only, rename or {})


@dataclass(frozen=True)
class _Target:
    """What is restored into.

    Attributes:
        checkpoint: a `tf.train.Checkpoint`.
        names: global names of its variables, by object path.
        shown: those by which the account calls them; variables that are not in it have their own.
        counts: whether TensorFlow's count of saves is a part of it.
    """

    checkpoint: Any
    names: Mapping[str, str]
    shown: Mapping[str, str]
    counts: bool


def _restored(path: Path, target: _Target, only: Collection[str] | None, rename: Mapping[str, Any]) -> LiveAccount:
    checkpoint, names = target.checkpoint, target.names
    with contextlib.ExitStack() as stack:
        index = _index(path, stack)
        entries, graph = read_index(index), objects.graph_of(checkpoint)
        found, tensor_of = _matched(index, entries, graph, names, rename)
        _leave_out(index, found, names, only)
        found.mismatched = matching.mismatches(found, graph)
        found.dropped = matching.dropped(found)
        assigned = _assignable(found, entries, tensor_of)
        parts = _parts(found)
        without = {*found.unused, *assigned, *parts}
        slices = _slices(index, parts, tensor_of, stack)
        counted = target.counts and taking.SAVE_COUNTER in tensor_of and tf.executing_eagerly()
        status = _read(checkpoint.restore if counted else checkpoint.read, index, found, tensor_of, without)
        weakref.finalize(status._checkpoint, stack.pop_all().close)
    source = str(_source(path, index)).removesuffix(".index")
    account = taking.Taking(source, checkpoint, found, status._checkpoint, only, target.shown)

    def run(session: Any = None) -> None:
        found_session = _session(session)
        status.run_restore_ops(session=found_session)
        slices.run(found_session)
        with contextlib.nullcontext() if found_session is None else found_session.as_default():
            for key, variable in assigned.items():
                assign_in_blocks(variable, tensor_of[key], entries[tensor_of[key]])

    def initialize(session: Any = None) -> None:
        if not tf.executing_eagerly():
            run(session)
            account.initialize(_session(session))

    if tf.executing_eagerly():
        run()
        return LiveAccount(account.take, lambda session: None, initialize)
    return LiveAccount(account.take, run, initialize)


def _source(path: Path, index: Path) -> Path:
    """What the account calls the checkpoint: its index or, of a format that is converted, the file itself."""
    if paths.is_keras_file(path):
        return path
    found = opening.find(path)
    return index if found.suffix == ".index" else found


def _index(path: Path, stack: contextlib.ExitStack) -> Path:
    """The index of a checkpoint; that of Keras' weights is in a temporary folder until the stack is closed."""
    if not paths.is_keras_file(path):
        return paths.index_of(path)
    return write_keras_bundle(path, Path(stack.enter_context(_temporary(path.parent))))


def _matched(
    index: Path,
    entries: Mapping[str, Entry],
    graph: objects.LiveGraph,
    names: Mapping[str, str],
    rename: Mapping[str, Any],
) -> tuple[Matching, dict[str, str]]:
    """The matching, and for each key in its object graph that of the tensor."""
    targets = naming.rename_targets(rename, graph, names)
    if OBJECT_GRAPH in entries:
        proto = naming.read_object_graph(index)
        faults = naming.move_values(proto, targets)
        tensor_of = {key: key for key in entries if key != OBJECT_GRAPH}
        extra = []
    else:
        source_of, faults = naming.rename_sources(targets, names, entries)
        proto, tensor_of = naming.named_graph(graph, source_of)
        unused = sorted(entries.keys() - tensor_of.values())
        extra = [matching.Stored(name, None, matching.described("", name, entries[name])) for name in unused]
    if faults:
        raise CheckpointError(f"{index}: can't rename: {'; '.join(faults)}")
    stored = [*matching.values_in(proto, entries, tensor_of), *extra]
    found = Matching(proto, stored, by_name=OBJECT_GRAPH not in entries)
    found.objects = matching.match(proto, graph)
    return found, tensor_of


def _parts(found: Matching) -> dict[str, Any]:
    """The parts of partitioned variables that are restored from slices, by the keys of their values."""
    if not found.by_name:
        return {}
    unused = found.unused
    objects = {each.key: found.objects.get(each.node) for each in found.stored if each.node is not None}
    return {key: variable for key, variable in objects.items() if key not in unused and part_of(variable) is not None}


def _slices(
    index: Path, parts: Mapping[str, Any], tensor_of: Mapping[str, str], stack: contextlib.ExitStack
) -> Restored:
    """What restores parts, from a view of the checkpoint that lasts until the stack is closed."""
    names = {tensor_of[key] for key in parts}
    prefix = Path(stack.enter_context(_temporary(index.parent))) / paths.CHECKPOINT_NAME if parts else index
    if parts:
        rekeying.rekey(index, prefix, {name: name for name in names}, {}, rekeying.symbolic)
    return Restored(str(prefix), [(variable, tensor_of[key]) for key, variable in parts.items()])


def _leave_out(index: Path, found: Matching, names: Mapping[str, str], only: Collection[str] | None) -> None:
    selected = matching.Selection(found.proto, [each.value for each in found.stored], names, only)
    unknown = [
        pattern
        for pattern in only or ()
        if not any(selected.named(stored.value, stored.node, pattern) for stored in found.stored)
    ]
    if unknown:
        known = ", ".join(str(each.value) for each in found.stored[:20])
        raise CheckpointError(
            f"{index} has nothing of the name {', '.join(unknown)}, to restore only that; it has {known}"
        )
    found.left_out = {each.key for each in found.stored if not selected(each.value, each.node)}


def _read(
    read: Callable[[str], Any], index: Path, found: Matching, tensor_of: Mapping[str, str], without: Collection[str]
) -> Any:
    """Has TensorFlow restore all but some keys by `read(prefix)`; returns its status object."""
    proto = type(found.proto)()
    proto.CopyFrom(found.proto)
    for node in proto.nodes:
        kept = [each for each in node.attributes if each.checkpoint_key not in without]
        del node.attributes[:]
        node.attributes.extend(kept)
        if matching.registered_key(node) in without:
            node.ClearField("registered_saver")
    for first, *others in found.nodes_by_object():
        # TensorFlow restores an object from the first of its nodes only, whether that has a value or not.
        if not proto.nodes[first].attributes:
            for other in others:
                proto.nodes[first].attributes.extend(proto.nodes[other].attributes)
    util.add_checkpoint_values_check(proto)
    keys = {key: tensor for key, tensor in tensor_of.items() if key not in without}
    folder = _temporary(index.parent)
    prefix = Path(folder.name) / paths.CHECKPOINT_NAME
    try:
        rekeying.rekey(index, prefix, keys, {OBJECT_GRAPH: proto.SerializeToString()}, rekeying.symbolic)
        status = read(str(prefix)).expect_partial()
    except BaseException as error:
        folder.cleanup()
        if isinstance(error, tf.errors.OpError | ValueError | IndexError):
            raise CheckpointError(f"{index}: TensorFlow can't restore it: {error}") from error
        raise
    # What waits is read when it is created: the view lasts as long as TensorFlow's record of what waits.
    weakref.finalize(status._checkpoint, folder.cleanup)
    return status


def _temporary(beside: Path) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="embexp-", dir=plain_temporary(beside))


def _session(session: Any) -> Any:
    found = session if session is not None else tf.compat.v1.get_default_session()
    if found is None and not tf.executing_eagerly():
        raise CheckpointError("no session: give one, or call this in a `with session.as_default():` block")
    return found


def _assignable(found: Matching, entries: Mapping[str, Entry], tensor_of: Mapping[str, str]) -> dict[str, Any]:
    """What is assigned row by row, by the key of its value: tables of runs; eagerly, variables larger than a block."""
    chosen = {}
    unused = found.unused
    for stored in found.stored:
        if stored.node is None or stored.key not in tensor_of or stored.key in unused:
            continue
        variable: Any = found.objects.get(stored.node)
        if found.by_name and part_of(variable) is not None:
            continue  # restored by slices
        if isinstance(variable, StreamedTable):
            chosen[stored.key] = variable
        elif not tf.executing_eagerly():
            continue  # a variable that is not initialized takes the tensor over, so there is no second copy
        elif (
            _resource_variables(variable)
            and _in_rows(entries[tensor_of[stored.key]])
            and not found.proto.nodes[stored.node].children
        ):
            chosen[stored.key] = variable
    return chosen


def assign_in_blocks(variable: Any, key: str, entry: Entry) -> None:
    """Assigns the rows of a tensor; to a table of a graph, in the default session.

    Raises:
        CheckpointError: rows that can't be assigned would change.
        DataError: a data file is damaged or cut short; rows may be assigned then.
    """
    if isinstance(variable, StreamedTable):
        try:
            variable.restore(read_blocks(key, entry, variable.rows_per_block))
        except ValueError as error:
            raise CheckpointError(f"{entry.pieces[0].path}: {key} does not fit: {error}") from error
        return
    parts = _resource_variables(variable)
    for start, block in _blocks(key, entry, parts[0].dtype.base_dtype.as_numpy_dtype):
        rows = tf.range(start, start + len(block), dtype=tf.int64)
        for part in parts:
            part.scatter_update(tf.IndexedSlices(block, rows))


def _resource_variables(variable: Any) -> list[Any]:
    """The variables of resource type that make up a variable: itself, or its copies; none if it is of another kind."""
    if isinstance(variable, keras.Variable):
        variable = variable.value
    if isinstance(variable, resource_variable_ops.ResourceVariable):
        return [variable]
    copies = getattr(variable, "values", ())
    if isinstance(variable, tf.distribute.DistributedValues) and isinstance(variable, tf.Variable):
        return [each for each in copies if isinstance(each, resource_variable_ops.ResourceVariable)]
    return []


def _in_rows(entry: Entry) -> bool:
    dtype = tf.dtypes.as_dtype(entry.kind)
    if dtype in (tf.string, tf.resource, tf.variant) or len(entry.shape) == 0:
        return False
    sliced = all(piece.shape[1:] == entry.shape[1:] for piece in entry.pieces)
    return sliced and int(np.prod(entry.shape, dtype=np.int64)) * dtype.size > _BLOCK_BYTES


def _blocks(key: str, entry: Entry, dtype: Any) -> Iterator[tuple[int, np.ndarray]]:
    row_bytes = int(np.prod(entry.shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize
    size = max(1, _BLOCK_BYTES // row_bytes) * row_bytes
    start = 0
    for piece in entry.pieces:
        for data in read_content(key, piece, size):
            block = np.frombuffer(data, dtype).reshape(-1, *entry.shape[1:])
            yield start, block
            start += len(block)


def write_keras_bundle(path: Path, folder: Path) -> Path:
    """Writes a name-based checkpoint with the weights of a `.weights.h5` or `.keras` file, and returns its index.

    Variables are named as datasets are, such as `layers/dense/vars/0`. One at a time is in memory.

    Args:
        folder: an empty one, for the checkpoint.

    Raises:
        DataError: the file can't be read.
    """
    prefix = folder / paths.CHECKPOINT_NAME
    parts: list[str] = []
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:  # the caller may be building a graph
        for key, stored in opening.open_checkpoint(path).entries.items():
            if stored.numeric:
                parts.append(str(folder / f"part-{len(parts)}"))
                value = stored.values.value()
                fed = tf.compat.v1.placeholder(value.dtype, value.shape)
                saved = tf.raw_ops.SaveV2(prefix=parts[-1], tensor_names=[key], shape_and_slices=[""], tensors=[fed])
                session.run(saved, {fed: value})
        merged = tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=parts, destination_prefix=str(prefix), delete_old_dirs=False
        )
        session.run(merged)
    return prefix.with_name(f"{prefix.name}.index")
