"""The task of sequential recommendation: the item that follows a history is ranked among all items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import where_known
from embexp.specs.tasks import CANDIDATES, Compared, Direction, Metric, Task

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec

_RANKS, _HIGHER = "embexp_sequences.evaluation", Direction.HIGHER


class NextItem(Task):
    """The next item of a user."""

    loss_unit = "loss of the model (mean per position)"

    def compared(self, spec: RunSpec) -> dict[str, Compared]:
        """All items, those drawn for a batch, or one for each position."""
        from embexp_sequences.specs import HISTORY, NextItemLoss, SASRec

        if not isinstance(model := spec.model, SASRec):
            return {}
        path, few = "model.loss", "choose model.loss=sampled_softmax"
        match model.loss:
            case NextItemLoss.SOFTMAX:
                return {CANDIDATES: Compared(path, str(model.loss), "items", made=True, remedy=few)}
            case NextItemLoss.SAMPLED_SOFTMAX:
                return {CANDIDATES: Compared(path, str(model.loss), made=True, of_batch=model.negatives)}
        drawn = spec.features[HISTORY].max_sequence_length - 1
        return {CANDIDATES: Compared(path, str(model.loss), made=True, of_example=drawn)}

    def faults(self, spec: RunSpec) -> Iterator[Fault]:
        """Other data and models, strategies whose replicas share a batch, and runtimes without this task."""
        return where_known(_data(spec), _model(spec), _strategy(spec), _runtime(spec))


def _data(spec: RunSpec) -> Iterator[Fault]:
    if spec.data.kind != "sequences":
        yield Fault("data", spec.data.kind, "task next_item needs histories", "choose data=sequences")


def _model(spec: RunSpec) -> Iterator[Fault]:
    if spec.model.kind != "sasrec":
        yield Fault("model", spec.model.kind, "task next_item needs a model of histories", "choose model=sasrec")


def _strategy(spec: RunSpec) -> Iterator[CombinationFault]:
    if spec.strategy.kind not in ("cpu", "gpu", "multi_worker"):
        rule = "task next_item has been tried with strategies cpu, gpu and multi_worker only"
        yield CombinationFault("strategy", spec.strategy.kind, rule, "choose one of these")


def _runtime(spec: RunSpec) -> Iterator[CombinationFault]:
    if spec.executing_runtime == "estimator":
        yield CombinationFault("runtime", "estimator", "task next_item has no estimator", "set runtime=function")


NEXT_ITEM = NextItem(
    "next_item",
    described="The item that follows a history, among all items: the model's loss; NDCG@k, hit rate@k, MRR.",
    loss="embexp_sequences.model:loss",
    reference=f"{_RANKS}:REFERENCE",
    data="embexp_sequences.batches:complete",
    additions="embexp_sequences.batches:additions",
    serving="embexp_sequences.serving:model",
    evaluator=f"{_RANKS}:NextItemEvaluator",
    metrics=(
        Metric("ndcg_at_{k}", _HIGHER, f"{_RANKS}:ndcg", f"{_RANKS}:ndcg_at_random", cutoffs=(10,), unit="NDCG@{k}"),
        Metric("hit_rate_at_{k}", _HIGHER, f"{_RANKS}:hits", f"{_RANKS}:hits_at_random", cutoffs=(10,), unit="HR@{k}"),
        Metric("mrr", _HIGHER, f"{_RANKS}:mrr", f"{_RANKS}:mrr_at_random", unit="MRR (1 is best)"),
    ),
)
