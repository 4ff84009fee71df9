"""Runs that reports compare: found in directories of runs and sweeps, read without TensorFlow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from embexp.errors import NotARunError
from embexp.reports import folders, jobs
from embexp.reports.folders import is_run, stages_of_study
from embexp.reports.jobs import Job
from embexp.reports.record import NO_RESULT, Record, Status

__all__ = ["Record", "Status", "collect", "is_run", "varying"]

_UNDECIDED = (Status.RUNNING, Status.QUEUED, Status.PLANNED, Status.INTERRUPTED, Status.CANCELLED)
"""States of a ledger whose sweep was killed before it could note that the run has ended."""


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
        for each in stages_of_study(path) or [path]:
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
    explains them. What changes no result, such as `output` and `checkpoint`, counts only if it was overridden.
    """
    overridden = list(dict.fromkeys(key for record in records for key in record.overridden))
    keys = [key for key in overridden if _differs([record.value(key) for record in records])]
    settings = dict.fromkeys(key for record in records if record.settings for key in record.settings)
    known = [record for record in records if record.settings]
    for key in settings:
        if key in keys or key.partition(".")[0] in NO_RESULT:
            continue
        explained = any(_explains(known, override, key, settings) for override in keys if override in overridden)
        # What is empty in one spec is missing in that of another version.
        if not explained and _differs([_present(record.settings.get(key)) for record in known]):
            keys.append(key)
    return keys


def _differs(values: Sequence[Any]) -> bool:
    return len(set(map(repr, values))) > 1


def _present(value: Any) -> Any:
    return None if value in ({}, []) else value


def _explains(records: Sequence[Record], override: str, key: str, settings: Mapping[str, Any]) -> bool:
    """Whether an overridden choice is where a setting comes from.

    `optimizer` sets all of `optimizer.…`. A choice that is no setting of its own, such as `experiment`, explains what
    is the same wherever it is the same.
    """
    group, _, package = override.partition("@")
    place = package or group.replace("/", ".")
    if key == place or key.startswith(f"{place}."):
        return True
    if override in settings or any(each.startswith(f"{place}.") for each in settings):
        return False
    values: dict[str, set[str]] = {}
    for record in records:
        values.setdefault(repr(record.value(override)), set()).add(repr(record.settings.get(key)))
    return all(len(each) == 1 for each in values.values())


def _beneath(path: Path) -> Iterator[tuple[Path, Record]]:
    """The runs in a directory, at any depth, those of a sweep by number; each with a path that identifies it."""
    if is_run(path):
        record = folders.read(path, noted=jobs.noted_inventory(path))
        numbered = path.name.isdecimal() and jobs.is_sweep(path.parent)
        yield path.resolve(), replace(record, number=int(path.name)) if numbered else record
        return
    listed = {job.number: job for job in jobs.read(path)} if jobs.is_sweep(path) else {}
    read = set()
    for job in listed.values():
        record = _of_job(job, listed)
        own = record.directory is not None and record.same_as is None
        place = (record.directory if own and record.directory else path / f"job {job.number}").resolve()
        read.add(place)
        yield place, record
    try:
        inside = [Path(each.path) for each in os.scandir(path) if each.is_dir(follow_symlinks=False)]
    except OSError as error:
        yield path.resolve(), folders.unreadable(path, error)
        return
    for each in sorted(inside, key=_natural):
        if not each.name.startswith(".") and each.resolve() not in read:
            yield from _beneath(each)


def _of_job(job: Job, jobs_of_sweep: Mapping[int, Job]) -> Record:
    """The record of a job: what its folder has, and else what the ledger says."""
    status = folders.status_of(job.state)
    original = jobs_of_sweep.get(job.same_as) if job.same_as not in (None, job.number) else None
    if original is not None and original.same_as is None:
        record = _of_job(original, jobs_of_sweep)
        reason = f"the same as job {original.number}" + (f": {record.reason}" if record.reason else "")
        return replace(
            record, number=job.number, overrides=job.overrides, reason=reason, seconds=None, same_as=original.number
        )
    if job.directory is None or not is_run(job.directory):
        if status.has_results:
            return folders.planned(
                job.spec, job.overrides, Status.FAILED, f"its folder {job.directory} is missing", number=job.number
            )
        return folders.planned(job.spec, job.overrides, status, job.reason, number=job.number)
    record = folders.read(job.directory, spec=job.spec, noted=job.inventory)
    reason = record.reason
    if status.has_results or not job.state or (record.status.has_results and status in _UNDECIDED):
        status = record.status
    elif not folders.says_nothing(job.reason):
        # Only the sweep knows of a time limit or a crash; of an error in its config, only the log tells the cause.
        reason = folders.one_line(job.reason) or reason
    overrides = job.overrides or record.overrides
    return replace(record, number=job.number, overrides=overrides, status=status, reason=reason, seconds=job.seconds)


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
