"""Folders of the cache that a killed process left half-made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from embexp.system import caching

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
    assert [each.name for each in tmp_path.iterdir()] == [place.name]
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
