"""Tokens as 64-bit keys: the bytes of a short one, which most ids are, stand for it exactly.

The key of a token of up to eight bytes is these bytes, the first one lowest, then zeros. A token that is longer, or
ends in a zero byte, has no such key and goes by its text: its key is a number behind `LONG`, whose highest byte, 0xFF,
no UTF-8 text has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.key_table import KeyTable

LONG = np.uint64(0xFF << 56)
"""Keys from here on are of tokens that go by their text."""
_BYTES = 8
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_BYTES + 1)], np.uint64)


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
        keys: uint64 [n].
        long: the tokens that go by their text, in the order of their numbers.
    """
    is_long = keys >= LONG
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
    those = long.take(pa.array((keys[is_long] - LONG).astype(np.int64)))
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
