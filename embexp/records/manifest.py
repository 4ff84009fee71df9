"""`manifest.json`: the command, code, versions and machine that made a run."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from embexp.records import masking, repositories
from embexp.records.identity import Identity
from embexp.system import machine

_VARIABLES = re.compile(
    r"(TF|OMP|MKL|KMP|CUDA|XLA|DNNL|ONEDNN|OPENBLAS|KERAS|NVIDIA|TPU|EMBEXP)_\w+|GOMP_CPU_AFFINITY|PYTHONHASHSEED"
)
"""Environment variables that may change how TensorFlow, NumPy or embexp compute."""


@dataclass(frozen=True)
class UsedCode:
    """The user's own code in a run.

    Attributes:
        function: its dotted path.
        digest: of all files.
        files: by their names in the run's folder `code`, the path that each was read from, and its digest.
    """

    function: str
    digest: str
    files: Mapping[str, tuple[Path, str]]


def collect(
    spec: Mapping[str, Any],
    identity: Identity,
    *,
    code: UsedCode | None,
    devices: Sequence[str],
    tensorflow: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything worth knowing when a run is to be made again.

    Args:
        spec: of the run, as JSON: what it was when the run began.
        identity: of the run.
        code: the user's own, if the run uses some.
        devices: of its strategy.
        tensorflow: its version and build.
    """
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": masking.command(sys.argv),
        "working_folder": os.getcwd(),
        "run_id": identity.run_id,
        "seed": spec["seed"],
        "spec": dict(spec),
        "data": {"digest": identity.files["data"]},
        "files": {path: digest for path, digest in identity.files.items() if path != "data"},
        "user_code": None if code is None else _code_json(code),
        "python": platform.python_version(),
        "packages": packages(),
        "tensorflow": dict(tensorflow),
        "threads": dict(identity.threads),
        "kernels": {"onednn": identity.onednn, **identity.flags},
        "devices": list(devices),
        "machine": _machine(),
        "environment": environment(),
        "code": _repositories(code),
    }


def packages() -> dict[str, str]:
    """Versions of all installed packages."""
    return dict(_packages(tuple(sys.path)))


@functools.lru_cache(maxsize=1)
def _packages(path: tuple[str, ...]) -> Mapping[str, str]:
    """Versions of the packages on a path. Read once in a process: it parses a file for each of them."""
    found: dict[str, str] = {}
    for each in metadata.distributions(path=list(path)):
        parsed = each.metadata  # every access parses the file anew
        name = parsed["Name"]
        if name and name not in found:  # of two of one name, Python imports the first
            found[name] = parsed["Version"]
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def environment() -> dict[str, str]:
    """The environment variables that may matter; secrets are masked."""
    return {name: masking.value(name, text) for name, text in sorted(os.environ.items()) if _VARIABLES.fullmatch(name)}


def _code_json(code: UsedCode) -> dict[str, Any]:
    files = {name: {"path": str(path), "digest": digest} for name, (path, digest) in code.files.items()}
    return {"function": code.function, "digest": code.digest, "files": files}


def _machine() -> dict[str, Any]:
    processor = machine.processor()
    return {
        "system": platform.platform(),
        "cpu": processor.model,
        "cpu_features": sorted(processor.features),
        "cores": machine.cores(),
        "memory_bytes": machine.memory_bytes(),
    }


def _repositories(code: UsedCode | None) -> dict[str, Any]:
    """The repositories of embexp, if it runs from a checkout, of the working folder, and of the user's code."""
    package = Path(__file__).resolve().parents[1]
    folders = {"embexp": package} if repositories.is_tracked(package / "errors.py") else {}
    folders["working_folder"] = Path.cwd()
    if code is not None and code.files:
        path, _ = next(iter(code.files.values()))
        folders["model"] = path.parent
    found = repositories.states(folders)
    return {"embexp": None} | found
