"""Directories that a thread brings to disk: whole or not at all, one at a time, errors told."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from embexp.system.files import BackgroundDirectories


class Disk:
    """Lets `fsync` wait until it is told to go on, or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ready, self.waiting, self.error = threading.Event(), threading.Event(), False
        monkeypatch.setattr(os, "fsync", self._fsync)

    def _fsync(self, _: int) -> None:
        self.waiting.set()
        assert self.ready.wait(10)
        if self.error:
            raise OSError("the disk is full")


def test_the_program_goes_on_and_the_directory_appears_once_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, background, done = Disk(monkeypatch), BackgroundDirectories(), list[bool]()
    path = tmp_path / "a"
    with background.written_whole(path, on_disk=lambda: done.append(path.is_dir())) as temporary:
        (temporary / "file").write_text("content")
    assert disk.waiting.wait(10)
    assert (path.exists(), done, background.busy) == (False, [], True)
    disk.ready.set()
    background.wait()
    assert ((path / "file").read_text(), done, background.busy) == ("content", [True], False)
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    background.close()


def test_the_next_one_waits_for_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    with contextlib.closing(BackgroundDirectories()) as background:
        with background.written_whole(tmp_path / "a"):
            pass
        threading.Timer(0.2, disk.ready.set).start()
        with background.written_whole(tmp_path / "b"):
            assert (tmp_path / "a").is_dir()
        with pytest.raises(FileExistsError), background.written_whole(tmp_path / "a"):
            raise AssertionError("not reached")
    assert (tmp_path / "b").is_dir()


def test_what_went_wrong_is_raised_once_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, called = Disk(monkeypatch), list[None]()
    disk.error = True
    disk.ready.set()
    with contextlib.closing(BackgroundDirectories()) as background:
        with background.written_whole(tmp_path / "a", on_disk=lambda: called.append(None)) as temporary:
            (temporary / "file").write_text("content")
        with pytest.raises(OSError, match="the disk is full"), background.written_whole(tmp_path / "b"):
            raise AssertionError("not reached")
        assert (list(tmp_path.iterdir()), called) == ([], [])
        disk.error = False
        with background.written_whole(tmp_path / "b"):
            pass
        background.wait()
        with pytest.raises(KeyboardInterrupt), background.written_whole(tmp_path / "c"):
            raise KeyboardInterrupt
        background.wait()
    assert [each.name for each in tmp_path.iterdir()] == ["b"]
