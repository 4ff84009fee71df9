"""The groups and choices of the configs, for people. Needs no Hydra."""

from __future__ import annotations

from embexp.config import folders
from embexp.config.folders import Folders

_WITHIN = {
    "table": "table@tables.NAME",
    "feature": "feature@features.NAME",
    "initializer": "initializer@tables.NAME.initializer",
    "schedule": "schedule@optimizer.schedule",
}
"""Groups that have their place within others."""


def listing(found: Folders) -> str:
    """Every group with its choices, each with what its file says of itself."""
    lines = []
    for group, choices in found.choices().items():
        lines.append(f"  {_WITHIN.get(group, group)}=")
        width = max(map(len, choices))
        lines += [f"      {choice:{width}}  {folders.about(path)}" for choice, path in choices.items()]
    return "\n".join(lines)
