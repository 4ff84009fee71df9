"""Saving objects of any kind as an object-based or a name-based checkpoint, and converting one into the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import tensorflow as tf

from embexp.checkpoints import naming, object_graph, objects, store
from embexp.checkpoints.objects import Part
from embexp.checkpoints.store import plain_path
from embexp.errors import CheckpointError
from embexp.system.tensor_bundle import increments, writer
from embexp.system.tensor_bundle.index import Entry, prefix_of
from embexp.system.tensor_bundle.stacked import StackedMatrix
from embexp.system.tensor_bundle.tensor import Tensor
from embexp.system.tensor_bundle.writer import KEY_END, OBJECT_GRAPH, Slice


class Kind(StrEnum):
    """How variables are matched: by the graph of objects, or by their global names."""

    OBJECT = "object"
    NAME = "name"

    @classmethod
    def parse(cls, value: Kind | str) -> Kind:
        """The kind of that name.

        Raises:
            CheckpointError: there is none.
        """
        try:
            return cls(value)
        except ValueError:
            raise CheckpointError(f"kind = {value!r}: must be one of {', '.join(map(repr, map(str, cls)))}") from None


def save(path: Path | str, objects_or_variables: Any, *, kind: Kind | str = Kind.OBJECT) -> Path:
    """Saves objects. In a TensorFlow 1 graph, it saves their values in the default session.

    Writing is atomic, and the files are on disk when this returns. A checkpoint with that name is replaced.

    Args:
        path: prefix of the checkpoint; if it is an existing folder, `checkpoint` in it.
        objects_or_variables: a `tf.train.Checkpoint`, a `tf.Module`, a Keras model or another trackable; a mapping of
            trackables or variables by name; or a list of variables, also of parts of partitioned ones.
        kind: `object`, which both `restore` and `read` of `tf.train.Checkpoint` accept, including the lists and dicts
            of layers that Keras hides from it; or `name`, as `tf.compat.v1.train.Saver` writes: every variable by its
            global name. The name of a Keras variable is its path, and the name of a variable in a mapping is its key.
            Variables that share a name are saved under their object paths. Parts of a partitioned variable are slices
            of one tensor. `tf.train.latest_checkpoint` finds either in the folder.

    Returns:
        The prefix, for `tf.train.load_checkpoint`.

    Raises:
        CheckpointError: the objects can't be saved, or not as that kind; a Keras layer has weights that no checkpoint
            would include; the graph is finalized; or a file can't be written.
    """
    kind, prefix = Kind.parse(kind), store.prefix_for(path)
    objects.require_open_graph(
        path, "saved", "use the session's own Saver, or save in a session whose graph is not finalized"
    )
    checkpoint = objects.checkpoint_of(objects_or_variables)
    graph = objects.graph_of(checkpoint)
    others = [value.path or type(value.object).__name__ for value in graph.values if not value.is_variable]
    if kind is Kind.NAME and others:
        raise CheckpointError(
            f"{path}: a name-based checkpoint holds only variables, which these are not: {', '.join(others)}. "
            f"Save them with kind='object'"
        )
    if not graph.values:
        raise CheckpointError(f"{path}: there is nothing to save: the objects have no variables (yet)")
    if unreached := objects.unreached(graph):
        listed = ", ".join(str(each.path) for each in unreached)
        raise CheckpointError(
            f"{path}: checkpoints would lack {listed}: TensorFlow tracks only layers that are attributes of "
            f"layers, or in lists, tuples and dicts that are attributes. Keep these layers in one of those, not "
            f"in a set or another kind of object"
        )
    names = objects.names_of(objects_or_variables, graph)
    alone = {id(each) for each in objects_or_variables.values()} if isinstance(objects_or_variables, Mapping) else set()
    slices = _slices(graph, names, alone) if kind is Kind.NAME else {}
    with store.published(prefix) as folder:
        try:
            with plain_path(folder) as plain:
                checkpoint.write(str(plain / store.CHECKPOINT_NAME))
        except tf.errors.OpError as error:
            raise CheckpointError(f"{path}: TensorFlow can't save: {error.message}") from error
        if kind is Kind.NAME:
            keys = {name: path + KEY_END for path, name in names.items() if name not in slices}
            writer.rewrite(folder / f"{store.CHECKPOINT_NAME}.index", keys, slices)
        else:
            naming.add_counter(folder / store.CHECKPOINT_NAME)
    store.mark_published(prefix)
    return prefix


def _slices(graph: objects.LiveGraph, names: Mapping[str, str], alone: Collection[int]) -> dict[str, list[Slice]]:
    """The parts of partitioned variables by name, in the order in which they begin; without those with own names."""
    found: dict[str, list[tuple[Part, str]]] = {}
    for value in graph.values:
        if not value.is_variable or id(value.object) in alone:
            continue
        if (part := objects.part_of(value.object)) is not None:
            found.setdefault(names[value.path], []).append((part, value.path + KEY_END))
    objects.require_whole({name: [part for part, _ in parts] for name, parts in found.items()})
    return {
        name: [
            Slice(key, part.start, part.shape, part.whole)
            for part, key in sorted(parts, key=lambda each: each[0].start)
        ]
        for name, parts in found.items()
    }


@dataclass(frozen=True)
class Conversion:
    """What was converted.

    Attributes:
        names: the new name or key of each value by the old one, without the suffix that keys of variables share.
        tensors: shape and type of each value, by the new name.
    """

    prefix: Path
    was: Kind
    names: Mapping[str, str]
    tensors: Mapping[str, Entry]


def convert(
    path: Path | str, out: Path | str, *, kind: Kind | str, rename: Mapping[str, str] | None = None
) -> Conversion:
    """Writes a checkpoint in the other kind, or in the same kind with other names.

    To names: a variable gets its global name, or its object path if several variables share the name or there is none.
    To objects: the parts of a name, separated by `/`, become the edges between objects. Data files are hard-linked if
    the file system supports it, and copied otherwise; values are unchanged. The new checkpoint is full: all rows of an
    incremental checkpoint are written. Tables that `TPUEmbeddingV2` saved in stacks are written one by one.

    Args:
        path: of the checkpoint: its prefix, one of its files, or its folder; a SavedModel; or a run's directory.
        out: prefix of the new checkpoint; if it is an existing folder, `checkpoint` in it.
        rename: new names, or object paths if the new kind has them, by old names or object paths; without the suffix
            that all keys of variables share.

    Raises:
        CheckpointError: `rename` does not fit the checkpoint, or a file can't be written.
        DataError: there is no such checkpoint, or its index is damaged.
    """
    kind, prefix = Kind.parse(kind), store.prefix_for(out)
    index = store.find_index(path, as_objects=kind is Kind.OBJECT)
    tensors = increments.tensors(increments.chain(prefix_of(index)))
    entries = {key: each.entry for key, each in tensors.items()}
    was = Kind.OBJECT if OBJECT_GRAPH in entries else Kind.NAME
    old = {_short(key): key for key in entries if key != OBJECT_GRAPH}
    if was is kind is Kind.OBJECT:
        proto, names = _moved(index, rename or {})
    else:
        names = _names(index, kind, old) if was is not kind else {each: each for each in old}
        names.update(_given(index, old, rename or {}, kind))
        _check(index, names)
        proto = naming.from_keys({_key(name, kind): each for each, name in names.items()})
    if kind is Kind.OBJECT:
        object_graph.add_counter(proto)
    keys = {_key(name, kind): old[each] for each, name in names.items()}
    # A link to a data file would keep the stacks, which nobody reads there.
    linked = not any(isinstance(each, StackedMatrix) for each in tensors.values())
    copied = {key: tensors[each] for key, each in keys.items() if not linked or not isinstance(tensors[each], Tensor)}
    strings = {OBJECT_GRAPH: proto.SerializeToString()} if kind is Kind.OBJECT else {}
    with store.published(prefix) as folder:
        new = folder / store.CHECKPOINT_NAME
        if linked:
            stored = {key: each for key, each in keys.items() if key not in copied}
            writer.rekey(index, new, stored, strings, writer.hard_linked, copied)
        else:
            writer.write(new, copied, strings)
    store.mark_published(prefix, only_first=True)
    return Conversion(prefix, was, names, {name: entries[old[each]] for each, name in names.items()})


def _moved(index: Path, rename: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """The object graph with objects moved, and the new keys of all values."""
    proto = naming.read_object_graph(index)
    if faults := naming.move_values(proto, rename):
        raise CheckpointError(f"{index} can't be converted with these names: {'; '.join(faults)}")
    names = {}
    for path, node in zip(object_graph.paths_of(proto), proto.nodes, strict=True):
        for attribute in node.attributes:
            before, _, end = attribute.checkpoint_key.partition("/.ATTRIBUTES/")
            if before != path:
                names[_short(attribute.checkpoint_key)] = _short(f"{path}/.ATTRIBUTES/{end}")
                attribute.checkpoint_key = f"{path}/.ATTRIBUTES/{end}"
            else:
                names[_short(attribute.checkpoint_key)] = _short(attribute.checkpoint_key)
    return proto, names


def _names(index: Path, kind: Kind, old: Mapping[str, str]) -> dict[str, str]:
    if kind is Kind.OBJECT:
        return {each: _short(naming.key_of(each)) for each in old}
    proto = naming.read_object_graph(index)
    named = {attribute.checkpoint_key: attribute.full_name for node in proto.nodes for attribute in node.attributes}
    return objects.unique_names([(each, named.get(key, "")) for each, key in old.items()])


def _given(index: Path, old: Mapping[str, str], rename: Mapping[str, str], kind: Kind) -> dict[str, str]:
    faults = [f"it has no {each}" for each in rename if _short(each) not in old]
    faults += [f"the new name of {each} is empty" for each, new in rename.items() if not new]
    if faults:
        raise CheckpointError(f"{index} can't be converted with these names: {'; '.join(faults)}")
    return {_short(each): _short(new) if kind is Kind.OBJECT else new for each, new in rename.items()}


def _check(index: Path, names: Mapping[str, str]) -> None:
    count = Counter(names.values())
    shared = {name: [each for each, new in names.items() if new == name] for name in count if count[name] > 1}
    faults = [f"{' and '.join(olds)} would be {name}" for name, olds in shared.items()]
    faults += [
        f"{each} would have the name that object graphs have" for each, name in names.items() if name == OBJECT_GRAPH
    ]
    if faults:
        raise CheckpointError(f"{index} can't be converted: {'; '.join(faults)}. Give them other names")


def _short(key: str) -> str:
    return key.removesuffix(KEY_END)


def _key(name: str, kind: Kind) -> str:
    return name if kind is Kind.NAME or "/.ATTRIBUTES/" in name else name + KEY_END
