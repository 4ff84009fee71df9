"""The source files of a user's function: its module, and what that imports of its own. Imports no TensorFlow.

Imports are followed in the source, without running it, also those inside functions. A module is the user's own if it
belongs to the package of the function or lies beside it, in the same folder; installed packages and embexp are not, as
their versions are recorded. A name that is put together at run time (`importlib.import_module(name)`) is not followed.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import ModuleSpec
from pathlib import Path

from embexp.models import own_modules, user_path
from embexp.system import digests


@dataclass(frozen=True)
class SourceFile:
    """A file of the user's code.

    Attributes:
        path: of the file.
        name: its path as the modules are imported, such as `towers/deep.py`.
        content: its bytes.
    """

    path: Path
    name: str
    content: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class UserCode:
    """The code of a user's function.

    Attributes:
        function: its dotted path, `package.module:function`.
        files: by the name of their module; empty if there is no such module.
    """

    function: str
    files: Mapping[str, SourceFile]

    @cached_property
    def digest(self) -> str:
        """Digest of all files, the same wherever they lie."""
        return digests.of_json({file.name: file.digest for file in self.files.values()})


def read(function: str) -> UserCode:
    """Reads the code of a user's function.

    Args:
        function: `package.module:function`; modules are searched for as `user_path.faults` does.
    """
    module = function.partition(":")[0]
    found: dict[str, SourceFile] = {}
    top = user_path.find(module.partition(".")[0])
    home = None if top is None else _home(top)
    if home is None:
        return UserCode(function, found)
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if not _own(name, module, home):
            continue
        parent = name.rpartition(".")[0]
        if parent:  # importing a module imports the packages that it is in
            waiting.append(parent)
        spec = user_path.find(name)
        if spec is None or not spec.has_location or spec.origin is None or not Path(spec.origin).is_file():
            continue
        path, package = Path(spec.origin), spec.submodule_search_locations is not None
        folder = name.split(".") if package else name.split(".")[:-1]
        found[name] = SourceFile(path, "/".join([*folder, path.name]), path.read_bytes())
        if path.suffix == ".py":
            waiting += _imported(found[name].content, name if package else parent)
    return UserCode(function, dict(sorted(found.items())))


def _own(name: str, module: str, home: Path) -> bool:
    """Whether a module is the user's own.

    Args:
        name: of the module.
        module: the function's.
        home: the folder that holds the function's module, or its package.
    """
    top = name.partition(".")[0]
    if top == module.partition(".")[0]:
        return True
    if top in own_modules.NEVER_OWN or home in own_modules.installed_folders():
        return False
    spec = user_path.find(top)
    return spec is not None and _home(spec) == home


def _home(spec: ModuleSpec) -> Path | None:
    """The folder that a top-level module lies in; None: it has no files, as those that are built in."""
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve().parent
    return Path(spec.origin).resolve().parent if spec.has_location and spec.origin else None


def _imported(content: bytes, package: str) -> Iterator[str]:
    """The names that may be modules among those that a source imports; none of a source that can't be parsed.

    Args:
        content: of the file.
        package: that relative imports start from.
    """
    try:
        tree = ast.parse(importlib.util.decode_source(content))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (base := own_modules.absolute(node, package)):
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
