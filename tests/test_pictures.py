"""The pictures of the docs show the commands of their page, are small, and load nothing from the network."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DRAWN = sorted((DOCS / "pictures").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(path: Path) -> list[str]:
    """The lines that a drawn terminal shows."""
    shown: dict[float, dict[float, str]] = {}
    for text in ElementTree.parse(path).iter(f"{SVG}text"):
        shown.setdefault(float(text.attrib["y"]), {})[float(text.attrib["x"])] = text.text or ""
    return [
        "".join(parts[x] for x in sorted(parts)).replace("\xa0", " ").rstrip() for _, parts in sorted(shown.items())
    ]


def test_every_picture_is_shown_somewhere_and_is_small() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *DOCS.rglob("*.md")))
    shown = {Path(each).name for each in re.findall(r"!\[[^\]]{20,}\]\(([^)]+)\)", text)}
    there = {path.name for path in (DOCS / "pictures").iterdir()}
    assert there <= shown
    assert all(path.stat().st_size <= 120_000 for path in (DOCS / "pictures").iterdir())


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_a_drawn_terminal_shows_the_command_of_its_page(path: Path, pictures: ModuleType) -> None:
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    (command,) = (text for _, _, text, name in pictures._BLOCK.findall(page) if name == path.stem)
    expected = f"$ {command.strip()}".splitlines()
    assert lines(path)[: len(expected)] == expected
    content = path.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"' )]+", content)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@font-face|@import|url\((?!#)|href|/tmp|/root|/home", content)


def test_a_terminal_is_drawn_as_it_is(pictures: ModuleType, tmp_path: Path) -> None:
    output = "\x1b[?25l\x1b[1;32mcompleted\x1b[0m  <b> & 3 steps\n  auc  0.8444\n\x1b[?25h"
    pictures.terminal("embexp run a=1 \\\n  b=2\n", output, 40, tmp_path / "drawn.svg")
    assert lines(tmp_path / "drawn.svg") == [
        "$ embexp run a=1 \\",
        "  b=2",
        "completed  <b> & 3 steps",
        "  auc  0.8444",
    ]
