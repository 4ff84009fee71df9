"""Texts that every Python has: the documentation in its standard library, read from the source files.

Nothing of the library is imported but the topics of `help()`. The texts are the same for one version of Python; a
module that an installation lacks has no texts.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from embexp.data.words import words
from embexp.errors import DataError

NAME = "Python's standard library"
CLASSES = {
    "concurrency": "asyncio concurrent multiprocessing queue sched subprocess threading",
    "files": "_pyio bz2 filecmp fileinput genericpath glob gzip lzma ntpath pathlib posixpath shutil tarfile tempfile "
    "zipapp zipfile",
    "imports": "importlib modulefinder pkgutil py_compile runpy site sysconfig venv zipimport",
    "language": "abc ast codeop contextlib dataclasses dis enum functools inspect pickle pickletools symtable tokenize "
    "types typing",
    "mail": "email imaplib mailbox poplib smtplib",
    "markup": "html plistlib xml xmlrpc",
    "numbers": "_pydatetime _pydecimal calendar datetime fractions heapq ipaddress numbers random statistics",
    "settings": "argparse configparser getopt getpass gettext locale logging optparse",
    "testing": "bdb cProfile doctest pdb profile pstats timeit trace traceback unittest",
    "web": "ftplib http selectors socket socketserver ssl urllib wsgiref",
    "windows": "tkinter turtle",
}
"""The modules, or packages, that make a class of texts."""
_MOST = 400  # texts of a class, lest one outnumber the others
_FEWEST_WORDS = 5
_PASSED_OVER = {"__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tests"}
_Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def sources() -> list[Path]:
    """The source files of the library, in the order of their names, without tests.

    Raises:
        DataError: this Python has none.
    """
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for folder, inner, files in os.walk(root):
        inner[:] = [name for name in inner if name not in _PASSED_OVER and not name.startswith("config-")]
        found += [Path(folder, name) for name in files if name.endswith(".py")]
    if not found:
        raise DataError(f"{root}: this Python holds no source files of its standard library; set data.path")
    return sorted(found, key=lambda path: path.relative_to(root).parts)


def digest() -> str:
    """Digest of all the source files."""
    root = Path(sysconfig.get_path("stdlib"))
    state = hashlib.sha256()
    for path in sources():
        content = path.read_bytes()
        state.update(f"{path.relative_to(root).as_posix()}\n{len(content)}\n".encode() + content)
    return state.hexdigest()


@cache
def labelled() -> list[tuple[str, str]]:
    """Classes and texts: the docstrings of functions, methods and classes in a group of modules, each text once.

    Texts of fewer than five words are ignored. Of a class with more than 400 texts only so many are kept, chosen by
    their hash.
    """
    root = Path(sysconfig.get_path("stdlib"))
    class_of = {module: name for name, modules in CLASSES.items() for module in modules.split()}
    texts: dict[str, list[str]] = {name: [] for name in CLASSES}
    seen: set[tuple[str, ...]] = set()
    for path in sources():
        name = class_of.get(path.relative_to(root).parts[0].removesuffix(".py"))
        if name is None:
            continue
        for node in _nodes(path.read_bytes()):
            text = ast.get_docstring(node) if isinstance(node, _Documented) else None
            known = tuple(words(text or ""))
            if text is not None and len(known) >= _FEWEST_WORDS and known not in seen:
                seen.add(known)
                texts[name].append(text)
    return [(name, text) for name, all_of_it in texts.items() for text in _some(all_of_it)]


@cache
def unlabelled() -> list[str]:
    """Docstrings, comments, and the topics of `help()`."""
    texts: list[str] = []
    for path in sources():
        content = path.read_bytes()
        for node in _nodes(content):
            if isinstance(node, _Documented | ast.Module) and (text := ast.get_docstring(node)):
                texts.append(text)
        texts += _comments(content.decode("utf-8", "replace"))
    from pydoc_data import topics  # type: ignore[import-not-found, unused-ignore]

    return [*texts, *topics.topics.values()]


def _nodes(source: bytes) -> Iterator[ast.AST]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes in the library's own texts, which nobody can help here
        tree = ast.parse(source)
    return ast.walk(tree)


def _some(texts: list[str]) -> list[str]:
    if len(texts) <= _MOST:
        return texts
    kept = set(sorted(texts, key=lambda text: hashlib.sha256(text.encode("utf-8", "replace")).digest())[:_MOST])
    return [text for text in texts if text in kept]


def _comments(source: str) -> Iterator[str]:
    """Comments that have lines of their own; those on consecutive lines are one text."""
    block: list[str] = []
    for line in [*source.splitlines(), ""]:
        stripped = line.strip()
        if stripped.startswith("#"):
            block.append(stripped.lstrip("#!"))
        elif block:
            yield "\n".join(block)
            block = []
