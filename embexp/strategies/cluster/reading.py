"""Workers that read the data together, before TensorFlow forms their cluster: what they say and send to each other.

Each says something to worker 0, which tells all of them what all have said. Files go through worker 0, too, which
passes a block on before the next one comes. `embexp.data.together` has what is said. Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from embexp.errors import EmbexpError, RunError
from embexp.specs.strategies import MultiWorker
from embexp.strategies.cluster import rendezvous
from embexp.strategies.cluster.control import Follower, Leader
from embexp.strategies.cluster.places import Place
from embexp.system.parallel import Progress

_BLOCK_BYTES = 4 << 20


@contextlib.contextmanager
def together(spec: MultiWorker, place: Place, facts: Mapping[str, str]) -> Iterator[LeadingReader | OtherReader | None]:
    """The workers of a scheduler, within the block; None where worker 0 starts the others itself, after the reading.

    Args:
        facts: what all must agree on.

    Raises:
        RunError: a worker does not come, or would read something else; or one was lost within the block.
    """
    if place.of_one_machine or place.leader is None:
        yield None  # the threads of one process use all processors
        return
    facts = {**facts, rendezvous.WORKERS: str(spec.workers)}
    if place.worker:
        own = place.own or rendezvous.free_address(place.host)
        joined = rendezvous.join(
            place.leader, own, worker=place.worker, workers=spec.workers, facts=facts, seconds=spec.start_seconds
        )
        follower = Follower(joined, place.worker, silence_seconds=spec.silence_seconds)
        try:
            yield OtherReader(follower, place.worker, spec.workers)
        except Exception as error:
            if not getattr(error, "told", False):
                follower.report(str(error) if isinstance(error, EmbexpError) else f"{type(error).__name__}: {error}")
            raise
        finally:
            follower.close()
        return
    members = rendezvous.gather(
        rendezvous.listener(place.leader),
        place.leader,
        workers=spec.workers,
        facts=facts,
        told={},
        seconds=spec.start_seconds,
    )
    leader, failed = Leader(members, silence_seconds=spec.silence_seconds, abort=lambda reason: None), True
    try:
        yield LeadingReader(leader, spec.workers)
        failed = False
    except EmbexpError as error:
        if not error.told and leader.fault is None:
            leader.tell({"refused": f"worker 0 has failed: {error}"})
            error.told = True
        raise
    finally:
        leader.end(failed=failed)
        leader.close()


class LeadingReader:
    """Worker 0; `Workers` of `embexp.data.together`."""

    worker = 0

    def __init__(self, leader: Leader, workers: int) -> None:
        self.workers, self._leader = workers, leader
        self._progress: Progress | None = None
        self._stage, self._own = "", 0.0

    def gathered(self, said: dict[str, Any]) -> list[dict[str, Any]]:
        """What each worker says, in order."""
        found = [said]
        for worker in range(1, self.workers):
            _, (text,) = self._leader.reply(worker, self._show)
            found.append(_read(text))
        self._progress = None
        text = _written(found)
        self._leader.tell({}, [text])
        all_: list[dict[str, Any]] = _read(text)
        return all_

    def send(self, folder: Path, sender: int, receivers: Collection[int]) -> None:
        """Copies the files of a folder of one worker into a new folder of each of some others."""
        blocks = _blocks(folder) if sender == 0 else self._received(sender)
        others = [worker for worker in receivers if worker]
        if 0 in receivers:
            folder.mkdir()
        for name, block in blocks:
            if 0 in receivers:
                _write(folder, name, block)
            for worker in others:
                self._leader.send(worker, {"file": name}, [block])
        for worker in others:
            self._leader.send(worker, {"file": None})

    def counted(self, progress: Progress) -> Progress:
        """The mean of what the workers have done."""
        self._progress = progress

        def shown(stage: str, done: float | None) -> None:
            self._stage, self._own = stage, done or 0.0
            self._show()

        return shown

    def _show(self) -> None:
        if self._progress is not None and self._stage:
            self._progress(self._stage, (self._own + sum(self._leader.done.values())) / self.workers)

    def _received(self, sender: int) -> Iterator[tuple[str, np.ndarray]]:
        while True:
            head, arrays = self._leader.reply(sender)
            if head["file"] is None:
                return
            yield head["file"], arrays[0]


class OtherReader:
    """Another worker than 0; `Workers` of `embexp.data.together`."""

    def __init__(self, follower: Follower, worker: int, workers: int) -> None:
        self.worker, self.workers, self._follower = worker, workers, follower

    def gathered(self, said: dict[str, Any]) -> list[dict[str, Any]]:
        """What each worker says, in order."""
        with contextlib.suppress(RunError):  # worker 0 may have said why it is gone
            self._follower.answer({}, [_written(said)])
        _, (text,) = self._next()
        found: list[dict[str, Any]] = _read(text)
        return found

    def send(self, folder: Path, sender: int, receivers: Collection[int]) -> None:
        """Copies the files of a folder of one worker into a new folder of each of some others."""
        if self.worker == sender:
            for name, block in _blocks(folder):
                self._follower.answer({"file": name}, [block])
            self._follower.answer({"file": None})
        elif self.worker in receivers:
            folder.mkdir()
            while True:
                head, arrays = self._next()
                if head["file"] is None:
                    break
                _write(folder, head["file"], arrays[0])

    def counted(self, progress: Progress) -> Progress:
        """What this worker has done, for worker 0."""

        def noted(stage: str, done: float | None) -> None:
            self._follower.done = done or 0.0

        return noted

    def _next(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        """What worker 0 says next.

        Raises:
            RunError: it has failed, or is gone.
        """
        head, arrays = self._follower.next()
        if "refused" in head or "command" in head:
            raise RunError(head.get("refused", "worker 0 has stopped reading: see its output"))
        return head, arrays


def _written(said: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(said).encode(), np.uint8)


def _read(text: np.ndarray) -> Any:
    return json.loads(text.tobytes())


def _blocks(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Name of the file, and bytes."""
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                yield path.name, np.frombuffer(block, np.uint8)


def _write(folder: Path, name: str, block: np.ndarray) -> None:
    with (folder / Path(name).name).open("ab") as file:
        file.write(block.data)
