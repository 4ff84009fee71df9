"""The settings of sequential recommendation: the task, histories of users as data, and SASRec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from embexp.errors import CombinationFault, Fault
from embexp.fields import CSV, Compared, DenseModel, Direction, Metric, Task
from embexp.specs.base import Dim, Fraction, RowCount, for_each, where_known
from embexp.specs.data import Delimiter, Source
from embexp.specs.models import Shapes
from embexp.specs.tasks import CANDIDATES

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec

HISTORY, LENGTH = "history", "length"
"""Columns: the items of a user in order of time, and their number."""


class NextItem(Task):
    """The next item of a user."""

    loss_unit = "loss of the model (mean per position)"

    def compared(self, spec: RunSpec) -> dict[str, Compared]:
        """All items, those drawn for a batch, or one drawn item for each position."""
        if not isinstance(model := spec.model, SASRec):
            return {}
        drawn: dict[str, dict[str, Any]] = {
            NextItemLoss.SOFTMAX: {"every": "items", "remedy": "choose model.loss=sampled_softmax"},
            NextItemLoss.SAMPLED_SOFTMAX: {"of_batch": model.negatives},
            NextItemLoss.BINARY: {"of_example": spec.features[HISTORY].max_sequence_length - 1},
        }
        return {CANDIDATES: Compared("model.loss", str(model.loss), made=True, **drawn[model.loss])}

    def faults(self, spec: RunSpec) -> Iterator[Fault]:
        """Choices that the task does not support, or that nobody has tried with it."""
        kinds: dict[str, Callable[[], tuple[str, tuple[str, ...]]]] = {
            "data": lambda: (spec.data.kind, ("sequences",)),
            "model": lambda: (spec.model.kind, ("sasrec",)),
            "strategy": lambda: (spec.strategy.kind, ("cpu", "gpu", "multi_worker")),
            "runtime": lambda: (spec.executing_runtime, ("function", "session")),
        }
        tables = for_each(lambda: spec.tables, partial(_adapter, spec))
        return where_known(tables, for_each(lambda: kinds, lambda name: _other(name, *kinds[name]())))


def _other(name: str, kind: str, taken: tuple[str, ...]) -> Iterator[CombinationFault]:
    if kind not in taken:
        yield CombinationFault(name, kind, "task next_item does not take it", f"choose {name}={' or '.join(taken)}")


def _adapter(spec: RunSpec, name: str) -> Iterator[CombinationFault]:
    if (adapter := spec.tables[name].adapter) is not None:
        rule = "rows of items are scored as they are, many at a time"
        yield CombinationFault(f"tables.{name}.adapter", f"dim {adapter.dim}", rule, "leave it null")


_RANKS, _HIGHER = "embexp_sequences.evaluation", Direction.HIGHER
NEXT_ITEM = NextItem(
    "next_item",
    described="The item that follows a history, among all items: the model's loss; NDCG@10, hit rate@10, MRR.",
    loss="embexp_sequences.model:loss",
    reference=f"{_RANKS}:REFERENCE",
    data="embexp_sequences.batches:complete",
    additions="embexp_sequences.batches:Answers",
    serving="embexp_sequences.serving:NextItemModel",
    evaluator=f"{_RANKS}:NextItemEvaluator",
    metrics=(
        Metric("ndcg_at_{k}", _HIGHER, f"{_RANKS}:ndcg", cutoffs=(10,), unit="NDCG@{k}"),
        Metric("hit_rate_at_{k}", _HIGHER, f"{_RANKS}:hit_rate", cutoffs=(10,), unit="hit rate@{k}"),
        Metric("mrr", _HIGHER, f"{_RANKS}:mrr", unit="MRR (1 is best)"),
    ),
)


class Sequences(Source):
    """Interactions of users with items, one per row of a CSV file, read as a history for each user.

    The last item of a user is the test example, and the one before is the validation example. A user with fewer than
    four items is only used for training. The columns are `history`, `candidates` (the items to rank) and `length`. The
    label is the row of the item that follows.
    """

    label_column: ClassVar[str] = "answer"

    kind: Literal["sequences"] = "sequences"
    implementation = "embexp_sequences.source:SequenceSource"
    path: Annotated[str, Field(min_length=1)]
    user: str = "user"
    """Column of the user."""
    item: str = "item"
    """Column of the item."""
    timestamp: str | None = "timestamp"
    """Column of the time, numbers or ISO dates; null: the rows of each user are already in order of time."""
    names: tuple[str, ...] | None = None
    """Names of the columns if the file has no header line; null: the first line names them."""
    delimiter: Delimiter = ","
    """Separator of columns."""
    rank_seen: bool = False
    """Rank items of the history, too."""

    @property
    def dense_columns(self) -> tuple[str, ...]:
        """`length`."""
        return (LENGTH,)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """An error if the task is not `next_item`."""
        if spec.task != NEXT_ITEM:
            yield Fault(scope.path, self.kind, f"task {spec.task} is not about histories", "choose task=next_item")

    def rows(self, path: str) -> CSV:
        """The rows of a file."""
        form: dict[str, Any] = self.model_dump(include={"names", "delimiter", "timestamp"})
        split = {"split": {"kind": "leave_one_out", "group": self.user}} if self.timestamp else {}
        return CSV(path=path, label=None, **form, **split)


class NextItemLoss(StrEnum):
    """The loss at each position."""

    SOFTMAX = "softmax"
    """-log p[item] with p = softmax over all items."""
    SAMPLED_SOFTMAX = "sampled_softmax"
    """The same, over the item and uniformly drawn items, which all positions of a batch share."""
    BINARY = "binary"
    """-log sigmoid(item) - log sigmoid(-other). The other is drawn uniformly for each position, as in the paper."""


class SASRec(DenseModel):
    """Causal self-attention over the history (Kang & McAuley 2018). Scores are dot products with the rows of items."""

    kind: Literal["sasrec"] = "sasrec"
    implementation = "embexp_sequences.model:sasrec"
    in_step = "embexp_sequences.model:in_step"
    blocks: Dim = 2
    """Number of blocks. A block is attention, then two linear layers."""
    heads: Dim = 1
    """Heads of each attention; the dim of the items must be a multiple of it."""
    dropout: Fraction = 0.2
    """Dropout rate of inputs, attention and layers."""
    loss: NextItemLoss = NextItemLoss.SOFTMAX
    negatives: RowCount = 256
    """Number of items that sampled_softmax draws per step."""

    def input_shapes(self, shapes: Shapes) -> Shapes:
        """The shapes, with any number of candidates."""
        return {**shapes, CANDIDATES: (None, *shapes[CANDIDATES])}

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Errors for features other than a sequence and candidates of one dim, and for heads that do not divide it."""
        history = shapes.get(HISTORY, ())
        if set(shapes) != {HISTORY, CANDIDATES} or history[1:] != shapes[CANDIDATES] or (history[0] or 0) < 2:
            rule = f"it takes {HISTORY}, a sequence of two or more vectors, and {CANDIDATES}, vectors of the same dim"
            yield Fault("features", ", ".join(sorted(shapes)), rule, "take graph=sequences")
        elif history[1] is not None and history[1] % self.heads:
            yield Fault("model.heads", str(self.heads), f"it must divide the dim of the items, {history[1]}")
