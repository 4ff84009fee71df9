"""The list of steps: how it is written, which steps follow each other, and how long rows are at its end."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from embexp.specs.transforms.steps import (
    PCA,
    Center,
    FrequencyWeight,
    Normalize,
    RandomPad,
    RemoveTop,
    Scale,
    Select,
    Step,
    Truncate,
    Whiten,
    ZeroPad,
)

AnyStep = Annotated[
    Center | Normalize | Scale | PCA | Whiten | Select | RemoveTop | FrequencyWeight | Truncate | ZeroPad | RandomPad,
    Field(discriminator="kind"),
]
_STEPS: Mapping[str, type[Step]] = {each.model_fields["kind"].default: each for each in get_args(get_args(AnyStep)[0])}
_OF_PROJECT: Mapping[object, list[dict[str, Any]]] = {
    "none": [],
    "truncate": [{"kind": "truncate"}],
    "zero_pad": [{"kind": "zero_pad"}],
    "pca": [{"kind": "pca", "exact": True}],
}
"""Values of `project`, which was there before 0.2.0, as transforms."""


def _written(value: object) -> object:
    """One step or several, each a name, a name with settings, or with its main setting, as mappings with a `kind`.

    Raises:
        ValueError: a step has several names.
    """
    entries = list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
    return [_written_step(each) for each in entries]


def _written_step(value: object) -> object:
    if isinstance(value, str):
        return {"kind": value}
    if not isinstance(value, Mapping) or "kind" in value:
        return value
    if len(value) != 1:
        raise ValueError("a step is a name, such as center, or one name with its settings, such as {pca: {dim: 64}}")
    [(kind, settings)] = value.items()
    short = _STEPS[kind].short if kind in _STEPS else ""
    if short and isinstance(settings, str | int | float):
        settings = {short: settings}
    if settings is None or kind not in _STEPS:
        return {"kind": kind}
    return {"kind": kind, **(settings if isinstance(settings, Mapping) else {"settings": settings})}


def _sensible(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Validates that no step is repeated where that makes no sense, or says the rule."""
    for before, step in itertools.pairwise(steps):
        if before.kind == step.kind:
            raise ValueError(f"{step.kind} stands twice in a row, and once would do; leave one of them out")
    if sum(isinstance(step, FrequencyWeight) for step in steps) > 1:
        raise ValueError("rows are weighted by frequency once; leave out all but one frequency_weight")
    return steps


Transform = Annotated[
    tuple[AnyStep, ...],
    BeforeValidator(_written, json_schema_input_type=str | tuple[str | dict[str, Any], ...] | None),
    AfterValidator(_sensible),
]


def replaced(setting: Mapping[str, Any]) -> dict[str, Any]:
    """A pretrained setting as written, with its steps written out, and with a transform in the place of `project`.

    What is not understood stays, to be reported where it is validated.
    """
    found = dict(setting)
    if found.get("project") in _OF_PROJECT and not found.get("transform"):
        found["transform"] = _OF_PROJECT[found.pop("project")]
    if "transform" in found:
        try:
            found["transform"] = _written(found["transform"])
        except ValueError:
            return found
    return found


def in_short(steps: Sequence[Mapping[str, Any]]) -> str:
    """Some steps as an override writes them."""
    texts = []
    for step in steps:
        settings = ",".join(f"{key}:{str(value).lower()}" for key, value in step.items() if key != "kind")
        texts.append(f"{{{step['kind']}:{{{settings}}}}}" if settings else step["kind"])
    return f"[{','.join(texts)}]"


def as_project(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """What `project` was before 0.2.0 where it did the same as some dumped steps; None: nothing did."""
    as_written = [{key: value for key, value in step.items() if value is not None} for step in steps]
    return next((str(name) for name, same in _OF_PROJECT.items() if same == as_written), None)


@dataclass(frozen=True)
class Misfit:
    """Why rows of a file can't become rows of a table.

    Attributes:
        rule: as a sentence without a full stop.
        step: the place in the list of the step that can't be done; None: all can, but rows have another length then.
        length: what rows have at the end, or before that step.
    """

    rule: str
    length: int
    step: int | None = None


def misfit(steps: Sequence[Step], file_dim: int, dim: int | None) -> Misfit | None:
    """Why rows of a file can't become rows of a table; None: they can.

    Args:
        steps: from the one to the other.
        dim: of the table; None: what they have at the end.
    """
    length = file_dim
    for place, step in enumerate(steps):
        have = f"the file's rows have {length} numbers" if not place else f"rows have {length} numbers here"
        try:
            length = step.resulting(length, dim)
        except ValueError as rule:
            return Misfit(f"{have}, {rule}", length, place)
    if dim is None or length == dim:
        return None
    after = "" if not steps else f", {length} after transform"
    return Misfit(f"the file's rows have {file_dim} numbers{after}, the table's {dim}", length)


def settled(steps: Sequence[Step], file_dim: int, dim: int | None) -> tuple[tuple[Step, ...], int]:
    """The steps with each length filled in, without those that leave rows as they are; and the length at the end.

    Args:
        steps: that fit, see `misfit`.
    """
    found, length = [], file_dim
    for step in steps:
        before, length = length, step.resulting(length, dim)
        if "dim" not in type(step).model_fields:
            found.append(step)
        elif before != length or (isinstance(step, PCA) and step.dim is not None):
            found.append(step.model_copy(update={"dim": length}))
    return tuple(found), length
