"""Files that a user names for a command to write: predictions, tables and pages of reports, schemas, pictures, vectors.

One rule serves all commands. Only regular files are replaced: the standard output, devices, pipes and sockets are
written to, and of a link the target counts. What a command reads, and what is in the folder of a run or a sweep, is
never replaced. A file that is there stays, unless it is empty, the same command wrote it and nobody has changed it
since, or the user says `--force`. Its permissions stay as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from embexp.errors import CommandLineError
from embexp.records.folder import RunFolder
from embexp.system import caching, digests, files, machine_faults, printable

STANDARD_OUTPUT = "-"
PAGE = "report.html"
"""The page of a report, the one file that may be written into the folder of a run or a sweep afterwards."""
PAGE_MARK = b'<meta name="generator" content="embexp">'
"""What each page has in its first lines; a page is recognised on other machines, too."""
_SWEEP = "sweep.sqlite"
_MARKED = 4096


@dataclass(frozen=True)
class Output:
    """A file that a user has named, checked by `output`.

    Attributes:
        named: as the user wrote it.
        path: of the bytes: that of the file, of a link its target; None: the standard output.
        command: the name of the command that writes it.
        is_stream: whether it is a device, a pipe or a socket, which is written to and not replaced.
        is_new: whether nothing was there when it was checked. What comes there until it is written stays.
        is_noted: whether the cache remembers that the command wrote it, so that the command may replace it.
    """

    named: str
    path: Path | None
    command: str
    is_stream: bool = False
    is_new: bool = False
    is_noted: bool = False

    @property
    def is_file(self) -> bool:
        """Whether a regular file is made or replaced."""
        return self.path is not None and not self.is_stream

    def write(self, text: str) -> None:
        """Writes a text as UTF-8: a file whole or not at all.

        Raises:
            OSError: it can't be written.
            CommandLineError: a file has come there since it was checked.
        """
        if self.path is None:
            printable.write_data(text)
            return
        with self.opened() as file:
            file.write(text.encode("utf-8", "surrogateescape"))

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """A file to write bytes to; a regular file gets them when the block ends without an error.

        Raises:
            OSError: it can't be written.
            CommandLineError: a file has come there since it was checked.
        """
        if not self.is_file:
            content = io.BytesIO()  # a reader gets nothing of what fails, and libraries may seek
            yield content
            if self.path is None:
                sys.stdout.flush()
                sys.stdout.buffer.write(content.getbuffer())
                return
            # Where an open file is continued, the shell has said: with > or >>.
            with files.naming(self.path), self.path.open("ab") as stream:
                stream.write(content.getbuffer())
            return
        assert self.path is not None
        try:
            with files.atomic_write(self.path, new=self.is_new) as file:
                yield file
        except FileExistsError:
            raise _refused(
                self.named, "a file has been written there meanwhile, and is kept", "give another name"
            ) from None
        if self.is_noted:
            with contextlib.suppress(OSError):  # without a cache, the next time needs --force
                note = {"command": self.command, "sha256": digests.of_file(self.path)}
                files.write_text(_note_of(self.path), json.dumps(note))


def output(
    named: Path | str,
    command: str,
    *,
    option: str = "",
    inputs: Iterable[Path | str] = (),
    force: bool = False,
    replaces: bool = True,
    streams: bool = True,
    mark: bytes | None = None,
) -> Output:
    """Checks a file that a user names, before any work is done for it. Nothing is written.

    Args:
        named: the path; `-` is the standard output.
        command: the name of the command, such as `predict`.
        option: the option that names the file, for messages.
        inputs: files and folders that the command reads. What is missing, or in an object store, counts for nothing.
        force: whether a file that something else wrote may be replaced.
        replaces: whether the command may replace what it has written itself.
        streams: whether the command can write to the standard output, a device or a pipe.
        mark: what files of this kind begin with, within 4,096 bytes: one that does may be replaced.

    Raises:
        CommandLineError: it can't be written, or must not be.
    """
    shown = f"{option} {named}".strip()
    if streams and str(named) == STANDARD_OUTPUT:
        return Output(str(named), None, command)
    try:
        status = _status(named)
        path = Path(os.path.realpath(named))
    except (OSError, ValueError) as error:  # ValueError: a NUL
        raise _refused(shown, f"it can't be written: {getattr(error, 'strerror', None) or error}", "") from None
    machine_faults.name_place(named, option or "the command line")
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise _refused(shown, "it is a folder", "name a file in it, or elsewhere")
    if status is not None and (_is_descriptor(named) or not stat.S_ISREG(status.st_mode)):
        if not streams:
            raise _refused(shown, "it is no regular file", "give another name")
        return Output(str(named), None if _is_standard_output(status) else Path(named), command, is_stream=True)
    for each in map(Path, inputs):
        if _is_within(path, each):
            rule = f"it is in {each}, which the command reads" if each.is_dir() else "the command reads that file"
            raise _refused(shown, rule, "give another name: what is read is never replaced")
    check_place(path, shown)
    if status is not None and status.st_size and not force:
        remedy = "give another name, or add --force to replace it"
        if not replaces:
            raise _refused(shown, "it exists", remedy)
        if not _wrote(command, path, mark):
            raise _refused(shown, f"embexp {command} did not write this file, or it was changed since", remedy)
    return Output(str(named), path, command, is_new=status is None, is_noted=replaces and mark is None)


def check_place(path: Path, shown: str) -> None:
    """Checks that a new file or folder is not in the folder of a run, nor takes the place of a sweep's record.

    Raises:
        CommandLineError: it is.
    """
    path = Path(os.path.realpath(path))
    if path.name == PAGE:
        return
    for folder in path.parents:
        if RunFolder(folder).spec.is_file():
            raise _refused(
                shown,
                f"{folder} is the folder of a run, which holds what the run wrote and nothing else",
                "give a name outside of it",
            )
    if (path.parent / _SWEEP).is_file() and (path.name.startswith("sweep.") or path.parent.name == ".jobs"):
        raise _refused(shown, f"it is part of the record of the sweep in {path.parent}", "give another name")


def _refused(shown: str, rule: str, remedy: str) -> CommandLineError:
    return CommandLineError(f"{shown}: {rule}" + (f"\n    {remedy}" if remedy else ""))


def _status(path: Path | str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_standard_output(status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), status)
    except (OSError, ValueError, AttributeError):  # a notebook's
        return False


def _is_descriptor(named: Path | str) -> bool:
    """Whether a path, or what its links lead to, names an open file of a process, as /dev/stdout does."""
    path = os.path.abspath(named)
    for _ in range(40):  # the most links that Linux follows
        if path.startswith("/dev/fd/") or re.match("/proc/[^/]+/fd/", path):
            return True
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    return False


def _is_within(path: Path, read: Path) -> bool:
    """Whether a file is one that is read, or in a folder that is."""
    try:
        if not read.is_dir():
            return path.exists() and read.exists() and path.samefile(read)
        return any(parent.exists() and parent.samefile(read) for parent in path.parents)
    except (OSError, ValueError):
        return False


def _wrote(command: str, path: Path, mark: bytes | None) -> bool:
    """Whether the command wrote the file, and nobody has changed it since."""
    if mark is not None:
        with path.open("rb") as file:
            return mark in file.read(_MARKED)
    try:
        noted = json.loads(_note_of(path).read_text("utf-8"))
        return bool(noted["command"] == command and noted["sha256"] == digests.of_file(path))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _note_of(path: Path) -> Path:
    """Where the cache remembers what embexp wrote to a path."""
    key = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    return caching.cache_folder(None) / "outputs" / f"{key}.json"
