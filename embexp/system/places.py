"""Where embexp keeps things between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache(folder: str | None) -> Path:
    """The folder of scanned data: the one named, or `embexp` in the user's cache folder (XDG base directories)."""
    if folder is not None:
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "embexp"
