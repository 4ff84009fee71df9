"""What is no regular file is told at once; nothing waits for the other end of a FIFO."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from embexp.system import files


def test_kinds(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    found = {name: files.fault_of(tmp_path / name) for name in ("file", "link", "fifo", "", "none", "file/x", "n\0")}
    assert found == {
        "file": "",
        "link": "",
        "fifo": "found a FIFO, expected a file",
        "": "found a folder, expected a file",
        "none": "there is no such file",
        "file/x": "there is no such file",
        "n\0": "there is no such file",
    }
    assert files.fault_of(tmp_path / "loop").startswith("the file can't be read: Too many levels")
    assert files.fault_of(Path("/dev/zero")) == "found a device, expected a file"


def test_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with files.opened(tmp_path / "file") as file:
        assert file.read() == b"content"
    os.mkfifo(tmp_path / "fifo")
    for place in (tmp_path / "fifo", tmp_path, Path("/dev/zero")):
        with pytest.raises(files.NotRegularError, match=r"found a (FIFO|folder|device), expected a file"):
            files.opened(place)


def test_a_file_that_becomes_a_fifo_before_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening it must not wait; what is opened is looked at again."""
    (tmp_path / "file").write_bytes(b"content")
    os.mkfifo(tmp_path / "fifo")
    before = os.stat(tmp_path / "file")
    monkeypatch.setattr(Path, "stat", lambda self: before)
    found: list[str] = []

    def read() -> None:
        try:
            files.opened(tmp_path / "fifo")
        except OSError as error:
            found.append(str(error))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(20)
    assert found == [f"{tmp_path / 'fifo'}: found a FIFO, expected a file"]
