"""One run of a report, the values that its keys name, and the filters and sort keys of reports.

Filters are written `optimizer=sgd,adam` or `test rmse<0.95`, sort keys `seed:desc`. Nothing is evaluated. A condition
is a key, one of `= == != < <= > >=`, and a value. `=` and `!=` take several values with commas between them, of which
any may match. A value with a comma or a quote stands in quotes, inside which a backslash keeps the next character.
Numbers are compared as numbers: 1e-1 equals 0.1.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any

import yaml

from embexp.errors import CommandLineError
from embexp.records.folder import RunFolder, json_object
from embexp.specs.tasks import Direction

Reader = Callable[["Record"], Any]
"""Reads one value of a run."""

_CONDITION = re.compile(r"\s*(?P<key>[^<>=!]+?)\s*(?P<operator><=|>=|!=|==|=|<|>)\s*(?P<values>.*)", re.DOTALL)
_QUOTED = re.compile(
    r"""\s*(?P<quote>['"])(?P<text>(?:\\.|(?!(?P=quote))[^\\])*)(?P<closing>(?P=quote))?\s*""", re.DOTALL
)
_FIELDS: Mapping[str, Reader] = {
    "job": lambda record: record.number,
    "run": lambda record: record.name,
    "status": lambda record: record.status.value,
    "seconds": lambda record: record.seconds,
    "train_seconds": lambda record: record.train_seconds,
}
VECTORS = "vectors."
"""How keys of the figures of vectors by tests begin."""
_OF_TESTS = {"similarity": "spearman", "analogies": "add", "categories": "purity"}
"""The main figure of each kind of test of vectors."""
_COMPARES: Mapping[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_OPENING, _CLOSING = "[{(", "]})"
_LINE_TIME = re.compile(rb'"step": (\d{1,18}),.*"timing": \{"seconds": (\d{1,18}(?:\.\d+)?(?:e-?\d{1,2})?)')
"""Step and time of a line of metrics.jsonl: of long files, this is much quicker than to parse them."""


class Status(StrEnum):
    """How a run ended, or where it is."""

    COMPLETED = "completed"
    STOPPED_EARLY = "stopped_early"
    RUNNING = "running"
    QUEUED = "queued"
    PLANNED = "planned"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    PRUNED = "pruned"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def has_results(self) -> bool:
        """Whether the training ended normally."""
        return self in (Status.COMPLETED, Status.STOPPED_EARLY)

    @property
    def has_metrics(self) -> bool:
        """Whether there are metrics: those of a pruned training are not of its end."""
        return self.has_results or self is Status.PRUNED

    @property
    def is_under_way(self) -> bool:
        """Whether a job runs, or a scheduler will run it."""
        return self in (Status.RUNNING, Status.QUEUED)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do: the run has ended normally, or is not to run at all."""
        return self.has_results or self in (Status.PRUNED, Status.SKIPPED)


@dataclass(frozen=True)
class Record:
    """A run, or a job of a sweep that has not become one.

    Attributes:
        directory: of the run; None if it was never started.
        name: tells it apart from the other runs of the report.
        number: of the job in its sweep, or None.
        reason: why it failed or was skipped, in one line, or "".
        settings: the spec, by dotted path; lists are values. Empty if the spec can't be read.
        overrides: of the command line, such as `optimizer=adam`.
        metrics: of the run, such as "validation rmse"; NaN where it was not finite.
        metric: the one that chooses the best run: the objective of the search, what early stopping watches, or the
            task's first. "" if unknown.
        direction: which way `metric` gets better, or None.
        summary: the content of summary.json, or empty.
        seconds: from the start of the job to its end, of all its attempts; None: unknown, or it was no job of a sweep.
        same_as: number of the earlier job of the sweep that this one repeats, or None.
        changes: files of the run that were changed or removed since it ended, such as `changed: metrics.jsonl`; of
            checkpoints and events, only the sizes were compared. None: the run has no inventory, so it is not known.
        inert: settings that its sweep asked for, and that have no effect with the choices of this job.
    """

    directory: Path | None
    name: str
    number: int | None
    status: Status
    reason: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    metric: str = ""
    direction: Direction | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    same_as: int | None = None
    changes: str | None = None
    inert: tuple[str, ...] = ()

    @property
    def seed(self) -> int | None:
        """The seed of the run."""
        seed = self.settings.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def validation(self) -> float | None:
        """The validation value of `metric`."""
        return self.metrics.get(f"validation {self.metric}")

    @cached_property
    def overridden(self) -> Mapping[str, str]:
        """Value of each override by key, without + and ~."""
        pairs = (override.lstrip("+~").partition("=") for override in self.overrides)
        return {key: value for key, _, value in pairs}

    @cached_property
    def choices(self) -> Mapping[str, str]:
        """The chosen file of each group, as Hydra recorded it, by the place in the config that it fills."""
        if self.directory is None:
            return {}
        content = read_yaml(self.directory / ".hydra" / "hydra.yaml")
        chosen = at(content, "hydra.runtime.choices") if isinstance(content, dict) else None
        return {_place(key): name for key, name in _texts(chosen) if name}

    @cached_property
    def train_seconds(self) -> float | None:
        """From the start of the training to the last line of metrics.jsonl, with the evaluations on the way.

        Of a run that was resumed, the sum over its processes, of the steps that were kept. None: there are no lines.
        """
        if self.directory is None:
            return None
        try:
            content = RunFolder(self.directory).metrics.read_bytes()
        except OSError:
            return None
        resumed = self.summary.get("resumed_at")
        begins = [step for step in resumed if isinstance(step, int)] if isinstance(resumed, list) else []
        total, last, processes = 0.0, None, 0
        for line in _LINE_TIME.finditer(content):
            step, seconds = int(line[1]), float(line[2])
            before = sum(begin < step for begin in begins)
            if last is not None and (seconds < last or before > processes):
                total += last
            last, processes = seconds, before
        return None if last is None else total + last

    @property
    def data_digest(self) -> str | None:
        """Digest of the data that the run read, as its manifest has it; None: it has none."""
        return self._digests[0]

    @property
    def examples_digest(self) -> str | None:
        """As `data_digest`, without files that are joined to the examples; None: not known."""
        return self._digests[1]

    @cached_property
    def _digests(self) -> tuple[str | None, str | None]:
        manifest = {} if self.directory is None else json_object(RunFolder(self.directory).manifest)
        known = (at(manifest, f"data.{key}") for key in ("digest", "examples_digest"))
        digest, examples = (each if isinstance(each, str) else None for each in known)
        return digest, examples or digest

    @property
    def record(self) -> str | None:
        """Whether the files of the run are those that it wrote: `intact`, or which are not; None: not known."""
        return "intact" if self.changes == "" else self.changes

    def value(self, key: str) -> Any:
        """The value of a setting (`train.steps`) or choice (`optimizer`); None if the run has no such thing."""
        if key in self.settings:
            return self.settings[key]
        if key in self.overridden:
            return _parsed(self.overridden[key])
        place = _place(key)
        kind = self.settings.get(f"{place}.kind")
        # The file names more than the kind that it sets: dlrm_concat is of kind dlrm.
        return kind if kind is None else self.choices.get(place, kind)


def read_yaml(path: Path) -> Any:
    """What Hydra recorded in a file; None if it can't be read."""
    try:
        return yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None


def _place(choice: str) -> str:
    """Where in the config a choice is: `optimizer@tables.item.optimizer` is at `tables.item.optimizer`."""
    group, _, package = choice.partition("@")
    return package or group.replace("/", ".")


def _texts(content: Any) -> Iterator[tuple[str, str]]:
    """The texts of a mapping, by key."""
    for key, value in content.items() if isinstance(content, Mapping) else ():
        if isinstance(key, str) and isinstance(value, str):
            yield key, value


def _parsed(text: str) -> Any:
    """The value of an override: a number, a list, true, false, null, or its text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class Condition:
    """A condition on one value of a run.

    Attributes:
        operator: = != < <= > or >=.
        values: any of these; one for an inequality.
    """

    key: str
    operator: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key}{self.operator}{','.join(map(_quoted, self.values))}"

    def holds(self, value: Any) -> bool:
        """Whether a value satisfies the condition. No number is less or greater than a value that is none."""
        if self.operator in ("=", "!="):
            return any(_equal(value, each) for each in self.values) is (self.operator == "=")
        number = _number(value)
        return number is not None and _COMPARES[self.operator](number, float(self.values[0]))


def condition(text: str) -> Condition:
    """Reads a condition.

    Raises:
        CommandLineError: it is none.
    """
    matched = _CONDITION.fullmatch(text)
    if matched is None:
        raise CommandLineError(
            f"{text!r} is no condition\n    write a key, an operator (= != < <= > >=) and a value: optimizer=adam,"
            " 'test rmse<0.95'"
        )
    key, operator = matched["key"], matched["operator"].replace("==", "=")
    values = _values(matched["values"], text)
    if operator not in ("=", "!=") and (len(values) != 1 or _number(values[0]) is None):
        raise CommandLineError(f"{text!r}: {operator} takes one number, not {matched['values']!r}")
    return Condition(key, operator, values)


def select(records: Sequence[Record], conditions: Sequence[Condition]) -> list[Record]:
    """The runs that satisfy all conditions.

    Raises:
        CommandLineError: no run has a value of a key.
    """
    readers = [reader(records, each.key) for each in conditions]
    return [
        record
        for record in records
        if all(each.holds(read(record)) for each, read in zip(conditions, readers, strict=True))
    ]


def ordered(records: Sequence[Record], key: str) -> list[Record]:
    """The runs sorted by a key, ascending unless it ends in `:desc`. Runs without a value come last.

    Raises:
        CommandLineError: no run has a value of the key.
    """
    name, _, direction = key.rpartition(":") if key.endswith((":desc", ":asc")) else (key, "", "asc")
    read = reader(records, name)
    present = [record for record in records if not _missing(read(record))]
    absent = [record for record in records if _missing(read(record))]
    return [*sorted(present, key=lambda record: _rank(read(record)), reverse=direction == "desc"), *absent]


def reader(records: Sequence[Record], key: str) -> Reader:
    """Reads the value of a key: a field such as `job` or `seconds`, a setting, a metric, or a key of summary.json.

    The last parts of a key are enough if no other key ends in them, such as `learning_rate` or `rmse`.

    Raises:
        CommandLineError: no run has it, or several keys end so.
    """
    if key in _FIELDS:
        return _FIELDS[key]
    names = dict.fromkeys(name for record in records for name in (*record.overridden, *record.settings))
    metrics = dict.fromkeys(name for record in records for name in record.metrics)
    if key in metrics:
        return lambda record: record.metrics.get(key)
    if key in names or any(record.value(key) is not None for record in records):
        return lambda record: record.value(key)
    if any(at(record.summary, key) is not None for record in records):
        return lambda record: at(record.summary, key)
    ends = [name for name in names if name.endswith(f".{key}")] + [name for name in metrics if name.endswith(f" {key}")]
    if len(ends) == 1:
        return reader(records, ends[0])
    if ends:
        raise CommandLineError(f"{key!r} may be {' or '.join(map(repr, ends))}: write one of them")
    near = difflib.get_close_matches(key, [*_FIELDS, *names, *metrics], n=3, cutoff=0.5)
    hint = (
        f"did you mean {' or '.join(map(repr, near))}?"
        if near
        else f"the metrics are {', '.join(metrics) or 'not there'}"
    )
    raise CommandLineError(f"no run has a value of {key!r}\n    {hint}")


def at(content: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, or None."""
    value: Any = content
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def compared_keys(records: Sequence[Record]) -> list[str]:
    """Keys of summaries that are compared: those of any run's `output.compare`, and the main figures of vectors."""
    lists = (record.settings.get("output.compare") for record in records)
    found = dict.fromkeys(key for each in lists if isinstance(each, list) for key in each if isinstance(key, str))
    for record in records:
        for kind, figure in _OF_TESTS.items():
            for table, tests in mapping(at(record.summary, f"{VECTORS}{kind}")).items():
                found |= dict.fromkeys(f"{VECTORS}{kind}.{table}.{test}.{figure}" for test in mapping(tests))
    return list(found)


def mapping(value: Any) -> Mapping[str, Any]:
    """A value that is a mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def finite_number(value: Any) -> float | int | None:
    """A value that is a finite number; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if is_number else None


def text_of(value: Any) -> str:
    """A value as YAML and the command line write it."""
    match value:
        case str():
            return value
        case float() if math.isfinite(value):
            return f"{value:g}" if float(f"{value:g}") == value else repr(value)
        case float():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def _values(text: str, condition: str) -> tuple[str, ...]:
    """The values between commas, without quotes; commas in quotes and brackets separate nothing."""
    values, place = [], 0
    while True:
        if quoted := _QUOTED.match(text, place):
            value, place = re.sub(r"\\(.)", r"\1", quoted["text"], flags=re.DOTALL), quoted.end()
            if not quoted["closing"]:
                raise CommandLineError(f"{condition!r}: the quote {quoted['quote']} is not closed")
            if place < len(text) and text[place] != ",":
                raise CommandLineError(f"{condition!r}: a comma must follow the closing quote, not {text[place]!r}")
        else:
            begin, depth = place, 0
            while place < len(text) and (depth or text[place] != ","):
                depth += (text[place] in _OPENING) - (text[place] in _CLOSING and depth > 0)
                place += 1
            value = text[begin:place].strip()
        values.append(value)
        if place == len(text):
            return tuple(values)
        place += 1


def _quoted(value: str) -> str:
    bare = value == value.strip() and not any(each in value for each in ",'\"\\[]{}()")
    return value if bare else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _equal(value: Any, text: str) -> bool:
    numbers = _number(value), _number(text)
    if None not in numbers:
        return numbers[0] == numbers[1]
    if value is None:
        return text in ("", "null", "None")
    if isinstance(value, list | dict):
        return "".join(text_of(value).split()) == "".join(text.split())
    return text_of(value) == text


def _number(value: Any) -> float | None:
    """A value, or its text, as a number; None if it is none. NaN is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _rank(value: Any) -> tuple[int, float, str]:
    """Numbers before texts, both ascending."""
    number = _number(value)
    return (0, number, "") if number is not None else (1, 0.0, text_of(value))
