"""Files whose keys are at the wrong place in a config, as they lack `# @package _global_` or should not have it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict

from embexp.config.folders import Folders
from embexp.config.loader import Loader
from embexp.config.nearest import nearest
from embexp.config.outline import keys_of, package_of
from embexp.config.shown import shown
from embexp.errors import Fault
from embexp.specs.run import RunSpec

_GLOBAL = "_global_"
_BYTE_ORDER_MARK = "\ufeff".encode()


def lift(loader: Loader, selections: Sequence[Override], config: DictConfig) -> dict[str, Fault]:
    """Moves misplaced keys to the top of the config, so that they can be checked.

    Args:
        loader: composed the config.
        selections: the choices that it was composed from.
        config: changed in place.

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
                config.merge_with(misplaced)
    return faults


def _belongs_at_the_top(folders: Folders, group: str, package: str, without: Path | None = None) -> bool:
    """Whether files of a group have their keys at the top of a config, or this one's package looks as if it should."""
    files = [file for file in folders.choices.get(group, {}).values() if file != without]
    return bool(nearest(package, [_GLOBAL])) or any(package_of(file) == _GLOBAL for file in files)


def _fault_below(group: str, choice: str, file: Path) -> Fault:
    rule = f"its keys belong to {group}, and it puts them at the top of the config"
    return Fault(group, shown(choice), rule, f"remove the line # @package {_GLOBAL}", os.fspath(file))


def _fault(group: str, choice: str, package: str, file: Path) -> Fault:
    rule = f"its keys belong at the top of a config, and it puts them at {package!r}"
    remedy = f"begin the file with the line: # @package {_GLOBAL}"
    if file.read_bytes().startswith(_BYTE_ORDER_MARK):
        remedy = "save the file without a byte order mark, which hides its line with @package"
    return Fault(group, shown(choice), rule, remedy, os.fspath(file))
