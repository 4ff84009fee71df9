"""The pictures of the docs show the commands of their page, are small, and load nothing from the network."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests import terminals
from tests.outputs import blocks

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DRAWN = sorted((DOCS / "pictures").glob("*.svg"))


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    return terminals.drawing()


def test_every_picture_is_shown_somewhere_and_is_small() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *DOCS.rglob("*.md")))
    shown = {Path(each).name for each in re.findall(r"!\[[^\]]{20,}\]\(([^)]+)\)", text)}
    there = {path.name for path in (DOCS / "pictures").iterdir()}
    assert there <= shown
    large = {path.name: path.stat().st_size for path in (DOCS / "pictures").iterdir() if path.stat().st_size >= 80_000}
    assert not large


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_a_drawn_terminal_shows_the_command_of_its_page(path: Path) -> None:
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    (command,) = (block.text for block in blocks(page) if block.drawn == path.stem)
    expected = f"$ {command.strip()}".splitlines()
    assert terminals.lines(path)[: len(expected)] == expected
    content = path.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"' )]+", content)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@font-face|@import|url\((?!#)|href|/tmp|/root|/home", content)


def test_a_terminal_is_drawn_as_it_is(pictures: ModuleType, tmp_path: Path) -> None:
    output = "\x1b[?25l\x1b[1;32mcompleted\x1b[0m  <b> & 3 steps\n  auc  0.8444\n\x1b[?25h"
    pictures.terminal("embexp run a=1 \\\n  b=2\n", output, 40, tmp_path / "drawn.svg")
    assert terminals.lines(tmp_path / "drawn.svg") == [
        "$ embexp run a=1 \\",
        "  b=2",
        "completed  <b> & 3 steps",
        "  auc  0.8444",
    ]


def test_pictures_of_sections_name_sections_of_the_page(pictures: ModuleType) -> None:
    page = (ROOT / "embexp" / "reports" / "assets" / "page.html").read_text(encoding="utf-8")
    assert {section for _, section, _ in pictures.SECTIONS.values()} <= set(re.findall(r'<section id="(\w+)"', page))


def test_a_picture_is_compared_with_what_is_printed(
    pictures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pictures").mkdir()
    pictures.terminal("embexp run\n", "auc  0.5 in ~/a\nold 3\n", 40, tmp_path / "pictures" / "drawn.svg")
    monkeypatch.setattr(terminals, "DOCS", tmp_path)
    printed = "\x1b[1mauc\x1b[0m 0.7521 in\n/b/a\nnew 3\n"
    assert terminals.not_printed("drawn", "embexp run\n", printed, {"/b": "~"}) == ["old 3"]
