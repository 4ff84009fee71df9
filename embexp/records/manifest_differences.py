"""What differs between the circumstances of two runs, by their manifests."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embexp.records.differences import Difference, Kind, between
from embexp.records.identity import DECIDES_NOTHING

_QUIET = ("KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_VMODULE", "TF_CPP_MAX_VLOG_LEVEL")
"""Variables that change nothing that is computed."""
_GIB = 1 << 30


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """The circumstances that differ; what only one of the two manifests records is left out.

    Args:
        a: a manifest.
        b: another one.
    """
    found = between(Kind.SPEC, a.get("spec"), b.get("spec"), without=DECIDES_NOTHING) if _both(a, b, "spec") else []
    if _both(a, b, "seed") and a["seed"] != b["seed"] and not any(each.name == "seed" for each in found):
        found.append(Difference(Kind.SPEC, "seed", a["seed"], b["seed"]))
    found += _code(a, b)
    found += _section(Kind.DATA, a, b, "data")
    found += _section(Kind.DATA, a, b, "files")
    found += _section(Kind.PACKAGE, a, b, "python", "packages")
    found += _section(Kind.TENSORFLOW, a, b, "tensorflow")
    found += _section(Kind.THREADS, a, b, "threads")
    found += _section(Kind.KERNELS, a, b, "kernels")
    found += _machines(a, b)
    found += _repositories(a, b)
    found += _section(Kind.VARIABLE, _without_quiet(a), _without_quiet(b), "environment")
    return found


def _both(a: Mapping[str, Any], b: Mapping[str, Any], key: str) -> bool:
    return key in a and key in b


def _section(kind: Kind, a: Mapping[str, Any], b: Mapping[str, Any], *keys: str) -> list[Difference]:
    found = []
    for key in keys:
        if not _both(a, b, key):
            continue
        if isinstance(a[key], Mapping) and isinstance(b[key], Mapping):
            # Names such as those of packages have dots of their own.
            for name in dict.fromkeys([*a[key], *b[key]]):
                found += between(kind, a[key].get(name), b[key].get(name), prefix=name)
        else:
            found += between(kind, a[key], b[key], prefix=key)
    return found


def _code(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """The files of the user's own code that differ, by their digests."""
    if not _both(a, b, "user_code"):
        return []
    first, second = (_files(each["user_code"]) for each in (a, b))
    names = dict.fromkeys([*first, *second])
    return [
        Difference(Kind.CODE, name, first.get(name), second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    ]


def _files(code: Mapping[str, Any] | None) -> dict[str, str]:
    return {} if code is None else {name: str(file["digest"]) for name, file in code["files"].items()}


def _machines(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Differences of machine and devices; of the processor's features, those that only one of them has."""
    if not _both(a, b, "machine"):
        return []
    first, second = dict(a["machine"]), dict(b["machine"])
    for each in (first, second):
        if "memory_bytes" in each:  # a kernel keeps some for itself, which changes with its version
            each["memory"] = f"{round(each.pop('memory_bytes') / _GIB)} GiB"
    found = []
    of_a, of_b = (set(each.pop("cpu_features", ())) for each in (first, second))
    if of_a and of_b and of_a != of_b:
        only_a, only_b = (" ".join(sorted(some)) or None for some in (of_a - of_b, of_b - of_a))
        found.append(Difference(Kind.MACHINE, "cpu_features", only_a, only_b))
    return [*between(Kind.MACHINE, first, second), *found, *_section(Kind.MACHINE, a, b, "devices")]


def _repositories(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Commits and uncommitted changes of embexp, and of the repositories of the user that both runs used."""
    if not _both(a, b, "code"):
        return []
    found = []
    for name in ("embexp", "working_folder", "model"):
        first, second = (_repository(each["code"], name) for each in (a, b))
        if first is None or second is None or (name != "embexp" and first.get("root") != second.get("root")):
            continue
        if any(each.get("same_as") for each in (a["code"].get(name) or {}, b["code"].get(name) or {})):
            continue  # told under that name
        label = name.replace("_", " ")
        found += between(Kind.REPOSITORY, first.get("commit"), second.get("commit"), prefix=f"{label}, commit")
        if first.get("diff") != second.get("diff"):
            found.append(Difference(Kind.REPOSITORY, label, note="its uncommitted changes differ"))
    return found


def _repository(code: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found = code.get(name)
    if isinstance(found, Mapping) and "same_as" in found:  # an earlier one, which has the state
        found = code.get(str(found["same_as"]))
    return found if isinstance(found, Mapping) and "same_as" not in found else None


def _without_quiet(manifest: Mapping[str, Any]) -> dict[str, Any]:
    if "environment" not in manifest:
        return {}
    return {"environment": {name: text for name, text in manifest["environment"].items() if name not in _QUIET}}


def changed_lines(recorded: Path, current: Path, *, most: int = 12) -> list[str]:
    """The lines of a source file that differ, as a unified diff without its head; empty if one can't be read.

    Args:
        recorded: the file in the folder `code` of a run.
        current: the file that is imported now.
        most: how many lines are returned at most.
    """
    try:
        before, after = (path.read_text(encoding="utf-8").splitlines() for path in (recorded, current))
    except (OSError, UnicodeDecodeError):
        return []
    lines = list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]
    return lines if len(lines) <= most else [*lines[:most], f"… {len(lines) - most} more lines …"]
