"""Entries of `tables` and `features`, and names of numeric columns, that stand for many: each becomes the long form.

A pattern's entry is what each of its names gets; an entry with a name of its own is merged over it. Of two patterns
that stand for the same name, the later one is merged over the earlier one. Needs no Hydra.
"""

from __future__ import annotations

import copy
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from embexp.errors import ConfigError, Fault

PLACES = ("tables", "features")
"""Mappings whose keys may be patterns."""
DENSE = "dense_features"
"""The list, or mapping, of numeric columns in `data`."""
_NAME = "{name}"
_MISSING = (None, "???")

Columns = Callable[[], Sequence[str]]
"""The names of the data's columns; raises ConfigError if they can't be read."""
MOST = 10_000
"""Most names that one pattern stands for."""
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?")
_GLOB = re.compile(r"[*?]")
_SHOWN = 6


@dataclass
class Expansion:
    """What became of the patterns of a config.

    Attributes:
        origins: patterns by the config path of what they stand for: `tables.C5` -> `tables.C{1..26}`; the last one
            of several.
        faults: of patterns that stand for nothing, and of data whose columns can't be read.
        unknown: config paths of what is not known because of these.
    """

    origins: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def made(self, path: str) -> bool:
        """Whether a config path is inside of what a pattern stands for, which no file mentions."""
        return any(path.startswith(f"{name}.") for name in self.origins)


def has_globs(container: Mapping[str, Any]) -> bool:
    """Whether a pattern of a config depends on the columns of the data."""
    keys = [key for place in PLACES for key in _mapping(container.get(place))]
    keys += list(_mapping(container.get("data")).get(DENSE) or ())
    return any(is_pattern(key) and _is_glob(key) for key in keys)


def expand(container: dict[str, Any], columns: Columns) -> Expansion:
    """Replaces all patterns of a config by what they stand for, in place.

    Those that stand for nothing are removed, with a fault. A feature without a table gets the one of its own name.

    Args:
        container: plain dicts, lists and scalars; interpolations may be unresolved.
        columns: called at most once, and only for globs.
    """
    done, read = Expansion(), functools.cache(columns)

    def others(*keys: str) -> Columns:
        """The columns but those that these keys of `data` name."""

        def found() -> list[str]:
            data = _mapping(container.get("data"))
            values = [data.get(key) or () for key in keys]
            taken = {name for value in values for name in ([value] if isinstance(value, str) else value)}
            return [each for each in read() if each not in taken]

        return found

    data = _mapping(container.get("data"))
    if isinstance(dense := data.get(DENSE), list | dict) and any(map(is_pattern, dense)):
        container["data"] = {**data, DENSE: _dense(dense, others("label", "timestamp"), done)}
    for place in PLACES:
        entries = container.get(place)
        if isinstance(entries, dict) and any(map(is_pattern, entries)):
            container[place] = _entries(entries, place, others("label", "timestamp", DENSE), done)
    for name in _mapping(container.get("features")):
        if _lacks_table(container, name):
            container["features"][name] = {**_mapping(container["features"][name]), "table": name}
    return done


def _dense(entries: Any, columns: Columns, done: Expansion) -> Any:
    """Numeric columns: names in a list, or keys of a mapping with their settings."""
    place = f"data.{DENSE}"
    if isinstance(entries, dict):
        # A transform alone is short for a mapping with it, over which others can be merged.
        whole = {
            name: {"transform": entry} if isinstance(entry, str | list) else entry for name, entry in entries.items()
        }
        return _entries(whole, place, columns, done)
    found: dict[Any, None] = {}
    for each in entries:
        found |= dict.fromkeys(_names(each, place, columns, done) if is_pattern(each) else [each])
    return list(found)


def _names(pattern: str, place: str, columns: Columns, done: Expansion) -> list[str]:
    """What a pattern stands for; nothing, and a fault, if that can't be found out."""
    path = f"{place}.{pattern}"
    try:
        return names(pattern, columns() if _is_glob(pattern) else ())
    except BadPatternError as error:
        done.faults.append(Fault(path, "a pattern", str(error), "correct it, or write out the names"))
    except ConfigError as error:
        done.faults += [fault for fault in error.faults if fault not in done.faults]
    done.unknown.append(place)
    return []


def _entries(entries: Mapping[str, Any], place: str, columns: Columns, done: Expansion) -> dict[str, Any]:
    """The entries of names. Those of a pattern are where the pattern is, also if they have an entry of their own."""
    found: dict[str, Any] = {}
    names_of: dict[str, list[str]] = {}
    for key in filter(is_pattern, entries):
        own = [name for name in entries if not is_pattern(name) and matches(key, name)]
        names_of[key] = list(dict.fromkeys([*_names(key, place, columns, done), *own]))
        for name in names_of[key]:
            merged = _named(entries[key], name)
            found[name] = _over(found[name], merged) if name in found else merged
            done.origins[f"{place}.{name}"] = f"{place}.{key}"
    expanded: dict[str, Any] = {}
    for key, value in entries.items():
        if key in names_of:
            for name in names_of[key]:
                expanded.setdefault(
                    name, found[name] if entries.get(name) is None else _over(found[name], entries[name])
                )
        elif key not in found:
            expanded[key] = value
    return expanded


def _named(value: Any, name: str) -> Any:
    """A copy of a pattern's entry, with the name in its texts."""
    if isinstance(value, dict):
        return {key: _named(each, name) for key, each in value.items()}
    if isinstance(value, list):
        return [_named(each, name) for each in value]
    return value.replace(_NAME, name) if isinstance(value, str) else value


def _over(base: Any, above: Any) -> Any:
    """One entry merged over another; a choice of another kind replaces the whole choice."""
    if not isinstance(base, dict) or not isinstance(above, dict):
        return copy.deepcopy(above)
    if "kind" in base and above.get("kind", base["kind"]) != base["kind"]:
        return copy.deepcopy(above)
    merged = dict(base)
    for key, value in above.items():
        if key in merged and value == "???":
            continue
        merged[key] = _over(merged[key], value) if key in merged else copy.deepcopy(value)
    return merged


def _lacks_table(container: Mapping[str, Any], name: str) -> bool:
    """Whether a feature names no table."""
    feature = _mapping(container.get("features")).get(name)
    lacks = isinstance(feature, dict | None) and _mapping(feature).get("table") in _MISSING
    return lacks and name in _mapping(container.get("tables"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def folded(faults: Sequence[Fault], origins: Mapping[str, str]) -> list[Fault]:
    """The faults, with one for those that all names of a pattern have, at the pattern's path."""
    sizes = Counter(origins.values())
    groups: dict[tuple[object, ...], list[Fault]] = {}
    generals: dict[tuple[object, ...], Fault] = {}
    for fault in faults:
        place, general = _general(fault, origins)
        same = (place, general.path, general.value, general.code, general.fix)
        groups.setdefault(same, []).append(fault)
        generals.setdefault(same, general)
    found = []
    for key, several in groups.items():
        if key[0] in sizes and len(several) == sizes[str(key[0])] > 1:
            found.append(generals[key])
        else:
            found.extend(several)
    return found


def _general(fault: Fault, origins: Mapping[str, str]) -> tuple[str | None, Fault]:
    """The pattern of a fault's path, and the fault with the pattern for the name; each fault of its own has itself."""
    owner = next((origin for origin in origins if fault.path == origin or fault.path.startswith(f"{origin}.")), None)
    if owner is None:
        return None, fault
    name, pattern = owner.rpartition(".")[2], origins[owner]
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    value, rule, remedy = (word.sub(_NAME, text) for text in (fault.value, fault.rule, fault.remedy))
    fix = tuple(word.sub(_NAME, line) for line in fault.fix)
    path = f"{pattern}{fault.path.removeprefix(owner)}"
    return pattern, replace(fault, path=path, value=value, rule=rule, remedy=remedy, fix=fix)


class BadPatternError(Exception):
    """A pattern that stands for nothing: the message is the rule that it violates."""


def is_pattern(name: object) -> bool:
    """Whether a name has braces, or a character of globs: `*` for any text, `?` for any character."""
    return isinstance(name, str) and re.search(r"[{}*?]", name) is not None


def _is_glob(name: str) -> bool:
    """Whether what a pattern stands for depends on the columns of the data."""
    return _GLOB.search(name) is not None


@functools.cache
def expanded(pattern: str) -> tuple[str, ...]:
    """The names, or globs, that a pattern with braces stands for, in the order of a shell, each once.

    Raises:
        BadPatternError: its braces hold neither a list nor a range, or it stands for more than `MOST` names.
    """
    found = dict.fromkeys(_limited(_expanded(pattern)))
    if odd := next((each for each in found if "{" in each or "}" in each), None):
        raise BadPatternError(f"{odd!r} has an unmatched brace")
    return tuple(found)


def names(pattern: str, columns: Iterable[str]) -> list[str]:
    """The names that a pattern stands for: those of its braces, and the columns that its globs match.

    Raises:
        BadPatternError: it is none, or a glob of it matches no column.
    """
    found: dict[str, None] = {}
    for each in expanded(pattern):
        if not _is_glob(each):
            found[each] = None
            continue
        matched = [column for column in columns if _matches(each, column)]
        if not matched:
            raise BadPatternError(f"no column of the data matches {each}: {_first(list(columns))}")
        found |= dict.fromkeys(matched)
    return list(found)


def matches(pattern: str, name: str) -> bool:
    """Whether a name is one that a pattern may stand for."""
    try:
        return any(_matches(each, name) if _is_glob(each) else name == each for each in expanded(pattern))
    except BadPatternError:
        return False


def _matches(glob: str, name: str) -> bool:
    return fnmatchcase(name, glob.replace("[", "[[]"))  # a bracket is one: columns have names such as price[eur]


def _expanded(pattern: str) -> Iterator[str]:
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    for alternative in _alternatives(braces[1]):
        yield from _expanded(f"{pattern[: braces.start()]}{alternative}{pattern[braces.end() :]}")


def _alternatives(text: str) -> Iterable[str]:
    """What the text between two braces stands for."""
    if "," in text:
        return [part.strip() for part in text.split(",")]
    found = _RANGE.fullmatch(text)
    if found is None or found[1].isalpha() != found[2].isalpha() or found[3] in ("0", "-0"):
        rule = f"braces must hold a list such as {{a,b}} or a range such as {{1..26}}, but these hold {text!r}"
        raise BadPatternError(rule)
    return _range(found[1], found[2], abs(int(found[3] or 1)))


def _range(first: str, last: str, step: int) -> Iterator[str]:
    letters = first.isalpha()
    start, stop = (ord(first), ord(last)) if letters else (int(first), int(last))
    padded = max(map(len, (first, last))) if any(re.match(r"-?0\d", each) for each in (first, last)) else 0
    for number in range(start, stop + (1 if stop >= start else -1), step if stop >= start else -step):
        yield chr(number) if letters else f"{number:0{padded}d}"


def _limited(found: Iterator[str]) -> Iterator[str]:
    for count, each in enumerate(found):
        if count == MOST:
            raise BadPatternError(f"a pattern may expand to at most {MOST:,} names")
        yield each


def _first(columns: Sequence[str]) -> str:
    """The columns, of many the first ones."""
    more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    return f"it has {', '.join(columns[:_SHOWN])}{more}" if columns else "it has no columns except the label"
