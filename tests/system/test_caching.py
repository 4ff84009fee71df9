"""Folders of the cache: what a killed process left half-made, and what was damaged later."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from embexp.system import caching, digests, locks

KILLED = """
import os, signal, sys
from pathlib import Path
from embexp.system import caching

def make(folder):
    (folder / "half.npy").write_bytes(b"x")
    print(os.getpid(), flush=True)
    {end}

caching.folder(Path(sys.argv[1]), "vectors", "key", make)
"""


def make(folder: Path) -> None:
    (folder / "whole").write_text("")


def left(cache: Path) -> list[str]:
    return sorted(each.name for each in cache.glob(".making-*"))


def test_what_a_killed_process_left_is_removed_when_the_cache_is_next_written(tmp_path: Path) -> None:
    script = KILLED.format(end="os.kill(os.getpid(), signal.SIGKILL)")
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, check=False)
    assert killed.returncode == -signal.SIGKILL
    [name] = left(tmp_path)
    assert f"-{int(killed.stdout)}-" in name
    assert (tmp_path / name / "half.npy").exists()
    place = caching.folder(tmp_path, "vectors", "other", make)
    assert {each.name for each in tmp_path.iterdir()} == {place.name}
    caching.folder(tmp_path, "vectors", "key", make)
    assert left(tmp_path) == []


def test_a_folder_that_is_being_made_stays(tmp_path: Path) -> None:
    script = KILLED.format(end="sys.stdin.read()")
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        maker.stdout.readline()
        [name] = left(tmp_path)
        caching.folder(tmp_path, "vectors", "other", make)
        assert left(tmp_path) == [name]
        maker.communicate()
    assert maker.returncode == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["vectors-key", "vectors-other"]


def test_of_makers_elsewhere_only_the_day_tells(tmp_path: Path) -> None:
    """Of another machine that shares the cache, and of versions that did not write down who makes."""
    yesterday = time.time() - 25 * 3600
    names = [".making-00000000-1-abcd", ".making-abcd1234"]
    for age in ("new", "old", "busy"):
        for name in names:
            folder = tmp_path / f"{name}{age}"
            folder.mkdir()
            (folder / "half.npy").write_bytes(b"x")
            if age != "new":
                os.utime(folder / "half.npy", (yesterday, yesterday) if age == "old" else None)
                os.utime(folder, (yesterday, yesterday))
    caching.folder(tmp_path, "vectors", "key", make)
    assert left(tmp_path) == sorted(f"{name}{age}" for name in names for age in ("new", "busy"))


class Made:
    """Makes a folder of two files, and counts how often."""

    def __init__(self, cache: Path) -> None:
        self.cache, self.count = cache, 0

    def __call__(self) -> Path:
        def make(folder: Path) -> None:
            self.count += 1
            (folder / "a.npy").write_bytes(b"a" * 1000)
            (folder / "b.json").write_text("{}")

        return caching.folder(self.cache, "kind", "key", make)


def truncated(folder: Path) -> None:
    os.truncate(folder / "a.npy", 500)


def altered(folder: Path) -> None:
    """One byte is another one, and size and modification time are as before."""
    before = (folder / "a.npy").stat()
    with (folder / "a.npy").open("r+b") as file:
        file.write(b"b")
    os.utime(folder / "a.npy", ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(folder: Path) -> None:
    """By another file of the same size and times, as `cp -p` does."""
    before = (folder / "a.npy").stat()
    (folder / "a.npy").unlink()
    (folder / "a.npy").write_bytes(b"c" * 1000)
    os.utime(folder / "a.npy", ns=(before.st_atime_ns, before.st_mtime_ns))


def removed(folder: Path) -> None:
    (folder / "b.json").unlink()


def added(folder: Path) -> None:
    (folder / "c.json").write_text("{}")


def without_record(folder: Path) -> None:
    (folder / ".content.json").unlink()


def damaged_record(folder: Path) -> None:
    (folder / ".content.json").write_text('{"a.npy": {"stamp": [1')


def strange_record(folder: Path) -> None:
    (folder / ".content.json").write_text('{"a.npy": {"stamp": 7, "digest": null}}')


DAMAGES = (truncated, altered, replaced, removed, added, without_record, damaged_record, strange_record)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
def test_a_damaged_folder_is_made_again_once(damage: Callable[[Path], None], tmp_path: Path) -> None:
    made = Made(tmp_path)
    damage(made())
    assert made.count == 1
    place = made()
    assert made.count == 2
    assert ((place / "a.npy").read_bytes(), (place / "b.json").read_text()) == (b"a" * 1000, "{}")
    made()
    assert made.count == 2
    assert {each.name for each in tmp_path.iterdir()} == {place.name, locks.NAME}


def test_a_folder_that_is_as_it_was_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(tmp_path)
    made()
    monkeypatch.setattr(digests, "of_file", lambda path: pytest.fail(f"{path} was read"))
    made()
    assert made.count == 1


def test_a_copy_of_the_cache_is_read_once_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(tmp_path / "first")
    made()
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    copy = Made(tmp_path / "second")
    copy()
    assert copy.count == 0
    monkeypatch.setattr(digests, "of_file", lambda path: pytest.fail(f"{path} was read"))
    copy()


def test_who_has_mapped_a_damaged_folder_keeps_it(tmp_path: Path) -> None:
    made = Made(tmp_path)
    mapped = np.memmap(made() / "a.npy", np.uint8, "r")
    added(tmp_path / "kind-key")
    made()
    assert made.count == 2
    assert (np.asarray(mapped) == ord("a")).all()


def test_the_digest_of_a_file_follows_it_whatever_its_times_say(tmp_path: Path) -> None:
    file, long_ago = tmp_path / "a.txt", (1_000_000_000, 1_000_000_000)
    file.write_bytes(b"one")
    os.utime(file, long_ago)
    first = caching.file_digest(file, cache=tmp_path / "cache")
    assert list((tmp_path / "cache" / "digests").iterdir())  # it is remembered
    file.write_bytes(b"two")
    os.utime(file, long_ago)
    assert caching.file_digest(file, cache=tmp_path / "cache") == hashlib.sha256(b"two").hexdigest() != first
    (tmp_path / "b.txt").write_bytes(b"six")
    os.utime(tmp_path / "b.txt", long_ago)
    (tmp_path / "b.txt").replace(file)
    assert caching.file_digest(file, cache=tmp_path / "cache") == hashlib.sha256(b"six").hexdigest()
