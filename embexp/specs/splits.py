"""How examples are split into train, validation and test."""

from __future__ import annotations

from enum import StrEnum

from pydantic import model_validator

from embexp.specs.base import Fraction, Spec
from embexp.specs.bounds import Seed


class SplitKind(StrEnum):
    """How examples are divided into train, validation and test."""

    RANDOM = "random"
    TIME = "time"
    LEAVE_ONE_OUT = "leave_one_out"
    FOLDS = "folds"


class Split(Spec):
    """How examples are split into train, validation and test.

    random: by a seeded permutation. time: by `timestamp`, the latest examples test, those before them validate.
    leave_one_out: each user's latest example tests, the one before validates. folds: fold `data.fold` of `data.folds`
    tests, the rest trains; `validation` is a fraction of the rest.
    """

    kind: SplitKind = SplitKind.RANDOM
    validation: Fraction = 0.1
    """Fraction of the examples that validates (of the training split, for folds); ignored by leave_one_out."""
    test: Fraction = 0.1
    """Fraction of the examples that tests; for random and time."""
    group: str | None = None
    """leave_one_out: the column that names the user."""
    seed: Seed = 0
    """Seed of the split, independent of the run's seed, so that runs with other seeds have the same split."""

    @model_validator(mode="after")
    def _fit(self) -> Split:
        if self.kind in (SplitKind.RANDOM, SplitKind.TIME) and self.validation + self.test >= 1:
            raise ValueError("validation and test must leave something to train on (validation + test < 1)")
        if self.kind is SplitKind.LEAVE_ONE_OUT and self.group is None:
            raise ValueError("leave_one_out needs group, the column that names the user")
        return self

    @property
    def by_time(self) -> bool:
        """Whether the test split depends on timestamps."""
        return self.kind in (SplitKind.TIME, SplitKind.LEAVE_ONE_OUT)

    @property
    def group_column(self) -> str | None:
        """The column of the groups, each of which leaves one example out; None for other splits."""
        return self.group if self.kind is SplitKind.LEAVE_ONE_OUT else None

    @property
    def validates(self) -> bool:
        """Whether there is a validation split."""
        return self.kind is SplitKind.LEAVE_ONE_OUT or self.validation > 0
