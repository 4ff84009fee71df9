"""The other workers of a cluster on one machine, started and ended by worker 0. Imports no TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from embexp.strategies.cluster import places
from embexp.system import machine

_LAST_LINES = 3
MODULE = "embexp.runs.runtimes.worker"
"""What another worker executes."""


def log_path(folder: Path, worker: int) -> Path:
    """The log of a worker other than 0, in the folder of the run."""
    return folder / f"worker-{worker}.log"


class Workers:
    """Processes of this one, which end with it, however it ends."""

    def __init__(self, workers: int, leader: str, folder: Path) -> None:
        """Starts workers 1 to `workers` - 1.

        Args:
            leader: where worker 0 listens.
            folder: of the run, which has its spec, and gets the logs.
        """
        self._folder, self._started = folder, {}
        known = [entry for entry in sys.path if entry and Path(entry).exists()]
        for worker in range(1, workers):
            own = {places.WORKER: str(worker), places.LEADER: leader, "PYTHONPATH": os.pathsep.join(known)}
            with log_path(folder, worker).open("ab") as log:
                self._started[worker] = subprocess.Popen(
                    [sys.executable, "-m", MODULE, str(folder.absolute())],
                    env={**os.environ, **machine.variables(), **own},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for worker 0, which decides for all
                )

    @property
    def ids(self) -> dict[int, int]:
        """The process id of each."""
        return {worker: process.pid for worker, process in self._started.items()}

    def ended(self) -> str | None:
        """A sentence on a worker that has ended, before it should; None: all run."""
        for worker, process in self._started.items():
            if (status := process.poll()) is not None:
                log = log_path(self._folder, worker)
                said = "\n".join(f"  {line}" for line in _last_lines(log))
                return f"worker {worker} has ended with status {status} before it was ready; {log} ends with\n{said}"
        return None

    def end(self, seconds: float) -> None:
        """Waits for their end, and kills those that are still there after so many seconds."""
        deadline = time.monotonic() + seconds
        for process in self._started.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _last_lines(log: Path) -> Sequence[str]:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip()][-_LAST_LINES:]
