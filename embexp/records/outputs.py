"""Files that a user names for a command to write: predictions, tables and pages of reports, schemas, pictures, vectors.

One rule serves all commands. Only regular files are replaced: the standard output, devices, pipes and sockets are
written to, and of a link the target counts. What a command reads, and what is in the folder of a run or a sweep, is
never replaced. A file that is there stays, unless it is empty, the same command wrote it and nobody has changed it
since, or the user says `--force`. Its permissions stay as well.

The directory that a new run gets is a new one, or, as `output.existing` says, one that is there already. A directory
that was not made for the run is touched only where nothing can be lost: where no step was trained, or where the
inventory of a complete run lists every file.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, Any

from embexp.errors import (
    CheckpointError,
    CommandLineError,
    ConfigError,
    DataError,
    Fault,
    NotARunError,
    UsageError,
    VocabularyError,
)
from embexp.records import inventory
from embexp.records.differences import Kind, between
from embexp.records.folder import RECORDED_DATA, RunFolder, why_another
from embexp.records.inventory import ChangeKind
from embexp.specs.run import RunSpec
from embexp.specs.running import Existing
from embexp.system import caching, digests, files, locks, machine_faults, printable

STANDARD_OUTPUT = "-"
PAGE = "report.html"
"""The page of a report, the one file that may be written into the folder of a run or a sweep afterwards."""
PAGE_MARK = b'<meta name="generator" content="embexp">'
"""What each page has in its first lines; a page is recognised on other machines, too."""
_SWEEP = "sweep.sqlite"
_MARKED = 4096
_KEPT = (".hydra", locks.NAME)
"""What a run that uses a directory again writes itself, or needs there."""
_OF_A_BEGINNING = (
    "spec.json",
    "manifest.json",
    "coverage.json",
    "numeric_columns.json",
    RECORDED_DATA,
    "tracking.json",
    "failure.json",
    ".progress.json",
    "metrics.jsonl",
    "vocabularies",
    "code",
    "events",
    "checkpoints",
)
"""What a run writes before its first step."""
_REFUSALS = UsageError, DataError, VocabularyError, CheckpointError, NotARunError
"""Errors in what a user gave. After others, such as a lack of memory, a log may say more."""


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
                self.named, "a file has since been written there, and is kept", "give another name"
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
        raise _refused(shown, "it is a folder", "name a file in it or elsewhere")
    if status is not None and (_is_descriptor(named) or not stat.S_ISREG(status.st_mode)):
        if not streams:
            raise _refused(shown, "it is not a regular file", "give another name")
        return Output(str(named), None if _is_standard_output(status) else Path(named), command, is_stream=True)
    for each in map(Path, inputs):
        if _is_within(path, each):
            rule = f"it is in {each}, which the command reads" if each.is_dir() else "the command reads that file"
            raise _refused(shown, rule, "give another name: input files are never replaced")
    check_place(path, shown)
    if status is not None and status.st_size and not force:
        remedy = "give another name, or add --force to replace it"
        if not replaces:
            raise _refused(shown, "it exists", remedy)
        if not _wrote(command, path, mark):
            raise _refused(shown, f"embexp {command} did not write this file, or it has changed since", remedy)
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
                f"{folder} is the folder of a run, which may hold only what the run wrote",
                "give a name outside it",
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


@dataclass(frozen=True)
class OutputDirectory:
    """The directory of a run that is about to begin.

    Attributes:
        path: of the directory, in which spec.json is.
        continues: whether the run that is in it is to be resumed.
        replaces: whether a run that was in it has been removed.
        why: why it is another one than was asked for, as the end of a sentence, or "".
    """

    path: Path
    continues: bool = False
    replaces: bool = False
    why: str = ""


@contextlib.contextmanager
def opened_directory(
    path: Path,
    spec: RunSpec,
    existing: Existing,
    *,
    setting: str = "hydra.run.dir",
    own: bool = False,
    before: Callable[[Path], object] = lambda directory: None,
    warn: Callable[[str], object] | None = None,
) -> Iterator[OutputDirectory]:
    """Makes the directory of a run, or takes one that exists, writes spec.json, and holds the directory in the block.

    A directory that was made here is removed again if, before a step is trained, the block refuses what the user gave,
    such as a label in the data.

    Args:
        existing: what is done if there is something of that name.
        setting: what names the directory, for error messages.
        own: whether the caller has made the directory for this run, so that it may have files that are not the run's.
        before: writes other files of a new run into the directory, before spec.json is written: what has a spec has
            them, too.
        warn: see `RunFolder.writing`.

    Raises:
        ConfigError: there is something of that name, and `existing` does not allow to use it.
        RunError: another process has the directory.
    """
    missing = [above for above in path.parents if not above.exists()]
    check = partial(_check, path, RunFolder(path).located(spec).model_dump(mode="json"), existing, setting)
    made, is_new = path, True
    machine_faults.name_place(path, setting)
    if existing is Existing.NUMBER:
        made = files.new_directory(path)
        machine_faults.name_place(made, setting)
    else:
        is_new = files.made_directory(path)
        if not is_new and not (own and _is_free(path)):
            check()  # before anything is written there, such as the file of a lock
    folder = RunFolder(made)
    with folder.writing(warn=warn):
        continues = replaces = False
        if existing is not Existing.NUMBER and not (own and _is_free(made)):
            check()
            files.remove_leftovers(made)
            begun = not has_begun_nothing(made)
            continues = begun and existing is Existing.CONTINUE
            replaces = begun and not continues
            if not continues:
                _empty(made, begun=begun)
        if not continues:
            before(made)
            folder.write_spec(spec)
        try:
            yield OutputDirectory(made, continues, replaces, why_another(path, made))
        except _REFUSALS:
            if is_new and has_begun_nothing(made):
                _remove_new(made, missing)
            raise


def _remove_new(made: Path, parents: Sequence[Path]) -> None:
    """Removes a directory of this process, and those above it that were made for it, unless something else is there."""
    with contextlib.suppress(OSError):  # what can't be removed matters less than the error that is about to be told
        shutil.rmtree(made)
        for parent in parents:
            parent.rmdir()


def foreseen_directory(path: Path, spec: dict[str, Any], existing: Existing) -> str:
    """The directory that a run would get now, and what it would do with a run there. Nothing is written.

    Args:
        spec: of the run, as JSON.
    """
    if existing is Existing.NUMBER:
        made = files.free_directory(path)
        return f"{made}{why_another(path, made)}"
    if not path.exists():
        return str(path)
    try:
        _check(path, spec, existing, "")
    except ConfigError as error:
        return f"{path}, which the run would refuse: {error.faults[0].rule}"
    if has_begun_nothing(path):
        return str(path)
    return f"{path}, whose run is {'completed' if existing is Existing.CONTINUE else 'removed first'}"


def _is_free(path: Path) -> bool:
    return not RunFolder(path).spec.exists()


def _empty(path: Path, *, begun: bool) -> None:
    """Empties a directory that was checked and that nobody else writes.

    Args:
        begun: whether a step was trained there, so that the inventory lists what is removed.
    """
    if not begun:
        for name in _OF_A_BEGINNING:
            _remove(path / name)
        return
    for each in [*_listed(path), path / inventory.NAME]:  # the inventory last: a killed process can be repeated
        each.unlink(missing_ok=True)
    for each in sorted((each for each in path.rglob("*") if each.is_dir()), reverse=True):
        (each / locks.NAME).unlink(missing_ok=True)  # of a study's run
        if not any(each.iterdir()):
            each.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _check(path: Path, spec: dict[str, Any], existing: Existing, setting: str) -> None:
    """Raises ConfigError if a directory that exists can't be used for a run.

    Args:
        spec: of the run, as JSON.
    """

    def refused(rule: str, remedy: str) -> ConfigError:
        return ConfigError([Fault(setting, str(path), rule, remedy)])

    other = "choose another directory"
    if not path.is_dir():
        raise refused("there is a file with that name", other)
    if has_begun_nothing(path):
        return
    is_run = RunFolder(path).spec.is_file()
    if existing is Existing.REFUSE:
        rule = "it already holds a run" if is_run else "it exists and is not empty"
        choices = "output.existing=number makes a new one next to it"
        if is_run:
            choices += ", continue completes the run in it, replace removes that run first, if it is complete"
        raise refused(rule, f"{other}, or choose: {choices}")
    if not is_run:
        raise refused(f"it is not empty, but has no run that output.existing={existing} could use", other)
    if existing is Existing.CONTINUE:
        recorded = RunFolder(path).recorded_spec().model_dump(mode="json")
        for content in (recorded, spec):
            content["output"].pop("existing", None)
        if differing := between(Kind.SPEC, recorded, spec):
            found = "; ".join(each.text("its spec.json", "this config") for each in differing[:3])
            more = f"; and {len(differing) - 3} more" if len(differing) > 3 else ""
            remedy = "choose another directory; `embexp resume` trains a run longer or with other output settings"
            raise refused(
                f"output.existing=continue needs the same spec, but these settings differ: {found}{more}", remedy
            )
        return
    remedy = f"{other}; or move what you need, then remove the directory yourself"
    if inventory.digest_of(path) is None:
        raise refused("output.existing=replace removes only complete runs, but this one has no inventory.json", remedy)
    other_files = ChangeKind.CHANGED, ChangeKind.ADDED
    changes = [change for change in inventory.changes(path, quick=True) if change.kind in other_files]
    if changes:
        found = inventory.sentence(tuple(changes))
        raise refused(
            f"output.existing=replace removes only what a run wrote, but the directory holds something else ({found})",
            remedy,
        )
    folders = {parent for each in _listed(path) for parent in each.relative_to(path).parents}
    if links := sorted(str(folder) for folder in folders if (path / folder).is_symlink() and folder != PurePath()):
        raise refused(f"output.existing=replace does not follow links, but {', '.join(links)} is one", remedy)


def has_begun_nothing(path: Path) -> bool:
    """Whether a directory is empty, or that of a run which has ended before its first step."""
    folder = RunFolder(path)
    begins: tuple[str, ...] = _KEPT
    with contextlib.suppress(NotARunError):  # without a spec, a folder such as `code` is somebody's own
        folder.recorded_spec()
        begins += _OF_A_BEGINNING
    for each in path.iterdir():
        known = each.name in begins or files.is_leftover(each.name)
        if not known and not (each.suffix == ".log" and each.is_file()):
            return False
    if folder.metrics.exists() and folder.metrics.stat().st_size:
        return False
    return not folder.checkpoints.is_dir() or all(files.is_leftover(each.name) for each in folder.checkpoints.iterdir())


def _listed(path: Path) -> Iterator[Path]:
    """The files that the inventory of a directory lists, and those of the inventories in it."""
    found = inventory.read(path)
    for name in () if found is None else found.files:
        if PurePosixPath(name).name == inventory.NAME:
            yield from _listed((path / name).parent)
        yield path / name
    yield from (path / "events").glob(f"*{inventory.EVENT_SUFFIX}")
