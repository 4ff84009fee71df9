"""What a manifest records of repositories, commands and the environment, and what it keeps for itself."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from embexp.records import manifest

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Runs git in a new repository."""
    folder = tmp_path / "repository"
    folder.mkdir()
    names = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def run(*words: str) -> str:
        result = subprocess.run(
            ["git", "-C", str(folder), *words], check=True, capture_output=True, text=True, env=os.environ | names
        )
        return result.stdout.strip()

    run("init", "-q")
    (folder / "model.py").write_text("WIDTH = 8\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "other.py").write_text("")
    run("add", ".")
    run("commit", "-q", "-m", "first")
    return run


def test_commit_difference_and_new_files(git: Git, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    (folder / "model.py").write_text("WIDTH = 9\n")
    (folder / "new").mkdir()
    (folder / "new" / "one.py").write_text("")
    found = manifest.states({"working_folder": folder / "sub", "model": folder, "elsewhere": tmp_path})
    state = found["working_folder"]
    assert state["commit"] == git("rev-parse", "HEAD")
    assert state["diff"].strip() == git("diff", "HEAD")
    assert "+WIDTH = 9" in state["diff"]
    assert state["untracked"] == ["new/"]
    assert found["model"] == {"root": str(folder), "same_as": "working_folder"}
    assert found["elsewhere"] is None


def test_a_long_difference_is_cut_and_says_so(git: Git, tmp_path: Path) -> None:
    (tmp_path / "repository" / "model.py").write_text("x\n" * 800_000)
    state = manifest.states({"working_folder": tmp_path / "repository"})["working_folder"]
    assert (len(state["diff"]), state["diff_note"]) == (1_000_000, "cut after 1,000,000 bytes")


def test_git_that_hangs_is_given_up(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(slow.parent), prepend=os.pathsep)
    monkeypatch.setattr(manifest, "_SECONDS", 0.2)
    began = time.monotonic()
    assert manifest.states({"working_folder": tmp_path / "repository"}) == {"working_folder": None}
    assert time.monotonic() - began < 30


def test_no_program_of_the_repository_is_started(git: Git, tmp_path: Path) -> None:
    folder, trace = tmp_path / "repository", tmp_path / "started"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho started >> {trace}\n")
    program.chmod(0o755)
    git("config", "core.fsmonitor", str(program))
    git("config", "diff.external", str(program))
    git("config", "core.pager", str(program))
    (folder / "model.py").write_text("WIDTH = 9\n")
    state = manifest.states({"working_folder": folder})["working_folder"]
    assert "+WIDTH = 9" in state["diff"]
    assert not trace.exists()


def test_without_git_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert manifest.states({"working_folder": tmp_path}) == {"working_folder": None}


def test_all_packages_are_recorded() -> None:
    found = manifest.packages()
    parsed = [each.metadata for each in metadata.distributions()]
    assert found == {each["Name"]: metadata.version(each["Name"]) for each in parsed}
    assert {"hydra-core", "tensorflow", "pytest", "pyarrow"} <= set(found)
