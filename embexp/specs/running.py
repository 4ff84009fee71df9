"""How long to train, where, and what to leave behind."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from embexp.specs.base import Count, NonNegative, Positive, Spec


class EarlyStopping(Spec):
    """Ends the training when a validation metric has not improved for `patience` evaluations; null: never."""

    patience: Count | None = None
    metric: str | None = None
    """Name of a validation metric; null: the task's first (rmse, log_loss, accuracy, mrr)."""
    min_delta: NonNegative = 0.0
    """An improvement must be larger than this."""
    restore_best: bool = True
    """Go back to the values of the best evaluation at the end."""


class Train(Spec):
    """Length and rhythm of the training. Whichever of steps and epochs comes first ends it."""

    steps: Count | None = None
    epochs: Positive | None = None
    """Passes over the training part; a fraction is allowed."""
    batch_size: Count = 1024
    evaluation_batch_size: Count = 8192
    evaluate_every: Count | None = None
    """Steps between evaluations on the validation part; null: once per epoch."""
    log_every: Count | None = None
    """Steps between logged losses; null: about 100 lines a run."""
    early_stopping: EarlyStopping = EarlyStopping()

    @model_validator(mode="after")
    def _ends(self) -> Train:
        if self.steps is None and self.epochs is None:
            raise ValueError("neither steps nor epochs is set, so the training would never end")
        return self


class RuntimeKind(StrEnum):
    """How the step is executed."""

    AUTO = "auto"
    FUNCTION = "function"
    """A `tf.function`."""
    SESSION = "session"
    """A graph of TensorFlow 1 in a session."""
    ESTIMATOR = "estimator"
    """`tf.estimator`, by the package tensorflow-estimator."""


class Runtime(Spec):
    """How the step is executed: auto takes the one that all tables' methods share."""

    kind: RuntimeKind = RuntimeKind.AUTO


class Output(Spec):
    """What a run leaves behind; no part of its identity."""

    cache: str | None = None
    """Folder for scanned data; null: the user's cache folder."""
    checkpoint: bool = True
    tensorboard: bool = True
    plots: bool = True
    digests: bool = True
    """Digest each final table, and tell which rows changed from hashes of all of them (7 s for 3 GB)."""
    compare: tuple[Annotated[str, Field(pattern=r"^\w+(\.\w+)*$")], ...] = ()
    """Keys of summary.json, dotted, whose values become columns of a sweep's table."""
