"""Checks that a user's function exists, without running any of their code. Imports no TensorFlow."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
import symtable
import sys
from collections.abc import Sequence
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path

from embexp.errors import Fault


def faults(function: str) -> list[Fault]:
    """The faults of the dotted path `package.module:function` that the source files show.

    Modules are searched for in the environment and then in the working directory. Nothing is imported, not even parent
    packages. A module without readable source, or one that imports `*` or defines
    `__getattr__`, only has to exist.

    Returns:
        Faults on `model.function`; empty if none is found.
    """
    module, _, name = function.partition(":")
    spec = find(module)
    if spec is None:
        return [
            Fault(
                "model.function",
                repr(function),
                f"there is no module {module!r} in the working directory ({Path.cwd()}) or the environment",
                "start from the folder that holds it, or install it",
            )
        ]
    if not spec.has_location or spec.origin is None or not spec.origin.endswith(".py"):
        return []
    try:
        source = importlib.util.decode_source(Path(spec.origin).read_bytes())
        bound = _bound_names(source, spec.origin)
    except SyntaxError as error:
        return [Fault("model.function", repr(function), f"{spec.origin}:{error.lineno} can't be parsed: {error.msg}")]
    if bound is None or name in bound:
        return []
    near = difflib.get_close_matches(name, bound, n=1)
    remedy = f"did you mean {module}:{near[0]}?" if near else ""
    return [Fault("model.function", repr(function), f"{spec.origin} defines no {name!r}", remedy)]


def search_path() -> list[str]:
    """`sys.path` with the working directory, at its end unless it has it: no file there is to hide a module."""
    here = os.getcwd()
    return list(sys.path) if any(entry in ("", here) for entry in sys.path) else [*sys.path, here]


def find(module: str) -> ModuleSpec | None:
    """Finds a module; unlike `importlib.util.find_spec` it imports no parent package."""
    specs = find_all(module)
    return specs[-1] if specs else None


def find_all(module: str) -> list[ModuleSpec]:
    """A module, after the packages that importing it imports, the outermost one first; empty: there is none."""
    found: list[ModuleSpec] = []
    path: Sequence[str] | None = search_path()
    name = ""
    for part in module.split("."):
        if path is None or not part:
            return []
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, path) or (None if found else _by_finder_of_a_package(name))
        if spec is None:
            return []
        found.append(spec)
        path = spec.submodule_search_locations
    return found


def _by_finder_of_a_package(name: str) -> ModuleSpec | None:
    """A top-level module that a finder of an installed package finds, as many editable installs have one."""
    for finder in sys.meta_path:
        if finder not in (BuiltinImporter, FrozenImporter, PathFinder) and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, None)
            if spec is not None:
                return spec
    return None


def _bound_names(source: str, file: str) -> set[str] | None:
    """Names that the module binds at its top level, blocks included; None if only running it would show them."""
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return None
    symbols = symtable.symtable(source, file, "exec").get_symbols()
    bound = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    return None if "__getattr__" in bound else bound
