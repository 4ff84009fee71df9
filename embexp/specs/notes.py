"""Settings that are right but have no effect in a run, or seldom the one that is meant."""

from __future__ import annotations

from collections.abc import Iterator

from embexp.specs.freezing import FreezeTable
from embexp.specs.inits import MemoryMap
from embexp.specs.models import DLRM, KnowledgeGraph, RankingLoss, TransE
from embexp.specs.optimizers import AdagradMomentum
from embexp.specs.pretrained import NoPretrained, Sample
from embexp.specs.run import INHERITED, RunSpec
from embexp.specs.running import Train


def inert(spec: RunSpec) -> list[str]:
    """What has no effect, each as `config path: why`."""
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
    """What works and is seldom meant: shown before a run and by `embexp plan`."""
    lines = []
    for scope, freeze in spec.settings_of("freeze"):
        random = [name for name in scope.tables if isinstance(spec.pretrained_of(name), NoPretrained)]
        if isinstance(freeze, FreezeTable) and freeze.random is None and random:
            lines.append(
                f"{', '.join(f'tables.{name}' for name in random)}: frozen and not pretrained, so that random values"
                f" stay as they are; where that is meant, choose {scope.choosing('freeze', 'random_table')}"
            )
    return lines


def _inherited(spec: RunSpec) -> Iterator[str]:
    for name in INHERITED:
        if not spec.scope_of(name).tables:
            yield f"{name}: every table has its own"


def _mapped(spec: RunSpec) -> Iterator[str]:
    if isinstance(spec.init, MemoryMap):
        heirs = spec.scope_of("init").tables
        others = [f"tables.{name}" for name in heirs if not isinstance(spec.init_of(name), MemoryMap)]
        if others:
            yield f"init memory_map on {', '.join(others)}: not frozen or not pretrained, so they are assigned"


def _frozen(spec: RunSpec) -> Iterator[str]:
    for name, table in spec.tables.items():
        if table.optimizer is not None and spec.frozen(name):
            yield f"tables.{name}.optimizer: the table is frozen"
    if all(spec.frozen(name) for name in spec.tables):
        yield "optimizer: every table is frozen"


def _samples(spec: RunSpec) -> Iterator[str]:
    made = Sample()
    for scope, setting in spec.settings_of("pretrained"):
        if isinstance(setting, Sample) and setting.path is not None:
            for key in ("rows", "dim", "seed"):
                if getattr(setting, key) != getattr(made, key):
                    yield f"{scope.path}.{key}: path names a file, so none is made"


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
        yield f"dense_optimizer: {spec.model.kind} has no weights beside the tables"
    if isinstance(spec.model, TransE) and spec.model.margin and spec.model.loss is RankingLoss.SOFTMAX:
        yield "model.margin: a softmax looks at differences of scores"


def _train(spec: RunSpec) -> Iterator[str]:
    asked, used = spec.train.evaluation_batch_size, spec.evaluation_batch_size
    if asked not in (used, Train.model_fields["evaluation_batch_size"].default):
        why = "an output_shape names the size of batches"
        if spec.strategy.fixed_batch:
            why = f"strategy {spec.strategy.kind} takes batches of one size only"
        yield f"train.evaluation_batch_size: {why}, so evaluations take train.batch_size ({used:,})"
    stopping = spec.train.early_stopping
    if stopping.patience is None:
        if stopping.metric is not None:
            yield "train.early_stopping.metric: patience is null, so nothing stops early"
        if stopping.min_delta:
            yield "train.early_stopping.min_delta: patience is null, so nothing stops early"
