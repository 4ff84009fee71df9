"""The spec of a run that goes on from a finished one, on other data: the parent's spec, with overrides."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from embexp.config import composition, overrides, validate
from embexp.config.loader import Loader
from embexp.config.messages import format_value
from embexp.errors import ConfigError, Fault
from embexp.records.folder import RunFolder, check_code, named_functions
from embexp.specs import tracking
from embexp.specs.pretrained import Parent
from embexp.specs.run import RunSpec
from embexp.system.stores import is_url


def recorded_parent(directory: Path, allow_code: Sequence[str]) -> dict[str, Any]:
    """The spec of a finished run to go on from, as plain values.

    Raises:
        NotARunError: there is none.
        DataError: it is not what the run wrote.
        UsageError: it names code that isn't allowed, or addresses that the environment does not name.
    """
    folder = RunFolder(directory)
    folder.check(folder.spec, folder.summary)
    recorded = folder.recorded_spec()
    folder.read_summary()  # an unfinished run has none
    check_code(named_functions(recorded), allow_code, record=folder.spec)
    tracking.check_addresses([recorded], folder.spec)
    return recorded.model_dump(mode="json")


def continued(
    recorded: Mapping[str, Any],
    parent: Path,
    data: Sequence[str],
    texts: Sequence[str],
    loader: Loader,
    *,
    look_at_data: bool = True,
) -> RunSpec:
    """The spec of a run that goes on from a parent.

    Args:
        recorded: the parent's spec, as plain values.
        parent: its directory.
        data: paths of the new data; empty: an override has them.
        texts: overrides, such as `train.epochs=1` or `freeze=old_rows`.
        look_at_data: whether the files are looked at; those of data in memory are not there yet.

    Raises:
        ConfigError: with all faults.
    """
    parsed, faults = overrides.parse(loader, texts)
    container = _of_parent(recorded, parent, data)
    if not (data or any(each.key_or_group.startswith("data.path") for each in parsed)):
        faults.append(Fault("data.path", "null", "to continue a run, you need new data", "give it with --data"))
    config = OmegaConf.create(container)
    for override in parsed:
        if overrides.is_selection(loader.folders, override):
            group, place = override.key_or_group, override.package or override.key_or_group.replace("/", ".")
            choice = f"{group}={override.value()}"
            chosen = composition.compose_config(loader, [choice])
            if chosen.faults or group not in chosen.container:
                rule = "only a choice of a top-level group can be given here"
                faults += chosen.faults or [Fault(group, format_value(override.value()), rule, "set its keys instead")]
            else:
                OmegaConf.update(config, place, chosen.container[group], merge=False, force_add=True)
        elif (fault := overrides.set_value(loader.folders, override, config)) is not None:
            faults.append(fault)
    plain: Any = OmegaConf.to_container(config)
    if plain.get("task") != recorded["task"]:
        rule, remedy = f"the run that this one continues has task {recorded['task']}", "leave it out"
        faults.append(Fault("task", repr(plain.get("task")), rule, remedy))
        plain["task"] = recorded["task"]
    composition.absolute_paths(plain, Path.cwd())
    spec, found = composition.check_container(plain, loader.permission, faults, look_at_data=look_at_data)
    if spec is None or faults or found:
        raise ConfigError(validate.with_sources([*faults, *found], lambda path: ""))
    return spec


def _of_parent(recorded: Mapping[str, Any], parent: Path, data: Sequence[str]) -> dict[str, Any]:
    """The parent's spec with rows, dense part and contract from the parent, and with other data."""
    path = os.path.abspath(parent)
    found = {
        key: value for key, value in recorded.items() if key not in ("restore", "study", "sweep", "seeds", "expect")
    }
    found["parent"] = {**Parent().model_dump(mode="json"), **recorded.get("parent", {}), "path": path}
    found["pretrained"] = {"kind": "checkpoint", "path": path}
    found["tables"] = {name: {**table, "pretrained": None} for name, table in recorded["tables"].items()}
    found["output"] = {**recorded["output"], "existing": "refuse"}
    if data:
        files = [each if is_url(each) else os.path.abspath(os.path.expanduser(each)) for each in data]
        found["data"] = {**recorded["data"], "path": files[0] if len(files) == 1 else files}
        found["data"].pop("fetch", None)
    return found
