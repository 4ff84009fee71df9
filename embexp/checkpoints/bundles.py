"""Contents of TensorFlow's checkpoints: object-based, name-based, and the variables of a SavedModel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from embexp.checkpoints import groups
from embexp.checkpoints.contents import Contents, KeyInfo, Stored, StoredKind
from embexp.errors import DataError
from embexp.tensor_bundle import increments, types
from embexp.tensor_bundle.changed_rows import ChangedMatrix
from embexp.tensor_bundle.increments import Link
from embexp.tensor_bundle.index import Entry
from embexp.tensor_bundle.rekeying import OBJECT_GRAPH
from embexp.tensor_bundle.tensor import Tensor


def contents(path: Path, index: Path, *, saved_model: bool, named: bool = True) -> Contents:
    """Lists a checkpoint.

    Args:
        path: as asked for.
        index: the `.index` file.
        saved_model: whether these are the variables of a SavedModel.
        named: whether the names of variables are read, which takes some 100 ms where there is an object graph.

    Raises:
        CheckpointError: it is incremental, and what it is based on is missing or has changed.
        DataError: there is no such index, or it is damaged.
    """
    if not index.is_file():
        raise DataError(f"{index}: found no such file, expected the index of a checkpoint")
    prefix = index.with_name(index.name.removesuffix(".index"))
    links = increments.chain(prefix)
    entries = [link.entries() for link in links]
    faults = [fault for each in entries for fault in _faults(each)]
    names: Mapping[str, str] = {}
    object_based = OBJECT_GRAPH in entries[0]
    if object_based and named and not faults:
        from embexp.checkpoints import object_graph

        try:
            graph = object_graph.read(index)
            names = {value.key: value.full_name for node in graph.nodes for value in node.values if value.full_name}
        except DataError as error:
            faults.append(str(error))
    tensors = _tensors(links, entries)
    places = groups.of_objects(tensors) if object_based else groups.of_names(tensors)
    listed = [
        Stored(
            KeyInfo(
                key=key,
                shape=entry.shape,
                dtype=types.name_of(entry.kind),
                bytes=size,
                variable=names.get(key) if object_based else key,
                group=places[key].name,
                table=places[key].table,
                slot=places[key].slot,
            ),
            values,
        )
        for key, (entry, size, values) in tensors.items()
    ]
    listed.sort(key=lambda each: groups.in_order(each.info.group, each.info.short))
    return Contents(
        path,
        prefix,
        StoredKind.SAVED_MODEL if saved_model else StoredKind.OBJECT if object_based else StoredKind.NAME,
        {each.info.key: each for each in listed},
        base=None if links[0].base is None else links[0].base.parent,
        faults=tuple(faults),
        files=(index, *sorted({piece.path for each in entries for entry in each.values() for piece in entry.pieces})),
    )


def _tensors(
    links: Sequence[Link], entries: Sequence[Mapping[str, Entry]]
) -> dict[str, tuple[Entry, int, Tensor | ChangedMatrix]]:
    """Of each key the place of its values, or those of its base; the bytes in the checkpoint itself; and the values."""
    found: dict[str, tuple[Entry, int, Tensor | ChangedMatrix]] = {}
    counted: set[str] = set()
    parts = {name for some in links[0].matrices.values() for name in (some.numbers, some.rows)}
    for key, entry in entries[0].items():
        if key not in parts and key not in links[0].matrices:
            found[key] = entry, _size(entry), _tensor(links[0], key, entry)
    for key, some in links[0].matrices.items():
        changes = []
        for link, each in zip(links, entries, strict=True):
            if key not in link.matrices:
                break
            names = link.matrices[key].numbers, link.matrices[key].rows
            if not all(name in each for name in names):
                raise DataError(f"{link.prefix}: found no {' and no '.join(names)}, expected the changed rows of {key}")
            changes.append((_tensor(link, names[0], each[names[0]]), _tensor(link, names[1], each[names[1]])))
        if key not in each or each[key].shape != some.shape:
            raise DataError(f"{link.prefix}: found no {key} of {list(some.shape)}, which {links[0].prefix} is based on")
        numbers, rows = changes[0]
        size = _size(rows.entry) + (0 if numbers.key in counted else _size(numbers.entry))
        counted.add(numbers.key)  # a table and its slots share it
        found[key] = each[key], size, ChangedMatrix(_tensor(link, key, each[key]), changes[::-1])
    return found


def _tensor(link: Link, key: str, entry: Entry) -> Tensor:
    return Tensor(f"{link.prefix}.index: {key}", key, entry)


def _size(entry: Entry) -> int:
    return sum(piece.size for piece in entry.pieces)


def _faults(entries: Mapping[str, Entry]) -> list[str]:
    """Data files that are missing or cut short, a sentence for each."""
    needed: dict[Path, list[tuple[int, str]]] = {}
    for key, entry in entries.items():
        for piece in entry.pieces:
            needed.setdefault(piece.path, []).append((piece.offset + piece.size, key))
    found = []
    for path, ends in sorted(needed.items()):
        if not path.is_file():
            found.append(f"{path}: found no such file, and the index names it for {len(ends)} of {len(entries)} keys")
            continue
        size, end = path.stat().st_size, max(ends)[0]
        if size < end:
            lost = len({key for until, key in ends if until > size})
            found.append(
                f"{path}: found {size:,} bytes, expected {end:,}: the file is cut short, {lost} of {len(entries)} keys"
                " are not in it whole"
            )
    return found
