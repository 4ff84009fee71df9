"""Reads YAML files of configs within bounds: what takes long, or overflows the stack, is an error that names its line.

PyYAML and OmegaConf copy what an alias stands for and recurse into nested values, so a file of a kilobyte may take all
memory. The events of libyaml's parser are counted first, in time linear in the length of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent, ScalarEvent

from embexp.config.messages import format_value
from embexp.errors import Fault

DEEPEST = 32
"""Deepest nesting of values; Hydra and OmegaConf overflow the stack at about a hundred."""
MOST_DIGITS = 100
"""Digits of a number; with more of them, a whole number has no float, and Python may not even print it."""
MOST_VALUES = 10_000
"""Values of a file, with aliases replaced; OmegaConf takes half a second for as many, more than once."""
_LARGEST = 4 << 20
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_NUMBER = re.compile(r"[-+]?(0x[\da-fA-F_]+|0b[01_]+|\d[\d_:.]*([eE][-+]?\d+)?)")
_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "seq", "map"))
"""Tags of plain values; the constructors of others, such as !!timestamp, raise errors of any kind."""


class Refused(yaml.MarkedYAMLError):
    """A file that is YAML, but takes too long, or too much memory, to read."""

    def __init__(self, file: Path, line: int, rule: str, remedy: str) -> None:
        """Stores where and why; lines are counted from 0."""
        super().__init__(problem=rule, problem_mark=yaml.Mark(str(file), 0, line, 0, None, 0))
        self.fault = Fault("", "a file", rule, remedy, f"{file}:{line + 1}")


def load(file: Path) -> Any:
    """The content of a file, as PyYAML's safe loader has it.

    Raises:
        OSError: it can't be read.
        UnicodeDecodeError: it is not UTF-8.
        ValueError: a value of it can't be made, such as a date.
        yaml.YAMLError: it is not valid YAML, or `Refused`.
    """
    return yaml.load(checked(file), Loader=yaml.CSafeLoader)


def checked(file: Path) -> str:
    """The text of a file that can be read in little time and memory.

    Raises:
        Exception: as `load` does.
    """
    if file.stat().st_size > _LARGEST:
        rule = f"a config file has at most {_LARGEST:,} bytes, and this one has {file.stat().st_size:,}"
        raise Refused(file, 0, rule, "put data into files of their own, such as freeze.tokens_file")
    text = file.read_text(encoding="utf-8")
    _check(file, text)
    return text


def _check(file: Path, text: str) -> None:
    """Counts nested values, values and digits."""
    sizes: dict[str, int] = {}  # of what each anchor stands for
    opened: list[tuple[str | None, int]] = []  # anchor of each collection that has not ended, and the count before it
    count = 0
    for event in _events(text):
        line = event.start_mark.line
        if isinstance(event, CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = count - before
        elif isinstance(event, AliasEvent):
            if any(anchor == event.anchor for anchor, _ in opened):
                raise Refused(file, line, "one of its values leads back to itself", "remove the alias")
            count += sizes.get(str(event.anchor), 1)
        elif isinstance(event, NodeEvent):
            if (found := _of_node(event)) is not None:
                raise Refused(file, line, *found)
            count += 1
            if isinstance(event, CollectionStartEvent):
                opened.append((event.anchor, count - 1))
            elif event.anchor is not None:
                sizes[event.anchor] = 1
        if len(opened) > DEEPEST:
            limit = f"values can be nested at most {DEEPEST} levels deep"
            raise Refused(file, line, limit, "write it with fewer brackets, or less indented")
        if count > MOST_VALUES:
            limit = f"a config file has at most {MOST_VALUES:,} values, with aliases replaced by what they stand for"
            raise Refused(file, line, limit, "remove aliases, or put data into files of their own")


def _of_node(event: Any) -> tuple[str, str] | None:
    """The rule that a single value violates, and the remedy."""
    if event.tag is not None and event.tag not in _TAGS:
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        return f"it has the tag {tag}", "a config holds plain values: remove the tag"
    if not isinstance(event, ScalarEvent):
        return None
    if event.tag == "tag:yaml.org,2002:bool" and event.value.lower() not in yaml.SafeLoader.bool_values:
        return f"{format_value(event.value)} is neither true nor false", "remove the tag"
    may_be_number = len(event.value) > MOST_DIGITS and (event.implicit[0] or event.tag in _NUMBERS)
    if may_be_number and _NUMBER.fullmatch(event.value):
        digits = sum(map(str.isalnum, event.value.removeprefix("0x")))
        return f"a number has at most {MOST_DIGITS} digits, and this one has {digits:,}", "quote it if it is a text"
    return None


def _events(text: str) -> Iterator[Any]:
    """The events of libyaml's parser. What it finds wrong is left to the loaders, whose messages are known."""
    parser = yaml.CSafeLoader(text)
    try:
        while parser.check_event():
            yield parser.get_event()
    except yaml.YAMLError:
        return
    finally:
        parser.dispose()
