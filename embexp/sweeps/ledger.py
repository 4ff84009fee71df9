"""The ledger of a sweep: `sweep.sqlite`, with each job's spec, state, attempts, times and directory.

Every change is on disk before the call returns (a rollback journal, which also works on network file systems).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embexp.errors import RunError
from embexp.reports.record import Status
from embexp.system import machine_faults

NAME = "sweep.sqlite"
VERSION = 1

_SCHEMA = (
    """CREATE TABLE jobs (
        number INTEGER PRIMARY KEY,
        overrides TEXT NOT NULL,
        settings TEXT NOT NULL,
        spec TEXT NOT NULL,
        identity TEXT NOT NULL,
        hydra TEXT NOT NULL,
        run_id TEXT,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        started REAL,
        ended REAL,
        directory TEXT,
        same_as INTEGER REFERENCES jobs (number)
    )""",
    "CREATE TABLE sweep (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
)


@dataclass(frozen=True)
class LedgerJob:
    """A job as the ledger has it.

    Attributes:
        number: from 0.
        overrides: such as `seed=1`.
        settings: value by key of the overrides.
        spec: what to run, as JSON, with the numbers of threads that the job gets.
        identity: equal for jobs that ask for the same run.
        hydra: the files of the job's `.hydra` folder, by name.
        state: see `Status`; of a duplicate, that of the job that it repeats.
        reason: why it failed or is skipped, or "".
        directory: of the run, relative to the sweep's; None for a job that is skipped.
        same_as: number of the earlier job of which it is a duplicate.
        run_id: of the run that has ended.
        attempts: how often it was started.
        started: when its last attempt was, in seconds since 1970.
        ended: when that ended.
    """

    number: int
    overrides: tuple[str, ...]
    settings: Mapping[str, str]
    spec: str
    identity: str
    hydra: Mapping[str, str] = field(default_factory=dict)
    state: Status = Status.PLANNED
    reason: str = ""
    directory: str | None = None
    same_as: int | None = None
    run_id: str | None = None
    attempts: int = 0
    started: float | None = None
    ended: float | None = None

    @property
    def seconds(self) -> float | None:
        """Duration of the last attempt."""
        return None if self.started is None or self.ended is None else self.ended - self.started


class Ledger:
    """The ledger in a sweep's directory. Several processes may use it at once."""

    def __init__(self, directory: Path, *, create: bool = False) -> None:
        """Opens the ledger.

        Args:
            directory: of the sweep.
            create: whether to make an empty ledger where there is none.

        Raises:
            RunError: there is no ledger, or it is not one that this version understands.
        """
        self.directory = directory
        self.path = directory / NAME
        if not create and not exists(directory):
            raise RunError(f"{directory} is not the directory of a sweep: there is no {NAME} in it")
        with contextlib.ExitStack() as opened:
            try:
                self._connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
                opened.callback(self._connection.close)
                self._connection.row_factory = sqlite3.Row
                self._connection.execute("PRAGMA journal_mode = DELETE")
                self._connection.execute("PRAGMA synchronous = FULL")
                version = self._version()
            except sqlite3.Error as error:
                raise RunError(f"{self.path} is not the ledger of a sweep: {error}") from None
            if version != VERSION:
                raise RunError(f"{self.path} is of version {version}, and this embexp reads version {VERSION}")
            opened.pop_all()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def add(self, jobs: Iterable[LedgerJob], notes: Mapping[str, Any] | None = None) -> None:
        """Adds jobs, or replaces those of the same number, and notes facts about the whole sweep; all or nothing."""
        rows = [
            (
                job.number,
                json.dumps(job.overrides),
                json.dumps(dict(job.settings)),
                job.spec,
                job.identity,
                json.dumps(dict(job.hydra)),
                job.state.value,
                job.reason,
                job.directory,
                job.same_as,
                job.run_id,
            )
            for job in jobs
        ]
        columns = "number, overrides, settings, spec, identity, hydra, state, reason, directory, same_as, run_id"
        with self._transaction() as connection:
            connection.executemany(
                f"INSERT OR REPLACE INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
            connection.executemany(
                "INSERT OR REPLACE INTO sweep (key, value) VALUES (?, ?)",
                [(key, json.dumps(value)) for key, value in (notes or {}).items()],
            )

    def jobs(self) -> list[LedgerJob]:
        """All jobs, by number."""
        return [_job(row) for row in self._connection.execute("SELECT * FROM jobs ORDER BY number")]

    def job(self, number: int) -> LedgerJob:
        """One job.

        Raises:
            RunError: there is no job of that number.
        """
        row = self._connection.execute("SELECT * FROM jobs WHERE number = ?", (number,)).fetchone()
        if row is None:
            raise RunError(f"{self.path} has no job {number}")
        return _job(row)

    def begin(self, number: int, now: float) -> None:
        """Notes that an attempt at a job begins."""
        self._execute(
            "UPDATE jobs SET state = ?, reason = '', attempts = attempts + 1, started = ?, ended = NULL"
            " WHERE number = ?",
            (Status.RUNNING.value, now, number),
        )

    def began(self, number: int, when: float) -> None:
        """Corrects when the last attempt began, if the job waited in the queue of a launcher."""
        self._execute("UPDATE jobs SET started = ? WHERE number = ?", (when, number))

    def leave(self, number: int, state: Status, reason: str) -> None:
        """Notes why a job that was not started, or was left by a process that is gone, is where it is."""
        self._execute("UPDATE jobs SET state = ?, reason = ? WHERE number = ?", (state.value, reason, number))

    def end(self, number: int, state: Status, now: float, *, reason: str = "", run_id: str | None = None) -> None:
        """Notes how a job ended, for its duplicates too."""
        self._execute(
            "UPDATE jobs SET state = ?, reason = ?, run_id = ?, ended = ? WHERE number = ? OR same_as = ?",
            (state.value, reason, run_id, now, number, number),
        )

    def noted(self, key: str) -> Any:
        """A fact about the whole sweep, or None."""
        row = self._connection.execute("SELECT value FROM sweep WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row["value"])

    def _execute(self, statement: str, values: Sequence[Any]) -> None:
        with self._transaction() as connection:
            connection.execute(statement, values)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that has the write lock from its beginning, so that it waits for others instead of failing."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # of a full disk, SQLite has rolled back itself
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if (sentence := machine_faults.sentence(error)) is None:
                raise
            raise RunError(f"{self.path}: {sentence}") from error

    def _version(self) -> int:
        """The version of the ledger; an empty one gets its tables."""
        with self._transaction() as connection:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
                return VERSION
        return version


def exists(directory: Path) -> bool:
    """Whether a directory has a ledger."""
    return (directory / NAME).is_file()


def _job(row: sqlite3.Row) -> LedgerJob:
    values = dict(row)
    values["overrides"] = tuple(json.loads(values["overrides"]))
    values |= {key: json.loads(values[key]) for key in ("settings", "hydra")}
    return LedgerJob(**{**values, "state": Status(values["state"])})
