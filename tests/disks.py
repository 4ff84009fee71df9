"""Disks that are full or read-only, for tests: file systems in memory where this user may mount them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small(folder: Path, *, kilobytes: int) -> Iterator[Path]:
    """A disk of so many kilobytes; skips the test where none can be mounted."""
    folder.mkdir()
    with _mounted(folder, f"size={kilobytes}k"):
        yield folder


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """A folder that can't be written to: of a read-only disk, or, where no permission is needed for that, by its mode.

    Permissions do not bind the superuser, and only the superuser can mount a disk, so one of the two always works; in
    a container whose superuser may not mount, the test is skipped.
    """
    folder.mkdir(exist_ok=True)
    if os.geteuid() != 0:
        folder.chmod(0o500)
        try:
            yield folder
        finally:
            folder.chmod(0o700)
        return
    with _mounted(folder, "ro"):
        yield folder


def seal(disk: Path) -> None:
    """Makes a disk that `small` has mounted read-only."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


@contextmanager
def _mounted(folder: Path, options: str) -> Iterator[None]:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
