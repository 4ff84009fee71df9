"""Valid settings that have no effect in a run, or that are rarely intended."""

from __future__ import annotations

from collections.abc import Iterator

from embexp.specs.alike import few
from embexp.specs.freezing import FreezeTable
from embexp.specs.inits import MemoryMap
from embexp.specs.models import DLRM, KnowledgeGraph, MatrixFactorization, RankingLoss, RotatE, Task, TransE
from embexp.specs.optimizers import AdagradMomentum
from embexp.specs.pretrained import NoPretrained, Sample
from embexp.specs.recommendation import Recommendation
from embexp.specs.run import INHERITED, RunSpec
from embexp.specs.running import Train


def inert(spec: RunSpec) -> list[str]:
    """Settings without effect, each as `config path: reason`."""
    return [
        *_inherited(spec),
        *_mapped(spec),
        *_frozen(spec),
        *_samples(spec),
        *_optimizers(spec),
        *_model(spec),
        *_train(spec),
    ]


def doubtful(spec: RunSpec) -> list[str]:
    """Warnings about settings that are rarely intended, shown before a run and by `embexp plan`."""
    lines = []
    for scope, freeze in spec.settings_of("freeze"):
        random = [name for name in scope.tables if isinstance(spec.pretrained_of(name), NoPretrained)]
        if isinstance(freeze, FreezeTable) and freeze.random is None and random:
            lines.append(
                f"{few([f'tables.{name}' for name in random])}: frozen but not pretrained: random"
                f" initial values never change; if that is intended, choose {scope.choosing('freeze', 'random_table')}"
            )
    return lines


def _inherited(spec: RunSpec) -> Iterator[str]:
    for name in INHERITED:
        if not spec.scope_of(name).tables:
            yield f"{name}: every table has its own setting"


def _mapped(spec: RunSpec) -> Iterator[str]:
    if isinstance(spec.init, MemoryMap):
        inheriting = spec.scope_of("init").tables
        others = [f"tables.{name}" for name in inheriting if not isinstance(spec.init_of(name), MemoryMap)]
        if others:
            yield f"init memory_map on {few(others)}: not frozen or not pretrained, so their rows are assigned"


def _frozen(spec: RunSpec) -> Iterator[str]:
    for name, table in spec.tables.items():
        if table.optimizer is not None and spec.frozen(name):
            yield f"tables.{name}.optimizer: the table is frozen"
    if all(spec.frozen(name) for name in spec.tables):
        yield "optimizer: every table is frozen"


def _samples(spec: RunSpec) -> Iterator[str]:
    default = Sample()
    for scope, setting in spec.settings_of("pretrained"):
        if isinstance(setting, Sample) and setting.path is not None:
            for key in ("rows", "dim", "seed"):
                if getattr(setting, key) != getattr(default, key):
                    yield f"{scope.path}.{key}: path names a file, so no sample is generated"


def _optimizers(spec: RunSpec) -> Iterator[str]:
    for scope, optimizer in spec.settings_of("optimizer"):
        if optimizer.multiply_weight_decay_factor_by_learning_rate and not optimizer.weight_decay_factor:
            yield f"{scope.path}.multiply_weight_decay_factor_by_learning_rate: weight_decay_factor is 0"
        if isinstance(optimizer, AdagradMomentum) and optimizer.use_nesterov and not optimizer.momentum:
            yield f"{scope.path}.use_nesterov: momentum is 0"


def _model(spec: RunSpec) -> Iterator[str]:
    dense = spec.data.dense_columns
    if isinstance(spec.model, DLRM) and not dense:
        yield "model.bottom: there are no dense features"
    if isinstance(spec.model, KnowledgeGraph):
        yield f"dense_optimizer: {spec.model.kind} has no weights outside the tables"
    if isinstance(spec.model, MatrixFactorization):
        yield f"dense_optimizer: {spec.model.kind} has no weights outside the tables"
    if spec.task is not Task.RECOMMENDATION and spec.recommendation != Recommendation():
        yield f"recommendation: the task is {spec.task}"
    if isinstance(spec.model, TransE | RotatE) and spec.model.margin and spec.model.loss is RankingLoss.SOFTMAX:
        yield "model.margin: a softmax depends only on differences of scores"


def _train(spec: RunSpec) -> Iterator[str]:
    requested, used = spec.train.evaluation_batch_size, spec.evaluation_batch_size
    if requested not in (used, Train.model_fields["evaluation_batch_size"].default):
        why = "an output_shape sets the batch size"
        if spec.strategy.fixed_batch:
            why = f"strategy {spec.strategy.kind} requires batches of one size"
        yield f"train.evaluation_batch_size: {why}, so evaluations use train.batch_size ({used:,})"
    if spec.train.standardize_labels and not spec.standardizes_labels:
        yield f"train.standardize_labels: labels of task {spec.task} have no unit"
    stopping = spec.train.early_stopping
    if stopping.patience is None:
        if stopping.metric is not None:
            yield "train.early_stopping.metric: patience is null, so nothing stops early"
        if stopping.min_delta:
            yield "train.early_stopping.min_delta: patience is null, so nothing stops early"
