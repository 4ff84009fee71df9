"""Commands of a run of several workers: those of the others than worker 0, and runs that begin again after a loss."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.errors import EmbexpError, WorkerLostError
from embexp.system.printable import print

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.strategies import Strategy

_AGAIN = "EMBEXP_RESTARTED"
"""Variable of the environment of a command that is a restart: it makes no restarts of its own."""
_TELL_SECONDS = 10.0


def is_led(strategy: Strategy) -> bool:
    """Whether another process is worker 0 of the run, as by a scheduler that has started one on each machine.

    Raises:
        RunError: what is set in the environment contradicts the config.
    """
    from embexp.specs.strategies import MultiWorker

    if not isinstance(strategy, MultiWorker):
        return False
    from embexp.strategies.cluster import places

    return places.place(strategy, os.environ).worker > 0


def follow(spec: RunSpec, directory: Path | None = None) -> int:
    """Takes part in a run that another process leads; returns the exit status.

    Args:
        directory: of a run that may be complete, so that nobody leads; None: worker 0 begins one, or trains it longer.
    """
    from embexp.records.folder import RunFolder
    from embexp.system import environment

    folder = None if directory is None else RunFolder(directory)
    if folder is not None and folder.summary.exists() and folder.read_summary()["status"] != "interrupted":
        return 0  # worker 0 says so
    environment.load_tensorflow(**spec.strategy.kernels)
    from embexp.runs.runtimes import worker

    return worker.follow(spec)


def are_started_alike() -> bool:
    """Whether the environment may be that of one of several processes with the same command."""
    from embexp.strategies.cluster import places

    return any(name in os.environ for name in places.VARIABLES)


@contextlib.contextmanager
def telling(strategy: Strategy) -> Iterator[None]:
    """Reports errors in the block to the other workers of a scheduler, which wait for worker 0, so that they end."""
    try:
        yield
    except WorkerLostError:
        raise
    except EmbexpError as error:
        if not error.told:
            refuse(strategy, error)
        raise


def refuse(strategy: Strategy, error: EmbexpError) -> None:
    """As worker 0 of a scheduler, tells the other workers why it fails, for some seconds; else nothing."""
    from embexp.specs.strategies import MultiWorker

    if not isinstance(strategy, MultiWorker):
        return
    from embexp.strategies.cluster import places, rendezvous

    with contextlib.suppress(EmbexpError):
        place = places.place(strategy, os.environ)
        if place.leader is not None and not place.worker:
            reason = f"worker 0 has failed: {error}"
            rendezvous.refuse(place.leader, reason, workers=strategy.workers, seconds=_TELL_SECONDS)


def restart(lost: WorkerLostError, strategy: Strategy, directory: Path, allowed: Iterable[str]) -> int:
    """Goes on with a run from its last checkpoint, `strategy.restarts` times at most; returns the exit status.

    TensorFlow can't leave a cluster, so new processes do the rest of the run.

    Args:
        allowed: functions that the run names.

    Raises:
        WorkerLostError: `lost`, where there are no restarts.
    """
    from embexp.specs.strategies import MultiWorker

    restarts = strategy.restarts if isinstance(strategy, MultiWorker) and _AGAIN not in os.environ else 0
    if not restarts:
        raise lost
    print(f"error: {lost}", file=sys.stderr, flush=True)
    permitted = [word for name in allowed for word in ("--allow-code", name)]
    command = [sys.executable, "-m", "embexp", "resume", str(directory), *permitted]
    status = 1
    for attempt in range(1, restarts + 1):
        print(f"restart {attempt} of {restarts}", file=sys.stderr, flush=True)
        status = subprocess.run(command, env={**os.environ, _AGAIN: str(attempt)}, check=False).returncode
        if status != 1:
            break
    return status
