from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from embexp.system import files


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_text(path, "old")

    def fail() -> None:
        with files.written_whole(path) as file:
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
