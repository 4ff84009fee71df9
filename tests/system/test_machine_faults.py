"""Errors of the machine in one sentence: where, what, and what helps."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from embexp.system import caching, files, machine_faults


def error_of(act: Callable[[], object]) -> Exception:
    """The error that it raises, whatever its kind."""
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


def sentence(act: Callable[[], object]) -> str:
    found = machine_faults.sentence(error_of(act))
    assert found is not None
    assert "\n" not in found
    return found


def test_a_full_disk_names_the_file_that_was_being_written(tmp_path: Path) -> None:
    target = tmp_path / "summary.json"

    def write() -> None:
        with files.atomic_write(target), open("/dev/full", "wb", buffering=0) as full:
            full.write(b"x")  # the system's own error, which names no file

    assert sentence(write).startswith(
        f"{target}: No space left on device: free some space there, or choose another place"
    )
    assert os.listdir(tmp_path) == []


LARGE = """
import resource, signal, sys
from pathlib import Path
from embexp.system import caching, files, machine_faults
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    files.write_text(Path(sys.argv[1]), 5000 * "x")
except OSError as error:
    print(machine_faults.sentence(error))
"""


def test_a_file_that_may_not_be_so_large(tmp_path: Path, forked: Path) -> None:
    """The limit of the shell, which is the nearest to a full disk that needs no permission."""
    command = [forked / "python", "-c", LARGE, str(tmp_path / "large")]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert told.startswith(f"{tmp_path}/large: File too large: ")
    assert os.listdir(tmp_path) == []


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "a file is in the way of a folder" in sentence(lambda: files.new_directory(tmp_path / "file" / "run"))
    assert "a file is in the way of a folder" in sentence(lambda: files.write_text(tmp_path / "file" / "a", "x"))


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / (300 * "n")
    for act in (lambda: files.new_directory(path), lambda: files.write_text(path, "x")):
        told = sentence(act)
        assert told.startswith(f"{path}: File name too long: choose a shorter one")


def test_a_temporary_name_is_not_told(tmp_path: Path) -> None:
    def write() -> None:
        with files.atomic_directory(tmp_path / "final") as temporary:
            (temporary / "missing" / "a").write_text("x")

    assert sentence(write).startswith(f"{tmp_path}/final/missing/a: ")


def test_memory() -> None:
    told = sentence(lambda: np.empty(1 << 55, np.uint8))
    assert told.startswith("out of memory: Unable to allocate 32.0 PiB")
    assert "embexp plan" in told
    assert machine_faults.is_memory(error_of(lambda: np.empty(1 << 55, np.uint8)))


TENSORFLOW = {
    "a full disk": (
        tf.errors.ResourceExhaustedError(None, None, "/runs/a/checkpoint_temp/part-0; No space left on device"),
        "/runs/a/checkpoint_temp/part-0: No space left on device: free some space",
    ),
    "no permission": (
        tf.errors.PermissionDeniedError(None, None, "/runs/a/events.v2; Read-only file system"),
        "/runs/a/events.v2: Read-only file system: choose another place",
    ),
    "memory": (
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[9,9] on CPU:0"),
        "out of memory: OOM when allocating tensor with shape[9,9] on CPU:0: `embexp plan`",
    ),
}


@pytest.mark.parametrize("case", TENSORFLOW)
def test_tensorflow_says_it_in_its_own_way(case: str) -> None:
    error, words = TENSORFLOW[case]
    told = machine_faults.sentence(error)
    assert told is not None
    assert told.startswith(words)
    assert machine_faults.is_memory(error) == (case == "memory")


def test_sqlite_says_it_in_its_own_way(tmp_path: Path) -> None:
    told = sentence(lambda: sqlite3.connect(tmp_path / "none" / "a.sqlite").execute("SELECT 1"))
    assert "unable to open database file: give yourself the permission" in told


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyError("x"), tf.errors.InvalidArgumentError(None, None, "shapes"), RuntimeError("a")]
)
def test_a_bug_is_none(error: Exception) -> None:
    assert machine_faults.sentence(error) is None


def test_a_reason_has_no_path() -> None:
    error = OSError(errno.EROFS, os.strerror(errno.EROFS), "/somewhere")
    assert machine_faults.reason(error).startswith("Read-only file system: choose another place")


def test_a_reason_has_nothing_of_tensorflow(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        checkpoint = tf.train.Checkpoint(v=tf.Variable(tf.zeros([10_000])))
        error = error_of(lambda: checkpoint.write(str(tmp_path / "checkpoint")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert machine_faults.reason(error) == (
        "File too large: files of that size are not allowed here: raise the limit of this shell (ulimit -f), or "
        "use another file system"
    )
    assert machine_faults.is_full(error)


def test_the_place_that_is_full_is_proposed_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_faults, "_PLACES", {})
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    machine_faults.name_place(tmp_path / "link", "hydra.run.dir")
    cache = caching.cache_folder(str(tmp_path / "run" / "cache"))  # in the other one

    def said(path: str, number: int = errno.ENOSPC) -> str:
        return str(machine_faults.sentence(OSError(number, os.strerror(number), path)))

    begin = "No space left on device: free some space there, or"
    assert said(f"{cache}/x") == f"{cache}/x: {begin} choose another place by output.cache"
    for folder in ("run", "link"):
        expected = f"{tmp_path}/{folder}/y: {begin} choose another place by hydra.run.dir"
        assert said(f"{tmp_path}/{folder}/y") == expected
        of_tensorflow = type("OpError", (Exception,), {})(f"{tmp_path}/{folder}/y; No space left on device")
        assert machine_faults.sentence(of_tensorflow) == expected
    monkeypatch.chdir(tmp_path)
    assert said("run/y") == f"run/y: {begin} choose another place by hydra.run.dir"
    assert said("/elsewhere").endswith(
        "output.cache for the cache, the environment variable EMBEXP_DATA for named data sets"
    )
    assert said("run/y", errno.EROFS) == "run/y: Read-only file system: choose another place by hydra.run.dir"
    assert said("run/y", errno.EFBIG).endswith("or use another file system")
