"""Every example of README and docs does what it says.

Fenced blocks of a page are taken in their order, in one folder: `sh` is run by bash, `python` by Python, `csv`,
`yaml` and `python` with file=NAME are written to NAME. `status=N` is the exit status to expect; `needs=NAME` links a
folder of the real data there, and the block is skipped, visibly, where that is not at hand. So is one with
`package=NAME` where that package is not installed. `with=KEY=VALUE,…` are
overrides that make the runs and sweeps of a block smaller, in the place of those that it has for a key; of `python`,
what it passes to `embexp.compose`. With `--hypothesis-profile=thorough` all run as they stand.

A page with a line `<!-- the data of PAGE -->` begins with the files that the blocks of that page make, other than `sh`.
A `yaml` block with composed=NAME is part of what the experiment NAME of the page composes to. The picture of a terminal
below a block has only lines that the block prints, apart from numbers.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import preloaded, terminals
from tests.thoroughness import thorough

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DATA_OF = re.compile(r"^<!-- the data of (\S+) -->$", re.MULTILINE)
PICTURED = re.compile(r"^```sh[^\n]*\n((?:(?!^```).*\n)+)^```$\s*!\[[^\]]*\]\(pictures/(\S+)\.svg\)", re.MULTILINE)
RUN = r"^((?:timeout -s INT \d+ )?embexp run)"


@dataclass(frozen=True)
class Block:
    language: str
    options: dict[str, str]
    text: str


def blocks(page: Path) -> list[Block]:
    return [
        Block(language, dict(word.split("=", 1) for word in options.split()), text)
        for language, options, text in BLOCK.findall(page.read_text(encoding="utf-8"))
    ]


def with_data(page: Path) -> list[Block]:
    """The blocks of a page, after those that make the data of another page that it names."""
    others = [page.parent / name for name in DATA_OF.findall(page.read_text(encoding="utf-8"))]
    return [block for other in others for block in blocks(other) if block.language != "sh"] + blocks(page)


def written(block: Block, folder: Path) -> bool:
    """Whether a block is a file, which is then in the folder."""
    if "file" in block.options:
        target = folder / block.options["file"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text)
    return "file" in block.options


def smaller(block: Block) -> str:
    """The commands, or calls, of a block with what makes its runs smaller."""
    if "with" not in block.options or thorough():
        return block.text
    overrides = [each.split("=", 1) for each in re.split(r",(?=[\w.@/]+=)", block.options["with"])]

    def command(found: re.Match[str]) -> str:
        text = found[0]
        for key, value in overrides:
            text, there = re.subn(rf"(?<=[\s']){re.escape(key)}=[^\s']*", f"{key}={value}", text)
            text = text if there else re.sub(rf"{RUN}( -m)?\b", rf"\g<0> {key}={value}", text)
        return text

    if block.language == "sh":
        return re.sub(rf"{RUN}\b([^\n]*\\\n)*[^\n]*", command, block.text, flags=re.MULTILINE)
    text = block.text
    for key, value in overrides:
        text, there = re.subn(rf'"{re.escape(key)}=[^"]*"', f'"{key}={value}"', text)
        text = text if there else re.sub(r"\bembexp\.compose\(\[", rf'\g<0>"{key}={value}", ', text)
    return text


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples(page: Path, forked: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    commands = preloaded.with_jobs(forked)
    environment = {
        **os.environ,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path_factory.getbasetemp() / "cache"),
    }
    skipped = []
    pictured = dict(PICTURED.findall(page.read_text(encoding="utf-8")))
    for block in with_data(page):
        if written(block, tmp_path):
            continue
        if (needed := block.options.get("needs")) is not None:
            if not (DATA / needed).exists():
                skipped.append(needed)
                continue
            if not (tmp_path / needed).exists():
                (tmp_path / needed).symlink_to(DATA / needed)
        if (package := block.options.get("package")) is not None and importlib.util.find_spec(package) is None:
            skipped.append(package)
            continue
        if block.language == "sh":
            command = ["bash", "-euc", smaller(block)]
        elif block.language == "python":
            command = [str(commands / "python"), "-c", smaller(block)]
        else:
            continue
        picture = pictured.get(block.text)
        seen = terminals.environment(picture) if picture else {}
        result = subprocess.run(
            command, cwd=tmp_path, env={**environment, **seen}, capture_output=True, text=True, check=False
        )
        expected = int(block.options.get("status", "0"))
        assert result.returncode == expected, f"{block.text}\n{result.stdout}\n{result.stderr}"
        if expected:
            shown = [other.text for other in blocks(page) if other.language == "text"]
            assert result.stderr in shown, f"the page should show:\n{result.stderr}"
        if picture:
            printed = result.stdout + result.stderr
            gone = terminals.not_printed(picture, block.text, printed, {str(tmp_path): "~/films"})
            assert not gone, f"make pictures: {picture}.svg has lines that the run did not print:\n" + "\n".join(gone)
    if skipped:
        pytest.skip(f"without {', '.join(skipped)}; all else was run")


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "patterns").glob("*.md")), ids=lambda page: page.stem)
def test_a_pattern_shows_what_its_files_compose_to(page: Path, tmp_path: Path) -> None:
    files = [block for block in blocks(page) if written(block, tmp_path)]
    for block in blocks(page):
        if (name := block.options.get("composed")) is None:
            continue
        composed = subprocess.run(
            [sys.executable, "-m", "embexp", "run", "--config-dir", "conf", f"experiment={name}", "--cfg", "job"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        lines = iter(composed.splitlines())
        assert [line for line in block.text.splitlines() if line not in lines] == [], f"{page.name}: {name}"
        assert files


MADE_WITH_THE_SITE = {ROOT / "docs/reference/keys.md"}


def test_pages_link_to_pages_that_are_there() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            path = page.parent / target
            assert path.exists() or path.resolve() in MADE_WITH_THE_SITE, f"{page.name} links to {target}"


def test_every_page_is_at_most_three_links_from_the_readme() -> None:
    reached, ends = {ROOT / "README.md"}, {ROOT / "README.md"}
    for _ in range(3):
        targets = {
            (page.parent / target).resolve()
            for page in ends
            for target in re.findall(r"\]\((?!https?:)([^)#]+\.md)", page.read_text(encoding="utf-8"))
        }
        ends = targets - reached - MADE_WITH_THE_SITE
        reached |= ends
    assert set(PAGES) <= reached


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages_link_to_headings_that_are_there() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
            path = (page.parent / target if target else page).resolve()
            found = path in MADE_WITH_THE_SITE or anchor in anchors(path)
            assert found, f"{page.name} links to {target}#{anchor}"
