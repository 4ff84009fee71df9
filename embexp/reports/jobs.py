"""The jobs of a sweep, as its ledger has them; without a ledger, as `sweep.json` has them. Nothing is written.

What a job does at the moment is in the ledger only while the process of the sweep works, or has ended by itself. So
jobs that are queued or running by the ledger are looked at once more: by the locks of their folders, and in Slurm.
"""

from __future__ import annotations

import contextlib
import platform
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from embexp.records import differences, inventory
from embexp.records.folder import LEDGER, OF_SWEEPS, RESULTS, json_object, json_of
from embexp.records.inventory import Change
from embexp.reports.record import Status, read_yaml
from embexp.system import digests, locks

_WRITTEN = (".progress.json", "run.log", "metrics.jsonl", "spec.json")
"""Files of a run that it writes at its beginning, or that change while it runs."""
TABLES = ("sweep.csv", RESULTS, "search.json")
"""Files with the results of a sweep."""
TABLES_NOTED = "tables"
"""What the ledger calls their digests."""
RECENT = 120.0
"""Seconds since one of them has changed within which a run is taken to be running, where no lock can tell."""
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Job:
    """A job of a sweep.

    Attributes:
        number: from 0.
        overrides: such as `seed=1`; those that have an effect.
        spec: as JSON; empty where only the job's folder has it.
        state: such as `completed`; of a duplicate, that of the job that it repeats.
        reason: why it failed, was skipped or pruned, or "".
        directory: of the run, which need not exist; None if the job has none.
        seconds: of all its attempts that have ended; None if unknown.
        same_as: number of the earlier job with the same run, or None.
        inventory: digest of the run's inventory when the job ended; None: none was noted.
        inert: keys that were asked for, and of which the choices of the job have no such setting.
        run_id: of the run that has ended, or None.
    """

    number: int
    overrides: tuple[str, ...]
    spec: Mapping[str, Any]
    state: str
    reason: str
    directory: Path | None
    seconds: float | None
    same_as: int | None = None
    inventory: str | None = None
    inert: tuple[str, ...] = ()
    run_id: str | None = None


def is_sweep(directory: Path) -> bool:
    """Whether a directory is that of a sweep."""
    return any((directory / name).is_file() for name in OF_SWEEPS)


def read(sweep: Path) -> list[Job]:
    """The jobs of a sweep by number; none where neither the ledger nor `sweep.json` can be read."""
    jobs = _of_ledger(sweep) or _of_results(sweep)
    return sorted(jobs, key=lambda job: job.number)


def forgotten(sweep: Path) -> list[Path]:
    """The folders of jobs that were taken out of a sweep."""
    rows = _selected(sweep / LEDGER, "SELECT value FROM sweep WHERE key = 'forgotten'")
    noted = json_of(rows[0]["value"]) if rows else None
    jobs = noted.get("jobs") if isinstance(noted, dict) else None
    names = [each.get("directory") for each in jobs if isinstance(each, dict)] if isinstance(jobs, list) else []
    return [sweep / name for name in names if isinstance(name, str)]


def record_changes(directory: Path, noted: str | None, *, quick: bool = False) -> tuple[Change, ...]:
    """What differs between a run's folder and its inventory, and between that and the ledger of its sweep.

    Args:
        noted: digest of the inventory in the ledger, see `noted_inventory`; None: there is none.
        quick: see `inventory.changes`.
    """
    return inventory.changes(directory, quick=quick) + inventory_changes(directory, noted)


def inventory_changes(directory: Path, noted: str | None) -> tuple[Change, ...]:
    """What shows that a run's inventory is not the one of which the ledger of its sweep has the digest, if it has."""
    return inventory.compare(directory, noted, where="the ledger of the sweep")


def noted_inventory(directory: Path) -> str | None:
    """The digest of a run's inventory in the ledger of the sweep that it is a job of; None: it is in none."""
    own = directory.resolve()
    for sweep in own.parents:
        if (sweep / LEDGER).is_file():
            for row in _selected(sweep / LEDGER, "SELECT directory, inventory, same_as FROM jobs"):
                if row["directory"] and row["same_as"] is None and (sweep / str(row["directory"])).resolve() == own:
                    return _if_is(str, row["inventory"])
    return None


def table_digests(sweep: Path) -> dict[str, str]:
    """SHA-256 of the tables that a sweep has written, by name."""
    written = [sweep / name for name in TABLES if (sweep / name).is_file()]
    return {path.name: digests.of_file(path) for path in written}


def changed_tables(sweep: Path) -> list[str]:
    """Tables of a sweep that were changed or removed since it wrote them, by the digests in its ledger."""
    rows = _selected(sweep / LEDGER, f"SELECT value FROM sweep WHERE key = '{TABLES_NOTED}'")
    noted = json_of(rows[0]["value"]) if rows else None
    now = table_digests(sweep) if isinstance(noted, dict) and noted else {}
    return [name for name, digest in noted.items() if now.get(name) != digest] if isinstance(noted, dict) else []


def ledger_changes(job: Job) -> list[str]:
    """What the ledger says of a job that has ended, and its run's own record, which is intact, does not."""
    if job.directory is None or job.same_as is not None:
        return []
    found = []
    run_id = json_object(job.directory / "summary.json").get("run_id")
    if None not in (job.run_id, run_id) and job.run_id != run_id:
        found.append(f"run_id {str(job.run_id)[:12]}, and the run has {str(run_id)[:12]}")
    spec = json_object(job.directory / "spec.json")
    if job.spec and spec and job.spec != spec:
        there, own = dict(differences.leaves(job.spec)), dict(differences.leaves(spec))
        keys = [key for key in there | own if there.get(key) != own.get(key)]
        found.append(f"a spec with another {', '.join(keys[:3])}")
    overrides = read_yaml(job.directory / ".hydra" / "overrides.yaml")
    if isinstance(overrides, list) and _plain(overrides) != _plain(job.overrides):
        found.append(f"the overrides {' '.join(job.overrides)}, and the run has {' '.join(map(str, overrides))}")
    return found


def _plain(overrides: Sequence[Any]) -> list[str]:
    return sorted(str(override).lstrip("+") for override in overrides)


def in_use(directory: Path) -> bool:
    """Whether a process works in the folder of a sweep or a job: of any machine, if the file system shares locks."""
    try:
        return bool(locks.of_folder(directory, "").writer())
    except OSError:  # nobody has ever worked there, or the file system has no locks
        return False


def last_written(directory: Path) -> float:
    """When a job last wrote something, in seconds since 1970; 0 if it never did."""
    times = [0.0]
    for name in _WRITTEN:
        with contextlib.suppress(OSError):
            times.append((directory / name).stat().st_mtime)
    return max(times)


def _of_ledger(sweep: Path) -> list[Job]:
    path = sweep / LEDGER
    if not path.is_file():
        return []
    attempts: dict[Any, list[dict[str, Any]]] = {}
    for row in _selected(path, "SELECT job, host, started, ended FROM attempts ORDER BY attempt"):
        attempts.setdefault(row["job"], []).append(row)
    known = [row for row in _selected(path, "SELECT * FROM jobs") if isinstance(row.get("number"), int)]
    slurm_says = _asked_of_slurm(known)
    jobs = []
    for row in known:
        own = attempts.get(row["number"], [])
        job = _job_of_row(sweep, row, own)
        state, reason = _at_the_moment(sweep, job, row, own, slurm_says)
        jobs.append(replace(job, state=state, reason=reason))
    return jobs


def _selected(ledger: Path, query: str) -> list[dict[str, Any]]:
    """What a query finds in a ledger; nothing, if it can't be read or is of an earlier version.

    Read-only, so that a report changes nothing. A ledger whose writer was killed amid a change must be written to be
    read: SQLite then takes the change back first.
    """
    for mode in ("ro", "rw"):
        address = f"{ledger.absolute().as_uri()}?mode={mode}"
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(address, uri=True)) as opened:
            opened.row_factory = sqlite3.Row
            return [dict(row) for row in opened.execute(query)]
    return []


def _job_of_row(sweep: Path, row: Mapping[str, Any], attempts: Sequence[Mapping[str, Any]]) -> Job:
    spec, overrides, settings = (json_of(row.get(name)) for name in ("spec", "overrides", "settings"))
    asked = {each: each.lstrip("+~").partition("=")[0] for each in overrides or () if isinstance(each, str)}
    inert = {
        each: key for each, key in asked.items() if isinstance(settings, dict) and settings and key not in settings
    }
    times = [(attempt["started"], attempt["ended"]) for attempt in attempts] or [(row.get("started"), row.get("ended"))]
    durations = [max(0.0, ended - started) for started, ended in times if _is_time(started) and _is_time(ended)]
    return Job(
        number=row["number"],
        overrides=tuple(each for each in asked if each not in inert),
        spec=spec if isinstance(spec, dict) else {},
        state=str(row.get("state") or ""),
        reason=str(row.get("reason") or ""),
        directory=sweep / str(row["directory"]) if row.get("directory") else None,
        seconds=sum(durations) if durations else None,
        same_as=_if_is(int, row.get("same_as")),
        inventory=_if_is(str, row.get("inventory")),
        inert=tuple(inert.values()),
        run_id=_if_is(str, row.get("run_id")),
    )


def _if_is(kind: type[_Value], value: Any) -> _Value | None:
    return value if isinstance(value, kind) else None


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float)


def _asked_of_slurm(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, str] | None:
    """What Slurm says of the jobs that it had at last; None if it does not answer."""
    from embexp.system import slurm

    under_way = [Status.QUEUED.value, Status.RUNNING.value]
    ids = [
        str(row.get("scheduler_job")) for row in rows if row.get("scheduler") == "slurm" and row["state"] in under_way
    ]
    try:
        return slurm.states(ids)
    except slurm.NoAnswerError:
        return None


def _at_the_moment(
    sweep: Path,
    job: Job,
    row: Mapping[str, Any],
    attempts: Sequence[Mapping[str, Any]],
    slurm_says: Mapping[str, str] | None,
) -> tuple[str, str]:
    """State and reason of a job: those of the ledger, or what the locks of folders and Slurm tell."""
    as_noted = job.state, job.reason
    if job.state not in (Status.QUEUED, Status.RUNNING) or job.directory is None or job.same_as is not None:
        return as_noted
    if in_use(job.directory):
        return Status.RUNNING, job.reason
    if row.get("scheduler") == "slurm":
        from embexp.system import slurm

        state = None if slurm_says is None else slurm_says.get(str(row.get("scheduler_job")))
        if state is None:
            return as_noted
        if state in slurm.QUEUED | slurm.RUNNING:
            return Status.QUEUED if state in slurm.QUEUED else Status.RUNNING, job.reason
        if state == "CANCELLED":
            return Status.CANCELLED, "cancelled in Slurm"
    elif in_use(sweep):  # by a process that notes what becomes of the job
        return as_noted
    host = attempts[-1]["host"] if attempts else platform.node()
    if host != platform.node() and time.time() - last_written(job.directory) < RECENT:
        return as_noted
    if job.state == Status.QUEUED:
        return Status.PLANNED, "the process of the sweep was killed"
    return Status.INTERRUPTED, "it was killed; `embexp resume` continues it"


def _of_results(sweep: Path) -> Iterator[Job]:
    rows = json_object(sweep / RESULTS).get("jobs")
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict) or not isinstance(row.get("number"), int):
            continue
        overrides = _if_is(dict, row.get("overrides")) or {}
        directory, seconds = row.get("directory"), row.get("seconds")
        yield Job(
            number=row["number"],
            overrides=tuple(f"{key}={value}" for key, value in overrides.items()),
            spec={},
            state=str(row.get("status") or ""),
            reason=str(row.get("reason") or ""),
            directory=_moved(sweep, Path(str(directory))) if directory else None,
            seconds=float(seconds) if isinstance(seconds, int | float) else None,
            same_as=_if_is(int, row.get("same_as")),
        )


def _moved(sweep: Path, directory: Path) -> Path:
    """The folder of a job, recorded with an absolute path, of a sweep that may have been moved since."""
    if directory.exists():
        return directory
    parts = directory.parts
    ends = (sweep.joinpath(*parts[start:]) for start in range(1, len(parts)))
    return next((end for end in ends if end.exists()), directory)
