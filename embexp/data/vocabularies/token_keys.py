"""Tokens as 64-bit numbers: keys that stand for them, their codes in the order in which they come, and fingerprints.

The key of a token of up to eight bytes is these bytes, the first one lowest, then zeros. A token that is longer, or
ends in a zero byte, has no such key and goes by its text: its key is a number behind `_LONG`, whose highest byte, 0xFF,
no UTF-8 text has.

Fingerprint64 of texts, the hash of `tf.strings.to_hash_bucket_fast`, for all texts of an array at once. It is
FarmHash's (https://github.com/google/farmhash, `farmhashna::Hash64`), which never changes: a hash bucket of a run is
the same everywhere, also in exported models.
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LONG = np.uint64(0xFF << 56)
"""Keys from here on are of tokens that go by their text."""
_BYTES = 8
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_BYTES + 1)], np.uint64)
_SHIFT = np.uint64(32)
_K0, _K1, _K2 = (np.uint64(k) for k in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))
_TEXTS = 65_536
_PAD = 64
_State = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""x, y, z, and the pairs v and w."""


@dataclass(frozen=True)
class Packed:
    """Tokens as keys.

    Attributes:
        keys: uint64 [n]; 0 for a missing or empty token, and where `long` has the token.
        places: int64, the places of tokens that go by their text.
        long: these tokens, dictionary-encoded in the order of their first occurrence; None: there are none.
    """

    keys: np.ndarray
    places: np.ndarray
    long: pa.DictionaryArray | None


def packed(values: pa.Array) -> Packed:
    """Keys of tokens: text, integers, which go by their decimal text, or a dictionary of either."""
    if pa.types.is_dictionary(values.type):
        words = packed(values.dictionary)
        if words.long is None:
            places = pc.fill_null(values.indices.cast(pa.int64()), len(words.keys)).to_numpy(zero_copy_only=False)
            return Packed(np.append(words.keys, np.uint64(0)).take(places), words.places, None)
        values = values.dictionary_decode()
    if not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
        values = values.cast(pa.large_string())
    if values.null_count:
        values = pc.fill_null(values, "")
    return _packed_text(values)


def _packed_text(values: pa.Array) -> Packed:
    """Keys of text without nulls."""
    count = len(values)
    width = np.int32 if pa.types.is_string(values.type) else np.int64
    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, width, count + 1, values.offset * width().itemsize) if count else np.zeros(1, width)
    start, stop = int(offsets[0]), int(offsets[-1])
    text = np.zeros(stop - start + _BYTES, np.uint8)  # eight bytes can be read at every offset
    if stop > start:
        text[: stop - start] = np.frombuffer(data, np.uint8, stop - start, start)
    sizes = np.diff(offsets)
    if count and (sizes == _BYTES).all():
        keys = text[:-_BYTES].view(np.uint64)
    else:
        words = np.ndarray((len(text) - _BYTES + 1,), np.uint64, text, 0, (1,))
        keys = words[offsets[:-1] - start] & _MASKS.take(np.minimum(sizes, _BYTES))
    whole = sizes <= _BYTES
    if not text[: stop - start].all():  # a zero byte at the end of a token would be lost
        whole &= keys > _MASKS.take(np.clip(sizes - 1, 0, _BYTES))
        whole |= sizes == 0
    if whole.all():
        return Packed(keys, np.empty(0, np.int64), None)
    places = np.flatnonzero(~whole)
    keys[places] = 0
    return Packed(keys, places, pc.dictionary_encode(values.take(pa.array(places)).cast(pa.large_string())))


def unpacked(keys: np.ndarray, long: pa.LargeStringArray) -> pa.LargeStringArray:
    """The tokens of keys.

    Args:
        long: the tokens that go by their text, in the order of their numbers.
    """
    is_long = keys >= _LONG
    short = np.where(is_long, np.uint64(0), keys)
    sizes = np.zeros(len(keys), np.int64)
    for size in range(_BYTES):
        sizes += short > _MASKS[size]
    offsets = np.zeros(len(keys) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    letters = short.astype("<u8").view(np.uint8).reshape(-1, _BYTES)
    text = letters[np.arange(_BYTES) < sizes[:, None]]
    tokens = pa.LargeStringArray.from_buffers(len(keys), pa.py_buffer(offsets), pa.py_buffer(text))
    if not is_long.any():
        return tokens
    those = long.take(pa.array((keys[is_long] - _LONG).astype(np.int64)))
    return pc.replace_with_mask(tokens, pa.array(is_long), those)


def sorted_places(tokens: pa.LargeStringArray, frequencies: np.ndarray) -> np.ndarray:
    """int64: the places of distinct tokens by falling frequency, then by code point."""
    words = packed(tokens)
    if words.long is not None:
        table = pa.table({"token": tokens, "frequency": frequencies})
        order = pc.sort_indices(table, sort_keys=[("frequency", "descending"), ("token", "ascending")])
        return np.asarray(order.to_numpy(), np.int64)
    # The bytes of UTF-8 sort as code points do; as a number, the first one has to be the highest.
    rank = np.empty(len(tokens), np.int64)
    rank[np.argsort(words.keys.byteswap())] = np.arange(len(tokens))
    _, falling = np.unique(-frequencies, return_inverse=True)
    return np.argsort(falling.astype(np.int64) * max(1, len(tokens)) + rank)


def places_in(known: pa.LargeStringArray, tokens: pa.Array) -> np.ndarray:
    """int64: where each token stands among the known, distinct ones; -1: nowhere, or it is missing."""
    if not len(tokens):
        return np.empty(0, np.int64)
    those, words = packed(known), packed(tokens)
    if those.long is not None or words.long is not None:
        found = pc.index_in(pc.cast(tokens, pa.large_string()), value_set=known, skip_nulls=True)
        return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), np.int64)
    table = KeyTable()
    table.numbers(those.keys)
    places = table.numbers(words.keys).astype(np.int64) - 1
    places[places >= len(known)] = -1
    return places


class KeyTable:
    """Numbers keys 1, 2, 3, … in the order in which they come; key 0 has number 0.

    Linear probing (Knuth 1973, vol. 3, 6.4) of many keys at once, in a table that is at most half full. A slot holds
    the number of a key, 0 for none. Where a key is put follows from a random factor, so nobody can write a file whose
    keys all collide; numbers do not depend on it.
    """

    def __init__(self) -> None:
        self._count = 1
        self._keys = np.zeros(1, np.uint64)  # by number
        self._slots = np.zeros(1, np.int32)
        self._factor = np.uint64(int.from_bytes(os.urandom(8), "little") | 1)

    @property
    def keys(self) -> np.ndarray:
        """uint64: the keys in the order of their numbers, 0 first."""
        return self._keys[: self._count]

    def numbers(self, keys: np.ndarray) -> np.ndarray:
        """int32 [n]: the number of each key, uint64 [n]; new ones are numbered in the order in which they stand."""
        count = self._count
        self._reserve(count + len(keys))
        # A new key goes by its place behind the known ones until it is clear which of the new ones are equal.
        self._keys[count : count + len(keys)] = keys
        at = self._home(keys)
        found = self._slots.take(at)
        wrong = np.flatnonzero(self._keys.take(found) != keys)
        while wrong.size:
            free = found.take(wrong) == 0
            claiming, passing = wrong[free][::-1], wrong[~free]
            self._slots[at.take(claiming)] = (
                claiming + count
            )  # of several, the last one assigned: that of the first key
            at[passing] = (at.take(passing) + 1) & (len(self._slots) - 1)
            found[wrong] = self._slots.take(at.take(wrong))
            wrong = wrong[self._keys.take(found.take(wrong)) != keys.take(wrong)]
        self._number_new(keys, at, found)
        return found

    def _number_new(self, keys: np.ndarray, at: np.ndarray, found: np.ndarray) -> None:
        """Gives new keys numbers without gaps, in the order of their first places."""
        count = self._count
        new = np.flatnonzero(found >= count)
        if not new.size:
            return
        places = found.take(new) - count
        first = new[places == new]
        number = np.zeros(len(keys), np.int32)
        number[first] = np.arange(count, count + len(first))
        self._slots[at.take(first)] = number.take(first)
        self._keys[count : count + len(first)] = keys.take(first)
        self._count += len(first)
        found[new] = number.take(places)

    def _home(self, keys: np.ndarray) -> np.ndarray:
        """int64 [n]: the slot where the search for each key begins."""
        mixed = keys * self._factor
        mixed ^= mixed >> _SHIFT
        mixed *= self._factor
        mixed >>= np.uint64(65 - len(self._slots).bit_length())
        return mixed.view(np.int64)

    def _reserve(self, count: int) -> None:
        """Makes room for so many keys."""
        if count > len(self._keys):
            keys = np.zeros(1 << count.bit_length(), np.uint64)
            keys[: self._count] = self.keys
            self._keys = keys
        if 2 * count <= len(self._slots):
            return
        self._slots = np.zeros(4 << count.bit_length(), np.int32)
        numbers = np.arange(1, self._count, dtype=np.int32)
        at = self._home(self.keys[1:])
        while numbers.size:
            free = self._slots.take(at) == 0
            self._slots[at[free]] = numbers[free]
            lost = self._slots.take(at) != numbers
            numbers, at = numbers[lost], (at[lost] + 1) & (len(self._slots) - 1)


class Codes:
    """Numbers tokens in the order in which they come; 0 is a missing one."""

    def __init__(self) -> None:
        self._table = KeyTable()
        self._long: defaultdict[str, int] = defaultdict(itertools.count().__next__)

    def encode(self, tokens: Packed) -> np.ndarray:
        """int32 code of each token; a missing or empty one is 0."""
        if tokens.long is not None:
            distinct = tokens.long.dictionary.to_pylist()
            numbers = np.fromiter(map(self._long.__getitem__, distinct), np.uint64, len(distinct)) + _LONG
            tokens.keys[tokens.places] = numbers.take(tokens.long.indices.to_numpy())
        return self._table.numbers(tokens.keys)

    def write(self, path: Path) -> None:
        """Writes the tokens in the order of their codes, as an Arrow file."""
        long = pa.array(self._long, pa.large_string(), size=len(self._long))
        table = pa.table({"token": unpacked(self._table.keys, long)})
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)


def buckets(texts: pa.Array, count: int) -> np.ndarray:
    """int64: the bucket of each text, its fingerprint modulo `count`; a null is hashed as the empty text."""
    found = np.empty(len(texts), np.int64)
    for start in range(0, len(texts), _TEXTS):
        some = fingerprints(texts.slice(start, _TEXTS))
        found[start : start + len(some)] = some % np.uint64(count)
    return found


def fingerprints(texts: pa.Array) -> np.ndarray:
    """uint64: Fingerprint64 of the UTF-8 bytes of each text; a null is hashed as the empty text."""
    array = pc.fill_null(texts.cast(pa.large_string()), "")
    lengths = pc.binary_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    joined = "".join(array.to_pylist()).encode()
    read = _Bytes(np.frombuffer(joined + bytes(_PAD), np.uint8))
    found = np.full(len(lengths), _K2)
    with np.errstate(over="ignore"):
        for low, high, hashed in ((1, 3, _to_3), (4, 7, _to_7), (8, 16, _to_16), (17, 32, _to_32), (33, 64, _to_64)):
            here = np.flatnonzero((lengths >= low) & (lengths <= high))
            if here.size:
                found[here] = hashed(read, starts[here], lengths[here].astype(np.uint64))
        here = np.flatnonzero(lengths > 64)
        if here.size:
            found[here] = _longer(read, starts[here], lengths[here])
    return found


class _Bytes:
    """Reads little-endian numbers at any place of some bytes."""

    def __init__(self, data: np.ndarray) -> None:
        self.byte = data
        self._four = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
        self._eight = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))

    def four(self, places: np.ndarray) -> np.ndarray:
        return np.asarray(self._four[places], np.uint64)

    def eight(self, places: np.ndarray) -> np.ndarray:
        return np.asarray(self._eight[places], np.uint64)


def _rotated(values: np.ndarray, bits: int) -> np.ndarray:
    return np.asarray((values >> np.uint64(bits)) | (values << np.uint64(64 - bits)))


def _mixed(values: np.ndarray) -> np.ndarray:
    return np.asarray(values ^ (values >> np.uint64(47)))


def _joined(u: np.ndarray, v: np.ndarray, factor: np.ndarray) -> np.ndarray:
    a = _mixed((u ^ v) * factor)
    return np.asarray(_mixed((v ^ a) * factor) * factor)


def _factor(lengths: np.ndarray) -> np.ndarray:
    return np.asarray(_K2 + lengths * np.uint64(2))


def _ends(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return starts + lengths.astype(np.int64)


def _to_3(read: _Bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    ends = _ends(starts, lengths)
    first, middle, last = (
        read.byte[places].astype(np.uint64) for places in (starts, starts + (ends - starts) // 2, ends - 1)
    )
    y, z = first + (middle << np.uint64(8)), lengths + (last << np.uint64(2))
    return _mixed(y * _K2 ^ z * _K0) * _K2


def _to_7(read: _Bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    first, last = read.four(starts), read.four(_ends(starts, lengths) - 4)
    return _joined(lengths + (first << np.uint64(3)), last, _factor(lengths))


def _to_16(read: _Bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    factor = _factor(lengths)
    a, b = read.eight(starts) + _K2, read.eight(_ends(starts, lengths) - 8)
    return _joined(_rotated(b, 37) * factor + a, (_rotated(a, 25) + b) * factor, factor)


def _to_32(read: _Bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    factor, ends = _factor(lengths), _ends(starts, lengths)
    a, b = read.eight(starts) * _K1, read.eight(starts + 8)
    c, d = read.eight(ends - 8) * factor, read.eight(ends - 16) * _K2
    return _joined(_rotated(a + b, 43) + _rotated(c, 30) + d, a + _rotated(b + _K2, 18) + c, factor)


def _to_64(read: _Bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    factor, ends = _factor(lengths), _ends(starts, lengths)
    a, b = read.eight(starts) * _K2, read.eight(starts + 8)
    c, d = read.eight(ends - 8) * factor, read.eight(ends - 16) * _K2
    y = _rotated(a + b, 43) + _rotated(c, 30) + d
    z = _joined(y, a + _rotated(b + _K2, 18) + c, factor)
    e, f = read.eight(starts + 16) * factor, read.eight(starts + 24)
    g, h = (y + read.eight(ends - 32)) * factor, (z + read.eight(ends - 24)) * factor
    return _joined(_rotated(e + f, 43) + _rotated(g, 30) + h, e + _rotated(f + a, 18) + g, factor)


def _weak(read: _Bytes, places: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    w, x, y, z = (read.eight(places + 8 * number) for number in range(4))
    a = a + w
    b = _rotated(b + a + z, 21)
    c = a
    a = a + x + y
    return a + z, b + _rotated(a, 44) + c


def _longer(read: _Bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Of texts that are longer than 64 bytes, those of as many blocks together."""
    found, before = np.empty(len(starts), np.uint64), (lengths - 1) // 64
    for blocks in np.unique(before).tolist():
        here = np.flatnonzero(before == blocks)
        found[here] = _of_blocks(read, starts[here], lengths[here], blocks)
    return found


def _of_blocks(read: _Bytes, starts: np.ndarray, lengths: np.ndarray, blocks: int) -> np.ndarray:
    zero, one, nine, seed = np.zeros(len(starts), np.uint64), np.uint64(1), np.uint64(9), np.uint64(81)
    y = zero + (seed * _K1 + np.uint64(113))
    state: _State = (
        zero + seed * _K2 + read.eight(starts),
        y,
        _mixed(y * _K2 + np.uint64(113)) * _K2,
        zero,
        zero,
        zero,
        zero,
    )
    for block in range(blocks):
        state = _stepped(state, read, starts + 64 * block, zero + _K1, one)
    x, y, z, v0, v1, w0, w1 = state
    factor = _K1 + ((z & np.uint64(0xFF)) << one)
    w0 = w0 + ((lengths - 1) & 63).astype(np.uint64)
    v0 = v0 + w0
    w0 = w0 + v0
    x, y, z, v0, v1, w0, w1 = _stepped((x, y, z, v0, v1, w0, w1), read, starts + lengths - 64, factor, nine)
    # The last step has swapped x and z, as all do.
    return _joined(_joined(v0, w0, factor) + _mixed(y) * _K0 + z, _joined(v1, w1, factor) + x, factor)


def _stepped(state: _State, read: _Bytes, places: np.ndarray, factor: np.ndarray, nine: np.uint64) -> _State:
    """The state after 64 more bytes."""
    x, y, z, v0, v1, w0, w1 = state
    x = _rotated(x + y + v0 + read.eight(places + 8), 37) * factor
    y = _rotated(y + v1 + read.eight(places + 48), 42) * factor
    x = x ^ (w1 * nine)
    y = y + v0 * nine + read.eight(places + 40)
    z = _rotated(z + w0, 33) * factor
    v = _weak(read, places, v1 * factor, x + w0)
    w = _weak(read, places + 32, z + w1, y + read.eight(places + 16))
    return z, y, x, *v, *w
