"""Imports point one way, and the light modules stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "embexp"

# A package may import itself and what stands in earlier tiers; packages of one tier don't import each other.
LEAVES = {"arrays", "errors", "files", "digests", "memory", "places", "environment", "readable", "terminal"}
TIERS = [
    LEAVES,
    {"caching", "estimator"},
    {"specs"},
    {"folder", "identity", "manifest"},
    {"config", "data", "vectors", "tables", "initialization", "freezing", "strategies", "models"},
    {"runtimes", "training", "checkpoints", "simulation"},
    {"reports"},
    {"pretrained"},
    {"policies", "growth"},
    {"filling", "assembly", "evaluations", "drift", "rows", "trouble"},
    {"execution", "watching", "scanned"},
    {"summary"},
    {"story"},
    {"runs", "composition", "tracing"},
    {"studies"},
    {"api"},
    {"sweeps"},
    {"cli"},
    {"__init__", "__main__"},
]
HYDRA_ALLOWED = {"config", "cli", "sweeps", "__main__"}
TENSORFLOW_FREE = {
    "arrays",
    "caching",
    "vectors",
    "errors",
    "files",
    "digests",
    "readable",
    "memory",
    "specs",
    "folder",
    "identity",
    "manifest",
    "pretrained",
    "freezing",
    "policies",
    "growth",
    "config",
    "sweeps",
}


def part_of(module: Path) -> str:
    relative = module.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(module: Path) -> list[str]:
    """Everything a module imports when it is imported or, inside functions, later."""
    names = []
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


MODULES = sorted(PACKAGE.rglob("*.py"))


def tier_of(part: str) -> int:
    return next(number for number, tier in enumerate(TIERS) if part in tier)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(module: Path) -> None:
    part = part_of(module)
    for name in imports_of(module):
        if not name.startswith("embexp."):
            continue
        other = name.split(".")[1]
        if not (PACKAGE / other).exists() and not (PACKAGE / f"{other}.py").exists():
            continue  # a public name of the package itself, not a module
        assert other == part or tier_of(other) < tier_of(part), f"{module.name}: {part} must not import {other}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_hydra_stays_at_the_edge(module: Path) -> None:
    if part_of(module) in HYDRA_ALLOWED:
        return
    assert not [name for name in imports_of(module) if name.split(".")[0] in ("hydra", "omegaconf")]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_tensorflow_where_it_would_cost_seconds(module: Path) -> None:
    if part_of(module) not in TENSORFLOW_FREE:
        return
    assert not [name for name in imports_of(module) if name.split(".")[0] in ("tensorflow", "keras")]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_attic(module: Path) -> None:
    assert module.stem not in ("utils", "common", "helpers", "misc")
    assert len(module.read_text(encoding="utf-8").splitlines()) <= 400


def test_importing_the_package_is_light() -> None:
    script = "import sys, embexp; print([m for m in ('tensorflow', 'hydra', 'pydantic', 'numpy') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"
