"""Random-looking numbers that are a pure function of a key and a position: no state, no memory."""

from __future__ import annotations

import numpy as np

from embexp.system import digests


def mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection of uint64 that scatters its bits."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def key_of(seed: int, *names: str | int) -> int:
    """A 62-bit key from a seed and a stable name."""
    high, low = digests.seed_of(seed, *names)
    return high << 31 | low


def permuted(positions: np.ndarray, count: int, key: int) -> np.ndarray:
    """Where a pseudo-random permutation of range(count) sends each position, int64, in memory of `positions` only.

    A Feistel network of eight rounds over the next power of 4, walked until the value is below `count`
    (Black and Rogaway 2002).
    """
    half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = mix(np.uint64(key) + np.arange(8, dtype=np.uint64))

    def network(values: np.ndarray) -> np.ndarray:
        left, right = values >> half, values & mask
        for round_key in keys:
            left, right = right, left ^ (mix(right ^ round_key) & mask)
        return left << half | right

    result = network(positions.astype(np.uint64))
    while (outside := np.flatnonzero(result >= count)).size:
        result[outside] = network(result[outside])
    return result.astype(np.int64)
