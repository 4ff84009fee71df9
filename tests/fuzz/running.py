"""Readers run on mutated files, each in a process of its own that may crash, hang, or take too much memory."""

from __future__ import annotations

import gc
import mmap
import multiprocessing
import os
import resource
import shutil
import struct
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import psutil

from embexp.errors import EmbexpError
from embexp.system import hdf5
from tests.fuzz import corpus
from tests.fuzz.contents import Files
from tests.fuzz.mutations import mutated
from tests.fuzz.readers import READERS, Reader

SECONDS, MEGABYTES = 2.0, 200.0
"""What reading an input may take: processor time, and memory beyond what the reader gave."""
_STUCK_SECONDS = 60.0  # of the clock, as the machine may be busy
_ADDRESS_SPACE = 6 << 30
_STATE = struct.Struct("qd")  # number of the input at hand, and when it was begun


@dataclass(frozen=True)
class Outcome:
    """What reading an input led to.

    Attributes:
        number: of the input.
        refused: whether the reader said that it can't be read.
        other: what else happened: another exception, a crash; "" for nothing.
        seconds: of processor time.
        megabytes: of memory beyond what the reader gave.
    """

    number: int
    refused: bool = False
    other: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0

    @property
    def fault(self) -> str:
        """What is wrong with it; "" for nothing."""
        if self.other:
            return self.other
        if self.seconds > SECONDS:
            return f"took {self.seconds:.1f} s"
        return f"took {self.megabytes:.0f} MB" if self.megabytes > MEGABYTES else ""


@dataclass
class Figures:
    """Of all inputs of a reader."""

    inputs: int = 0
    refused: int = 0
    seconds: float = 0.0
    megabytes: float = 0.0
    faults: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Counts an input."""
        self.inputs += 1
        self.refused += outcome.refused
        self.seconds = max(self.seconds, outcome.seconds)
        self.megabytes = max(self.megabytes, outcome.megabytes)
        if outcome.fault:
            self.faults.append(outcome)


def made(reader: Reader, files: list[Files], seed: int, number: int) -> tuple[dict[str, bytes], Random]:
    """An input, which is a function of reader, seed and number, and what its options are drawn from.

    The first inputs are the corpus itself.
    """
    random = Random(f"{seed} {reader.name} {number}")
    if number < len(files):
        return {name: content.whole for name, content in files[number].items()}, random
    if reader.mutated is not None:
        return reader.mutated(random.choice(files), files, random), random
    return mutated(random.choice(files), files, reader.words, random), random


def outcome_of(reader: Reader, files: list[Files], seed: int, number: int, folder: Path) -> Outcome:
    """Reads an input in this process; the folder is emptied afterwards.

    One that takes too long is read again, and the least time counts: a busy machine adds to the time of a processor.
    """
    first = _read(reader, files, seed, number, folder)
    again = [_read(reader, files, seed, number, folder) for _ in range(2 if first.seconds > SECONDS else 0)]
    return replace(first, seconds=min(each.seconds for each in (first, *again)))


def _read(reader: Reader, files: list[Files], seed: int, number: int, folder: Path) -> Outcome:
    data, random = made(reader, files, seed, number)
    path = corpus.written(data, folder)
    refused, other, size = False, "", 0
    before, begun = _resident(), _seconds()
    try:
        size = reader.read(path, random)
    except EmbexpError:
        refused = True
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in place if "/embexp/" in frame.filename] or place
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        other = f"{type(error).__name__} at {where}: {' '.join(str(error).split())[:160]}"
    seconds = _seconds() - begun
    taken = (_resident(peak=True) - before - size) / 1e6
    for each in folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    return Outcome(number, refused, other, seconds, max(0.0, taken))


def outcomes(reader: Reader, numbers: range, seed: int) -> Iterator[Outcome]:
    """Reads inputs in another process, which is begun anew where it ends or is stuck."""
    context = multiprocessing.get_context("fork")
    while numbers:
        state = mmap.mmap(-1, _STATE.size)
        state[:] = _STATE.pack(numbers[0], time.monotonic() + 30)  # it makes the corpus first
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(reader, numbers, seed, state, theirs), daemon=True)
        process.start()
        theirs.close()
        done, stuck = numbers.start, False
        while True:
            # Not by the end of the pipe: a process begun meanwhile may hold it open.
            connection.wait([ours, process.sentinel], 1.0)
            try:
                if ours.poll():
                    outcome = ours.recv()
                    yield outcome
                    done = outcome.number + numbers.step
                    continue
            except EOFError:
                break
            if process.exitcode is not None:
                break
            if stuck := time.monotonic() - _STATE.unpack(state[:])[1] > _STUCK_SECONDS:
                process.kill()
                break
        process.join()
        at = _STATE.unpack(state[:])[0]
        numbers = range(done, numbers.stop, numbers.step)
        if numbers:
            said = f"stuck for {_STUCK_SECONDS:.0f} s" if stuck else f"the process ended with {process.exitcode}"
            yield Outcome(at, other=said)
            numbers = range(at + numbers.step, numbers.stop, numbers.step)


def _work(reader: Reader, numbers: range, seed: int, state: mmap.mmap, results: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("error")
    os.environ["ARROW_IO_THREADS"] = "1"
    files = reader.corpus()
    gc.freeze()
    gc.set_threshold(100_000)  # composing makes many objects and hardly any cycle
    with corpus.temporary() as folder:
        for number in numbers:
            state[:] = _STATE.pack(number, time.monotonic())
            outcome = outcome_of(reader, files, seed, number, Path(folder))
            if outcome.seconds > SECONDS:  # processor time grows with what else runs on the same cores
                again = (outcome_of(reader, files, seed, number, Path(folder)) for _ in range(2))
                outcome = min(outcome, *again, key=lambda each: each.seconds)
            results.send(outcome)


def by_name(name: str) -> Reader:
    """The reader of that name."""
    return next(reader for reader in READERS if reader.name == name)


def _processes() -> list[int]:
    """This process, and the one that reads HDF5 for it."""
    other = hdf5._PROCESS._process
    return [os.getpid()] + ([] if other is None or other.poll() is not None else [other.pid])


def _seconds() -> float:
    """Processor time of these processes."""
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in _processes())


def _resident(*, peak: bool = False) -> int:
    """Bytes of memory of these processes; the peak is since the last call for the bytes."""
    size = 0
    for pid in _processes():
        if not peak:
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # man 5 proc: resets the peak
        wanted = "VmHWM:" if peak else "VmRSS:"
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            size += next((int(line.split()[1]) * 1024 for line in status if line.startswith(wanted)), 0)
    return size
