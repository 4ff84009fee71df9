"""No tracker delays or ends a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from embexp.errors import RunError
from embexp.records.folder import RunFolder
from embexp.reports.tracking import Direct, Point, Queued, TrackedRun, Tracking
from embexp.specs.running import OnError

RUN = TrackedRun(name="x", directory=Path("x"), run_id="ab", parameters={}, config="")


class Recorder:
    """A tracker that fails when it is told to."""

    name = "Recorder"

    def __init__(self, *, failing: Sequence[str] = ()) -> None:
        self.calls: list[tuple[str, object]] = []
        self.failing = set(failing)
        self.answers = threading.Event()
        self.answers.set()

    def start(self, run: TrackedRun) -> None:
        self._called("start", run.name)

    def log(self, points: Sequence[Point]) -> None:
        self._called("log", [point.step for point in points])

    def artifacts(self, paths: Sequence[Path]) -> None:
        self._called("artifacts", [path.name for path in paths])

    def sealed(self, inventory: str) -> None:
        self._called("sealed", inventory)

    def end(self, status: str) -> None:
        self._called("end", status)

    def _called(self, what: str, value: object) -> None:
        self.answers.wait(10)
        self.calls.append((what, value))
        if what in self.failing:
            raise ConnectionError("the server is gone\nand more")


def point(step: int) -> Point:
    return Point(step, 0.0, {"train/loss": 1.0})


def test_points_are_sent_in_batches_and_all_is_there_at_the_end() -> None:
    tracker, warnings = Recorder(), list[str]()
    queued = Queued(tracker, warnings.append, pause=60.0)
    queued.start(RUN)
    for step in range(500):
        queued.log(point(step))
    queued.sealed("c0ffee")
    queued.close("completed", [Path("a/summary.json")])
    sealed: list[tuple[str, object]] = [("sealed", "c0ffee"), ("artifacts", ["summary.json"])]
    expected = [("log", list(range(500))), *sealed, ("end", "completed")]
    assert tracker.calls == [("start", "x"), *expected]
    assert not warnings


def test_a_slow_tracker_delays_nothing() -> None:
    tracker = Recorder()
    queued = Queued(tracker, lambda sentence: None, pause=0.001)
    queued.start(RUN)
    tracker.answers.clear()
    began = time.monotonic()
    for step in range(1000):
        queued.log(point(step))
    assert time.monotonic() - began < 5.0  # it answers only afterwards
    tracker.answers.set()
    queued.close("completed", [])
    sent = [step for what, steps in tracker.calls if what == "log" and isinstance(steps, list) for step in steps]
    assert sent == list(range(1000))


def test_points_wait_for_a_server_that_comes_back_and_one_warning_tells() -> None:
    tracker, warnings = Recorder(failing=["log"]), list[str]()
    queued = Queued(tracker, warnings.append, pause=0.001)
    queued.start(RUN)
    queued.log(point(1))
    while not warnings:
        time.sleep(0.001)
    tracker.failing.clear()
    queued.log(point(2))
    queued.close("completed", [])
    assert tracker.calls[-3:] == [("log", [1, 2]), ("artifacts", []), ("end", "completed")]
    assert warnings == ["Recorder: the server is gone; the run continues, and this is tried again"]


def test_what_is_missing_at_the_end_is_told_and_the_end_is_tried() -> None:
    tracker, warnings = Recorder(failing=["log", "artifacts"]), list[str]()
    queued = Queued(tracker, warnings.append, pause=60.0)
    queued.start(RUN)
    queued.log(point(1))
    queued.close("failed", [])
    assert tracker.calls[-1] == ("end", "failed")
    assert warnings[1:] == [
        "Recorder: 1 points of the curves are missing there",
        "Recorder: the server is gone; files or the end of the run are missing there",
    ]


def test_a_tracker_that_hangs_does_not_hold_the_end_up() -> None:
    tracker, warnings = Recorder(), list[str]()
    queued = Queued(tracker, warnings.append, pause=60.0, patience=0.05)
    queued.start(RUN)
    tracker.answers.clear()
    queued.close("completed", [])
    tracker.answers.set()
    assert warnings == ["Recorder: no answer within 0.05 s; the end of the run is missing there"]


def test_a_tracker_that_cannot_be_started_is_an_error() -> None:
    queued = Queued(Recorder(failing=["start"]), lambda sentence: None)
    with pytest.raises(RunError, match=r"Recorder can't be reached: the server is gone\n    Correct the settings"):
        queued.start(RUN)
    queued.close("failed", [])  # has nothing to wait for


def test_a_run_goes_on_without_a_tracker_that_cannot_be_started(tmp_path: Path) -> None:
    tracker = Recorder(failing=["start"])
    tracking = Tracking(RunFolder(tmp_path), [], checkpoint=False)
    tracking.start(Queued(tracker, tracking.warn), RUN, OnError.CONTINUE)
    tracking.logged(1, 0.5, None)
    tracking.close()
    assert tracking.warnings == ["Recorder can't be reached: the server is gone; the run continues without it"]


def test_a_direct_tracker_is_not_called_after_a_failure() -> None:
    tracker, warnings = Recorder(failing=["log"]), list[str]()
    direct = Direct(tracker, warnings.append)
    direct.start(RUN)
    direct.log(point(1))
    direct.log(point(2))
    direct.close("completed", [])
    assert tracker.calls == [("start", "x"), ("log", [1])]
    assert warnings == ["Recorder: the server is gone; nothing more is written there"]
