"""Lines of N-Triples, by the grammar of https://www.w3.org/TR/n-triples/, as names of subject, predicate and object.

The name of an IRI is the IRI, that of a blank node `_:label`. A literal has its quotes, and behind them its language or
type, so that it differs from an IRI: `"Paris"@fr`, `"1"^^http://www.w3.org/2001/XMLSchema#integer`. Escapes are the
characters that they stand for.
"""

from __future__ import annotations

import re

_UNICODE = r"\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}"
_IRI = rf'<((?:[^\x00-\x20<>"{{}}|^`\\]|{_UNICODE})*)>'
_BASE = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_INNER = rf"{_BASE}_:0-9\-\u00b7\u0300-\u036f\u203f-\u2040"
_NODE = rf"_:[{_BASE}_:0-9](?:[{_INNER}.]*[{_INNER}])?"
_STRING = rf'"((?:[^"\\\n\r]|\\[tbnrf"\'\\]|{_UNICODE})*)"'
_LANGUAGE = r"@([A-Za-z]+(?:-[A-Za-z0-9]+)*)"
_SPACE = r"[ \t]*"
_TRIPLE = re.compile(
    rf"{_SPACE}(?:{_IRI}|({_NODE})){_SPACE}{_IRI}{_SPACE}"
    rf"(?:{_IRI}|({_NODE})|{_STRING}(?:\^\^{_IRI}|{_LANGUAGE})?){_SPACE}\.{_SPACE}(?:#.*)?"
)
_NOTHING = re.compile(rf"{_SPACE}(?:#.*)?")
_ESCAPE = re.compile(rf"{_UNICODE}|\\.")
_LETTERS = dict(zip("tbnrf", "\t\b\n\r\f", strict=True))
EXPECTED = 'a triple such as <http://a.org/s> <http://a.org/p> "text"@en .'
"""What a line should be, for errors."""


def is_nothing(line: str) -> bool:
    """Whether a line is empty, or a comment."""
    return _NOTHING.fullmatch(line) is not None


def triple_of(line: str) -> list[str] | None:
    """The names of subject, predicate and object of a line without its end; None for a line that is no triple."""
    match = _TRIPLE.fullmatch(line)
    if match is None:
        return None
    subject, subject_node, predicate, iri, node, string, kind, language = match.groups()
    try:
        head = subject_node if subject is None else _unescaped(subject)
        if string is not None:
            behind = f"^^{_unescaped(kind)}" if kind is not None else f"@{language}" if language is not None else ""
            tail = f'"{_unescaped(string)}"{behind}'
        else:
            tail = node if iri is None else _unescaped(iri)
        found = [head, _unescaped(predicate), tail]
        "".join(found).encode()
    except ValueError:  # an escape that stands for no character
        return None
    return found


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    escape = match[0]
    if escape[1] in "uU":
        return chr(int(escape[2:], 16))
    return _LETTERS.get(escape[1], escape[1])
