"""The figures of the pages are those of `docs/figures.json`, and no ratio is typed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench import figures

ROOT = Path(__file__).resolve().parents[2]
RATIO = re.compile(r"\d[\d.,]*\**\s?(?:× (?!\d)|x\b|times\b)")
RATIOS = [ROOT / "README.md", ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "results.md"]


def test_pages_have_the_figures_of_the_file() -> None:
    known, quoted = figures.read(), set()
    for page in figures.PAGES:
        text = page.read_text(encoding="utf-8")
        names = set(figures.quoted(text))
        assert names <= known.keys(), f"{page.name} quotes what docs/figures.json has not"
        assert figures.rewritten(text, known.get) == text, f"{page.name}: run `python -m bench.figures`"
        quoted |= names
    assert known.keys() == quoted, "no page quotes these"


@pytest.mark.parametrize("page", RATIOS, ids=lambda page: page.name)
def test_no_ratio_is_typed(page: Path) -> None:
    text = figures.rewritten(page.read_text(encoding="utf-8"), lambda _: ([], {}))
    assert not RATIO.findall(re.sub(r"\(?targets?:[^)|]*\)?", "", text))


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(figures, "FILE", tmp_path / "figures.json")
    monkeypatch.setattr(figures, "PAGES", [tmp_path / "page.md"])
    figures.FILE.write_text("[]")
    return tmp_path / "page.md"


def test_a_recording_goes_into_the_pages_in_the_place_of_an_earlier_one(page: Path) -> None:
    page.write_text(
        "It takes 9.9<!-- b.one --> times, or **1.0**<!-- b.one@avx2 -->.\n"
        "<!-- measured: b.one@avx2 -->\n\n"
        "<!-- b: ms, ratio -->\n\n| `b` 12 | ms | ratio (target: 2) |\n|---|---|---|\n"
        "| `Two` | 1,000 | 1.0 (1.0 2.0) (target: 2) |\n| <!-- one --> 3 | | +0.00 |\n\n| x | 5 | 6 |\n"
    )
    machine = {"instructions": "avx512", "processor": "A", "cores": "2", "load": "0.1", "torch": "2"}
    results = {"one": 7.0, "two": {"ms": [1234.4, 1300], "ratio": [0.5, 1.25, 7]}, "more": 1}
    figures.record("b", {"one": 3.0}, machine, "first")
    figures.record("b", results, machine, "second")
    figures.record("b", {"one": [2.0, 4.0]}, {**machine, "instructions": "avx2"}, "third")
    first, second = json.loads(figures.FILE.read_text())
    assert (first["command"], first["source"], second["figures"]) == ("second", "bench", {"b.one": [2, 4]})
    assert first["figures"] == {"b.one": 7, "b.two.ms": [1234, 1300], "b.two.ratio": [0.5, 1.25, 7]}
    text = page.read_text()
    assert "takes 7.0<!-- b.one --> times, or **3.0**<!-- b.one@avx2 -->." in text
    assert "\nMeasured by `third` on 2" in text
    assert "| 1,267 | 1.2 (0.5 1.2 7.0) (target: 2) |\n| <!-- one --> 3 | | +0.00 |\n\n| x | 5 | 6 |" in text
    assert set(figures.quoted(text)) - figures.read().keys() == {"b.one.ratio"}


def test_a_cell_has_one_number_or_all(page: Path) -> None:
    with pytest.raises(ValueError, match=r"'1 to 2' has 2 numbers, but its figure has \[1, 2, 3\]"):
        figures.rewritten("<!-- b: x -->\n|a|b|\n|-|-|\n|c|1 to 2|", {"b.c.x": ([1, 2, 3], {})}.get)
