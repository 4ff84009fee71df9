"""A job asks its search after each evaluation whether to go on, through small files in the sweep's directory.

Files work wherever the job runs: in another process, or on another machine that shares the directory. The job waits for
the answer, so that what is pruned does not depend on how fast either process is.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from embexp.records.folder import json_object
from embexp.system import files
from embexp.training.listeners import Listener

PRUNED = "pruned"
_FOLDER = ".pruning"
_METRIC, _REPORT, _ANSWER = "metric.json", "report.json", "answer.json"
_LOOK_EVERY = 0.02
"""Seconds between two looks at a file."""
_PATIENCE = 20.0
"""Seconds that a job waits for an answer. A search that is gone gives none, and the job then trains to its end."""

Decide = Callable[[int, int, float], bool]
"""Whether to prune: the number of the job, the step and the value of its evaluation."""


class AskedAfterEvaluations(Listener):
    """Asks the search after each evaluation, and ends the training if it is pruned."""

    def __init__(self, folder: Path, metric: str, *, patience: float = _PATIENCE) -> None:
        """Prepares a job.

        Args:
            patience: seconds to wait for an answer.
        """
        self._folder, self._metric, self._patience = folder, metric, patience
        self._total = 0

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Notes the number of steps: after the last one, there is nothing to prune."""
        self._total = total_steps

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Asks about an evaluation of the validation split."""
        value = metrics.get(self._metric, math.nan)
        if split != "validation" or step >= self._total or not math.isfinite(value):
            return
        files.write_text(self._folder / _REPORT, json.dumps({"step": step, "value": value}))
        if self._answer(step) is True:
            self.stop_status = PRUNED

    def _answer(self, step: int) -> bool | None:
        """Whether to prune; None if no answer came."""
        give_up = time.monotonic() + self._patience
        while True:
            answer = json_object(self._folder / _ANSWER)
            if answer.get("step") == step:
                return bool(answer.get("prune"))
            if time.monotonic() >= give_up:
                self._patience = 0.0  # the search has ended; a later evaluation need not wait for it again
                return None
            time.sleep(_LOOK_EVERY)


def listeners(sweep: Path, number: int) -> list[Listener]:
    """What a job needs to ask: one listener if its search prunes, else none."""
    folder = _folder(sweep, number)
    metric = json_object(folder / _METRIC).get("metric")
    return [AskedAfterEvaluations(folder, str(metric))] if metric is not None else []


@contextlib.contextmanager
def answered(sweep: Path, numbers: Iterable[int], metric: str, decide: Decide) -> Iterator[None]:
    """Within the block, a thread answers what some jobs ask.

    Args:
        metric: of the validation split, by which they are compared.
        decide: called for each evaluation, in this thread.
    """
    folders = {number: _folder(sweep, number) for number in numbers}
    for folder in folders.values():
        files.write_text(folder / _METRIC, json.dumps({"metric": metric}))
    done, errors = threading.Event(), list[BaseException]()

    def answer() -> None:
        try:
            while not done.wait(_LOOK_EVERY):
                for number, folder in folders.items():
                    _answer(folder, partial(decide, number))
        except BaseException as error:  # shown by the block: jobs go on without an answer
            errors.append(error)

    thread = threading.Thread(target=answer, name="pruning", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if errors:
        raise errors[0]


def _answer(folder: Path, decide: Callable[[int, float], bool]) -> None:
    report = json_object(folder / _REPORT)
    if report and report.get("step") != json_object(folder / _ANSWER).get("step"):
        prune = decide(int(report["step"]), float(report["value"]))
        files.write_text(folder / _ANSWER, json.dumps({"step": report["step"], "prune": prune}))


def _folder(sweep: Path, number: int) -> Path:
    return sweep / _FOLDER / str(number)
