"""Errors of the machine, not of the program: a full disk, missing permissions, too little memory.

One sentence for each, with the path, the reason and what helps. Errors of TensorFlow and SQLite are known by the names
of their classes, as nothing here imports those.
"""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Sequence

_ELSEWHERE = (
    "choose another place: hydra.run.dir for a run, hydra.sweep.dir for a sweep, output.cache for the cache, "
    "the environment variable EMBEXP_DATA for named data sets"
)
_PLACES: dict[str, str] = {}
"""What names each folder that this process writes to, see `name_place`."""
_FULL = f"free some space there, or {_ELSEWHERE}"
_FORBIDDEN = f"give yourself the permission, or {_ELSEWHERE}"
_IN_THE_WAY = f"a file is in the way of a folder: move the file, or {_ELSEWHERE}"
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: (
        "files of that size are not allowed here: raise the limit of this shell (ulimit -f), or use another file system"
    ),
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _ELSEWHERE,
    errno.ENAMETOOLONG: "choose a shorter one: in most file systems, a name may have 255 bytes and a path 4,095",
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.EISDIR: "this is a folder, but a file is needed: name a file",
    errno.ENOENT: "it is missing, or has just been removed",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "close other programs",
    errno.EIO: "the disk or the connection to it has failed",
    errno.ESTALE: "the folder was removed, or its file system was mounted again",
    errno.EAGAIN: "allow more processes and threads (ulimit -u), or run fewer at once",
}
_WORDS = {os.strerror(number): number for number in _REMEDIES}
_MEMORY = (
    "`embexp plan` shows the bytes of each table; a smaller train.batch_size, data.window or dim, fewer jobs at once"
    " (hydra.launcher.jobs) or mapped tables (init=memory_map) need less memory"
)
_NO_ADDRESSES = ("failed to map segment", "annot allocate memory", "can't start new thread", "can't allocate")
"""In what the dynamic linker and Python say where memory is lacking."""
_LONGEST = 200
_OF_OPERATION = re.compile(r"\{\{function_node [^}]*\}\} | \[Op:\w+\]")
"""What TensorFlow writes around the message of an operation."""
_SQLITE = {8: _FORBIDDEN, 10: _REMEDIES[errno.EIO], 13: _FULL, 14: _FORBIDDEN}
"""By SQLite's codes: SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN."""


def name_place(folder: str | os.PathLike[str], setting: str) -> None:
    """Notes what chooses a folder that this process writes to: an error there proposes that, and no other place.

    Args:
        setting: such as `output.cache`, or `the variable EMBEXP_DATA`.
    """
    for path in (os.path.abspath(folder), os.path.realpath(folder)):
        _PLACES[path] = setting


def _remedy(number: int | None, path: str) -> str:
    """What helps against an error of the system at a path; "" for nothing known."""
    found = _REMEDIES.get(number or 0, "")
    if not path or _ELSEWHERE not in found:
        return found
    absolute = os.path.abspath(path)
    inside = [folder for folder in _PLACES if os.path.commonpath([folder, absolute]) == folder]
    return found.replace(_ELSEWHERE, f"choose another place by {_PLACES[max(inside, key=len)]}") if inside else found


def sentence(error: BaseException) -> str | None:
    """What is wrong with the machine and what helps, in one line; None for any other error.

    Args:
        error: an `OSError`, a `MemoryError`, or the same as TensorFlow and SQLite tell it.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, MemoryError):
        return _line("out of memory", str(error), _limit() or _MEMORY)
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return _line("out of memory", os.fsdecode(error.filename or ""), _limit() or _MEMORY)
    if isinstance(error, ImportError | SystemError | RuntimeError) and (words := _without_addresses(error)):
        return _line("out of memory", words, _limit() or _MEMORY)
    if isinstance(error, OSError):
        return _of_system(error)
    text = " ".join(str(getattr(error, "message", error)).split())
    if kinds & {"OpError", "RuntimeError"}:
        if found := _known(text):
            return found
        if "ResourceExhaustedError" in kinds:
            return _line("out of memory", text, _MEMORY)
    if "OperationalError" in kinds or "DatabaseError" in kinds:
        code = getattr(getattr(error, "orig", error), "sqlite_errorcode", 0)  # SQLAlchemy's errors have that of SQLite
        remedy = _SQLITE.get(code & 0xFF)
        return None if remedy is None else _line(text, remedy)
    return None


def _limit() -> str:
    """What helps where the shell limits the memory of its programs; "" where it does not."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return ""
    return (
        f"this shell limits a program to {most / 1e9:.3g} GB of address space (ulimit -v): raise the limit, "
        f"to at least 4 GB for a small run"
    )


def _without_addresses(error: BaseException | None) -> str:
    """The words of an import, or of Python itself, that has failed for want of memory; "" for any other error.

    NumPy and Arrow raise another `ImportError`, with a page of advice, from that of the system, whose words count.
    """
    words, seen = "", set[int]()
    while error is not None and id(error) not in seen:
        text = " ".join(str(error).split())
        if isinstance(error, MemoryError) or any(each in text for each in _NO_ADDRESSES):
            words = text[:_LONGEST] or "while a package was imported"
        elif isinstance(error, SystemError) and _limit():  # Python itself could not raise its MemoryError
            words = text
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return words


def is_full(error: BaseException, full: Sequence[int] = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)) -> bool:
    """Whether a disk, a quota or a limit has no room for what was to be written; also an error of TensorFlow.

    Args:
        full: the numbers of the system's errors that say so.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in full
    return any(os.strerror(number) in str(error) for number in full)


def is_memory(error: BaseException) -> bool:
    """Whether memory was lacking: that is an error's kind, or its cause."""
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        return True
    error = error.__cause__ or error
    return type(error).__name__ == "ResourceExhaustedError" and _known(str(error)) is None


def reason(error: BaseException) -> str:
    """An error of the system in a few words with its remedy, without the path: of which the caller speaks."""
    if not isinstance(error, OSError):
        text = _OF_OPERATION.sub("", str(getattr(error, "message", error)))
        return _known(text, with_path=False) or sentence(error) or text
    return ": ".join(filter(None, [error.strerror or str(error), _remedy(error.errno, _path_of(error))]))


def _of_system(error: OSError) -> str:
    if error.errno is None:  # raised by a library, with a text of its own
        text = " ".join(str(error).split())
        if isinstance(error, FileExistsError):
            return _line(text, "something with that name already exists", "choose another place")
        return _known(text) or text or type(error).__name__
    place = _path_of(error)
    return _line(place, error.strerror or os.strerror(error.errno), _remedy(error.errno, place))


def _path_of(error: OSError) -> str:
    """The path that an error names, the second of two; "" if it names none."""
    path = error.filename if error.filename2 is None else error.filename2
    return "" if path is None or isinstance(path, int) else os.fsdecode(path)


def _known(text: str, *, with_path: bool = True) -> str | None:
    """The sentence of an error whose text ends with one of the system's, as `PATH; No space left on device`."""
    for words, number in _WORDS.items():
        if words in text and number != errno.ENOENT:
            path = re.search(rf"(/[^;:'\"]+)\s*;\s*{re.escape(words)}", text)
            named = path or re.search(r"(?:file|name|directory)\s*=?\s*'?(/[^;:'\"]+)", text)
            place = named[1].strip() if named else ""
            return _line(place if with_path else "", words, _remedy(number, place))
    return None


def _line(*parts: str) -> str:
    return ": ".join(part.strip() for part in parts if part.strip())
