"""Length of the training, evaluations, early stopping, runtime and output."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from embexp.errors import Fault
from embexp.specs.base import Count, NonNegative, Positive, Spec, WholeNumber
from embexp.specs.bounds import BatchSize

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


class EarlyStopping(Spec):
    """Ends the training when a validation metric has not improved for `patience` evaluations; null: never."""

    patience: Count | None = None
    metric: str | None = None
    """Name of a validation metric; null: the task's first (rmse, log_loss, accuracy, mrr, ndcg_at_k)."""
    min_delta: NonNegative = 0.0
    """An improvement must be larger than this."""
    restore_best: bool = True
    """Restore the values of the best evaluation at the end."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Early stopping without a validation split."""
        split = getattr(spec.data, "split", None)
        if self.patience is not None and split is not None and not split.validates:
            yield Fault(
                f"{scope.path}.patience",
                str(self.patience),
                "early stopping watches the validation split, and data.split.validation is 0",
                "set data.split.validation above 0, or patience to null",
            )


class Train(Spec):
    """Length of the training, batches and evaluations. Whichever of steps and epochs comes first ends it."""

    steps: Count | None = None
    epochs: Positive | None = None
    """Passes over the training split; a fraction is allowed."""
    batch_size: BatchSize = 1024
    evaluation_batch_size: BatchSize = 8192
    evaluate_every: Count | None = None
    """Steps between evaluations on the validation split; null: once per epoch."""
    log_every: Count | None = None
    """Steps between logged losses; null: about 100 lines a run."""
    standardize_labels: bool = False
    """Task rating: predict labels in units of their standard deviation, around their mean, in the training split."""
    early_stopping: EarlyStopping = EarlyStopping.model_construct()

    @model_validator(mode="after")
    def _ends(self) -> Train:
        if self.steps is None and self.epochs is None:
            raise ValueError("neither steps nor epochs is set, so the training would never end")
        return self


class RuntimeKind(StrEnum):
    """How steps are executed."""

    AUTO = "auto"
    FUNCTION = "function"
    """A `tf.function`."""
    SESSION = "session"
    """A graph of TensorFlow 1 in a session."""
    ESTIMATOR = "estimator"
    """`tf.estimator`, by the package tensorflow-estimator."""


class Runtime(Spec):
    """How steps are executed; auto: the first runtime that all tables' init methods share."""

    kind: RuntimeKind = RuntimeKind.AUTO


class Existing(StrEnum):
    """What a run does whose directory is there already."""

    REFUSE = "refuse"
    """End with an error."""
    NUMBER = "number"
    """Take the next free name, `…_2`."""
    REPLACE = "replace"
    """Remove the complete run in it."""
    CONTINUE = "continue"
    """Resume the run in it, which must have the same spec."""


class Output(Spec):
    """What a run writes; not part of its identity."""

    existing: Existing = Existing.REFUSE
    """If a directory that was named is there already."""
    cache: str | None = None
    """Folder for scanned data; null: the user's cache folder."""
    tensorboard: bool = True
    projector_rows: WholeNumber = 10_000
    """Rows of each table that TensorBoard's projector shows, the most frequent ones; 0: none."""
    plots: bool = True
    digests: bool = True
    """Compute a digest of each final table and report changed rows, by hashes of all rows (7 s for 3 GB)."""
    compare: tuple[Annotated[str, Field(pattern=r"^\w+(\.\w+)*$")], ...] = ()
    """Keys of summary.json, dotted, whose values become columns of a sweep's table."""
