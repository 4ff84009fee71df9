"""From files and overrides to a checked `RunSpec`: composes, validates and applies every rule. No TensorFlow.

Faults are in the user's own words: values as typed, and remedies as overrides that can be typed instead.

A folder of configs may come from anybody. Its files choose where a run, a sweep, its search, the cache and a tracker
write, but not a hidden folder of the user's home, where programs keep what they start and trust; and what is outside of
the working directory is said.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict

from embexp.config import folders, hydra_globals, hydra_job, named_code, overrides, patterns, resources, validate
from embexp.config.folders import at
from embexp.config.hydra_globals import UnresolvedError, hydra_setting
from embexp.config.loader import Loader, Sources
from embexp.config.messages import Caller, as_override, format_value, in_quotes
from embexp.config.named_code import OWN_MODULES, Given, Permission
from embexp.config.patterns import Expansion
from embexp.errors import Code, CombinationFault, ConfigError, Fault, UsageError
from embexp.specs import arguments, claims, fields, run, tasks, tracking
from embexp.specs.run import RunSpec
from embexp.specs.running import Existing
from embexp.specs.transforms import in_short, replaced
from embexp.system import caching, environment
from embexp.system.printable import print
from embexp.system.stores import is_url

_OWN_LAUNCHER = "embexp"
_EXISTING = "output.existing"
_EXPECT = "expect"
CHANGEABLE = ("train.steps", "train.epochs", "output", "checkpoint", "tracking")
"""Settings of a recorded run that may change: its length, and those that change no result."""
RESUMED = "a run is resumed with the settings it began with"
_PATHS_OF_TABLES = (
    "pretrained.path",
    "pretrained.tokens_file",
    "pretrained.missing_neighbours",
    "pretrained.others",
    "pretrained.others.*.path",
    "pretrained.others.*.tokens_file",
    *(f"{rule}.{file}" for rule in ("freeze", "freeze.phases.*.rules.*") for file in ("tokens_file", "mask_file")),
)
_PATHS = (
    "data.path",
    *(f"data.path.{split}" for split in ("train", "validation", "test")),
    "output.cache",
    *(f"output.vectors.{kind}" for kind in ("similarity", "analogies", "categories")),
    "restore.path",
    "parent.path",
    *_PATHS_OF_TABLES,
    *(f"tables.*.{path}" for path in _PATHS_OF_TABLES),
    "tables.*.vocabulary.path",
)
"""Values that are paths, * for any key or place in a list. They are made absolute, so that a finished run can be loaded
from any directory."""
_OF_THE_APP = re.compile(r"\$\{(?!hydra[.:]|now:)")
"""An interpolation whose value may differ from job to job."""
RUN, SWEEP, CACHE = "hydra.run.dir", "hydra.sweep.dir", "output.cache"
_STORE, _STORAGE = "tracking.uri", "hydra.sweeper.storage"
EVERYWHERE = (CACHE, _STORE)
IN_RUNS, IN_SWEEPS = (RUN, *EVERYWHERE), (SWEEP, _STORAGE, *EVERYWHERE)
"""Settings that name a place, the directory of the run or the sweep first."""
_NAMES = {CACHE: "cache", _STORE: "tracker", _STORAGE: "search"}
_QUOTES = "\"'"
_READ_BY_ALL = re.compile(r"[-+]?(0|[1-9]\d*)?(\.\d*)?|true|false|null")
"""Texts that everybody reads as the value that they are."""


@dataclass(frozen=True)
class Composition:
    """A composed config.

    Attributes:
        compose: makes the config itself.
        write: makes it as plain values, see `hydra_job.written`; the caller may change them.
        container: plain dicts, lists and scalars with interpolations resolved; without `hydra` and without values that
            can't be resolved.
        choices: by `group` or `group@package`, without Hydra's own groups.
        sweep_directory: see `undated_sweep_directory`; "" if there are faults.
        added: keys that plain overrides added to those of the files.
    """

    compose: Callable[[], DictConfig]
    write: Callable[[], dict[str, Any]]
    container: dict[str, Any]
    choices: Mapping[str, str | None]
    launcher: str | None
    sweep_directory: str
    faults: tuple[Fault, ...]
    sources: Sources
    added: frozenset[str] = frozenset()
    permission: Permission = OWN_MODULES
    expansion: Expansion = field(default_factory=Expansion)

    @functools.cached_property
    def config(self) -> DictConfig:
        """The config with Hydra's own under `hydra`; the caller may change it."""
        return self.compose()


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        impossible: settings that are valid, but can't be combined; a sweep skips the job.
    """

    spec: RunSpec
    composition: Composition
    impossible: tuple[CombinationFault, ...] = ()


def compose(
    overrides: Sequence[str] = (), *, config_dir: str | Path | None = None, allow_code: Sequence[str] = ()
) -> RunSpec:
    """Composes and checks the spec of a run, as `embexp run OVERRIDES` does.

    Args:
        overrides: such as `["experiment=movielens", "data.path=ml-100k"]`.
        config_dir: a folder with the user's own configs.
        allow_code: functions outside the user's own modules that the config may name, such as `["keras:Model"]`.

    Raises:
        ConfigError: lists all faults. A Hydra setting, such as `hydra.run.dir`, is a fault.
        UsageError: `overrides` is not a list of strings, or `config_dir` is not a folder.
    """
    texts = arguments.overrides(overrides, "embexp.compose")
    folder = None if config_dir is None else arguments.directory(config_dir, "embexp.compose")
    allowed = arguments.allowed_code(allow_code, "embexp.compose")
    return job(
        loader(folder, permission=Permission(frozenset(allowed), caller=Caller.PYTHON), overrides=texts),
        texts,
        in_python=True,
    ).spec


def spec_of(cfg: DictConfig, *, without: Sequence[str] = (), allow_code: Sequence[str] = ()) -> RunSpec:
    """The spec of a config that Hydra composed in a `@hydra.main` app or with `hydra.compose`.

    The config is checked against every rule, as in `embexp.compose`. Relative paths start from the directory in which
    the app was started, even with `hydra.job.chdir=true`.

    Args:
        cfg: composed from embexp's groups (`pkg://embexp.conf`); interpolations are resolved.
        without: top-level keys of `cfg` that belong to the app rather than to embexp.
        allow_code: functions outside the user's own modules that the config may name, such as `["keras:Model"]`.

    Raises:
        UsageError: `cfg` is not a DictConfig, or lacks a key of `without`.
        ConfigError: with all faults.
    """
    if not isinstance(cfg, DictConfig):
        remedy = "use embexp.compose for overrides, or embexp.RunSpec.model_validate for a plain mapping"
        raise UsageError(f"embexp.spec_of takes a DictConfig of Hydra, not {type(cfg).__name__}; {remedy}")
    own = arguments.overrides(without, "embexp.spec_of(without=…)") if without else []
    allowed = arguments.allowed_code(allow_code, "embexp.spec_of")
    if missing := [key for key in own if key not in cfg]:
        raise UsageError(f"embexp.spec_of: without names {', '.join(missing)}, which the config does not have")
    hydra_globals.check_interpolations(cfg)
    folder = hydra_globals.started_in()
    permission = Permission(frozenset(allowed), caller=Caller.PYTHON)
    of_resolvers = list(named_code.resolver_faults(cfg, permission))
    with hydra_globals.resolving(secrets=True), hydra_globals.own_resolvers(cfg):
        container, before = _resolved(cfg, folder, own)
    before = [*of_resolvers, *before]
    expansion = patterns.expand(container, lambda: resources.data_columns(container))
    before += expansion.faults
    spec, faults = check_container(container, permission, before, unknown=expansion.unknown)
    if spec is None or before or faults:
        raise ConfigError([*before, *patterns.folded(faults, expansion.origins)])
    return spec


def loader(
    config_dir: str | Path | None = None,
    config_name: str = "config",
    config_path: str | None = None,
    *,
    permission: Permission = OWN_MODULES,
    overrides: Sequence[str] = (),
) -> Loader:
    """A loader that composes configs from the shipped folder, or the one that replaces it, the user's, and fields'.

    Args:
        overrides: with which it will compose, which may name fields.
    """
    fields.tell_by(lambda sentence: warnings.warn(sentence, RuntimeWarning, stacklevel=2))
    found = folders.find(None if config_dir is None else Path(config_dir), config_path=config_path)
    allowed = replace(permission, folders=tuple(found.in_order))
    found = folders.take_in_fields(found, config_name, overrides, allowed.refusal, allowed.remedy)
    return Loader(found, config_name, permission)


def job(loader: Loader, texts: Sequence[str], *, look_at_data: bool = True, in_python: bool = False) -> Job:
    """Composes and checks one run that can be started.

    Args:
        in_python: whether the caller has no settings of Hydra.

    Raises:
        ConfigError: with all faults.
    """
    parsed, _ = overrides.parse(loader, texts)
    if in_python:  # where the later of two counts
        faults, twice = list(hydra_job.not_in_python(parsed)), []
    else:
        faults, twice = list(hydra_job.without_effect(parsed, multirun=False)), list(overrides.repeated(parsed))
    try:
        places = EVERYWHERE if in_python else IN_RUNS
        found = candidate(loader, texts, look_at_data=look_at_data, places=places)
    except ConfigError as error:
        reported = {fault.path for fault in error.faults}
        raise ConfigError([*twice, *error.faults, *(fault for fault in faults if fault.path not in reported)]) from None
    faults = [*twice, *found.impossible, *faults]
    if found.spec.seeds > 1:
        rule = "it repeats the settings of a sweep, but this is a single run"
        faults.append(
            Fault("seeds", str(found.spec.seeds), rule, f"{loader.permission.caller.each} once for each, or set seed")
        )
    if faults:
        raise ConfigError(faults)
    return found


def candidate(
    loader: Loader, texts: Sequence[str], *, look_at_data: bool = True, places: Sequence[str] = EVERYWHERE
) -> Job:
    """Composes and checks one run whose settings may be impossible to combine: see `Job.impossible`.

    Args:
        places: settings that name where something is written, see `faults_of_places`.

    Raises:
        ConfigError: with all faults, if any is not a `CombinationFault`.
    """
    return checked(compose_config(loader, texts), look_at_data=look_at_data, places=places)


def checked(composition: Composition, *, look_at_data: bool = True, places: Sequence[str] = EVERYWHERE) -> Job:
    """The run of a composed config; arguments and errors are those of `candidate`."""
    spec, faults = check(composition, look_at_data=look_at_data, places=places)
    impossible = tuple(fault for fault in faults if isinstance(fault, CombinationFault))
    if spec is None or len(impossible) < len(faults):
        raise ConfigError(faults)
    return Job(spec, composition, impossible)


def check(
    composition: Composition, *, look_at_data: bool = True, places: Sequence[str] = EVERYWHERE
) -> tuple[RunSpec | None, list[Fault]]:
    """Validates a composed config and checks it against every rule.

    Returns:
        The spec, or None if the config is invalid, and all faults, including those of composing.
    """
    _report_old_name(str(composition.container.get("task")))
    spec, faults = check_container(
        composition.container,
        composition.permission,
        composition.faults,
        look_at_data=look_at_data,
        here=composition.launcher == _OWN_LAUNCHER,  # another one may have a machine with more memory
        unknown=composition.expansion.unknown,
    )
    if spec is not None and spec.output.existing is Existing.REPLACE and not _is_overridden(composition, _EXISTING):
        rule = "a config file can't ask for a run to be deleted; only the command line can"
        faults.append(Fault(_EXISTING, "replace", rule, f"add {_EXISTING}=replace to the command line"))
    faults = [*faults, *faults_of_places(composition, *places)]
    faults = patterns.folded(_kinds_reported_once(faults, composition), composition.expansion.origins)
    return spec, [*composition.faults, *completed(faults, composition.container, composition.sources)]


def _is_overridden(composition: Composition, path: str) -> bool:
    """Whether an override sets a value, and not a file."""
    return any(
        path == each.key_or_group or path.startswith(f"{each.key_or_group}.") for each in composition.sources.values
    )


@functools.cache
def _report_old_name(task: str) -> None:
    """Says once what a task is called now."""
    if (new := tasks.RENAMED.get(task)) is not None:
        print(f"task={task} is called task={new} since 0.2.0", file=sys.stderr)


def _kinds_reported_once(faults: list[Fault], composition: Composition) -> list[Fault]:
    """One fault for a kind set without its file, instead of one for each key that the file of another kind has."""
    made = composition.choices
    faults = [_with_file(fault, composition.sources, made) for fault in faults]
    for override in composition.sources.values:
        place, _, last = override.key_or_group.rpartition(".")
        strange = [
            each for each in faults if each.path.startswith(f"{place}.") and each.code is Code.KEY_OF_ANOTHER_KIND
        ]
        if last == "kind" and strange:
            group = next((each for each in made if each.rpartition("@")[2] == place), place)
            rule = f"the file chosen for {place} has the keys of a different kind"
            remedy = f"choose {group}={override.value()}"
            fix = (override.key_or_group, f"{group}={override.value()}")
            fault = Fault(override.key_or_group, format_value(override.value()), rule, remedy, fix=fix)
            faults = [fault, *(each for each in faults if each not in strange)]
    return faults


def _with_file(fault: Fault, sources: Sources, made: Mapping[str, str | None]) -> Fault:
    """The fault of a kind that an override misspells, with the file of the kind that was meant, whose keys it needs."""
    override, place = sources.override(fault.path), fault.path.rpartition(".")[0]
    group = next((each for each in made if each.rpartition("@")[2] == place), None)
    if fault.code is not Code.UNKNOWN_KIND or override is None or group is None or not fault.fix:
        return fault
    chosen = f"{group}={fault.fix[0].partition('=')[2]}"
    fix = (override.key_or_group, chosen)
    return replace(fault, remedy=f"{fault.remedy} Choose its file: {chosen}", fix=fix)


def check_container(
    container: Mapping[str, Any],
    permission: Permission,
    before: Sequence[Fault] = (),
    *,
    look_at_data: bool = True,
    here: bool = True,
    unknown: Sequence[str] = (),
) -> tuple[RunSpec | None, list[Fault]]:
    """Checks a config as plain values, such as that of a spec which Python code may have changed without a check.

    Args:
        before: faults found so far, whose paths are not reported again.
        unknown: paths of what is not known because of faults.

    Returns:
        The spec, or None if the config is invalid, and all other faults, without their sources.
    """
    container = _written_out(container)
    reported = {fault.path for fault in before} | set(unknown)
    named = [*resources.name_faults(container), *hydra_job.secret_faults(container)]
    named = [fault for fault in named if fault.path not in reported]
    reported |= {fault.path for fault in named}
    spec, faults = validate.validate(container, reported=reported)
    known = spec if spec is not None and not reported else validate.partial_spec(container, reported)
    here = here and look_at_data
    between = list(run.rule_faults(known))
    fetch = not (reported or faults or between)  # nothing is downloaded for a run that can't be started
    between += resources.faults(known, permission, look_at_data=look_at_data, here=here, fetch=fetch)
    reported |= {fault.path for fault in faults}
    return spec, [*named, *faults, *(fault for fault in between if fault.path not in reported)]


def _written_out(container: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the transforms of pretrained files, and what it claims, written out.

    Says once what `project` is called now.
    """

    def changed(holder: Any, path: str) -> Any:
        if not isinstance(holder, Mapping) or not isinstance(before := holder.get("pretrained"), Mapping):
            return holder
        after = replaced(before)
        if "project" in before and "project" not in after:
            _report_transform(path, before["project"], in_short(after["transform"]))
        return {**holder, "pretrained": after}

    found = dict(changed(container, "pretrained"))
    if _EXPECT in found:
        found[_EXPECT] = claims.nested(found[_EXPECT])
    if isinstance(tables := found.get("tables"), Mapping):
        found["tables"] = {name: changed(table, f"tables.{name}.pretrained") for name, table in tables.items()}
    return found


@functools.cache
def _report_transform(path: str, project: str, steps: str) -> None:
    """Says once what a projection is called now."""
    print(f"{path}.project={project} is called {path}.transform={steps} since 0.2.0", file=sys.stderr)


def changed_spec(recorded: dict[str, Any], texts: Sequence[str], loader: Loader, *, rule: str = RESUMED) -> RunSpec:
    """A recorded spec with overrides such as `train.epochs=40`.

    Args:
        recorded: the spec as plain values, which are changed.
        rule: why other settings can't change, for the error message.

    Raises:
        ConfigError: with all faults; an override of anything that decides the results before the resumption is one.
    """
    parsed, faults = overrides.parse(loader, texts)
    for override in parsed:
        path, value = override.key_or_group, override.value()
        if any(path == each or path.startswith(f"{each}.") for each in CHANGEABLE):
            *parents, last = path.split(".")
            node = recorded
            for key in parents:  # what is no mapping on the way becomes one, so that validation reports the path
                if not isinstance(node.get(key), dict):
                    node[key] = {}
                node = node[key]
            node[last] = value
        else:
            was = "" if (known := at(recorded, path)) is None else f" (it is {format_value(known)})"
            remedy = f"only {', '.join(CHANGEABLE)} can change; start a new run for anything else"
            faults.append(Fault(path, format_value(value), f"{rule}{was}", remedy))
    if faults:
        raise ConfigError(faults)
    changed, faults = validate.validate(recorded)
    if changed is not None:
        faults += run.rule_faults(changed)
    if changed is None or faults:
        raise ConfigError(validate.with_sources(faults, lambda path: "an override"))
    return changed


def compose_config(loader: Loader, texts: Sequence[str]) -> Composition:
    """Composes a config with all overrides that can be applied; the others become faults.

    Raises:
        ConfigError: the files can't be composed at all.
    """
    parsed, faults = overrides.parse(loader, texts)
    chosen = [each for each in parsed if overrides.is_selection(loader.folders, each)]
    config, selections, rejected = overrides.select(loader, overrides.with_additions(loader, chosen))
    lifted = overrides.lift(loader, selections, config)
    _nest_claims(config)
    faults += [*rejected, *lifted.values()]
    applied: list[Override] = []
    added: set[str] = set()

    def apply(override: Override, expansion: Expansion) -> None:
        key = override.key_or_group
        prefixed = override.is_add() or override.is_force_add() or override.is_delete()
        new = not prefixed and (not overrides.is_present(config, key) or expansion.made(key))
        if (fault := overrides.set_value(loader.folders, override, config)) is not None:
            faults.append(fault)
            return
        applied.append(override)
        added.update([key] if new else [])

    rest = [each for each in parsed if each not in chosen]
    for override in filter(_names_resolver, rest):  # which the columns of the data may need
        apply(override, Expansion())
    rest = [each for each in rest if not _names_resolver(each)]
    of_resolvers = list(named_code.resolver_faults(config, loader.permission))
    for override in filter(_of_data, rest):  # whose columns patterns match
        apply(override, Expansion())
    expansion = _expand(config)
    for override in itertools.filterfalse(_of_data, rest):
        apply(override, expansion)
    applied.sort(key=parsed.index)
    hydra_job.note_overrides([each for each in parsed if each in selections or each in applied], config.hydra)

    sources = Sources(loader, selections, applied, lifted, expansion.origins)
    hydra_globals.check_interpolations(config)
    found = [*of_resolvers, *_hydra_faults(loader, selections, config), *expansion.faults]
    with hydra_globals.resolving(config):
        container, unresolved = _resolved(config, Path.cwd())
    faults += validate.with_sources([*found, *unresolved], sources.describe)
    return Composition(
        lambda: config,
        lambda: hydra_job.written(config),
        container,
        overrides.choices(config),
        config.hydra.runtime.choices.get("hydra/launcher"),
        "" if faults else hydra_job.undated_sweep_directory(config),
        tuple(faults),
        sources,
        frozenset(added),
        loader.permission,
        expansion,
    )


def _hydra_faults(loader: Loader, selections: Sequence[Override], config: DictConfig) -> Sequence[Fault]:
    """The faults of the node `hydra`, which most jobs of a sweep have in common."""
    key = tuple(str(selection.input_line) for selection in selections)
    if key in loader.hydra_faults:
        return loader.hydra_faults[key]
    in_files, ignored = overrides.hydra_in_files(loader, selections)
    found = [*hydra_job.node_faults(config, in_files, loader.permission), *ignored]
    served = [f"hydra.{node}.{key}" for node in ("launcher", "sweeper") for key in config.hydra[node] or ()]
    for path in (*hydra_job.DIRECTORIES[:2], *served):  # that of a job is resolved once its number is known
        try:
            hydra_globals.hydra_setting(config, path, secrets=False)
        except UnresolvedError as error:
            found += error.faults
    written: Any = OmegaConf.to_container(config.hydra, resolve=False)
    if not any(_OF_THE_APP.search(str(written.get(kind))) for kind in (*named_code.NODES[1:], "run", "sweep")):
        loader.hydra_faults[key] = tuple(found)
    return found


def _nest_claims(config: DictConfig) -> None:
    """Has `expect` of files by split and metric, so that an override names a part of it: `expect.test.auc.within`."""
    if OmegaConf.is_dict(written := config.get(_EXPECT)) and any("." in str(key) for key in written):
        with open_dict(config):
            config[_EXPECT] = claims.nested(OmegaConf.to_container(written))


def _names_resolver(override: Override) -> bool:
    """Whether an override is about the resolvers that values may need."""
    return override.key_or_group.partition(".")[0] == "resolvers"


def _of_data(override: Override) -> bool:
    """Whether an override is about the data, but not about a column by its name."""
    key = override.key_or_group
    return key.partition(".")[0] == "data" and not key.startswith(f"data.{patterns.DENSE}.")


def _expand(config: DictConfig) -> Expansion:
    """Replaces the patterns of a composed config by what they stand for, in place."""
    places = ("data", *patterns.PLACES)
    written = {key: OmegaConf.to_container(config[key]) for key in places if OmegaConf.is_dict(config.get(key))}
    before = copy.deepcopy(written)

    def columns() -> Sequence[str]:
        hydra_globals.check_interpolations(config)
        with hydra_globals.resolving(config):
            container, _ = _resolved(config, Path.cwd())
        return resources.data_columns(container)

    done = patterns.expand(written, columns)
    if written != before:
        with open_dict(config):
            for place, content in written.items():
                config[place] = content
    return done


def _resolved(config: DictConfig, folder: Path, without: Sequence[str] = ()) -> tuple[dict[str, Any], list[Fault]]:
    """A config as plain dicts, lists and scalars, and the faults of values that can't be resolved.

    Args:
        folder: from which relative paths start.
        without: keys at its top to leave out, as `hydra`.
    """
    faults: list[Fault] = []
    with hydra_globals.noting_variables() as read:
        found = hydra_globals.plain(config, config, "", faults)
    container = {str(key): value for key, value in found.items() if key not in without}
    if "environment" in container:
        rule = "here a run records which environment variables its config read"
        faults.append(Fault("environment", format_value(container.pop("environment")), rule, "leave it out"))
    container |= {"environment": _variables(read)} if read else {}
    twice = resources.fill_path(container)
    if resources.name_of(container.get("data")) is not None:
        faults = [*twice, *(fault for fault in faults if fault.path != "data.path")]
    absolute_paths(container, folder)
    return container, [fault for fault in faults if fault.path.partition(".")[0] not in without]


def _variables(read: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What a spec records of the environment variables that values came from."""
    return {
        name: {"value": environment.fingerprint(name), "keys": list(dict.fromkeys(keys))}
        for name, keys in sorted(read.items())
    }


def absolute_paths(container: dict[str, Any], folder: Path) -> None:
    """Makes all paths of a plain config absolute, in place, those that are relative from a folder."""
    for path in _PATHS:
        _make_absolute(container, path.split("."), folder)


def _make_absolute(section: Any, path: Sequence[str], folder: Path) -> None:
    key, *rest = path
    if key == "*" and isinstance(section, dict | list):
        for inner in section.values() if isinstance(section, dict) else section:
            _make_absolute(inner, rest, folder)
    elif not isinstance(section, dict) or key not in section:
        return
    elif rest:
        _make_absolute(section[key], rest, folder)
    elif isinstance(section[key], list):
        section[key] = [_absolute(each, folder) for each in section[key]]
    else:
        section[key] = _absolute(section[key], folder)


def _absolute(path: Any, folder: Path) -> Any:
    if not isinstance(path, str) or not path or is_url(path):
        return path
    return os.path.abspath(folder / os.path.expanduser(path))


def completed(faults: Iterable[Fault], container: Mapping[str, Any], sources: Sources) -> list[Fault]:
    """The faults with the source of their values, values as typed, and remedies for where they were typed.

    Args:
        container: the config as plain values.
    """
    return [_completed(each, at(container, each.path), sources) for each in faults]


def _completed(fault: Fault, value: Any, sources: Sources) -> Fault:
    path, written, override = fault.path, sources.written(fault.path), sources.override(fault.path)
    fault = replace(fault, source=fault.source or sources.describe(path))
    if written and fault.value == format_value(value) and not isinstance(value, Mapping | list):
        fault = replace(fault, value=_as_typed(written, value))
    if fault.code is Code.NOT_TEXT and "${" in written:
        return replace(fault, remedy="make it refer to a text")
    if fault.code is Code.TEXT_OF_NUMBER and "${" in written:
        decoded = f"${{oc.decode:{written.strip(_QUOTES)}}}"
        fix = (f"{path}={in_quotes(decoded)}",)
        return replace(fault, remedy=f"write {decoded if override is None else sources.caller.typed(fix)}", fix=fix)
    alone = override.key_or_group == path if override is not None else not path.rpartition(".")[2].isdecimal()
    if fault.code is Code.NOT_TEXT and (value is not None or not alone):  # a null that stands alone is meant as one
        meant = in_quotes(written or format_value(value))
        fix = (f"{path}={meant}",)
        if override is None or not alone:
            return replace(fault, remedy=f"put it in quotes: {meant}", fix=fix if alone else ())
        shell = ", within those for the shell" if sources.caller is Caller.COMMAND_LINE else ""
        return replace(fault, remedy=f"put it in quotes{shell}: {sources.caller.typed(fix)}", fix=fix)
    inside = "" if override is None else f"{override.key_or_group}."  # what sets it is to be written as a whole
    if any(inside and line.lstrip("+~").startswith(inside) for line in fault.fix):
        return replace(fault, fix=())
    return fault


def _as_typed(written: str, value: Any) -> str:
    """A value as it is written, with what was read if that is not plain: `1_1_1 (read as 111)`."""
    if (isinstance(value, str) and "${" not in written) or written == format_value(value):
        return format_value(value)
    return written if _READ_BY_ALL.fullmatch(written) else f"{written} (read as {format_value(value)})"


@dataclass(frozen=True)
class Place:
    """A folder or a file outside of the working directory, or hidden in the user's home, that a file has written.

    Attributes:
        key: the setting that names it.
        text: its value.
        path: absolute.
        source: the file that sets it.
    """

    key: str
    text: str
    path: Path
    source: str


def places(composed: Composition, *keys: str) -> Iterator[Place]:
    """The places elsewhere that the files of a config name; what can't be resolved is a fault of its own.

    Args:
        *keys: the settings to look at, of `IN_RUNS` and `IN_SWEEPS`.
    """
    for key in keys:
        if key.startswith("hydra."):
            # Of a job that is a copy, `config` takes longer than all else: it is asked for only where it is looked at.
            text, is_given = None, key in Given(composed.config, composed.permission)
            with contextlib.suppress(UnresolvedError):
                text = hydra_setting(composed.config, key, secrets=False)
        else:
            text, is_given = at(composed.container, key), composed.sources.override(key) is not None
        if is_given or not isinstance(text, str) or not text or (path := _path(key, text)) is None:
            continue
        if not _whole(path).is_relative_to(_whole(Path.cwd())) or _is_hidden(path):
            yield Place(key, text, path, composed.sources.describe(key) or "a file")


def faults_of_places(composed: Composition, *keys: str) -> Iterator[Fault]:
    """The hidden folders of the home that files would have written."""
    for place in places(composed, *keys):
        if _is_hidden(place.path):
            rule = "a config file sets it to a hidden folder of your home directory; only the command line may do that"
            again = composed.permission.caller.typed([f"{place.key}={as_override(place.text)}"])
            remedy = f"choose another path, or set this one on the command line: {again}"
            yield Fault(place.key, str(place.path), rule, remedy, place.source)


def elsewhere(composed: Composition, keys: Sequence[str]) -> str:
    """What to add to the line that says where a run or a sweep is: the places that files put elsewhere.

    Args:
        keys: `IN_RUNS` or `IN_SWEEPS`.
    """
    found = ""
    for place in places(composed, *keys):
        found += f"{'' if place.key == keys[0] else f'; {_NAMES[place.key]} in {place.path}'}, set in {place.source}"
    return found


def _is_hidden(path: Path) -> bool:
    """Whether a path is in a hidden folder of the home: none that the working directory is in, nor embexp's cache."""
    if _whole(path).is_relative_to(_whole(caching.cache_folder(None))):
        return False
    with contextlib.suppress(RuntimeError):  # there is no home
        for home in (Path.home(), _whole(Path.home())):
            for each in (path, _whole(path)):
                first = each.relative_to(home).parts[:1] if each.is_relative_to(home) else ()
                if "".join(first).startswith(".") and not _whole(Path.cwd()).is_relative_to(_whole(home / first[0])):
                    return True
    return False


def _path(key: str, text: str) -> Path | None:
    """The path of a value; None: it is no file."""
    if key == _STORE:
        return tracking.local_path(tracking.absolute(text))
    if key == _STORAGE and "://" in text:
        return tracking.local_path(text)
    return Path(os.path.abspath(os.path.expanduser(text)))


def _whole(path: Path) -> Path:
    return Path(os.path.realpath(path))
