"""TensorFlow checkpoints for the corpus, made without TensorFlow."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import google_crc32c
import numpy as np

from embexp.system.tensor_bundle import increments
from embexp.system.tensor_bundle.increments import SomeRows
from embexp.system.tensor_bundle.index import masked, read_encoded, slice_prefix
from embexp.system.tensor_bundle.tensor import INT64
from embexp.system.tensor_bundle.writer import KEY_END, OBJECT_GRAPH, BundleWriter
from tests.fuzz import contents
from tests.fuzz.contents import Files, plain

VALUES = np.arange(24, dtype=np.float32).reshape(8, 3)


def all_kinds() -> list[Files]:
    """By name, by object, in parts, and incremental: there the base is in a folder beside it."""
    with TemporaryDirectory() as folder:
        return [_by_name(Path(folder)), _by_object(Path(folder)), _in_parts(), _incremental(Path(folder) / "run")]


def _by_name(folder: Path) -> Files:
    with closing(BundleWriter(folder / "n")) as writer:
        writer.add("embedding/item", (8, 3), [VALUES])
        writer.add("embedding/item/momentum", (8, 3), [VALUES, VALUES[:0]])
        writer.add_bytes("rows7", INT64, (5,), np.arange(5))
        writer.add_strings("words", (), [b"some text"])
        writer.finish()
    return _files(folder, "n")


def _by_object(folder: Path) -> Files:
    from tensorboard.compat.proto.trackable_object_graph_pb2 import TrackableObjectGraph

    graph = TrackableObjectGraph()
    root, layer, variable = graph.nodes.add(), graph.nodes.add(), graph.nodes.add()
    root.children.add(node_id=1, local_name="layer")
    layer.children.add(node_id=2, local_name="kernel")
    layer.children.add(node_id=0, local_name="owner")
    layer.slot_variables.add(original_variable_node_id=2, slot_name="m", slot_variable_node_id=2)
    key = f"layer/kernel{KEY_END}"
    variable.attributes.add(name="VARIABLE_VALUE", full_name="dense/kernel", checkpoint_key=key)
    with closing(BundleWriter(folder / "o")) as writer:
        writer.add(key, (8, 3), [VALUES])
        writer.add_strings(OBJECT_GRAPH, (), [graph.SerializeToString()])
        writer.finish()
    state = b'model_checkpoint_path: "o"\nall_model_checkpoint_paths: "o"\n'
    return _files(folder, "o") | {"checkpoint": plain(state)}


def _in_parts() -> Files:
    """A partitioned variable: rows 0 to 5 and 5 to 8."""
    data = VALUES.tobytes()
    entries = {b"part": _entry((8, 3), slices=(((0, 5), (0, 3)), ((5, 3), (0, 3))))}
    for number, (start, rows) in enumerate(((0, 5), (5, 3))):
        entries[slice_prefix(b"part") + bytes([number])] = _entry(
            (rows, 3), 12 * start, data[12 * start :][: 12 * rows]
        )
    return {"p.index": contents.index(entries), "p.data-00000-of-00001": plain(data)}


def _incremental(folder: Path) -> Files:
    for name in ("base", "next"):
        (folder / name).mkdir(parents=True)
    with closing(BundleWriter(folder / "base" / "checkpoint")) as writer:
        writer.add("embedding/item", (8, 3), [VALUES])
        writer.finish()
    with closing(BundleWriter(folder / "next" / "checkpoint")) as writer:
        writer.add_bytes("numbers", INT64, (2,), np.array([1, 4]))
        writer.add("rows", (2, 3), [VALUES[:2] + 1])
        writer.finish()
    some = {"embedding/item": SomeRows((8, 3), "numbers", "rows")}
    increments.describe(folder / "next" / "checkpoint", folder / "base" / "checkpoint", some)
    found = {f"next/{name}": content for name, content in _files(folder / "next", "checkpoint").items()}
    found |= {f"base/{name}": content for name, content in _files(folder / "base", "checkpoint").items()}
    described = (folder / "next" / "checkpoint.increment.json").read_bytes()
    return found | {"next/checkpoint.increment.json": plain(json.dumps(json.loads(described)).encode())}


def _files(folder: Path, name: str) -> dict[str, contents.Content]:
    entries, shards = read_encoded(folder / f"{name}.index")
    found = {f"{name}.index": contents.index(entries, shards)}
    for data in sorted(folder.glob(f"{name}.data-*")):
        found[data.name] = plain(data.read_bytes())
    return found


def _entry(
    shape: tuple[int, ...], offset: int = 0, data: bytes = b"", slices: tuple[tuple[tuple[int, int], ...], ...] = ()
) -> bytes:
    """A BundleEntryProto of float32."""
    written = b"\x08\x01" + _message(2, b"".join(_message(2, b"\x08" + bytes([size])) for size in shape))
    written += b"\x20" + bytes([offset]) + b"\x28" + bytes([len(data)])
    written += b"\x35" + masked(google_crc32c.value(data)).to_bytes(4, "little")
    for extents in slices:
        written += _message(7, b"".join(_message(1, b"\x08%c\x10%c" % extent) for extent in extents))
    return written


def _message(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | 2, len(content)]) + content
