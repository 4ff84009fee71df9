"""A process of its own for each library of `bench.models`, so that no library's threads wait beside another's.

The processes of all libraries stay, and only the one that is asked does anything.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import time
import traceback
from pathlib import Path
from typing import Any

from bench.models_cases import CASES

OURS = "embexp"


class Worker:
    """A process that trains one case with one library."""

    def __init__(self, library: str, case: str, folder: Path, threads: int) -> None:
        """Starts it, and waits until it is ready.

        Raises:
            RuntimeError: it fails.
        """
        self._stderr = folder / f"{library}.stderr"
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, library, case, folder, threads), daemon=True)
        self._process.start()
        theirs.close()
        self._received()

    def train(self, steps: int) -> tuple[float, float]:
        """Does so many steps; milliseconds of a step, and those of the processor, user and system."""
        wall, processor = self._asked("train", steps)
        return wall / steps * 1e3, processor / steps * 1e3

    def profile(self, steps: int) -> dict[str, float]:
        """See `models_ours.Ours.profile`."""
        found: dict[str, float] = self._asked("profile", steps)
        return found

    def limit(self) -> dict[str, float] | None:
        """See `models_limit.limit`."""
        found: dict[str, float] | None = self._asked("limit", 0)
        return found

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(OSError):
            self._pipe.send(None)
        self._process.join()

    def _asked(self, what: str, steps: int) -> Any:
        self._pipe.send((what, steps))
        return self._received()

    def _received(self) -> Any:
        try:
            failed, value = self._pipe.recv()
        except EOFError:
            raise RuntimeError(f"the process has died: {self._stderr.read_text()[-2000:]}") from None
        if failed:
            raise RuntimeError(value)
        return value


def _serve(pipe: Any, library: str, name: str, folder: Path, threads: int) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    # TensorFlow greets even so.
    os.dup2(os.open(folder / f"{library}.stderr", os.O_WRONLY | os.O_CREAT, 0o600), 2)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        with contextlib.ExitStack() as stack:
            trained = _begun(stack, library, name, folder, threads)
            pipe.send((False, None))
            while (asked := pipe.recv()) is not None:
                what, steps = asked
                pipe.send((False, trained[what](steps)))
    except Exception:
        pipe.send((True, traceback.format_exc()))


def _begun(stack: contextlib.ExitStack, library: str, name: str, folder: Path, threads: int) -> dict[str, Any]:
    case = CASES[name]
    if library != OURS:
        from bench import models_shared

        advance = importlib.import_module(f"bench.models_{library}").advance
        return {"train": _timed(advance(models_shared.setting(case, folder), threads))}
    from bench import models_limit, models_ours

    ours = stack.enter_context(models_ours.begun(case, folder, threads))
    limit = lambda _: models_limit.limit(ours.spec, ours.sizes)  # noqa: E731
    return {"train": _timed(ours.train), "profile": ours.profile, "limit": limit}


def _timed(advance: Any) -> Any:
    def timed(steps: int) -> tuple[float, float]:
        start, processor = time.perf_counter(), time.process_time()
        advance(steps)
        return time.perf_counter() - start, time.process_time() - processor

    return timed
