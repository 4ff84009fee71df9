"""Converting a checkpoint to the other kind, without loading it: the data files stay as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embexp.checkpoints import graph_protos, live, locating, publishing, renaming
from embexp.checkpoints.kinds import Kind
from embexp.errors import CheckpointError
from embexp.tensor_bundle import increments, rekeying
from embexp.tensor_bundle.index import Entry, read_index
from embexp.tensor_bundle.rekeying import KEY_END, OBJECT_GRAPH


@dataclass(frozen=True)
class Conversion:
    """What was converted.

    Attributes:
        prefix: of the new checkpoint.
        was: the kind of the old one.
        names: the new name, or key, of each value by the old one; keys without the end that those of variables have.
        tensors: shape and type of each value, by the new name.
    """

    prefix: Path
    was: Kind
    names: Mapping[str, str]
    tensors: Mapping[str, Entry]


def convert(
    path: Path | str, out: Path | str, *, kind: Kind | str, rename: Mapping[str, str] | None = None
) -> Conversion:
    """Writes a checkpoint as one of the other kind, or of the same kind under other names.

    To names: a variable has its global name, or its object path where several variables share a name or there is none.
    To objects: the parts of a name, between `/`, are the edges from object to object. Data files are hard-linked where
    the file system can do that, and copied elsewhere; values stay as they are.

    Args:
        path: of the checkpoint: its prefix, one of its files, or its folder; a SavedModel; or a run's directory.
        out: prefix of the new one; in an existing folder, `checkpoint` in it.
        kind: of the new one.
        rename: new names (or object paths, as the new kind has them) by old names or object paths, without the end that
            all keys of variables have.

    Raises:
        CheckpointError: `rename` does not fit the checkpoint, or a file can't be written.
        DataError: there is no such checkpoint, or its index is damaged.
    """
    kind, prefix = Kind.parse(kind), locating.prefix_for(out)
    index = locating.index_of(path, as_objects=kind is Kind.OBJECT)
    increments.require_whole(index)
    entries = read_index(index)
    was = Kind.OBJECT if OBJECT_GRAPH in entries else Kind.NAME
    old = {_short(key): key for key in entries if key != OBJECT_GRAPH}
    if was is kind is Kind.OBJECT:
        proto, names = _moved(index, rename or {})
    else:
        names = _names(index, kind, old) if was is not kind else {each: each for each in old}
        names.update(_given(index, old, rename or {}, kind))
        _check(index, names)
        proto = graph_protos.from_keys({_key(name, kind): each for each, name in names.items()})
    keys = {_key(name, kind): old[each] for each, name in names.items()}
    strings = {OBJECT_GRAPH: proto.SerializeToString()} if kind is Kind.OBJECT else {}
    with publishing.published(prefix) as folder:
        rekeying.rekey(index, folder / locating.NAME, keys, strings, rekeying.hard_linked)
    if kind is Kind.NAME:
        publishing.mark_latest(prefix, only_first=True)
    return Conversion(prefix, was, names, {name: entries[old[each]] for each, name in names.items()})


def _moved(index: Path, rename: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """The object graph with objects moved, and the new keys of all values."""
    proto = graph_protos.read(index)
    if faults := renaming.move(proto, rename):
        raise CheckpointError(f"{index} can't be converted with these names: {'; '.join(faults)}")
    names = {}
    for path, node in zip(graph_protos.paths_of(proto), proto.nodes, strict=True):
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
        return {each: _short(graph_protos.key_of(each)) for each in old}
    proto = graph_protos.read(index)
    named = {attribute.checkpoint_key: attribute.full_name for node in proto.nodes for attribute in node.attributes}
    return live.unique_names([(each, named.get(key, "")) for each, key in old.items()])


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
