"""What differs between the records of two runs: specs, manifests, lines of metrics."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from embexp.records.manifest import DECIDES_NOTHING

_ABSENT = object()
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_QUIET = ("KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_VMODULE", "TF_CPP_MAX_VLOG_LEVEL")
"""Variables that change nothing that is computed."""
_GIB = 1 << 30
_MOST_LINES = 12
"""Changed lines of a source file that are shown."""
_EVENTS = ("log", "evaluation", "drift")
_Key = tuple[int, int, str, int]
"""Step, place of the event, split, and how many lines before had the same."""


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


_SECTIONS = {
    Kind.DATA: ("data", "files"),
    Kind.PACKAGE: ("python", "packages"),
    Kind.TENSORFLOW: ("tensorflow",),
    Kind.THREADS: ("threads",),
    Kind.KERNELS: ("kernels",),
}
"""Keys of a manifest that are compared as they are, by kind."""


@dataclass(frozen=True)
class Difference:
    """Something that differs between two runs, A and B.

    Attributes:
        name: such as `numpy` for a package, a dotted key of the spec, or a metric.
        a: its value in A; None: A has none.
        b: its value in B; None: B has none.
        step: after which step; None: it has none.
    """

    kind: Kind
    name: str
    a: Any = None
    b: Any = None
    step: int | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"kind": self.kind.value}

    @property
    def label(self) -> str:
        """The name with its kind; of metrics and of the spec, whose names speak for themselves, the name."""
        return self.name if self.kind in (Kind.METRICS, Kind.SPEC) else f"{self.kind.value} {self.name}"

    def text(self, a: str = "A", b: str = "B") -> str:
        """A line for people."""
        step = "" if self.step is None else f"step {self.step:,}, "
        values = (
            "" if self.a is None and self.b is None else f"{format_value(self.a)} in {a}, {format_value(self.b)} in {b}"
        )
        rest = "; ".join(filter(None, (values, self.note)))
        return f"{step}{self.label}: {rest}" if rest else f"{step}{self.label}"

    def __str__(self) -> str:
        return self.text()


def format_value(value: Any) -> str:
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
        without: first parts of dotted keys that are not compared.
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


def manifest_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """The circumstances that differ; what only one of the two manifests records is left out."""
    found = (
        between(Kind.SPEC, a.get("spec"), b.get("spec"), without=DECIDES_NOTHING) if "spec" in a and "spec" in b else []
    )
    if "seed" in a and "seed" in b and a["seed"] != b["seed"] and not any(each.name == "seed" for each in found):
        found.append(Difference(Kind.SPEC, "seed", a["seed"], b["seed"]))
    found += _code(a, b)
    for kind, keys in _SECTIONS.items():
        found += _section(kind, a, b, *keys)
    if path := _data_path(a.get("spec")):
        found = [
            replace(each, note=path) if (each.kind, each.name) == (Kind.DATA, "digest") else each for each in found
        ]
    found += _machines(a, b)
    found += _repositories(a, b)
    variables = _section(Kind.VARIABLE, a, b, "environment")
    return found + [variable for variable in variables if variable.name not in _QUIET]


def _data_path(spec: Any) -> str:
    """The path of a recorded spec's data; "" where there is not one."""
    data = spec.get("data") if isinstance(spec, Mapping) else None
    path = data.get("path") if isinstance(data, Mapping) else None
    return path if isinstance(path, str) else ""


def _section(kind: Kind, a: Mapping[str, Any], b: Mapping[str, Any], *keys: str) -> list[Difference]:
    found = []
    for key in keys:
        if key not in a or key not in b:
            continue
        if isinstance(a[key], Mapping) and isinstance(b[key], Mapping):
            # Names such as those of packages have dots of their own.
            for name in dict.fromkeys([*a[key], *b[key]]):
                found += between(kind, a[key].get(name), b[key].get(name), prefix=name)
        else:
            found += between(kind, a[key], b[key], prefix=key)
    return found


def _code(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """The files of the user's own code that differ, by their digests."""
    if "user_code" not in a or "user_code" not in b:
        return []
    files = [(each["user_code"] or {"files": {}})["files"] for each in (a, b)]
    first, second = ({name: str(file["digest"]) for name, file in each.items()} for each in files)
    return [
        Difference(Kind.CODE, name, first.get(name), second.get(name))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    ]


def _machines(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Differences of machine and devices; of the processor's features, those that only one of them has."""
    if "machine" not in a or "machine" not in b:
        return []
    first, second = dict(a["machine"]), dict(b["machine"])
    for each in (first, second):
        if "memory_bytes" in each:  # a kernel keeps some for itself, which changes with its version
            each["memory"] = f"{round(each.pop('memory_bytes') / _GIB)} GiB"
    found = []
    of_a, of_b = (set(each.pop("cpu_features", ())) for each in (first, second))
    if of_a and of_b and of_a != of_b:
        only_a, only_b = (" ".join(sorted(some)) or None for some in (of_a - of_b, of_b - of_a))
        found.append(Difference(Kind.MACHINE, "cpu_features", only_a, only_b))
    return [*between(Kind.MACHINE, first, second), *found, *_section(Kind.MACHINE, a, b, "devices")]


def _repositories(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Commits and uncommitted changes of embexp, and of the repositories of the user that both runs used."""
    if "code" not in a or "code" not in b:
        return []
    found = []
    for name in ("embexp", "working_folder", "model"):
        first, second = (_repository(each["code"], name) for each in (a, b))
        if first is None or second is None or (name != "embexp" and first.get("root") != second.get("root")):
            continue
        if any(each.get("same_as") for each in (a["code"].get(name) or {}, b["code"].get(name) or {})):
            continue  # reported under that name
        label = name.replace("_", " ")
        found += between(Kind.REPOSITORY, first.get("commit"), second.get("commit"), prefix=f"{label}, commit")
        if first.get("diff") != second.get("diff"):
            found.append(Difference(Kind.REPOSITORY, label, note="its uncommitted changes differ"))
    return found


def _repository(code: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found = code.get(name)
    if isinstance(found, Mapping) and "same_as" in found:  # an earlier one, which has the state
        found = code.get(str(found["same_as"]))
    return found if isinstance(found, Mapping) and "same_as" not in found else None


def changed_lines(recorded: Path, current: Path) -> list[str]:
    """The lines of a source file that differ, as a unified diff without its head; empty if one can't be read.

    Args:
        recorded: the file in the folder `code` of a run.
        current: the file that is imported now.
    """
    try:
        before, after = (path.read_text(encoding="utf-8").splitlines() for path in (recorded, current))
    except (OSError, UnicodeDecodeError):
        return []
    lines = list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"… {more} more lines …"] if more > 0 else lines


@dataclass(frozen=True)
class MetricsCompared:
    """The lines of two runs, compared.

    Attributes:
        lines: that both have.
        different: of these, the lines with another value.
        only_a: lines that B lacks.
        only_b: lines that A lacks.
        differences: values of the first line that differs, the first line that only one of the two has, and the first
            of both that does not stand where the other run has it; the earliest one first.
    """

    lines: int
    different: int
    only_a: int
    only_b: int
    differences: tuple[Difference, ...]


def compare_metrics(a: Iterable[Mapping[str, Any]], b: Iterable[Mapping[str, Any]]) -> MetricsCompared:
    """Compares the lines of two runs by step, event and split, and their order."""
    of_a, of_b = _by_key(a), _by_key(b)
    common = sorted(of_a.keys() & of_b.keys())
    compared = {key: between(Kind.METRICS, of_a[key], of_b[key], without=("event", "step", "split")) for key in common}
    different = [key for key, found in compared.items() if found]
    found = [_named(key, each) for key in different[:1] for each in compared[key]]
    only_a, only_b = sorted(of_a.keys() - of_b.keys()), sorted(of_b.keys() - of_a.keys())
    found += _first_only(only_a, only_b)
    orders = [[key for key in keys if key in other] for keys, other in ((of_a, of_b), (of_b, of_a))]
    if (moved := next((key for key, other in zip(*orders, strict=True) if key != other), None)) is not None:
        found.append(Difference(Kind.METRICS, _line(moved), step=moved[0], note="its line is in another place"))
    found.sort(key=lambda each: each.step or 0)
    return MetricsCompared(len(common), len(different), len(only_a), len(only_b), tuple(found))


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


def _first_only(only_a: list[_Key], only_b: list[_Key]) -> Iterator[Difference]:
    """The first line that only one of the two has, if there is one."""
    for key in sorted([*only_a[:1], *only_b[:1]])[:1]:
        earlier = key[-1]
        line, other = (f"a line {earlier + 1} times", "fewer") if earlier else ("a line", None)
        in_a, in_b = (line, other) if key in only_a else (other, line)
        yield Difference(Kind.METRICS, _line(key), in_a, in_b, key[0])


def _line(key: _Key) -> str:
    """A line for people, such as `evaluation validation`."""
    _, place, split, _ = key
    return f"{_EVENTS[place] if place < len(_EVENTS) else 'line'} {split}".strip()
