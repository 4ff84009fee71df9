"""The list of steps: how it is written, which steps follow each other, and how long rows are at its end.

The steps of a transform: settings, and the length of the rows that each makes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from embexp.specs.base import BY_KIND, Choice, Count, Dim, Positive


class Fit(StrEnum):
    """The rows that means, deviations and components are taken from."""

    FILE = "file"
    """All rows of the file."""
    USED = "used"
    """Those that the table takes, each once."""


class Needs(StrEnum):
    """What a step has to know of the rows that it gets."""

    NOTHING = "nothing"
    MOMENTS = "moments"
    """Mean and variance of each column."""
    COVARIANCE = "covariance"
    """Mean, and covariance of all columns."""


class Step(Choice):
    """Base class; implementations, in `vectors/transforms.py`, take a `Fitting` and return an `Operation`."""

    kind: str
    short: ClassVar[str] = ""
    """The setting that `{kind: value}` sets."""
    affine: ClassVar[bool] = True
    """Whether mean and covariance of its rows follow from those of the rows that it gets."""
    drawn: ClassVar[bool] = False
    """Whether it may draw random numbers."""

    needs: ClassVar[Needs] = Needs.NOTHING
    """What it has to know of the rows that it gets, to be fitted."""

    def required(self) -> Needs:
        """What it needs with these settings."""
        return self.needs

    @property
    def described(self) -> str:
        """Its kind, with the settings that are neither null nor false."""
        settings = self.model_dump(mode="json", exclude={"kind"}, exclude_none=True)
        return " ".join([self.kind, *(f"{key}={value}" for key, value in settings.items() if value is not False)])

    def resulting(self, length: int, table: int | None) -> int:
        """The length of the rows that it makes.

        Args:
            length: of the rows that it gets.
            table: dim of the table; None: what the rows have at the end.

        Raises:
            ValueError: it can't make them; with the rule, to go on behind the length of the rows that it gets.
        """
        return length


class _Sized(Step):
    """A step that makes rows of another length."""

    short = "dim"
    longer: ClassVar[bool] = False
    dim: Dim | None = None
    """Length of the rows that it makes; null: that of the table, and rows of that length stay as they are."""

    def resulting(self, length: int, table: int | None) -> int:
        """`dim`, or that of the table, or as many as before."""
        wanted = self.dim or table or length
        if wanted < length if self.longer else wanted > length:
            whose = "those of the table have" if self.dim is None else "its dim is"
            does = "longer" if self.longer else "shorter"
            raise ValueError(f"{whose} {wanted}, but {self.kind} only makes rows {does}")
        return wanted


class Center(Step):
    """Subtracts the mean row."""

    kind: Literal["center"] = "center"
    implementation = "embexp.vectors.transforms:center"
    needs = Needs.MOMENTS


class Normalize(Step):
    """Divides each row by its Euclidean length; a row of zeros stays."""

    kind: Literal["normalize"] = "normalize"
    implementation = "embexp.vectors.transforms:normalize"
    affine = False


class Scale(Step):
    """Multiplies all numbers by one factor, so that they have a standard deviation."""

    kind: Literal["scale"] = "scale"
    implementation = "embexp.vectors.transforms:scale"
    short = "std"
    needs = Needs.MOMENTS
    std: Positive | None = None
    """Of all numbers together, about their mean; null: that of the table's initializer."""


class PCA(_Sized):
    """Deviations from the mean row, along the directions in which rows vary most."""

    kind: Literal["pca"] = "pca"
    implementation = "embexp.vectors.transforms:pca"
    needs = Needs.COVARIANCE
    exact: bool = False
    """Whether it is fitted and computed in float64 even where float32 would do, as by `project=pca` before 0.2.0."""


class Whitening(StrEnum):
    """The axes of whitened rows."""

    ZCA = "zca"
    """Those of the file: each whitened row is as near to its original as can be (Bell & Sejnowski 1997)."""
    PCA = "pca"
    """The principal components, by falling variance."""


class Whiten(Step):
    """Centres rows, and gives every direction the variance 1, with covariance 0 between directions."""

    kind: Literal["whiten"] = "whiten"
    implementation = "embexp.vectors.transforms:whiten"
    short = "method"
    needs = Needs.COVARIANCE
    method: Whitening = Whitening.ZCA
    """The axes: those of the file, or the principal components."""
    floor: Annotated[float, Field(gt=0, lt=1, strict=True)] = 1e-5
    """Smaller eigenvalues of the covariance count as this fraction of the largest, so that noise is not blown up."""


class SelectBy(StrEnum):
    """Which numbers of a row are selected (LLMInit, arXiv:2503.01814)."""

    VARIANCE = "variance"
    """Those that vary most, in the file's order."""
    UNIFORM = "uniform"
    """At even distances, from the first."""
    RANDOM = "random"
    """Drawn by the run's seed and the table's name."""
    FIRST = "first"


class Select(_Sized):
    """Keeps some numbers of each row."""

    kind: Literal["select"] = "select"
    implementation = "embexp.vectors.transforms:select"
    short = "by"
    drawn = True
    by: SelectBy = SelectBy.VARIANCE
    """Which are kept."""

    def required(self) -> Needs:
        """The variance, if it is selected by that."""
        return Needs.MOMENTS if self.by is SelectBy.VARIANCE else Needs.NOTHING


class RemoveTop(Step):
    """Subtracts the mean row and the directions in which rows vary most (all-but-the-top, Mu & Viswanath 2018)."""

    kind: Literal["remove_top"] = "remove_top"
    implementation = "embexp.vectors.transforms:remove_top"
    short = "count"
    needs = Needs.COVARIANCE
    count: Count | None = None
    """How many directions; null: one for each hundred numbers of a row, at least one, as the authors do."""

    def resulting(self, length: int, table: int | None) -> int:
        """As many as before."""
        if self.count is not None and self.count >= length:
            raise ValueError(f"and remove_top must leave at least one direction, but count is {self.count}")
        return length


class Frequencies(StrEnum):
    """What the frequency of a token is taken from."""

    COUNTS = "counts"
    """The training split. Rows that no token of the table takes have the frequency 0, and so the weight 1."""
    RANKS = "ranks"
    """The order of the file, most frequent first, by Zipf's law: the frequency of row r is as 1 / (r + 1)."""


class FrequencyWeight(Step):
    """Multiplies each row by a / (a + p), where p is the share of its token (SIF, Arora et al. 2017)."""

    kind: Literal["frequency_weight"] = "frequency_weight"
    implementation = "embexp.vectors.transforms:frequency_weight"
    short = "a"
    affine = False
    a: Positive = 1e-3
    """The share of a token that gets the weight 1/2."""
    frequencies: Frequencies = Frequencies.COUNTS
    """What p is taken from."""


class Truncate(_Sized):
    """Keeps the first numbers of each row."""

    kind: Literal["truncate"] = "truncate"
    implementation = "embexp.vectors.transforms:truncate"


class ZeroPad(_Sized):
    """Appends zeros to each row."""

    kind: Literal["zero_pad"] = "zero_pad"
    implementation = "embexp.vectors.transforms:zero_pad"
    longer = True


class RandomPad(_Sized):
    """Appends random numbers to each row, by the run's seed, the table's name and the row of the file."""

    kind: Literal["random_pad"] = "random_pad"
    implementation = "embexp.vectors.transforms:random_pad"
    longer = True
    affine = False
    drawn = True
    std: Positive | None = None
    """Standard deviation of normal numbers; null: they are drawn by the table's initializer."""


AnyStep = Annotated[
    Center | Normalize | Scale | PCA | Whiten | Select | RemoveTop | FrequencyWeight | Truncate | ZeroPad | RandomPad,
    BY_KIND,
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
            raise ValueError(f"{step.kind} appears twice in a row; remove one of them")
    if sum(isinstance(step, FrequencyWeight) for step in steps) > 1:
        raise ValueError("rows can be weighted by frequency only once; remove all but one frequency_weight")
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
    return Misfit(f"the file's rows have {file_dim} numbers{after}, but those of the table have {dim}", length)


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
