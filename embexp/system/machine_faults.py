"""Errors of the machine, not of the program: a full disk, missing permissions, too little memory.

One sentence for each, with the path, the reason and what helps. Errors of TensorFlow and SQLite are known by the names
of their classes, as nothing here imports those.
"""

from __future__ import annotations

import errno
import os
import re

_ELSEWHERE = (
    "name another place: hydra.run.dir for a run, hydra.sweep.dir for a sweep, output.cache for the cache, the variable"
    " EMBEXP_DATA for data sets by name"
)
_FULL = f"make room there, or {_ELSEWHERE}"
_FORBIDDEN = f"give yourself the permission, or {_ELSEWHERE}"
_IN_THE_WAY = f"a folder is needed where a file is: move it, or {_ELSEWHERE}"
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "the file system, or the limit of this shell (ulimit -f), allows no file of that size",
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _ELSEWHERE,
    errno.ENAMETOOLONG: "choose a shorter one: hydra.run.dir, hydra.sweep.dir and hydra.sweep.subdir name folders",
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.EISDIR: "a file is needed where a folder is: name a file",
    errno.ENOENT: "it is missing, or was removed meanwhile",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "close other programs",
    errno.EIO: "the disk, or the connection to it, has failed",
    errno.ESTALE: "the folder was removed, or its file system was mounted again",
    errno.EAGAIN: "allow more processes and threads (ulimit -u), or run fewer at once",
}
_WORDS = {os.strerror(number): number for number in _REMEDIES}
_MEMORY = (
    "`embexp plan` shows the bytes of each table; a smaller train.batch_size, data.window or dim, fewer jobs at once"
    " (hydra.launcher.jobs) or mapped tables (init=memory_map) need less"
)
_SQLITE = {
    "full": _FULL,
    "readonly": _FORBIDDEN,
    "read-only": _FORBIDDEN,
    "unable to open": _FORBIDDEN,
    "disk I/O": _REMEDIES[errno.EIO],
}


def sentence(error: BaseException) -> str | None:
    """What is wrong with the machine and what helps, in one line; None for any other error.

    Args:
        error: an `OSError`, a `MemoryError`, or the same as TensorFlow and SQLite tell it.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, MemoryError):
        return _line("out of memory", str(error), _MEMORY)
    if isinstance(error, OSError):
        return _of_system(error)
    text = " ".join(str(getattr(error, "message", error)).split())
    if kinds & {"OpError", "RuntimeError"}:
        if found := _known(text):
            return found
        if "ResourceExhaustedError" in kinds:
            return _line("out of memory", text, _MEMORY)
    if "OperationalError" in kinds or "DatabaseError" in kinds:
        remedy = next((remedy for word, remedy in _SQLITE.items() if word in text), None)
        return None if remedy is None else _line(text, remedy)
    return None


def is_memory(error: BaseException) -> bool:
    """Whether memory was lacking: that is an error's kind, or its cause."""
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        return True
    error = error.__cause__ or error
    return type(error).__name__ == "ResourceExhaustedError" and _known(str(error)) is None


def reason(error: BaseException) -> str:
    """An error of the system in a few words with its remedy, without the path: of which the caller speaks."""
    if not isinstance(error, OSError):
        return sentence(error) or str(error)
    return ": ".join(filter(None, [error.strerror or str(error), _REMEDIES.get(error.errno or 0)]))


def _of_system(error: OSError) -> str:
    if error.errno is None:  # raised by a library, with a text of its own
        text = " ".join(str(error).split())
        if isinstance(error, FileExistsError):
            return _line(text, "there is something of that name already", "name another place")
        return _known(text) or text or type(error).__name__
    path = error.filename if error.filename2 is None else error.filename2
    place = "" if path is None or isinstance(path, int) else os.fsdecode(path)
    return _line(place, error.strerror or os.strerror(error.errno), _REMEDIES.get(error.errno, ""))


def _known(text: str) -> str | None:
    """The sentence of an error whose text ends with one of the system's, as `PATH; No space left on device`."""
    for words, number in _WORDS.items():
        if words in text and number != errno.ENOENT:
            path = re.search(rf"(/[^;:'\"]+)\s*;\s*{re.escape(words)}", text)
            named = path or re.search(r"(?:file|name|directory)\s*=?\s*'?(/[^;:'\"]+)", text)
            return _line(named[1].strip() if named else "", words, _REMEDIES[number])
    return None


def _line(*parts: str) -> str:
    return ": ".join(part.strip() for part in parts if part.strip())
