"""An experiment in its directory, begun or resumed: a single run, or a study of several; one process works there.

A run that was interrupted or killed goes on from its newest whole checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from embexp.checkpoints import store
from embexp.checkpoints.store import SavedStep
from embexp.errors import EmbexpError, RunError, plural
from embexp.records import differences, inventory
from embexp.records.differences import Kind
from embexp.records.folder import RunFolder, check_code, json_object, named_functions
from embexp.reports.jobs import inventory_changes, noted_inventory
from embexp.reports.results import Results
from embexp.runs import run as single
from embexp.runs import saving
from embexp.runs.prepare import Prepared, check_recorded_data, prepare, reading_sources
from embexp.runs.run import Observer, RunResult
from embexp.specs.fields import imported
from embexp.specs.optimizers import CosineSchedule
from embexp.specs.run import RunSpec
from embexp.specs.studies import study_of
from embexp.system import files, machine_faults, stores
from embexp.training.listeners import Listener
from embexp.training.loop import Replay


@dataclass(frozen=True)
class Study:
    """How a choice of `study` is done, in a directory that this process has for itself: `Choice.implementation`.

    Attributes:
        run: from a spec, an existing directory, its observer, and how it follows an earlier run, if it does.
        resume: from a directory, its spec, one that it is to go on with or None, allowed functions, and its observer.
        results: from a summary and its directory.
    """

    run: Callable[[RunSpec, Path, Observer, Replay | None], RunResult]
    resume: Callable[[Path, RunSpec, RunSpec | None, Collection[str], Observer], RunResult]
    results: Callable[[Mapping[str, Any], Path], RenderableType]


def _study(kind: str) -> Study:
    found: Study = imported(study_of(kind).implementation)
    return found


def run(
    spec: RunSpec, directory: Path, observer: Observer = single.NOBODY, *, replay: Replay | None = None
) -> RunResult:
    """Runs an experiment, or all runs of a study.

    Args:
        directory: an existing, empty directory. Each run of a study gets a subdirectory.
        replay: how a single run follows an earlier one, if it does.

    Raises:
        RunError: a run fails for a reason in the data, a file or the machine, or another process has the directory.
    """
    with _machine_errors(), RunFolder(directory).writing():
        files.remove_leftovers(directory)
        return _study(spec.study.kind).run(spec, directory, observer, replay)


def resume(
    directory: Path,
    changed: RunSpec | None = None,
    *,
    allow_code: Collection[str] = (),
    observer: Observer = single.NOBODY,
) -> RunResult:
    """Completes a run, or the runs of a study, that was interrupted or killed.

    The bits are those of one that was never interrupted. What is complete is left as it is.

    Args:
        changed: the spec to go on with, such as one with more epochs; None: that of the run. A study takes none.

    Raises:
        NotARunError: there is no run in the directory.
        DataError: a file of the run was changed since it was interrupted, or has ended.
        RunError: it can't be resumed, as its data or files have changed, fails, or another process has the directory.
        UsageError: the spec names code that isn't allowed.
    """
    folder = RunFolder(directory)
    folder.recorded_spec()  # else there is nothing to lock
    with _machine_errors(), folder.writing():
        made = [folder.summary] if folder.summary.exists() else []  # one that is missing is made again
        folder.check(folder.spec, *made, folder.coverage)  # the files that the results show
        spec = folder.recorded_spec()
        files.remove_leftovers(directory)
        return _study(spec.study.kind).resume(directory, spec, changed, allow_code, observer)


def results(summary: Mapping[str, Any], directory: Path) -> RenderableType:
    """The results of a run or a study as a rich renderable."""
    return _study(summary.get("study", "none")).results(summary, directory)


@contextmanager
def _machine_errors() -> Iterator[None]:
    """Turns errors of the machine, such as a full disk or too little memory, into a `RunError` of one sentence.

    Errors about objects in a store name the objects.
    """
    with stores.naming_urls():
        try:
            yield
        except EmbexpError:
            raise
        except Exception as error:
            if (sentence := machine_faults.sentence(error)) is None:
                raise
            raise RunError(sentence) from error


def resume_run(
    directory: Path, spec: RunSpec, changed: RunSpec | None, allow_code: Collection[str], observer: Observer
) -> RunResult:
    """Completes a single run; see `resume`."""
    folder, say = RunFolder(directory), observer.say
    inventory.check_whole(directory)
    summary = folder.read_summary() if folder.summary.exists() else None
    if changed is None and summary is not None and summary["status"] != "interrupted":
        ended = f"the run has ended after {plural(summary['steps'], 'step')} ({summary['status']})"
        if inventory.digest_of(directory) is not None:
            say_if_replaced(directory, say)
            say(f"{ended}; nothing is left to do")
            return RunResult(directory, summary)
        say(f"{ended}, but was killed before it wrote its last file: completing its files")
        return single.finish(folder, observer)
    check_code(named_functions(spec), allow_code, record=folder.spec)
    with reading_sources(spec.pretrained, spec.tables, spec.restore):
        unbuilt = single.prepare_operations(spec.strategy, say)
        strategy = single.prepare_machine(spec.strategy)
        prepared = prepare(spec, observer.progress, reading=strategy.reading)
        saved = _newest(folder, say)
        if saved is not None and _continued(prepared) not in saved.state.get("continued_by", ()):
            raise RunError(_changed_since(folder, saved))
        if changed is not None:
            if saved is None and summary is not None:
                raise RunError(
                    f"{folder.path} has no checkpoint of its last step to continue from, because early stopping "
                    f"restored"
                    f" step {summary['best_step']:,}. Start a new run that keeps its checkpoints: checkpoint.keep=null"
                )
            steps, prepared = prepared.schedule.steps, prepare(changed, observer.progress)
            if saved is not None and saved.step > prepared.schedule.steps:
                total = prepared.schedule.steps
                raise RunError(
                    f"{folder.path} has already done {plural(saved.step, 'step')}, but should end after {total:,}"
                )
            if prepared.schedule.steps != steps and (spans := _spanning(prepared)):
                say(
                    f"warning: {spans}: the schedule spans the whole training, so longer training changes the"
                    " learning rates"
                )
            if saved is not None:
                saved = saving.adopted(saved, folder, _continued(prepared))
        if saved is None:
            say("no checkpoint was saved yet: starting again from step 0")
        else:
            say(f"resuming from step {saved.step:,} of {prepared.schedule.steps:,}")
        saving.cut_back(folder, saved)
        folder.write_spec(prepared.requested)
        if saved is None or not folder.manifest.exists():
            single.record(prepared, strategy, folder)
        else:
            before = folder.read_manifest()
            now = single.record_resumption(prepared, strategy, folder, saved.step)
            for sentence in _elsewhere(before, now):
                say(f"warning: {sentence}")
        return single.complete(prepared, strategy, folder, observer, saved=saved, unbuilt=unbuilt)


def say_if_replaced(directory: Path, say: Callable[[str], object]) -> None:
    """Warns of a run, or a study, whose inventory is not the one that its sweep has noted."""
    if lost := inventory_changes(directory, noted_inventory(directory)):
        say(f"warning: {inventory.warning(directory, lost)}")


def _newest(folder: RunFolder, say: Callable[[str], object]) -> SavedStep | None:
    """The newest whole checkpoint of the training, including the final one of a finished run."""
    torn: list[str] = []
    found = next(store.newest_first(folder.checkpoints, torn), None)
    for sentence in torn:
        say(f"warning: {sentence}")
    if found is None and (folder.final_checkpoint / store.STATE).is_file():  # perhaps it was killed before its summary
        found = store.read_state(folder.final_checkpoint)
        store.check_content(folder.final_checkpoint)
    return found


def _spanning(prepared: Prepared) -> str:
    """The config paths of learning-rate schedules that depend on the length of the training."""
    spec = prepared.spec
    optimizers: dict[str, Any] = {"optimizer": spec.optimizer, "dense_optimizer": spec.dense_optimizer}
    optimizers |= {f"tables.{name}.optimizer": table.optimizer for name, table in spec.tables.items()}
    schedules = {path: optimizer.schedule for path, optimizer in optimizers.items() if optimizer is not None}
    return ", ".join(
        f"{path}.schedule"
        for path, schedule in schedules.items()
        if isinstance(schedule, CosineSchedule) and schedule.decay_steps is None
    )


def _continued(prepared: Prepared) -> str:
    """The digest of everything that a run and its resumption must share."""
    assert prepared.identity is not None  # only the plan of a study lacks one
    return prepared.identity.continued


def _elsewhere(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Why the last bits may differ from those of a run that resumes where it started."""
    for difference in differences.manifest_differences(before, now):
        if difference.kind is Kind.KERNELS or (difference.kind, difference.name) == (Kind.PACKAGE, "tensorflow"):
            yield f"the last bits may change: {difference.text('the beginning', 'this resumption')}"


def _changed_since(folder: RunFolder, saved: SavedStep) -> str:
    """The error for a run whose inputs have changed since a checkpoint was saved."""
    code = ", the code that it names" if folder.code.exists() else ""
    kept = f" ({folder.code} has the code that it began with)" if code else ""
    return (
        f"{folder.path} can't be resumed: its data, its pretrained files{code} or its spec.json have changed since"
        f" {saved.directory.name} was saved. Restore them{kept}, or start a new run"
    )


SINGLE = Study(
    lambda spec, directory, observer, replay: single.run(spec, directory, observer, replay=replay), resume_run, Results
)
"""`study=none`."""


_SECONDS = "seconds.json"
"""The file with the seconds of each finished run, for a study that is resumed."""
STAGES = ("setup", "training", "finishing")

Summarise = Callable[[Mapping[str, Mapping[str, Any]], bool], Mapping[str, Any]]
"""From the summaries of the runs so far, with `seconds` of `Clock.seconds`, and whether all have ended, to that of the
study."""


def run_study(spec: RunSpec, directory: Path, observer: Observer, summarise: Summarise) -> RunResult:
    """Does the runs of a study, until one is interrupted, and writes the study's summary.

    Args:
        directory: of the study; it exists. Runs that an earlier process has begun there are completed.
        summarise: may write files of the study, too.

    Raises:
        DataError: a file, or the data of a run that has ended, was changed since the study was interrupted.
        RunError: a run fails for a reason in the data, a file or the machine.
    """
    folder, noted = RunFolder(directory), directory / _SECONDS
    inventory.check_whole(directory)
    inventory.unseal(directory)
    folder.write_spec(spec)
    runs: dict[str, dict[str, Any]] = {}
    specs, ended = spec.study.runs(spec, directory.absolute()), True  # a run names those that it starts from
    for number, (name, run_spec) in enumerate(specs.items(), 1):
        observer.announce(f"{number} of {len(specs)}, {name}: {spec.study.description(name)}")
        seconds, stage, clock = json_object(noted), RunFolder(directory / name), Clock()
        if name in seconds and stage.summary.exists():
            if stage.manifest.exists():  # later events are compared with it
                check_recorded_data(stage, run_spec)
            runs[name] = {**stage.read_summary(), "seconds": seconds[name]}
            continue
        timed = Observer(lambda clock=clock: [clock, *observer.listeners()], observer.progress)  # type: ignore[misc]
        files.make_directories(stage.path)
        with stage.writing():
            files.remove_leftovers(stage.path)
            if stage.spec.exists():  # the code in the study's spec has been checked
                result = resume_run(stage.path, run_spec, None, named_functions(run_spec), timed)
            else:
                result = single.run(run_spec, stage.path, timed)
            runs[name] = {**result.summary, "seconds": clock.seconds()}
            if result.status == "interrupted":
                ended = False
                break
            folder.write_json(noted, seconds | {name: clock.seconds()})
    content = summarise(runs, ended)
    folder.write_json(folder.summary, content)
    observer.ending(content, directory)
    return RunResult(directory, content, inventory.seal(directory))


Begin = Callable[[RunSpec, Path, Observer, Replay | None], RunResult]
Resume = Callable[[Path, RunSpec, RunSpec | None, Collection[str], Observer], RunResult]


def headline(summary: Mapping[str, Any]) -> Text:
    """The name and the status of a study, green if it is completed."""
    style = "bold green" if summary["status"] == "completed" else "bold yellow"
    return Text(f"{summary['name']}: {summary['status']}", style)


def resuming_study(begin: Begin) -> Resume:
    """What completes the runs of a study that `begin` begins; see `experiment.resume`."""

    def resume(
        directory: Path, spec: RunSpec, changed: RunSpec | None, allow_code: Collection[str], observer: Observer
    ) -> RunResult:
        if changed is not None:
            raise RunError(f"{directory} is the directory of a study, whose settings can't change on resuming")
        folder = RunFolder(directory)
        check_code(named_functions(spec), allow_code, record=folder.spec)
        if inventory.digest_of(directory) is not None:
            if lost := inventory.lost_results(directory):
                observer.say(f"missing: {', '.join(lost)}; what is missing is done again")
            elif (summary := folder.read_summary())["status"] != "interrupted":
                inventory.check_whole(directory)
                say_if_replaced(directory, observer.say)
                observer.say(f"all runs of the study have ended ({summary['status']}); nothing is left to do")
                return RunResult(directory, summary)
        return begin(spec, directory, observer, None)

    return resume


class Clock(Listener):
    """Measures how long a run takes before, during and after training; starts when created."""

    def __init__(self) -> None:
        self._times = [time.perf_counter()]

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Training begins."""
        self._times.append(time.perf_counter())

    def ended(self, status: str) -> None:
        """Training has ended."""
        self._times.append(time.perf_counter())

    def seconds(self) -> dict[str, float | None]:
        """Seconds until now, by stage.

        Returns:
            setup: reading the data, creating and filling the tables; training: steps and evaluations; finishing: the
            checkpoint, the last evaluations, digests and plots; total. All None if an earlier process has trained: it
            was killed before it could note them.
        """
        times = [*self._times, time.perf_counter()]
        if len(times) <= len(STAGES):
            return dict.fromkeys((*STAGES, "total"))
        passed = {name: after - before for name, before, after in zip(STAGES, times, times[1:], strict=False)}
        return {name: round(seconds, 3) for name, seconds in (passed | {"total": times[-1] - times[0]}).items()}
