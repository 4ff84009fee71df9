"""What differs between the records of two runs: specs, manifests, summaries."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_ABSENT = object()
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Kind(StrEnum):
    """What a difference is of; those up to `VARIABLE` are circumstances, the others are results."""

    SPEC = "spec"
    CODE = "user code"
    DATA = "data"
    PACKAGE = "package"
    TENSORFLOW = "tensorflow"
    THREADS = "threads"
    KERNELS = "kernels"
    MACHINE = "machine"
    REPOSITORY = "repository"
    VARIABLE = "environment variable"
    METRICS = "metrics"
    TABLE = "table"
    WEIGHTS = "weights"
    SUMMARY = "summary"
    CHECKPOINT = "checkpoint"
    FILE = "file"

    @property
    def result(self) -> bool:
        """Whether it is of results, not of circumstances."""
        kinds = list(Kind)
        return kinds.index(self) > kinds.index(Kind.VARIABLE)


@dataclass(frozen=True)
class Difference:
    """Something that differs between two runs, A and B.

    Attributes:
        kind: of what.
        name: such as `numpy` for a package, a dotted key of the spec, or a metric.
        a: its value in A; None: A has none.
        b: its value in B; None: B has none.
        step: after which step; None: it has none.
        note: what else there is to say.
    """

    kind: Kind
    name: str
    a: Any = None
    b: Any = None
    step: int | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "kind": self.kind.value,
            "name": self.name,
            "a": self.a,
            "b": self.b,
            "step": self.step,
            "note": self.note,
        }

    @property
    def label(self) -> str:
        """The name with its kind; of metrics and of the spec, whose names speak for themselves, the name."""
        return self.name if self.kind in (Kind.METRICS, Kind.SPEC) else f"{self.kind.value} {self.name}"

    def text(self, a: str = "A", b: str = "B") -> str:
        """A line for people.

        Args:
            a: what A is called.
            b: what B is called.
        """
        step = "" if self.step is None else f"step {self.step:,}, "
        values = "" if self.a is None and self.b is None else f"{shown(self.a)} in {a}, {shown(self.b)} in {b}"
        rest = "; ".join(filter(None, (values, self.note)))
        return f"{step}{self.label}: {rest}" if rest else f"{step}{self.label}"

    def __str__(self) -> str:
        return self.text()


def shown(value: Any) -> str:
    """A value for people."""
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if _DIGEST.fullmatch(text):
        return text[:12]
    return text if len(text) <= 80 else f"{text[:77]}…"


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested mappings, by dotted key; a list, or an empty mapping, is one value."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def between(kind: Kind, a: Any, b: Any, *, without: Collection[str] = (), prefix: str = "") -> list[Difference]:
    """The leaves of two JSON values that differ, in A's order.

    Args:
        kind: of the differences.
        a: the first value.
        b: the second.
        without: first parts of dotted keys that are not compared.
        prefix: of all names.
    """
    of_a, of_b = dict(leaves(a, prefix)), dict(leaves(b, prefix))
    found = []
    for key in dict.fromkeys([*of_a, *of_b]):
        if key.split(".")[0] in without or _same(of_a.get(key, _ABSENT), of_b.get(key, _ABSENT)):
            continue
        found.append(Difference(kind, key, of_a.get(key), of_b.get(key)))
    return found


def _same(a: Any, b: Any) -> bool:
    """Whether two JSON values are the same, also in the type and the sign of a zero; what is absent counts as null."""
    if a is _ABSENT or b is _ABSENT:
        return (a is _ABSENT or a is None) and (b is _ABSENT or b is None)
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
