"""Databases and folders that are somebody else's: what would write its own tables or files there looks first."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

_OF_A_CACHE = re.compile(r"[a-z-]+-[0-9a-f]{32}(\.lock)?|digests|outputs|datasets|fused_operations|\.making-.*")
_RUNS = ("spec.json", "sweep.sqlite", ".hydra")
"""What each run or sweep has in its folder, which may be in the same one."""
_MARK = "meta.yaml"
"""What each experiment of MLflow has in its folder."""


def database(path: Path, tables: Collection[str]) -> str:
    """Why a SQLite file is somebody else's, without a full stop; "" if it is new, empty, or has these tables.

    One that can't be read now is left to the library, which waits or says why.
    """
    if not path.is_file() or not path.stat().st_size:
        return ""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=1)) as opened:
            found = {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        return "there is a file that is no database" if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB else ""
    missing = found and set(tables) - found
    return f"there is a database of something else, without the table {min(missing)}" if missing else ""


def store(place: Path, *, is_folder: bool) -> str:
    """Why a database or a folder is no store of MLflow's, without a full stop; "" if it is new, empty, or is one."""
    if not is_folder:
        return database(place, ("experiments", "runs", "metrics"))
    if not place.is_dir():
        return "there is a file of that name" if place.exists() else ""
    entries = [each for each in place.iterdir() if each.name != ".trash"]
    return "" if not entries or any((each / _MARK).is_file() for each in entries) else _OTHER


def cache(folder: Path) -> str:
    """Why a folder is no cache of embexp's, without a full stop; "" if it is new, empty, or has something of one."""
    try:
        entries = list(folder.iterdir())
    except OSError:  # reported where it is written to
        return ""
    own = any(_OF_A_CACHE.fullmatch(each.name) or any((each / name).exists() for name in _RUNS) for each in entries)
    return "" if own or not entries else _OTHER


_OTHER = "there is a folder of something else"
