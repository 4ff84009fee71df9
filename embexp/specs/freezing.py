"""Which rows of a table are frozen, by how much others learn more slowly, and what each policy needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from embexp.errors import CombinationFault
from embexp.specs.base import NonNegative, Spec, WholeNumber
from embexp.specs.pretrained import Checkpoint, NoPretrained

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope

Range = tuple[WholeNumber, WholeNumber]
"""Rows [start, stop)."""


class NoFreeze(Spec):
    """No row is frozen."""

    kind: Literal["none"] = "none"


class FreezeTable(Spec):
    """All rows are frozen. Checkpoints leave the table out if it is also pretrained: its file and seed restore it."""

    kind: Literal["table"] = "table"
    random: bool | None = None
    """Whether a table that is not pretrained may be frozen at random values; null: it may, with a warning."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """Tables that are not pretrained, where random values are not to be frozen."""
        if self.random is not False:
            return
        lacking = [name for name in scope.all_tables() if isinstance(spec.pretrained_of(name), NoPretrained)]
        if lacking:
            tables = "the table is" if scope.own else "these tables are"
            yield CombinationFault(
                scope.path,
                "table",
                f"{scope.path}.random is false, so no random values are to stay as they are, and {tables} not"
                f" pretrained{'' if scope.own else ': ' + ', '.join(lacking)}",
                "add pretrained=file pretrained.path=…; or, where random values are meant, choose"
                f" {scope.choosing('freeze', 'random_table')}",
            )


class FreezeRows(Spec):
    """Named rows are frozen: by number, by token, or by a mask. Each source of names adds to the others."""

    kind: Literal["rows"] = "rows"
    rows: tuple[Range, ...] = ()
    """Half-open ranges [start, stop) of row numbers."""
    tokens: tuple[str, ...] = ()
    """Tokens of the table's vocabulary."""
    tokens_file: Annotated[str, Field(min_length=1)] | None = None
    """A file with a token per line."""
    mask_file: Annotated[str, Field(min_length=1)] | None = None
    """A .npy file of booleans, one for each row of the table: true names it."""

    @model_validator(mode="after")
    def _names(self) -> FreezeRows:
        if not self.rows and not self.tokens and self.tokens_file is None and self.mask_file is None:
            raise ValueError("one of rows, tokens, tokens_file and mask_file must name rows")
        for start, stop in self.rows:
            if start >= stop:
                raise ValueError(f"rows are half-open ranges [start, stop), and [{start}, {stop}] holds none")
        return self


class FreezePretrainedRows(Spec):
    """Rows that came from the pretrained file are frozen; those that it lacks train."""

    kind: Literal["pretrained_rows"] = "pretrained_rows"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """There is no pretrained file."""
        tables = scope.all_tables()
        if tables and all(isinstance(spec.pretrained_of(name), NoPretrained) for name in tables):
            has = "the table has no" if scope.own else "no table that inherits it has a"
            yield CombinationFault(
                scope.path,
                "pretrained_rows",
                f"it is about rows that came from a file, and {has} pretrained file",
                f"add {scope.choosing('pretrained', 'file')} {scope.beside('pretrained')}.path=…, or choose another"
                " freeze",
            )


class FreezeOldRows(Spec):
    """Rows that came from a checkpoint as trained ones are frozen; new ones train."""

    kind: Literal["old_rows"] = "old_rows"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """There is no checkpoint."""
        return _no_checkpoint(spec, scope, scope.path)


class TableRule(Spec):
    """All rows."""

    kind: Literal["table"] = "table"
    multiplier: NonNegative = 0.0
    """What the learning rate of these rows is multiplied by; 0: they are frozen."""


class RowsRule(FreezeRows):
    """Rows that are named."""

    multiplier: NonNegative = 0.0
    """As in `TableRule`."""


class PretrainedRowsRule(FreezePretrainedRows):
    """Rows that came from the pretrained file."""

    multiplier: NonNegative = 0.0
    """As in `TableRule`."""


class OldRowsRule(FreezeOldRows):
    """Rows that came from a checkpoint as trained ones."""

    multiplier: NonNegative = 0.0
    """As in `TableRule`."""


Rule = Annotated[TableRule | RowsRule | PretrainedRowsRule | OldRowsRule, Field(discriminator="kind")]


class Phase(Spec):
    """Rules that hold from a step or an epoch until the next phase; from the start if neither is set."""

    step: WholeNumber | None = None
    """The first step of the phase, from 0."""
    epoch: NonNegative | None = None
    """Where it begins in passes over the training split, from 0."""
    rules: tuple[Rule, ...] = ()
    """In order: the first that covers a row decides. Rows that none covers train as usual."""

    @model_validator(mode="after")
    def _one(self) -> Phase:
        if self.step is not None and self.epoch is not None:
            raise ValueError("a phase begins at a step or at an epoch; leave step or epoch out")
        return self


class FreezeSchedule(Spec):
    """Consecutive phases, each with rules of its own: gradual unfreezing, slower rows."""

    kind: Literal["schedule"] = "schedule"
    phases: tuple[Phase, ...]

    @model_validator(mode="after")
    def _in_order(self) -> FreezeSchedule:
        if not self.phases:
            raise ValueError("there must be at least one of phases")
        if self.phases[0].step or self.phases[0].epoch:
            raise ValueError("the first of the phases begins with the training: leave its step and epoch out")
        for before, after in zip(self.phases, self.phases[1:], strict=False):
            if after.step is None and after.epoch is None:
                raise ValueError("each of the phases after the first needs a step or an epoch at which it begins")
            if (after.step is not None and before.step is not None and after.step <= before.step) or (
                after.epoch is not None and before.epoch is not None and after.epoch <= before.epoch
            ):
                raise ValueError("phases begin one after the other")
        return self

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """A rule is about rows of a checkpoint, and there is none."""
        for number, phase in enumerate(self.phases):
            for index, rule in enumerate(phase.rules):
                if isinstance(rule, OldRowsRule):
                    return _no_checkpoint(spec, scope, f"{scope.path}.phases.{number}.rules.{index}")
        return iter(())


Freeze = Annotated[
    NoFreeze | FreezeTable | FreezeRows | FreezePretrainedRows | FreezeOldRows | FreezeSchedule,
    Field(discriminator="kind"),
]


def _no_checkpoint(spec: RunSpec, scope: Scope, path: str) -> Iterator[CombinationFault]:
    tables = scope.all_tables()
    if tables and not any(isinstance(spec.pretrained_of(name), Checkpoint) for name in tables):
        takes = "the table takes none" if scope.own else "no table that inherits it takes any"
        yield CombinationFault(
            path,
            "old_rows",
            f"it is about rows that came from a checkpoint, and {takes} from one",
            f"add {scope.choosing('pretrained', 'checkpoint')} {scope.beside('pretrained')}.path=…, or choose another"
            " freeze",
        )


def phases_of(freeze: Freeze) -> tuple[Phase, ...]:
    """Any policy as phases: all but a schedule are one phase with at most one rule."""
    match freeze:
        case FreezeSchedule():
            return freeze.phases
        case NoFreeze():
            return (Phase(),)
        case FreezeTable():
            return (Phase(rules=(TableRule(),)),)
        case FreezeRows():
            named = RowsRule(
                rows=freeze.rows, tokens=freeze.tokens, tokens_file=freeze.tokens_file, mask_file=freeze.mask_file
            )
            return (Phase(rules=(named,)),)
        case FreezePretrainedRows():
            return (Phase(rules=(PretrainedRowsRule(),)),)
        case FreezeOldRows():
            return (Phase(rules=(OldRowsRule(),)),)


def files_of(freeze: Freeze) -> list[str]:
    """Paths of the files that a policy reads."""
    rules = [rule for phase in phases_of(freeze) for rule in phase.rules if isinstance(rule, RowsRule)]
    return [path for rule in rules for path in (rule.tokens_file, rule.mask_file) if path is not None]
