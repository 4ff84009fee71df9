"""Masks what looks like a secret before it is recorded."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASKED = "[masked]"
_SECRET = re.compile(r"secret|token|passw|passphrase|credential|api_?key|access_?key|private|_key$|auth|cookie", re.I)
_OTHERS = re.compile(r"^TF_VAR_", re.I)
"""Variables of other programs that begin like TensorFlow's: Terraform's hold what is deployed."""
_SETTING = re.compile(
    r"(?P<name>[\w.@/+~-]*(secret|token|password|passwd|passphrase|credentials?|key|auth))=(?P<value>.+)", re.I
)
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)")


def value(name: str, text: str) -> str:
    """The value of a variable, masked if its name or its form says that it is a secret."""
    if _SECRET.search(name) or _OTHERS.search(name):
        return MASKED
    return _LOGIN.sub(MASKED, text)


def command(words: Sequence[str]) -> list[str]:
    """A command line, without logins in addresses (https://name:password@…) and values of keys named as secrets."""
    found = []
    for word in words:
        setting = _SETTING.fullmatch(word)
        found.append(f"{setting['name']}={MASKED}" if setting else _LOGIN.sub(MASKED, word))
    return found
