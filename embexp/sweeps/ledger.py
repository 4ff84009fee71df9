"""The ledger of a sweep: `sweep.sqlite`, with each job's spec, state, attempts, scheduler and directory.

Every change is on disk before the call returns: a rollback journal, which also works on network file systems, and whose
removal is synced, too.
"""

from __future__ import annotations

import contextlib
import json
import platform
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from embexp.config.messages import format_value
from embexp.config.validate import rule_of
from embexp.errors import RunError
from embexp.records.folder import first_fault, json_of
from embexp.reports.jobs import TABLES_NOTED
from embexp.reports.record import Status
from embexp.specs.run import RunSpec, recorded
from embexp.system import machine_faults

NAME = "sweep.sqlite"
VERSION = 2

_JOBS = "SELECT *, (SELECT SUM(MAX(0, ended - started)) FROM attempts WHERE job = number) AS seconds FROM jobs"
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
_PLANNED = (
    "number", "overrides", "settings", "spec", "identity", "hydra", "state", "reason", "directory", "same_as", "run_id",
)  # fmt: skip
"""Columns that are known when a job is planned."""
_NOTE = "INSERT OR REPLACE INTO sweep (key, value) VALUES (?, ?)"
_IN_JSON = ("overrides", "settings", "hydra")
ADDED, FORGOTTEN = "added", "forgotten"
"""What is noted of jobs that `embexp sweep add` has added to those of the command, and of those that are forgotten."""
_NOTED = {"command": ("folder",), "engine": ("name", "hydra", "folder")}
"""Keys of what is noted about a sweep without which it can't go on."""


@dataclass(frozen=True)
class Attempt:
    """One start of a job.

    Attributes:
        started: in seconds since 1970.
        ended: when; None while it runs.
    """

    host: str
    started: float
    ended: float | None = None


@dataclass(frozen=True)
class LedgerJob:
    """A job as the ledger has it.

    Attributes:
        number: from 0.
        overrides: such as `seed=1`.
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
        queued: when it was passed to a launcher of others, in seconds since 1970.
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

    @property
    def checked_spec(self) -> RunSpec:
        """What to run.

        Raises:
            RunError: it is not a spec that this version understands.
        """
        try:
            return recorded(self.spec, "the ledger")
        except ValidationError as error:
            raise RunError(f"the spec of job {self.number} of the ledger is damaged: {first_fault(error)}") from None


@dataclass(frozen=True)
class Forgotten:
    """A job that was taken out of the ledger. Neither its number nor the name of its folder is used again.

    Attributes:
        directory: as of a `LedgerJob`; None also for a copy of another job.
    """

    number: int
    directory: str | None
    identity: str


_JOB = TypeAdapter(LedgerJob)
_FORGOTTEN = TypeAdapter(list[Forgotten])


class Ledger:
    """The ledger in a sweep's directory. Several processes may use it at once."""

    def __init__(self, directory: Path, *, create: bool = False) -> None:
        """Opens the ledger.

        Args:
            create: whether to make an empty ledger where there is none.

        Raises:
            RunError: there is no ledger, or it is not one that this version understands.
        """
        self.directory = directory
        self.path = directory / NAME
        if not create and not exists(directory):
            raise RunError(f"{directory} is not the directory of a sweep: there is no {NAME} in it")
        if self.path.is_symlink():  # of a folder from elsewhere: to open it may write to it
            raise RunError(f"{self.path} is a link, but a ledger must be a file in its sweep's folder: remove the link")
        with contextlib.ExitStack() as opened:
            try:
                self._connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
                opened.callback(self._connection.close)
                self._connection.row_factory = sqlite3.Row
                self._connection.execute("PRAGMA journal_mode = DELETE")
                self._connection.execute("PRAGMA synchronous = EXTRA")
                version = self._version()
            except sqlite3.Error as error:
                raise RunError(f"{self.path} is not the ledger of a sweep: {error}") from None
            if version != VERSION:
                remedy = "finish it with the embexp that began it, or start the sweep again with --fresh"
                raise RunError(f"{self.path} has version {version}, but this embexp reads version {VERSION}: {remedy}")
            opened.pop_all()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def add(self, jobs: Iterable[LedgerJob], notes: Mapping[str, Any] | None = None) -> None:
        """Adds jobs, or replaces those of the same number, and notes facts about the whole sweep; all or nothing."""
        rows = [
            [json.dumps(getattr(job, name)) if name in _IN_JSON else getattr(job, name) for name in _PLANNED]
            for job in jobs
        ]
        places = ", ".join("?" * len(_PLANNED))
        with self._transaction() as connection:
            connection.executemany(f"INSERT OR REPLACE INTO jobs ({', '.join(_PLANNED)}) VALUES ({places})", rows)
            connection.executemany(_NOTE, [(key, json.dumps(value)) for key, value in (notes or {}).items()])

    def jobs(self) -> list[LedgerJob]:
        """All jobs, by number.

        Raises:
            RunError: one of them is damaged.
        """
        return [self._job(row) for row in self._rows(f"{_JOBS} ORDER BY number")]

    def job(self, number: int) -> LedgerJob:
        """One job.

        Raises:
            RunError: there is no job of that number, or it is damaged.
        """
        rows = self._rows(f"{_JOBS} WHERE number = ?", number)
        if not rows:
            raise RunError(f"{self.path} has no job {number}")
        return self._job(rows[0])

    def attempts(self, number: int) -> list[Attempt]:
        """The attempts at a job, in their order."""
        query = "SELECT host, started, ended FROM attempts WHERE job = ? ORDER BY attempt"
        return [Attempt(**dict(row)) for row in self._connection.execute(query, (number,))]

    def times(self) -> list[tuple[int, float, float]]:
        """Job, beginning and end of each attempt that has ended, in seconds since 1970."""
        query = "SELECT job, started, ended FROM attempts WHERE ended IS NOT NULL ORDER BY started"
        return [tuple(row) for row in self._rows(query)]

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
        statement = (
            "UPDATE jobs SET state = ?, reason = '', scheduler = NULL, scheduler_job = NULL, queued = ?"
            " WHERE number = ?"
        )
        self._change(statement, [(Status.QUEUED, now, number) for number in numbers])

    def identify(self, scheduler: str, ids: Mapping[int, str]) -> None:
        """Notes the ids that a scheduler has given to jobs, by number."""
        statement = "UPDATE jobs SET scheduler = ?, scheduler_job = ? WHERE number = ?"
        self._change(statement, [(scheduler, text, number) for number, text in ids.items()])

    def leave(self, number: int, state: Status, reason: str = "") -> None:
        """Notes where a job is that has not ended, and why."""
        self._change("UPDATE jobs SET state = ?, reason = ? WHERE number = ?", [(state, reason, number)])

    def reopen(self, number: int) -> None:
        """Notes that a job that had ended, and its duplicates, are to run again."""
        statement = (
            "UPDATE jobs SET state = ?, reason = '', run_id = NULL, inventory = NULL WHERE number = ? OR same_as = ?"
        )
        self._change(statement, [(Status.PLANNED, number, number)])

    def restart(self, numbers: Iterable[int]) -> None:
        """Notes that jobs, and their duplicates, are to run from their start, as if they had never been started."""
        statement = (
            "UPDATE jobs SET state = ?, reason = '', run_id = NULL, inventory = NULL, scheduler = NULL,"
            " scheduler_job = NULL, queued = NULL, attempts = 0, started = NULL, ended = NULL"
            " WHERE number = ? OR same_as = ?"
        )
        with self._transaction() as connection:
            for number in numbers:
                connection.execute("DELETE FROM attempts WHERE job = ?", (number,))
                connection.execute(statement, (Status.PLANNED, number, number))
            connection.execute(_NOTE, (TABLES_NOTED, "{}"))

    def forget(self, jobs: Iterable[LedgerJob]) -> None:
        """Takes jobs out, and notes that there were such ones."""
        gone = [Forgotten(job.number, None if job.same_as is not None else job.directory, job.identity) for job in jobs]
        with self._transaction() as connection:
            for each in gone:
                connection.execute("DELETE FROM attempts WHERE job = ?", (each.number,))
                connection.execute("DELETE FROM jobs WHERE number = ?", (each.number,))
            noted = {"jobs": [asdict(each) for each in (*self.forgotten(), *gone)]}
            connection.execute(_NOTE, (FORGOTTEN, json.dumps(noted)))
            connection.execute(_NOTE, (TABLES_NOTED, "{}"))

    def forgotten(self) -> list[Forgotten]:
        """The jobs that were taken out.

        Raises:
            RunError: what is noted of them is damaged.
        """
        try:
            return _FORGOTTEN.validate_python((self.noted(FORGOTTEN) or {}).get("jobs", []))
        except ValidationError as error:
            raise RunError(f"{self.path} is damaged: its note {FORGOTTEN}: {first_fault(error)}") from None

    def _change(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._transaction() as connection:
            connection.executemany(statement, rows)

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
            now: when its last attempt ended, if that is open.
            reason: why it failed or was interrupted, or "".
            inventory: digest of the run's files.
        """
        with self._transaction() as connection:
            connection.execute("UPDATE attempts SET ended = ? WHERE job = ? AND ended IS NULL", (now, number))
            connection.execute(
                "UPDATE jobs SET state = ?, reason = ?, run_id = ?, inventory = ?, ended = COALESCE("
                "(SELECT ended FROM attempts WHERE job = jobs.number ORDER BY attempt DESC LIMIT 1), ended, ?)"
                " WHERE number = ? OR same_as = ?",
                (state, reason, run_id, inventory, now, number, number),
            )

    def noted(self, key: str) -> Any:
        """A fact about the whole sweep, a mapping, or None.

        Raises:
            RunError: it is damaged.
        """
        rows = self._rows("SELECT value FROM sweep WHERE key = ?", key)
        content = json_of(rows[0]["value"]) if rows else None
        if content is None and (not rows or rows[0]["value"] == "null"):
            return None
        if not isinstance(content, dict):
            raise RunError(f"{self.path} is damaged: its note {key} is not a mapping in JSON")
        if missing := [each for each in _NOTED.get(key, ()) if each not in content]:
            raise RunError(f"{self.path} is damaged: its note {key} lacks {', '.join(missing)}")
        return content

    def _rows(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as error:
            if (sentence := machine_faults.sentence(error)) is not None:
                raise RunError(f"{self.path}: {sentence}") from error
            raise RunError(f"{self.path} is damaged: {error}") from None

    def _job(self, row: sqlite3.Row) -> LedgerJob:
        try:
            return _job(dict(row))
        except ValueError as error:
            raise RunError(f"{self.path} is damaged: job {row['number']}: {error}") from None

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


def _job(values: dict[str, Any]) -> LedgerJob:
    """A job from the columns of its row; raises ValueError if there is something else in one of them."""
    parsed = {key: json_of(value) if key in _IN_JSON else value for key, value in values.items()}
    try:
        job = _JOB.validate_python({**dict.fromkeys(_PLANNED), **parsed})
    except ValidationError as error:
        fault = error.errors()[0]
        if (key := str(fault["loc"][0])) not in values:
            raise ValueError(f"there is no column {key}") from None
        raise ValueError(f"its {key} is {format_value(values[key])}: {rule_of(fault)}") from None
    if not isinstance(json_of(job.spec), dict):
        raise ValueError(f"its spec is not a mapping in JSON: {format_value(job.spec)}")
    directory = PurePath(job.directory or ".")
    if directory.is_absolute() or ".." in directory.parts or "\0" in str(directory):
        raise ValueError(f"its directory is {format_value(str(directory))}, which is not inside the sweep's")
    return job
