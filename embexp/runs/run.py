"""A run on one page: prepare, execute, train, evaluate, summarise. Each stage takes the values of earlier ones."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from embexp.checkpoints.store import SavedStep
from embexp.checkpoints.streaming import WRITING
from embexp.data import numbers
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import RunError
from embexp.records import inventory, manifest
from embexp.records.folder import RunFolder
from embexp.reports import results
from embexp.reports.tracking import Tracking, reason, track
from embexp.runs import saving
from embexp.runs.evaluations import EVALUATING, evaluate
from embexp.runs.execute import Started, execute
from embexp.runs.prepare import Prepared, check_memory, prepare, reading_sources
from embexp.runs.summary import Ended, plotted_if_diverged, summarise, write_projector_files
from embexp.specs import strategies as specs
from embexp.specs import tasks as metric_specs
from embexp.specs.run import RunSpec
from embexp.specs.running import Checkpointing, Save
from embexp.specs.tasks import Direction
from embexp.strategies import pieces
from embexp.strategies import strategy as strategies
from embexp.strategies.strategy import Strategy
from embexp.system import caching, files, interruption, machine, native
from embexp.system.parallel import Progress, if_long, quiet
from embexp.training import loop
from embexp.training.listeners import Listener, MetricsFile
from embexp.training.loop import PERFECT_TIMES, EarlyStopping, Outcome, Replay, StoppedBy

if TYPE_CHECKING:
    from embexp.runs.continued import Before


@dataclass(frozen=True)
class RunResult:
    """The result of a run or a study: its directory and its summary.

    Attributes:
        inventory: SHA-256 of inventory.json when the run ended; None if the run had already ended before.
    """

    directory: Path
    summary: Mapping[str, Any]
    inventory: str | None = None

    @property
    def status(self) -> str:
        """completed, stopped_early or interrupted."""
        return str(self.summary["status"])

    def __repr__(self) -> str:
        return f"<RunResult: {results.run_as_text(self.summary, self.directory)}>"

    def _repr_html_(self) -> str:
        """Status and metrics for a notebook."""
        return results.run_as_html(self.summary, self.directory)


@dataclass(frozen=True)
class Observer:
    """What a run reports to while it goes on.

    Attributes:
        listeners: returns new listeners for a training, next to those that write the run's files.
        progress: called with the stages before and after training.
        announce: called with a heading before each run of a study.
        say: called with a sentence on where a run is resumed, and about checkpoints that are skipped.
        ending: called with the summary and the directory before the inventory is written: the last moment at which
            something may be written there, such as to a log.
    """

    listeners: Callable[[], Sequence[Listener]] = tuple
    progress: Progress = quiet
    announce: Callable[[str], object] = lambda heading: None
    say: Callable[[str], object] = lambda sentence: None
    ending: Callable[[Mapping[str, Any], Path], object] = lambda summary, directory: None


NOBODY = Observer()


def run(spec: RunSpec, directory: Path, observer: Observer = NOBODY, *, replay: Replay | None = None) -> RunResult:
    """Runs an experiment from its spec to its summary.

    Args:
        directory: an existing, empty directory.

    Raises:
        RunError: the run fails for a reason in the data, a file or the machine.
    """
    folder = RunFolder(directory)
    folder.write_spec(spec)
    unbuilt = prepare_operations(spec.strategy, observer.say)
    strategy = prepare_machine(spec.strategy)
    with reading_sources(spec.pretrained, spec.tables, spec.restore):
        prepared = prepare(spec, observer.progress, reading=strategy.reading)
        record(prepared, strategy, folder)
        return complete(prepared, strategy, folder, observer, replay=replay, unbuilt=unbuilt)


def complete(
    prepared: Prepared,
    strategy: Strategy,
    folder: RunFolder,
    observer: Observer = NOBODY,
    *,
    saved: SavedStep | None = None,
    replay: Replay | None = None,
    unbuilt: str | None = None,
) -> RunResult:
    """Executes a prepared run to its summary, from its beginning or from a checkpoint.

    Args:
        saved: the checkpoint to continue from; None: the training begins.
        unbuilt: why there are fused operations that the training can't use; None: it can use all.

    Raises:
        RunError: the run fails for a reason in the data, a file or the machine.
    """
    spec = prepared.requested
    tests = _vector_tests(spec.output.vectors.files)
    check_memory(prepared)
    saving.check_room(prepared, folder)
    listeners, progress = observer.listeners(), observer.progress
    progress("creating the tables", None)
    config, run_id = spec.model_dump(mode="json"), str(prepared.run_id)
    first_step = 0 if saved is None else saved.step
    with track(config, spec.tracking, folder, run_id, first_step=first_step, listeners=listeners) as tracking:
        long = if_long(progress)
        with execute(prepared, strategy, folder, first_step=first_step, progress=long) as started:
            before = _evaluate_parent(prepared, started, long)
            saver = saving.RunSaver(prepared, started, folder)
            with plotted_if_diverged(prepared, started, folder):
                lines = MetricsFile(folder.metrics, strategy.timing, saver.full)
                saver.waiting = lines.waiting
                outcome = train(prepared, started, saver, [*listeners, tracking, lines], saved, replay)
            final_step = spec.train.early_stopping.final_step(outcome.steps, outcome.best_step)
            if spec.checkpoint.save is not Save.NEVER:  # first, so that no later failure can lose it
                progress(WRITING, None)
                saver.progress = progress
                with interruption.finished_first():
                    saver.keep_final(outcome, final_step)
            progress(EVALUATING, None)
            started.watch.kept(outcome.steps, final_step, long)
            cache = caching.cache_folder(spec.output.cache) if spec.output.baselines else None
            evaluated = evaluate(started.evaluator, prepared.data, started.execution.runtime, outcome, cache, long)
            ended = Ended(prepared, started, outcome, evaluated, strategy, saver.resumed_at, tests, unbuilt, before)
            summary = summarise(ended, long)
            if spec.output.tensorboard and spec.output.projector_rows:
                try:
                    write_projector_files(prepared, started, folder.events)
                except OSError as error:
                    tracking.warn(f"the projector's files can't be written: {reason(error)}")
        summary["warnings"] += tracking.warnings
        with interruption.finished_first():
            lines.flush()
            saving.sizes_on_disk(folder)  # a run with a summary is not trained again, even if the power is lost now
            folder.write_json(folder.summary, summary)
            kept = final_step if spec.output.plots else None
            digest = _finish(spec.checkpoint, folder, summary, tracking, observer, plotted=kept, linked=saver.linked)
    return RunResult(folder.path, summary, digest)


def _evaluate_parent(prepared: Prepared, started: Started, progress: Progress) -> Before | None:
    """Evaluates the parent on the new data, while the variables have its values; None: the run has no parent."""
    if prepared.ancestor is None:
        return None
    from embexp.runs import continued

    return continued.evaluate_parent(prepared, started.evaluator, started.execution.runtime, progress)


def _vector_tests(files: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[Any]]:
    """The tests of vectors in files, by kind."""
    if not files:
        return {}
    from embexp.vectors import quality

    return quality.read_tests(files)


def train(
    prepared: Prepared,
    started: Started,
    saver: saving.RunSaver,
    listeners: Sequence[Listener],
    saved: SavedStep | None = None,
    replay: Replay | None = None,
) -> Outcome:
    """Trains, and leaves the variables with their final values: those of the last step or of the best evaluation.

    Args:
        saved: the checkpoint to continue from; None: the training begins.

    Raises:
        CheckpointError: `saved` does not fit the run, or a checkpoint can't be written.
    """
    spec, schedule, execution, watch = prepared.spec, prepared.schedule, started.execution, started.watch
    early = spec.train.early_stopping
    if early.patience is not None or spec.checkpoint.keep_best:
        metric = metric_specs.watched(spec.task, early.metric, spec.task.cutoffs_of(spec), spec.further_metrics)
        lower = metric_specs.direction(metric, spec.further_metrics) is Direction.LOWER
        limit = None if early.patience is None else started.evaluator.limit(prepared.data, metric)
        saver.stopping = EarlyStopping(metric, lower, early.patience, early.min_delta, limit=limit)
    outcome = Outcome() if saved is None else saver.restore_state(saved)
    everyone: list[Listener] = [*listeners, watch]

    def warn(sentence: str) -> None:
        execution.notes.append(sentence)
        for listener in everyone:
            listener.warned(sentence)

    def interrupted() -> bool:
        """Whether a signal has arrived, or the step has come at which the replayed training was interrupted."""
        stop = None if replay is None else replay.stop_after
        return signalled() or (stop is not None and outcome.steps >= stop)

    def working(stage: str, done: float | None) -> None:
        for listener in everyone:
            listener.working(stage, done)

    saver.warn, saver.progress = warn, if_long(working)
    watch.report_to(*(listener.drifted for listener in everyone))
    validation = None
    if (evaluate := started.evaluator.split(prepared.data, "validation")) is not None:
        validation = loop.Validation(partial(evaluate, execution.runtime, if_long(working)), saver.stopping)
        if spec.checkpoint.keep_best or early.restores_best:
            validation = replace(validation, keep_best=partial(saver.keep_best, outcome))
        if saved is not None and outcome.best_step == outcome.steps:
            validation.keep_best()  # the process may have been killed between this checkpoint and its copy as the best
    training = loop.Loop(
        execution.runtime, schedule, validation, everyone, saver.saving(saved, replay), execution.reset
    )
    status = "failed"
    for listener in everyone:
        listener.started(schedule.steps, prepared.data.training_examples)
        for sentence in prepared.leak_warnings:  # now: the training may take hours
            listener.warned(sentence)
        if saved is not None:
            listener.resumed(saved.step)
    try:
        with interruption.training() as signalled:
            batches = iter(execution.dataset(started.batches))
            training.train(batches, outcome, interrupted=interrupted, first_step_done=started.memory.stop)
        if outcome.stopped_by is StoppedBy.PERFECT and saver.stopping is not None:
            warn(_too_good(saver.stopping, outcome, prepared))
        status = outcome.status
    finally:
        for listener in everyone:
            listener.ended(status)
    if early.final_step(outcome.steps, outcome.best_step) != outcome.steps:
        watch.trained(outcome.steps)
        execution.restore(saver.folder.best_checkpoint)
        outcome.validation = None
    return outcome


def _too_good(stopping: EarlyStopping, outcome: Outcome, prepared: Prepared) -> str:
    """Why the training stopped with nothing left to learn, and what may be wrong with such data."""
    value = (outcome.validation or {}).get(stopping.metric, stopping.best)
    found = dict.fromkeys(name for leak in prepared.data.scan.leaks for name in leak.columns)
    cause = f"a column may leak them: {', '.join(found)}" if found else "the inputs may hold what is only known later"
    return (
        f"training stopped after step {outcome.steps:,}: validation {stopping.metric} is {value:.3g}"
        f" and has hardly any room to improve, {PERFECT_TIMES} evaluations in a row. Labels can rarely be predicted"
        f" so well: {cause}"
    )


def finish(folder: RunFolder, observer: Observer = NOBODY) -> RunResult:
    """Completes a run that has its summary, and was killed before its last file. Nothing is trained or evaluated.

    Raises:
        RunError: a tracker can't be started.
    """
    spec, summary = folder.read_spec(), folder.read_summary()
    run_id, steps = str(summary["run_id"]), int(summary["steps"])
    kept = spec.train.early_stopping.final_step(steps, summary["best_step"]) if spec.output.plots else None
    with (
        track(
            spec.model_dump(mode="json"),
            spec.tracking,
            folder,
            run_id,
            first_step=steps,
            listeners=observer.listeners(),
        ) as tracking,
        interruption.finished_first(),
    ):
        digest = _finish(spec.checkpoint, folder, summary, tracking, observer, plotted=kept)
    return RunResult(folder.path, summary, digest)


def _finish(
    checkpoint: Checkpointing,
    folder: RunFolder,
    summary: Mapping[str, Any],
    tracking: Tracking,
    observer: Observer,
    *,
    plotted: int | None,
    linked: Mapping[tuple[int, int], inventory.Listed] = MappingProxyType({}),
) -> str:
    """Does the work after the summary. It can be repeated, because a killed process may have done some of it.

    Args:
        plotted: step of the final values, which plots mark; None: nothing is plotted.
        linked: see `RunSaver`.

    Returns:
        The digest of the inventory, which is the last file of a run.
    """
    if checkpoint.save is not Save.NEVER:
        saving.remove_earlier(folder, checkpoint, summary["status"])
    if plotted is not None:
        observer.progress("drawing plots", None)
        from embexp.reports import plots

        plots.write_plots(folder.read_metrics(), summary, folder.plots, kept=plotted)
    tracking.finished(summary)
    observer.ending(summary, folder.path)
    return tracking.seal(lambda: inventory.seal(folder.path, linked))


def prepare_machine(strategy: specs.Strategy) -> Strategy:
    """Configures threads and devices, before anything else uses TensorFlow: they can't change later.

    A run calls `prepare_operations` before, which builds the library that cuts operations into pieces.

    Raises:
        RunError: the strategy needs devices that are missing, or other kernels than this process has.
    """
    if strategy.onednn.wanted not in (None, machine.onednn()):
        found = "with" if machine.onednn() else "without"
        raise RunError(
            f"strategy.onednn is {strategy.onednn}, but this process has imported TensorFlow {found} oneDNN: "
            f"start a new process, or set {machine.ONEDNN}={int(bool(strategy.onednn.wanted))} before the import"
        )
    if strategy.portable:
        _check_portable()
    note = pieces.set_threads(strategy.intra_op_threads, strategy.inter_op_threads, strategy.wanted_pieces)
    built = strategies.build(strategy)
    if not isinstance(strategy, specs.MultiWorker):  # whose workers cut once they are a cluster
        pieces.cut(strategy.wanted_pieces)
    if note is not None:
        built.notes = (*built.notes, note)
    return built


def _check_portable() -> None:
    """Raises a RunError if this process does not use the kernels of every processor with AVX2."""
    asked = "strategy.reproducible is processors, but"
    if "avx2" not in machine.processor().features:
        raise RunError(f"{asked} {machine.processor().model} has no AVX2: set strategy.reproducible=machine")
    found = machine.kernel_flags()
    if other := {name: text for name, text in machine.portable_flags().items() if found.get(name) != text}:
        setting = " ".join(f"{name}={shlex.quote(text)}" for name, text in other.items())
        raise RunError(
            f"{asked} this process has imported NumPy and TensorFlow with other kernels: start a new process, "
            f"or set {setting} before the import"
        )
    if native.library("portable") is None:
        raise RunError(
            f"{asked} its operations are not built: install a C++ compiler and run python -m embexp.system.native"
        )


def prepare_operations(strategy: specs.Strategy, say: Callable[[str], object]) -> str | None:
    """Builds fused operations that are missing, but for a TPU, which runs none; see `native.ready`."""
    return None if isinstance(strategy, specs.TPU) else native.ready(say)


def record(prepared: Prepared, strategy: Strategy, folder: RunFolder) -> None:
    """Writes coverage, vocabularies, what was fitted, the user's code and the manifest, before the first step."""
    if pretrained := prepared.tables.pretrained:
        folder.write_json(folder.coverage, pretrained.as_json())
    for table, vocabulary in prepared.data.vocabularies.items():
        files.make_directories(folder.vocabularies)
        vocabulary.write(folder.vocabularies / table)
        if (unseen := _unseen(prepared, table, vocabulary)) is not None:
            with files.atomic_write(folder.unseen(table)) as written:
                np.save(written, unseen)
    fitted = prepared.data.scan.numbers.columns
    if not all(column.plain for column in fitted):
        numbers.write(fitted, folder.numbers)
    if prepared.code is not None:
        for file in prepared.code.files.values():
            with files.atomic_write(folder.code / file.name) as copy:
                copy.write(file.content)
    folder.write_json(folder.manifest, circumstances(prepared, strategy, folder))


def _unseen(prepared: Prepared, table: str, vocabulary: Vocabulary) -> np.ndarray | None:
    """The number of runs in a row that did not see each token of a table; None: an earlier run had no tokens."""
    contract, name = prepared.data.contract, prepared.data.groups[table]
    if contract is None or name not in contract.unseen or not isinstance(vocabulary, TokenVocabulary):
        return None
    return contract.unseen_after(name, vocabulary)


def record_resumption(prepared: Prepared, strategy: Strategy, folder: RunFolder, step: int) -> dict[str, Any]:
    """Adds the circumstances of a resumption to the manifest, and returns them."""
    content, now = folder.read_manifest(), circumstances(prepared, strategy, folder)
    content.setdefault("resumed", []).append({"step": step, **now})
    folder.write_json(folder.manifest, content)
    return now


def circumstances(prepared: Prepared, strategy: Strategy, folder: RunFolder) -> dict[str, Any]:
    """The content of the manifest of a run in this process."""
    assert prepared.identity is not None  # only the plan of a study has none
    return manifest.collect(
        folder.portable(prepared.requested).model_dump(mode="json"),
        prepared.identity,
        code=prepared.code,
        devices=strategy.devices,
        tensorflow=_tensorflow_build(),
        examples=prepared.data.scan.examples_digest,
    )


def _tensorflow_build() -> dict[str, Any]:
    """Version, compiler and build flags, and the settings of this process that affect results."""
    return {
        "version": tf.version.VERSION,
        "git_version": tf.version.GIT_VERSION,
        "compiler": tf.version.COMPILER_VERSION,
        "compile_flags": [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("-I")],
        "build": {
            key: value if isinstance(value, str | int | float | bool | None) else list(map(str, value))
            for key, value in sorted(tf.sysconfig.get_build_info().items())
        },
        "jit": str(tf.config.optimizer.get_jit()),
        "tensor_float_32": bool(tf.config.experimental.tensor_float_32_execution_enabled()),
        "floatx": keras.config.floatx(),
        "precision": keras.config.dtype_policy().name,
        "fused_operations": [name for name in native.names() if native.library(name) is not None],
    }
