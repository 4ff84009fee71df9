"""`inventory.json`: the digest of every file that a run wrote, so that a later change of its record is noticed.

It is the last file of a run. A folder inside that has an inventory of its own, such as a run of a study, is listed by
the digest of that inventory alone. Digests are SHA-256 of the bytes, as `sha256sum` prints them, and are always taken
from the bytes: a file's times can be set. Whoever edits a file can edit the inventory, too, so its own digest is kept
elsewhere: in the ledger of a sweep, by trackers, and on the terminal of whoever ran it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from embexp.errors import DataError
from embexp.system import files
from embexp.system.parallel import at_once

NAME = "inventory.json"
EVENT_SUFFIX = ".inventory"
"""How the name of TensorBoard's file with the digest of the inventory ends: the one file that is written after it."""
_RESULT = "summary.json"
_VERSION = 1
_LOG = re.compile(r"run\.log|worker-\d+\.log")
"""Logs. A process may write lines after the inventory, as it ends: these are added, and what was there is compared."""
_NOT_LISTED = (".lock", ".progress.json")
"""Files of a process that is running."""
_UNFINISHED = (".part", ".gone")
"""Endings of what is being written or removed."""
_BY_SIZE = ("checkpoints/", "events/")
"""Folders whose files are compared by their sizes alone where a comparison is to be quick."""
_LINK = "it was a file and is now a symbolic link"
_EVENT_BYTES = 1 << 16
"""Bytes that TensorBoard's file with the digest of the inventory has at most."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ChangeKind(StrEnum):
    """How a file differs from what the inventory says of it."""

    CHANGED = "changed"
    REMOVED = "removed"
    ADDED = "added"
    MOVED = "now a link to a folder"
    """Of a folder, such as `checkpoints` on another disk: its files are compared where they are."""


@dataclass(frozen=True)
class Change:
    """A file that differs from what the inventory says of it.

    Attributes:
        path: relative to the folder, with slashes.
        note: what else there is to say, or "".
    """

    path: str
    kind: ChangeKind
    note: str = ""

    def __str__(self) -> str:
        return f"{self.path} {self.kind}{f' ({self.note})' if self.note else ''}"


@dataclass(frozen=True)
class Listed:
    """A file in an inventory.

    Attributes:
        size: in bytes.
        sha256: the digest of these bytes; of a symbolic link that was there, of the path to which it leads.
        link: whether it is a symbolic link.
    """

    size: int
    sha256: str
    link: bool = False

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        return {"bytes": self.size, "sha256": self.sha256} | ({"link": True} if self.link else {})


@dataclass(frozen=True)
class Inventory:
    """The content of an inventory.

    Attributes:
        files: by path relative to the folder, with slashes.
        digest: SHA-256 of the inventory's own bytes.
    """

    files: Mapping[str, Listed]
    digest: str


def seal(directory: Path, linked: Mapping[tuple[int, int], Listed] = MappingProxyType({})) -> str:
    """Writes the inventory of a folder in which nothing is written any more, and returns its digest.

    A folder that has one gets a new one. All that it lists is on disk first, with its names. Files are read as many at
    a time as there are processors; one with several names (hard links), as checkpoints have, is read once.

    Args:
        linked: files of another folder, with its inventory, that have further names here, by `files.identity`. They are
            listed as they are there and not read again: bytes that have changed since differ from both inventories.
    """
    inside = {name: os.lstat(directory / name) for name in _names(directory)}
    by_inode = {files.identity(status): name for name, status in inside.items()}
    unread = {inode: name for inode, name in by_inode.items() if inode not in linked}
    read = zip(unread, at_once(lambda name: _listed(directory, name, on_disk=True), unread.values()), strict=True)
    known = {**linked, **dict(read)}
    for folder in {parent for name in inside for parent in PurePosixPath(name).parents}:
        files.to_disk(directory / folder)
    found = {name: known[files.identity(status)].as_json() for name, status in sorted(inside.items())}
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(content)}" for name, content in found.items())
    text = f'{{\n  "version": {_VERSION},\n  "files": {{\n{lines}\n  }}\n}}\n'
    files.write_text(directory / NAME, text)
    return hashlib.sha256(text.encode()).hexdigest()


def unseal(directory: Path) -> None:
    """Removes the inventory of a folder in which something is to be written."""
    (directory / NAME).unlink(missing_ok=True)


def read(directory: Path) -> Inventory | None:
    """The inventory of a folder; None: it has none, as the run was killed, goes on, or is of an earlier version.

    Raises:
        DataError: it is damaged.
    """
    path = directory / NAME
    if not os.path.lexists(path):
        return None
    try:
        with files.opened(path) as file:
            content = file.read()
        found = json.loads(content)
        if found["version"] != _VERSION:
            raise ValueError(f"it has version {found['version']}, but this embexp reads version {_VERSION}")
        listed = {name: _of_json(name, each) for name, each in found["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        words = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(
            f"{path} is damaged: {words}; restore the one that the run wrote, or remove it to use the run unchecked"
        ) from None
    return Inventory(listed, hashlib.sha256(content).hexdigest())


def digest_of(directory: Path) -> str | None:
    """SHA-256 of the inventory of a folder; None: it has none that can be read."""
    try:
        with files.opened(directory / NAME) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def changes(directory: Path, *, quick: bool = False) -> tuple[Change, ...]:
    """What differs between a folder and its inventory: changed files first, then removed, added and moved ones.

    Nothing, if the folder has no inventory, see `read`.

    Args:
        quick: compares checkpoints and events by their sizes alone.
    """
    kinds = list(ChangeKind)
    return tuple(sorted(_changes(directory, quick=quick), key=lambda each: (kinds.index(each.kind), each.path)))


def check(directory: Path, *paths: Path) -> dict[Path, Listed]:
    """Checks that files, and all files of folders, are what the run wrote. Nothing, if the run has no inventory.

    Args:
        *paths: files and folders in it that are about to be read; one that was never there may be named, too.

    Returns:
        What the inventory says of these files, which they were found to be.

    Raises:
        DataError: one has changed, is missing or was added; or the inventory is damaged.
    """
    inventory = read(directory)
    if inventory is None:
        return {}
    names = [path.relative_to(directory).as_posix() for path in paths if path.is_relative_to(directory)]
    inside = {name for name in _names(directory) if _is_one_of(name, names)}
    listed = {name: file for name, file in inventory.files.items() if _is_one_of(name, names)}
    compared = (each for each in _compared(directory, listed, inside) if each.kind is not ChangeKind.MOVED)
    if (found := min(compared, key=str, default=None)) is None:
        return {directory / name: file for name, file in listed.items()}
    words = {
        ChangeKind.CHANGED: "has changed since the run wrote it",
        ChangeKind.REMOVED: "is missing, although the run wrote it",
        ChangeKind.ADDED: "was not written by the run",
    }
    remedy = "remove it" if found.kind is ChangeKind.ADDED else "restore the one that the run wrote, or train again"
    command = shlex.join(["embexp", "verify", str(directory)])
    note = f" ({found.note})" if found.note else ""
    raise DataError(
        f"{directory / found.path} {words[found.kind]}, says {NAME}{note}: {remedy}; `{command}` lists all changes"
    )


def lost_results(directory: Path) -> tuple[str, ...]:
    """The missing results of a run that has ended: `summary.json`, that of each run of a study included.

    Returns:
        Paths relative to the folder, with slashes.

    Raises:
        DataError: the inventory is damaged.
    """
    inventory = read(directory)
    nested = [] if inventory is None else [name for name in inventory.files if name.endswith(f"/{NAME}")]
    expected = [_RESULT, *(str(PurePosixPath(name).with_name(_RESULT)) for name in nested)]
    return tuple(name for name in expected if not (directory / name).is_file())


def check_whole(directory: Path) -> None:
    """Checks a folder in which a run is to go on: its next inventory would hide what was changed. Added files may stay.

    So may lost results, see `lost_results`: the run makes them again.

    Raises:
        DataError: another file was changed or removed, or the inventory is damaged.
    """
    made_again = {
        str(PurePosixPath(name).with_name(each)) for name in lost_results(directory) for each in (_RESULT, NAME)
    } - {NAME}
    removed = [Change(name, ChangeKind.REMOVED) for name in made_again]
    if lost := tuple(each for each in losses(changes(directory)) if each not in removed):
        raise DataError(
            f"{directory} can't be resumed: its record has changed since the run wrote it ({sentence(lost)}); "
            f"restore those files, or remove {NAME} to continue unchecked"
        )


def compare(directory: Path, recorded: str | None, *, where: str) -> tuple[Change, ...]:
    """What shows that the inventory of a folder is not the one whose digest was recorded elsewhere.

    Args:
        recorded: digest of its inventory; None: none was recorded.
        where: it was recorded, for people, such as `the ledger of the sweep`.
    """
    found = digest_of(directory)
    if recorded is None or found == recorded:
        return ()
    if found is None:
        return (Change(NAME, ChangeKind.REMOVED, f"{where} has its digest, {recorded[:12]}"),)
    return (Change(NAME, ChangeKind.CHANGED, f"its digest is {found[:12]}, and {where} has {recorded[:12]}"),)


def losses(found: tuple[Change, ...]) -> tuple[Change, ...]:
    """Those of some changes by which content of the record is lost: files that were added, or moved, change nothing."""
    return tuple(each for each in found if each.kind in (ChangeKind.CHANGED, ChangeKind.REMOVED))


def warning(directory: Path, lost: tuple[Change, ...]) -> str:
    """What is said of a run that is used although files of its record have changed."""
    verify = shlex.join(["embexp", "verify", str(directory)])
    return f"the record of {directory} has changed since the run wrote it ({sentence(lost)}): {verify}"


def sentence(found: tuple[Change, ...], *, most: int = 3) -> str:
    """Changes in a few words, such as `changed: spec.json; added: notes.txt`.

    Args:
        most: files of each kind that are named; the others are counted.
    """
    parts = []
    for kind in ChangeKind:
        named = [f"{each.path} ({each.note})" if each.note else each.path for each in found if each.kind is kind]
        more = f" and {len(named) - most:,} more" if len(named) > most else ""
        if named:
            parts.append(f"{kind}: {', '.join(named[:most])}{more}")
    return "; ".join(parts)


def _changes(directory: Path, *, quick: bool) -> Iterator[Change]:
    try:
        inventory = read(directory)
    except DataError:
        yield Change(NAME, ChangeKind.CHANGED, "it is damaged")
        return
    if inventory is None:
        return
    nested = {name for name in inventory.files if name.endswith(f"/{NAME}")}
    lost = [name for name in nested if not (directory / name).exists()]
    for name in sorted(nested.difference(lost)):
        folder = PurePosixPath(name).parent
        for change in _changes(directory / folder, quick=quick):
            yield Change(str(folder / change.path), change.kind, change.note)
    # Without its inventory, nothing is known of what such a folder holds; the inventory itself is missing.
    below = [str(PurePosixPath(name).parent) for name in lost]
    inside = {name for name in _names(directory) if not _is_one_of(name, below)}
    yield from _compared(directory, inventory.files, inside, quick=quick)
    for path in (directory / "events").glob(f"*{EVENT_SUFFIX}"):
        if fault := _fault_of_event(path, inventory.digest):
            yield Change(f"events/{path.name}", ChangeKind.CHANGED, fault)


def _fault_of_event(path: Path, digest: str) -> str:
    """Why TensorBoard's file of a digest is not the one that the run wrote, "" if it may be: it has checksums itself.

    Args:
        digest: of the inventory.
    """
    import google_crc32c

    from embexp.system.tensor_bundle.index import masked

    if path.is_symlink():
        return _LINK
    try:
        with files.opened(path) as file:
            content, records = file.read(_EVENT_BYTES), []
        while content:  # https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/io/record_writer.h
            size, of_size = struct.unpack_from("<QI", content)
            data, [of_data] = content[12 : 12 + size], struct.unpack_from("<I", content, 12 + size)
            if [masked(google_crc32c.value(each)) for each in (content[:8], data)] != [of_size, of_data]:
                return "a checksum in it is wrong"
            records.append(data)
            content = content[16 + size :]
    except OSError as error:
        return _unreadable(error)
    except (struct.error, OverflowError):
        return "it is damaged"
    return "" if any(digest.encode() in each for each in records) else f"its digest differs from the one in {NAME}"


def _compared(
    directory: Path, listed: Mapping[str, Listed], inside: set[str], *, quick: bool = False
) -> Iterator[Change]:
    """What differs between files of a folder and what the inventory says of them.

    A folder, such as `checkpoints`, may have become a link to another disk; a file may not.
    """
    there = [name for name in listed if os.path.lexists(os.path.join(directory, name))]
    several = map if quick else at_once  # threads cost more than what little is read
    yield from filter(None, several(lambda name: _difference(directory, name, listed[name], quick=quick), there))
    yield from (Change(name, ChangeKind.REMOVED) for name in set(listed).difference(there))
    folders = {str(parent) for name in listed for parent in PurePosixPath(name).parents}
    for name in inside.difference(listed):
        yield Change(name, ChangeKind.MOVED if name in folders else ChangeKind.ADDED)


def _difference(directory: Path, name: str, listed: Listed, *, quick: bool) -> Change | None:
    """How a file differs from what the inventory says of it; None: it does not."""
    changed = partial(Change, name, ChangeKind.CHANGED)
    try:
        if listed.link:
            return None if _listed(directory, name) == listed else changed()
        if os.path.islink(directory / name):
            return changed(_LINK)
        if quick and name.startswith(_BY_SIZE):
            return _of_size(name, os.stat(os.path.join(directory, name)).st_size, listed.size)
        with files.opened(directory / name) as file:
            size = os.fstat(file.fileno()).st_size
            more = size - listed.size if _LOG.fullmatch(name) else 0
            if more <= 0 and size != listed.size:
                return _of_size(name, size, listed.size)
            digest = hashlib.sha256(file.read(listed.size)) if more > 0 else hashlib.file_digest(file, "sha256")
    except OSError as error:
        return changed(_unreadable(error))
    if digest.hexdigest() != listed.sha256:
        return changed()
    return Change(name, ChangeKind.ADDED, f"{more:,} bytes at its end") if more > 0 else None


def _unreadable(error: OSError) -> str:
    if isinstance(error, files.NotRegularError):
        return "it is not a regular file"
    return f"it can't be read: {error.strerror}"


def _of_size(name: str, size: int, before: int) -> Change | None:
    if size == before:
        return None
    return Change(name, ChangeKind.CHANGED, f"it has {size:,} bytes; it had {before:,}")


def _listed(directory: Path, name: str, *, on_disk: bool = False) -> Listed:
    """What an inventory says of a file, or of a link, which is not followed.

    Args:
        on_disk: waits until the file is on disk, which logs and events may not be.
    """
    path = directory / name
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        target = os.fsencode(os.readlink(path)) if stat.S_ISLNK(status.st_mode) else b""
        return Listed(len(target), hashlib.sha256(target).hexdigest(), link=True)
    with files.opened(path) as file:
        if on_disk:
            os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Listed(file.tell(), digest)


def _names(directory: Path) -> Iterator[str]:
    """The files of a folder, relative to it; of a folder inside that has an inventory, the inventory alone."""
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(directory / prefix) as entries:
            found = list(entries)
        if prefix and any(entry.name == NAME for entry in found):
            yield f"{prefix}{NAME}"
            continue
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.endswith(_UNFINISHED):
                    pending.append(f"{prefix}{entry.name}/")
            elif _is_listed(prefix, entry.name):
                yield f"{prefix}{entry.name}"


def _is_listed(prefix: str, name: str) -> bool:
    if name in _NOT_LISTED or (name.startswith(".") and name.endswith(_UNFINISHED)):
        return False
    return name != NAME and not (prefix == "events/" and name.endswith(EVENT_SUFFIX))


def _is_one_of(name: str, paths: list[str]) -> bool:
    """Whether a file is one of some paths, or below one of them."""
    return any(name == path or path == "." or name.startswith(f"{path}/") for path in paths)


def _of_json(name: str, content: Mapping[str, Any]) -> Listed:
    size, digest, link = content["bytes"], content["sha256"], content.get("link", False)
    if "\0" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise ValueError(f"{name!r} is not a path in the folder")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0 or not isinstance(link, bool):
        raise ValueError(f"{name} has {content!r}")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError(f"{name} has the digest {digest!r}")
    return Listed(size, digest, link)
