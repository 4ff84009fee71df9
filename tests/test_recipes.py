"""The recipes of CONTRIBUTING.md: all are applied to a copy of the package, where their own tests pass.

So do the tests that go over all choices. No other test may spell a list of choices, see `tests/mistakes`.
"""

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


OVER_ALL_CHOICES = (
    *("tests/contracts/test_choices.py", "tests/config/test_compose.py"),
    *("tests/specs/test_rules.py", "tests/specs/test_combinations.py"),
)


def inserted(text: str, diff: str) -> str:
    """A file with the lines of a recipe around a line that it has once."""
    lines = diff.splitlines()
    [place] = [number for number, line in enumerate(lines) if line.startswith(" ")]
    context = f"{lines[place][1:]}\n"
    assert text.count(f"\n{context}") == 1, context
    before, after = ("".join(f"{line[1:]}\n" for line in part) for part in (lines[:place], lines[place + 1 :]))
    return text.replace(f"\n{context}", f"\n{before}{context}{after}")


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The tests that pass in a copy with all recipes: their own, and those over all choices that are about theirs."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("embexp", "conf", "hydra_plugins", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    new = set()
    for kind, name, content in (block for blocks in RECIPES.values() for block in blocks):
        file = copy / name
        file.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text() if file.exists() else ""
        file.write_text(inserted(text, content) if kind == "diff" else f"{text}\n\n{content}" if text else content)
        new |= {file.stem.removeprefix("test_")} if not text else set(re.findall(r"class (\w+)", content))
    own = [name for blocks in RECIPES.values() for _, name, _ in blocks if name.startswith("tests/")]
    options = ["-q", "-rA", "-p", "no:cacheprovider", "--noconftest", "-k", " or ".join(sorted(new))]
    command = [sys.executable, "-m", "pytest", *options, *own, *OVER_ALL_CHOICES]
    path = os.pathsep.join([str(copy), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, cwd=copy, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"^PASSED (\S+)", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("recipe", [title for title, blocks in RECIPES.items() if blocks])
def test_a_recipe(recipe: str, passed: set[str]) -> None:
    tests = [name for _, name, _ in RECIPES[recipe] if name.startswith("tests/")]
    changed = {name for _, name, _ in RECIPES[recipe]} - set(tests)
    assert tests
    assert all(any(each.startswith(f"{name}::") for each in passed) for name in tests)
    assert len(changed) <= 3, "a choice is one record, its function and its YAML"


def test_choices_of_recipes_are_among_all(passed: set[str]) -> None:
    for name in ("[freeze-odd_rows]", "[init-blocks]", "[FreezeOddRows]", "[Blocks]", "[blocks]", ":hinge]"):
        assert any(each.endswith(name) for each in passed), name


def test_recipes_with_code() -> None:
    assert {"Freeze policy", "Init method", "Metric", "Reader of vectors"} <= {
        title for title, blocks in RECIPES.items() if blocks
    }
