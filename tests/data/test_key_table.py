"""Keys are numbered in the order in which they are first seen, as a dict would number them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.vocabularies.token_keys import KeyTable

few = st.integers(0, 12) | st.sampled_from([1 << 63, (1 << 64) - 1, 1 << 32])


@given(blocks=st.lists(st.lists(few | st.integers(0, (1 << 64) - 1), max_size=60), max_size=6))
def test_as_a_dict_numbers_them(blocks: list[list[int]]) -> None:
    table, known = KeyTable(), {0: 0}
    for block in blocks:
        expected = [known.setdefault(key, len(known)) for key in block]
        assert table.numbers(np.array(block, np.uint64)).tolist() == expected
    assert table.keys.tolist() == list(known)


def test_many_keys_in_blocks_of_any_size() -> None:
    random = np.random.default_rng(0)
    keys = (random.random(200_000) ** 3 * 90_000).astype(np.uint64) << np.uint64(40)  # equal in their low bits
    distinct, first = np.unique(keys[keys > 0], return_index=True)
    for size in (7_001, 200_000):
        table = KeyTable()
        found = np.concatenate([table.numbers(keys[start : start + size]) for start in range(0, len(keys), size)])
        np.testing.assert_array_equal(table.keys[1:], distinct[np.argsort(first)])
        np.testing.assert_array_equal(table.keys[found], keys)


def test_keys_that_all_begin_at_one_slot_are_told_apart() -> None:
    table = KeyTable()
    table._home = lambda keys: np.zeros(len(keys), np.int64)  # type: ignore[method-assign]
    keys = np.array([5, 9, 5, 0, 7, 9, 7, 3, 5], np.uint64)
    assert table.numbers(keys).tolist() == [1, 2, 1, 0, 3, 2, 3, 4, 1]
    assert table.numbers(keys[::-1]).tolist() == [1, 4, 3, 2, 3, 0, 1, 2, 1]
