"""Numbers for 64-bit keys, in the order in which keys are first seen: a hash table in NumPy."""

from __future__ import annotations

import os

import numpy as np

_SHIFT = np.uint64(32)


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
