"""Every example of README and docs does what it says, and prints what the page shows below it.

Fenced blocks of a page are taken in their order, in one folder: `sh` is run by bash, `python` by Python, `csv`,
`yaml` and `python` with file=NAME are written to NAME. `status=N` is the exit status to expect; `needs=NAME` links a
folder of the real data there, and the block is skipped, visibly, where that is not at hand. So is one with
`package=NAME` where that package is not installed. `with=KEY=VALUE,…` are
overrides that make the runs and sweeps of a block smaller, in the place of those that it has for a key; of `python`,
what it passes to `embexp.compose`. With `--hypothesis-profile=thorough` all run as they stand. `tests/outputs.py` says
how what they print is compared with a block `text output=…` below them, and what a page takes from another one.

A `yaml` block with composed=NAME is part of what the experiment NAME of the page composes to. The picture of a terminal
below a block has only lines that the block prints, apart from numbers.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests import outputs, preloaded, terminals
from tests.outputs import BLOCK, PAGES, ROOT
from tests.thoroughness import thorough


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples(page: Path, forked: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    text, cache = page.read_text(encoding="utf-8"), tmp_path_factory.getbasetemp() / "cache"
    skipped, faults = [], []
    commands, data = preloaded.with_jobs(forked), outputs.data_of(page)
    running = outputs.run(text, commands, tmp_path, cache, full=thorough(), data=data)
    for ran, (block, below) in zip(running, outputs.shown_below(text), strict=True):
        if ran.missing is not None:
            skipped.append(ran.missing)
            continue
        expected = int(block.options.get("status", "0"))
        assert ran.status == expected, f"{block.text}\n{ran.output}"
        if below is not None and "output" in below.options and (fault := outputs.fault(below.text, ran)):
            faults.append(fault)
        if block.drawn:
            gone = terminals.not_printed(block.drawn, block.text, ran.printed, {str(tmp_path): "~/films"})
            assert not gone, f"make pictures: {block.drawn}.svg has lines that were not printed:\n" + "\n".join(gone)
    assert not faults, "\n\n".join([*faults, f"if this is right: python -m tests.outputs {page.relative_to(ROOT)}"])
    if skipped:
        pytest.skip(f"without {', '.join(skipped)}; all else was run")


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "patterns").glob("*.md")), ids=lambda page: page.stem)
def test_a_pattern_shows_what_its_files_compose_to(page: Path, forked: Path, tmp_path: Path) -> None:
    blocks = outputs.blocks(page.read_text(encoding="utf-8"))
    files = [block for block in blocks if block.written(tmp_path)]
    for block in blocks:
        if (name := block.options.get("composed")) is None:
            continue
        composed = subprocess.run(
            [forked / "embexp", "run", "--config-dir", "conf", f"experiment={name}", "--cfg", "job"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        lines = iter(composed.splitlines())
        assert [line for line in block.text.splitlines() if line not in lines] == [], f"{page.name}: {name}"
        assert files


def test_every_command_has_its_output() -> None:
    without = {page.relative_to(ROOT).as_posix(): outputs.unshown(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: commands for page, commands in without.items() if commands} == {}


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
