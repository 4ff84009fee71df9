"""What is secret. One function, `masked`, decides for all that embexp records, logs, reports and says in errors."""

from __future__ import annotations

import re
from typing import Any

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
