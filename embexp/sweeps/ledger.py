"""The ledger of a sweep: `sweep.sqlite`, with each job's spec, state, attempts, scheduler and directory.

Every change is on disk before the call returns (a rollback journal, which also works on network file systems).
"""

from __future__ import annotations

import contextlib
import json
import platform
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embexp.errors import RunError
from embexp.reports.record import Status
from embexp.system import machine_faults

NAME = "sweep.sqlite"
VERSION = 2

_SECONDS = "SELECT SUM(MAX(0, ended - started)) FROM attempts WHERE job = jobs.number"
_SCHEMA = (
    """CREATE TABLE jobs (
        number INTEGER PRIMARY KEY,
        overrides TEXT NOT NULL,
        settings TEXT NOT NULL,
        spec TEXT NOT NULL,
        identity TEXT NOT NULL,
        hydra TEXT NOT NULL,
        run_id TEXT,
        inventory TEXT,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        scheduler TEXT,
        scheduler_job TEXT,
        queued REAL,
        attempts INTEGER NOT NULL DEFAULT 0,
        started REAL,
        ended REAL,
        directory TEXT,
        same_as INTEGER REFERENCES jobs (number)
    )""",
    """CREATE TABLE attempts (
        job INTEGER NOT NULL REFERENCES jobs (number),
        attempt INTEGER NOT NULL,
        host TEXT NOT NULL,
        started REAL NOT NULL,
        ended REAL,
        PRIMARY KEY (job, attempt)
    )""",
    "CREATE TABLE sweep (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
)


@dataclass(frozen=True)
class Attempt:
    """One start of a job.

    Attributes:
        host: on which machine.
        started: in seconds since 1970.
        ended: when; None while it runs.
    """

    host: str
    started: float
    ended: float | None = None

    @property
    def seconds(self) -> float | None:
        """Its duration; None while it runs."""
        return None if self.ended is None else max(0.0, self.ended - self.started)


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
        inventory: digest of the files of that run; None if none was taken.
        scheduler: to which it was passed last, such as `slurm`; None: none that can be asked.
        scheduler_job: its id there.
        queued: when it was passed to a launcher of others, in seconds since 1970.
        attempts: how often it was started.
        started: when its last attempt was.
        ended: when that ended.
        seconds: duration of all attempts that have ended; None if there is none.
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
    inventory: str | None = None
    scheduler: str | None = None
    scheduler_job: str | None = None
    queued: float | None = None
    attempts: int = 0
    started: float | None = None
    ended: float | None = None
    seconds: float | None = None


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
                remedy = "finish it with the embexp that began it, or start the sweep again with --fresh"
                raise RunError(
                    f"{self.path} is of version {version}, and this embexp reads version {VERSION}: {remedy}"
                )
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
        rows = self._connection.execute(f"SELECT *, ({_SECONDS}) AS seconds FROM jobs ORDER BY number")
        return [_job(row) for row in rows]

    def job(self, number: int) -> LedgerJob:
        """One job.

        Raises:
            RunError: there is no job of that number.
        """
        query = f"SELECT *, ({_SECONDS}) AS seconds FROM jobs WHERE number = ?"
        row = self._connection.execute(query, (number,)).fetchone()
        if row is None:
            raise RunError(f"{self.path} has no job {number}")
        return _job(row)

    def attempts(self, number: int) -> list[Attempt]:
        """The attempts at a job, in their order."""
        query = "SELECT host, started, ended FROM attempts WHERE job = ? ORDER BY attempt"
        return [Attempt(**dict(row)) for row in self._connection.execute(query, (number,))]

    def begin(self, number: int, now: float) -> None:
        """Notes that an attempt at a job begins on this machine."""
        self.note_attempt(number, Attempt(platform.node(), now))

    def note_attempt(self, number: int, attempt: Attempt) -> None:
        """Notes an attempt, a new one or one that is known by its beginning; without an end, the job is running."""
        with self._transaction() as connection:
            values = (attempt.ended, number, attempt.started)
            known = connection.execute("UPDATE attempts SET ended = ? WHERE job = ? AND started = ?", values).rowcount
            if not known:
                last = "SELECT COALESCE(MAX(attempt), 0) + 1 FROM attempts WHERE job = ?"
                connection.execute(
                    f"INSERT INTO attempts (job, attempt, host, started, ended) VALUES (?, ({last}), ?, ?, ?)",
                    (number, number, attempt.host, attempt.started, attempt.ended),
                )
            state = "" if attempt.ended is not None else f"state = '{Status.RUNNING.value}', reason = '', "
            connection.execute(
                f"UPDATE jobs SET {state}attempts = (SELECT COUNT(*) FROM attempts WHERE job = jobs.number),"
                " started = ?, ended = ? WHERE number = ?",
                (attempt.started, attempt.ended, number),
            )

    def queue(self, numbers: Iterable[int], now: float) -> None:
        """Notes that jobs are passed to a launcher of others."""
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE jobs SET state = ?, reason = '', scheduler = NULL, scheduler_job = NULL, queued = ?"
                " WHERE number = ?",
                [(Status.QUEUED.value, now, number) for number in numbers],
            )

    def identify(self, scheduler: str, ids: Mapping[int, str]) -> None:
        """Notes the ids that a scheduler has given to jobs, by number."""
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE jobs SET scheduler = ?, scheduler_job = ? WHERE number = ?",
                [(scheduler, text, number) for number, text in ids.items()],
            )

    def leave(self, number: int, state: Status, reason: str = "") -> None:
        """Notes where a job is that has not ended, and why."""
        self._execute("UPDATE jobs SET state = ?, reason = ? WHERE number = ?", (state.value, reason, number))

    def end(
        self,
        number: int,
        state: Status,
        now: float,
        *,
        reason: str = "",
        run_id: str | None = None,
        inventory: str | None = None,
    ) -> None:
        """Notes how a job ended, for its duplicates too.

        Args:
            number: of the job.
            state: how it ended.
            now: when its last attempt ended, if that is open.
            reason: why it failed or was interrupted, or "".
            run_id: of the run.
            inventory: digest of the run's files.
        """
        with self._transaction() as connection:
            connection.execute("UPDATE attempts SET ended = ? WHERE job = ? AND ended IS NULL", (now, number))
            connection.execute(
                "UPDATE jobs SET state = ?, reason = ?, run_id = ?, inventory = ?, ended = COALESCE("
                "(SELECT ended FROM attempts WHERE job = jobs.number ORDER BY attempt DESC LIMIT 1), ended, ?)"
                " WHERE number = ? OR same_as = ?",
                (state.value, reason, run_id, inventory, now, number, number),
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
