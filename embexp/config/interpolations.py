"""How much the interpolations of a config stand for, counted before they are resolved.

Each of `b: ${a}${a}`, `c: ${b}${b}`, … doubles the last one, so thirty short lines stand for a text of a gigabyte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from embexp.config.shown import shown
from embexp.errors import ConfigError, Fault

MOST = 10_000
"""Values that an interpolation may stand for, with all that these refer to."""
_REFERENCE = re.compile(r"\$\{(\.*)([^${}:]*)\}")


def check(config: DictConfig) -> None:
    """Checks the number of values that each interpolation stands for.

    Raises:
        ConfigError: it is too large; with a fault for the first such value.
    """
    content: Any = OmegaConf.to_container(config, resolve=False)
    counted: dict[str, int] = {}

    def count(path: str, value: Any) -> int:
        if path in counted:
            return counted[path]
        counted[path] = 1  # of a value that leads back to itself, which resolving reports
        found = 1
        if isinstance(value, Mapping | list):
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            found += sum(count(f"{path}.{key}" if path else str(key), each) for key, each in items)
        elif isinstance(value, str) and "${" in value:
            for dots, key in _REFERENCE.findall(value):
                target = ".".join(filter(None, [*path.split(".")[: -len(dots)], key])) if dots else key
                found += count(target, _at(content, target))
            if found > MOST:
                rule = f"its interpolations stand for more than {MOST:,} values"
                raise ConfigError([Fault(path, shown(value), rule, "refer to fewer values that refer to others")])
        counted[path] = found
        return found

    if isinstance(content, dict):
        for key, value in content.items():
            count(str(key), value)


def _at(node: Any, path: str) -> Any:
    for key in filter(None, path.replace("[", ".").replace("]", "").split(".")):
        if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            node = node.get(key) if isinstance(node, Mapping) else None
    return node
