"""The user's own code: found without running any of it, its source files, its own modules; and called. No TensorFlow.

`NamedFunction` is the only thing that imports and calls code named by a config.

Imports are followed in the source, without running it, also those inside functions. A module is the user's own if it
belongs to the package of the function or lies beside it, in the same folder; installed packages and embexp are not, as
their versions are recorded. A name that is put together at run time (`importlib.import_module(name)`) is not followed.

A user's own modules are those in the working directory, in a folder of PYTHONPATH or of `sys.path`, and in editable
installs: neither in Python's library nor in an installed package, nor in a folder of configs.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib.util
import inspect
import os
import re
import site
import symtable
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from embexp.errors import ConfigError, Fault
from embexp.system import digests

_NEVER_OWN = ("embexp", "hydra_plugins")
_INSTALLED = ("site-packages", "dist-packages")
_IMPORTED: dict[str, str] = {}
"""Digest of each of the user's files when a run imported it, by module."""


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
    """The code of the user's functions in a run.

    Attributes:
        functions: their dotted paths, `package.module:function`.
        files: by the name of their module; empty if there is no such module.
        fields: name, path, package, version and digest of each field that embexp does not ship.
    """

    functions: tuple[str, ...]
    files: Mapping[str, SourceFile]
    fields: tuple[Mapping[str, str], ...] = ()

    @cached_property
    def digest(self) -> str:
        """Digest of all files, the same wherever they lie."""
        return digests.of_json({file.name: file.digest for file in self.files.values()})


def read_user_code(*functions: str) -> UserCode:
    """Reads the code of the user's functions.

    Args:
        *functions: `package.module:function`; modules are searched for as `faults_of_function` does.
    """
    found: dict[str, SourceFile] = {}
    for module in dict.fromkeys(function.partition(":")[0] for function in functions):
        found |= _files_of(module)
    return UserCode(tuple(functions), dict(sorted(found.items())))


def read_package(path: str, named: Iterable[str]) -> UserCode:
    """Reads the code of a package, all of it; of a module that is in none, its own and what is named next to it.

    Args:
        path: of an object, `package.module:name`.
        named: further paths, which that object names.
    """
    module = path.partition(":")[0]
    top = find_module(module.partition(".")[0])
    if top is None or not top.submodule_search_locations:
        home = None if top is None else _home(top)
        tops = {each: find_module(re.split(r"[.:]", each)[0]) for each in named}
        return read_user_code(path, *(each for each, spec in tops.items() if spec is not None and _home(spec) == home))
    found = {}
    for folder in map(Path, top.submodule_search_locations):
        for file in sorted(folder.rglob("*.py")):
            name = file.relative_to(folder.parent)
            parts = name.parent.parts if file.stem == "__init__" else name.with_suffix("").parts
            found[".".join(parts)] = SourceFile(file, name.as_posix(), file.read_bytes())
    return UserCode((path,), found)


def _files_of(module: str) -> dict[str, SourceFile]:
    found: dict[str, SourceFile] = {}
    top = find_module(module.partition(".")[0])
    home = None if top is None else _home(top)
    if home is None:
        return found
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
    return found


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
        return f"module {module!r} belongs to Python's standard library"
    if top in _NEVER_OWN:
        return f"module {module!r} belongs to embexp"
    specs = find_modules(module)
    for spec in specs:
        for place in _places(spec):
            if _is_installed(place):
                return f"module {spec.name!r} is installed ({place})"
    for origin in _origins(specs[-1], name.partition(".")[0]) if specs else ():
        if why := _foreign(origin, seen):
            return f"{specs[-1].name} imports it, and {why}"
    return ""


def within(function: str, folders: Iterable[Path]) -> str:
    """Why a function is of a folder of configs, which may be anybody's, without a full stop; "" if it is not.

    The working directory is the user's own, even if it is such a folder, or in one.

    Args:
        function: `package.module:name`.
    """
    here = Path.cwd().resolve()
    for spec in reversed(find_modules(function.partition(":")[0])):
        for place in map(Path.resolve, _places(spec)):
            for root in map(Path.resolve, folders):
                if place.is_relative_to(root) and not (here.is_relative_to(root) and place.is_relative_to(here)):
                    shown = place.relative_to(here) if place.is_relative_to(here) else place
                    return f"module {spec.name!r} is in a config folder ({shown})"
    return ""


@cache
def installed_folders() -> frozenset[Path]:
    """The folders of installed packages and of Python's library."""
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
    except (OSError, SyntaxError, ValueError):  # user_path.faults reports it
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


@dataclass(frozen=True)
class NamedFunction:
    """A function of the user's own that a config names.

    Attributes:
        path: config path of the choice that it makes, such as `model`.
        name: `package.module:function`, which the caller has checked to be one that may be run.
        args: keyword arguments of the config.
        takes: names of the positional arguments that it is called with, such as `labels, logits`.
    """

    path: str
    name: str
    args: Mapping[str, Any]
    takes: str

    def load(self) -> Callable[..., Any]:
        """Imports the function. The working directory is last on `sys.path`, so that no file there hides a module.

        Raises:
            ConfigError: there is no such module or function, or importing it raises an exception.
        """
        module_name, _, name = self.name.partition(":")
        if found := faults_of_function(self.name, f"{self.path}.function"):
            raise ConfigError(found)
        sys.path[:] = search_path()
        importlib.invalidate_caches()
        forget_changed(read_user_code(self.name))
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            raise self.fault(f"importing {module_name!r} raised {described(error)}") from error
        loaded = getattr(module, name, None)
        if loaded is None:
            raise self.fault(f"module {module_name!r} has no {name!r}")
        if not callable(loaded):
            raise self.fault(f"it must be a function, but is {kind_of(loaded)}")
        return loaded  # type: ignore[no-any-return]

    def __call__(self, *values: Any, **more: Any) -> Any:
        """Imports the function and calls it.

        Args:
            *values: positional arguments.
            **more: keyword arguments; those of the config count before them.

        Raises:
            ConfigError: as `load`; it does not take these arguments, or it raises an exception.
        """
        loaded, args = self.load(), {**more, **self.args}
        self.check_arguments(loaded, *values, **args)
        try:
            return loaded(*values, **args)
        except Exception as error:
            raise self.fault(f"it raised {described(error)}") from error

    def check_arguments(self, loaded: Callable[..., Any], *values: Any, **args: Any) -> None:
        """Checks arguments before a call, so that a TypeError inside the function is not mistaken for wrong ones."""
        try:
            signature = inspect.signature(loaded)
        except (TypeError, ValueError):  # compiled functions may have no signature
            return
        try:
            signature.bind(*values, **args)
        except TypeError as error:
            takes = ", ".join(filter(None, (self.takes, "**args")))
            rule = f"{self.name} is called as function({takes}), which does not match its signature"
            raise ConfigError([Fault(f"{self.path}.args", repr(args), f"{rule} {signature}: {error}")]) from error

    def fault(self, rule: str, remedy: str = "") -> ConfigError:
        """The error that the function breaks a rule."""
        return ConfigError([Fault(f"{self.path}.function", repr(self.name), rule, remedy)])


def forget_changed(code: UserCode) -> bool:
    """Has modules imported again of which a file has changed since a run imported them, as in a notebook.

    Otherwise a run would use other code than it records. Returns whether a file has changed.
    """
    changed = [file.path for name, file in code.files.items() if _IMPORTED.get(name, file.digest) != file.digest]
    for path in changed:  # Python takes the old bytecode for a file of the same size and the same second
        with suppress(OSError):
            os.remove(importlib.util.cache_from_source(path))
    if changed:
        for name in code.files:
            sys.modules.pop(name, None)
    note_imported(code)
    return bool(changed)


def note_imported(code: UserCode) -> None:
    """Notes which code this process has imported, see `forget_changed`."""
    _IMPORTED.update({name: file.digest for name, file in code.files.items()})


def described(error: BaseException) -> str:
    """Type, message and the innermost line of the user's code, since a fault is shown without a stack trace."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).parents[1])
    own = [frame for frame in frames if not frame.filename.startswith(ours) and "site-packages" not in frame.filename]
    location = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    # Keras puts colours and a list of all arguments around the message of an exception inside a layer.
    message = re.sub(r"\x1b\[\d+m", "", str(error)).partition("\n\nArguments received")[0]
    message = re.sub(r"^Exception encountered when calling [^\n]*\n\n", "", message)
    return f"{type(error).__name__}: {' '.join(message.split())}{location}"


def kind_of(value: object) -> str:
    """What a value is, in a sentence: `None`, or `a str`."""
    return "None" if value is None else f"a {type(value).__name__}"


def faults_of_function(function: str, path: str) -> list[Fault]:
    """The faults of the dotted path `package.module:function` that the source files show.

    Modules are searched for in the environment and then in the working directory. Nothing is imported, not even parent
    packages. A module without readable source, or one that imports `*` or defines
    `__getattr__`, only has to exist.

    Args:
        path: config path of the setting, such as `model.function`.
    """
    module, _, name = function.partition(":")
    spec = find_module(module)
    if spec is None:
        return [
            Fault(
                path,
                repr(function),
                f"there is no module {module!r} in the working directory ({Path.cwd()}) or the environment",
                "start embexp from the folder that holds it, or install it",
            )
        ]
    if not spec.has_location or spec.origin is None or not spec.origin.endswith(".py"):
        return []
    try:
        source = importlib.util.decode_source(Path(spec.origin).read_bytes())
        bound = _bound_names(source, spec.origin)
    except SyntaxError as error:
        return [Fault(path, repr(function), f"{spec.origin}:{error.lineno} can't be parsed: {error.msg}")]
    if bound is None or name in bound:
        return []
    near = difflib.get_close_matches(name, bound, n=1)
    remedy = f"did you mean {module}:{near[0]}?" if near else ""
    return [Fault(path, repr(function), f"{spec.origin} defines no {name!r}", remedy)]


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
        try:
            spec = PathFinder.find_spec(name, path) or (None if found else _by_finder_of_a_package(name))
        except KeyError:  # a package without __init__.py in another one, whose parent Python wants to be imported
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [each for root in path if os.path.isdir(each := os.path.join(root, part))]
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
