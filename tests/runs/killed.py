"""Runs or resumes a run in this process, and kills it by SIGKILL at an instant: `killed.py REQUEST.json`.

The request: `overrides` of the run, its `directory`, and when to `kill` it: null, {"step": n, "seconds": s} after that
step, or {"save": n, "seconds": s} after the n-th save has begun; by another signal if it names one as `signal`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import embexp
from embexp.checkpoints import store
from embexp.records.folder import RunFolder
from embexp.runs import experiment
from embexp.runs.run import Observer
from embexp.training.listeners import Listener


class Killer(Listener):
    """Kills the process some time after a step, or after a save has begun."""

    def __init__(self, when: dict[str, Any]) -> None:
        self._when, self._saves, self._armed = when, 0, False
        if "save" in when:
            self._write, store.write_by = store.write_by, self._saving

    def progressed(self, step: int) -> None:
        if step >= self._when.get("step", float("inf")):
            self._arm()

    def _saving(self, *arguments: Any, **named: Any) -> Path:
        self._saves += 1
        if self._saves == self._when["save"]:
            self._arm()
        return self._write(*arguments, **named)

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            timer = threading.Timer(
                self._when["seconds"], os.kill, (os.getpid(), signal.Signals[self._when.get("signal", "SIGKILL")])
            )
            timer.daemon = True
            timer.start()


def main(request: dict[str, Any]) -> None:
    directory = Path(request["directory"])
    listeners = [] if request["kill"] is None else [Killer(request["kill"])]
    if RunFolder(directory).spec.exists():
        experiment.resume(directory, observer=Observer(lambda: listeners, say=print))
    else:
        directory.mkdir(parents=True, exist_ok=True)
        experiment.run(embexp.compose(request["overrides"]), directory, Observer(lambda: listeners))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
