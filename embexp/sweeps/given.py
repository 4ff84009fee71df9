"""`embexp.sweep`: a sweep over specs that are given, instead of over the values of overrides."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from embexp.config import composition
from embexp.config.shown import shown
from embexp.specs import rules
from embexp.specs.run import RunSpec
from embexp.specs.sweeping import Launching
from embexp.sweeps import ledger as ledgers
from embexp.sweeps.checking import PlannedJob
from embexp.sweeps.ledger import Ledger
from embexp.sweeps.outcomes import Outcome
from embexp.sweeps.planned import Plan
from embexp.sweeps.running import Runner
from embexp.sweeps.sweep import PATIENCE, Sweep
from embexp.system import files, locks

_NOT_SETTINGS = ("output", "sweep", "seeds")
"""Parts of a spec that do not describe its run."""


@dataclass(frozen=True)
class SweepResult:
    """The result of `embexp.sweep`.

    Attributes:
        directory: of the sweep.
        outcomes: how each job ended, with its metrics and the directory of its run, in the order of the specs.
    """

    directory: Path
    outcomes: tuple[Outcome, ...]

    @property
    def succeeded(self) -> bool:
        """Whether every job has ended normally, or was skipped."""
        return all(each.status.is_settled for each in self.outcomes)


def sweep(specs: Sequence[RunSpec], directory: Path, launching: Launching, console: Console) -> SweepResult:
    """Runs specs, each in a process of its own. A directory that has the same sweep is continued.

    Args:
        specs: checked; one whose settings can't be combined is skipped, with the reason.
        directory: of the sweep.
        launching: how the jobs are run.
        console: shows progress and results.

    Raises:
        CommandLineError: the directory has another sweep.
        RunError: another process works there.
    """
    place = directory.absolute()
    if not ledgers.exists(place):
        place = files.new_directory(place)
    settings = varying_settings([_leaves(each.model_dump(mode="json"), "") for each in specs])
    jobs = []
    for number, (spec, own) in enumerate(zip(specs, settings, strict=True)):
        skip = "; ".join(f"{fault.path}={fault.value}: {fault.rule}" for fault in rules.combination_faults(spec))
        texts = tuple(f"{key}={value}" for key, value in own.items())
        jobs.append(PlannedJob(number, texts, spec, None, skip, setting=number))
    notes: dict[str, object] = {
        "command": {"folder": os.getcwd(), "search": False},
        "launching": launching.model_dump(mode="json"),
    }
    with (
        locks.of_folder(place, f"the sweep in {place}").exclusive(patience=PATIENCE),
        Ledger(place, create=True) as ledger,
        Runner(ledger, launching, console) as runner,
    ):
        running = Sweep(composition.loader(), Plan(DictConfig({}), (), tuple(jobs), launching), runner)
        running.begin(notes)
        ended = running.run_batch([()] * len(jobs), first=0)
        runner.finish()
    return SweepResult(place, tuple(each for outcomes in ended for each in outcomes))


def varying_settings(leaves: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """For each spec, the keys whose values differ among all, as text.

    A value that only follows from a choice, as `model.hidden` from `model`, is left out.

    Args:
        leaves: of each spec, value by dotted key.
    """
    keys = [key for key in dict.fromkeys(key for each in leaves for key in each) if key != "name"]
    differing = [key for key in keys if _varies(key, leaves)]
    for key in list(differing):
        choice = next((each for each in differing if key.startswith(f"{each}.")), None)
        if choice is None:
            continue
        alike = [[each for each in leaves if each.get(choice) == value] for value in {e.get(choice) for e in leaves}]
        if not any(_varies(key, group) for group in alike):
            differing.remove(key)
    return [{key: _text(each[key]) for key in differing if key in each} for each in leaves]


def _varies(key: str, leaves: Sequence[Mapping[str, Any]]) -> bool:
    return any(each.get(key, ...) != leaves[0].get(key, ...) for each in leaves)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)


def _leaves(value: Any, path: str) -> dict[str, Any]:
    """The leaves of nested mappings by dotted key; the `kind` of a choice goes by the key of the choice."""
    if not isinstance(value, Mapping) or not value:
        return {path.removesuffix(".kind"): value}
    found: dict[str, Any] = {}
    for key, each in value.items():
        if path or key not in _NOT_SETTINGS:
            found |= _leaves(each, f"{path}.{key}" if path else str(key))
    if path == "data" and found.get("data.fetch") is not None:
        found.pop("data.path", None)  # where a data set by name lies on a machine is no setting
    return found
