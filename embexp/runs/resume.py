"""Resumes a run that was interrupted or killed, from its newest whole checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from embexp.checkpoints import store
from embexp.checkpoints.store import SavedStep
from embexp.errors import RunError
from embexp.records import allowed_code, differences, inventory
from embexp.records.differences import Kind
from embexp.records.folder import RunFolder
from embexp.runs import saving
from embexp.runs.prepare import Prepared, prepare, reading_sources
from embexp.runs.run import RunResult, complete, finish, prepare_machine, record, record_resumption
from embexp.specs.optimizers import CosineSchedule
from embexp.specs.run import RunSpec
from embexp.system.parallel import Progress, quiet
from embexp.training.listeners import Listener


def resume(
    directory: Path,
    changed: RunSpec | None = None,
    *,
    allow_code: Sequence[str] = (),
    listeners: Sequence[Listener] = (),
    progress: Progress = quiet,
    say: Callable[[str], object] = lambda sentence: None,
) -> RunResult:
    """Completes a run, with the bits of one that was never interrupted. A completed one is left as it is.

    Args:
        changed: the spec to go on with, such as one with more epochs; None: that of the run.
        allow_code: functions that the recorded spec may run.
        listeners: called during training, beside those that write the run's files.
        progress: called with the stages before and after training.
        say: called with a sentence on where the run is resumed, and about checkpoints that are skipped.

    Raises:
        NotARunError: there is no run in the directory.
        DataError: a file of the run was changed since it was interrupted.
        RunError: the run can't be resumed, as its data or files have changed, or fails as it may at any time.
        UsageError: the spec names code that isn't allowed.
    """
    folder = RunFolder(directory)
    spec = folder.read_spec()
    summary = folder.read_summary() if folder.summary.exists() else None
    if changed is None and summary is not None and summary["status"] != "interrupted":
        ended = f"the run has ended after {summary['steps']:,} steps ({summary['status']})"
        if inventory.digest_of(directory) is not None:
            say(f"{ended}; nothing is left to do")
            return RunResult(directory, summary)
        say(f"{ended}, and was killed before its last file: completing its files")
        return finish(folder, listeners=listeners)
    allowed_code.check(spec, allow_code, record=folder.spec)
    inventory.check_whole(directory)
    with reading_sources(spec):
        strategy = prepare_machine(spec.strategy)
        prepared = prepare(spec, progress)
        saved = _newest(folder, say)
        if saved is not None and _continued(prepared) not in saved.state.get("continued_by", ()):
            raise RunError(_changed_since(folder, saved))
        if changed is not None:
            if saved is None and summary is not None:
                raise RunError(
                    f"{folder.path} has no checkpoint of its last step to continue from: early stopping has restored"
                    f" step {summary['best_step']:,}. Start a new run, and keep the checkpoints of its training:"
                    " checkpoint.keep=null"
                )
            steps, prepared = prepared.schedule.steps, prepare(changed, progress)
            if saved is not None and saved.step > prepared.schedule.steps:
                total = prepared.schedule.steps
                raise RunError(f"{folder.path} has done {saved.step:,} steps already, and is to end after {total:,}")
            if prepared.schedule.steps != steps and (spans := _spanning(prepared)):
                say(
                    f"warning: {spans}: the schedule spans the whole training, so a longer one has other learning rates"
                )
            if saved is not None:
                saved = saving.adopted(saved, folder, _continued(prepared))
        say(_where(saved, prepared.schedule.steps))
        saving.cut_back(folder, saved)
        folder.write_spec(prepared.requested)
        if saved is None or not folder.manifest.exists():
            record(prepared, strategy, folder)
        else:
            before = folder.read_manifest()
            now = record_resumption(prepared, strategy, folder, saved.step)
            for sentence in _elsewhere(before, now):
                say(f"warning: {sentence}")
        return complete(prepared, strategy, folder, saved=saved, listeners=listeners, progress=progress)


def _newest(folder: RunFolder, say: Callable[[str], object]) -> SavedStep | None:
    """The newest whole checkpoint of the training, the final one of a run that has ended included."""
    torn: list[str] = []
    found = next(store.newest_first(folder.checkpoints, torn), None)
    for sentence in torn:
        say(f"warning: {sentence}")
    if found is None and (folder.final_checkpoint / store.STATE).is_file():  # perhaps it was killed before its summary
        found = store.read_state(folder.final_checkpoint)
        store.check_content(folder.final_checkpoint)
    return found


def _where(saved: SavedStep | None, steps: int) -> str:
    if saved is None:
        return "no checkpoint was saved yet: starting again from step 0"
    return f"resuming from step {saved.step:,} of {steps:,}"


def _spanning(prepared: Prepared) -> str:
    """The config paths of learning-rate schedules that depend on the length of the training."""
    spec = prepared.spec
    optimizers: dict[str, Any] = {"optimizer": spec.optimizer, "dense_optimizer": spec.dense_optimizer}
    optimizers |= {f"tables.{name}.optimizer": table.optimizer for name, table in spec.tables.items()}
    schedules = {path: each.schedule for path, each in optimizers.items() if each is not None}
    return ", ".join(
        f"{path}.schedule"
        for path, each in schedules.items()
        if isinstance(each, CosineSchedule) and each.decay_steps is None
    )


def _continued(prepared: Prepared) -> str:
    """Digest of what a run and its resumption must share."""
    assert prepared.identity is not None  # only the plan of a study has none
    return prepared.identity.continued


def _elsewhere(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Why the last bits may be others than those of a run that goes on where it began."""
    for each in differences.manifest_differences(before, now):
        if each.kind in (Kind.THREADS, Kind.KERNELS) or (each.kind, each.name) == (Kind.PACKAGE, "tensorflow"):
            yield f"the last bits may change: {each.text('the beginning', 'this resumption')}"


def _changed_since(folder: RunFolder, saved: SavedStep) -> str:
    """What may have changed since a checkpoint was saved."""
    code = ", the code that it names" if folder.code.exists() else ""
    kept = f" ({folder.code} has the code that it began with)" if code else ""
    return (
        f"{folder.path} can't be resumed: its data, its pretrained files{code} or its spec.json have changed since"
        f" {saved.directory.name} was saved. Restore them{kept}, or start a new run"
    )
