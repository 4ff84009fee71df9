"""The exception tree of embexp.

    EmbexpError
    ├── UsageError               the command line or the config is invalid; exit status 2
    │   ├── CommandLineError     an invalid command or option
    │   └── ConfigError          all faults of a config at once, each a `Fault`
    └── RunError                 the run failed; exit status 1
        ├── DataError            a file with unexpected content
        ├── VocabularyError      a value or id without a row in its table
        ├── CheckpointError      a checkpoint that does not fit what it is restored into
        ├── NotARunError         a directory without a finished run
        ├── DivergedError        the loss is no longer a finite number
        └── WorkerLostError      another worker of the run is gone, or has failed

Anything else that escapes is a bug in embexp and is shown with its stack trace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto


class Code(StrEnum):
    """What kind of fault it is, for code that treats some kinds differently."""

    OTHER = auto()
    UNKNOWN_KEY = auto()
    KEY_OF_ANOTHER_KIND = auto()
    NOT_IN_CONFIG = auto()
    """An override of a key, or of a place for a choice, that this config does not have, and others may have."""
    UNKNOWN_KIND = auto()
    UNSET = auto()
    """A setting without which the run can't be."""
    NOT_TEXT = auto()
    """YAML or Hydra reads it as a number, a switch or null, and it must be text."""
    TEXT_OF_NUMBER = auto()
    BETWEEN_KEYS = auto()
    """A rule about several keys of one mapping."""
    NO_COLUMN = auto()


@dataclass(frozen=True)
class Fault:
    """One fault of a config.

    Attributes:
        path: config path, dotted, such as `tables.item.dim`; empty for the config as a whole.
        value: the received value as text (`"-3"`, `"'meen'"`, `"nothing"`).
        rule: the violated rule, as a sentence without a full stop.
        remedy: how to fix it, or "" if that is obvious from the rule.
        source: the file (and line, if known) or override that set the value, or "".
        code: the kind of fault.
        fix: the remedy as overrides, if they are certain. Each replaces the overrides of its key. A key alone means
            that its overrides are removed.
    """

    path: str
    value: str
    rule: str
    remedy: str = ""
    source: str = ""
    code: Code = Code.OTHER
    fix: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.path or 'config'} = {self.value}: {self.rule}."]
        if self.remedy:
            lines.append(f"    {self.remedy}")
        if self.source:
            lines.append(f"    set in {self.source}")
        return "\n".join(lines)


@dataclass(frozen=True)
class CombinationFault(Fault):
    """Valid settings that can't be combined: a sweep skips such a job."""


class EmbexpError(Exception):
    """Base class of all errors that embexp raises on purpose.

    Attributes:
        told: whether all workers of the run have raised this error.
    """

    told = False


class UsageError(EmbexpError):
    """The command line or the config is invalid."""


class CommandLineError(UsageError):
    """The command line is invalid."""


class ConfigError(UsageError):
    """A config with one or more faults; `str()` lists all of them."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        if not faults:
            raise ValueError("a ConfigError needs at least one fault")
        self.faults = tuple(faults)
        count = f"{len(faults)} faults" if len(faults) > 1 else "1 fault"
        super().__init__("\n".join([f"{count} in the config", *(f"  {fault}" for fault in self.faults)]))


class RunError(EmbexpError):
    """The run failed for a reason in the data, a file or the machine."""


class DataError(RunError):
    """A file with unexpected content; the message names file, line, found and expected content.

    Attributes:
        rule: the message without the remedy.
        remedy: how to fix it, or "".
    """

    def __init__(self, rule: str, remedy: str = "") -> None:
        super().__init__(f"{rule}\n    {remedy}" if remedy else rule)
        self.rule, self.remedy = rule, remedy


class VocabularyError(RunError):
    """A value or id without a row in its table."""


class CheckpointError(RunError):
    """A checkpoint that does not fit what it is restored into."""


class NotARunError(RunError):
    """A directory without a finished run."""


class DivergedError(RunError):
    """The loss is no longer a finite number."""


class WorkerLostError(RunError):
    """Another worker of the run is gone, or has failed."""


_SHOWN = 300


@contextlib.contextmanager
def read_by_library(where: str) -> Iterator[None]:
    """Turns what a library raises about the bytes of a file into a DataError. The block calls the library only.

    Libraries that parse files don't say which exceptions damaged bytes lead to, and h5py, zipfile and Arrow raise a
    dozen kinds, so none is left out; a MemoryError among them is about a size that the file claims.

    Args:
        where: how the message begins: the file, and what was expected of it.

    Raises:
        DataError: the library raised something.
    """
    try:
        yield
    except EmbexpError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{where}: {said if len(said) <= _SHOWN else said[:_SHOWN] + '…'}") from error


def plural(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def excerpt(text: str | bytes) -> str:
    """A piece of a file, short enough for an error."""
    written = repr(text[:60])
    return written if len(text) <= 60 else f"{written[:-1]}…{written[-1]}"
