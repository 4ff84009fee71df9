"""Training with progress and results on the terminal and in run.log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

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

    with (directory / "run.log").open("a", encoding="utf-8", buffering=1) as log:
        try:
            result = _shown(spec, directory, execute, log)
        except EmbexpError as error:
            log.write(f"error: {error}\n")
            raise
    sys.stdout.flush()
    return result


def _shown(spec: RunSpec, directory: Path, execute: Callable[[Shown], RunResult], log: TextIO) -> RunResult:
    from embexp.strategies import tpu_address
    from embexp.system import environment

    tpu_address.check_strategy(spec.strategy)  # a missing TPU is reported before TensorFlow is loaded
    environment.load_tensorflow()
    from rich.console import Console

    from embexp.cli.stages import Stages
    from embexp.studies import report

    terminal = Console()
    shown = Shown(Stages(terminal), terminal, Console(file=log, width=160))
    try:
        result = execute(shown)
    finally:
        shown.stages.close()
    for console in (shown.terminal, shown.log):
        console.print(report.terminal_report(result.summary, directory))
    return result
