"""What a tracker is, and how reports reach it: at once or from a thread. It delays no step and ends no run."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from embexp.errors import RunError
from embexp.records.folder import json_object
from embexp.system import files

Parameter = bool | int | float | str
"""The value of a setting."""
Warn = Callable[[str], object]
"""Called with a sentence about a failure."""
_PAUSE = 1.0
"""Seconds between two batches of points: a server gets no request per step."""
_PAUSE_AFTER_FAILURE = 10.0
_START_SECONDS = 120.0
_END_SECONDS = 120.0


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers see it.

    Attributes:
        run_id: the same for two runs that must give the same bits.
        parameters: settings that decide the results, by config path.
        commit: of the code; None: not known.
        first_step: the step after which this process trains; 0 unless the run is resumed.
    """

    name: str
    directory: Path
    run_id: str
    parameters: Mapping[str, Parameter]
    config: str
    commit: str | None = None
    first_step: int = 0


@dataclass(frozen=True)
class Point:
    """Metrics after a step.

    Attributes:
        step: number of steps done.
        metrics: by name, such as `validation/auc`; what is before the first `/` is a split, or `final`.
    """

    step: int
    seconds: float
    metrics: Mapping[str, float]


class Tracker(Protocol):
    """Stores what a run reports. Any of its methods may fail with any exception."""

    name: str
    """For warnings, such as `MLflow`."""

    def start(self, run: TrackedRun) -> None:
        """Begins to track a run, or goes on with one that is resumed."""
        ...

    def log(self, points: Sequence[Point]) -> None:
        """Stores metrics; called again with the same points if it failed."""
        ...

    def artifacts(self, paths: Sequence[Path]) -> None:
        """Stores files and directories of the run."""
        ...

    def sealed(self, inventory: str) -> None:
        """Stores the digest of the run's inventory, once no file of the run is written any more."""
        ...

    def end(self, status: str) -> None:
        """Ends the run; `status` is completed, stopped_early, interrupted or failed."""
        ...


def remember(directory: Path, kind: str, note: Mapping[str, Any]) -> None:
    """Notes about a run in its directory what a tracker needs to go on in the same place when it is resumed."""
    files.write_text(directory / "tracking.json", json.dumps({kind: note}, indent=2) + "\n")


def remembered(directory: Path, kind: str) -> dict[str, Any]:
    """What a tracker noted about a run; empty: nothing that can be read."""
    found = json_object(directory / "tracking.json").get(kind)
    return found if isinstance(found, dict) else {}


class Direct:
    """Calls a tracker at once. After a failure it is not called any more, which a warning tells."""

    def __init__(self, tracker: Tracker, warn: Warn) -> None:
        self._tracker, self._warn = tracker, warn
        self._failed = False

    def start(self, run: TrackedRun) -> None:
        """Starts the tracker; a failure is a warning."""
        self._call(lambda: self._tracker.start(run))

    def log(self, point: Point) -> None:
        """Stores metrics."""
        self._call(lambda: self._tracker.log([point]))

    def close(self, status: str, artifacts: Sequence[Path]) -> None:
        """Stores the files and ends the run."""
        self._call(lambda: self._tracker.artifacts(artifacts))
        self._call(lambda: self._tracker.end(status))

    def sealed(self, inventory: str) -> None:
        """Stores the digest of the inventory."""
        self._call(lambda: self._tracker.sealed(inventory))

    def _call(self, call: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            call()
        except Exception as error:
            self._failed = True
            self._warn(f"{self._tracker.name}: {reason(error)}; nothing more is written there")


class Queued:
    """Calls a tracker from a thread: points wait for the next batch, or for the next attempt after a failure."""

    def __init__(self, tracker: Tracker, warn: Warn, *, pause: float = _PAUSE, patience: float = _END_SECONDS) -> None:
        """Starts no thread yet.

        Args:
            warn: called with a sentence about a failure, from the thread too.
            pause: seconds between two batches.
            patience: seconds for which the end of the run waits for the tracker.
        """
        self._tracker, self._warn = tracker, warn
        self._pause, self._patience = pause, patience
        self._pending: list[Point] = []
        self._lock = threading.Lock()
        self._started, self._closing = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._failing = False
        self._status, self._artifacts = "failed", list[Path]()
        self._inventory: str | None = None
        self._thread: threading.Thread | None = None

    def start(self, run: TrackedRun) -> None:
        """Starts the thread, and in it the tracker.

        Raises:
            RunError: the tracker can't be started, or has not answered within two minutes.
        """
        # A daemon, as a server that does not answer must not keep the process alive.
        self._thread = threading.Thread(
            target=self._work, args=(run,), name=f"tracker-{self._tracker.name}", daemon=True
        )
        self._thread.start()
        answered = self._started.wait(_START_SECONDS)
        if self._error is not None or not answered:
            self._closing.set()
            why = f"no answer within {_START_SECONDS:g} s" if self._error is None else reason(self._error)
            raise RunError(
                f"{self._tracker.name} can't be reached: {why}\n    Correct the settings of tracking, or set"
                " tracking=none"
            ) from self._error

    def log(self, point: Point) -> None:
        """Puts metrics into the next batch."""
        with self._lock:
            self._pending.append(point)

    def close(self, status: str, artifacts: Sequence[Path]) -> None:
        """Waits until everything is stored, for two minutes at most; what is not by then, a warning tells."""
        if self._thread is None or self._error is not None:
            return
        self._status, self._artifacts = status, list(artifacts)
        self._closing.set()
        self._thread.join(self._patience)
        if self._thread.is_alive():
            self._warn(f"{self._tracker.name}: no answer within {self._patience:g} s; the end of the run is not there")

    def sealed(self, inventory: str) -> None:
        """Notes the digest of the inventory for the end."""
        self._inventory = inventory

    def _work(self, run: TrackedRun) -> None:
        try:
            self._tracker.start(run)
        except Exception as error:
            self._error = error
            return
        finally:
            self._started.set()
        while not self._closing.wait(_PAUSE_AFTER_FAILURE if self._failing else self._pause):
            self._send()
        self._send()
        if self._failing:
            self._warn(f"{self._tracker.name}: {len(self._pending)} points of the curves are missing there")
        try:
            # The end is tried even if a file could not be stored, so that the run does not seem to go on.
            with contextlib.ExitStack() as stack:
                stack.callback(self._tracker.end, self._status)
                if self._inventory is not None:
                    self._tracker.sealed(self._inventory)
                self._tracker.artifacts(self._artifacts)
        except Exception as error:
            self._warn(f"{self._tracker.name}: {reason(error)}; files or the end of the run are missing there")

    def _send(self) -> None:
        """Sends the points that wait; after a failure they go on waiting."""
        with self._lock:
            points = list(self._pending)
        if not points:
            return
        try:
            self._tracker.log(points)
        except Exception as error:
            if not self._failing:
                self._warn(f"{self._tracker.name}: {reason(error)}; the run goes on, and this is tried again")
            self._failing = True
            return
        self._failing = False
        with self._lock:
            del self._pending[: len(points)]


Delivery = Direct | Queued
"""Brings what a run reports to a tracker."""


def reason(error: Exception) -> str:
    """An error in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= 300 else f"{text[:299]}…"
