"""The study `auto_decay`: validation chooses a weight decay, with which a run trains all of the training data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from embexp.errors import Fault
from embexp.specs.base import Choice, NonNegative, different, known_or, where_known
from embexp.specs.data.sources import DividedData, GivenFiles
from embexp.specs.optimizers import CosineSchedule

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec

FINAL = "final"
_TIMES = (1 / 9, 1 / 3, 1.0, 3.0, 9.0)
_FROM_NOTHING = (0.0, 0.1, 0.3, 1.0, 3.0)
_HELD_OUT = 0.1
MOST = 9
DECAYS = tuple(f"decay_{number}" for number in range(1, MOST + 1))
"""Names of the runs that try a decay, which are also their directories."""


class AutoDecay(Choice):
    """Tries some weight decays, each by a run that the validation split judges, and trains all with the best one.

    The final run also trains what validated, for as many epochs as the best run needed. Data without a validation split
    gets one for the choice: a tenth of the training split.
    """

    kind: Literal["auto_decay"] = "auto_decay"
    implementation = "embexp.runs.studies.auto_decay:STUDY"
    values: (
        Annotated[
            tuple[NonNegative, ...],
            Field(min_length=2, max_length=MOST),
            different("the decays must all be different"),
        ]
        | None
    ) = None
    """Values of `optimizer.weight_decay_factor`; null: 1/9, 1/3, 1, 3 and 9 times it. Where it is 0: 0, 0.1, 0.3, 1
    and 3, multiplied by the learning rate."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """No decay to choose, and nothing to choose it by."""
        return where_known(self._nothing_decays(spec, scope), self._nothing_judges(spec, scope))

    def _nothing_decays(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        if not spec.scope_of("optimizer").tables or all(spec.frozen(name) for name in spec.tables):
            rule = "it chooses the weight decay of the top-level optimizer, which updates no table"
            yield Fault(
                scope.path, self.kind, rule, "remove tables.NAME.optimizer of a table that trains, or study=none"
            )

    def _nothing_judges(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        if known_or(
            False, lambda: not getattr(spec.data, "validates", True) and not isinstance(spec.data, DividedData)
        ):
            rule = "the validation split chooses the decay, and there is none"
            yield Fault(scope.path, self.kind, rule, "give the data one, or set study=none")

    def runs(self, spec: RunSpec) -> dict[str, dict[str, Any]]:
        """Changed settings of the runs that try a decay, by name."""
        factor = spec.optimizer.weight_decay_factor
        by_rate = spec.optimizer.multiply_weight_decay_factor_by_learning_rate or not factor
        values = self.values or (tuple(factor * each for each in _TIMES) if factor else _FROM_NOTHING)
        data = spec.data
        if isinstance(data, DividedData) and not data.validates:
            data = data.model_copy(update={"split": data.split.model_copy(update={"validation": _HELD_OUT})})
        return {
            name: {
                "data": data,
                "optimizer": spec.optimizer.model_copy(
                    update={
                        "weight_decay_factor": value,
                        "multiply_weight_decay_factor_by_learning_rate": by_rate,
                    }
                ),
            }
            for name, value in zip(DECAYS, values, strict=False)
        }


def refitted(spec: RunSpec, best: RunSpec, summary: Mapping[str, Any], planned: int) -> dict[str, Any] | None:
    """Changed settings of the final run: all of the training data, for as many epochs as the best run needed.

    Args:
        spec: of the study.
        best: of the best run.
        summary: of the best run.
        planned: steps of the best run, had it not stopped early, by which schedules go.

    Returns:
        None if what validates comes with the data and can't be trained: the best run is the final one.
    """
    data = best.data
    if not isinstance(data, DividedData):
        return None
    update: dict[str, Any] = {"split": data.split.model_copy(update={"validation": 0.0})}
    if "validation" in (parts := data.given):
        files = GivenFiles(train=(*parts["train"], *parts["validation"]), test=parts.get("test"))
        update["path"] = files if "test" in parts else files.train
    examples = summary["examples"]
    longer = (examples["train"] + examples["validation"]) / examples["train"]
    steps = max(1, round(longer * (summary["best_step"] or summary["steps"])))
    stopping = spec.train.early_stopping.model_copy(update={"patience": None})
    return {
        "data": data.model_copy(update=update),
        "optimizer": _spanning(best.optimizer, round(longer * planned)),
        "dense_optimizer": _spanning(best.dense_optimizer, round(longer * planned)),
        "train": spec.train.model_copy(update={"steps": steps, "epochs": None, "early_stopping": stopping}),
        "checkpoint": spec.checkpoint.model_copy(update={"keep_best": False}),
    }


def _spanning(optimizer: Any, steps: int) -> Any:
    """An optimizer whose schedule spans so many steps, if it spans the training."""
    schedule = optimizer.schedule
    if not isinstance(schedule, CosineSchedule) or schedule.decay_steps is not None:
        return optimizer
    changed = schedule.model_copy(update={"decay_steps": max(1, steps - schedule.warmup_steps)})
    return optimizer.model_copy(update={"schedule": changed})
