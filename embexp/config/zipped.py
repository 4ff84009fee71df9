"""Lists that a sweep takes together: `zip(model,optimizer)=[mlp,sgd],[dlrm,adam]` is two values of two keys, not four.

Hydra's grammar has no such key. So it is read here as a key of its own, whose values, a list for each job, are in that
grammar; and the overrides of each job are written out before anything is composed.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Override, OverrideType, QuotedString, Transformer, ValueType

from embexp.config.loader import ZIP, Loader
from embexp.config.messages import as_override, format_value
from embexp.errors import Fault

_WHOLE = re.compile(r"zip\(([^()]*)\)")
_KEY = re.compile(r"\+{0,2}[^\W\d][\w./@:-]*", re.ASCII)
_LISTED = 3
"""Wrong values that are listed."""


@dataclass
class Zipped(Override):
    """The override of several keys; its values are lists, with one value for each."""

    def sweep_string_iterator(self) -> Iterator[str]:
        """The lists as an override has them."""
        return map(as_override, self.sweep_iterator(transformer=Transformer.identity))


def keys_of(key: str) -> tuple[str, ...]:
    """The keys that a key such as `zip(model,optimizer)` is for, with the + before them; none of another key."""
    found = _WHOLE.fullmatch(key)
    return tuple(each.strip() for each in found[1].split(",")) if found else ()


def parsed(loader: Loader, prefix: str, key: str, value: str) -> Zipped | Fault:
    """Reads such an override.

    Args:
        prefix: the signs before its key.

    Raises:
        OverrideParseException: its value is not in Hydra's grammar.
    """
    keys, text = keys_of(key), f"{key}={value}"
    if (fault := _fault_of_keys(prefix, key, keys, value)) is not None:
        return fault
    override = loader.parse(f"zip={value}")
    lists, shuffle = _lists(override.value())
    letters = string.ascii_uppercase[: len(keys)]
    example = ",".join(as_override([f"{letter}{job}" for letter in letters]) for job in (1, 2))
    if lists is None:
        rule = f"it needs one list per job, with a value for each of its {len(keys)} keys"
        return Fault(key, format_value(value), rule, f"write '{key}={example}'")
    if wrong := [each for each in lists if len(each) != len(keys)]:
        listed = "; ".join(f"{as_override(each)} has {len(each)}" for each in wrong[:_LISTED])
        more = f"; and {len(wrong) - _LISTED} more" if len(wrong) > _LISTED else ""
        rule = f"each list must have one value for each of the {len(keys)} keys, but {listed}{more}"
        return Fault(key, format_value(value), rule, f"write '{key}={example}'")
    sweep = ChoiceSweep(list=lists, simple_form=not shuffle, shuffle=shuffle)
    return Zipped(OverrideType.CHANGE, key, ValueType.CHOICE_SWEEP, sweep, input_line=text)


def _fault_of_keys(prefix: str, key: str, keys: Sequence[str], value: str) -> Fault | None:
    shown = format_value(value)
    if prefix:
        inside = f"zip({','.join(f'{prefix}{each}' for each in keys)})"
        return Fault(key, shown, "the + must stand before the keys inside the parentheses", f"write '{inside}={value}'")
    if not keys or not all(map(_KEY.fullmatch, keys)):
        wrong = [each for each in keys if not _KEY.fullmatch(each)]
        rule = "it must name keys in parentheses, separated by commas"
        rule += f", and {wrong[0]!r} is not a key" if wrong else ""
        return Fault(key, shown, rule, "write 'zip(KEY,OTHER)=[A,B],[C,D]'")
    if hydra := [each for each in keys if each.startswith(("hydra.", "hydra/"))]:
        return Fault(key, shown, f"{hydra[0]} is a Hydra setting, which is the same in all jobs", "give it separately")
    if len(keys) == 1:
        return Fault(key, shown, "it is meant for several keys at once", f"write {keys[0]}=A,B")
    twice = [each for each, count in Counter(each.lstrip("+") for each in keys).items() if count > 1]
    return Fault(key, shown, f"it names {twice[0]} more than once", "name each key once") if twice else None


def _lists(value: Any) -> tuple[list[Any] | None, bool]:
    """The lists of a parsed value, None if it holds others, and whether they are shuffled.

    A list of lists, as YAML has it, is the same as several lists.
    """
    if isinstance(value, ChoiceSweep) and not value.tags:
        items, shuffle = [_unquoted(each) for each in value.list], value.shuffle
    elif isinstance(value, list):
        items, shuffle = value if value and all(isinstance(each, list) for each in value) else [value], False
    else:
        return None, False
    lists = [each for each in items if isinstance(each, list)]
    return (lists, shuffle) if lists and len(lists) == len(items) else (None, False)


def _unquoted(value: Any) -> Any:
    """A parsed value with plain texts."""
    match value:
        case list():
            return [_unquoted(each) for each in value]
        case dict():
            return {_unquoted(key): _unquoted(each) for key, each in value.items()}
        case QuotedString():
            return value.text
        case _:
            return value


def written_out(loader: Loader, texts: Iterable[str]) -> list[str]:
    """Overrides of a job with one for each key: `zip(model,optimizer)=[mlp,sgd]` as `model=mlp` and `optimizer=sgd`."""
    found = []
    for text in texts:
        if not text.startswith(ZIP):
            found.append(text)
            continue
        key, _, value = text.partition("=")
        values: Any = loader.parse(f"zip={value}").value()
        found += [f"{each}={as_override(own)}" for each, own in zip(keys_of(key), values, strict=True)]
    return found


def faults(overrides: Iterable[Override]) -> Iterator[Fault]:
    """The faults of keys that are in such an override and elsewhere, too: only one of the values could count."""
    given: dict[str, list[Override]] = {}
    for override in overrides:
        key = override.get_key_element()
        for each in keys_of(key) or (key,):
            given.setdefault(each.lstrip("+~"), []).append(override)
    for key, several in given.items():
        if len(several) > 1 and any(isinstance(each, Zipped) for each in several):
            listed = " and ".join(str(each.input_line) for each in several)
            yield Fault(key, listed, "it is given twice", "give it in one of them")


def with_keys(override: Zipped, added: Mapping[str, str]) -> str:
    """The text of an override with other keys in it, as with a + before one that is to be added."""
    keys = [added.get(each, each) for each in keys_of(override.key_or_group)]
    return f"{ZIP}{','.join(keys)})={str(override.input_line).partition('=')[2]}"


def for_hydra(override: Override) -> str:
    """An override with as many values, in Hydra's grammar: its basic sweeper only counts the jobs."""
    if not isinstance(override, Zipped):
        return str(override.input_line)
    key = re.sub(r"\W+", "_", override.key_or_group)
    return f"{key}={','.join(override.sweep_string_iterator())}"
