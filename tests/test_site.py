"""The documentation site builds without warnings; its check finds broken links and what comes from the network."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

import embexp.checkpoints
import embexp.initialization
import embexp.rows
from tests import notebooks

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    code = """
import sys
from mkdocs.__main__ import cli
cli(["build", "--quiet", "--strict", "--site-dir", sys.argv[1]], standalone_mode=False)
assert "tensorflow" not in sys.modules, "the reference is to be read from the source"
"""
    command = [sys.executable, "-c", code, str(built)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    return built


def test_every_page_is_built(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert (site / "examples" / "own_estimator.py.txt").read_text() == (ROOT / "examples/own_estimator.py").read_text()
    assert not list(site.rglob("*.py"))


def test_every_notebook_is_a_page_with_its_pictures(site: Path) -> None:
    for path in notebooks.PATHS:
        page = (site / "notebooks" / f"{path.stem}.html").read_text(encoding="utf-8")
        assert (site / "notebooks" / path.name).read_bytes() == path.read_bytes()
        assert f'<a href="{path.name}" download>' in page
        outputs = [each for cell in nbformat.read(path, 4).cells for each in cell.get("outputs", [])]
        committed = [
            base64.b64decode(each.data["image/png"]) for each in outputs if "image/png" in each.get("data", {})
        ]
        shown = re.findall(rf'<img alt="([A-Z][^"]{{20,}})" src="({path.stem}_files/[^"]+)"', page)
        assert [(site / "notebooks" / name).read_bytes() for _, name in shown] == committed
        assert page.count("<table>") == sum("text/html" in each.get("data", {}) for each in outputs)
    index = (site / "notebooks" / "index.html").read_text(encoding="utf-8")
    assert {f"{path.stem}.html" for path in notebooks.PATHS} <= set(re.findall(r'href="([\w.]+)"', index))


def test_blocks_are_blocks_and_their_options_are_not_shown(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "```" not in re.sub(r"<title>.*?</title>", "", text), path
        assert not re.search(r"\b(with=[a-z.]+=|status=2|file=\w+\.\w+\n|output=(all|-?\d))", text), path
    tutorial = (site / "tutorial.html").read_text(encoding="utf-8")
    assert '<span class="filename">mymodels.py</span>' in tutorial
    assert '<img alt="The terminal after the run' in tutorial
    assert "<code>embexp completion fish | source</code>" in (site / "config.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ("tables.NAME", "reference/keys.html#tablesname"),
        ("early stopping", "runs.html#length-evaluation-early-stopping"),
        ("tomorrow's data", "tomorrow.html"),
        ("GPU", "strategies.html"),
        ("storage: split", "freezing.html#storage-split"),
        ("NumPy", "python.html#numpy-arrays"),
        ("several workers", "multi_worker.html"),
        ("init method", "initialization.html"),
        ("MLflow", "tracking.html"),
        ("two runs compared", "compare.html"),
    ],
)
def test_titles_have_the_words_of_a_question(question: str, place: str, site: Path) -> None:
    """The search ranks by words that a title has, or begins with, before all else. A few may have equally many."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    words = question.lower().split()
    found: dict[int, list[str]] = {}
    for each in index["docs"]:
        title = re.sub(r"<[^>]+>", "", each["title"]).lower().split()
        count = sum(any(there.startswith(word) for there in title) for word in words)
        found.setdefault(count, []).append(each["location"])
    best = found[max(found)]
    assert place in best
    assert len(best) <= 4, best


def test_a_long_mapping_names_its_keys_before_their_table(site: Path) -> None:
    text = (site / "reference" / "keys.html").read_text(encoding="utf-8")
    before = text.partition('id="tablesname"')[2].partition("<table>")[0]
    assert {"dim", "storage", "vocabulary.path"} <= set(re.findall(r"<code>([\w.]+)</code>", before))


def test_the_reference_has_every_public_name(site: Path) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.html"))
    anchors = set(re.findall(r'id="(embexp[\w.]*)"', text))
    rows = {name for name, each in vars(embexp.rows).items() if getattr(each, "__module__", "") == "embexp.rows"}
    expected = {
        "embexp": {*embexp.__all__} - {"rows"},
        "embexp.checkpoints": {*embexp.checkpoints.__all__},
        "embexp.initialization": {*embexp.initialization.__all__} - {"constant", "placeholder_feed", "variable_load"},
        "embexp.rows": {name for name in rows if not name.startswith("_")},
    }
    missing = {f"{module}.{name}" for module, names in expected.items() for name in names} - anchors
    assert not missing
    assert not {anchor for anchor in anchors if re.search(r"\._[a-z]", anchor)}, "private names are shown"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="there.html#part">', ""),
        ('<a href="#here" id="here">', ""),
        ('<a href="https://example.org/">', ""),
        ('<img src="data:image/png;base64,AAAA">', ""),
        ('<a href="gone.html">', "page.html links to gone.html, which is not there"),
        ('<a href="there.html#gone">', "page.html links to there.html#gone, but that page has no such anchor"),
        ('<a href="#gone">', "page.html links to #gone, but that page has no such anchor"),
        ('<script src="https://cdn.org/a.js">', "page.html loads https://cdn.org/a.js from the network"),
        ('<img srcset="//cdn.org/a.png 2x">', "page.html loads //cdn.org/a.png from the network"),
        ('<link rel="stylesheet" href="gone.css">', "page.html loads gone.css, which is not there"),
        ("<p style=\"background: url('http://cdn.org/b')\">", "page.html loads http://cdn.org/b from the network"),
    ],
)
def test_the_check_finds(body: str, fault: str, hooks: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(body)
    (tmp_path / "there.html").write_text('<h2 id="part">')
    assert list(hooks.site_faults(tmp_path)) == [fault] * bool(fault)


def test_the_check_reads_style_sheets(hooks: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@import 'https://fonts.org/one'; p { background: url(gone.svg) }")
    assert list(hooks.site_faults(tmp_path)) == [
        "a.css loads https://fonts.org/one from the network",
        "a.css loads gone.svg, which is not there",
    ]


def test_keys_and_choices_that_tables_name_are_there() -> None:
    """Blocks of the pages are executed; what their tables and sentences name is looked up."""
    keys: set[str] = set()
    choices: dict[str, set[str]] = {}
    for path in (ROOT / "conf").rglob("*.yaml"):
        keys |= set(re.findall(r"^[ #]*(\w+):", path.read_text(encoding="utf-8"), re.MULTILINE))
        choices.setdefault(path.parent.relative_to(ROOT / "conf").as_posix(), set()).add(path.stem)
    nodes = (
        "data|tables|features|model|optimizer|dense_optimizer|pretrained|train|checkpoint|restore|strategy|output|sweep"
    )
    docs, found = ROOT / "docs", 0
    for page in (
        docs / "coming_from.md",
        docs / "clicks.md",
        docs / "ratings.md",
        docs / "why.md",
        *(docs / "tasks").glob("*.md"),
    ):
        prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for word in (word for span in re.findall(r"`([^`]+)`", prose) for word in span.split()):
            if key := re.fullmatch(rf"'?(?:{nodes})((?:\.\w+)+)(?:=.*)?", word):
                assert key[1].rsplit(".", 1)[1] in {*keys, *choices, "NAME"}, f"{page.name}: {word}"
            elif (choice := re.fullmatch(r"([\w/]+)(?:@[\w.]+)?=(\w+)", word)) and choice[1] in choices:
                assert choice[2] in choices[choice[1]], f"{page.name}: {word}"
            else:
                continue
            found += 1
    assert found > 100
