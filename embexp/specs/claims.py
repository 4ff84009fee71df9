"""`expect`: what a config claims of the results of its run, and whether the results meet it.

A claim is about a metric of a split: `test: {auc: {value: 0.928, within: 0.005, source: …}}`. It changes nothing that
is computed, and is no part of `run_id`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from embexp.errors import Fault
from embexp.specs import tasks
from embexp.specs.base import NonNegative, Number, Spec, broken, is_null
from embexp.specs.studies import NoStudy

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec

SPLITS = ("validation", "test")
"""The splits that have metrics of the final values."""
_NUMBERS = ("value", "within", "at_least", "at_most")
_DECIMALS = 4


class Expected(Spec):
    """What a metric is claimed to be: a value with a tolerance, or bounds."""

    value: Number | None = Field(default=None, exclude_if=is_null)
    """What the metric is claimed to be."""
    within: NonNegative | None = Field(default=None, exclude_if=is_null)
    """How far from `value` the metric may be, in its unit."""
    at_least: Number | None = Field(default=None, exclude_if=is_null)
    """The smallest value that meets the claim, in place of `value` and `within`."""
    at_most: Number | None = Field(default=None, exclude_if=is_null)
    """The largest value that meets the claim."""
    source: Annotated[str, Field(max_length=1_000)] | None = Field(default=None, exclude_if=is_null)
    """Where the claim is from, such as a page, a paper or a commit."""

    @model_validator(mode="after")
    def _is_claim(self) -> Expected:
        bounds = self.at_least is not None or self.at_most is not None
        if (self.value is None) != (self.within is None):
            which = "within" if self.within is None else "value"
            raise broken("value and within must be set together", "value", "within", such_as=f"{which}=…")
        if self.value is not None and bounds:
            raise broken("set either a value with a tolerance or bounds, not both", *_NUMBERS)
        if self.value is None and not bounds:
            raise broken("the claim is empty", *_NUMBERS, such_as="value=… with within=…, or at_least=…, or at_most=…")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise broken("at_least must not be greater than at_most", "at_least", "at_most")
        return self


Claims = Mapping[str, Mapping[str, Expected]]
"""By split and metric."""


def nested(value: object) -> object:
    """Claims by split and metric, from those that are written `test.auc: …`; null, also for one of them, is none."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return value
    found: dict[str, Any] = {}
    for key, each in value.items():
        split, dot, metric = str(key).partition(".")
        of_split = {metric: each} if dot else each
        if isinstance(of_split, Mapping) and isinstance(before := found.get(split, {}), dict):
            found[split] = before | {name: claim for name, claim in of_split.items() if claim is not None}
        elif of_split is not None:
            found[split] = of_split
    return {split: of_split for split, of_split in found.items() if of_split != {}}


def faults(spec: RunSpec) -> Iterator[Fault]:
    """Claims about a split or a metric that the run does not have."""
    if not spec.expect:
        return
    if not isinstance(spec.study, NoStudy):
        rule = f"it checks the metrics of a single run, but study={spec.study.kind} has several runs"
        yield Fault("expect", ", ".join(spec.expect), rule, "set expect=null", fix=("expect=null",))
        return
    without = tuple(name for name, there in (("validation", "validates"), ("test", "tests")) if not _has(spec, there))
    for split, claims in spec.expect.items():
        path = f"expect.{split}"
        if split not in SPLITS:
            near = difflib.get_close_matches(split, SPLITS, n=1)
            rule = f"final metrics exist only for the splits {' and '.join(SPLITS)}"
            remedy = f"did you mean {near[0]!r}?" if near else f"remove it: ~{path}"
            yield Fault(path, repr(split), rule, remedy, fix=() if near else (path,))
        elif split in without:
            rule = f"the data has no {split} split"
            yield Fault(
                path, ", ".join(claims), rule, f"remove it with ~{path}, or let data.split draw one", fix=(path,)
            )
        else:
            yield from _unknown_metrics(spec, path, claims)


def _has(spec: RunSpec, property_of_data: str) -> bool:
    return bool(getattr(spec.data, property_of_data, True))


def _unknown_metrics(spec: RunSpec, path: str, names: Iterable[str]) -> Iterator[Fault]:
    known = tasks.metrics_of(spec.task, spec.task.cutoffs_of(spec), spec.further_metrics)
    for name in names:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"remove it: ~{path}.{name}"
        if name in tasks.keys(spec.task):
            remedy = f"add it: metrics=[{','.join([*spec.metrics, name])}]"
        yield Fault(f"{path}.{name}", repr(name), f"the metrics of this run are {', '.join(known)}", remedy)


class Claim(Expected):
    """A claim about a metric of a run, with what was found; as summary.json has it under `claims`."""

    model_config = ConfigDict(extra="allow")  # a later version may have recorded more

    split: str
    metric: str
    found: Number | None
    """None: it was not measured, or is not finite."""
    met: bool

    @property
    def expected(self) -> str:
        """What is claimed, such as `0.928 ± 0.005` or `at least 0.92`."""
        if self.value is not None:
            return f"{self.value:g} ± {self.within:g}"
        bounds = {"at least": self.at_least, "at most": self.at_most}
        return " and ".join(f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None)

    @property
    def measured(self) -> str:
        """What was found, with a digit more than the claim has."""
        if self.found is None:
            return "not measured"
        given = [each for each in (self.value, self.within, self.at_least, self.at_most) if each is not None]
        return f"{self.found:.{max(_DECIMALS, *(1 + _digits(each) for each in given))}f}"

    def __str__(self) -> str:
        source = f" ({self.source})" if self.source else ""
        met = "met" if self.met else "NOT MET"
        return f"{self.split} {self.metric} {self.measured}, expected {self.expected}: {met}{source}"


def checked(claims: Claims, metrics: Mapping[str, Mapping[str, float | None]]) -> list[Claim]:
    """Each claim with what was found.

    Args:
        metrics: by split and name; of repetitions, the means.
    """
    found = []
    for split, of_split in claims.items():
        for metric, expected in of_split.items():
            number = (metrics.get(split) or {}).get(metric)
            number = number if number is not None and math.isfinite(number) else None
            met = number is not None and is_met(expected, number)
            found.append(Claim(split=split, metric=metric, found=number, met=met, **expected.model_dump()))
    return found


def is_met(expected: Expected, found: float) -> bool:
    """Whether a number meets a claim, compared as decimals: 0.932 is within 0.004 of 0.928."""
    number = _decimal(found)
    if expected.value is not None and expected.within is not None:
        return abs(number - _decimal(expected.value)) <= _decimal(expected.within)
    low, high = expected.at_least, expected.at_most
    return (low is None or number >= _decimal(low)) and (high is None or number <= _decimal(high))


def _decimal(number: float) -> Decimal:
    return Decimal(repr(float(number)))


def _digits(number: float) -> int:
    """How many decimals a number is written with."""
    exponent = _decimal(number).as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0
