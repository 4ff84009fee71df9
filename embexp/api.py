"""Running experiments from Python: `run`, `sweep`, `resume`, `verify`, `compare`, `load_run`. Imports no TensorFlow."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from embexp.config import composition, hydra_globals
from embexp.config.messages import Caller
from embexp.config.named_code import Permission
from embexp.errors import CombinationFault, ConfigError, Fault, UsageError
from embexp.records import outputs
from embexp.records.folder import RunFolder, check_code, named_functions
from embexp.records.outputs import OutputDirectory
from embexp.specs import arguments, tracking
from embexp.specs.run import RunSpec
from embexp.specs.running import Existing
from embexp.sweeps import ledger
from embexp.system import digests, environment, files
from embexp.system.parallel import Progress
from embexp.system.parallel import quiet as quiet_progress
from embexp.training.listeners import Listener

if TYPE_CHECKING:
    from embexp.config.composition import compose, spec_of
    from embexp.reports.comparison import Comparison
    from embexp.reports.report import report
    from embexp.runs.finished import Run
    from embexp.runs.run import Observer, RunResult
    from embexp.runs.verification import Verification
    from embexp.sweeps.sweep import SweepResult

__all__ = [
    "Listener",
    "RunResult",
    "RunSpec",
    "SweepResult",
    "compare",
    "compose",
    "continue_run",
    "load_run",
    "report",
    "resume",
    "run",
    "spec_of",
    "sweep",
    "verify",
]

_used: set[Path] = set()
"""Output directories of Hydra apps in which this process has run something."""


def run(
    spec: RunSpec | Sequence[str],
    directory: str | Path | None = None,
    *,
    data: Any = None,
    config_dir: str | Path | None = None,
    listeners: Sequence[Listener] = (),
    quiet: bool = False,
    allow_code: Sequence[str] = (),
) -> RunResult:
    """Runs an experiment, or all runs of a study.

    Args:
        spec: from `embexp.compose` or `embexp.spec_of`; or a list of overrides, which must not set `data.path` if
            `data` is passed.
        directory: directory of the run. None: the job's output directory in a Hydra app, otherwise `outputs/DATE/TIME`
            or the next free name, `…_2`. If the given directory already holds a run or other files,
            `spec.output.existing` decides: by default it is an error, and `number`, `replace` or `continue` allow it.
        data: data in memory instead of files, for a spec with data=csv or data=parquet. It is a dict of columns (lists
            or NumPy arrays), an Arrow table, or a pandas or Polars data frame; or a dict of these for `train`,
            `validation` and `test`. What the run reads is recorded as Parquet in its directory, unless `output.data` is
            false.
        config_dir: a folder with the user's own configs; only with overrides.
        listeners: called during training, in each run of a study.
        allow_code: functions outside the user's own modules that the spec may run, such as `["keras:Model"]`.

    Returns:
        The directory of the run and its summary.

    Raises:
        UsageError: an argument is of the wrong type, or TensorFlow does not execute eagerly here.
        DataError: a column of `data` can't be converted.
        ConfigError: settings of the spec don't fit each other, the data or the files; lists all faults. Or the
            directory already holds a run.
        RunError: the run fails for a reason in the data, a file or the machine, or another process uses the directory.
    """
    added = arguments.items(listeners, Listener, "embexp.run", "listeners")
    chosen = None if directory is None else arguments.directory(directory, "embexp.run")
    allowed = arguments.allowed_code(allow_code, "embexp.run")
    permission = Permission(frozenset(allowed), caller=Caller.PYTHON)
    if data is not None:
        from embexp.config import data_in_memory

        own = None if config_dir is None else arguments.directory(config_dir, "embexp.run")
        if not isinstance(spec, RunSpec):
            spec = data_in_memory.composed(arguments.overrides(spec, "embexp.run"), data, own, permission)
        with data_in_memory.written(spec, data, chosen, permission) as (checked, recorded):
            return _run(checked, chosen, added, recorded, quiet=quiet, in_memory=True)
    if isinstance(spec, list | tuple):
        spec = composition.compose(spec, config_dir=config_dir, allow_code=allowed)
        config_dir = None
    spec = arguments.a_spec(spec, "embexp.run")
    if config_dir is not None:
        raise UsageError("embexp.run: config_dir works only with overrides; for a spec, pass it to embexp.compose")
    found, faults = composition.check_container(spec.model_dump(mode="json", warnings=False), permission)
    if found is None or faults:
        raise ConfigError(faults)
    return _run(found, chosen, added, quiet=quiet)


def _run(
    spec: RunSpec,
    chosen: Path | None,
    listeners: Sequence[Listener],
    recorded: Sequence[Path] = (),
    *,
    quiet: bool,
    in_memory: bool = False,
) -> RunResult:
    """Runs a checked spec.

    Args:
        recorded: files of its data that are moved into the directory.
        in_memory: whether the data is the caller's own.
    """
    arguments.require_eager("embexp.run")
    with _opener(chosen, spec.output.existing)(spec, before=partial(_move, recorded)) as found:
        environment.load_tensorflow(**spec.strategy.kernels)
        from embexp.runs import experiment

        observer = _observer(listeners, quiet=quiet)
        if found.continues:
            _check_same_data(recorded, found.path)
            return experiment.resume(found.path, allow_code=named_functions(spec), observer=observer)
        if not spec.output.data and in_memory:
            observer.say("data in memory is not recorded (output.data=false): this run can't be resumed or verified")
        return experiment.run(RunFolder(found.path).located(spec), found.path, observer)


def _move(recorded: Sequence[Path], directory: Path) -> None:
    """Moves files of data into the directory of a run."""
    place = RunFolder(directory).data
    for file in recorded:
        files.make_directories(place)
        shutil.move(file, place / file.name)
    if recorded:
        files.to_disk(place)


def _check_same_data(recorded: Sequence[Path], directory: Path) -> None:
    """Raises UsageError if the run that is to be continued has recorded other data."""
    for file in recorded:
        before = RunFolder(directory).data / file.name
        if not before.is_file() or digests.of_file(before) != digests.of_file(file):
            raise UsageError(
                f"embexp.run: the run in {directory} used other data than data=, but output.existing=continue "
                f"would complete it with its own; choose another directory, or use embexp.resume"
            )


def sweep(
    specs: Sequence[RunSpec | Sequence[str]],
    directory: str | Path | None = None,
    *,
    jobs: int | Literal["auto"] = 1,
    timeout_minutes: float | None = None,
    retries: int = 0,
    quiet: bool = False,
    allow_code: Sequence[str] = (),
) -> SweepResult:
    """Runs several specs, each in its own process, as `embexp run -m` does.

    If the directory already holds the same sweep, that sweep is continued and finished jobs are not repeated. `embexp
    resume DIR` completes an interrupted sweep.

    Args:
        specs: one RunSpec or list of overrides per job. A job whose settings can't be combined is skipped.
        directory: directory of the sweep; None: `outputs/DATE/TIME_sweep`. A directory with other content is never
            written to.
        jobs: number of jobs at once; auto: one per core or GPU. With more than one, each job gets its share of the
            cores.
        timeout_minutes: time limit, after which a job counts as failed; None: no limit.
        retries: number of retries of a job whose process crashed.
        allow_code: functions outside the user's own modules that the specs may run, such as `["keras:Model"]`.

    Returns:
        The directory, and how each job ended. A failed job is an outcome, not an exception.

    Raises:
        UsageError: an argument has the wrong type, or the directory already holds a different sweep.
        ConfigError: a spec is invalid; lists the faults of all specs. No job has been started.
    """
    allowed = arguments.allowed_code(allow_code, "embexp.sweep")
    given = _specs(specs, Permission(frozenset(allowed), caller=Caller.PYTHON))
    settings = {"jobs": jobs, "timeout_minutes": timeout_minutes, "retries": retries}
    place = None if directory is None else arguments.directory(directory, "embexp.sweep")
    from embexp.sweeps import settings as launcher_settings
    from embexp.sweeps import sweep as sweeps
    from embexp.system.terminal import SafeConsole

    launched = launcher_settings.checked_launching(settings)
    return sweeps.sweep_specs(given, place or _dated("_sweep"), launched, SafeConsole(quiet=quiet))


def _specs(values: Sequence[RunSpec | Sequence[str]], permission: Permission) -> list[RunSpec]:
    """The checked specs of a sweep."""
    function = "embexp.sweep"
    remedy = f'such as {function}([spec, other]) or {function}([["seed=0"], ["seed=1"]])'
    if isinstance(values, str | Mapping | RunSpec) or not isinstance(values, Iterable):
        raise UsageError(f"{function} takes a list of specs, not {type(values).__name__}; {remedy}")
    found, faults = [], []
    loader = None
    for number, value in enumerate(values):
        if isinstance(value, str):
            raise UsageError(f"{function} takes a list of specs or of lists of overrides, not of strings; {remedy}")
        try:
            if isinstance(value, RunSpec):
                spec, wrong = composition.check_container(value.model_dump(mode="json", warnings=False), permission)
                wrong = [fault for fault in wrong if not isinstance(fault, CombinationFault)]
            else:
                texts = arguments.overrides(value, function)
                if loader is None or any(text.lstrip("+").startswith("fields=") for text in texts):
                    loader = composition.loader(permission=permission, overrides=texts)
                spec, wrong = composition.candidate(loader, texts).spec, []
            if spec is not None and spec.seeds > 1:
                rule = "here every job is one run"
                wrong.append(Fault("seeds", str(spec.seeds), rule, "pass one spec per seed"))
            if spec is not None:
                found.append(spec)
        except ConfigError as error:
            wrong = list(error.faults)
        faults += [replace(fault, source=", ".join(filter(None, (fault.source, f"spec {number}")))) for fault in wrong]
    if faults:
        raise ConfigError(faults)
    if not found:
        raise UsageError(f"{function}: the list of specs is empty; {remedy}")
    return found


def resume(
    directory: str | Path,
    overrides: Sequence[str] = (),
    *,
    listeners: Sequence[Listener] = (),
    quiet: bool = False,
    allow_code: Sequence[str] = (),
) -> RunResult:
    """Completes an interrupted or killed run or sweep in its own directory, as `embexp resume` does.

    Args:
        directory: directory of the run, the study or the sweep.
        overrides: such as `["train.epochs=40"]`, to train longer. Only the length, `output` and `checkpoint` may
            change; for a sweep, only `hydra.launcher`.
        listeners: called during training; not for a sweep, whose jobs are separate processes.
        allow_code: functions that the recorded spec, or those of the sweep, may run, such as `["my_models:tower"]`.

    Returns:
        The directory of the run and its summary. The results are the same as without the interruption. The summary of a
        sweep has its `status` (completed, interrupted or failed) and its `jobs`, as in `sweep.json`.

    Raises:
        UsageError: an argument is of the wrong type, a spec names code that isn't allowed, or TensorFlow does not
            execute eagerly here.
        ConfigError: an override is invalid; with all faults.
        NotARunError: there is no run in the directory.
        RunError: the run can't be resumed, or fails.
    """
    folder, changed = arguments.directory(directory, "embexp.resume"), None
    texts = arguments.overrides(overrides, "embexp.resume")
    added = arguments.items(listeners, Listener, "embexp.resume", "listeners")
    allowed = arguments.allowed_code(allow_code, "embexp.resume")
    if ledger.exists(folder):
        if added:
            raise UsageError(
                f"embexp.resume: {folder} is a sweep, and its jobs run in processes that can't have listeners"
            )
        return _resume_sweep(folder, texts, allowed, quiet=quiet)
    recorded = RunFolder(folder).recorded_spec()
    check_code(named_functions(recorded), allowed, record=RunFolder(folder).spec)  # before TensorFlow is loaded
    tracking.check_addresses([recorded], RunFolder(folder).spec)
    if texts:
        changed = composition.changed_spec(
            recorded.model_dump(mode="json"), texts, composition.loader(permission=Permission(caller=Caller.PYTHON))
        )
    environment.load_tensorflow(**(changed or recorded).strategy.kernels)
    arguments.require_eager("embexp.resume")
    from embexp.runs import experiment

    return experiment.resume(folder, changed, allow_code=allowed, observer=_observer(added, quiet=quiet))


def continue_run(
    parent: str | Path,
    data: Any,
    overrides: Sequence[str] = (),
    directory: str | Path | None = None,
    *,
    listeners: Sequence[Listener] = (),
    quiet: bool = False,
    allow_code: Sequence[str] = (),
) -> RunResult:
    """Starts a new run where a finished one ended, on other data with the same columns, as `embexp continue` does.

    Args:
        parent: directory of the finished run. It is not changed.
        data: a path or a list of paths; or data in memory, as in `embexp.run`.
        overrides: such as `["train.epochs=1", "freeze=old_rows"]`; all settings of the parent can be set.
        directory: directory of the new run; None: `outputs/DATE/TIME`, or the next free name.
        listeners: called during training.
        allow_code: functions that the parent's spec may run, such as `["my_models:tower"]`.

    Returns:
        The directory of the new run and its summary. Under `parent`, the summary has the run that it continued, the
        metrics of that run on the new data, and what training added.

    Raises:
        UsageError: an argument is of the wrong type, or a spec names code that isn't allowed.
        NotARunError: the parent is not a finished run.
        ConfigError: settings don't fit each other, the parent, the data or the files; lists all faults.
        DataError: the data has other columns or classes than the parent's, or a record of the parent was changed.
        RunError: the run fails for a reason in the data, a file or the machine.
    """
    function = "embexp.continue_run"
    before, texts = arguments.directory(parent, function), arguments.overrides(overrides, function)
    added = arguments.items(listeners, Listener, function, "listeners")
    chosen = None if directory is None else arguments.directory(directory, function)
    allowed = arguments.allowed_code(allow_code, function)
    permission = Permission(frozenset(allowed), caller=Caller.PYTHON)
    from embexp.config import continuing

    recorded = continuing.recorded_parent(before, allowed)
    paths = [data] if isinstance(data, str | Path) else data
    in_files = isinstance(paths, list | tuple) and all(isinstance(each, str | Path) for each in paths)
    made = partial(continuing.continued, recorded, before)
    loader = composition.loader(permission=permission)
    if in_files:
        return _run(made(list(map(str, paths)), texts, loader), chosen, added, quiet=quiet)
    from embexp.config import data_in_memory

    spec = made(["data"], texts, loader, look_at_data=False)
    with data_in_memory.written(spec, data, chosen, permission) as (checked, files_of_data):
        return _run(checked, chosen, added, files_of_data, quiet=quiet, in_memory=True)


def verify(directory: str | Path, *, allow_code: Sequence[str] = (), keep: str | Path | None = None) -> Verification:
    """Repeats a run or a study from its record in a new process and compares the results, as `embexp verify` does.

    Args:
        allow_code: functions that the recorded spec may run, such as `["my_models:tower"]`.
        keep: directory in which to keep the new run; None: it is deleted.

    Returns:
        Whether the results are `identical`, and all `differences`: first differences in the results, the earliest step
        first, then differences in the circumstances.

    Raises:
        NotARunError: there is no run in the directory.
        RunError: the run has not ended, can't be repeated, or fails when it is repeated.
        UsageError: an argument is of the wrong type, the spec names code that isn't allowed, or `keep` exists.
    """
    folder = arguments.directory(directory, "embexp.verify")
    allowed = arguments.allowed_code(allow_code, "embexp.verify")
    from embexp.runs import verification

    return verification.verify(folder, allow_code=allowed, keep=None if keep is None else Path(keep))


def compare(
    runs: Sequence[str | Path],
    data: Any = None,
    *,
    split: str = "test",
    all_pairs: bool = False,
    rows: int = 3,
    allow_code: Sequence[str] = (),
    progress: Progress = quiet_progress,
) -> Comparison:
    """Compares finished runs on the same examples, as `embexp compare` does: differences, intervals and tests.

    Args:
        runs: directories of runs or sweeps. Runs of a sweep that differ only in the seed count as one model.
        data: other data to compare them on, as in `Run.evaluate`; None: a split of their own data.
        split: of the runs' own data: train, validation, test, or another split that the data has.
        all_pairs: whether to compare every pair of models, not only the first model with each other one.
        rows: how many examples to name, of those on which two models differ most.
        allow_code: functions that the recorded specs may run, such as `["my_models:tower"]`.
        progress: called with each stage and the fraction of it that is done.

    Returns:
        The comparison. It prints as text and is shown as tables in notebooks. It has the metrics of its first pair by
        name: `found["auc"].p`.

    Raises:
        UsageError: there are fewer than two models, an argument is of the wrong type, or code isn't allowed.
        NotARunError: there is no run in a directory.
        RunError: the runs have different tasks, or were evaluated on different examples.
        DataError: the data has changed since a run was trained, or can't be read.
    """
    if isinstance(runs, str | Path) or not isinstance(runs, Iterable):
        raise UsageError(f"embexp.compare takes a list of directories: [{str(runs)!r}, …]")
    folders = [arguments.directory(each, "embexp.compare") for each in runs]
    allowed = arguments.allowed_code(allow_code, "embexp.compare")
    from embexp.runs import compare as comparing

    models = comparing.contenders(folders)
    codes = comparing.allowed_for(models, allowed)

    def load(directory: str) -> Run:
        return load_run(directory, allow_code=codes[directory])

    return comparing.compare(models, load, data, split=split, all_pairs=all_pairs, rows=rows, progress=progress)


def _resume_sweep(folder: Path, overrides: Sequence[str], allowed: Sequence[str], *, quiet: bool) -> RunResult:
    from embexp.sweeps import jobs
    from embexp.sweeps import sweep as sweeps
    from embexp.system.terminal import SafeConsole

    sweeps.resume(folder, overrides, allow_code=allowed, console=SafeConsole(quiet=quiet))
    environment.load_tensorflow()
    from embexp.runs.run import RunResult

    return RunResult(folder, jobs.summary_of(folder))


def load_run(directory: str | Path, *, allow_code: Sequence[str] = ()) -> Run:
    """Loads a run from its directory. A run that has not ended is loaded from its newest checkpoint.

    The summary of a run that has not ended has `status` unfinished and, as `steps`, the step of that checkpoint.

    Args:
        allow_code: functions that the recorded spec may run, such as `["my_models:tower"]`. Your own model is built by
            its function on first use; tables and metrics of a finished run don't need it.

    Raises:
        UsageError: an argument has the wrong type, or `allow_code` has a function that the spec does not name.
        NotARunError: the directory holds no run, or holds one that has neither ended nor saved a checkpoint.
    """
    folder = arguments.directory(directory, "embexp.load_run")
    allowed = arguments.allowed_code(allow_code, "embexp.load_run")
    recorded = RunFolder(folder).recorded_spec()  # before TensorFlow is loaded
    if allowed:
        check_code(named_functions(recorded), allowed, record=RunFolder(folder).spec)
    from embexp.records.manifest import Kernels
    from embexp.runs import finished

    Kernels.of_run(RunFolder(folder)).load_tensorflow()
    return finished.load_run(folder, allow_code=allowed)


def _observer(listeners: Sequence[Listener], *, quiet: bool) -> Observer:
    """The user's listeners, and unless `quiet` the terminal."""
    from embexp.runs.run import Observer
    from embexp.system.terminal import SafeConsole
    from embexp.training.progress import progress

    return Observer(lambda: listeners) if quiet else Observer(lambda: [progress(SafeConsole()), *listeners], say=print)


def _opener(chosen: Path | None, existing: Existing) -> Callable[..., AbstractContextManager[OutputDirectory]]:
    """Opens the directory to run in: the chosen one, that of the Hydra app that calls, or `outputs/DATE/TIME`."""
    own = hydra_globals.output_directory()
    if own is not None and (chosen is None or chosen.absolute() == own) and own.is_dir():
        # A second run of the same job gets a directory of its own.
        existing = Existing.NUMBER if own in _used else existing
        _used.add(own)
        return partial(outputs.opened_directory, own, existing=existing, own=True)
    if chosen is None:
        return partial(outputs.opened_directory, _dated(), existing=Existing.NUMBER)
    return partial(outputs.opened_directory, chosen, existing=existing, setting="directory")


def _dated(ending: str = "") -> Path:
    return Path("outputs") / f"{datetime.datetime.now():%Y-%m-%d/%H-%M-%S}{ending}"
