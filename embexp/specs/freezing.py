"""Freeze policies: which rows of a table are frozen, and which have a lower learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from embexp.errors import CombinationFault
from embexp.specs.base import BY_KIND, Choice, NamedCode, NonNegative, Spec, WholeNumber, broken
from embexp.specs.pretrained import Checkpoint, NoPretrained

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


def _some(bounds: tuple[int, int]) -> tuple[int, int]:
    """Raises where a range holds no row."""
    start, stop = bounds
    if start >= stop:
        meant = f"[{stop},{start}]" if stop < start else f"[{start},{stop + 1}]"
        rule = f"rows are half-open ranges [start, stop), so [{start}, {stop}] is empty"
        raise PydanticCustomError("empty_range", "{rule}", {"rule": rule, "meant": meant})
    return bounds


Range = Annotated[tuple[WholeNumber, WholeNumber], AfterValidator(_some)]
"""Rows [start, stop)."""


class RowPolicy(Choice):
    """Base class of policies that freeze the rows that they name; the implementation names them.

    It takes the config path and a `RowFacts`, and returns a `NamedRows` (`embexp.training.freezing.policies`).
    """

    kind: str

    @property
    def factor(self) -> float:
        """What the learning rate of the rows is multiplied by: 0, unless a rule of a schedule has a `multiplier`."""
        return float(getattr(self, "multiplier", 0.0))

    @property
    def as_phases(self) -> tuple[Phase, ...]:
        """One phase with one rule."""
        return (Phase.model_construct(rules=(self,)),)  # type: ignore[arg-type]  # a rule with multiplier 0

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the files that it reads."""
        return ()


class NoFreeze(Spec):
    """No row is frozen."""

    kind: Literal["none"] = "none"
    files: ClassVar[tuple[str, ...]] = ()

    @property
    def as_phases(self) -> tuple[Phase, ...]:
        """One phase without rules."""
        return (Phase(),)


class FreezeTable(RowPolicy):
    """All rows are frozen. Checkpoints omit the table if it is also pretrained: its file and seed restore it."""

    kind: Literal["table"] = "table"
    implementation = "embexp.training.freezing.policies:whole_table"
    random: bool | None = None
    """Whether a table that is not pretrained may be frozen at random values; null: it may, with a warning."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """Tables without pretrained rows, if `random` is false."""
        if self.random is not False:
            return
        lacking = [name for name in scope.all_tables() if isinstance(spec.pretrained_of(name), NoPretrained)]
        if lacking:
            tables = "the table is not pretrained" if scope.own else "these tables are not pretrained: "
            tables += "" if scope.own else ", ".join(lacking)
            rule = f"{scope.path}.random is false, so only pretrained tables may be frozen, but {tables}"
            random = scope.choosing("freeze", "random_table")
            remedy = f"add pretrained=file pretrained.path=…; if you want frozen random values, choose {random}"
            yield CombinationFault(scope.path, "table", rule, remedy)


class FreezeRows(RowPolicy):
    """Rows named by number, by token or by a mask are frozen; the options can be combined."""

    kind: Literal["rows"] = "rows"
    implementation = "embexp.training.freezing.policies:listed_rows"
    rows: tuple[Range, ...] = ()
    """Half-open ranges [start, stop) of row numbers."""
    tokens: tuple[str, ...] = ()
    """Tokens of the table's vocabulary."""
    tokens_file: Annotated[str, Field(min_length=1)] | None = None
    """A file with a token per line."""
    mask_file: Annotated[str, Field(min_length=1)] | None = None
    """A .npy file with a boolean for each row of the table: true freezes it."""

    @model_validator(mode="after")
    def _names(self) -> FreezeRows:
        if not self.rows and not self.tokens and self.tokens_file is None and self.mask_file is None:
            rule = "set at least one of rows, tokens, tokens_file and mask_file"
            raise broken(rule, "rows", "tokens", "tokens_file", "mask_file", such_as="rows=[[0,100]]")
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """Those of tokens and of the mask."""
        return tuple(path for path in (self.tokens_file, self.mask_file) if path is not None)


class FreezePretrainedRows(RowPolicy):
    """Rows from the pretrained file are frozen; all other rows train."""

    kind: Literal["pretrained_rows"] = "pretrained_rows"
    implementation = "embexp.training.freezing.policies:pretrained_rows"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """No table has a pretrained file."""
        tables = scope.all_tables()
        if tables and all(isinstance(spec.pretrained_of(name), NoPretrained) for name in tables):
            has = "the table has no" if scope.own else "no table that inherits it has a"
            rule = f"it freezes rows from a pretrained file, but {has} pretrained file"
            yield CombinationFault(scope.path, "pretrained_rows", rule, _adding(scope, "file"))


class FreezeOldRows(RowPolicy):
    """Trained rows from a checkpoint are frozen; new rows train."""

    kind: Literal["old_rows"] = "old_rows"
    implementation = "embexp.training.freezing.policies:old_rows"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """No table restores rows from a checkpoint."""
        return _no_checkpoint(spec, scope, scope.path)


class CustomFreeze(NamedCode, RowPolicy):
    """Rows that the user's own function names are frozen: `function(facts, **args)` returns bool [rows]."""

    kind: Literal["custom"] = "custom"
    implementation = "embexp.training.freezing.policies:custom_rows"


class _Scheduled(Spec):
    multiplier: NonNegative = 0.0
    """Multiplier of the learning rate of these rows; 0: they are frozen."""


class TableRule(_Scheduled, RowPolicy):
    """All rows."""

    kind: Literal["table"] = "table"
    implementation = "embexp.training.freezing.policies:whole_table"


class RowsRule(_Scheduled, FreezeRows):
    """Named rows."""


class PretrainedRowsRule(_Scheduled, FreezePretrainedRows):
    """Rows from the pretrained file."""


class OldRowsRule(_Scheduled, FreezeOldRows):
    """Trained rows from a checkpoint."""


class CustomRule(_Scheduled, CustomFreeze):
    """Rows that the user's own function names."""


Rule = Annotated[TableRule | RowsRule | PretrainedRowsRule | OldRowsRule | CustomRule, BY_KIND]


class Phase(Spec):
    """Rules that hold from a step or an epoch until the next phase; from the start if neither is set."""

    step: WholeNumber | None = None
    """The first step of the phase, from 0."""
    epoch: NonNegative | None = None
    """The start of the phase in passes over the training split, from 0."""
    rules: tuple[Rule, ...] = ()
    """In order: the first rule that covers a row applies. Rows without a rule train as usual."""

    @model_validator(mode="after")
    def _one(self) -> Phase:
        if self.step is not None and self.epoch is not None:
            raise broken("a phase begins at a step or at an epoch, not both; remove step or epoch", "step", "epoch")
        return self


class FreezeSchedule(Spec):
    """Consecutive phases with their own rules: gradual unfreezing, lower learning rates."""

    kind: Literal["schedule"] = "schedule"
    phases: tuple[Phase, ...]

    @model_validator(mode="after")
    def _in_order(self) -> FreezeSchedule:
        if not self.phases:
            raise broken("phases must have at least one entry", "phases")
        if self.phases[0].step or self.phases[0].epoch:
            raise broken("the first of the phases begins when training begins: remove its step and epoch", "phases")
        for before, after in zip(self.phases, self.phases[1:], strict=False):
            if after.step is None and after.epoch is None:
                raise broken("each of the phases after the first needs the step or epoch at which it begins", "phases")
            if (after.step is not None and before.step is not None and after.step <= before.step) or (
                after.epoch is not None and before.epoch is not None and after.epoch <= before.epoch
            ):
                raise broken("phases must be in the order of their steps or epochs", "phases")
        return self

    @property
    def as_phases(self) -> tuple[Phase, ...]:
        """Its phases."""
        return self.phases

    @property
    def files(self) -> tuple[str, ...]:
        """Those of its rules."""
        return tuple(path for phase in self.phases for rule in phase.rules for path in rule.files)

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """A rule about rows of a checkpoint, and no table restores rows from one."""
        for number, phase in enumerate(self.phases):
            for index, rule in enumerate(phase.rules):
                if isinstance(rule, OldRowsRule):
                    return _no_checkpoint(spec, scope, f"{scope.path}.phases.{number}.rules.{index}")
        return iter(())


Freeze = Annotated[
    NoFreeze | FreezeTable | FreezeRows | FreezePretrainedRows | FreezeOldRows | FreezeSchedule | CustomFreeze,
    BY_KIND,
]


def _no_checkpoint(spec: RunSpec, scope: Scope, path: str) -> Iterator[CombinationFault]:
    tables = scope.all_tables()
    if tables and not any(isinstance(spec.pretrained_of(name), Checkpoint) for name in tables):
        restores = "the table restores none" if scope.own else "no table that inherits it restores any"
        rule = f"it freezes rows from a checkpoint, but {restores}"
        yield CombinationFault(path, "old_rows", rule, _adding(scope, "checkpoint"))


def _adding(scope: Scope, pretrained: str) -> str:
    choice, path = scope.choosing("pretrained", pretrained), scope.sibling("pretrained")
    return f"add {choice} {path}.path=…, or choose another freeze"
