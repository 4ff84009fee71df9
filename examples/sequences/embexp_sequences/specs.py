"""Sequential recommendation in configs: histories of users as data, and SASRec."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import Dim, Fraction, RowCount, for_each, where_known
from embexp.specs.data.choices import CSV
from embexp.specs.data.sources import Delimiter, Source, Split, SplitKind
from embexp.specs.models.dense_model import DenseModel, Shapes, listed
from embexp.specs.tasks import CANDIDATES

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec

HISTORY, LENGTH = "history", "length"
"""Columns: the items of a user in their order, and how many they are."""


class Sequences(Source):
    """Interactions of users with items, a row of CSV each, as a history for each user.

    The last item of a user tests, the one before validates, those before train. A user with fewer than four items only
    trains. Columns: `history`; `candidates`, the items to rank; `length`. Label: the row of the item that follows.
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
    """Column of the time, numbers or ISO dates; null: the rows of a user are in their order."""
    names: tuple[str, ...] | None = None
    """Names of the columns of files without a header line; null: the first line names them."""
    delimiter: Delimiter = ","
    """Separator of columns."""
    rank_seen: bool = False
    """Rank items of the history, too."""

    @property
    def dense_columns(self) -> tuple[str, ...]:
        """`length`."""
        return (LENGTH,)

    def interactions(self, path: str) -> CSV:
        """The rows of a file."""
        split = Split() if self.timestamp is None else Split(kind=SplitKind.LEAVE_ONE_OUT, group=self.user)
        form = {"names": self.names, "delimiter": self.delimiter, "timestamp": self.timestamp}
        return CSV(path=path, label=None, split=split, **form)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Another task."""
        if spec.task != "next_item":
            rule = f"it holds histories, and task {spec.task} is of something else"
            yield Fault(scope.path, self.kind, rule, "choose experiment=sequences, or other data")


class NextItemLoss(StrEnum):
    """The loss of a position."""

    SOFTMAX = "softmax"
    """-log p[item] with p = softmax over all items."""
    SAMPLED_SOFTMAX = "sampled_softmax"
    """The same over the item and items that are drawn uniformly, once for all positions of a batch."""
    BINARY = "binary"
    """-log sigmoid(item) - log sigmoid(-another), which is drawn uniformly for each position, as in the paper."""


class SASRec(DenseModel):
    """Causal self-attention over the history; scores are products with the items' rows (Kang & McAuley 2018)."""

    kind: Literal["sasrec"] = "sasrec"
    implementation = "embexp_sequences.model:sasrec"
    in_step = "embexp_sequences.model:in_step"
    blocks: Dim = 2
    """Blocks of attention and two linear layers."""
    heads: Dim = 1
    """Heads of each attention; they divide the dim of the items."""
    dropout: Fraction = 0.2
    """Dropout rate of inputs, attention and layers."""
    loss: NextItemLoss = NextItemLoss.SOFTMAX
    negatives: RowCount = 256
    """Items that sampled_softmax draws for a step."""

    def input_shapes(self, shapes: Shapes) -> Shapes:
        """With any number of candidates."""
        return {**shapes, CANDIDATES: (None, *shapes[CANDIDATES])}

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Another task, and rows that the model gets changed."""
        if spec.task != "next_item":
            yield Fault(scope.path, self.kind, "it predicts next items", "choose task=next_item, or another model")
        yield from where_known(for_each(lambda: spec.tables, lambda name: _adapter(spec, name)))

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Other features than a sequence and candidates of its dim, and heads that don't divide that."""
        history = shapes.get(HISTORY, ())
        if set(shapes) != {HISTORY, CANDIDATES} or len(history) != 2 or history[1:] != shapes[CANDIDATES]:
            rule = f"it takes {HISTORY}, a sequence of vectors, and {CANDIDATES}, vectors of the same dim"
            yield Fault("features", listed(shapes), rule, "take graph=sequences")
        elif (history[0] or 0) < 2:
            rule = "a history is an item and the one that follows at least"
            yield Fault(f"features.{HISTORY}.max_sequence_length", str(history[0]), rule, "set 2 or more")
        elif history[1] is not None and history[1] % self.heads:
            yield Fault("model.heads", str(self.heads), f"it must divide the dim of the items, {history[1]}")


def _adapter(spec: RunSpec, name: str) -> Iterator[CombinationFault]:
    if (adapter := spec.tables[name].adapter) is not None:
        rule = "sasrec scores rows of items as they are, many at a time"
        yield CombinationFault(f"tables.{name}.adapter", f"dim {adapter.dim}", rule, "leave it null")
