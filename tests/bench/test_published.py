"""What the published experiments expect is what docs/benchmarks.md says, and nothing else."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import figures
from embexp.config import composition, folders

FOLDER = folders.shipped() / "experiment" / "published"
FILES = sorted(FOLDER.glob("*.yaml"))
KNOWN = figures.read()
_CLAIM = re.compile(r"^    (\w+):  # ([\w.]+)$", re.MULTILINE)


def _decimal(number: float) -> Decimal:
    return Decimal(repr(number))


def interval(name: str) -> tuple[Decimal, Decimal]:
    """The value of a figure and how far off a run may be: the published interval.

    Of a mean with the lowest and the highest seed, or the ends of an interval: to the farther one, and one unit of the
    last digit more, as both are rounded.
    """
    numbers = [_decimal(each) for each in KNOWN[name][0]]
    if len(numbers) == 1:
        numbers += [_decimal(each) for each in KNOWN[f"{name.rpartition('.')[0]}.interval"][0]]
    if len(numbers) == 2:
        return numbers[0], numbers[1]
    mean, low, high = numbers
    exponents = [exponent for each in numbers if isinstance(exponent := each.as_tuple().exponent, int)]
    return mean, max(high - mean, mean - low) + Decimal(1).scaleb(min(exponents))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_they_expect_the_figures_of_the_page(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    claims: dict[str, Any] = yaml.safe_load(text)["expect"]["test"]
    names = dict(_CLAIM.findall(text))
    assert list(names) == list(claims)
    quoted = figures.quoted((figures.ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"))
    for metric, claim in claims.items():
        name = names[metric]
        assert name in quoted
        assert (_decimal(claim["value"]), _decimal(claim["within"])) == interval(name)
        recording = KNOWN[name][1]
        assert claim["source"].startswith("docs/benchmarks.md: ")
        assert claim["source"].endswith(f"; commit {recording['commit']}, {recording['processor']}")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_is_one_command(file: Path) -> None:
    found = composition.candidate(composition.loader(), [f"experiment=published/{file.stem}"], look_at_data=False).spec
    assert found.name == f"published/{file.stem}"
    assert f"embexp check {found.name}\n" in file.read_text(encoding="utf-8")
    assert found.expect


def test_there_are_some_twenty() -> None:
    assert len(FILES) >= 20
