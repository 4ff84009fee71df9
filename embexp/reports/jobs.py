"""The jobs of a sweep, as its ledger has them; without a ledger, as `sweep.json` has them. Nothing is written."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embexp.records import inventory
from embexp.records.folder import LEDGER, OF_SWEEPS, RESULTS
from embexp.records.inventory import Change

_COLUMNS = ("number", "overrides", "spec", "state", "reason", "started", "ended", "directory", "same_as", "inventory")


@dataclass(frozen=True)
class Job:
    """A job of a sweep.

    Attributes:
        number: from 0.
        overrides: such as `seed=1`.
        spec: as JSON; empty where only the job's folder has it.
        state: such as `completed`; of a duplicate, that of the job that it repeats.
        reason: why it failed, was skipped or pruned, or "".
        directory: of the run, which need not exist; None if the job has none.
        seconds: from its start to its end; None if unknown.
        same_as: number of the earlier job with the same run, or None.
        inventory: digest of the run's inventory when the job ended; None: none was noted.
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


def is_sweep(directory: Path) -> bool:
    """Whether a directory is that of a sweep."""
    return any((directory / name).is_file() for name in OF_SWEEPS)


def read(sweep: Path) -> list[Job]:
    """The jobs of a sweep by number; none where neither the ledger nor `sweep.json` can be read."""
    jobs = _of_ledger(sweep) or _of_results(sweep)
    return sorted(jobs, key=lambda job: job.number)


def changes_by_ledger(directory: Path, noted: str | None) -> tuple[Change, ...]:
    """What shows that the inventory of a run is not the one that the ledger of its sweep has noted.

    Args:
        directory: of a run.
        noted: the digest in the ledger, see `noted_inventory`; None: there is none.
    """
    return inventory.compare(directory, noted, where="the ledger of the sweep")


def noted_inventory(directory: Path) -> str | None:
    """The digest of a run's inventory in the ledger of the sweep that it is a job of; None: it is in none.

    Args:
        directory: of a run.
    """
    own = directory.resolve()
    for sweep in own.parents:
        if (sweep / LEDGER).is_file():
            for row in _selected(sweep / LEDGER, "directory, inventory, same_as"):
                if row["directory"] and row["same_as"] is None and (sweep / str(row["directory"])).resolve() == own:
                    return row["inventory"] if isinstance(row["inventory"], str) else None
    return None


def _of_ledger(sweep: Path) -> list[Job]:
    path = sweep / LEDGER
    if not path.is_file():
        return []
    return [_job_of_row(sweep, row) for row in _selected(path, "*") if isinstance(row.get("number"), int)]


def _selected(ledger: Path, columns: str) -> list[dict[str, Any]]:
    """Columns of all jobs of a ledger; none, if it can't be read or has no such column.

    Read-only, so that a report changes nothing. A ledger whose writer was killed amid a change must be written to be
    read: SQLite then takes the change back first.
    """
    for mode in ("ro", "rw"):
        with contextlib.suppress(sqlite3.Error):
            return _rows(f"{ledger.absolute().as_uri()}?mode={mode}", columns)
    return []


def _rows(address: str, columns: str) -> list[dict[str, Any]]:
    with contextlib.closing(sqlite3.connect(address, uri=True)) as ledger:
        ledger.row_factory = sqlite3.Row
        return [dict(row) for row in ledger.execute(f"SELECT {columns} FROM jobs")]


def _job_of_row(sweep: Path, row: Mapping[str, Any]) -> Job:
    known = {key: row.get(key) for key in _COLUMNS}
    spec, overrides, directory = _json(known["spec"]), _json(known["overrides"]), known["directory"]
    started, ended = known["started"], known["ended"]
    return Job(
        number=row["number"],
        overrides=tuple(map(str, overrides)) if isinstance(overrides, list) else (),
        spec=spec if isinstance(spec, dict) else {},
        state=str(known["state"] or ""),
        reason=str(known["reason"] or ""),
        directory=sweep / str(directory) if directory else None,
        seconds=ended - started if isinstance(started, int | float) and isinstance(ended, int | float) else None,
        same_as=known["same_as"] if isinstance(known["same_as"], int) else None,
        inventory=known["inventory"] if isinstance(known["inventory"], str) else None,
    )


def _of_results(sweep: Path) -> list[Job]:
    try:
        content = json.loads((sweep / RESULTS).read_bytes())
    except (OSError, ValueError):
        return []
    rows = content.get("jobs") if isinstance(content, dict) else None
    return list(_jobs_of_results(sweep, rows if isinstance(rows, list) else ()))


def _jobs_of_results(sweep: Path, rows: Sequence[Any]) -> Iterator[Job]:
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("number"), int):
            continue
        overrides, directory, seconds = row.get("overrides"), row.get("directory"), row.get("seconds")
        yield Job(
            number=row["number"],
            overrides=tuple(f"{key}={value}" for key, value in overrides.items())
            if isinstance(overrides, dict)
            else (),
            spec={},
            state=str(row.get("status") or ""),
            reason=str(row.get("reason") or ""),
            directory=_moved(sweep, Path(str(directory))) if directory else None,
            seconds=float(seconds) if isinstance(seconds, int | float) else None,
            same_as=row["same_as"] if isinstance(row.get("same_as"), int) else None,
        )


def _moved(sweep: Path, directory: Path) -> Path:
    """The folder of a job, recorded with an absolute path, of a sweep that may have been moved since."""
    if directory.exists():
        return directory
    parts = directory.parts
    ends = (sweep.joinpath(*parts[start:]) for start in range(1, len(parts)))
    return next((each for each in ends if each.exists()), directory)


def _json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None
