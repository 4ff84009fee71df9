"""Runs a spec, or resumes it: a single run, or a study of several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import assert_never

from embexp.errors import EmbexpError, RunError
from embexp.records import allowed_code, inventory
from embexp.records.folder import RunFolder
from embexp.runs import resume as resuming
from embexp.runs import run as single
from embexp.runs.run import RunResult
from embexp.specs.run import RunSpec
from embexp.specs.studies import NewEntitiesStudy, NoStudy
from embexp.studies import new_entities
from embexp.system import files, machine_faults
from embexp.system.parallel import Progress, quiet
from embexp.training.listeners import Listener
from embexp.training.loop import Replay

Announce = Callable[[str], None]
"""Called with a heading before each run of a study."""
Say = Callable[[str], object]
"""Called with a sentence."""


def run(
    spec: RunSpec,
    directory: Path,
    *,
    listeners: Callable[[], Sequence[Listener]] = lambda: (),
    progress: Progress = quiet,
    announce: Announce = lambda heading: None,
    replay: Replay | None = None,
) -> RunResult:
    """Runs an experiment, or all runs of a study.

    Args:
        directory: an existing, empty directory. Each run of a study gets a subdirectory.
        listeners: returns new listeners for each training.
        progress: called with the stages before and after training.
        announce: called with a heading before each run of a study.
        replay: how a single run follows an earlier one, if it does.

    Raises:
        RunError: a run fails for a reason in the data, a file or the machine, or another process has the directory.
    """
    with _machine_errors(), RunFolder(directory).writing():
        files.remove_leftovers(directory)
        match spec.study:
            case NoStudy():
                return single.run(spec, directory, listeners=listeners(), progress=progress, replay=replay)
            case NewEntitiesStudy():
                return new_entities.run(spec, directory, listeners=listeners, progress=progress, announce=announce)
            case _:
                assert_never(spec.study)


def resume(
    directory: Path,
    changed: RunSpec | None = None,
    *,
    allow_code: Sequence[str] = (),
    listeners: Callable[[], Sequence[Listener]] = lambda: (),
    progress: Progress = quiet,
    announce: Announce = lambda heading: None,
    say: Say = lambda sentence: None,
) -> RunResult:
    """Completes a run, or the runs of a study, that was interrupted or killed.

    Args:
        directory: of the run or of the study.
        changed: see `embexp.runs.resume.resume`; a study takes none.
        allow_code: functions that the recorded spec may run.
        listeners: returns new listeners for each training.
        progress: called with the stages before and after training.
        announce: called with a heading before each run of a study.
        say: called with a sentence on where a run is resumed, and about checkpoints that are skipped.

    Raises:
        NotARunError: there is no run in the directory.
        RunError: it can't be resumed, fails, or another process has the directory.
        UsageError: the spec names code that isn't allowed.
    """
    RunFolder(directory).recorded_spec()  # else there is nothing to lock
    with _machine_errors(), RunFolder(directory).writing():
        spec = RunFolder(directory).recorded_spec()
        files.remove_leftovers(directory)
        match spec.study:
            case NoStudy():
                return resuming.resume(
                    directory, changed, allow_code=allow_code, listeners=listeners(), progress=progress, say=say
                )
            case NewEntitiesStudy():
                if changed is not None:
                    raise RunError(
                        f"{directory} is the directory of a study, whose settings can't change when it is resumed"
                    )
                allowed_code.check(spec, allow_code, record=RunFolder(directory).spec)
                if (ended := _ended(RunFolder(directory))) is not None:
                    say(f"all runs of the study have ended ({ended.status}); nothing is left to do")
                    return ended
                return new_entities.run(spec, directory, listeners=listeners, progress=progress, announce=announce)
            case _:
                assert_never(spec.study)


def _ended(folder: RunFolder) -> RunResult | None:
    """The result of a study that has its last file; None if something is left to do."""
    if inventory.digest_of(folder.path) is None:
        return None
    summary = folder.read_summary()
    return None if summary["status"] == "interrupted" else RunResult(folder.path, summary)


@contextmanager
def _machine_errors() -> Iterator[None]:
    """Turns errors of the machine, such as a full disk or too little memory, into a `RunError` of one sentence."""
    try:
        yield
    except EmbexpError:
        raise
    except Exception as error:
        if (sentence := machine_faults.sentence(error)) is None:
            raise
        raise RunError(sentence) from error
