"""A checkpoint under other keys: only the index has them, so the data files stay as they are.

An object-based checkpoint and a name-based one differ in their keys, and in the string `OBJECT_GRAPH`, which only the
first one has. A directory that has both kinds is name-based, and has in its folder `objects` the index of an
object-based checkpoint over the same data files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from embexp.errors import DataError
from embexp.system import files
from embexp.tensor_bundle.index import (
    data_file,
    index_of,
    read_encoded,
    slice_key,
    slice_prefix,
    wire_fields,
    wire_number,
)
from embexp.tensor_bundle.writer import BundleWriter, index_content, sliced_entry

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""Key of the object graph; a name-based checkpoint has none."""
KEY_END = "/.ATTRIBUTES/VARIABLE_VALUE"
"""The end of the key of every variable in an object-based checkpoint."""
_OBJECTS = "objects"
_INDEX = "checkpoint.index"

Link = Callable[[Path, Path], object]
"""`link(file, new)` makes the content of a data file available as `new`."""


@dataclass(frozen=True)
class Slice:
    """A tensor that becomes a slice of a larger one.

    Attributes:
        start: in each dimension, where it begins in the whole.
        whole: shape of the whole.
    """

    key: str
    start: tuple[int, ...]
    shape: tuple[int, ...]
    whole: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the larger one."""
        return self.shape == self.whole


def hard_linked(file: Path, new: Path) -> None:
    """A hard link, or a copy where the file system has none."""
    whole = file.resolve()  # not a link to a symbolic link
    try:
        new.hardlink_to(whole)
    except OSError:
        shutil.copy2(whole, new)


def symbolic(file: Path, new: Path) -> None:
    """A symbolic link, for what does not last longer than the file."""
    new.symlink_to(file.absolute())


def rekey(index: Path, prefix: Path, keys: Mapping[str, str], strings: Mapping[str, bytes], link: Link) -> None:
    """Writes a checkpoint with tensors of another one.

    Args:
        index: of the other one.
        prefix: of the new one, whose folder exists.
        keys: of the tensors in the other one, by their new keys.
        link: how its data files get their new names.

    Raises:
        DataError: the index is damaged, or a data file is missing.
        FileExistsError: there is such a checkpoint already.
    """
    entries, shards = read_encoded(index)
    target = index_of(prefix)
    if target.exists():
        raise FileExistsError(target)
    for shard in range(shards):
        file = data_file(index, shard, shards)
        if file.exists():  # one without a tensor may have been left out
            link(file, data_file(target, shard, shards))
    target.write_bytes(index_content(_renamed(index, entries, keys), shards))
    if strings:
        writer = BundleWriter(prefix, adding=True)
        try:
            for key, value in strings.items():
                writer.add_strings(key, (), [value])
            writer.finish()
        finally:
            writer.close()


def rewrite(index: Path, keys: Mapping[str, str], slices: Mapping[str, Sequence[Slice]] | None = None) -> None:
    """Gives the tensors of a checkpoint other keys, in place; those without one are left out.

    Args:
        keys: the keys so far, by the new ones.
        slices: tensors that become slices of one, by the key of that.

    Raises:
        DataError: the index is damaged, or lacks one of the keys.
    """
    entries, shards = read_encoded(index)
    found = _renamed(index, entries, keys)
    for key, parts in (slices or {}).items():
        extents = [tuple(zip(each.start, each.shape, strict=True)) for each in parts]
        olds = _renamed(index, entries, {each.key: each.key for each in parts})
        kind = wire_number(wire_fields(olds[parts[0].key.encode()]), 1)
        found[key.encode()] = sliced_entry(kind, parts[0].whole, extents)
        for each, extent in zip(parts, extents, strict=True):
            found[slice_key(key.encode(), extent)] = olds[each.key.encode()]
    content = index_content(found, shards)
    with files.atomic_write(index) as written:
        written.write(content)


def to_names(directory: Path, names: Mapping[str, str]) -> None:
    """Makes the object-based checkpoint in a directory a name-based one, in place.

    Its data files are those of both kinds. The index of the object-based one goes into the folder `objects`; a
    directory can be moved, as the links in there are relative.

    Args:
        directory: holds `checkpoint.index`. Nobody else reads it yet.
        names: the new key of each tensor, by its key without the end that all keys of variables have.

    Raises:
        DataError: the index is damaged, or holds keys that have no name.
    """
    index, objects = directory / _INDEX, directory / _OBJECTS
    entries, shards = read_encoded(index)
    whole = {key.decode() for key in entries if not key.startswith(b"\x00")} - {OBJECT_GRAPH}
    if lacking := sorted(whole - {_full(key) for key in names}):
        raise DataError(f"{index}: found keys without a name: {', '.join(lacking)}")
    keys = {name: _full(key) for key, name in names.items() if _full(key) in whole}
    objects.mkdir()
    for shard in range(shards):
        file = data_file(index, shard, shards)
        if file.exists():
            (objects / file.name).symlink_to(Path(os.pardir) / file.name)
    shutil.copyfile(index, objects / _INDEX)
    rewrite(index, keys)


def object_index(directory: Path) -> Path:
    """The index of the object-based checkpoint in a directory, which may have a name-based one too.

    That in the folder `objects` counts only while it is about the same data files: whoever writes a name-based
    checkpoint over ours need not know of it.
    """
    index, beside = directory / _INDEX, directory / _OBJECTS / _INDEX
    if not index.is_file() or not beside.is_file():
        return index
    (entries, shards), (others, others_shards) = read_encoded(index), read_encoded(beside)
    values = {value for key, value in others.items() if key != OBJECT_GRAPH.encode()}
    return beside if shards == others_shards and values == set(entries.values()) else index


def is_name_based(index: Path) -> bool:
    """Whether a checkpoint has no object graph.

    Raises:
        DataError: the index is damaged.
    """
    return OBJECT_GRAPH.encode() not in read_encoded(index)[0]


def _full(key: str) -> str:
    return key if "/.ATTRIBUTES/" in key else key + KEY_END


def _renamed(index: Path, entries: Mapping[bytes, bytes], keys: Mapping[str, str]) -> dict[bytes, bytes]:
    if lacking := sorted(old for old in keys.values() if old.encode() not in entries):
        raise DataError(f"{index}: found no {', '.join(lacking)}")
    found: dict[bytes, bytes] = {}
    slices = {key: value for key, value in entries.items() if key.startswith(b"\x00")}
    for new, old in keys.items():
        found[new.encode()] = entries[old.encode()]
        start = slice_prefix(old.encode()) if slices else b""
        for key in [each for each in slices if each.startswith(start)]:
            found[slice_prefix(new.encode()) + key.removeprefix(start)] = slices[key]
    return found
