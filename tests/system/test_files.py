from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from embexp.system import files, locks


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_text(path, "old")

    def fail() -> None:
        with files.atomic_write(path) as file:
            file.write(b"half")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_written_files_have_the_permissions_of_ordinary_ones(tmp_path: Path) -> None:
    files.write_text(tmp_path / "ours", "x")
    (tmp_path / "ordinary").write_text("x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_directories_are_never_shared(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: files.new_directory(tmp_path / "run"), range(40)))
    assert len(set(made)) == 40
    assert {path.name for path in made} == {"run", *(f"run_{n}" for n in range(2, 41))}


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with files.atomic_directory(tmp_path / "out") as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "a").write_text("x")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out" / "inner" / "a").read_text() == "x"
    (tmp_path / "ordinary").mkdir()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "ordinary").stat().st_mode

    def fail() -> None:
        with files.atomic_directory(tmp_path / "other") as half:
            (half / "a").write_text("x")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert sorted(os.listdir(tmp_path)) == ["ordinary", "out"]


def test_a_directory_of_that_name_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError), files.atomic_directory(tmp_path / "out"):
        raise AssertionError("not reached")

    def overtaken() -> None:
        with files.atomic_directory(tmp_path / "late") as temporary:
            (temporary / "a").write_text("second")
            (tmp_path / "late").mkdir()
            (tmp_path / "late" / "a").write_text("first")

    with pytest.raises(FileExistsError):
        overtaken()
    assert (tmp_path / "late" / "a").read_text() == "first"
    assert sorted(os.listdir(tmp_path)) == ["late", "out"]


def test_a_directory_is_on_disk_with_all_its_files_and_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []
    fsync = os.fsync

    def watched(handle: int) -> None:
        synced.append((os.fstat(handle).st_ino, (tmp_path / "out").exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    with files.atomic_directory(tmp_path / "out") as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "a").write_text("x")
    before = {number for number, renamed in synced if not renamed}
    assert before == {each.stat().st_ino for each in (tmp_path / "out", *(tmp_path / "out").rglob("*"))}
    assert [number for number, renamed in synced if renamed] == [tmp_path.stat().st_ino]


class Disk:
    """What is on disk, by the calls of this process: the files with their content, and the names in directories."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: set[Path] = set()
        """Files whose content is on disk, and directories whose names are."""
        self.lost: set[Path] = set()
        """What a power cut may take: names that were made, or given, since their directory was last written."""
        fsync, replace, mkdir, link = os.fsync, os.replace, os.mkdir, os.link

        def record_fsync(handle: int) -> None:
            fsync(handle)
            path = Path(os.readlink(f"/proc/self/fd/{handle}"))
            self.synced.add(path)
            self.lost = {each for each in self.lost if each.parent != path}

        def record_replace(old: Path, new: Path) -> None:
            assert Path(old) in self.synced
            replace(old, new)
            self.lost.add(Path(new))

        def record_mkdir(path: Path, *arguments: int) -> None:
            mkdir(path, *arguments)
            self.lost.add(Path(path))

        def record_link(old: Path, new: Path, **named: bool) -> None:
            link(old, new, **named)
            self.lost.add(Path(new))

        monkeypatch.setattr(os, "fsync", record_fsync)
        monkeypatch.setattr(os, "replace", record_replace)
        monkeypatch.setattr(os, "mkdir", record_mkdir)
        monkeypatch.setattr(os, "link", record_link)


def test_what_was_written_outlasts_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    run = files.new_directory(tmp_path / "outputs" / "day" / "run")
    assert disk.lost == set()
    files.write_text(run / "spec.json", "{}")
    files.write_text(run / "vocabularies" / "item.tsv", "a")
    assert disk.lost == set()
    files.write_text(run / "new.json", "{}", new=True)
    assert {each for each in disk.lost if each.exists()} == set()


def test_a_file_system_that_syncs_no_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def refuse(handle: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{handle}")).is_dir():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refuse)
    files.write_text(files.new_directory(tmp_path / "run") / "spec.json", "{}")
    assert (tmp_path / "run" / "spec.json").read_text() == "{}"


def test_leftovers_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    for name in (
        ".a.json.0badf00d.part",
        "checkpoints/.step_1.gone/data",
        "plots/.b.part/c",
        "base/.d.part",
        ".e",
        "f.part",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "base" / locks.NAME).touch()  # a run of a study, which somebody may be writing
    files.remove_leftovers(tmp_path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert left == [".e", "base/.d.part", "base/.lock", "f.part"]
