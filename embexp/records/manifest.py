"""`manifest.json`: the versions, code and machine that made a run."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("embexp", "tensorflow", "keras", "numpy", "hydra-core", "omegaconf", "pydantic", "pyarrow")
# Named one by one: by prefix, TF_ would also take in Terraform's variables, which hold secrets.
_ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "KERAS_BACKEND",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_DETERMINISTIC_OPS",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)
_LONGEST_DIFF = 1_000_000


def collect(*, threads: Mapping[str, int], devices: Sequence[str], data_digest: str) -> dict[str, Any]:
    """Everything worth knowing when a run is to be made again: versions, code, machine, threads, environment, data."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "packages": {name: _version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "code": _code(Path(__file__).resolve().parents[1]),
        "machine": _machine(),
        "threads": dict(threads),
        "devices": list(devices),
        "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        "data": {"digest": data_digest},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _machine() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "system": platform.platform(),
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _code(folder: Path) -> dict[str, Any]:
    """Commit and difference of the checkout that the package runs from; nothing when it is installed from a wheel."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or _git(folder, "ls-files", "--error-unmatch", "errors.py") is None:
        return {"commit": None, "diff": None}
    difference = _git(folder, "diff", "HEAD", "--", ".") or ""
    if len(difference) > _LONGEST_DIFF:
        difference = difference[:_LONGEST_DIFF] + "\n[cut]\n"
    return {"commit": commit.strip(), "diff": difference}


def _git(folder: Path, *words: str) -> str | None:
    try:
        result = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return result.stdout if result.returncode == 0 else None
