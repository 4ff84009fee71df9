"""A checkpoint's directory: whole or not at all, and on disk before it has its name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from embexp.checkpoints import store
from embexp.errors import CheckpointError
from embexp.system.tensor_bundle import increments
from embexp.system.tensor_bundle import index as bundle_index


def writer(content: str, seen: list[Path] | None = None):  # type: ignore[no-untyped-def]
    def write(prefix: str) -> None:
        for ending in ("index", "data-00000-of-00001"):
            path = Path(f"{prefix}.{ending}")
            path.write_text(content)
            if seen is not None:
                seen.append(path)

    return write


def files_in(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir()}


@pytest.mark.parametrize("replaces", [False, True])
def test_files_are_on_disk_before_the_directory_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaces: bool
) -> None:
    directory, events = tmp_path / "final", list[str]()
    if replaces:
        store.write_by(writer("old"), directory)
    real_fsync, real_rename = os.fsync, Path.rename

    def fsync(file: int) -> None:
        events.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        real_fsync(file)

    def rename(path: Path, target: Path) -> Path:
        events.append(f"to {Path(target).name}")
        return real_rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    assert store.write_by(writer("new"), directory) == directory
    names = {"checkpoint.index", "checkpoint.data-00000-of-00001"}
    assert names <= set(events[: events.index("to final")])
    assert files_in(directory) == dict.fromkeys(names, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_what_fails_leaves_the_old_one_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "final"

    def broken(prefix: str) -> None:
        writer("new")(prefix)
        raise OSError("the disk is full")

    with pytest.raises(CheckpointError, match="the disk is full"):
        store.write_by(broken, directory)
    assert list(tmp_path.iterdir()) == []

    store.write_by(writer("old"), directory)
    with pytest.raises(CheckpointError, match="the disk is full"):
        store.write_by(broken, directory)
    assert set(files_in(directory).values()) == {"old"}
    assert [path.name for path in tmp_path.iterdir()] == ["final"]

    real = Path.rename

    def refused(path: Path, target: Path) -> Path:
        if path.name == "new":
            raise OSError("no rename")
        return real(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(CheckpointError, match="no rename"):
        store.write_by(writer("new"), directory)
    assert set(files_in(directory).values()) == {"old"}
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_tensorflow_is_not_led_to_an_incremental_one(tmp_path: Path) -> None:
    prefixes = [store.step_directory(tmp_path, step) / "checkpoint" for step in (1, 2, 3)]
    for prefix in prefixes:
        prefix.parent.mkdir()
        Path(f"{prefix}.index").write_bytes(b"")
    increments.describe(prefixes[2], prefixes[1], {})
    store.prune(tmp_path, None, latest=prefixes[2].parent)
    assert bundle_index.marked(tmp_path) == prefixes[:2]
    for prefix in prefixes[:2]:
        store.remove(prefix.parent)
    store.prune(tmp_path, None, latest=prefixes[2].parent)
    assert bundle_index.marked(tmp_path) == []
