"""The base class of every part of a `RunSpec`, its scope, the bounds of its numbers, and how rules read partial specs.

The bounds are far beyond what any machine can do, and below what would overflow a number or take for ever: `10 ** 12`
rows are a mistake in the config, and are reported as one. Whether this machine can do what is asked is another
question, which `footprint` answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, Union, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from embexp.errors import Fault
from embexp.specs import fields
from embexp.specs.fields import imported

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec

ANY = 2**53
"""Of whole numbers without a bound of their own: those that JSON, and every program that reads it, keeps exact."""
ROWS = 2**31 - 1
"""Rows are int32 in TensorFlow's lookups and in encoded data."""
EXAMPLES = 10**12
DIM = 10**6
LENGTH = 10**6
"""Ids of an example."""
BATCH = 2**31 - 1
SEED = 2**63 - 1
THREADS = 4096
DEVICES = 4096
JOBS = 10_000
"""Repetitions, or processes at once."""

RowCount = Annotated[int, Field(ge=1, le=ROWS, strict=True)]
ExampleCount = Annotated[int, Field(ge=1, le=EXAMPLES, strict=True)]
Dim = Annotated[int, Field(ge=1, le=DIM, strict=True)]
"""Length of a vector, width of a layer."""
Length = Annotated[int, Field(ge=0, le=LENGTH, strict=True)]
BatchSize = Annotated[int, Field(ge=1, le=BATCH, strict=True)]
Seed = Annotated[int, Field(ge=0, le=SEED, strict=True)]
Threads = Annotated[int, Field(ge=0, le=THREADS, strict=True)]
DeviceCount = Annotated[int, Field(ge=1, le=DEVICES, strict=True)]
BlockRows = Annotated[int, Field(ge=1, le=1 << 20, strict=True)]
Restarts = Annotated[int, Field(ge=0, le=1_000, strict=True)]
JobCount = Annotated[int, Field(ge=1, le=JOBS, strict=True)]
_Value = TypeVar("_Value")
_NAMED = 3
"""Names before the rest are counted."""


FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
"""Pattern of the dotted path of a function."""


def is_null(value: object) -> bool:
    """For fields that records lack where they are null, as those of before they existed do."""
    return value is None


class UnknownPartError(Exception):
    """A rule read a field that a partial spec lacks. Ends the rule, see `where_known`."""


def where_known(*rules: Iterable[_Value] | Callable[[], Iterable[_Value]]) -> Iterator[_Value]:
    """Yields what rules find; each ends when it reads an unknown part.

    Args:
        *rules: generators, or what returns one. A rule about several tables uses `for_each`, so that an unknown part
            of one table does not hide faults of the others.
    """
    for rule in rules:
        with suppress(UnknownPartError):
            yield from rule() if callable(rule) else rule


def for_each(names: Callable[[], Iterable[str]], rule: Callable[[str], Iterable[_Value]]) -> Iterator[_Value]:
    """Applies a rule to each table or feature; each application ends when it reads an unknown part."""
    for name in names():
        yield from where_known(partial(rule, name))


def known_or(default: _Value, value: Callable[[], _Value]) -> _Value:
    """Calls `value`; returns `default` if it reads an unknown part."""
    try:
        return value()
    except UnknownPartError:
        return default


def is_complete(value: Any) -> bool:
    """Whether a part and its inner parts have all their fields."""
    fields = getattr(type(value), "model_fields", None)
    if fields is not None:
        return all(name in value.__dict__ and is_complete(value.__dict__[name]) for name in fields)
    if isinstance(value, Mapping):
        return all(map(is_complete, value.values()))
    return all(map(is_complete, value)) if isinstance(value, tuple) else True


@dataclass(frozen=True)
class Scope:
    """The config path of a part of a run, and its tables.

    Attributes:
        path: config path, such as `train` or `tables.item.init`; empty for the run itself.
        tables: tables that are known to use this choice: the table of its own choice, or those that inherit a top-level
            choice. Empty for parts that are not choices of tables.
        open: whether more tables may inherit it, as faults hide whether they have their own choice.
    """

    path: str
    tables: tuple[str, ...] = ()
    open: bool = False

    @property
    def own(self) -> bool:
        """Whether it is a table's own choice."""
        return self.path.startswith("tables.")

    def all_tables(self) -> tuple[str, ...]:
        """The tables that use this choice, for rules about all of them.

        Raises:
            UnknownPartError: more tables may use it.
        """
        if self.open:
            raise UnknownPartError(self.path)
        return self.tables

    def sibling(self, choice: str) -> str:
        """Config path of another choice of the same table, or of the top level."""
        return ".".join([*self.path.split(".")[:-1], choice])

    def choosing(self, choice: str, option: str) -> str:
        """The override that makes another choice here: `init=assign`, or `init@tables.item.init=assign`."""
        path = self.sibling(choice)
        return f"{choice}={option}" if path == choice else f"{choice}@{path}={option}"


class Spec(BaseModel):
    """An immutable part of a spec. It has only declared keys, and has rules that compare it with other parts.

    pydantic builds the validator of `RunSpec` once, including those of all its parts. A part gets its own validator
    only if it is validated alone. Defaults are therefore made by `model_construct`, which needs no validator.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        defer_build=True,
    )

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Faults of this part in combination with the rest of the run; pydantic checks the part alone.

        Args:
            spec: the run. It may be partial: reading an unknown part raises `UnknownPartError`, which ends the rule.
                Rules that read different parts are therefore separate generators: see `where_known`.
        """
        return iter(())

    if not TYPE_CHECKING:  # mypy would accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Raises `UnknownPartError` for fields that a partial spec lacks."""
            if name in type(self).model_fields:
                raise UnknownPartError(name)
            return super().__getattr__(name)


class Choice(Spec):
    """An option of a group, found by its `kind`: its settings, its rules, and the name of what implements it."""

    if TYPE_CHECKING:
        kind: str

    implementation: ClassVar[str]
    """`module:function`; see `implementation`."""


def implementation(choice: Choice) -> Callable[..., Any]:
    """The function that implements a choice, with the choice as its first argument.

    It is imported here, as descriptions of runs must not import TensorFlow.
    """
    return partial(imported(choice.implementation), choice)


class ByKind:
    """Marks a union of choices that have a `kind` each: only the validators of those that are chosen are built.

    Errors and schemas are those of pydantic's `Field(discriminator="kind")`, which builds all: a tenth of a second.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """The choices by their kind."""
        choices = {
            model.model_fields["kind"].default: handler.generate_schema(Annotated[Any, _BuiltWhenChosen(model)])
            for model in get_args(source)
        }
        return core_schema.tagged_union_schema(choices, "kind")


@dataclass(frozen=True)
class _BuiltWhenChosen:
    """The values of a model, whose validator the first one builds."""

    model: type[BaseModel]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.model.model_validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        self.model.model_rebuild()
        return handler(core_schema.definitions_schema(self.model.__pydantic_core_schema__, []))


BY_KIND = ByKind()


def union(group: str, *own: type[Choice], strangers: bool = False) -> Any:
    """The choices of a group, by their `kind`: those of the core, and those that fields bring.

    Args:
        group: of `Field`.
        own: those of the core.
        strangers: whether fields that embexp does not ship are among them, whose choices have been checked then.
    """
    known = [origin.field for origin in fields.origins() if strangers or not origin.is_own]
    brought = [fields.find(group, name) for field in known for name in getattr(field, group)]
    return Annotated[Union[(*own, *brought)], BY_KIND]


class NamedCode(Choice):
    """A choice that the user's own function makes."""

    function: Annotated[str, Field(pattern=FUNCTION)]
    """Dotted path `package.module:function`, importable from the working directory or the environment."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Passed on as keyword arguments."""


def broken(rule: str, *keys: str, such_as: str = "") -> PydanticCustomError:
    """The error of a rule about some keys of one mapping.

    Args:
        such_as: what sets one of them, if none is set.
    """
    kind = "unset" if such_as else "between"
    return PydanticCustomError(kind, "{rule}", {"rule": rule, "keys": keys, "such_as": such_as})


def different(rule: str) -> AfterValidator:
    """Validates that no value of a tuple occurs twice, or says the rule."""

    def check(values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        if values is not None and len(set(values)) < len(values):
            raise ValueError(rule)
        return values

    return AfterValidator(check)


Number = Annotated[float, Field(strict=True)]
"""Any finite number."""
Positive = Annotated[float, Field(gt=0, strict=True)]
NonNegative = Annotated[float, Field(ge=0, strict=True)]
Fraction = Annotated[float, Field(ge=0, lt=1, strict=True)]
"""A fraction, [0, 1)."""
Count = Annotated[int, Field(ge=1, le=ANY, strict=True)]
"""A whole number of at least 1; those above have smaller bounds."""
WholeNumber = Annotated[int, Field(ge=0, le=ANY, strict=True)]
"""A whole number of at least 0."""


def named_code(part: object, path: str = "") -> Iterator[tuple[str, NamedCode]]:
    """All choices in a part of a spec, as far as it is known, that the user's own functions make, by config path."""
    if isinstance(part, NamedCode) and part.__dict__.get("function", "") is not None:  # a metric of embexp has none
        yield path, part
    entries: Iterable[tuple[object, object]] = ()
    if isinstance(part, Spec | Mapping):
        entries = (part.__dict__ if isinstance(part, Spec) else part).items()
    elif isinstance(part, tuple):
        entries = enumerate(part)
    for key, inner in entries:
        yield from named_code(inner, f"{path}.{key}".lstrip("."))


def summarize_names(names: Sequence[str], what: str = "") -> str:
    """`a, b, c`; of five or more `a, b, c and 2 more`.

    Args:
        what: is named behind the count, in the plural.
    """
    if len(names) <= _NAMED + 1:
        return ", ".join(names)
    return " ".join(filter(None, (f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED:,} more", what)))


class Note(str):
    """A line about one place of a config, such as `tables.item: WHAT`.

    Attributes:
        start: what comes before the place, such as `no effect: `.
    """

    place: str
    what: str
    start: str

    def __new__(cls, place: str, what: str, start: str = "") -> Note:
        """The line."""
        line = super().__new__(cls, f"{start}{place}: {what}")
        line.place, line.what, line.start = place, what, start
        return line

    def after(self, start: str) -> Note:
        """The same line behind other words."""
        return Note(self.place, self.what, start + self.start)


def after(start: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines behind other words."""
    return (line.after(start) if isinstance(line, Note) else start + line for line in lines)


def merged(lines: Iterable[str]) -> list[str]:
    """Lines without repetitions; notes that say the same of several places become one, where the first stood."""
    found: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        places = found.setdefault((line.start, line.what) if isinstance(line, Note) else (line,), [])
        if isinstance(line, Note) and line.place not in places:
            places.append(line.place)
    return [Note(summarize_names(places), key[1], key[0]) if places else key[0] for key, places in found.items()]
