"""What a command shows on the terminal and in run.log: stages before and after training, progress, results."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.status import Status

from embexp.records import inventory
from embexp.system import environment, interruption, machine_faults
from embexp.system.printable import lasting_streams, print
from embexp.system.terminal import SafeConsole, say
from embexp.training.listeners import Listener
from embexp.training.progress import ProgressLines, Stage, progress

if TYPE_CHECKING:
    from embexp.runs.run import Observer, RunResult
    from embexp.specs.strategies import Strategy

_APART_SECONDS = 10.0
"""Between lines of one stage where there is no terminal."""


@contextlib.contextmanager
def show_stages() -> Iterator[Stages]:
    """Shows stages on standard error until the block ends."""
    stages = Stages(SafeConsole(stderr=True))
    try:
        yield stages
    finally:
        stages.close()


class Stages(Listener):
    """Shows the current stage: pass it as the progress callback. As a listener it closes when training begins.

    A terminal shows the current stage with a bar, its percentage and the time that is left, and is cleared afterwards;
    elsewhere each stage is a line, and one more every ten seconds.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._stage = Stage()
        self._printed = 0.0

    def __call__(self, stage: str, done: float | None) -> None:
        """Shows a stage and, if known, the fraction of it that is done."""
        now = time.monotonic()
        new = self._stage.moved(stage, done, now)
        if self._console.is_terminal:
            if self._status is None:
                self._status = self._console.status("")
                self._status.start()
            self._status.update(self._stage)
        elif new or (done is not None and now - self._printed >= _APART_SECONDS):
            say(self._console, stage if new else str(self._stage))
            self._printed = now

    def close(self) -> None:
        """Clears the stage from the terminal."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Closes, as the progress of training takes over."""
        self.close()


@dataclass(frozen=True)
class Shown:
    """Where a training shows what it does."""

    stages: Stages
    terminal: Console
    log: Console

    def listeners(self) -> list[Listener]:
        """New listeners for a training."""
        return [self.stages, progress(self.terminal), ProgressLines(self.log)]

    @property
    def observer(self) -> Observer:
        """What a run reports to."""
        from embexp.runs.run import Observer

        return Observer(self.listeners, self.stages, self.announce, self.say, self.ending)

    def announce(self, heading: str) -> None:
        """Prints a heading, such as before each run of a study."""
        self.stages.close()
        for console in (self.terminal, self.log):
            say(console, f"\n{heading}", style="bold")

    def say(self, sentence: str) -> None:
        """Prints a sentence."""
        self.stages.close()
        for console in (self.terminal, self.log):
            say(console, sentence)

    def ending(self, summary: Mapping[str, Any], directory: Path) -> None:
        """Writes the results to run.log, which the inventory is about to list."""
        from embexp.runs import experiment

        self.log.print(experiment.results(summary, directory))


class _Log:
    """run.log, as a file of text. A failure to write to it, as on a full disk, is reported once and ends nothing.

    While the folder has an inventory, which lists the log, nothing is written: text waits until a resumption removes
    the inventory. What is said of a run that is complete, or can't be resumed, is no output of it.
    """

    encoding = "utf-8"

    def __init__(self, path: Path) -> None:
        self._path, self._failed, self._waiting = path, False, ""
        self._file = path.open("ab", buffering=0)

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, text: str) -> int:
        """Appends text."""
        self._waiting += text
        if (self._path.parent / inventory.NAME).exists():
            return len(text)
        left, self._waiting = self._waiting.encode(), ""
        try:
            while left:
                left = left[self._file.write(left) or 0 :]
        except OSError as error:
            if not self._failed:
                with contextlib.suppress(OSError):
                    words = machine_faults.reason(error)
                    print(f"warning: {self._path} can't be written: {words}", file=sys.stderr, flush=True)
            self._failed = True
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def lost(self, error: OSError) -> None:
        """Says that what the run prints is lost from now on."""
        self.note(f"the output of the run can no longer be written ({error.strerror}): the run continues without it")

    def note(self, sentence: str) -> None:
        """Appends a line."""
        self.write(f"{sentence}\n")


def logged(strategy: Strategy, directory: Path, execute: Callable[[Shown], RunResult]) -> RunResult:
    """Has `execute` train, and prints the results.

    Args:
        strategy: of the run: it is checked before TensorFlow is loaded.
        execute: trains; called after TensorFlow was loaded.
    """
    from embexp.errors import EmbexpError

    with _Log(directory / "run.log") as log, lasting_streams(log.lost):
        try:
            result = _trained(strategy, directory, execute, log)
        except KeyboardInterrupt as error:
            log.note(f"interrupted by {interruption.name()}")
            error.args = (_interrupted(directory),)
            raise
        except Exception as error:
            sentence = str(error) if isinstance(error, EmbexpError) else machine_faults.sentence(error)
            if sentence is not None:
                log.note(f"error: {sentence}")
            raise
    return result


def _trained(strategy: Strategy, directory: Path, execute: Callable[[Shown], RunResult], log: _Log) -> RunResult:
    from embexp.specs.strategies import TPU

    if isinstance(strategy, TPU):
        from embexp.strategies import tpu_address

        tpu_address.check_strategy(strategy)  # a missing TPU is reported before TensorFlow is loaded
    terminal = SafeConsole()
    found = Shown(Stages(terminal), terminal, SafeConsole(file=cast(IO[str], log), width=160))
    with interruption.leaving_at_once(_interrupted(directory)), environment.collecting_paused():
        found.stages("loading TensorFlow", None)
        environment.load_tensorflow(**strategy.kernels)
        from embexp.runs import experiment  # which `execute` imports, too

    try:
        result = execute(found)
    finally:
        found.stages.close()
    if not terminal.is_terminal:
        terminal.print()
    terminal.print(experiment.results(result.summary, directory))
    if (digest := inventory.digest_of(directory)) is not None:
        terminal.print(f"{inventory.NAME} has the SHA-256 digest {digest}", highlight=False, soft_wrap=True)
    if result.status == "interrupted":
        say(terminal, _interrupted(directory))
    return result


def _interrupted(directory: Path) -> str:
    return f"interrupted; to continue: {shlex.join(['embexp', 'resume', str(directory)])}"
