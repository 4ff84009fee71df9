"""The memory that this process may still take: of the machine, of its control groups (containers, Slurm), of its shell.

Control groups: https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.max, memory.current, memory.stat) and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Available:
    """Memory that can be taken.

    Attributes:
        bytes: how much.
        limit: what allows no more.
    """

    bytes: int
    limit: str


def available(groups: Path = _GROUPS, own: Path = _OWN) -> Available:
    """The memory that this process can still take; pages of files that can be read again count as free.

    Args:
        groups: where control groups are mounted.
        own: the file that names those of this process.
    """
    import psutil  # which takes longer than all of this

    found = [Available(psutil.virtual_memory().available, "this machine")]
    found += _of_groups(groups, own)
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        found.append(Available(max(0, soft - psutil.Process().memory_info().vms), "the limit of this shell, ulimit -v"))
    return min(found, key=lambda each: each.bytes)


def _of_groups(groups: Path, own: Path) -> Iterator[Available]:
    try:
        lines = own.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:  # another system than Linux
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if not kinds:
            yield from _limits(groups, path, ("memory.max", "memory.current", "inactive_file"))
        elif "memory" in kinds.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _limits(groups / "memory", path, names)


def _limits(root: Path, path: str, names: tuple[str, str, str]) -> Iterator[Available]:
    """What each group from that of the process up to the root allows; inside a container the path may not be there."""
    limit_name, usage_name, cached_name = names
    parts = PurePosixPath(path.lstrip("/"))
    for group in [root / parts, *(root / parent for parent in parts.parents)]:
        limit, usage = _number(group / limit_name), _number(group / usage_name)
        if limit is not None and usage is not None:
            free = limit - usage + _cached(group / "memory.stat", cached_name)
            yield Available(max(0, min(free, limit)), f"the limit of the control group ({group / limit_name})")


def _number(path: Path) -> int | None:
    """The number in a file; None where there is none, or it says `max`."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _cached(path: Path, name: str) -> int:
    """Bytes of files in memory that the system drops where memory is needed."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return 0
    found = (line.split() for line in lines)
    return next((int(words[1]) for words in found if len(words) == 2 and words[0] == name and words[1].isdigit()), 0)
