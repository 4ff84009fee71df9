"""Policies on files that are read in place, and the cache."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embexp.errors import DataError
from embexp.specs.pretrained import NonFinite
from embexp.vectors import stored
from embexp.vectors.file_source import open_vectors

ROOT = Path(__file__).resolve().parents[2]


def opened(path: Path, **options):
    return open_vectors(path, cache=path.parent / "cache", **options)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "CHUNK_BYTES", 64)


def holed(path: Path, dtype: str = "<f4", *, tokens: bool = False) -> np.ndarray:
    """A matrix with a NaN in row 31 and an infinity in row 41, counted from 1."""
    values = np.arange(150).reshape(50, 3).astype(dtype)
    values[30, 1], values[40, 0] = np.nan, np.inf
    np.save(path, values)
    if tokens:
        path.with_name("v.tokens.txt").write_text("".join(f"t{n}\n" for n in range(50)))
    return values


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_error(dtype: str, tmp_path: Path) -> None:
    holed(tmp_path / "v.npy", dtype)
    source = opened(tmp_path / "v.npy")
    said = (
        r"v.npy, row 31: found nan at place 2 of 3, expected finite numbers; to continue, set the policy to "
        r"zero or skip"
    )
    with pytest.raises(DataError, match=said):
        source.read(20, 40)
    assert source.read(0, 30).shape == (30, 3)
    with pytest.raises(DataError, match=said):
        source.memory_map()
    with pytest.raises(DataError, match="row 41: found inf at place 1 of 3"):
        source.read(31, 50)


def test_float64_beyond_float32_is_not_finite(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.array([[1.0], [1e39]]))
    with pytest.raises(DataError, match="row 2: found inf"):
        opened(tmp_path / "v.npy").read(0, 2)


def test_sums_that_overflow_condemn_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.full((5, 3), 3e38, np.float32))
    assert opened(tmp_path / "v.npy").memory_map().shape == (5, 3)


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_zero(dtype: str, tmp_path: Path) -> None:
    values = holed(tmp_path / "v.npy", dtype)
    expected = np.where(np.isfinite(values), values, 0).astype(np.float32)
    source = opened(tmp_path / "v.npy", non_finite=NonFinite.ZERO)
    np.testing.assert_array_equal(source.read(25, 50), expected[25:])
    np.testing.assert_array_equal(source.memory_map(), expected)
    np.testing.assert_array_equal(source.read(25, 50), expected[25:])
    assert np.isnan(np.load(tmp_path / "v.npy")[30, 1])


def test_skip(tmp_path: Path) -> None:
    values = holed(tmp_path / "v.npy", tokens=True)
    kept = [n for n in range(50) if n not in (30, 40)]
    source = opened(tmp_path / "v.npy", non_finite=NonFinite.SKIP)
    assert source.rows == 48
    assert source.tokens.to_pylist() == [f"t{n}" for n in kept]
    np.testing.assert_array_equal(source.memory_map(), values[kept])
    assert source.notes == {"rows left out: numbers that are not finite": 2}
    (tmp_path / "v.tokens.txt").unlink()
    with pytest.raises(DataError, match=r"row 31: found nan at place 2 of 3, but the file has no tokens, so its rows"):
        opened(tmp_path / "v.npy", non_finite=NonFinite.SKIP)


def test_keep(tmp_path: Path) -> None:
    values = holed(tmp_path / "v.npy")
    source = opened(tmp_path / "v.npy", non_finite=NonFinite.KEEP)
    np.testing.assert_array_equal(source.memory_map(), values)
    np.testing.assert_array_equal(source.read(0, 50), values)
    assert not (tmp_path / "cache").exists()


def test_repeated_tokens_of_a_file_in_place_stay(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.arange(4, dtype=np.float64).reshape(4, 1))
    (tmp_path / "v.tokens.txt").write_text("a\nb\na\nc\n")
    source = opened(tmp_path / "v.npy")
    assert source.memory_map()[:, 0].tolist() == [0, 1, 2, 3]
    assert source.tokens.to_pylist() == ["a", "b", "a", "c"]


def test_digest_is_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_bytes(b"a 1\n")
    assert opened(tmp_path / "v.txt").digest == hashlib.sha256(b"a 1\n").hexdigest()


def test_text_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v.txt").write_text("a 1\nb 2\n")
    first = opened(tmp_path / "v.txt")
    parsed = list((tmp_path / "cache").glob("vectors-*"))
    assert len(parsed) == 1
    (tmp_path / "w.txt").write_text("a 1\nb 2\n")  # the same content under another name

    def unexpected(*words: object, **options: object) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr(stored.Writer, "__init__", unexpected)
    for name in ("v.txt", "w.txt"):
        again = opened(tmp_path / name)
        assert again.tokens.equals(first.tokens)
        np.testing.assert_array_equal(again.memory_map(), first.memory_map())


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("a 1\nb 2\n")
    assert opened(path).read(0, 2).tolist() == [[1], [2]]
    path.write_text("a 1\nb 3\n")  # of the same length, perhaps within a tick of the file system's clock
    assert opened(path).read(0, 2).tolist() == [[1], [3]]
    old = time.time() - 100
    os.utime(path, (old, old))
    assert opened(path).read(0, 2).tolist() == [[1], [3]]
    path.write_text("a 1\nb 4\n")
    assert opened(path).read(0, 2).tolist() == [[1], [4]]


def test_policies_have_caches_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("a 1\nb nan\n")
    assert opened(path, non_finite=NonFinite.ZERO).rows == 2
    assert opened(path, non_finite=NonFinite.SKIP).rows == 1
    with pytest.raises(DataError, match="line 2: found nan"):
        opened(path)


PARSE = (
    "import sys\nfrom pathlib import Path\nfrom embexp.vectors.file_source import open_vectors\n"
    "path = Path(sys.argv[1])\nsource = open_vectors(path, cache=path.parent / 'cache')\n"
    "print(source.rows, float(source.memory_map().sum()))"
)


def big_text(path: Path) -> str:
    values = np.random.default_rng(0).integers(-9, 9, (20_000, 10))
    path.write_text("".join(f"t{n} {' '.join(map(str, row))}\n" for n, row in enumerate(values.tolist())))
    return f"20000 {float(values.sum())}\n"


def test_processes_at_once_do_not_collide(tmp_path: Path) -> None:
    expected = big_text(tmp_path / "v.txt")
    command = [sys.executable, "-c", PARSE, str(tmp_path / "v.txt")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(3)]
    assert [process.communicate()[0] for process in running] == [expected] * 3
    assert len(list((tmp_path / "cache").glob("vectors-*"))) == 1
    assert not list((tmp_path / "cache").glob(".making*"))


def test_a_killed_conversion_leaves_nothing_half_made(tmp_path: Path) -> None:
    expected = big_text(tmp_path / "v.txt")
    kill = (
        "import os, signal\nfrom embexp.vectors import stored\n"
        "stored.Writer.finish = lambda *words: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", kill + PARSE, str(tmp_path / "v.txt")]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert not list((tmp_path / "cache").glob("vectors-*"))
    command = [sys.executable, "-c", PARSE, str(tmp_path / "v.txt")]
    assert subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout == expected


@pytest.mark.parametrize("name", ["matrix.npy", "tokens.arrow", "notes.json"])
def test_a_conversion_that_was_cut_off_is_made_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_text("".join(f"w{row} {row} {-row}\n" for row in range(100)))

    def read() -> list[Any]:
        source = open_vectors(path, cache=tmp_path / "cache")
        assert source.tokens is not None
        return [source.tokens.to_pylist(), source.read(0, source.rows).tolist()]

    whole = read()
    [damaged] = (tmp_path / "cache").glob(f"vectors-*/{name}")
    os.truncate(damaged, damaged.stat().st_size // 2)
    assert read() == whole
