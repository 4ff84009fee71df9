"""Which modules are the user's own. Imports none of them.

They are those in the working directory, in a folder of PYTHONPATH or of `sys.path`, and in editable
installs: neither in Python's library nor in an installed package.
"""

from __future__ import annotations

import ast
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path

from embexp.models import user_path

NEVER_OWN = ("embexp", "hydra_plugins")
_INSTALLED = ("site-packages", "dist-packages")


def foreign(function: str) -> str:
    """Why a function or a class is not of the user's own modules, without a full stop; "" if it is, or does not exist.

    A name that a module of the user only imports counts as that of the module that it comes from. Names are followed in
    the source: what is assigned (`run = subprocess.run`) is the module's own.

    Args:
        function: `package.module:name`.
    """
    return _foreign(function, set())


def _foreign(function: str, seen: set[str]) -> str:
    module, _, name = function.partition(":")
    if function in seen:
        return ""
    seen.add(function)
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return f"module {module!r} is in Python's library"
    if top in NEVER_OWN:
        return f"module {module!r} is embexp's own"
    specs = user_path.find_all(module)
    for spec in specs:
        for place in _places(spec):
            if _is_installed(place):
                return f"module {spec.name!r} is installed ({place})"
    for origin in _origins(specs[-1], name.partition(".")[0]) if specs else ():
        if why := _foreign(origin, seen):
            return f"{specs[-1].name} imports it, and {why}"
    return ""


def installed_folders() -> frozenset[Path]:
    """The folders of installed packages and of Python's library."""
    return _installed_folders()


@cache
def _installed_folders() -> frozenset[Path]:
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [*site.getsitepackages(), site.getusersitepackages()]
    return frozenset(Path(path).resolve() for path in paths)


def _places(spec: ModuleSpec) -> Iterator[Path]:
    """The file of a module; of a package without one, its folders."""
    if spec.has_location and spec.origin:
        yield Path(spec.origin)
    else:
        yield from map(Path, spec.submodule_search_locations or ())


def _is_installed(place: Path) -> bool:
    """Whether a file is that of an installed package. A link to it from there is an editable install."""
    whole = place.resolve()
    inside = any(part in _INSTALLED for part in whole.parts)
    return inside or any(whole.is_relative_to(folder) for folder in installed_folders())


def _origins(spec: ModuleSpec, name: str) -> Iterator[str]:
    """Where a module has imported a name from, as `package.module:name`; nowhere if it defines it itself."""
    if not (spec.has_location and spec.origin and spec.origin.endswith(".py")):
        return
    try:
        tree = ast.parse(importlib.util.decode_source(Path(spec.origin).read_bytes()))
    except (OSError, SyntaxError, ValueError):  # which user_path.faults tells
        return
    package = spec.name if spec.submodule_search_locations is not None else spec.name.rpartition(".")[0]
    stars = []
    bound = False
    for node in _own_scope(tree):
        if isinstance(node, ast.ImportFrom):
            base = absolute(node, package)
            for alias in node.names:
                if alias.name == "*":
                    stars.append(base)
                elif (alias.asname or alias.name) == name:
                    bound = True
                    yield f"{base}:{alias.name}"
        else:
            bound = bound or name in _defined(node)
    if not bound:
        yield from (f"{base}:{name}" for base in stars)


def _own_scope(node: ast.AST) -> Iterator[ast.AST]:
    """The statements and expressions of a module that are not inside a function or a class."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own_scope(child)


def _defined(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (node.name,)
    return (node.id,) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ()


def absolute(node: ast.ImportFrom, package: str) -> str:
    """The module that `from … import …` names.

    Args:
        node: the statement.
        package: that relative imports start from.
    """
    base = node.module or ""
    if not node.level:
        return base
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, *([base] if base else [])])
