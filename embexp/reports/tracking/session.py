"""A run's reports to its trackers: its settings, from before the first step to after the inventory."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import yaml

from embexp.errors import RunError
from embexp.records import inventory
from embexp.records.differences import leaves
from embexp.records.folder import RunFolder, json_object
from embexp.records.identity import DECIDES_NOTHING
from embexp.reports.tracking.tracker import Delivery, Direct, Parameter, Point, Queued, TrackedRun, Tracker, reason
from embexp.specs.base import implementation
from embexp.specs.run import RunSpec
from embexp.specs.tracking import MLflow, NoTracking, missing_packages
from embexp.specs.tracking import Tracking as Settings
from embexp.training.listeners import Listener


class Tracking(Listener):
    """Passes the events of a training to trackers, as metrics such as `train/loss` and `validation/auc`.

    Attributes:
        warnings: what went wrong with a tracker so far.
    """

    def __init__(self, folder: RunFolder, listeners: Sequence[Listener], *, checkpoint: bool) -> None:
        """Tracks nothing yet.

        Args:
            checkpoint: whether the final checkpoint is stored as an artifact.
        """
        self.warnings: list[str] = []
        self._folder, self._checkpoint = folder, checkpoint
        self._listeners = listeners
        self._deliveries: list[Delivery] = []
        self._inside: list[Delivery] = []
        self._status = "failed"

    def start(self, delivery: Delivery, run: TrackedRun, *, inside: bool = False) -> None:
        """Starts a tracker.

        Args:
            inside: whether the tracker writes into the run's folder.

        Raises:
            RunError: it can't be started.
        """
        delivery.start(run)
        (self._inside if inside else self._deliveries).append(delivery)

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
        self._status = summary["status"]

    def seal(self, write: Callable[[], str]) -> str:
        """Has the inventory written, once nobody writes into the run's folder any more, and reports its digest.

        Returns:
            The digest.
        """
        inside, self._inside = self._inside, []
        for delivery in inside:
            delivery.close(self._status, self._files())
        digest = write()
        for delivery in [*inside, *self._deliveries]:
            delivery.sealed(digest)
        return digest

    def close(self) -> None:
        """Hands over the files of the run, and ends the trackers."""
        for delivery in [*self._inside, *self._deliveries]:
            delivery.close(self._status, self._files())

    def _files(self) -> list[Path]:
        """The files that trackers store."""
        folder = self._folder
        files = [folder.spec, folder.manifest, folder.coverage, folder.summary, folder.metrics, folder.plots]
        files.append(folder.path / inventory.NAME)
        if self._checkpoint:
            files.append(folder.final_checkpoint)
        return [path for path in files if path.exists()]

    def attempt(self, what: str, write: Callable[[], object]) -> None:
        """Writes something that a run can do without: that it can't be written is a warning.

        Args:
            what: for the warning, such as `the projector's files`.
        """
        try:
            write()
        except OSError as error:
            self.warn(f"{what} can't be written: {reason(error)}")

    def interrupted(self) -> None:
        """Notes that a signal ends the run outside its training."""
        self._status = "interrupted"

    def warn(self, sentence: str) -> None:
        """Tells about a failure of a tracker; called from other threads, too."""
        self.warnings.append(sentence)
        for listener in self._listeners:
            listener.warned(sentence)

    def _report(self, step: int, metrics: Mapping[str, float]) -> None:
        if metrics:
            point = Point(step, time.time(), {name: float(value) for name, value in metrics.items()})
            for delivery in [*self._inside, *self._deliveries]:
                delivery.log(point)


@contextlib.contextmanager
def track(
    spec: RunSpec, folder: RunFolder, run_id: str, *, first_step: int = 0, listeners: Sequence[Listener] = ()
) -> Iterator[Tracking]:
    """Reports to the trackers of a run until the end of the block, however it ends.

    Args:
        first_step: the step after which this process trains.

    Raises:
        RunError: a tracker can't be started; once it is, it ends no run.
    """
    content = spec.model_dump(mode="json")
    tracking = Tracking(folder, listeners, checkpoint=getattr(spec.tracking, "checkpoint", False))
    run = TrackedRun(
        name=spec.name,
        directory=folder.path,
        run_id=run_id,
        parameters=parameters(content),
        config=as_yaml(content),
        commit=_commit(folder.manifest),
        first_step=first_step,
    )
    tracker = _tracker(spec.tracking)
    try:
        if spec.output.tensorboard:
            from embexp.reports.tracking.tensorboard import TensorBoard

            tracking.start(Direct(TensorBoard(folder.events), tracking.warn), run, inside=True)
        if tracker is not None:
            tracking.start(Queued(tracker, tracking.warn), run)
        with _told_of_termination(tracking) if tracker is not None else contextlib.nullcontext():
            yield tracking
    except KeyboardInterrupt:
        tracking.interrupted()
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
        RunError: a package is not installed, or the store can't be opened.
    """
    if not isinstance(settings, MLflow):
        return
    tracker = _tracker(settings)
    from embexp.reports.tracking import mlflow

    if tracker is not None and not mlflow.is_served(settings.uri):
        try:
            mlflow.connect(settings.uri)
        except Exception as error:
            remedy = "Correct the settings of tracking, or set tracking=none"
            raise RunError(f"{tracker.name} can't be reached: {reason(error)}\n    {remedy}") from error


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
        tracking.interrupted()
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
    """The settings that decide the results, by config path such as `optimizer.learning_rate`.

    Settings that are null are left out; lists are JSON.

    Args:
        spec: of a run, as JSON.
    """
    decide = {name: part for name, part in spec.items() if name not in DECIDES_NOTHING}
    found = {path: value for path, value in leaves(decide) if value not in (None, [], {})}
    return {
        path: json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
        for path, value in found.items()
    }


def as_yaml(spec: Mapping[str, Any]) -> str:
    """A whole spec as YAML.

    Args:
        spec: of a run, as JSON.
    """
    return yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True, width=120)
