"""Executes a prepared run: its tables, model and step are assembled, filled in its runtime, and its rows watched.

A run assembles them to train; a finished run assembles them again to evaluate and predict, and an export its model.
"""

from __future__ import annotations

import contextlib
import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, assert_never

import keras
import numpy as np
import tensorflow as tf

from embexp.checkpoints import restoring
from embexp.checkpoints.account import LiveAccount
from embexp.data import batches
from embexp.errors import CheckpointError
from embexp.initialization.filling import FileRows, Grouped, Shared, TablePlan
from embexp.records import differences
from embexp.records.folder import RunFolder
from embexp.records.manifest import decides_nothing
from embexp.runs.evaluations import Evaluator, evaluator_of
from embexp.runs.prepare import Prepared, PreparedTables, longest_histories
from embexp.runs.runtimes import execution
from embexp.runs.runtimes.execution import Blueprint, Execution
from embexp.specs.fields import imported
from embexp.specs.models import CustomLoss, Loss, Model
from embexp.specs.optimizers import DenseOptimizer
from embexp.specs.pretrained import Schedules
from embexp.specs.run import RunSpec
from embexp.specs.running import Restoring, RuntimeKind, Save
from embexp.specs.tables import Feature, Storage, Table
from embexp.specs.tasks import Labels, Task
from embexp.strategies.strategy import Embeddings, Run, Strategy
from embexp.system import digests, native
from embexp.system.arrays import MappableRows
from embexp.system.machine import PeakMemory, keep_freed
from embexp.system.parallel import Progress, quiet
from embexp.tables import optimizers
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.variables import Precision
from embexp.training import models
from embexp.training.freezing.watching import Watch, Watched
from embexp.training.step import Assembly, Input, Step
from embexp.vectors.pretrained.tables import beside_file, mapping_of, row_source, slot_sources


@dataclass(frozen=True)
class Started:
    """A run with its variables created and filled, before its first step.

    Attributes:
        execution: executes steps, and reads and saves tables.
        batches: the training batches, a `tf.data.Dataset`.
        watch: compares rows with their initial values.
        memory: measures peak memory up to the end of the first step.
        evaluator: computes the metrics of splits.
    """

    execution: Execution
    batches: Any
    watch: Watch
    memory: PeakMemory
    evaluator: Evaluator


@contextlib.contextmanager
def execute(
    prepared: Prepared, strategy: Strategy, folder: RunFolder, *, first_step: int = 0, progress: Progress = quiet
) -> Iterator[Started]:
    """Creates and fills all variables; closes the runtime at the end of the block."""
    initial, evaluator = initial_rows(prepared.tables), evaluator_of(prepared.spec)
    with PeakMemory() as memory, contextlib.ExitStack() as stack:
        stack.enter_context(strategy.active(partial(agreed, prepared, folder.path, first_step)))
        training = training_batches(prepared, strategy, first_step)
        execution = build(prepared, initial, training.element_spec, strategy, folder.estimator)
        stack.callback(execution.close)
        policies, pretrained = prepared.tables.policies, prepared.tables.pretrained
        vocabularies = prepared.data.vocabularies
        spec, examples = prepared.spec, prepared.data.training_examples
        watch = Watch(
            {
                name: Watched(
                    table,
                    vocabularies[name],
                    policies[name],
                    initial[name],
                    pretrained.pretrained_rows(name),
                    spec.optimizer_of(name),
                    "optimizer" if spec.tables[name].optimizer is None else f"tables.{name}.optimizer",
                )
                for name, table in execution.tables.items()
            },
            seed=spec.seed,
            digests=spec.output.digests,
            restored=spec.restore.path is not None,
            total_steps=prepared.schedule.steps,
            epochs_of=lambda steps: steps * spec.train.batch_size / examples,
            progress=progress,
        )
        stack.callback(watch.close)
        keep_freed()
        yield Started(execution, training, watch, memory, evaluator)


def agreed(prepared: Prepared, folder: Path, first_step: int) -> Run:
    """What the workers of a cluster agree on: the content of spec, data and files, code, and versions."""
    assert prepared.identity is not None  # only the plan of a study has none
    versions = {
        "python": platform.python_version(),
        "tensorflow": tf.version.GIT_VERSION,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "embexp": digests.of_package()[:12],
        "fused operations": ", ".join(name for name in native.names() if native.library(name) is not None) or "none",
    }
    from embexp.strategies.cluster import rendezvous  # which one process does not need

    identity = {
        rendezvous.SPEC: prepared.identity.content[:12],
        "user's code": (prepared.identity.code or "none")[:12],
    }
    files = prepared.identity.files
    spec = differences.leaves(prepared.requested.model_dump(mode="json"))
    read = tuple(f"{path}." for path in files)
    settings = {path: str(value) for path, value in spec if not (decides_nothing(path) or f"{path}.".startswith(read))}
    settings |= {f"content of {path}": digest[:12] for path, digest in files.items()}
    return Run({**identity, **versions}, folder, first_step, settings)


def training_batches(prepared: Prepared, strategy: Strategy, first_step: int = 0) -> Any:
    """The training batches from `first_step` on, of which this process reads its share, a `tf.data.Dataset`."""
    spec, data = prepared.spec, prepared.data
    examples, rows = data.scan.examples, data.scan.splits["train"]
    return batches.training_batches(
        examples,
        rows,
        data.columns,
        batch_size=spec.train.batch_size,
        seed=spec.seed,
        shuffle=spec.data.shuffle,
        window=spec.data.window,
        steps=prepared.schedule.steps,
        start_step=first_step,
        additions=imported(spec.task.additions)(spec, data) if spec.task.additions else None,
        weights=data.weights,
        share=strategy.share(spec.train.batch_size),
        parts=strategy.parts,
    )


def build(
    prepared: Prepared,
    initial: Mapping[str, MappableRows],
    training_spec: Any,
    strategy: Strategy,
    estimator_folder: Path,
) -> Execution:
    """Creates and fills all variables in the run's runtime.

    Args:
        initial: initial values of each table.
        training_spec: `element_spec` of the training batches.
    """
    spec, data, earlier, evaluator = prepared.spec, prepared.data, prepared.dense, evaluator_of(prepared.spec)

    def dense_values(checkpoint: Any) -> restoring.DenseValues:
        """The values that the dense part takes from an earlier checkpoint before the first step."""
        if earlier is None:
            return restoring.DenseValues([])
        kinds = [
            (each.kind, getattr(each, "function", None)) for each in (dense.optimizer, earlier.spec.dense_optimizer)
        ]
        contract = data.contract
        outputs = None if contract is None else (len(contract.classes), len(data.classes))
        return restoring.read_dense(
            checkpoint,
            earlier.index,
            same_optimizer=kinds[0] == kinds[1],
            random=contract is not None,
            outputs=outputs,
        )

    before = 0
    if prepared.ancestor is not None and spec.parent.schedules is Schedules.CONTINUE:
        before = prepared.ancestor.steps
    dense = dense_settings(
        spec,
        rows=prepared.tables.rows,
        width=data.dense_width,
        classes=len(data.classes),
        total_steps=before + prepared.schedule.steps,
        examples=len(data.scan.splits["train"]),
        output_bias=output_bias(spec.task, data.scan.label_mean if data.weights is None else data.weights.label_mean),
        label_deviation=label_deviation(prepared) or 1.0,
    )
    further = spec.task.further_features(spec, data)
    own = {name: Input(name, every_row=not spec.strategy.own_memory) for name in further}
    dense = replace(dense, inputs={**dense.inputs, **own}, steps_before=before)
    features = {**spec.features, **further}
    return start(
        prepared.runtime,
        Blueprint(
            plans=table_plans(prepared.tables, initial, _decay_shares(prepared)),
            features=features,
            columns={name: each.ids for name, each in dense.inputs.items()},
            most_ids=longest_histories(prepared),
            assemble=partial(assemble, dense, strategy),
            strategy=strategy,
            total_steps=before + prepared.schedule.steps,
            steps_before=before,
            training_spec=training_spec,
            prediction_spec=partial(evaluator.batch_spec, data),
            estimator_folder=estimator_folder,
            keeps_checkpoints=spec.checkpoint.save is not Save.NEVER,
            dense=dense_values,
            restored=partial(_restored, spec.restore, prepared.restored),
        ),
    )


def label_deviation(prepared: Prepared) -> float | None:
    """By what standardised labels are divided, which is the parent's where a run goes on; None: they are not."""
    if not prepared.spec.standardizes_labels:
        return None
    contract = prepared.data.contract
    if contract is not None and contract.label_deviation is not None:
        return contract.label_deviation
    return evaluator_of(prepared.spec).label_deviation(prepared.data)


def start(kind: RuntimeKind, blueprint: Blueprint) -> Execution:
    """Makes and fills all variables of an experiment, and its step, in a runtime.

    Raises:
        ValueError: the kind is `auto`; see `RunSpec.executing_runtime`.
    """
    match kind:
        case RuntimeKind.FUNCTION:
            return execution.start_function(blueprint)
        case RuntimeKind.SESSION:
            from embexp.runs.runtimes import session

            return session.start(blueprint)
        case RuntimeKind.ESTIMATOR:
            from embexp.runs.runtimes import estimator

            return estimator.start(blueprint)
        case RuntimeKind.AUTO:
            raise ValueError("runtime=auto is not resolved")
        case _:
            assert_never(kind)


def _restored(settings: Restoring, path: Path | None, checkpoint: Any) -> LiveAccount | None:
    """Restores the variables that the config names, before the first step.

    Raises:
        CheckpointError: the checkpoint lacks a variable, or has it in another shape or type.
        DataError: the checkpoint is damaged.
    """
    if path is None:
        return None
    account = restoring.restore_run(path, checkpoint, only=settings.only, rename=settings.rename)
    try:
        return account.assert_consumed()
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}\nUse restore.only to restore less, or restore.rename for variables with other names there"
        ) from None


def build_finished(tables: PreparedTables, dense: DenseSettings, strategy: Strategy, checkpoint: Path) -> Execution:
    """Creates all variables of a finished run in the function runtime, with the values of its checkpoint.

    Args:
        checkpoint: its directory. It lacks the rows that stay in a pretrained file, which fill their tables.
    """
    blueprint = Blueprint(
        plans=table_plans(tables, initial_rows(tables)),
        features=dense.features,
        columns={},
        assemble=partial(assemble, dense, strategy),
        strategy=strategy,
        total_steps=dense.total_steps,
        fills_all=False,
    )
    execution = start(RuntimeKind.FUNCTION, blueprint)
    execution.restore(checkpoint)
    return execution


@dataclass(frozen=True)
class DenseSettings:
    """What the dense part of an experiment and its step are made of, with what they must know of data and schedule.

    Attributes:
        inputs: the columns of each feature.
        total_steps: number of training steps, for learning-rate schedules.
        outputs: logits of an example, see `Task.outputs`.
        output_bias: initial bias of each logit; of standardised labels, their mean.
        label_deviation: standard deviation of the labels; None: they are not standardised.
        adapters: see `adapters_of`.
        steps_before: those of earlier runs that schedules go on from.
    """

    task: Task
    model: Model
    loss: Loss
    optimizer: DenseOptimizer
    seed: int
    features: Mapping[str, Feature]
    inputs: Mapping[str, Input]
    width: int
    total_steps: int
    outputs: int = 1
    output_bias: float = 0.0
    label_deviation: float | None = None
    adapters: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    steps_before: int = 0


def adapters_of(features: Mapping[str, Feature], tables: Mapping[str, Table]) -> dict[str, tuple[str, int]]:
    """By feature whose rows are multiplied by a matrix: the table of that, and the length of what it makes."""
    found = {name: (feature.table, tables[feature.table].adapter) for name, feature in features.items()}
    return {name: (table, adapter.dim) for name, (table, adapter) in found.items() if adapter is not None}


def dense_settings(
    spec: RunSpec,
    *,
    rows: Mapping[str, int],
    width: int,
    total_steps: int,
    examples: int = 0,
    classes: int = 0,
    output_bias: float = 0.0,
    label_deviation: float = 1.0,
) -> DenseSettings:
    """The dense settings of a run; what only initial values depend on may be left out.

    Args:
        rows: of each table.
        examples: of the training split.
        classes: how many have names; each has a logit, but for task binary.
    """
    # On a TPU, all rows of a table are looked up as any others.
    every_row = (
        []
        if spec.strategy.own_memory
        else [name for name, more in spec.task.compared(spec).items() if more.every and more.made]
    )
    model = spec.model.settled(spec, rows=rows, examples=examples)
    return DenseSettings(
        spec.task,
        model,
        spec.loss,
        spec.dense_optimizer,
        spec.seed,
        spec.features,
        {name: Input(spec.ids_of(name), feature.weights, name in every_row) for name, feature in spec.features.items()},
        width,
        total_steps,
        outputs=spec.task.outputs(classes),
        output_bias=output_bias,
        label_deviation=label_deviation if spec.standardizes_labels else None,
        adapters=adapters_of(spec.features, spec.tables),
    )


def output_bias(task: Task, label_mean: float) -> float:
    """The initial bias of the logit: the mean label, the log odds of the rate of label 1, or 0."""
    if task.labels is Labels.NUMBER:
        return label_mean
    if task.labels is not Labels.BINARY:
        return 0.0
    rate = min(max(label_mean, 1e-6), 1 - 1e-6)
    return math.log(rate / (1 - rate))


def assemble(dense: DenseSettings, strategy: Strategy, embeddings: Embeddings, counter: Any) -> Assembly:
    """Creates every variable of an experiment except its tables, in the current graph.

    Args:
        counter: int64 variable, the number of steps done.
    """
    tables = embeddings.tables
    # Layers of a user's own model draw from Keras' global seed.
    keras.utils.set_random_seed(digests.seed_of(dense.seed, "keras")[0])
    counted = optimizers.StepsInAll(counter, dense.steps_before) if dense.steps_before else counter
    with strategy.scope():
        model = dense_model(dense, {name: table.dim for name, table in tables.items()})
        optimizer = models.build_optimizer(
            # The run's own step counter: a restored optimizer has also counted the steps of the earlier run.
            dense.optimizer,
            lambda step: optimizers.schedule_factor(dense.optimizer.schedule, counted, total_steps=dense.total_steps),
        )
        optimizer.build(model.trainable_variables)
    step = Step(
        backend=embeddings.backend,
        model=model,
        inputs=dense.inputs,
        strategy=strategy,
        loss=models.build_loss(dense.loss, dense.model, dense.task, dense.outputs),
        optimizer=optimizer,
        counter=counter,
        **(imported(dense.model.in_step)(model, dense.model, dense.inputs) if dense.model.in_step else {}),
        # The squared error of standardised labels is that of the labels by their variance.
        gradient_scale=1.0
        if dense.label_deviation is None or isinstance(dense.loss, CustomLoss)
        else dense.label_deviation**-2,
    )
    return Assembly(
        step=step,
        checkpoint=tf.train.Checkpoint(
            embedding=TableCheckpoint(tables.values()),
            model=model,
            optimizer=optimizer,
            random=models.random_state(model),
            step=counter,
        ),
    )


def dense_model(dense: DenseSettings, dims: Mapping[str, int]) -> keras.Model:
    """The dense part of an experiment, with its initial values."""
    shapes = {name: feature.activation_shape(dims[feature.table]) for name, feature in dense.features.items()}
    adapters = {name: dim for name, (_, dim) in dense.adapters.items()}
    mean, deviation = dense.output_bias, dense.label_deviation
    model = models.build_model(
        dense.model,
        shapes={name: (*shape[:-1], adapters.get(name, shape[-1])) for name, shape in shapes.items()},
        dense_width=dense.width,
        output_bias=mean if deviation is None else 0.0,
        seed=dense.seed,
        outputs=dense.outputs,
    )
    if adapters:
        model = models.adapted(model, shapes=shapes, dense_width=dense.width, adapters=dense.adapters, seed=dense.seed)
    if deviation is None:
        return model
    return models.standardized(model, shapes=shapes, dense_width=dense.width, mean=mean, deviation=deviation)


def initial_rows(tables: PreparedTables) -> dict[str, MappableRows]:
    """Initial values of every table: pretrained, or drawn by its initializer from the seed, its name and the row."""
    spec = tables.spec
    return {
        name: row_source(name, table, tables.rows[name], spec.seed, tables.pretrained.tables.get(name))
        for name, table in spec.tables.items()
    }


def _decay_shares(prepared: Prepared) -> dict[str, Shared]:
    """For each table whose rows decay equally per epoch, the values that determine the shares of its rows."""
    spec, examples, train = prepared.spec, prepared.data.scan.examples, prepared.data.scan.splits["train"]
    found: dict[str, Shared] = {}
    steps = len(train) / spec.train.batch_size
    for name, rows in prepared.tables.rows.items():
        if spec.optimizer_of(name).decays_per_epoch and not prepared.tables.policies[name].fully_frozen:
            counts = [examples.counts(spec.ids_of(feature), train, rows) for feature in spec.features_of(name)]
            found[name] = Shared(name, np.sum(counts, axis=0), steps)
    return found


def table_plans(
    tables: PreparedTables,
    initial: Mapping[str, MappableRows],
    shares: Mapping[str, Shared] = MappingProxyType({}),
) -> dict[str, TablePlan]:
    """Plans how every table is created and filled, without creating it.

    Args:
        initial: initial values of each table, see `initial_rows`.
        shares: of tables whose rows decay alike in an epoch.

    Raises:
        RunError: rows of a file can't be mapped.
    """
    spec, plans = tables.spec, {}
    for name, rows in initial.items():
        table, policy, pretrained = spec.tables[name], tables.policies[name], tables.pretrained.tables.get(name)
        optimizer = None if policy.fully_frozen else spec.optimizer_of(name)
        grouping, file, slots = policy.grouping, None, {}
        if policy.storage is Storage.MEMORY_MAP and pretrained is not None:
            mapping, of_file = mapping_of(name, pretrained, table.dtype), pretrained.alignment.file_rows
            file = FileRows(mapping, of_file, beside_file(rows), pretrained.source.scales)
        if optimizer is not None and pretrained is not None:
            slots = slot_sources(name, pretrained, optimizers.slots_of(optimizer))
        plans[name] = TablePlan(
            name=name,
            source=rows,
            init=spec.init_of(name),
            init_path="init" if table.init is None else f"tables.{name}.init",
            combiner=table.combiner,
            optimizer=optimizer,
            storage=policy.storage,
            by_reference=spec.kept_by_reference(name),
            groups=None if grouping is None else Grouped(name, grouping.groups, grouping.multipliers, grouping.starts),
            frozen_rows=policy.frozen if policy.frozen_rows and not policy.fully_frozen else None,
            file=file,
            mirrored=table.storage is Storage.MIRRORED,
            slots=slots,
            precision=_precision(table, name, spec.seed),
            shares=shares.get(name),
            resets=None if table.reset is None else partial(_resetting, tables, name),
        )
    return plans


def _resetting(tables: PreparedTables, name: str) -> np.ndarray:
    """The rows of a table that are reset in each epoch, bool [rows]: those that are neither pretrained nor frozen."""
    stay = [tables.policies[name].frozen, tables.pretrained.pretrained_rows(name)]
    found = np.ones(tables.rows[name], np.bool_)
    for mask in stay:
        if mask is not None:
            found &= ~mask
    return found


def _precision(table: Table, name: str, seed: int) -> Precision:
    """How a table is stored. Its random numbers depend only on the run's seed and the table's name."""
    first, second = digests.seed_of(seed, "rounding", name)
    key = (first & 0xFFFFFFFF, second & 0xFFFFFFFF) if table.stochastic_rounding else None
    return Precision(tf.as_dtype(table.dtype.value), tf.as_dtype(table.slot_dtype.value), key)
