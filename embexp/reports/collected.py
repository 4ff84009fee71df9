"""Runs that reports compare: found in directories of runs and sweeps, and read from their folders."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from embexp.errors import ConfigError, NotARunError
from embexp.records import inventory
from embexp.records.differences import leaves
from embexp.records.folder import LEDGER, RunFolder, summary_damage
from embexp.records.manifest import decides_nothing
from embexp.reports import jobs
from embexp.reports.jobs import RECENT, Job, last_written, record_changes
from embexp.reports.record import Record, Status, read_yaml
from embexp.specs import studies, tasks
from embexp.specs import tasks as metric_specs
from embexp.specs.tasks import Direction
from embexp.system.printable import masked, masked_override

_UNDECIDED = (Status.RUNNING, Status.QUEUED, Status.PLANNED, Status.INTERRUPTED, Status.CANCELLED)
"""States of a ledger whose sweep was killed before it could note that the run has ended."""
_NO_CAUSE = re.compile(r"\d+ faults? in the config")
_SPLITS = ("train", "validation", "test")
_OWN_METRIC = re.compile(r"metrics\.(\w+)\.higher_is_better")


def collect(paths: Iterable[str | Path]) -> list[Record]:
    """Reads all runs in and beneath directories.

    The jobs of a sweep are those of its ledger, started or not; without a ledger, those of `sweep.json` and the
    folders of runs. A study is one record; given by itself, its runs are the records. What can't be read is a record
    too, with the reason.

    Args:
        paths: directories of runs, of sweeps, of studies, or of any of these at any depth.

    Returns:
        The runs in the order of `paths`, those of a sweep by number, each once. Their names tell them apart.

    Raises:
        NotARunError: a directory does not exist, or there are no runs at all.
    """
    given = [Path(path) for path in paths]
    if missing := [str(path) for path in given if not path.is_dir()]:
        raise NotARunError(f"there is no directory {', '.join(missing)}")
    found: dict[Path, Record] = {}
    for path in given:
        for each in _stages_of_study(path) or [path]:
            for place, record in _beneath(each):
                found.setdefault(place, record)
    if not found:
        raise NotARunError(
            f"there are no runs in {', '.join(map(str, given)) or 'no directory'}\n"
            "    name the directory of a run or of a sweep, such as outputs"
        )
    return _named(list(found.values()))


def varying(records: Sequence[Record]) -> list[str]:
    """Settings that differ among the runs, as short as they can be told; `Record.value` has their values.

    Overrides come first: `optimizer=adam` stands for all that this choice sets. Other settings follow if no override
    explains them, a choice by the name of its file, where that is known. What changes no result, such as `output` and
    numbers of threads, counts only if it was overridden; the name always does.
    """
    overridden = list(dict.fromkeys(key for record in records for key in record.overridden))
    keys = [key for key in overridden if _differs([record.value(key) for record in records])]
    settings = dict.fromkeys(key for record in records if record.settings for key in record.settings)
    known = [record for record in records if record.settings]
    for key in settings:
        if key in keys or (decides_nothing(key) and key != "name"):
            continue
        explained = any(_explains(known, override, key, settings) for override in keys if override in overridden)
        values = [record.settings.get(key) for record in known]
        # What is empty in one spec is missing in that of another version.
        if not explained and _differs([None if value in ({}, []) else value for value in values]):
            name = _chosen(known, key) or key
            keys += [name] if name not in keys else []
    return keys


def _differs(values: Sequence[Any]) -> bool:
    return len(set(map(repr, values))) > 1


def _explains(records: Sequence[Record], override: str, key: str, settings: Mapping[str, Any]) -> bool:
    """Whether an overridden choice is where a setting comes from.

    `optimizer` sets all of `optimizer.…`. A choice that is no setting of its own, such as `experiment`, explains what
    is the same wherever it is the same.
    """
    group, _, package = override.partition("@")
    place = package or group.replace("/", ".")
    if key == place or key.startswith(f"{place}."):
        return True
    if override in settings or any(setting.startswith(f"{place}.") for setting in settings):
        return False
    values: dict[str, set[str]] = {}
    for record in records:
        values.setdefault(repr(record.value(override)), set()).add(repr(record.settings.get(key)))
    return all(len(value) == 1 for value in values.values())


def _chosen(records: Sequence[Record], key: str) -> str | None:
    """The choice that a setting comes from in all runs, such as `model` for `model.concat`; None if it is not known."""
    place = key.rpartition(".")[0]
    values: dict[str, set[str]] = {}
    for record in records:
        if (name := record.choices.get(place)) is None:
            return None
        values.setdefault(name, set()).add(repr(record.settings.get(key)))
    return place if len(values) > 1 and all(len(value) == 1 for value in values.values()) else None


def _beneath(path: Path) -> Iterator[tuple[Path, Record]]:
    """The runs in a directory, at any depth, those of a sweep by number; each with a path that identifies it."""
    if is_run(path):
        record = read_run(path, noted=jobs.noted_inventory(path))
        numbered = path.name.isdecimal() and jobs.is_sweep(path.parent)
        yield path.resolve(), replace(record, number=int(path.name)) if numbered else record
        return
    listed = {job.number: job for job in jobs.read(path)} if jobs.is_sweep(path) else {}
    read = {each.resolve() for each in jobs.forgotten(path)} if listed else set()
    for job in listed.values():
        record = _of_job(job, listed)
        own = record.directory is not None and record.same_as is None
        place = (record.directory if own and record.directory else path / f"job {job.number}").resolve()
        read.add(place)
        yield place, record
    try:
        inside = [Path(each.path) for each in os.scandir(path) if each.is_dir(follow_symlinks=False)]
    except OSError as error:
        reason = f"can't be read: {error.strerror}"
        yield path.resolve(), Record(path, path.name, None, Status.FAILED, reason)
        return
    for each in sorted(inside, key=_natural):
        if not each.name.startswith(".") and each.resolve() not in read:
            yield from _beneath(each)


def _of_job(job: Job, jobs_of_sweep: Mapping[int, Job]) -> Record:
    """The record of a job: what its folder has, and else what the ledger says."""
    # What has no results and is unknown was interrupted.
    status = next((each for each in Status if each.value == job.state), Status.INTERRUPTED)
    original = jobs_of_sweep.get(job.same_as) if job.same_as not in (None, job.number) else None
    if original is not None and original.same_as is None:
        record = _of_job(original, jobs_of_sweep)
        reason = f"duplicate of job {original.number}" + (f": {record.reason}" if record.reason else "")
        return replace(
            record,
            number=job.number,
            overrides=job.overrides,
            reason=reason,
            seconds=None,
            same_as=original.number,
            inert=job.inert,
        )
    if job.directory is None or not is_run(job.directory):
        reason = _one_line(job.reason)
        if status.has_results:
            status, reason = (
                Status.FAILED,
                f"its folder {job.directory} is missing; `embexp resume` of the sweep runs it again",
            )
        return _record(job.spec, status, reason, number=job.number, overrides=job.overrides, inert=job.inert)
    record = read_run(job.directory, spec=job.spec, noted=job.inventory)
    reason = record.reason
    if status.has_results or not job.state or (record.status.has_results and status in _UNDECIDED):
        status = record.status
    elif not _says_nothing(job.reason):
        # Only the sweep knows of a time limit or a crash; of an error in its config, only the log tells the cause.
        reason = _one_line(job.reason) or reason
    overrides = job.overrides or record.overrides
    if record.status.has_results and not record.changes and (others := jobs.ledger_changes(job)):
        record = replace(record, changes=f"changed: {LEDGER} (it has {'; '.join(others)})")
    return replace(
        record,
        number=job.number,
        overrides=overrides,
        status=status,
        reason=reason,
        seconds=job.seconds,
        inert=job.inert,
    )


def _named(records: Sequence[Record]) -> list[Record]:
    """Names: the path from the directory that all runs share; the number for a job without a folder."""
    places = [record.directory for record in records if record.directory is not None]
    if not places:
        return [replace(record, name=str(record.number)) for record in records]
    shared = Path(os.path.commonpath([each.absolute().parent for each in places]))
    named = []
    for record in records:
        name = str(record.number)
        if record.directory is not None:
            place = record.directory if record.same_as is None else record.directory.with_name(name)
            name = str(place.absolute().relative_to(shared))
        named.append(replace(record, name=name))
    return named


def _natural(path: Path) -> list[tuple[int, int | str]]:
    """Sorts `2` before `10`."""
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts if part]


def is_run(directory: Path) -> bool:
    """Whether a directory is that of a run or a study, finished or not."""
    folder = RunFolder(directory)
    return folder.spec.is_file() or folder.summary.is_file() or (directory / ".hydra").is_dir()


def _stages_of_study(directory: Path) -> list[Path]:
    """The directories of a study's runs, in their order; none if it is no study."""
    kind = settings_of(_content(RunFolder(directory).spec)[0]).get("study.kind", "none")
    runs = [directory / name for name in studies.folders(directory)]
    return [] if kind == "none" else [run for run in runs if is_run(run)]


def read_run(directory: Path, *, spec: Mapping[str, Any] | None = None, noted: str | None = None) -> Record:
    """The record of a run.

    Args:
        directory: of the run, which `is_run`.
        spec: of the run, for a folder in which none was written.
        noted: digest of the run's inventory in the ledger of its sweep, or None.
    """
    folder = RunFolder(directory)
    recorded, damaged = _content(folder.spec)
    summary, unread = _content(folder.summary)
    if words := summary_damage(summary):
        summary, unread = {}, f"{folder.summary.name} is damaged: {words}"
    status, reason = _state(folder, summary, unread)
    return _record(
        recorded or spec or {},
        status,
        reason or damaged,
        directory=directory,
        overrides=_overrides(directory),
        metrics=_metric_values(summary.get("metrics")),
        summary=summary,
        changes=_changes(directory, noted),
    )


def _record(
    spec: Mapping[str, Any],
    status: Status,
    reason: str,
    *,
    directory: Path | None = None,
    number: int | None = None,
    **known: Any,
) -> Record:
    """The record of a run, or of a job without a folder."""
    settings = settings_of(spec)
    metric, direction = _primary(settings)
    name = str(number) if directory is None else directory.name
    found = {"settings": settings, "metric": metric, "direction": direction, **known}
    return Record(directory, name, number, status, reason, **found)


def _says_nothing(reason: str) -> bool:
    """Whether a reason is only a heading, such as `1 fault in the config`."""
    return _NO_CAUSE.fullmatch(reason.strip()) is not None


def _one_line(text: str) -> str:
    """An error in one line: the first fault, where a heading counts them."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and _says_nothing(lines[0]) and len(lines) > 1:
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
    if is_written is None and time.time() - last_written(folder.path) < RECENT:
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


def _cause(log: Path) -> str:
    """The error that a log ends with, in one line; "" if it has none."""
    try:
        text = log.read_bytes()[-100_000:].decode("utf-8", errors="replace")
    except OSError:
        return ""
    lines = text.splitlines()
    last = max((number for number, line in enumerate(lines) if line.startswith("error: ")), default=None)
    if last is not None:
        return _one_line("\n".join([lines[last].removeprefix("error: "), *lines[last + 1 :]]))
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


def settings_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a spec by dotted path."""
    texts = leaves(spec) if spec else ()
    found = {path: masked(value) if isinstance(value, str) else value for path, value in texts}  # of old runs
    if found.get("data.fetch") is not None:
        found.pop("data.path", None)  # where a data set by name lies on a machine is no setting
    return found


def _overrides(directory: Path) -> tuple[str, ...]:
    """The overrides that Hydra recorded: a YAML list of strings."""
    content = read_yaml(directory / ".hydra" / "overrides.yaml")
    return tuple(masked_override(str(each)) for each in content) if isinstance(content, list) else ()


def _primary(settings: Mapping[str, Any]) -> tuple[str, Direction | None]:
    """The metric that chooses the best run, and its direction."""
    objective = settings.get("sweep.objective")
    if isinstance(objective, list):
        objective = objective[0] if objective else None
    chosen = settings.get("train.early_stopping.metric")
    if isinstance(objective, str):
        chosen = objective.replace(".", " ").removeprefix("validation ")
    further = {
        match[1]: None if settings.get(f"metrics.{match[1]}.function") is None else value is True
        for key, value in settings.items()
        if (match := _OWN_METRIC.fullmatch(key))
    }
    try:
        task = tasks.named(str(settings.get("task", "")))
        cutoffs = task.recorded_cutoffs(settings)
        own = metric_specs.further(task, further, cutoffs)
        metric = metric_specs.watched(task, chosen, cutoffs, own)
    except (ValueError, ConfigError):
        return "", None
    return metric, metric_specs.direction(metric, own)


def _metric_values(content: Any) -> dict[str, float]:
    """Metrics by split and name: train, validation, test, then the others."""
    splits = content if isinstance(content, dict) else {}
    found = {}
    for split in sorted(splits, key=lambda each: _SPLITS.index(each) if each in _SPLITS else len(_SPLITS)):
        values = splits[split] if isinstance(splits[split], dict) else {}
        for name, value in values.items():
            if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
                found[f"{split} {name}"] = math.nan if value is None else float(value)
    return found
