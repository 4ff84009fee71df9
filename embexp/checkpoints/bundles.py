"""Contents of TensorFlow's checkpoints: object-based, name-based, and the variables of a SavedModel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from embexp.checkpoints import groups, object_graph
from embexp.checkpoints.contents import Contents, KeyInfo, Stored, StoredKind
from embexp.errors import DataError
from embexp.tensor_bundle import increments, types
from embexp.tensor_bundle.index import Entry, read_index
from embexp.tensor_bundle.rekeying import OBJECT_GRAPH
from embexp.tensor_bundle.tensor import Tensor


def contents(path: Path, index: Path, *, saved_model: bool) -> Contents:
    """Lists a checkpoint.

    Args:
        path: as asked for.
        index: the `.index` file.
        saved_model: whether these are the variables of a SavedModel.

    Raises:
        DataError: there is no such index, or it is damaged.
    """
    if not index.is_file():
        raise DataError(f"{index}: found no such file, expected the index of a checkpoint")
    entries = read_index(index)
    faults = [*_faults(entries), *_some_rows(index)]
    names: Mapping[str, str] = {}
    if OBJECT_GRAPH in entries and not faults:
        try:
            graph = object_graph.read(index)
            names = {value.key: value.full_name for node in graph.nodes for value in node.values if value.full_name}
        except DataError as error:
            faults.append(str(error))
    object_based = OBJECT_GRAPH in entries
    places = groups.of_objects(entries) if object_based else groups.of_names(entries)
    listed = [
        Stored(
            KeyInfo(
                key=key,
                shape=entry.shape,
                dtype=types.name_of(entry.kind),
                bytes=sum(piece.size for piece in entry.pieces),
                variable=names.get(key) if object_based else key,
                group=places[key].name,
                table=places[key].table,
                slot=places[key].slot,
            ),
            Tensor(f"{index}: {key}", key, entry),
        )
        for key, entry in entries.items()
    ]
    listed.sort(key=lambda each: groups.in_order(each.info.group, each.info.short))
    return Contents(
        path,
        index.with_name(index.name.removesuffix(".index")),
        StoredKind.SAVED_MODEL if saved_model else StoredKind.OBJECT if object_based else StoredKind.NAME,
        {each.info.key: each for each in listed},
        faults=tuple(faults),
    )


def _some_rows(index: Path) -> list[str]:
    """A sentence about an incremental checkpoint."""
    link = increments.link(index.with_suffix(""))
    if link.base is None:
        return []
    keys = ", ".join(sorted(link.matrices))
    return [
        f"{index.parent} is incremental: it has only those rows that changed since {link.base.parent.name}, of {keys}"
    ]


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
