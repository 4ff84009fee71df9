"""The record of one run, from its folder. A damaged or half-written folder gives a record with the reason."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from embexp.errors import ConfigError
from embexp.records import inventory
from embexp.records.folder import RunFolder, damage_of_summary
from embexp.reports.jobs import record_changes
from embexp.reports.record import Record, Status
from embexp.specs import study_runs
from embexp.specs.models import Task
from embexp.training import metric_names

_RECENT = 120.0
"""Seconds since a run last wrote to its log or metrics within which it is taken to be running, without a lock."""
_NO_CAUSE = re.compile(r"\d+ faults? in the config")
_SPLITS = ("train", "validation", "test")


def is_run(directory: Path) -> bool:
    """Whether a directory is that of a run or a study, finished or not."""
    folder = RunFolder(directory)
    return folder.spec.is_file() or folder.summary.is_file() or (directory / ".hydra").is_dir()


def stages_of_study(directory: Path) -> list[Path]:
    """The directories of a study's runs, in their order; none if it is no study."""
    kind = _flat(_content(RunFolder(directory).spec)[0]).get("study.kind", "none")
    runs = [directory / name for name in study_runs.DESCRIPTIONS]
    return [] if kind == "none" else [each for each in runs if is_run(each)]


def read(directory: Path, *, spec: Mapping[str, Any] | None = None, noted: str | None = None) -> Record:
    """The record of a run.

    Args:
        directory: of the run, which `is_run`.
        spec: of the run, for a folder in which none was written.
        noted: digest of the run's inventory in the ledger of its sweep, or None.
    """
    folder = RunFolder(directory)
    recorded, damaged = _content(folder.spec)
    summary, unread = _content(folder.summary)
    if words := damage_of_summary(summary):
        summary, unread = {}, f"{folder.summary.name} is damaged: {words}"
    settings = _flat(recorded or spec or {})
    status, reason = _state(folder, summary, unread)
    if damaged and not reason:
        reason = damaged
    metric, direction = _primary(settings)
    return Record(
        directory=directory,
        name=directory.name,
        number=None,
        status=status,
        reason=reason,
        settings=settings,
        overrides=_overrides(directory),
        metrics=_numbers(summary.get("metrics")),
        metric=metric,
        direction=direction,
        summary=summary,
        changes=_changes(directory, noted),
    )


def planned(
    spec: Mapping[str, Any], overrides: Sequence[str], status: Status, reason: str, *, number: int | None
) -> Record:
    """The record of a job without a folder."""
    settings = _flat(spec)
    metric, direction = _primary(settings)
    return Record(
        directory=None,
        name=str(number),
        number=number,
        status=status,
        reason=one_line(reason),
        settings=settings,
        overrides=tuple(overrides),
        metric=metric,
        direction=direction,
    )


def unreadable(directory: Path, error: OSError) -> Record:
    """The record of a directory that can't be listed."""
    return Record(directory, directory.name, None, Status.FAILED, f"can't be read: {error.strerror}")


def status_of(state: str) -> Status:
    """The status that a ledger's state names; what has no results and is unknown was interrupted."""
    if state == "not_run":  # as sweep.json called it
        return Status.PLANNED
    return next((status for status in Status if status.value == state), Status.INTERRUPTED)


def says_nothing(reason: str) -> bool:
    """Whether a reason is only a heading, such as `1 fault in the config`."""
    return _NO_CAUSE.fullmatch(reason.strip()) is not None


def one_line(text: str) -> str:
    """An error in one line: the first fault, where a heading counts them."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and says_nothing(lines[0]) and len(lines) > 1:
        more = int(lines[0].split()[0]) - 1
        return lines[1] + (f" (and {more} more)" if more else "")
    return lines[0] if lines else ""


def _state(folder: RunFolder, summary: Mapping[str, Any], unread: str) -> tuple[Status, str]:
    """How a run ended, and why."""
    if (is_written := _is_written(folder)) is True:
        return Status.RUNNING, ""
    if summary:
        status = next((each for each in Status if each.value == summary.get("status")), None)
        if status is None:
            return Status.FAILED, f"summary.json has the status {summary.get('status')!r}, which is unknown"
        return status, ""
    if unread:
        return Status.FAILED, unread
    if cause := _cause(folder.path / "run.log"):
        return Status.FAILED, cause
    if is_written is None and time.time() - _written(folder) < _RECENT:
        return Status.RUNNING, ""
    return Status.INTERRUPTED, "it has no summary.json; `embexp resume` completes it"


def _is_written(folder: RunFolder) -> bool | None:
    """Whether a process holds the directory for writing; None if that can't be known."""
    try:
        return bool(folder.lock.writer())
    except OSError:
        return None


def _changes(directory: Path, noted: str | None) -> str | None:
    """Files of a run that were changed or removed since it ended; None: it has no inventory."""
    lost = inventory.losses(record_changes(directory, noted, quick=True))
    return inventory.sentence(lost) if lost or inventory.digest_of(directory) is not None else None


def _written(folder: RunFolder) -> float:
    """When the run last wrote something."""
    times = [0.0]
    for path in (folder.metrics, folder.path / "run.log", folder.spec):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return max(times)


def _cause(log: Path) -> str:
    """The error that a log ends with, in one line; "" if it has none."""
    try:
        text = log.read_bytes()[-100_000:].decode("utf-8", errors="replace")
    except OSError:
        return ""
    lines = text.splitlines()
    last = max((number for number, line in enumerate(lines) if line.startswith("error: ")), default=None)
    if last is not None:
        return one_line("\n".join([lines[last].removeprefix("error: "), *lines[last + 1 :]]))
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        outside = [line for line in lines if line and not line[0].isspace()]
        return outside[-1].strip()
    return ""


def _content(path: Path) -> tuple[dict[str, Any], str]:
    """A JSON object, empty if there is none; and why it can't be read, or ""."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"{path.name} can't be read: {error.strerror}"
    except (ValueError, RecursionError):
        return {}, f"{path.name} is damaged: it is not JSON"
    return (content, "") if isinstance(content, dict) else ({}, f"{path.name} is damaged: it is not a JSON object")


def _flat(content: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(_leaves(content, ""))
    if found.get("data.fetch") is not None:
        found.pop("data.path", None)  # where a data set by name lies on a machine is no setting
    return found


def _leaves(content: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _overrides(directory: Path) -> tuple[str, ...]:
    """The overrides that Hydra recorded: a YAML list of strings."""
    path = directory / ".hydra" / "overrides.yaml"
    try:
        content = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, ValueError, yaml.YAMLError):
        return ()
    return tuple(map(str, content)) if isinstance(content, list) else ()


def _primary(settings: Mapping[str, Any]) -> tuple[str, metric_names.Direction | None]:
    """The metric that chooses the best run, and its direction."""
    objective = settings.get("sweep.objective")
    if isinstance(objective, list):
        objective = objective[0] if objective else None
    chosen = settings.get("train.early_stopping.metric")
    if isinstance(objective, str):
        chosen = objective.replace(".", " ").removeprefix("validation ")
    try:
        task, cutoffs = Task(settings.get("task", "")), settings.get("recommendation.cutoffs")
        metric = metric_names.watched(task, chosen, *([cutoffs] if isinstance(cutoffs, list) and cutoffs else []))
    except (ValueError, ConfigError):
        return "", None
    return metric, metric_names.direction(metric)


def _numbers(content: Any) -> dict[str, float]:
    """Metrics by split and name: train, validation, test, then the others."""
    splits = content if isinstance(content, dict) else {}
    found = {}
    for split in sorted(splits, key=lambda each: _SPLITS.index(each) if each in _SPLITS else len(_SPLITS)):
        values = splits[split] if isinstance(splits[split], dict) else {}
        for name, value in values.items():
            if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
                found[f"{split} {name}"] = math.nan if value is None else float(value)
    return found
