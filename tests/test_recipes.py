"""The recipes of CONTRIBUTING.md: each is applied to a copy of the package, where its own test passes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(python|yaml|diff)\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TEXT = (ROOT / "CONTRIBUTING.md").read_text().partition("## Recipes")[2].partition("\n## ")[0]
RECIPES = {title: FENCE.findall(text) for title, text in re.findall(r"### (.*?)\n(.*?)(?=### |\Z)", TEXT, re.DOTALL)}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of what recipes change; their tests import it from there."""
    for name in ("embexp", "conf", "hydra_plugins"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def inserted(text: str, diff: str) -> str:
    """A file with the lines of a recipe around a line that it has once."""
    lines = diff.splitlines()
    [place] = [number for number, line in enumerate(lines) if line.startswith(" ")]
    context = f"{lines[place][1:]}\n"
    assert text.count(f"\n{context}") == 1, context
    before, after = ("".join(f"{line[1:]}\n" for line in part) for part in (lines[:place], lines[place + 1 :]))
    return text.replace(f"\n{context}", f"\n{before}{context}{after}")


@pytest.mark.parametrize("recipe", [title for title, blocks in RECIPES.items() if blocks])
def test_a_recipe(recipe: str, copy: Path) -> None:
    for kind, name, content in RECIPES[recipe]:
        file = copy / name
        file.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text() if file.exists() else ""
        file.write_text(inserted(text, content) if kind == "diff" else f"{text}\n\n{content}" if text else content)
    tests = [name for _, name, _ in RECIPES[recipe] if name.startswith("tests/")]
    changed = {name for _, name, _ in RECIPES[recipe]} - set(tests)
    assert tests
    assert len(changed) <= 3, "a choice is one record, its function and its YAML"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", *tests]
    path = os.pathsep.join([str(copy), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, cwd=copy, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_recipes_with_code() -> None:
    assert {"Freeze policy", "Metric", "Reader of vectors"} <= {title for title, blocks in RECIPES.items() if blocks}
