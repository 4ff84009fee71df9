"""A run's reports to its trackers: what a tracker is, and how reports reach it, at once or from a thread.

Trackers get settings before the first step, metrics meanwhile, and files after the last. None delays a step, and none
ends a run once it is started.
"""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol

import yaml

from embexp.errors import RunError
from embexp.records import inventory
from embexp.records.differences import leaves
from embexp.records.folder import RunFolder, json_object
from embexp.records.manifest import DECIDES_NOTHING
from embexp.specs.base import implementation
from embexp.specs.running import OnError
from embexp.specs.tracking import MLflow, NoTracking, missing_packages
from embexp.specs.tracking import Tracking as Settings
from embexp.system import files
from embexp.system.printable import masked, without_secrets
from embexp.system.tensor_bundle import increments
from embexp.training.listeners import Listener

Parameter = bool | int | float | str
"""The value of a setting."""


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


Warn = Callable[[str], object]
"""Called with a sentence about a failure."""
_PAUSE = 1.0
"""Seconds between two batches of points: a server gets no request per step."""
_PAUSE_AFTER_FAILURE = 10.0
_START_SECONDS = 120.0
_END_SECONDS = 120.0
_REMEDY = "Correct the settings of tracking, or set tracking.on_error=continue or tracking=none"


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
            raise RunError(f"{self._tracker.name} can't be reached: {why}\n    {_REMEDY}") from self._error

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
            self._warn(
                f"{self._tracker.name}: no answer within {self._patience:g} s; the end of the run is missing there"
            )

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
                self._warn(f"{self._tracker.name}: {reason(error)}; the run continues, and this is tried again")
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
    text = masked(lines[0]) if lines else type(error).__name__
    return text if len(text) <= 300 else f"{text[:299]}…"


class Tracking(Listener):
    """Passes the events of a training to trackers, as metrics such as `train/loss` and `validation/auc`.

    Attributes:
        status: how the run has ended; `failed` until that is known.
        warnings: what went wrong with a tracker so far.
    """

    def __init__(self, folder: RunFolder, listeners: Sequence[Listener], *, checkpoint: bool) -> None:
        """Tracks nothing yet.

        Args:
            checkpoint: whether the final checkpoint is stored as an artifact.
        """
        self.status, self.warnings = "failed", list[str]()
        self._folder, self._listeners, self._checkpoint = folder, listeners, checkpoint
        self._deliveries: list[Delivery] = []
        self._sealed = False

    def start(self, delivery: Delivery, run: TrackedRun, on_error: OnError = OnError.STOP) -> None:
        """Starts a tracker.

        Raises:
            RunError: it can't be started, and `on_error` is stop.
        """
        try:
            delivery.start(run)
        except RunError as error:
            if on_error is OnError.STOP:
                raise
            self.warn(f"{str(error).splitlines()[0]}; the run continues without it")
        else:
            self._deliveries.append(delivery)

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """Reports the loss and the throughput."""
        rate = {} if examples_per_second is None else {"train/examples_per_second": examples_per_second}
        self._report(step, {"train/loss": loss, **rate})

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Reports the metrics of a split."""
        self._report(step, {f"{split}/{name}": value for name, value in metrics.items()})

    def drifted(self, step: int, drift: Mapping[str, Mapping[str, float | None]]) -> None:
        """Reports how far each table's rows are from their pretrained values."""
        distances = {
            f"train/drift/{table}/{key}": value
            for table, each in drift.items()
            for key in ("mean", "largest", "relative")
            if (value := each[key]) is not None
        }
        self._report(step, distances)

    def finished(self, summary: Mapping[str, Any]) -> None:
        """Reports the final metrics of all splits, as `final/test/auc`, and how the run ended."""
        metrics = {
            f"final/{split}/{name}": value
            for split, values in summary["metrics"].items()
            for name, value in values.items()
        }
        self._report(summary["steps"], metrics)
        self.status = summary["status"]

    def seal(self, write: Callable[[], str]) -> str:
        """Has the inventory written, once nobody writes into the run's folder; reports and returns its digest."""
        self._close(Direct)
        self._sealed = True
        digest = write()
        for delivery in self._deliveries:
            delivery.sealed(digest)
        return digest

    def close(self) -> None:
        """Hands over the files of the run, and ends the trackers."""
        if not self._sealed:
            self._close(Direct)
        self._close(Queued)

    def warn(self, sentence: str) -> None:
        """Tells about a failure of a tracker; called from other threads, too."""
        self.warnings.append(sentence)
        for listener in self._listeners:
            listener.warned(sentence)

    def _close(self, kind: type[Delivery]) -> None:
        folder = self._folder
        stored = [folder.spec, folder.manifest, folder.coverage, folder.summary, folder.metrics, folder.plots]
        stored.append(folder.path / inventory.NAME)
        if self._checkpoint:
            stored += [folder.final_checkpoint, *sorted(folder.checkpoints.glob(f"{increments.EARLIER}*"))]
        for delivery in self._deliveries:
            if isinstance(delivery, kind):
                delivery.close(self.status, [path for path in stored if path.exists()])

    def _report(self, step: int, metrics: Mapping[str, float]) -> None:
        if metrics:
            point = Point(step, time.time(), {name: float(value) for name, value in metrics.items()})
            for delivery in self._deliveries:
                delivery.log(point)


@contextlib.contextmanager
def track(
    config: Mapping[str, Any],
    settings: Settings,
    folder: RunFolder,
    run_id: str,
    *,
    first_step: int = 0,
    listeners: Sequence[Listener] = (),
) -> Iterator[Tracking]:
    """Reports to the trackers of a run until the end of the block, however it ends.

    Args:
        first_step: the step after which this process trains.

    Raises:
        RunError: a tracker can't be started; once it is, it ends no run.
    """
    tracking = Tracking(folder, listeners, checkpoint=getattr(settings, "checkpoint", False))
    run = TrackedRun(
        name=config["name"],
        directory=folder.path,
        run_id=run_id,
        parameters=parameters(shown := without_secrets(config)),
        config=as_yaml(shown),
        commit=_commit(folder.manifest),
        first_step=first_step,
    )
    tracker = _tracker(settings)
    try:
        if config["output"]["tensorboard"]:
            from embexp.reports.tensorboard import TensorBoard

            tracking.start(Direct(TensorBoard(folder.events), tracking.warn), run)
        if tracker is not None:
            tracking.start(Queued(tracker, tracking.warn), run, getattr(settings, "on_error", OnError.STOP))
        with _told_of_termination(tracking) if tracker is not None else contextlib.nullcontext():
            yield tracking
    except KeyboardInterrupt:
        tracking.status = "interrupted"
        raise
    finally:
        tracking.close()


def _tracker(settings: Settings) -> Tracker | None:
    """The tracker of a setting.

    Raises:
        RunError: a package that it needs is not installed.
    """
    if lack := missing_packages(settings):
        rule, remedy = lack
        raise RunError(f"tracking={settings.kind}: {rule}\n    {remedy}, or set tracking=none")
    return None if isinstance(settings, NoTracking) else implementation(settings)()


def open_store(settings: Settings) -> None:
    """Makes the store of MLflow runs if it is new, before several processes, or machines, use it at once.

    Raises:
        RunError: a package is not installed, or the store can't be opened and `on_error` is stop.
    """
    if not isinstance(settings, MLflow):
        return
    tracker = _tracker(settings)
    from embexp.reports import mlflow

    if tracker is not None and not mlflow.is_served(settings.uri):
        try:
            mlflow.connect(settings.uri)
        except Exception as error:
            if settings.on_error is OnError.STOP:
                raise RunError(f"{tracker.name} can't be reached: {reason(error)}\n    {_REMEDY}") from error


@contextlib.contextmanager
def _told_of_termination(tracking: Tracking) -> Iterator[None]:
    """Within the block, SIGTERM ends the process by an exception, so that trackers learn of it.

    The training handles SIGTERM itself, and so does a program of the user's that has set a handler.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        tracking.status = "interrupted"
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _commit(manifest: Path) -> str | None:
    """The commit that a manifest records: of the user's model or working folder, or else of embexp's checkout."""
    repositories = json_object(manifest).get("code") or {}
    found = [repositories.get(name) or {} for name in ("model", "working_folder", "embexp")]
    return next((str(each["commit"]) for each in found if each.get("commit")), None)


def parameters(spec: Mapping[str, Any]) -> dict[str, Parameter]:
    """The settings of a spec, as JSON, that decide the results, by config path such as `optimizer.learning_rate`.

    Settings that are null are left out; lists are JSON.
    """
    decide = {name: part for name, part in spec.items() if name not in DECIDES_NOTHING}
    found = {path: value for path, value in leaves(decide) if value not in (None, [], {})}
    return {
        path: json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
        for path, value in found.items()
    }


def as_yaml(spec: Mapping[str, Any]) -> str:
    """A whole spec, as JSON, in YAML."""
    return yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True, width=120)
