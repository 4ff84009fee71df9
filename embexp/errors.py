"""The exception tree of embexp.

    EmbexpError
    ├── UsageError               the user's words are wrong; exit status 2
    │   ├── CommandLineError     an unknown command or flag
    │   └── ConfigError          every fault of a config at once, each a `Fault`
    └── RunError                 the run itself failed; exit status 1
        ├── DataError            a file whose content is not what it should be
        ├── VocabularyError      a value or id that no row of a table stands for
        ├── CheckpointError      a checkpoint that does not fit what it is restored into
        ├── NotARunError         a folder that holds no finished run
        └── DivergedError        the loss is no longer a finite number

Anything else that escapes is a bug in embexp and is shown with its stack trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a config.

    Attributes:
        path: config path, dotted, such as `tables.item.dim`; empty for the config as a whole.
        value: what was received, already in words (`"-3"`, `"'meen'"`, `"nothing"`).
        rule: what holds for this place, as a sentence without a full stop.
        remedy: what to do about it, or "" when the rule says it all.
        source: the file (and line, where known) or override that set the value, or "".
    """

    path: str
    value: str
    rule: str
    remedy: str = ""
    source: str = ""

    def __str__(self) -> str:
        lines = [f"{self.path or 'config'} = {self.value}: {self.rule}."]
        if self.remedy:
            lines.append(f"    {self.remedy}")
        if self.source:
            lines.append(f"    set in {self.source}")
        return "\n".join(lines)


@dataclass(frozen=True)
class CombinationFault(Fault):
    """Settings that are right each by itself but can't work together: a sweep leaves such a job out."""


class EmbexpError(Exception):
    """Base of every error that embexp raises on purpose."""


class UsageError(EmbexpError):
    """The user's words are wrong: the command line or the config."""


class CommandLineError(UsageError):
    """The command line can't be understood."""


class ConfigError(UsageError):
    """A config with at least one fault; `str()` lists all of them."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        if not faults:
            raise ValueError("a ConfigError needs at least one fault")
        self.faults = tuple(faults)
        count = f"{len(faults)} faults" if len(faults) > 1 else "1 fault"
        super().__init__("\n".join([f"{count} in the config", *(f"  {fault}" for fault in self.faults)]))


class RunError(EmbexpError):
    """The run failed for a reason outside the program: its data, its files, its machine."""


class DataError(RunError):
    """A data file whose content is not what it should be: says file, line, found, expected."""


class VocabularyError(RunError):
    """A value or id that no row of its table stands for."""


class CheckpointError(RunError):
    """A checkpoint that does not fit what it is restored into."""


class NotARunError(RunError):
    """A folder that holds no finished run."""


class DivergedError(RunError):
    """The loss is no longer a finite number."""
