"""What the files of a config may set of the process: environment variables and Python's loggers, by allow lists.

A folder of configs may come from anybody. What its files set decides neither which code is run nor which files and
addresses the process uses; what the user gives on the command line may. Imports nothing that is named.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from embexp.config.permission import Permission
from embexp.config.shown import shown
from embexp.errors import Fault

_VARIABLES = re.compile(
    r"(OMP|MKL|MKL_DOMAIN|OPENBLAS|BLIS|NUMEXPR)_NUM_THREADS|(VECLIB_MAXIMUM|NUMEXPR_MAX)_THREADS"
    r"|TF_NUM_(INTRA|INTER)OP_THREADS|TF_GPU_THREAD_(MODE|COUNT)"
    r"|OMP_(THREAD_LIMIT|DYNAMIC|NESTED|MAX_ACTIVE_LEVELS|PROC_BIND|PLACES|SCHEDULE|WAIT_POLICY|DISPLAY_ENV)"
    r"|GOMP_(CPU_AFFINITY|SPINCOUNT)|KMP_(AFFINITY|BLOCKTIME|HW_SUBSET|SETTINGS)"
    r"|MKL_(DYNAMIC|CBWR|ENABLE_INSTRUCTIONS)|OPENBLAS_CORETYPE"
    r"|(CUDA|NVIDIA|HIP|ROCR|TPU)_VISIBLE_DEVICES|TPU_VISIBLE_CHIPS|CUDA_(DEVICE_ORDER|LAUNCH_BLOCKING)"
    r"|NVIDIA_TF32_OVERRIDE|CUBLAS_WORKSPACE_CONFIG|TF_GPU_(ALLOCATOR|HOST_MEM_LIMIT_IN_MB)|TF_FORCE_GPU_ALLOW_GROWTH"
    r"|TF_DETERMINISTIC_OPS|TF_CUDNN_(DETERMINISTIC|USE_AUTOTUNE|USE_FRONTEND)"
    r"|TF_ENABLE_ONEDNN_OPTS|TF_SET_ONEDNN_FPMATH_MODE|ONEDNN_DEFAULT_FPMATH_MODE|(ONEDNN|DNNL)_(MAX_CPU_ISA|VERBOSE)"
    r"|TF_CPP_(MIN_LOG_LEVEL|MIN_VLOG_LEVEL|MAX_VLOG_LEVEL|VMODULE)|ABSL_MIN_LOG_LEVEL|(GRPC|AUTOGRAPH)_VERBOSITY"
)
"""Numbers of threads, visible devices, kernels and log levels. None is a path, an address or a switch for code."""
_OWN_VARIABLE = re.compile(r"EMBEXP_\w+")
"""Variables for the user's own model; those that embexp reads itself are not among them."""
_READ_BY_EMBEXP = frozenset({"EMBEXP_DATA", "EMBEXP_PARENT", "EMBEXP_ISOLATED_BY"})
_STREAMS = ("ext://sys.stdout", "ext://sys.stderr")
_OF_HANDLERS = frozenset({"class", "()", "level", "formatter", "filters"})
_OF_FILES = frozenset({"filename", "mode", "encoding", "delay", "errors"})
_HANDLERS = {
    "logging.StreamHandler": frozenset({"stream"}),
    "logging.NullHandler": frozenset[str](),
    "logging.FileHandler": _OF_FILES,
    "logging.handlers.WatchedFileHandler": _OF_FILES,
    "logging.handlers.RotatingFileHandler": _OF_FILES | {"maxBytes", "backupCount"},
    "logging.handlers.TimedRotatingFileHandler": _OF_FILES | {"when", "interval", "backupCount", "utc"},
    "logging.handlers.MemoryHandler": frozenset({"capacity", "flushLevel", "target", "flushOnClose"}),
    "rich.logging.RichHandler": frozenset(
        {"show_time", "omit_repeated_times", "show_level", "show_path", "enable_link_path", "markup", "keywords"}
        | {"log_time_format", "rich_tracebacks", "tracebacks_width", "tracebacks_extra_lines", "tracebacks_max_frames"}
    ),
}
"""Handlers that write to the terminal or to a file, with their own keys."""
_OF_FORMATTERS = frozenset({"class", "()", "format", "fmt", "datefmt", "style", "validate", "defaults"})
_OF_COLORLOG = frozenset({"log_colors", "secondary_log_colors", "reset", "no_color", "force_color"})
_FORMATTERS = {
    "logging.Formatter": frozenset[str](),
    "colorlog.ColoredFormatter": _OF_COLORLOG,
    "colorlog.formatter.ColoredFormatter": _OF_COLORLOG,
}
_FILTERS = {"logging.Filter": frozenset({"name"})}
_OF_PYTHON = re.compile(r"logging(\.handlers)?\.\w*(Handler|Formatter|Filter)|rich\.logging\.RichHandler|colorlog\.\w+")
"""Classes for logs. Those that are not listed above send over a network, or are given code to call: see `QueueHandler`
in `logging.config` of Python 3.12."""
_CALLED = ("queue", "listener")
"""Keys of a `QueueHandler` and its subclasses whose value `logging.config` imports and calls, since Python 3.12."""
_SECTIONS = {
    "handlers": (_HANDLERS, _OF_HANDLERS, ""),
    "formatters": (_FORMATTERS, _OF_FORMATTERS, "logging.Formatter"),
    "filters": (_FILTERS, frozenset({"class", "()"}), "logging.Filter"),
}
"""Of each, the classes with their own keys, the keys of all of them, and the class that needs no name."""
_EXTERNAL = re.compile(r"(ext|cfg)://(.*)", re.DOTALL)
"""Texts that `logging.config` replaces, at any place: by an object of a module, or by another part of the config."""

Code = Callable[[str, str], Iterator[Fault]]
"""The faults of a path whose value names code: path and dotted name."""


class Given:
    """The settings of the node `hydra` that the user gave on the command line; all others come from files."""

    def __init__(self, config: DictConfig, permission: Permission) -> None:
        """Reads nothing yet.

        Args:
            config: composed, with the overrides that Hydra records.
            permission: whether these are the user's: those of a recorded config are anybody's.
        """
        self._texts = OmegaConf.to_container(config.hydra.overrides.hydra) if permission.own else []
        self._paths: list[str] | None = None

    def __contains__(self, path: str) -> bool:
        if self._paths is None:
            self._paths = []
            for override in OverridesParser.create().parse_overrides([str(each) for each in self._texts or ()]):
                if "/" not in override.key_or_group:  # a choice: its values are those of a file
                    self._paths += _leaves(override.value(), override.key_or_group)
        return any(path == each or path.startswith(f"{each}.") for each in self._paths)


def _leaves(value: Any, path: str) -> Iterator[str]:
    """The paths of what an override sets: a mapping is merged with that of the files, all else replaces it."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}")
    else:
        yield path


def is_harmless(variable: str) -> bool:
    """Whether a file may set an environment variable: it can't load code, nor name a path or an address."""
    own = _OWN_VARIABLE.fullmatch(variable) is not None and variable not in _READ_BY_EMBEXP
    return own or _VARIABLES.fullmatch(variable) is not None


def variable_faults(variables: Any, path: str, given: Given) -> Iterator[Fault]:
    """The faults of environment variables that files set.

    Args:
        variables: the mapping `env_set`.
        path: of that, in the config.
        given: what the user gave.
    """
    for name, value in variables.items() if isinstance(variables, Mapping) else ():
        place = f"{path}.{name}"
        if not is_harmless(str(name)) and place not in given:
            rule = (
                "a file sets only numbers of threads, visible devices, log levels and EMBEXP_…, as other variables may"
                " load code or redirect files and connections"
            )
            yield Fault(place, shown(value), rule, f"if you want it, give it on the command line: {place}=VALUE")


@dataclass(frozen=True)
class Loggers:
    """A check of a configuration of Python's loggers, as `logging.config.dictConfig` takes it.

    Attributes:
        path: of the configuration, such as `hydra.job_logging`.
        given: what the user gave.
        folder: in which the files of logs may be.
        code: the faults of a name of code, which the lists don't have.
    """

    path: str
    given: Given
    folder: str
    code: Code

    def faults(self, node: Mapping[Any, Any]) -> Iterator[Fault]:
        """The faults of a configuration, with interpolations resolved."""
        for section, (classes, keys, unnamed) in _SECTIONS.items():
            entries = node.get(section)
            for name, entry in entries.items() if isinstance(entries, Mapping) else ():
                if isinstance(entry, Mapping):
                    named = {key: str(entry[key]) for key in ("class", "()") if entry.get(key) is not None}
                    place = f"{self.path}.{section}.{name}"
                    for key, target in named.items():
                        yield from self._class(f"{place}.{key}", target, classes)
                    targets = list(named.values()) or [unnamed]
                    own = not any(_OF_PYTHON.fullmatch(each) for each in targets)  # its keys are its own
                    known = keys.union(*(classes.get(each, ()) for each in targets))
                    yield from self._keys(entry, place, None if own else known)
        yield from self._external(node, self.path)

    def _keys(self, entry: Mapping[Any, Any], path: str, known: Collection[str] | None) -> Iterator[Fault]:
        """The faults of the keys of a handler, a formatter or a filter; `known`: which there may be, None: any."""
        for key, value in entry.items():
            place = f"{path}.{key}"
            if key in _CALLED:
                yield from self._called(value, place)
            elif place in self.given:
                continue
            elif key == "." or not (known is None or key in known):
                listed = ", ".join(sorted(each for each in known or () if each != "()"))
                yield _refused(place, value, f"files set only {listed or 'arguments of the class'} here")
            elif key == "filename" and not self._is_inside(value):
                folder = "hydra.runtime.output_dir" if self.path == "hydra.job_logging" else "hydra.sweep.dir"
                yield _refused(place, value, f"a file of logs must be in the directory of the run, ${{{folder}}}")
            elif key in ("format", "fmt") and entry.get("style") == "{" and _looks_inside(str(value)):
                yield _refused(place, value, "it must name no attribute or item of a value, as these may hold secrets")

    def _class(self, path: str, target: str, classes: Iterable[str]) -> Iterator[Fault]:
        """The faults of a class that files can't name just so."""
        if target in classes:
            return
        if not _OF_PYTHON.fullmatch(target):
            yield from self.code(path, target)
        elif path not in self.given:
            yield _refused(path, target, f"files name only {', '.join(classes)}, or a class of your own modules")

    def _called(self, value: Any, path: str) -> Iterator[Fault]:
        if isinstance(value, str) and not _EXTERNAL.match(value):
            yield from self.code(path, value)
        elif isinstance(value, Mapping):
            yield from self.code(f"{path}.()", str(value.get("()")))

    def _external(self, node: Any, path: str) -> Iterator[Fault]:
        for key, value in node.items() if isinstance(node, Mapping) else enumerate(node):
            place = f"{path}.{key}"
            if isinstance(value, str):
                found = _EXTERNAL.match(value)
                if found is None or value in _STREAMS:
                    continue
                if place not in self.given:
                    yield _refused(place, value, f"files refer only to {' and '.join(_STREAMS)}")
                elif found[1] == "ext":
                    yield from self.code(place, found[2])
            elif isinstance(value, Mapping | list):
                yield from self._external(value, place)

    def _is_inside(self, value: Any) -> bool:
        return os.path.realpath(str(value)).startswith(f"{os.path.realpath(self.folder)}{os.sep}")


def _refused(path: str, value: Any, rule: str) -> Fault:
    return Fault(path, shown(value), rule, f"if you want it, give it on the command line: {path}=VALUE")


def _looks_inside(text: str) -> bool:
    """Whether a format such as `{levelname:8}` takes an attribute or an item of a value."""
    try:
        fields = [(name or "", form or "") for _, name, form, _ in string.Formatter().parse(text)]
    except ValueError:  # which logging tells
        return False
    return any("." in name or "[" in name or _looks_inside(form) for name, form in fields)
