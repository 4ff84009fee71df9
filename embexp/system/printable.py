"""Text that can be printed: made safe and short, and written where the encoding is not UTF-8.

Names of folders, tokens and messages may come from anybody. So all of embexp prints with `print` and `write_data` of
this module, or on a `terminal.SafeConsole`; lint refuses Python's own `print`.

What is secret. One function, `masked`, decides for all that embexp records, logs, reports and says in errors.
"""

from __future__ import annotations

import builtins
import codecs
import contextlib
import errno
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast

MASKED = "[masked]"
SURE = re.compile(r"secret|passw|passphrase|credential|api_?key|access_?key|private_?key|cookie|signature", re.I)
"""Parts that make a name that of a secret, wherever they are."""
_WORDS = frozenset(
    ("token", "pat", "pw", "pwd", "pass", "auth", "oauth", "authorization", "jwt", "sas", "sig", "dsn", "conn", "cred")
)
_PLACES = ("column", "file", "path", "dir", "folder")
"""Last words of a name that says where something is: `token_column`, `PASSWORD_FILE`."""
_ORDINARY = ("PWD", "OLDPWD")
"""The working folder of a shell, and the one before."""
_KEYS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*-----)?"
    r"|\b(?:gh[a-z]_|github_pat_|glpat-|hf_|npm_|pypi-|dop_v1_|xox[a-z]-|sk-|rk_live_|ya29\.|SG\.)[\w.-]{16,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?",
    re.DOTALL,
)
"""Keys and tokens that are known by their form: of GitHub, GitLab, Hugging Face, AWS, Google, Slack and others."""
_BEARER = re.compile(r"(?<=\bBearer )[\w.~+/=-]{8,}", re.I)
_URL = re.compile(r"[A-Za-z][\w+.-]*://[^\s'\"<>]+")
_LOGIN = re.compile(r"(://)[^/\s@:?#]*:(?!\d+(?:[/?#]|$))\S*(?=@)|((?:^|[^\w])https?://)[^/\s@:?#]+(?=@)")
"""A name and a password; of http also a name alone, which may be a token."""
_PARAMETER = re.compile(r"([?&;#])([^=&;#?\s]+)=([^&;#\s]*)")
_ASSIGNED = re.compile(
    r"\b([\w-]*(?:passw(?:or)?d|passphrase|pwd|secret|api[_-]?key|access[_-]?key|(?:access|auth)[_-]?token)[\"']?\s?[=:]\s?)"
    r"(?!\$\{|\[masked\])(\"[^\"]*\"|'[^']*'|\{[^}]*\}|[^\s;&,'\"]+)",
    re.I,
)
"""A password in a text, such as the settings of a connection: `host=db password=…`."""


def masked(text: str, name: str = "") -> str:
    """A text with `[masked]` in the place of what is secret in it; the same text if nothing is.

    Passwords are found anywhere in a URL and in settings of a connection, keys and tokens by their form.

    Args:
        name: of the setting or the variable that has the text; by its name, all of it may be secret.
    """
    if name and text and _names_secret(name):
        return MASKED
    if "://" in text:
        text = _URL.sub(_without_password, text)
    if "=" in text or ":" in text:
        text = _ASSIGNED.sub(rf"\1{MASKED}", text)
    return _BEARER.sub(MASKED, _KEYS.sub(MASKED, text))


def masked_override(text: str) -> str:
    """An override, or another word of a command line, such as `+env.WANDB_API_KEY=…`."""
    key, sign, value = text.partition("=")
    return f"{key}={masked(value, _last(key))}" if sign and re.fullmatch(r"[\w.@/+~-]+", key) else masked(text)


def without_secrets(node: Any, name: str = "") -> Any:
    """Plain values, such as a spec as JSON, with their texts masked by their value and by their key."""
    if isinstance(node, dict):
        return {key: without_secrets(value, str(key)) for key, value in node.items()}
    if isinstance(node, list):
        return [without_secrets(each, name) for each in node]
    return masked(node, name) if isinstance(node, str) else node


def _last(key: str) -> str:
    return re.split(r"[./@]", key)[-1]


def _names_secret(name: str) -> bool:
    if name in _ORDINARY:
        return False
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    if SURE.search(name):
        return words[-1:] != ["column"]
    if not words or words[-1] in _PLACES:
        return False
    # GITHUBTOKEN, SSHPASS; a key alone may be that of a mapping or of a table.
    glued = any(word.endswith(("token", "pwd", "sshpass")) for word in words)
    return glued or not _WORDS.isdisjoint(words) or (len(words) > 1 and words[-1] == "key")


def _without_password(found: re.Match[str]) -> str:
    url = _LOGIN.sub(lambda login: f"{login[1] or login[2]}{MASKED}", found[0])
    return _PARAMETER.sub(_without_value, url)


def _without_value(found: re.Match[str]) -> str:
    from urllib.parse import unquote_plus  # which few commands need

    sign, name, value = found.groups()
    inner = unquote_plus(value)
    secret = value and (name.lower() == "key" or masked(inner, unquote_plus(name)) != inner)
    return f"{sign}{name}={MASKED}" if secret else found[0]


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What terminals obey, but for tabs and ends of lines: escape, carriage return, backspace, changes of direction."""
_COMPUTED = ("=", "+", "-", "@")
"""Beginnings of a cell that spreadsheets take as a formula."""
_NUMBER = re.compile(r"[-+](\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+](inf|nan)")
_LONG = re.compile(r"\S{301,}")
_KEPT = 60
_NAME = "embexp"
_OTHERS = {
    "…": "...",
    "·": "-",
    "×": "x",
    "–": "-",
    "—": "-",
    "‖": "||",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "µ": "u",
    "█": "#",
    "▁": "_",
    "“": '"',
    "”": '"',
    "‘": "'",
    "’": "'",
}
_GONE = (errno.EPIPE, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a pipe whose reader has closed it, and of a terminal that was closed."""
_REPLACED = ("strict", "backslashreplace", "surrogateescape")
"""Error handlers that Python sets by itself; one that the user has chosen (PYTHONIOENCODING) stays."""


def visible(text: str) -> str:
    """A text in which each character that a terminal would obey is replaced by a picture of it, as wide as one."""
    return _CONTROL.sub(_picture, text)


def one_line(text: str) -> str:
    """The same, also of tabs and ends of lines."""
    return re.sub("[\t\n]", _picture, visible(text))


def print(*values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Prints as Python's `print` does, what a terminal would obey made visible, and what is secret masked."""
    builtins.print(visible(masked(sep.join(map(str, values)))), end=end, file=file, flush=flush)


def is_utf8(text: str) -> bool:
    """Whether a name that Python read from the system was UTF-8; bytes that are not stand in it as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def write_data(text: str) -> None:
    """Writes text for programs to the standard output: a file or a pipe gets every character, a terminal as `print`.

    A file is in UTF-8 whatever encoding the terminal has.
    """
    binary = getattr(sys.stdout, "buffer", None)
    if sys.stdout.isatty() or binary is None:
        sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
        return
    sys.stdout.flush()
    binary.write(text.encode("utf-8", "surrogateescape"))
    binary.flush()


def safe_cell(text: str) -> str:
    """A text as a cell in one line: without what terminals obey, and with a quote where spreadsheets would compute it.

    Numbers such as -1 and +1e-3, also those that are given as texts, stay numbers.
    """
    text = one_line(text)
    return f"'{text}" if text.startswith(_COMPUTED) and not _NUMBER.fullmatch(text) else text


def shortened(text: str) -> str:
    """A text whose words of more than 300 characters keep their beginning and their end."""
    return _LONG.sub(_middle_left_out, text)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def _middle_left_out(found: re.Match[str]) -> str:
    word = found[0]
    return f"{word[:_KEPT]}…{word[-_KEPT:]} ({len(word):,} characters)"


def fit_streams() -> None:
    """Has the standard output and the standard error write what their encoding lacks in other characters.

    Streams that the shell has closed (`>&-`) write nothing.
    """
    codecs.register_error(_NAME, _replacement)
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in _REPLACED:
            with contextlib.suppress(OSError):  # what this process was forked from had another file there
                stream.reconfigure(errors=_NAME)


def _open_closed() -> None:
    """Opens the null device in the place of standard streams that are closed.

    Otherwise the next file that is opened gets the number of the stream, and whatever a library prints.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 — as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def send_nowhere(descriptor: int) -> None:
    """Has an open file drop what is written to it from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


class _Lasting:
    """A standard stream whose reader may go, or whose disk may be full: what is written from then on is dropped."""

    def __init__(self, stream: TextIO, lost: Callable[[OSError], object]) -> None:
        self._stream, self._lost = stream, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes text; returns its length."""
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Writes what is held back."""
        with self._dropping():
            self._stream.flush()

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in _GONE:
                raise
            send_nowhere(self._stream.fileno())  # also what the stream holds back, and what libraries print
            self._lost(error)


@contextlib.contextmanager
def lasting_streams(lost: Callable[[OSError], object]) -> Iterator[None]:
    """Within the block, a closed pipe or terminal, or a full disk, ends nothing: the standard streams drop text.

    Args:
        lost: called once for each that takes no more, with the error.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Lasting(stream, lost)) for stream in before)
    try:
        yield
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        sys.stdout, sys.stderr = before


def write_utf8() -> None:
    """Has the standard output and the standard error, which go to a file, write UTF-8 whatever the terminal has."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _replacement(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_other, error.object[error.start : error.end])), error.end


def _other(character: str) -> str:
    if "\u2800" <= character <= "\u28ff":  # dots, which turn while something is done
        return "*"
    if "\u2500" <= character <= "\u257f":  # lines of tables
        return "-"
    return _OTHERS.get(character) or character.encode("ascii", "backslashreplace").decode()
