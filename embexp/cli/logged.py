"""Training with progress and results on the terminal and in run.log."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from embexp.system import collector, interruption, machine_faults
from embexp.system.printable import print

if TYPE_CHECKING:
    from rich.console import Console

    from embexp.cli.stages import Stages
    from embexp.runs.run import RunResult
    from embexp.specs.run import RunSpec
    from embexp.training.listeners import Listener


@dataclass(frozen=True)
class Shown:
    """Where a training shows what it does.

    Attributes:
        stages: shows the stages before and after training.
        terminal: the console of the terminal.
        log: the console of run.log.
    """

    stages: Stages
    terminal: Console
    log: Console

    def listeners(self) -> list[Listener]:
        """New listeners for a training."""
        from embexp.training.progress import ProgressLines, progress

        return [self.stages, progress(self.terminal), ProgressLines(self.log)]

    def announce(self, heading: str) -> None:
        """Prints a heading, such as before each run of a study."""
        self.stages.close()
        for console in (self.terminal, self.log):
            console.print(f"\n{heading}", style="bold", markup=False, highlight=False, soft_wrap=True)

    def say(self, sentence: str) -> None:
        """Prints a sentence."""
        self.stages.close()
        for console in (self.terminal, self.log):
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def logged(spec: RunSpec, directory: Path, execute: Callable[[Shown], RunResult]) -> RunResult:
    """Has `execute` train, and prints the results.

    Args:
        spec: of the run: its strategy is checked before TensorFlow is loaded.
        directory: of the run, where run.log is appended to.
        execute: trains; called after TensorFlow was loaded.
    """
    from embexp.errors import EmbexpError

    with _Log(directory / "run.log") as log:
        try:
            result = _shown(spec, directory, execute, log)
        except EmbexpError as error:
            log.note(f"error: {error}")
            raise
        except KeyboardInterrupt:
            log.note(f"interrupted by {interruption.name()}")
            raise
        except Exception as error:
            if (sentence := machine_faults.sentence(error)) is not None:
                log.note(f"error: {sentence}")
            raise
    sys.stdout.flush()
    return result


class _Log:
    """run.log, as a file of text. A failure to write to it, as on a full disk, is reported once and ends nothing."""

    encoding = "utf-8"

    def __init__(self, path: Path) -> None:
        self._path, self._failed = path, False
        self._file = path.open("ab", buffering=0)

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, text: str) -> int:
        """Appends text."""
        left = text.encode()
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

    def note(self, sentence: str) -> None:
        """Appends a line."""
        self.write(f"{sentence}\n")


def _shown(spec: RunSpec, directory: Path, execute: Callable[[Shown], RunResult], log: _Log) -> RunResult:
    from embexp.strategies import tpu_address
    from embexp.system import environment

    tpu_address.check_strategy(spec.strategy)  # a missing TPU is reported before TensorFlow is loaded
    with interruption.leaving_at_once(), collector.paused():
        environment.load_tensorflow()
        import embexp.studies.run  # noqa: F401  what `execute` imports
        from embexp.cli.stages import Stages
        from embexp.records import inventory
        from embexp.studies import report
        from embexp.system.terminal import SafeConsole

    terminal = SafeConsole()
    shown = Shown(Stages(terminal), terminal, SafeConsole(file=cast(IO[str], log), width=160))
    try:
        result = execute(shown)
    finally:
        shown.stages.close()
    digest = inventory.digest_of(directory)
    for console in (shown.terminal, shown.log):
        console.print(report.terminal_report(result.summary, directory))
        if digest is not None:
            console.print(f"{inventory.NAME} has the SHA-256 digest {digest}", highlight=False, soft_wrap=True)
    return result
