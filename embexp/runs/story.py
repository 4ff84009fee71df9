"""The story of a run on one page: each stage is a call that returns a value which the next one takes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from embexp.data import batches
from embexp.data.vocabulary import Vocabulary
from embexp.errors import DataError
from embexp.freezing import policies, watching
from embexp.freezing.policies import TablePolicy
from embexp.freezing.row_facts import row_facts
from embexp.freezing.watching import Watch, Watched
from embexp.initialization import filling
from embexp.models import shapes
from embexp.pretrained import earlier
from embexp.pretrained.aligned import align
from embexp.pretrained.dims import with_dims
from embexp.pretrained.earlier import Earlier
from embexp.pretrained.tables import Pretrained
from embexp.records import identity, manifest
from embexp.records.folder import RunFolder
from embexp.reports import plots
from embexp.runs import assembly, evaluations
from embexp.runs.scanned import Data, Say, read_data, table_sizes
from embexp.runs.summary import summarise
from embexp.runtimes import execution
from embexp.runtimes.execution import Blueprint, Execution
from embexp.specs import resolution
from embexp.specs.freezing import files_of
from embexp.specs.models import Task
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.strategies import build as strategies
from embexp.strategies import threads as thread_counts
from embexp.strategies.placement import Placement
from embexp.system import caching, places
from embexp.system.memory import PeakMemory
from embexp.system.rows import MappableRows
from embexp.training import loop, metrics
from embexp.training.early_stopping import EarlyStopping
from embexp.training.evaluation import Predictor
from embexp.training.interruption import tidy_interruption
from embexp.training.listeners import Listener
from embexp.training.metrics_file import MetricsFile
from embexp.training.tensorboard import TensorBoard


@dataclass(frozen=True)
class RunResult:
    """A run that has ended: where it lies and what it came to, as it stands in summary.json."""

    directory: Path
    summary: Mapping[str, Any]

    @property
    def status(self) -> str:
        """completed, stopped_early or interrupted."""
        return str(self.summary["status"])


def run(
    spec: RunSpec, directory: Path, *, listeners: Sequence[Listener] = (), say: Say = lambda what, part: None
) -> RunResult:
    """Runs an experiment from its spec to its summary.

    Args:
        spec: what the user asked for.
        directory: an existing directory that is this run's own.
        listeners: are told of the training, beside those that write the run's files.
        say: is told of what comes before the training.

    Raises:
        RunError: the data, a file or the machine is not as it must be.
    """
    folder = RunFolder(directory)
    folder.write_spec(spec)
    threads = thread_counts.prepare(spec.strategy.intra_op_threads, spec.strategy.inter_op_threads)
    placement = strategies.build(spec.strategy)

    data = read_data(spec, say)
    sizes = table_sizes(spec, data.vocabularies)
    given = align(spec, data.vocabularies, sizes, cache=places.cache(spec.output.cache), say=say)
    sizes |= {name: table.rows for name, table in given.tables.items()}
    dense = dense_source(spec)
    run_id = identity.run_id(spec, data.scan.digest, pretrained_digests(spec, given, dense), freeze_digests(spec))
    spec = with_dims(spec, given, shapes.run_faults)
    kind = resolution.runtime_of(spec)
    frozen = freeze_policies(spec, data, sizes, given, kind)
    if given:
        folder.write_json(folder.coverage, given.as_json())
    write_vocabularies(data.vocabularies, folder)
    folder.write_json(
        folder.manifest, manifest.collect(threads=threads, devices=placement.devices, data_digest=data.scan.digest)
    )
    plan = rhythm_of(spec, examples=len(data.scan.splits["train"]))

    sources = filling.sources(spec, sizes, given)
    with PeakMemory() as memory, contextlib.ExitStack() as opened:
        opened.enter_context(strategies.opened(placement))
        training = training_data(spec, data, plan)
        execution = build(
            spec, data, given, sources, frozen, plan, folder, training.element_spec, kind, placement, dense
        )
        opened.callback(execution.close)
        watch = watching.watch(
            spec,
            {
                name: Watched(table, data.vocabularies[name], frozen[name], sources[name], given.pretrained_rows(name))
                for name, table in execution.tables.items()
            },
            total_steps=plan.steps,
            examples=len(data.scan.splits["train"]),
        )
        opened.callback(watch.close)
        outcome = train(spec, data, execution, training, plan, folder, listeners, watch, first_step_done=memory.stop)
        if spec.output.checkpoint:  # before anything else could fail
            say("writing the checkpoint", None)
            execution.save(folder.final_checkpoint)
        watch.kept(outcome.steps, kept_step(spec, outcome))
        final = evaluate_finally(spec, data, execution, outcome)
        summary = summarise(
            spec,
            data.scan,
            data.classes,
            given,
            frozen,
            watch,
            execution,
            outcome,
            final,
            run_id=run_id,
            runtime=kind,
            memory=memory,
        )
    folder.write_json(folder.summary, summary)
    if spec.output.plots:
        plots.write(folder.read_metrics(), folder.plots, task=spec.task, name=spec.name, truth=data.scan.truth)
    return RunResult(directory, summary)


def dense_source(spec: RunSpec) -> Earlier | None:
    """The earlier checkpoint that the dense part is taken over from.

    Raises:
        NotARunError: there is none where there should be.
    """
    for setting in spec.dense_from().values():  # all of them name the same
        return earlier.open_run(Path(setting.path), cache=places.cache(spec.output.cache))
    return None


def pretrained_digests(spec: RunSpec, given: Pretrained, dense: Earlier | None) -> dict[str, str]:
    """Digest of what each pretrained setting gives tables or the dense part, by its config path."""
    return {**given.digests, **(dict.fromkeys(spec.dense_from(), dense.digest) if dense is not None else {})}


def freeze_digests(spec: RunSpec) -> dict[str, str]:
    """Digest of each file that freeze policies name, by its path.

    Raises:
        DataError: there is no such file.
    """
    cache = places.cache(spec.output.cache)
    found = {}
    for name in spec.tables:
        for path in files_of(spec.freeze_of(name)):
            if not Path(path).is_file():
                raise DataError(f"{spec.freeze_path(name)}: there is no file {path}")
            found[path] = caching.file_digest(Path(path), cache=cache)
    return found


def freeze_policies(
    spec: RunSpec, data: Data, sizes: Mapping[str, int], given: Pretrained, kind: RuntimeKind
) -> dict[str, TablePolicy]:
    """Which rows of each table move, and how they are kept.

    Raises:
        ConfigError: a rule takes no row.
    """
    return policies.settle(
        spec,
        {
            name: row_facts(data.vocabularies[name], sizes[name], given.pretrained_rows(name), given.old_rows(name))
            for name in spec.tables
        },
        steps_per_epoch=len(data.scan.splits["train"]) / spec.train.batch_size,
        runtime=kind,
    )


def write_vocabularies(vocabularies: Mapping[str, Vocabulary], folder: RunFolder) -> None:
    """Writes one file per table, before the first step."""
    for table, vocabulary in vocabularies.items():
        folder.vocabularies.mkdir(exist_ok=True)
        vocabulary.write(folder.vocabularies / table)


def rhythm_of(spec: RunSpec, *, examples: int) -> loop.Rhythm:
    """How long to train, and when to log and to evaluate."""
    return loop.rhythm(
        examples=examples,
        batch_size=spec.train.batch_size,
        steps=spec.train.steps,
        epochs=spec.train.epochs,
        log_every=spec.train.log_every,
        evaluate_every=spec.train.evaluate_every,
    )


def output_bias(task: Task, label_mean: float) -> float:
    """Where the logit's bias starts: the mean rating, the log odds of the mean click rate; 0 otherwise."""
    match task:
        case Task.RATING:
            return label_mean
        case Task.CLICK:
            rate = min(max(label_mean, 1e-6), 1 - 1e-6)
            return math.log(rate / (1 - rate))
        case Task.CLASSIFICATION | Task.RANKING:
            return 0.0


def build(
    spec: RunSpec,
    data: Data,
    given: Pretrained,
    sources: Mapping[str, MappableRows],
    frozen: Mapping[str, TablePolicy],
    plan: loop.Rhythm,
    folder: RunFolder,
    training_spec: Any,
    kind: RuntimeKind,
    placement: Placement,
    dense: Earlier | None,
) -> Execution:
    """Creates and fills all variables in the runtime that the spec asks for or leaves to the tables' methods."""
    one = batches.evaluation_batches(
        data.scan.examples,
        data.scan.splits["train"][:1],
        data.columns,
        batch_size=spec.evaluation_batch_size,
        full=spec.fixed_batch,
        candidates=data.candidates,
    )
    blueprint = Blueprint(
        spec=spec,
        given=given,
        sources=sources,
        policies=frozen,
        tables=partial(filling.tables, spec, given, sources, frozen),
        assemble=partial(
            assembly.assemble,
            spec,
            dense_width=len(data.columns.dense),
            output_bias=output_bias(spec.task, data.scan.label_mean),
            total_steps=plan.steps,
            outputs=max(1, len(data.classes)),
            placement=placement,
        ),
        training_spec=training_spec,
        prediction_spec=one.element_spec,
        placement=placement,
        total_steps=plan.steps,
        dense=dense,
    )
    return execution.of(kind, blueprint, folder.estimator)


def training_data(spec: RunSpec, data: Data, plan: loop.Rhythm) -> Any:
    """The batches of a training, a `tf.data.Dataset`."""
    return batches.training_batches(
        data.scan.examples,
        data.scan.splits["train"],
        data.columns,
        batch_size=spec.train.batch_size,
        seed=spec.seed,
        shuffle=spec.data.shuffle,
        window=spec.data.window,
        steps=plan.steps,
        candidates=data.candidates,
    )


def train(
    spec: RunSpec,
    data: Data,
    execution: Execution,
    training: Any,
    plan: loop.Rhythm,
    folder: RunFolder,
    listeners: Sequence[Listener],
    watch: Watch,
    *,
    first_step_done: Callable[[], object],
) -> loop.Outcome:
    """Trains, and leaves the parts with what is to be kept: the last values, or those of the best evaluation."""
    validation = evaluation_of(spec, data, "validation")
    stopping, keep_best = early_stopping(spec, execution, folder)
    lines, events = MetricsFile(folder.metrics), TensorBoard(folder.events)
    everyone: list[Listener] = [*listeners, lines, *([events] if spec.output.tensorboard else []), watch]
    watch.report_to(lines.drifted, *([events.drifted] if spec.output.tensorboard else []))
    status = "failed"
    for listener in everyone:
        listener.started(plan.steps, len(data.scan.splits["train"]))
    try:
        with tidy_interruption() as interrupted:
            outcome = loop.train(
                execution.runtime,
                iter(execution.dataset(training)),
                plan=plan,
                batch_size=spec.train.batch_size,
                evaluate=None if validation is None else partial(validation, execution.runtime),
                listeners=everyone,
                interrupted=interrupted,
                first_step_done=first_step_done,
                stopping=stopping,
                keep_best=keep_best,
            )
        status = outcome.status
    finally:
        for listener in everyone:
            listener.ended(status)
    if kept_step(spec, outcome) != outcome.steps:
        watch.trained(outcome.steps)
        execution.restore(folder.best_checkpoint)
        outcome.validation = None
    return outcome


def evaluation_of(spec: RunSpec, data: Data, part: str) -> Callable[[Predictor], dict[str, float]] | None:
    """From a runtime to metrics of a part of the data, or None if it is empty."""
    rows = data.scan.splits[part]
    if not len(rows):
        return None
    return evaluations.evaluation(spec, data.columns, data.scan.examples, rows, data.candidates)


def early_stopping(
    spec: RunSpec, execution: Execution, folder: RunFolder
) -> tuple[EarlyStopping | None, Callable[[], object] | None]:
    """What decides on early stopping, and what keeps the best values; None for each that is off."""
    settings = spec.train.early_stopping
    if settings.patience is None:
        return None, None
    metric = metrics.watched(spec.task, settings.metric)
    stopping = EarlyStopping(
        metric=metric,
        lower_is_better=metrics.DIRECTIONS[metric] is metrics.Direction.LOWER,
        patience=settings.patience,
        min_delta=settings.min_delta,
    )
    keep = partial(execution.save, folder.best_checkpoint) if settings.restore_best else None
    return stopping, keep


def kept_step(spec: RunSpec, outcome: loop.Outcome) -> int:
    """The step whose values are kept: the last, or that of the best evaluation."""
    best = outcome.best_step if spec.train.early_stopping.restore_best else None
    return outcome.steps if best is None else best


def evaluate_finally(
    spec: RunSpec, data: Data, execution: Execution, outcome: loop.Outcome
) -> dict[str, dict[str, float]]:
    """Metrics by part of the data, of the values that are kept."""
    final: dict[str, dict[str, float]] = {"train": {"loss": outcome.train_loss}}
    for part in (part for part in data.scan.splits if part != "train"):
        if part == "validation" and outcome.validation is not None:
            final[part] = dict(outcome.validation)
        elif (measured := evaluation_of(spec, data, part)) is not None:
            final[part] = measured(execution.runtime)
    return final
