"""The space of a search: what a trial chooses, and under which conditions. No Optuna.

A parameter with conditions is chosen only in trials in which all of them hold. One key may have several spaces, such as
a learning rate for each optimizer: they are parameters with the same key, and never in one trial.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException

from embexp.config.messages import did_you_mean, format_value
from embexp.errors import ConfigError, Fault

_DIGITS = 12
"""Digits of a number from a range of floats; the rest is rounding."""
PARAMS = "hydra.sweeper.params"
WHEN, SPACE = "when", "space"
"""Keys of a parameter with conditions."""


@dataclass(frozen=True)
class Condition:
    """What another key must be.

    Attributes:
        texts: its values with which the condition holds.
    """

    key: str
    texts: tuple[str, ...]

    def holds(self, settings: Mapping[str, str]) -> bool:
        """Whether it holds in a trial with some settings."""
        return settings.get(self.key) in self.texts

    def __str__(self) -> str:
        return f"{self.key}={' or '.join(self.texts)}"


@dataclass(frozen=True)
class Choices:
    """Values without an order between them.

    Attributes:
        texts: the values, as an override has them.
        when: the conditions under which a trial has it.
        alone: whether no other parameter has the same key.
    """

    key: str
    texts: tuple[str, ...]
    when: tuple[Condition, ...] = ()
    alone: bool = True

    def text(self, value: object) -> str:
        """The override's text of a value."""
        return str(value)

    def admitted(self, text: str) -> str | None:
        """The text that this parameter has for an override's; None: it can't be that."""
        if text in self.texts:
            return text
        number = _number(text)
        return None if number is None else next((each for each in self.texts if _number(each) == number), None)

    @property
    def count(self) -> float:
        """The number of its values."""
        return len(self.texts)

    @property
    def values(self) -> tuple[str, ...]:
        """All values."""
        return self.texts

    @property
    def described(self) -> str:
        """The parameter in words, without its conditions."""
        return f"{self.key}: {', '.join(self.texts)}"

    @property
    def probes(self) -> tuple[str, ...]:
        """Values to check before the search begins: all."""
        return self.texts


@dataclass(frozen=True)
class Numbers:
    """Numbers from `low` to `high`, both included.

    Attributes:
        whole: whether they are whole numbers.
        log: whether their logarithms are drawn.
        step: between neighbours; None: none, any number is a value.
        when: the conditions under which a trial has it.
        alone: whether no other parameter has the same key.
    """

    key: str
    low: float
    high: float
    whole: bool
    log: bool = False
    step: float | None = None
    when: tuple[Condition, ...] = ()
    alone: bool = True

    def text(self, value: float) -> str:
        """The override's text of a value."""
        return text_of(value, whole=self.whole, stepped=self.step is not None)

    def admitted(self, text: str) -> str | None:
        """The text that this parameter has for an override's; None: it can't be that."""
        number = _number(text)
        if number is None or not self.low <= number <= self.high:
            return None
        if self.step is not None:
            places = (Decimal(repr(number)) - Decimal(repr(float(self.low)))) / Decimal(repr(float(self.step)))
            if abs(places - round(places)) > Decimal("1e-9"):
                return None
        return self.text(number)

    @property
    def count(self) -> float:
        """The number of its values; infinity for an interval."""
        return math.inf if self.step is None else round((self.high - self.low) / self.step) + 1

    @property
    def values(self) -> tuple[str, ...]:
        """All values of a range; none of an interval, which has too many."""
        if self.step is None:
            return ()
        return tuple(self.text(self.low + place * self.step) for place in range(int(self.count)))

    @property
    def described(self) -> str:
        """The parameter in words, without its conditions."""
        kind = "whole numbers " if self.whole else ""
        step = f" in steps of {self.step:g}" if self.step not in (None, 1) else ""
        return f"{self.key}: {kind}{self.low:g} to {self.high:g}{step}{', logarithmic' if self.log else ''}"

    @property
    def probes(self) -> tuple[str, ...]:
        """Values to check before the search begins: the ends."""
        return (self.text(self.low), self.text(self.high))


Parameter = Choices | Numbers


def text_of(value: float, *, whole: bool, stepped: bool) -> str:
    """The override's text of a number."""
    if whole:
        return str(int(value))
    return repr(float(f"{value:.{_DIGITS}g}") if stepped else float(value))


def named(parameter: Parameter) -> str:
    """The name of a parameter, which no other has."""
    return parameter.key if parameter.alone else f"{parameter.key} if {_in_words(parameter.when)}"


def key_of_name(name: str) -> str:
    """The key of a parameter, from its name."""
    return name.partition(" if ")[0]


def contains(wide: Parameter, narrow: Parameter) -> bool:
    """Whether a parameter has every value of another one, under every condition under which that is chosen."""
    by_key = {condition.key: condition for condition in narrow.when}
    if not all(each.key in by_key and {*by_key[each.key].texts} <= {*each.texts} for each in wide.when):
        return False
    if isinstance(narrow, Numbers) and narrow.step is None:
        inside = isinstance(wide, Numbers) and wide.step is None
        return inside and wide.low <= narrow.low and narrow.high <= wide.high  # type: ignore[union-attr]
    if isinstance(narrow, Numbers) and isinstance(wide, Numbers) and wide.step == narrow.step:
        return None not in (wide.admitted(narrow.text(narrow.low)), wide.admitted(narrow.text(narrow.high)))
    return all(wide.admitted(text) is not None for text in narrow.values)


@dataclass(frozen=True)
class Space:
    """A search space.

    Attributes:
        parameters: each after those on which its conditions hang.
        fixed: overrides that are the same in every trial.
        notes: what can't be chosen with these overrides, each a sentence.
    """

    parameters: tuple[Parameter, ...]
    fixed: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_conditional(self) -> bool:
        """Whether a parameter has conditions."""
        return any(parameter.when for parameter in self.parameters)

    def overrides(self, settings: Mapping[str, str]) -> list[str]:
        """The overrides of a trial.

        Args:
            settings: text by key of what the trial chooses.
        """
        return [*self.fixed, *(f"{each.key}={settings[each.key]}" for each in self.active(settings))]

    def active(self, settings: Mapping[str, str]) -> Iterator[Parameter]:
        """The parameters that a trial with some settings chooses."""
        return (each for each in self.parameters if all(condition.holds(settings) for condition in each.when))

    def fitted(self, settings: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str] | None:
        """The settings of this space for a trial of another one; None: this space has no such trial.

        Args:
            others: by key, values that the trial has without having chosen them.
        """
        found: dict[str, str] = {}
        for parameter in self.parameters:
            if all(condition.holds(found) for condition in parameter.when):
                text = settings.get(parameter.key, others.get(parameter.key))
                admitted = None if text is None else parameter.admitted(text)
                if admitted is None:
                    return None
                found[parameter.key] = admitted
        return found

    def count(self, most: int) -> float:
        """The number of different trials; infinity if there are more than `most`."""
        found = sum(1 for _ in itertools.islice(self.combinations(), most + 1)) if self._is_finite else math.inf
        return found if found <= most else math.inf

    @property
    def _is_finite(self) -> bool:
        return len([*_countable(self.parameters)]) == len(self.parameters)

    def combinations(self, place: int = 0, above: Mapping[str, str] | None = None) -> Iterator[dict[str, str]]:
        """The settings of every trial of a space without intervals."""
        settings = dict(above or {})
        for number, parameter in enumerate(self.parameters[place:], place):
            if all(condition.holds(settings) for condition in parameter.when):
                for text in parameter.values:
                    yield from self.combinations(number + 1, settings | {parameter.key: text})
                return
        yield settings

    def probes(self) -> list[list[str]]:
        """Overrides of a few trials that have every choice and both ends of every interval, in every branch."""
        found = [self._completed({})]
        for parameter in self.parameters:
            reached = next(iter(_reaching(parameter, self.parameters, {})))
            found += [self._completed(reached | {parameter.key: text}) for text in parameter.probes]
        distinct = {tuple(sorted(each.items())): each for each in found}
        return [self.overrides(each) for each in distinct.values()]

    def _completed(self, chosen: Mapping[str, str]) -> dict[str, str]:
        """The settings of a trial with some choices; of all others, the first."""
        settings: dict[str, str] = {}
        for parameter in self.parameters:
            if all(condition.holds(settings) for condition in parameter.when):
                settings[parameter.key] = chosen.get(parameter.key, parameter.probes[0])
        return settings

    def tree(self) -> list[str]:
        """The parameters, a line each; those with conditions below what these hang on."""
        return self._branches([each for each in self.parameters if not each.when], "", first="")

    def _branches(self, parameters: Sequence[Parameter], indent: str, *, first: str | None = None) -> list[str]:
        lines = []
        for place, parameter in enumerate(parameters):
            is_last = place == len(parameters) - 1
            sign, below = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            if first is not None:
                sign = below = first
            lines.append(f"{indent}{sign}{parameter.described}")
            lines += self._conditions(parameter, f"{indent}{below}")
        return lines

    def _conditions(self, above: Parameter, indent: str) -> list[str]:
        """The lines below a parameter: by condition, the parameters that hang on it."""
        groups: dict[tuple[Condition, ...], list[Parameter]] = {}
        order = [each.key for each in self.parameters]
        for each in self.parameters:
            keys = [condition.key for condition in each.when]
            is_below = keys and max(keys, key=order.index) == above.key
            if is_below and next(iter(_reaching(each, self.parameters, {}, above)), None) is not None:
                groups.setdefault(each.when, []).append(each)
        lines = []
        for place, (when, members) in enumerate(groups.items()):
            sign, below = ("└─ ", "   ") if place == len(groups) - 1 else ("├─ ", "│  ")
            lines.append(f"{indent}{sign}{_in_words(when)}")
            lines += self._branches(members, f"{indent}{below}")
        return lines


def _in_words(when: Iterable[Condition]) -> str:
    return ", ".join(map(str, when))


def _reaching(
    parameter: Parameter, parameters: Sequence[Parameter], chosen: Mapping[str, str], by: Parameter | None = None
) -> Iterator[dict[str, str]]:
    """The smallest settings, with others that are chosen already, in which a trial has a parameter.

    Args:
        by: of the parameters with one key, the one that must give the condition its value; None: any.
    """
    yield from _holding(parameter.when, parameters, dict(chosen), by)


def _holding(
    conditions: Sequence[Condition], parameters: Sequence[Parameter], chosen: dict[str, str], by: Parameter | None
) -> Iterator[dict[str, str]]:
    if not conditions:
        yield chosen
        return
    first, *others = conditions
    parents = [each for each in _countable(parameters) if each.key == first.key]
    for parent in parents if by is None or by.key != first.key else [each for each in parents if each is by]:
        for text in filter(None, map(parent.admitted, first.texts)):
            if chosen.get(first.key, text) == text:
                for reached in _reaching(parent, parameters, chosen | {first.key: text}):
                    yield from _holding(others, parameters, reached, by)


def _countable(parameters: Iterable[Parameter]) -> Iterator[Parameter]:
    """The parameters on which conditions can hang: all but intervals."""
    return (each for each in parameters if math.isfinite(each.count))


@dataclass(frozen=True)
class Entry:
    """A parameter of `hydra.sweeper.params` that is a mapping.

    Attributes:
        path: where it is in the config.
        space: its values, in Hydra's grammar.
        when: by key, the values with which it is chosen.
    """

    key: str
    path: str
    space: str
    when: Mapping[str, tuple[str, ...]]

    @property
    def line(self) -> str:
        """The space as an override."""
        return f"{self.key}={self.space}"


def entries(params: Mapping[str, Any]) -> tuple[list[str], list[Entry]]:
    """What `hydra.sweeper.params` says: overrides, and parameters that are mappings.

    Raises:
        ConfigError: a mapping is not one of `when` and `space`; with all faults.
    """
    lines, found, faults = list[str](), list[Entry](), list[Fault]()
    for key, value in _flat(params):
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(each, Mapping) for each in several):
            lines.append(f"{key}={value}")
            continue
        for number, each in enumerate(several):
            path = f"{PARAMS}.{key}" + (f".{number}" if isinstance(value, list) else "")
            wrong = list(_entry_faults(path, each))
            faults += wrong
            if not wrong:
                when = {name: _texts(values) for name, values in (each.get(WHEN) or {}).items()}
                found.append(Entry(key, path, _text(each[SPACE]), when))
    if faults:
        raise ConfigError(faults)
    return lines, found


def _flat(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The parameters by dotted key: a mapping without a space of its own has the keys of others."""
    for name, value in params.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and not {WHEN, SPACE} & {*value}:
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _entry_faults(path: str, entry: Mapping[str, Any]) -> Iterator[Fault]:
    form = "write {when: {optimizer: sgd}, space: 'interval(0, 0.99)'}"
    for name in [each for each in entry if each not in (WHEN, SPACE)]:
        near = did_you_mean(str(name), (WHEN, SPACE))
        yield Fault(f"{path}.{name}", format_value(entry[name]), "it must have the keys when and space", near or form)
    value = entry.get(SPACE)
    if value is None or isinstance(value, list | Mapping) or value == "":
        rule = "its values must be a text in Hydra's grammar, such as choice(1,2) or interval(0,1)"
        yield Fault(f"{path}.{SPACE}", "nothing" if value is None else format_value(value), rule, form)
    when = entry.get(WHEN, {})
    if not isinstance(when, Mapping):
        rule = "conditions must be a mapping of keys to values; all of them must hold"
        yield Fault(f"{path}.{WHEN}", format_value(when), rule, form)
        return
    for key, values in when.items():
        if isinstance(values, Mapping) or values in ([], None) or not all(map(_is_plain, _listed(values))):
            rule = "a condition must be a value, or a list of accepted values"
            yield Fault(f"{path}.{WHEN}.{key}", format_value(values), rule, form)


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_text, _listed(values))))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else format_value(value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def space(
    tasks: Sequence[Override], params: Sequence[Override] = (), conditional: Sequence[tuple[Entry, Override]] = ()
) -> Space:
    """The search space of parsed overrides; of two with one key, the later counts.

    Args:
        tasks: of the command line, which takes precedence.
        params: of `hydra.sweeper.params`.
        conditional: the entries there that are mappings, with their spaces.

    Raises:
        ConfigError: an override that no search can draw from, a condition that can't be, or nothing to search; with all
            faults.
    """
    drawn: dict[str, Parameter] = {}
    lines: dict[str, str] = {}
    faults: list[Fault] = list(_twins(params, conditional))
    declared: dict[str, list[Parameter]] = {}
    for place, override in enumerate([*params, *tasks]):
        key = override.get_key_element()
        drawn.pop(key, None)
        lines.pop(key, None)
        found = _parameter(key, override) if override.is_sweep_override() else _single(key, override)
        if isinstance(found, Fault):
            faults.append(found)
            continue
        if place < len(params):
            declared[key] = [found]
        drawn[key] = found
        if not override.is_sweep_override():
            lines[key] = str(override.input_line)
        elif found.count == 1:
            lines[key] = f"{key}={found.probes[0]}"
    given = {_bare(override.get_key_element()) for override in tasks}
    branches: list[tuple[Entry, Parameter]] = []
    for entry, override in conditional:
        found = _parameter(entry.key, override) if override.is_sweep_override() else _single(entry.key, override)
        if isinstance(found, Fault):
            faults.append(replace(found, path=f"{entry.path}.{SPACE}"))
        else:
            declared.setdefault(entry.key, []).append(found)
            branches.append((entry, found))
    faults += _condition_faults(branches, {key: [each] for key, each in drawn.items()} | declared)
    if not (len(lines) < len(drawn) or branches or faults):
        rule = "a search needs parameters to choose"
        remedy = "give values to choose from, such as 'optimizer.learning_rate=tag(log, interval(0.01, 1))'"
        faults.append(Fault("hydra.sweeper", "optuna", rule, remedy))
    if faults:
        raise ConfigError(faults)
    left = [(entry, found) for entry, found in branches if _bare(entry.key) not in given]
    chosen, notes = _conditioned(drawn, left)
    parameters = _ordered([each for each in chosen if each.when or each.key not in lines])
    if faults := list(_clashes(parameters)):
        raise ConfigError(faults)
    return Space(parameters, tuple(lines.values()), tuple(notes))


def _bare(key: str) -> str:
    return key.lstrip("+~")


def _twins(params: Sequence[Override], conditional: Sequence[tuple[Entry, Override]]) -> Iterator[Fault]:
    """The faults of keys that `params` has several times: in two spellings, or as a mapping and as a text."""
    plain = [override.get_key_element() for override in params]
    known: dict[str, list[str]] = {}
    for key in [*plain, *dict.fromkeys(entry.key for entry, _ in conditional)]:
        known.setdefault(_bare(key), []).append(key)
    for key, spellings in known.items():
        if len(spellings) > 1:
            rule = "it is given twice"
            yield Fault(f"{PARAMS}.{key}", " and ".join(spellings), rule, "give it once; use a list for several spaces")


def _condition_faults(
    branches: Sequence[tuple[Entry, Parameter]], declared: Mapping[str, Sequence[Parameter]]
) -> Iterator[Fault]:
    """The faults of conditions on keys that have no such value, or that hang on themselves."""
    names = {_bare(key): key for key in declared}
    for entry, _ in branches:
        for key, texts in entry.when.items():
            path, known = f"{entry.path}.{WHEN}.{key}", declared.get(names.get(_bare(key), ""), ())
            parents = list(_countable(known))
            if not known:
                rule = "a condition must name another key of the search, which this is not"
                remedy = did_you_mean(key, names) or f"add it to the search; its keys: {', '.join(names)}"
                yield Fault(path, ", ".join(texts), rule, remedy)
            elif not parents:
                rule = f"{key} is an interval, but a condition needs choices or a range"
                yield Fault(path, ", ".join(texts), rule, f"give {key} a list of values, or a range")
            else:
                values = list(dict.fromkeys(value for parent in parents for value in parent.values))
                for text in texts:
                    if all(parent.admitted(text) is None for parent in parents):
                        rule, near = f"{key} has the values {', '.join(values)}", did_you_mean(text, values)
                        yield Fault(path, text, rule, near or f"name one of them, or add {text} to {key}")
    yield from _circles(branches, names)


def _circles(branches: Sequence[tuple[Entry, Parameter]], names: Mapping[str, str]) -> Iterator[Fault]:
    above: dict[str, list[str]] = {}
    for entry, _ in branches:
        above.setdefault(entry.key, []).extend(names.get(_bare(key), key) for key in entry.when)
    told: set[str] = set()
    for start in above:
        paths = [[start]]
        while paths and start not in told:
            path = paths.pop()
            for key in dict.fromkeys(above.get(path[-1], ())):
                if key == start:
                    told |= {*path}
                    rule = "its conditions depend on the parameter itself"
                    remedy = "remove one of them"
                    yield Fault(f"{PARAMS}.{start}.{WHEN}", " → ".join([*path, start]), rule, remedy)
                    break
                if key not in path:
                    paths.append([*path, key])


def _conditioned(
    drawn: Mapping[str, Parameter], branches: Sequence[tuple[Entry, Parameter]]
) -> tuple[list[Parameter], list[str]]:
    """All parameters with their conditions, and a line for each that can't be chosen with the overrides."""
    found = {key: [parameter] for key, parameter in drawn.items()}
    names = {_bare(key): key for key in [*drawn, *(entry.key for entry, _ in branches)]}
    notes, left = [], list(branches)
    while left:
        waiting = {entry.key for entry, _ in left}
        entry, parameter = next(
            each for each in left if not waiting & {names.get(_bare(key), key) for key in each[0].when}
        )
        left.remove((entry, parameter))
        when = []
        for name, texts in entry.when.items():
            parents = list(_countable(found.get(key := names.get(_bare(name), name), [])))
            values = dict.fromkeys(
                text for parent in parents for text in map(parent.admitted, texts) if text is not None
            )
            if not values:
                words = ", ".join(f"{each}={' or '.join(some)}" for each, some in entry.when.items())
                notes.append(f"not searched: {entry.key}, which applies only to {words}")
                break
            if any(parent.when or not {*parent.values} <= {*values} for parent in parents):
                when.append(Condition(key, tuple(values)))
        else:
            found.setdefault(entry.key, []).append(replace(parameter, when=tuple(when)))
    several = {key for key, each in found.items() if len(each) > 1}
    return [replace(each, alone=key not in several) for key, of_key in found.items() for each in of_key], notes


def _ordered(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """The parameters, each after those that its conditions name, and otherwise in their order."""
    found, left = list[Parameter](), list(parameters)
    while left:
        waiting = {each.key for each in left}
        first = next(each for each in left if not waiting & {condition.key for condition in each.when})
        left.remove(first)
        found.append(first)
    return tuple(found)


def _clashes(parameters: Sequence[Parameter]) -> Iterator[Fault]:
    """The faults of parameters that no trial has, and of keys of which a trial would have two."""
    for parameter in parameters:
        if next(iter(_reaching(parameter, parameters, {})), None) is None:
            rule = "no trial can have it because its conditions exclude each other"
            yield Fault(
                f"{PARAMS}.{parameter.key}.{WHEN}",
                _in_words(parameter.when),
                rule,
                "use values that can occur together",
            )
    for one, other in itertools.combinations(parameters, 2):
        if one.key == other.key:
            both = (each for first in _reaching(one, parameters, {}) for each in _reaching(other, parameters, first))
            if (settings := next(both, None)) is not None:
                words = " ".join(f"{key}={text}" for key, text in settings.items())
                rule = f"two of its spaces apply to the same trial{f', as with {words}' if words else ''}"
                value = " and ".join(each.described.partition(": ")[2] for each in (one, other))
                yield Fault(f"{PARAMS}.{one.key}", value, rule, "make their conditions exclude each other")


def _single(key: str, override: Override) -> Choices:
    return Choices(key, (str(override.input_line).partition("=")[2],))


def _parameter(key: str, override: Override) -> Parameter | Fault:
    value = override.value()
    text = str(override.input_line).partition("=")[2]
    tags = sorted(value.tags) if isinstance(value, ChoiceSweep | RangeSweep | IntervalSweep) else []
    if tags not in ([], ["log"]):
        return Fault(key, text, f"a search knows only the tag log, but this has {', '.join(tags)}")
    if isinstance(value, IntervalSweep) and value.start is not None and value.end is not None:
        return _interval(key, text, value.start, value.end, log=bool(tags))
    if tags:
        return Fault(
            key, text, "the tag log works only for an interval", f"write '{key}=tag(log, interval(LOW, HIGH))'"
        )
    if isinstance(value, ChoiceSweep | RangeSweep):
        value.shuffle = False  # a search draws in an order of its own, and its choices keep theirs when it is resumed
    if isinstance(value, RangeSweep):
        return _range(key, text, value)
    try:
        texts = tuple(dict.fromkeys(override.sweep_string_iterator()))
    except HydraException as error:
        return Fault(key, text, f"it can't be read: {str(error).splitlines()[0]}")
    return Choices(key, texts) if texts else Fault(key, text, "it has no values")


def _interval(key: str, text: str, low: float, high: float, *, log: bool) -> Parameter | Fault:
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        return Fault(key, text, "an interval must go from a number to a larger one")
    if log and low <= 0:
        return Fault(key, text, "a logarithmic interval must begin above 0")
    whole = isinstance(low, int) and isinstance(high, int)
    if low == high:
        return Choices(key, (str(low),))
    return Numbers(key, low, high, whole, log, 1 if whole else None)


def _range(key: str, text: str, value: RangeSweep) -> Parameter | Fault:
    count = steps(value)
    if not count or value.start is None:
        return Fault(key, text, "this range is empty", "write range(FIRST, END), where END is not included")
    if count == 1:
        return Choices(key, (str(value.start),))
    whole = isinstance(value.range(), range)
    ends = value.start, value.start + (count - 1) * value.step
    low, high = sorted(float(f"{end:.{_DIGITS}g}") for end in ends)
    return Numbers(key, low, high, whole, step=abs(value.step))


def steps(value: RangeSweep) -> int:
    """The number of values of a range, which is not made; 0 for one without an end, or without steps."""
    limits = (value.start, value.stop, value.step)
    if not value.step or not all(each is not None and math.isfinite(each) for each in limits):
        return 0
    start, stop, step = (Decimal(each) for each in limits if each is not None)
    return max(0, math.ceil((stop - start) / step))
