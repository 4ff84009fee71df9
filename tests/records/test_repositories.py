"""A repository that comes from somebody else starts no program, and shows nothing of the user's; with the real git."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embexp.records import differences, manifest

Git = Callable[..., str]
_COMMANDS = re.compile(
    r"(alias|pager)\..*|.*\.(\w*command|cmd|program|\w*helper|\w*editor|pager|\w*proxy|driver|\w*textconv|external|askpass"
    r"|clean|smudge|process|\w*uploadpack|receivepack|vcs|tunnel|httpd|fsmonitor|browser|tool|guitool|update|difffilter"
    r"|\w*hook|hookspath|\w*path)",
    re.I,
)
"""Keys of git's config that name a command, or a file of one."""
_NOT_COMMANDS = re.compile(
    r"include(If)?\..*|core\.quotePath|credential\.useHttpPath|clean\..*|(fsck|advice|column|color)\..*|.*cachetextconv",
    re.I,
)


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Runs git in a folder below `tmp_path`, `theirs` unless another is named, with a user who has no config."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "a")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@b.c")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "global"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    def run(*words: str, at: str = "theirs", check: bool = True) -> str:
        (tmp_path / at).mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["git", "-C", str(tmp_path / at), *words],
            check=check,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
        return done.stdout.strip()

    return run


@pytest.fixture
def theirs(git: Git, tmp_path: Path) -> Path:
    """A repository with a change, and a file with a filter."""
    folder = tmp_path / "theirs"
    git("init", "-q")
    (folder / "model.py").write_text("WIDTH = 8\n")
    (folder / "data.bin").write_text("small\n")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    (folder / "model.py").write_text("WIDTH = 9\n")
    return folder


@pytest.fixture
def trap(tmp_path: Path) -> tuple[str, Path]:
    """A program, and the file that it writes."""
    program, trace = tmp_path / "program", tmp_path / "started"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {trace}\n')
    program.chmod(0o755)
    return str(program), trace


def state(folder: Path) -> Any:
    return manifest.states({"working_folder": folder})["working_folder"]


def set_trap(folder: Path, program: str) -> list[str]:
    """Names the program in every key of git's config that may name a command, and in all hooks; returns the keys."""
    listed = subprocess.run(["git", "help", "--config"], check=True, capture_output=True, text=True).stdout.split("\n")
    keys = [each.strip() for each in listed if re.fullmatch(r"[a-zA-Z0-9]+(\.[^ ]+)+", each.strip())]
    keys = [each for each in keys if _COMMANDS.fullmatch(each) and not _NOT_COMMANDS.fullmatch(each)]
    values = {each: f"!{program}" if re.search(r"alias|helper$|update$", each) else program for each in keys}
    names = {
        **{f"filter.trap.{each}": program for each in ("clean", "smudge", "process")},
        **{f"diff.trap.{each}": program for each in ("command", "textconv")},
        "hook.trap.command": program,  # of later versions of git
        "hook.trap.event": "post-index-change",
        "core.hooksPath": str(folder / ".git" / "hooks"),
    }
    sections: dict[str, list[str]] = {}
    for key, value in {**values, **names}.items():
        section, _, rest = key.partition(".")
        middle, _, last = rest.rpartition(".")
        header = f'[{section} "{re.sub("<.*?>|[*]", "trap", middle)}"]' if middle else f"[{section}]"
        last = re.sub("<.*?>|[*]", "trap", last)
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", last):
            sections.setdefault(header, []).append(f"{last} = {value}")
    text = "".join(f"{header}\n" + "".join(f"\t{line}\n" for line in lines) for header, lines in sections.items())
    with (folder / ".git" / "config").open("a") as file:
        file.write(text)
    for hook in ("post-index-change", "fsmonitor-watchman", "query-watchman", "reference-transaction", "pre-auto-gc"):
        shutil.copy(program, folder / ".git" / "hooks" / hook)
    (folder / ".git" / "info" / "attributes").write_text("* filter=trap diff=trap\n")
    return list(values)


def test_no_key_of_git_s_config_starts_a_program(git: Git, theirs: Path, trap: tuple[str, Path]) -> None:
    program, trace = trap
    keys = set_trap(theirs, program)
    assert {"core.fsmonitor", "core.sshCommand", "diff.external", "core.pager", "credential.helper"} <= set(keys)
    assert any(each.startswith("filter.<") for each in keys)
    before = (theirs / ".git" / "index").read_bytes()
    os.utime(theirs / "data.bin")
    found = state(theirs)
    assert not trace.exists()
    assert found["commit"] == git("-c", "core.fsmonitor=false", "rev-parse", "HEAD")
    assert found["diff_note"] == "not compared because git filters are never run (trap): model.py"
    assert (theirs / ".git" / "index").read_bytes() == before
    assert not manifest.is_tracked(theirs / "other.py")
    assert manifest.is_tracked(theirs / "model.py")
    assert not trace.exists()
    for words in (("diff", "HEAD"), ("status",)):  # the trap is live
        git(*words, check=False)
    assert trace.exists()


@pytest.mark.parametrize("key", ["clean", "process"])
def test_a_filter_is_not_run_and_its_files_are_named(git: Git, theirs: Path, trap: tuple[str, Path], key: str) -> None:
    program, trace = trap
    git("config", f"filter.lfs.{key}", program)
    (theirs / ".gitattributes").write_text("*.bin filter=lfs diff=lfs\n")
    (theirs / "data.bin").write_text("changed\n")
    found = state(theirs)
    assert not trace.exists()
    assert found["diff_note"] == "not compared because git filters are never run (lfs): data.bin"
    assert "+WIDTH = 9" in found["diff"]
    assert "changed" not in found["diff"]
    git("diff", "HEAD", check=False)
    assert trace.exists()


@pytest.mark.parametrize("kind", ["directory", "file", "bare"])
def test_a_repository_inside_a_run_is_none(git: Git, tmp_path: Path, theirs: Path, kind: str) -> None:
    run = tmp_path / "mine" / "run"
    git("init", "-q", at="mine")
    (tmp_path / "mine" / "kept.py").write_text("")
    (run / "code").mkdir(parents=True)
    for name in ("spec.json", "metrics.jsonl"):
        (run / name).write_text("{}")
    assert state(run)["root"] == str(tmp_path / "mine")  # a run inside the user's repository
    if kind == "directory":
        shutil.copytree(theirs / ".git", run / ".git")
    elif kind == "file":
        (run / ".git").write_text(f"gitdir: {theirs / '.git'}\n")
    else:
        for each in (theirs / ".git").iterdir():
            shutil.move(each, run / each.name)
        subprocess.run(["git", "-C", run, "config", "core.worktree", str(theirs)], check=True)
    assert state(run) is None
    assert state(run / "code") is None


def test_files_that_a_repository_points_to_stay_unread(git: Git, tmp_path: Path, theirs: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "model.py").write_text("hunter2\n")
    git("config", "core.worktree", str(home))
    assert "hunter2" in git("diff", "HEAD")
    assert state(theirs) is None
    git("config", "core.worktree", str(tmp_path))  # around it, too
    assert state(theirs) is None
    git("config", "--unset", "core.worktree")
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / ".git").write_text(f"gitdir: {theirs / '.git'}\n")
    assert "WIDTH = 8" in git("diff", "HEAD", at="evil")  # the user's own code
    found = state(evil)
    assert (found["diff"], found["untracked"]) == (None, None)
    assert "is not the directory of this work tree" in found["diff_note"]


def test_nothing_is_fetched_for_a_partial_clone(git: Git, theirs: Path, trap: tuple[str, Path]) -> None:
    program, trace = trap
    blob = git("rev-parse", "HEAD:model.py")
    for key, value in {
        "remote.origin.url": f"ext::{program}",
        "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "blob:none",
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
        "protocol.ext.allow": "always",
    }.items():
        git("config", key, value)
    (theirs / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    found = state(theirs)
    assert not trace.exists()
    assert (found["diff"], found["diff_note"]) == (None, "git can't compare the files")
    git("diff", "HEAD", check=False)
    assert trace.exists()


def test_the_config_of_a_submodule_starts_no_program(git: Git, theirs: Path, trap: tuple[str, Path]) -> None:
    program, trace = trap
    git("init", "-q", at="other")
    git("commit", "-q", "--allow-empty", "-m", "first", at="other")
    git("-c", "protocol.file.allow=always", "submodule", "add", "-q", "../other", "sub")
    git("commit", "-q", "-m", "with sub")
    inside = theirs / "sub"
    (inside / "new.py").write_text("")
    git("config", "core.fsmonitor", program, at="theirs/sub")
    git("config", "submodule.sub.update", f"!{program}")
    found = state(theirs)
    assert found["root"] == str(theirs)
    assert state(inside)["untracked"] == ["new.py"]
    assert not trace.exists()
    git("status", check=False)
    assert trace.exists()
    git("config", "--unset", "core.fsmonitor", at="theirs/sub")
    git("commit", "-q", "--allow-empty", "-m", "second", at="theirs/sub")
    assert f"+Subproject commit {git('rev-parse', 'HEAD', at='theirs/sub')}" in state(theirs)["diff"]


@pytest.mark.parametrize("kind", ["linked", "sha256", "split", "sparse", "unborn", "packed", "crlf"])
def test_every_form_of_repository_is_compared_as_git_does(git: Git, tmp_path: Path, theirs: Path, kind: str) -> None:
    place = theirs
    if kind == "linked":
        git("worktree", "add", "-q", "../linked")
        place = tmp_path / "linked"
        (place / "model.py").write_text("WIDTH = 7\n")
    elif kind in ("sha256", "unborn"):
        place = tmp_path / kind
        git("init", "-q", *(["--object-format=sha256"] if kind == "sha256" else []), at=kind)
        (place / "model.py").write_text("WIDTH = 8\n")
        if kind == "sha256":
            git("add", ".", at=kind)
            git("commit", "-q", "-m", "first", at=kind)
            (place / "model.py").write_text("WIDTH = 9\n")
    elif kind == "split":
        git("update-index", "--split-index")
        assert list((theirs / ".git").glob("sharedindex.*"))
    elif kind == "sparse":
        (theirs / "sub").mkdir()
        (theirs / "sub" / "x.py").write_text("")
        git("add", "sub")
        git("commit", "-q", "-m", "second")
        git("sparse-checkout", "set", "--cone", "--sparse-index")
    elif kind == "packed":
        git("gc", "-q")
        git("pack-refs", "--all")
    elif kind == "crlf":
        git("config", "core.autocrlf", "true")
        (theirs / "data.bin").write_bytes(b"small\r\n")
    found = state(place)
    at = str(place.relative_to(tmp_path))
    if kind == "unborn":
        assert (found["commit"], found["diff"], found["untracked"]) == (None, None, ["model.py"])
        return
    assert found["commit"] == git("rev-parse", "HEAD", at=at)
    assert found["diff"].strip() == git("diff", "HEAD", at=at)
    assert "+WIDTH" in found["diff"]
    assert "data.bin" not in found["diff"]
    assert "diff_note" not in found


def test_the_user_s_own_ignored_files_are_left_out(git: Git, tmp_path: Path, theirs: Path) -> None:
    for name in ("a.log", "b.tmp", "c.new", "d.sub"):
        (theirs / name).write_text("")
    (tmp_path / "ignored").write_text("*.log\n")
    git("config", "--global", "core.excludesFile", str(tmp_path / "ignored"))
    (theirs / ".git" / "info" / "exclude").write_text("*.tmp\n")
    (theirs / ".gitignore").write_text("*.sub\n")
    assert state(theirs)["untracked"] == [".gitignore", "c.new"]
    git("config", "core.excludesFile", "/dev/zero")  # the repository's is not read
    assert state(theirs)["untracked"] == [".gitignore", "c.new"]


def test_a_repository_of_another_user_is_none_unless_it_is_called_safe(git: Git, theirs: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    for each in (theirs, theirs / ".git"):
        os.chown(each, 12345, 12345)
    assert state(theirs) is None
    git("config", "--global", "safe.directory", str(theirs))
    assert state(theirs)["commit"]


def test_a_name_that_is_not_utf_8_is_recorded(git: Git, theirs: Path) -> None:
    Path(os.fsdecode(bytes(theirs) + b"/\xff.py")).write_text("")
    assert state(theirs)["untracked"] == ["\ufffd.py"]


def test_a_manifest_that_refers_to_itself_is_compared() -> None:
    manifest = {"code": {"model": {"same_as": "model"}, "working_folder": {"same_as": "model"}}}
    assert differences.manifest_differences(manifest, manifest) == []
