from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from embexp.system import digests


def test_json_digest_ignores_the_order_of_keys_only() -> None:
    assert digests.of_json({"a": 1, "b": [1, 2]}) == digests.of_json({"b": [1, 2], "a": 1})
    assert digests.of_json({"a": [1, 2]}) != digests.of_json({"a": [2, 1]})


def test_file_digest_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    # FIPS 180-4's example for "abc".
    assert digests.of_file(tmp_path / "f") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_the_digest_of_a_large_file_shows_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_BYTES_AT_ONCE", 4)
    (tmp_path / "f").write_bytes(b"0123456789")
    shown: list[object] = []
    digests.of_file(tmp_path / "f", lambda *state: shown.append(state))
    assert shown == []
    monkeypatch.setattr(digests, "_LARGE", 9)
    found = digests.of_file(tmp_path / "f", lambda *state: shown.append(state))
    assert found == hashlib.sha256(b"0123456789").hexdigest()
    assert shown == [("reading f", 0.4), ("reading f", 0.8), ("reading f", 1.0)]


@pytest.mark.parametrize("change", ["value", "dtype", "negative zero"])
def test_row_digest_sees_every_bit(change: str) -> None:
    rows = np.zeros((digests.ROWS_PER_BLOCK + 3, 2), np.float32)
    blocks = [rows[: digests.ROWS_PER_BLOCK], rows[digests.ROWS_PER_BLOCK :]]
    other = [block.copy() for block in blocks]
    if change == "value":
        other[1][2, 1] = np.nextafter(np.float32(0), np.float32(1))
    elif change == "dtype":
        other[1] = other[1].astype(np.float64)
    else:
        other[1][0, 0] = -0.0
    assert digests.of_rows(blocks) != digests.of_rows(other)
    first, second = digests.block_digests(blocks), digests.block_digests(other)
    assert [a == b for a, b in zip(first, second, strict=True)] == [True, False]


def test_row_digest_does_not_depend_on_memory_order() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert digests.of_rows([rows]) == digests.of_rows([np.asfortranarray(rows)])


def test_seeds_follow_from_names_alone() -> None:
    seeds = [digests.seed_of(1, "item", block) for block in range(100)]
    assert len(set(seeds)) == 100
    assert digests.seed_of(1, "item") != digests.seed_of(2, "item")
    assert digests.seed_of(1, "a", "b") != digests.seed_of(1, "ab")
    digest = hashlib.sha256(b'[1, "item"]').digest()
    assert digests.seed_of(1, "item")[0] == int.from_bytes(digest[:4], "little") & 0x7FFFFFFF


@pytest.mark.parametrize("dim", [1, 3, 1 << 21])
def test_a_matrix_that_is_read_has_the_digest_of_its_blocks_and_is_read_in_small_parts(dim: int) -> None:
    rows = np.random.default_rng(dim).normal(size=(digests.ROWS_PER_BLOCK + 5 if dim < 9 else 3, dim)).astype("f4")
    sizes = []

    def read(start: int, stop: int) -> np.ndarray:
        sizes.append((stop - start) * dim * 4)
        return rows[start:stop]

    blocks = [rows[: digests.ROWS_PER_BLOCK], rows[digests.ROWS_PER_BLOCK :]]
    assert digests.of_float_rows(read, *rows.shape) == digests.of_rows(block for block in blocks if len(block))
    assert max(sizes) <= max(1 << 22, 4 * dim)
    assert sum(sizes) == rows.nbytes
