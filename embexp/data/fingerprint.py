"""Fingerprint64 of texts, the hash of `tf.strings.to_hash_bucket_fast`, for all texts of an array at once.

It is FarmHash's (https://github.com/google/farmhash, `farmhashna::Hash64`), which never changes: a hash bucket of a run
is the same everywhere, also in exported models.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_K0, _K1, _K2 = (np.uint64(k) for k in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))
_TEXTS = 65_536
_PAD = 64
Pair = tuple[np.ndarray, np.ndarray]


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


class _State:
    """The state of the hash of texts that are longer than 64 bytes."""

    def __init__(self, read: _Bytes, starts: np.ndarray) -> None:
        seed = np.uint64(81)
        zero = np.zeros(len(starts), np.uint64)
        self.y = zero + (seed * _K1 + np.uint64(113))
        self.z = _mixed(self.y * _K2 + np.uint64(113)) * _K2
        self.x = zero + seed * _K2 + read.eight(starts)
        self.v: Pair = (zero.copy(), zero.copy())
        self.w: Pair = (zero.copy(), zero.copy())

    def at(self, here: np.ndarray) -> _State:
        part = object.__new__(_State)
        part.x, part.y, part.z = self.x[here], self.y[here], self.z[here]
        part.v, part.w = (self.v[0][here], self.v[1][here]), (self.w[0][here], self.w[1][here])
        return part

    def put(self, here: np.ndarray, part: _State) -> None:
        for mine, others in ((self.x, part.x), (self.y, part.y), (self.z, part.z)):
            mine[here] = others
        for mine, others in (*zip(self.v, part.v, strict=True), *zip(self.w, part.w, strict=True)):
            mine[here] = others

    def step(self, read: _Bytes, places: np.ndarray, factor: np.ndarray, *, last: bool) -> None:
        """Takes 64 bytes in."""
        nine = np.uint64(9 if last else 1)
        x = _rotated(self.x + self.y + self.v[0] + read.eight(places + 8), 37) * factor
        y = _rotated(self.y + self.v[1] + read.eight(places + 48), 42) * factor
        x = x ^ (self.w[1] * nine)
        y = y + self.v[0] * nine + read.eight(places + 40)
        z = _rotated(self.z + self.w[0], 33) * factor
        v = _weak(read, places, self.v[1] * factor, x + self.w[0])
        w = _weak(read, places + 32, z + self.w[1], y + read.eight(places + 16))
        self.x, self.y, self.z, self.v, self.w = z, y, x, v, w


def _weak(read: _Bytes, places: np.ndarray, a: np.ndarray, b: np.ndarray) -> Pair:
    w, x, y, z = (read.eight(places + 8 * number) for number in range(4))
    a = a + w
    b = _rotated(b + a + z, 21)
    c = a
    a = a + x + y
    return a + z, b + _rotated(a, 44) + c


def _longer(read: _Bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    state, before = _State(read, starts), (lengths - 1) // 64
    for block in range(int(before.max())):
        here = np.flatnonzero(before > block)
        part = state.at(here)
        part.step(read, starts[here] + 64 * block, np.full(len(here), _K1), last=False)
        state.put(here, part)
    rest = ((lengths - 1) & 63).astype(np.uint64)
    factor = _K1 + ((state.z & np.uint64(0xFF)) << np.uint64(1))
    first = state.w[0] + rest
    second = state.v[0] + first
    state.w, state.v = (first + second, state.w[1]), (second, state.v[1])
    state.step(read, starts + lengths - 64, factor, last=True)
    (v0, v1), (w0, w1) = state.v, state.w
    # The last step has swapped x and z, as all do.
    return _joined(_joined(v0, w0, factor) + _mixed(state.y) * _K0 + state.z, _joined(v1, w1, factor) + state.x, factor)
