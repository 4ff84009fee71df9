"""The lines of metrics.jsonl: read, and compared between two runs, where times do not count."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embexp.errors import DataError
from embexp.records.differences import Difference, Kind, between

_EVENTS = ("log", "evaluation", "drift")
_LONGEST = 120
"""Characters of what a library says about a damaged line."""
_Key = tuple[int, int, str, int]
"""Step, place of the event, split, and how many lines before had the same."""


@dataclass(frozen=True)
class MetricsCompared:
    """The lines of two runs, compared.

    Attributes:
        lines: that both have.
        different: of these, the lines with another value.
        first: the values that differ in the first such line.
        only_a: lines that B lacks.
        only_b: lines that A lacks.
        first_only: the first line that only one of the two has.
        moved: the first line of both that does not stand where the other run has it.
    """

    lines: int
    different: int
    first: tuple[Difference, ...]
    only_a: int = 0
    only_b: int = 0
    first_only: Difference | None = None
    moved: Difference | None = None

    @property
    def same(self) -> bool:
        """Whether both have the same lines, in the same order."""
        return not (self.different or self.only_a or self.only_b or self.moved)

    def differences(self) -> list[Difference]:
        """The first line that differs, that only one of the two has, and that was moved, the earliest one first."""
        found = [*self.first, *(each for each in (self.first_only, self.moved) if each is not None)]
        return sorted(found, key=lambda each: each.step or 0)


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a metrics.jsonl, each checked for what readers of its event rely on.

    Raises:
        DataError: a line is damaged; names it.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield _parsed(line)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
                what = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:_LONGEST]
                raise DataError(f"{path}:{number}: this line of metrics is damaged: {what}") from None


def _parsed(line: bytes) -> dict[str, Any]:
    """A line of metrics; raises any of several errors if it is none."""
    content = json.loads(line)
    if not isinstance(content, dict):
        raise ValueError(f"it is not a mapping, but a {type(content).__name__}")
    step, event = content["step"], content["event"]
    if type(step) is not int or step < 0:
        raise ValueError(f"its step is {step!r:.40}, not a whole number")
    match event:
        case "log":
            float(content["loss"])
        case "evaluation":
            if not isinstance(content["split"], str):
                raise ValueError("its split is not a name")
            for value in content["metrics"].values():
                float(value)
        case "drift":
            for each in content["drift"].values():
                dict(each)
    return content


def compare(a: Iterable[Mapping[str, Any]], b: Iterable[Mapping[str, Any]]) -> MetricsCompared:
    """Compares the lines of two runs by step, event and split, and their order.

    Args:
        a: the lines of a run, parsed.
        b: those of another one.
    """
    of_a, of_b = _by_key(a), _by_key(b)
    common = sorted(of_a.keys() & of_b.keys())
    first: tuple[Difference, ...] = ()
    different = 0
    for key in common:
        found = between(Kind.METRICS, of_a[key], of_b[key], without=("event", "step", "split"))
        different += bool(found)
        if found and not first:
            first = tuple(_named(key, each) for each in found)
    only_a, only_b = sorted(of_a.keys() - of_b.keys()), sorted(of_b.keys() - of_a.keys())
    orders = [[key for key in keys if key in other] for keys, other in ((of_a, of_b), (of_b, of_a))]
    moved = next((_moved(key) for key, other in zip(*orders, strict=True) if key != other), None)
    first_only = _first_only(only_a, only_b)
    return MetricsCompared(len(common), different, first, len(only_a), len(only_b), first_only, moved)


def _by_key(lines: Iterable[Mapping[str, Any]]) -> dict[_Key, dict[str, Any]]:
    """Lines without times, by their keys, in their order."""
    found: dict[_Key, dict[str, Any]] = {}
    seen: Counter[tuple[int, int, str]] = Counter()
    for line in lines:
        event = str(line["event"])
        place = _EVENTS.index(event) if event in _EVENTS else len(_EVENTS)
        key = (int(line["step"]), place, str(line.get("split", "") or ("" if event in _EVENTS else event)))
        found[*key, seen[key]] = {name: value for name, value in line.items() if name != "timing"}
        seen[key] += 1
    return found


def _named(key: _Key, found: Difference) -> Difference:
    """With the step, and a name such as `validation auc`."""
    step, _, split, _ = key
    name = found.name.removeprefix("metrics.")
    return Difference(Kind.METRICS, f"{split} {name}".strip(), found.a, found.b, step)


def _first_only(only_a: list[_Key], only_b: list[_Key]) -> Difference | None:
    keys = sorted([*only_a[:1], *only_b[:1]])
    if not keys:
        return None
    *_, earlier = keys[0]
    line = f"a line {earlier + 1} times" if earlier else "a line"
    in_a, in_b = (line, None) if keys[0] in only_a else (None, line)
    if earlier:
        in_a, in_b = in_a or "fewer", in_b or "fewer"
    return Difference(Kind.METRICS, _line(keys[0]), in_a, in_b, keys[0][0])


def _moved(key: _Key) -> Difference:
    return Difference(Kind.METRICS, _line(key), step=key[0], note="its line stands in another place")


def _line(key: _Key) -> str:
    """A line for people, such as `evaluation validation`."""
    _, place, split, _ = key
    return f"{_EVENTS[place] if place < len(_EVENTS) else 'line'} {split}".strip()
