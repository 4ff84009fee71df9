"""Recorded specs: `embexp run --spec`, and what is checked before one is run again."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.cli import commands
from embexp.errors import CommandLineError, ConfigError
from embexp.system.printable import print

if TYPE_CHECKING:
    from embexp.records.folder import RunFolder
    from embexp.records.output_directory import OutputDirectory
    from embexp.specs.run import RunSpec

SPEC_FILE = "spec.json"


def folder_of(path: str) -> RunFolder:
    """The folder that a recorded spec lies in.

    Args:
        path: of the spec, or of the run's directory.

    Raises:
        CommandLineError: there is no such file.
    """
    from embexp.records.folder import RESULTS, RunFolder

    found = Path(path)
    if found.is_file():
        if found.name != SPEC_FILE:
            raise CommandLineError(f"--spec {path}: give the {SPEC_FILE} of a run, or the directory of a run")
        found = found.parent
    if not (found / SPEC_FILE).is_file() and not (found / RESULTS).exists():
        raise CommandLineError(f"--spec {path}: there is no such file, nor a directory with a {SPEC_FILE} in it")
    return RunFolder(found)


def check(spec: RunSpec, allow_code: Sequence[str]) -> None:
    """Checks a recorded spec against every rule and against the files that it names, without TensorFlow.

    Args:
        spec: recorded.
        allow_code: functions that it may run.

    Raises:
        ConfigError: with all faults.
    """
    from embexp.config.checking import resources
    from embexp.config.permission import Permission
    from embexp.specs import run

    if faults := [
        *run.rule_faults(spec),
        *resources.faults(spec, Permission(frozenset(allow_code)), look_at_data=True),
    ]:
        raise ConfigError(faults)


def run_recorded(options: argparse.Namespace, execute: Callable[[RunSpec, OutputDirectory], int]) -> int:
    """Runs a recorded spec in a new directory.

    Args:
        options: of `embexp run`.
        execute: runs a spec in its directory, and returns the exit status.

    Raises:
        UsageError: the spec names code that isn't allowed, or options and overrides don't fit a recorded spec.
        DataError: the spec, or the copy of its code, is not what the run wrote.
    """
    from embexp.records import allowed_code, output_directory
    from embexp.specs import tracking
    from embexp.specs.running import Existing

    composing = {
        "-m": options.multirun,
        "--cfg": options.cfg,
        "--package": options.package,
        "--resolve": options.resolve,
        "--config-dir": options.config_dir,
        "--config-name": options.config_name != "config",
    }
    for option, given in composing.items():
        if given:
            raise CommandLineError(
                f"{option} composes a config, and --spec runs one that was recorded; give one of them"
            )
    folder = folder_of(options.spec)
    folder.check(folder.spec, folder.code)
    spec = folder.recorded_spec()
    allowed_code.check(spec, options.allow_code, record=folder.spec)
    tracking.check_addresses([spec], folder.spec)
    own = [each for each in options.overrides if not each.lstrip("+~").startswith("hydra.")]
    changed = _changed(spec, own)
    check(changed, options.allow_code)
    directory, is_dated = _directory([each for each in options.overrides if each not in own])
    existing = Existing.NUMBER if is_dated else changed.output.existing
    with output_directory.opened(directory, changed, existing, warn=commands.warn) as found:
        print(f"{changed.name} in {found.path}", flush=True)
        from embexp.runs.recorded import import_sentences

        for sentence in import_sentences(folder, changed):
            print(sentence, flush=True)
        return execute(changed, found)


def _changed(spec: RunSpec, overrides: Sequence[str]) -> RunSpec:
    # Only who runs it now may have a directory replaced.
    output = spec.output.model_copy(update={"existing": type(spec.output).model_fields["existing"].default})
    spec = spec.model_copy(update={"output": output})
    if not overrides:
        return spec
    from embexp.config import composition
    from embexp.config.composition import changed_spec

    return changed_spec(spec, overrides, composition.loader(), rule="a recorded spec is run as it was recorded")


def _directory(overrides: Sequence[str]) -> tuple[Path, bool]:
    """The directory of a new run, from Hydra's settings, and whether it is named by the time."""
    from embexp.config import composition
    from embexp.config.composing import record
    from embexp.config.composing.compose import compose

    composed = compose(composition.loader(), overrides)
    if composed.faults:
        raise ConfigError(composed.faults)
    return record.run_directory(composed.config), record.is_dated(composed.config)
