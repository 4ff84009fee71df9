"""The user's own code: found without running any of it, its source files, its own modules. No TensorFlow.

Imports are followed in the source, without running it, also those inside functions. A module is the user's own if it
belongs to the package of the function or lies beside it, in the same folder; installed packages and embexp are not, as
their versions are recorded. A name that is put together at run time (`importlib.import_module(name)`) is not followed.

A user's own modules are those in the working directory, in a folder of PYTHONPATH or of `sys.path`, and in editable
installs: neither in Python's library nor in an installed package.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib.util
import os
import site
import symtable
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path

from embexp.errors import Fault
from embexp.system import digests

_NEVER_OWN = ("embexp", "hydra_plugins")
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class SourceFile:
    """A file of the user's code.

    Attributes:
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


def read_user_code(function: str) -> UserCode:
    """Reads the code of a user's function.

    Args:
        function: `package.module:function`; modules are searched for as `faults_of_function` does.
    """
    module = function.partition(":")[0]
    found: dict[str, SourceFile] = {}
    top = find_module(module.partition(".")[0])
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
        spec = find_module(name)
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
        module: the function's.
        home: the folder that holds the function's module, or its package.
    """
    top = name.partition(".")[0]
    if top == module.partition(".")[0]:
        return True
    if top in _NEVER_OWN or home in installed_folders():
        return False
    spec = find_module(top)
    return spec is not None and _home(spec) == home


def _home(spec: ModuleSpec) -> Path | None:
    """The folder that a top-level module lies in; None: it has no files, as those that are built in."""
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve().parent
    return Path(spec.origin).resolve().parent if spec.has_location and spec.origin else None


def _imported(content: bytes, package: str) -> Iterator[str]:
    """The names that may be modules among those that a source imports; none of a source that can't be parsed.

    Args:
        package: that relative imports start from.
    """
    try:
        tree = ast.parse(importlib.util.decode_source(content))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (base := absolute_name(node, package)):
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


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
    if top in _NEVER_OWN:
        return f"module {module!r} is embexp's own"
    specs = find_modules(module)
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
            base = absolute_name(node, package)
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


def absolute_name(node: ast.ImportFrom, package: str) -> str:
    """The module that `from … import …` names.

    Args:
        package: that relative imports start from.
    """
    base = node.module or ""
    if not node.level:
        return base
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, *([base] if base else [])])


def faults_of_function(function: str) -> list[Fault]:
    """The faults of the dotted path `package.module:function` that the source files show.

    Modules are searched for in the environment and then in the working directory. Nothing is imported, not even parent
    packages. A module without readable source, or one that imports `*` or defines
    `__getattr__`, only has to exist.

    Returns:
        Faults on `model.function`; empty if none is found.
    """
    module, _, name = function.partition(":")
    spec = find_module(module)
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


def find_module(module: str) -> ModuleSpec | None:
    """Finds a module; unlike `importlib.util.find_spec` it imports no parent package."""
    specs = find_modules(module)
    return specs[-1] if specs else None


def find_modules(module: str) -> list[ModuleSpec]:
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
