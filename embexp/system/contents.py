"""What a folder of the cache held when it was made: the size, the digest and the stamp of each of its files.

A stamp is read in microseconds and shows whether a file can have changed; only where it differs, as in a copy of the
cache, the bytes are read.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from embexp.system import digests, files
from embexp.system.parallel import at_once

_NAME = ".content.json"


def stamp(status: os.stat_result) -> list[int]:
    """What no change of a file leaves as it is: size, modification time, time of change and inode.

    The time of change (ctime) can't be set back as the modification time can, and a file that takes another one's
    place has another inode.
    """
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def record(folder: Path) -> None:
    """Notes the files of a folder that is complete."""
    here = dict(_files(folder))
    noted = at_once(lambda path: {"stamp": stamp(path.stat()), "digest": digests.of_file(path)}, here.values())
    found = dict(zip(here, noted, strict=True))
    files.write_text(folder / _NAME, json.dumps(found))


def unchanged(folder: Path) -> bool:
    """Whether the stamps of all files of a folder are those that were noted; False where there is no such folder."""
    noted = _noted(folder)
    return noted is not None and _stamps(folder) == {name: each["stamp"] for name, each in noted.items()}


def verified(folder: Path) -> bool:
    """Whether the files of a folder have the content that was noted; notes their stamps if they are others now."""
    noted, found = _noted(folder), _stamps(folder)
    if noted is None or found is None or found.keys() != noted.keys():
        return False
    for name, each in noted.items():
        if found[name] == each["stamp"]:
            continue
        if found[name][0] != each["stamp"][0] or digests.of_file(folder / name) != each["digest"]:
            return False
        each["stamp"] = found[name]
    with contextlib.suppress(OSError):  # a cache that is only to be read
        files.write_text(folder / _NAME, json.dumps(noted))
    return True


def _files(folder: Path) -> list[tuple[str, Path]]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != _NAME]
    return [(path.relative_to(folder).as_posix(), path) for path in paths]


def _stamps(folder: Path) -> dict[str, list[int]] | None:
    try:
        return {name: stamp(path.stat()) for name, path in _files(folder)}
    except OSError:  # it is being removed
        return None


def _noted(folder: Path) -> dict[str, Any] | None:
    """What `record` wrote; None where that is missing or damaged."""
    try:
        content = json.loads((folder / _NAME).read_bytes())
        for each in content.values():
            if not (isinstance(each["digest"], str) and [int(number) for number in each["stamp"]]):
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return dict(content)
