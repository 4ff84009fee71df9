"""Fields of use, such as recommendation: each brings its tasks, choices and commands, under names that configs use.

A field is one record, a `Field`, importable without TensorFlow. It names everything else by dotted path, so that only
what a config chooses is imported. Those of embexp, those of installed packages (entry point `embexp.fields`) and those
that a config names by the path of their record (`fields`) all come through `Origin`, and are asked for in one way.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from embexp.errors import ConfigError, Fault

SHIPPED = ("columns", "graphs", "recommendation", "texts")
"""The fields of embexp, each a package in `embexp.fields`."""
ENTRY_POINT = "embexp.fields"
"""Group of the entry points of installed packages: each names a `Field` as `package.module:object`."""


@dataclass(frozen=True)
class Field:
    """What a field provides. All paths are dotted, `package.module:object`, and imported on first use.

    Attributes:
        name: of the field, for messages and records.
        described: what it is for, in one line.
        tasks: tasks (`Task`) by name.
        data: classes of sources by `kind`, the choices of `data`. The next attributes have the same form.
        models: classes of `model`, with an `implementation`.
        losses: classes of `loss`, with an `implementation`.
        studies: classes of `study`.
        settings: classes of settings that only its tasks read, by their top-level config key.
        methods: functions by name that become methods of a loaded run; the run is their first argument.
        exports: functions that write an export, by the word of `embexp export --as`; see `runs.finished.Writer`.
        commands: commands of `embexp` by name: what each does, and the path of the module with `main` and `HELP`.
        recognises: a function from a data path to a first experiment, for data that the field recognises as a whole;
            see `cli.first_experiment.Recognised`, or None; "": none.
        first_experiment: a function from columns and their task to the lines of a first experiment that only this field
            needs; see `cli.first_experiment.Experiment`, or None; "": tables of columns serve.
        configs: the folder of its YAML files, with one folder per group, next to the module of the record; "": there is
            none. The fields of embexp keep theirs in embexp's folder.
    """

    name: str
    described: str
    tasks: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    losses: Mapping[str, str] = field(default_factory=dict)
    studies: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    exports: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    recognises: str = ""
    first_experiment: str = ""
    configs: str = ""


GROUPS = ("tasks", "data", "models", "losses", "studies", "settings", "methods", "exports", "commands")
"""What a field brings by name."""
CORE: Mapping[str, frozenset[str]] = {
    "exports": frozenset(("savedmodel", "npy", "word2vec", "projector")),
    "commands": frozenset(("run", "plan", "continue", "new", "resume", "sweep", "report", "verify", "diff"))
    | {"check", "compare", "evaluate", "predict", "export", "checkpoint", "vectors", "fetch", "keys", "schema"}
    | {"completion"},
}
"""Names of the core that no module of specs knows."""
CHOICES = ("data", "models", "losses", "studies")
"""Groups of classes, each with its name as its `kind`."""
_LARGEST = 1 << 20
"""Bytes that are read of a list of entry points."""
_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Origin:
    """A field, and where it comes from.

    Attributes:
        path: of its record, `package.module:object`.
        package: the installed package that brings it; of one that a config names, its module; "": embexp.
        version: of that package; "": it has none.
        installed: whether an entry point brings it.
    """

    field: Field
    path: str
    package: str = ""
    version: str = ""
    installed: bool = False

    @property
    def is_own(self) -> bool:
        """Whether it is not one of embexp's."""
        return bool(self.package)

    @property
    def configs(self) -> str:
        """The folder of its YAML files; "": there is none."""
        file = getattr(sys.modules.get(self.path.partition(":")[0]), "__file__", None)
        return os.path.join(os.path.dirname(file), self.field.configs) if file and self.field.configs else ""

    def paths(self) -> list[str]:
        """All paths that the record names, and those that its tasks and choices name."""
        found = [path for group in GROUPS if group != "commands" for path in getattr(self.field, group).values()]
        found += [path for _, path in self.field.commands.values()]
        objects = [imported(path) for group in ("tasks", *CHOICES) for path in getattr(self.field, group).values()]
        objects += [metric for task in objects for metric in getattr(task, "metrics", ())]
        texts = [text for each in objects for text in vars(each).values()]
        return [*found, *(text for text in texts if isinstance(text, str) and _PATH.fullmatch(text))]

    def __str__(self) -> str:
        return f"field {self.field.name} of {' '.join(filter(None, (self.package or 'embexp', self.version)))}"


_named: dict[str, Origin] = {}
"""Fields that configs have named in this process, by their path."""
_broken: dict[str, str] = {}
"""Why an installed field can't be used, in a sentence, by its path."""
_teller: Callable[[str], None] | None = None
"""Tells the user such a sentence; None: nobody listens yet."""
_allowed: set[str] = set()
"""Paths of fields that the user allows to be imported though a record names them."""
on_change: list[Callable[[], None]] = []
"""Called when a field has been added or taken out: what keeps what it has found of fields forgets it."""


@cache
def _installed() -> tuple[Origin, ...]:
    """The fields of embexp, and those of installed packages that can be used."""
    paths = (f"{ENTRY_POINT}.{name}:FIELD" for name in SHIPPED)
    found = [Origin(imported(path), path) for path in paths]
    for path, package, version in _entry_points():
        origin, rule = _checked(path, package, version, found)
        if origin is None:
            _leave_out(path, package, rule)
        else:
            found.append(replace(origin, installed=True))
    return tuple(found)


def _checked(path: str, package: str, version: str, others: Iterable[Origin]) -> tuple[Origin | None, str]:
    """The field at a path; or None, and why it can't be used next to others."""
    try:
        record = _load(path)
        rule = _problem(record)
        origin = None if rule else Origin(record, path, package, version)
        rule = rule or _clash(record, others) or _shadowed(origin, others)
    except Exception as error:
        origin, rule = None, raised(error)
    return (None, rule) if rule else (origin, "")


def raised(error: Exception) -> str:
    """That an import raised an exception, in a sentence."""
    return f"importing it raised {type(error).__name__}: {' '.join(str(error).split())}"


def _leave_out(path: str, package: str, rule: str) -> None:
    """Notes why an installed field can't be used, and tells it."""
    _broken[path] = f"the field {path} of package {package} is left out: {rule}; update or uninstall {package}"
    if _teller is not None:
        _teller(_broken[path])


def tell_by(teller: Callable[[str], None]) -> None:
    """Tells why installed fields can't be used, now and whenever one is found."""
    global _teller
    if _teller is None:
        _teller = teller
        origins()
        for sentence in _broken.values():
            teller(sentence)


def _entry_points() -> Iterator[tuple[str, str, str]]:
    """Path, package and version of the entry points of installed packages, by the names of packages.

    `importlib.metadata` takes longer to import than a hundred small files to read, so it reads only those that matter.
    The working directory is no place of installed packages.
    """
    found: dict[str, str] = {}
    for folder in dict.fromkeys(map(os.path.abspath, filter(None, sys.path))):
        if folder == os.getcwd() or not os.path.isdir(folder):
            continue
        for name in os.listdir(folder):
            if not name.endswith((".dist-info", ".egg-info")):
                continue
            try:  # `os.open` takes a third of the time of `open`
                file = os.open(os.path.join(folder, name, "entry_points.txt"), os.O_RDONLY)
            except OSError:
                continue
            if ENTRY_POINT.encode() in os.read(file, _LARGEST):
                found.setdefault(name.partition("-")[0], os.path.join(folder, name))
            os.close(file)
    for name in sorted(found):
        from importlib.metadata import Distribution

        package = Distribution.at(found[name])
        for point in package.entry_points.select(group=ENTRY_POINT):
            yield point.value.replace(" ", ""), package.metadata["Name"] or name, package.version or ""


def _load(path: str) -> Any:
    """The record at a dotted path. The working directory is last on `sys.path`, where it hides no module."""
    here = os.getcwd()
    if not any(each in ("", here) for each in sys.path):
        sys.path.append(here)
    return imported(path)


def _problem(record: Any) -> str:
    """Why a record is no field that can be used; "": it is one."""
    if not isinstance(record, Field):
        return f"it must be an embexp.fields.Field, but is of type {type(record).__name__}"
    if not (record.name and record.described):
        return "name and described must not be empty"
    for group in GROUPS:
        brought = getattr(record, group)
        if not isinstance(brought, Mapping):
            return f"{group} must be a dict, but is of type {type(brought).__name__}"
        for name, path in brought.items():
            place = path[1] if group == "commands" and isinstance(path, tuple) and len(path) == 2 else path
            if not (isinstance(place, str) and _PATH.fullmatch(place)):
                return f"{group}[{name!r}] must be a path such as package.module:object, but is {path!r}"
    return ""


def _clash(brought: Field, others: Iterable[Origin]) -> str:
    """The name that a field has in common with another one, or with the core, in a sentence; "": there is none."""
    for group in GROUPS:
        if names := sorted(CORE.get(group, frozenset()) & getattr(brought, group).keys()):
            return f"{group} has {names[0]!r}, a name that embexp already uses"
        for other in others:
            if names := sorted(getattr(other.field, group).keys() & getattr(brought, group).keys()):
                return f"{group} has {names[0]!r}, a name that the {other} already uses"
    same = next((other for other in others if other.field.name == brought.name), None)
    return "" if same is None else f"it has the same name as the {same}"


def shipped_configs() -> str:
    """The folder of YAML files that comes with embexp, as installed or in a checkout."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = os.path.join(package, "conf")
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(package), "conf")


def _shadowed(origin: Origin | None, others: Iterable[Origin]) -> str:
    """The YAML file of a field that is in another folder too, in a sentence; "": there is none."""
    if origin is None or not origin.field.configs:
        return ""
    if not os.path.isdir(origin.configs):
        return f"configs is {origin.field.configs!r}, but there is no folder {origin.configs}"
    folders = {shipped_configs(): "embexp"} | {each.configs: f"the {each}" for each in others if each.configs}
    for folder, _, names in os.walk(origin.configs):
        group = os.path.relpath(folder, origin.configs)
        for name in sorted(each for each in names if each.endswith(".yaml")):
            for other, whose in folders.items():
                if os.path.isfile(os.path.join(other, group, name)):
                    return f"it has a file {os.path.normpath(os.path.join(group, name))}, which {whose} already has"
    return ""


def origins() -> tuple[Origin, ...]:
    """All fields that are known, those of embexp first."""
    return (*(each for each in _installed() if each.path not in _broken), *_named.values())


def fields() -> tuple[Field, ...]:
    """The records of all fields that are known."""
    return tuple(each.field for each in origins())


def configs() -> list[str]:
    """The folders of YAML files of fields that embexp does not ship."""
    return [each.configs for each in origins() if each.is_own and each.configs]


def broken(path: str) -> str:
    """Why an installed field can't be used, in a sentence; "": it can, or there is none."""
    return _broken.get(path, "")


def named(path: str) -> Origin | None:
    """The field that a dotted path brings; None: none that is known."""
    return next((each for each in origins() if each.path == path), None)


def add(path: str) -> Origin:
    """Takes in the field at a dotted path, whose code may be run, for this process.

    Raises:
        ConfigError: it can't be imported, is no field, or brings a name that another one has.
    """
    if (known := named(path)) is not None:
        return known
    package = path.partition(":")[0].partition(".")[0]
    origin, rule = _checked(path, package, "", origins())
    if origin is None:
        raise ConfigError([_fault(path, rule)])
    _named[path] = replace(origin, version=str(getattr(sys.modules[package], "__version__", "")))
    _change()
    return _named[path]


def _fault(path: str, rule: str) -> Fault:
    return Fault("fields", repr(path), rule, f"change {path.partition(':')[0]}, or remove it from fields")


def refuse(origin: Origin, rule: str) -> None:
    """Takes out a field of which something can't be used that it names.

    Raises:
        ConfigError: a config has named it.
    """
    if origin.installed:
        _leave_out(origin.path, origin.package, rule)
        return
    _named.pop(origin.path, None)
    raise ConfigError([_fault(origin.path, rule)])


def remove(path: str) -> None:
    """Takes out a field that a config has named."""
    if _named.pop(path, None) is not None:
        _change()


def _change() -> None:
    find.cache_clear()
    for forget in on_change:
        forget()


def allow(paths: Iterable[str]) -> None:
    """Lets records name these paths, by the user's word, in this process."""
    _allowed.update(paths)


def take_in(paths: Iterable[str]) -> list[str]:
    """Takes in the fields that a record names; returns those whose code the user has not allowed, which are left out.

    Raises:
        ConfigError: see `add`.
    """
    missing = []
    for path in paths:
        if path in _allowed:
            add(path)
        elif named(path) is None:
            missing.append(path)
    return missing


def names(group: str) -> Iterator[str]:
    """The names of what all fields bring to a group, such as `tasks`."""
    return (name for each in fields() for name in getattr(each, group))


def imported(path: str) -> Any:
    """The object of a dotted path `module:object`."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def origin_of(group: str, name: str) -> Origin | None:
    """Where what has a name in a group comes from; None: no field brings it."""
    return next((each for each in origins() if name in getattr(each.field, group)), None)


def path_of(group: str, name: str) -> Any:
    """What a field says of a name in a group, such as its dotted path; None: no field brings it."""
    origin = origin_of(group, name)
    return None if origin is None else getattr(origin.field, group)[name]


@cache
def find(group: str, name: str) -> Any:
    """The object of a name in a group; None: no field brings it."""
    path = path_of(group, name)
    return None if path is None else imported(path)
