"""This machine: its processor, cores and memory."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Processor:
    """The processor.

    Attributes:
        model: its name.
        features: the extensions of its instruction set, such as `avx2`; empty where the system doesn't tell (no /proc).
    """

    model: str
    features: frozenset[str]


@cache
def processor() -> Processor:
    """The processor of this machine."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found: dict[str, str] = {}
    for line in lines:  # of the first processor; the others are alike
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    model = found.get("model name") or platform.processor() or platform.machine()
    return Processor(model, frozenset((found.get("flags") or found.get("Features") or "").split()))


def cores() -> int:
    """Number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Physical memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
