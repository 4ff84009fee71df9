"""Text from files and from the command line, made safe and short enough to be printed.

Names of folders, tokens and messages may come from anybody. So all of embexp prints with `print` and `write_data` of
this module, or on a `terminal.SafeConsole`; lint refuses Python's own `print`.
"""

from __future__ import annotations

import builtins
import re
import sys
from typing import TextIO

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What terminals obey, but for tabs and ends of lines: escape, carriage return, backspace, changes of direction."""
_LONG = re.compile(r"\S{301,}")
_KEPT = 60


def visible(text: str) -> str:
    """A text in which each character that a terminal would obey is replaced by a picture of it, as wide as one."""
    return _CONTROL.sub(_picture, text)


def print(*values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Prints as Python's `print` does, what a terminal would obey made visible."""
    builtins.print(visible(sep.join(map(str, values))), end=end, file=file, flush=flush)


def write_data(text: str) -> None:
    """Writes text for programs to the standard output: a file or a pipe gets every character, a terminal as `print`."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


def shortened(text: str) -> str:
    """A text whose words of more than 300 characters keep their beginning and their end."""
    return _LONG.sub(_middle_left_out, text)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def _middle_left_out(found: re.Match[str]) -> str:
    word = found[0]
    return f"{word[:_KEPT]}…{word[-_KEPT:]} ({len(word):,} characters)"
