"""Files in parts, so that a part can be mutated while lengths and checksums around it stay right."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Pack = Callable[[Sequence[bytes]], bytes]


@dataclass(frozen=True)
class Content:
    """A file.

    Attributes:
        parts: what it is made of.
        pack: makes the file of the parts.
    """

    parts: tuple[bytes, ...]
    pack: Pack = b"".join

    @property
    def whole(self) -> bytes:
        """The file."""
        return self.pack(self.parts)


Files = Mapping[str, Content]
"""A file, or several in one folder, by name; the first is the one that is read."""


def plain(data: bytes) -> Content:
    """A file that is one part."""
    return Content((data,))


def lines(text: str) -> Content:
    """A text file whose parts are its lines."""
    return Content(tuple(line.encode() for line in text.splitlines(keepends=True)))


def npy(header: bytes, numbers: bytes) -> Content:
    """A `.npy` file of version 1."""
    return Content((header, numbers), packed_npy)


def packed_npy(parts: Sequence[bytes]) -> bytes:
    header, numbers = parts
    return b"\x93NUMPY\x01\x00" + (len(header) & 0xFFFF).to_bytes(2, "little") + header + numbers


def zipped(members: Mapping[str, Content], how: int = zipfile.ZIP_DEFLATED) -> Content:
    """A zip whose parts are those of its members."""

    def pack(parts: Sequence[bytes]) -> bytes:
        file, left = io.BytesIO(), list(parts)
        with zipfile.ZipFile(file, "w", how) as archive:
            for name, content in members.items():
                count = len(content.parts)
                archive.writestr(zipfile.ZipInfo(name), content.pack(left[:count]), how)
                left = left[count:]
        return file.getvalue()

    return Content(tuple(part for content in members.values() for part in content.parts), pack)


def gzipped(content: Content) -> Content:
    """The same, compressed by gzip."""
    return Content(content.parts, lambda parts: gzip.compress(content.pack(parts), 1, mtime=0))


def safetensors(header: object, data: bytes) -> Content:
    """The header as JSON, behind its length, and the data."""
    return Content(
        (json.dumps(header).encode(), data),
        lambda parts: len(parts[0]).to_bytes(8, "little") + parts[0] + parts[1],
    )


def index(entries: Mapping[bytes, bytes], shards: int = 1) -> Content:
    """The index of a checkpoint: keys and values are its parts."""
    from embexp.system.tensor_bundle.writer import index_content

    return _table(entries, lambda pairs: index_content(pairs, shards))


def _table(entries: Mapping[bytes, bytes], content: Callable[[dict[bytes, bytes]], bytes]) -> Content:
    def pack(parts: Sequence[bytes]) -> bytes:
        pairs = dict(zip(parts[::2], parts[1::2], strict=True))
        return content(dict(sorted(pairs.items())))

    return Content(tuple(part for pair in entries.items() for part in pair), pack)
