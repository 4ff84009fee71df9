"""The git repositories that a run's code comes from: commit, and what differs from it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LONGEST_DIFF = 1_000_000
_MOST_UNTRACKED = 100
_SECONDS = 10.0
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",  # another git of the user may be at work
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
_ONLY_READ = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")


def states(folders: Mapping[str, Path]) -> dict[str, Any]:
    """The states of the repositories that folders lie in, by name; null for a folder that is in none.

    The state of one that an earlier name has, too, is only `{"root": …, "same_as": …}`.

    Args:
        folders: by what they hold.
    """
    found: dict[str, Any] = {}
    roots: dict[str, str] = {}
    for name, folder in folders.items():
        root = _line(folder, "rev-parse", "--show-toplevel")
        if root is None:
            found[name] = None
        elif root in roots:
            found[name] = {"root": root, "same_as": roots[root]}
        else:
            roots[root] = name
            found[name] = _state(root)
    return found


def is_tracked(file: Path) -> bool:
    """Whether a file is under version control; a package that is installed into a folder of a repository is not."""
    return _line(file.parent, "ls-files", "--error-unmatch", "--", file.name) is not None


def _state(root: str) -> dict[str, Any]:
    """Commit, difference to it, and the names of untracked files and folders."""
    folder = Path(root)
    commit = _line(folder, "rev-parse", "--verify", "HEAD")
    state: dict[str, Any] = {"root": root, "commit": commit, "diff": None, "untracked": None}
    if commit is not None:
        state["diff"], note = _git(folder, "diff", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD")
        if note:
            state["diff_note"] = note
    names, _ = _git(folder, "ls-files", "--others", "--exclude-standard", "--directory", "--no-empty-directory", "-z")
    if names is not None:
        untracked = [name for name in names.split("\0") if name]
        state["untracked"] = untracked[:_MOST_UNTRACKED]
        if len(untracked) > _MOST_UNTRACKED:
            state["untracked_note"] = f"{_MOST_UNTRACKED} of {len(untracked)} are listed"
    return state


def _line(folder: Path, *words: str) -> str | None:
    text, _ = _git(folder, *words)
    return None if text is None else text.strip()


def _git(folder: Path, *words: str) -> tuple[str | None, str]:
    """What git prints, None if it fails or takes too long; and a note where that is not all.

    It starts no other program, asks for nothing, and locks nothing. A longer output is cut.
    """
    environment = {key: text for key, text in os.environ.items() if key not in ("GIT_DIR", "GIT_WORK_TREE")}
    try:
        process = subprocess.Popen(
            ["git", "-C", str(folder), *_ONLY_READ, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment | _ENVIRONMENT,
        )
    except OSError:
        return None, ""
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(_SECONDS, stop)
    timer.daemon = True
    timer.start()
    with process:
        try:
            assert process.stdout is not None
            content = process.stdout.read(_LONGEST_DIFF + 1)
            cut = len(content) > _LONGEST_DIFF
            if cut:
                process.kill()
            status = process.wait()
        finally:
            timer.cancel()
    if late.is_set():
        return None, f"git took longer than {_SECONDS:g} s"
    text = content[:_LONGEST_DIFF].decode("utf-8", "replace")
    if cut:
        return text, f"cut after {_LONGEST_DIFF:,} bytes"
    return (text, "") if status == 0 else (None, "")
