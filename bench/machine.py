"""Description of the machine that runs a benchmark."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import psutil


def describe() -> dict[str, str]:
    """Processor, cores, memory, load, system, and versions of the compared packages."""
    versions = {}
    for package in ("tensorflow", "keras", "torch", "pykeen", "implicit", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        **versions,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
