"""Composes the config of some choices; if that fails, finds the choices that can't be made, and why."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigTypeError

from embexp.config import broken_files, hydra_checks
from embexp.config.folders import Folders
from embexp.config.loader import COMPOSITION_ERRORS, Loader
from embexp.config.messages import did_you_mean, format_value, listing, nearest
from embexp.config.outline import keys_of, outline, package_of
from embexp.errors import ConfigError, Fault
from embexp.specs.run import RunSpec

_IMPOSSIBLE = re.compile(r"Could not (?:override|delete) '([^'=]+)|Error merging override [+~]*([^\s=]+)=")
"""How Hydra begins its message about a choice of the command line that nothing in the config can take, or a value."""
_GLOBAL = "_global_"
_BYTE_ORDER_MARK = "\ufeff".encode()


def select(loader: Loader, selections: Sequence[Override]) -> tuple[DictConfig, list[Override], list[Fault]]:
    """Composes the config of all choices that can be made.

    Returns:
        The config, its choices, and a fault for each choice that can't be made.

    Raises:
        ConfigError: the files can't be composed with any choice.
    """
    known, faults = [], []
    for override in selections:
        fault = _unknown_choice(loader.folders, override)
        if fault is None:
            known.append(override)
        else:
            faults.append(fault)
    trial = _Trial(loader, known)
    trial.add_all_possible()
    if not trial.added and not trial.add([]):
        other = [number for number, error in trial.errors.items() if str(error) != str(trial.error)]
        faults += [_why(loader, known[number], trial.errors[number], None) for number in other]
        raise ConfigError([*faults, broken_files.fault(loader.folders, trial.error, [loader.config_name])])
    made = choices(trial.config)
    for number in sorted(set(range(len(known))) - trial.added):
        faults.append(_why(loader, known[number], trial.errors[number], made))
    return trial.config, [known[number] for number in sorted(trial.added)], faults


def choices(config: DictConfig) -> Mapping[str, str | None]:
    """The choices of a composed config by `group` or `group@package`, without Hydra's own groups."""
    made = config.hydra.runtime.choices
    return {key: made[key] for key in made if not key.startswith("hydra/")}


def hydra_in_files(loader: Loader, selections: Sequence[Override]) -> Any:
    """The node `hydra` as the files of some choices have it, without what Hydra itself puts there."""
    made = [each for each in selections if "/" in each.key_or_group or not each.is_hydra_override()]
    chosen: dict[str, Any] = {each.get_key_element().lstrip("+"): each.value() for each in made if not each.is_delete()}
    return outline(loader.folders, loader.config_name, chosen).at("hydra")


class _Trial:
    """Finds, by composing, the choices that can be combined.

    Attributes:
        added: numbers of the choices in the config.
        error: the last error.
        errors: the error of each single choice that could not be added, by its number.
    """

    config: DictConfig
    error: Exception

    def __init__(self, loader: Loader, selections: Sequence[Override]) -> None:
        self.added: set[int] = set()
        self.errors: dict[int, Exception] = {}
        self._loader = loader
        self._lines = [str(each.input_line) for each in selections]
        self._keys = [each.get_key_element().lstrip("+~") for each in selections]
        self._ranks = [_rank(each) for each in selections]
        self._tried_with: dict[int, Set[int]] = {}  # the choices beside one that failed: it may work with others

    def add_all_possible(self) -> None:
        """Adds every choice that can be made, some only after others on which they depend.

        Independent choices come first: the fewer choices fail, the fewer configs have to be composed.
        """
        while block := [
            number
            for number in sorted(range(len(self._lines)), key=lambda each: self._ranks[each])
            if number not in self.added and not (number in self._tried_with and self.added <= self._tried_with[number])
        ]:
            self._add_block(block)

    def _add_block(self, block: Sequence[int]) -> None:
        """Adds a block; if that fails, adds it without the choice that Hydra names, or its halves separately."""
        if self.add(block):
            return
        if len(block) == 1:
            self.errors[block[0]], self._tried_with[block[0]] = self.error, frozenset(self.added)
            return
        if named := _IMPOSSIBLE.match(str(self.error)):
            culprits = [number for number in block if self._keys[number] == (named[1] or named[2])]
            if 0 < len(culprits) < len(block):
                company, error = self.added | set(block), self.error
                self._add_block([number for number in block if number not in culprits])
                if named[1] and len(culprits) == 1:  # among more choices than there are now it was impossible, too
                    self.errors[culprits[0]], self._tried_with[culprits[0]] = error, company
                else:
                    self._add_block(culprits)
                return
        first = [number for number in block if self._ranks[number] == self._ranks[block[0]]]
        half = len(first) if len(first) < len(block) else len(block) // 2
        self._add_block(block[:half])
        self._add_block(block[half:])

    def add(self, block: Sequence[int]) -> bool:
        """Adds all of some choices, in the order of the command line, or none of them."""
        together = self.added | set(block)
        try:
            self.config = self._loader.compose([self._lines[number] for number in sorted(together)])
        except COMPOSITION_ERRORS as error:
            self.error = error
            return False
        self.added = together
        return True


def _rank(override: Override) -> int:
    """How a choice depends on others: 0 not at all, 1 its group must not be chosen yet, 2 its group must be chosen."""
    if override.is_add():
        return 1
    return 0 if override.package is None and not override.is_delete() else 2


def _unknown_choice(folders: Folders, override: Override) -> Fault | None:
    """A fault if an override chooses a file that does not exist, or something other than a file."""
    group, choice = override.key_or_group, override.value()
    each = choice if isinstance(choice, list) else [choice]
    is_group = group.startswith("hydra/") or folders.is_group(group)
    if is_group and not all(isinstance(name, str | None) for name in each):
        return Fault(
            override.get_key_element(), format_value(choice), "a choice is the name of a file, or a list of names"
        )
    if override.is_hydra_override():
        return hydra_checks.refused(override)
    if override.is_delete():
        return None
    known, key = folders.choices.get(group, {}), override.get_key_element().lstrip("+")
    rule = f"group {group} has {listing(known)}"
    if choice is None:
        remedy = f"choose {key}=none" if "none" in known else "choose one of them"
        return Fault(key, "null", rule, remedy)
    for name in map(str, each):
        if name not in known:
            return Fault(key, format_value(choice), rule, _instead(folders, group, name, known))
        if known[name].is_relative_to(folders.user or os.devnull) and (fault := broken_files.unreadable(known[name])):
            return Fault(key, format_value(choice), fault.rule, fault.remedy, fault.source)
    return None


def _instead(folders: Folders, group: str, choice: str, known: Collection[str]) -> str:
    """What to do about a choice that is not there: a file of that name may be at another place."""
    stem = PurePath(choice).stem
    if choice != stem and stem in known:
        return f"choose {group}={stem}"
    if not choice:
        return "choose one of them"
    for folder in (*folders.in_order[:-1], Path.cwd(), Path.cwd() / "conf"):
        if os.path.isfile(folder / group / f"{choice}.yml"):
            return f"rename {folder / group / choice}.yml to {choice}.yaml"
        if folder not in folders.in_order and os.path.isfile(folder / group / f"{choice}.yaml"):
            return f"add your folder of configs: --config-dir {os.path.relpath(folder)}"
        if folder in folders.in_order and os.path.isfile(folder / f"{choice}.yaml"):
            return f"move {folder / choice}.yaml into the folder {group}"
    return did_you_mean(choice, known)


def _why(loader: Loader, override: Override, error: Exception, made: Mapping[str, str | None] | None) -> Fault:
    """The fault of a choice that exists, but can't be made.

    Args:
        made: the choices of the config without this one; None if it can't be composed.
    """
    key, value = override.get_key_element().lstrip("+~"), format_value(override.value())
    if override.is_hydra_override():
        return hydra_checks.rejected(override, error, hydra_in_files(loader, [override]))
    if made is not None:
        if override.is_add() and key in made:
            return Fault(key, value, "it is already chosen", f"write {key}=… without the +")
        if not override.is_add() and key not in made:
            same = [each for each in made if each.startswith(f"{override.key_or_group}@")] or list(made)
            remedy = did_you_mean(key, made) or (f"possible choices: {', '.join(same[:6])}" if same else "")
            return Fault(key, value, "nothing in this config is chosen there", remedy)
        if override.is_delete() and override.value() not in (None, made[key]):
            return Fault(key, value, f"the choice there is {made[key]}", f"write ~{key}")
    if isinstance(several := override.value(), list):
        remedy = f"choose one, or with -m once for each: {key}={','.join(map(str, several))}"
        return Fault(key, value, "these can't be chosen together", remedy)
    file = f"{override.key_or_group}/{override.value()}"
    if (hydra := hydra_checks.rejected_in_file(error)) is not None:
        return Fault(*hydra, source=str(loader.folders.file(file) or ""))
    fault = broken_files.fault(loader.folders, error, [file, loader.config_name])
    return Fault(key, value, fault.rule, fault.remedy, fault.source)


def lift(loader: Loader, selections: Sequence[Override], config: DictConfig) -> dict[str, Fault]:
    """Moves misplaced keys to the top of the config, so that they can be checked.

    Args:
        selections: the choices that it was composed from.

    Returns:
        A fault for each file, by the place where its keys were.
    """
    strange = [str(key) for key in config if key != "hydra" and key not in RunSpec.model_fields]
    if not strange:
        return {}
    faults = {}
    for each in loader.files([str(selection.input_line) for selection in selections]):
        group, _, choice = (each.config_path or "").rpartition("/")
        file = loader.folders.file(each.config_path or "")
        if file is None:
            continue
        if each.package in ("", _GLOBAL) and group in RunSpec.model_fields and package_of(file) == _GLOBAL:
            keys = [key for key in strange if key in keys_of(file)]
            if keys and not _belongs_at_the_top(loader.folders, group, "", without=file):
                faults[_GLOBAL] = _fault_below(group, choice, file)
                with open_dict(config):
                    config[group] = {**(config.get(group) or {}), **{key: config.pop(key) for key in keys}}
            continue
        if each.package not in strange or not _belongs_at_the_top(loader.folders, group, each.package):
            continue
        faults[each.package] = _fault(group, choice, each.package, file)
        with open_dict(config):
            misplaced = config.pop(each.package, None)
            if OmegaConf.is_dict(misplaced):
                with suppress(ConfigTypeError):  # a list where the config has a mapping: the fault above says enough
                    config.merge_with(misplaced)
    return faults


def _belongs_at_the_top(folders: Folders, group: str, package: str, without: Path | None = None) -> bool:
    """Whether files of a group have their keys at the top of a config, or this one's package looks as if it should."""
    files = [file for file in folders.choices.get(group, {}).values() if file != without]
    return bool(nearest(package, [_GLOBAL])) or any(package_of(file) == _GLOBAL for file in files)


def _fault_below(group: str, choice: str, file: Path) -> Fault:
    rule = f"its keys belong to {group}, and it puts them at the top of the config"
    return Fault(group, format_value(choice), rule, f"remove the line # @package {_GLOBAL}", os.fspath(file))


def _fault(group: str, choice: str, package: str, file: Path) -> Fault:
    rule = f"its keys belong at the top of a config, and it puts them at {package!r}"
    remedy = f"begin the file with the line: # @package {_GLOBAL}"
    if file.read_bytes().startswith(_BYTE_ORDER_MARK):
        remedy = "save the file without a byte order mark, which hides its line with @package"
    return Fault(group, format_value(choice), rule, remedy, os.fspath(file))
