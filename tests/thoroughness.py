"""How many examples hypothesis tries where each is a training: some in every run, many with a profile for that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

LEFT_OUT = Path(__file__).parent / "left_out.yaml"
"""What else `make test` leaves out: lists of ids by their reason."""

IN_EVERY_RUN = 25
"""`max_examples` of the profile that tests run with."""
PROFILES = {
    "embexp": settings(deadline=None, derandomize=True, max_examples=IN_EVERY_RUN),
    "thorough": settings(deadline=None, max_examples=100 * IN_EVERY_RUN, print_blob=True),
}
"""`pytest --hypothesis-profile=thorough` takes the second, whose examples are others every time."""


def examples(some: int) -> settings:
    """Settings of a test that is to try `some` examples in every run, and more by the same factor as all others."""
    return settings(max_examples=some * settings().max_examples // IN_EVERY_RUN)


def thorough() -> bool:
    """Whether this is a run with the profile that tries everything."""
    return settings().max_examples > IN_EVERY_RUN


def left_out() -> pytest.MarkDecorator:
    """Mark of a case that only `make test-thorough` runs, as what it would find is found by another of every run."""
    return pytest.mark.skipif(not thorough(), reason="in every run, a case like it: see `make test-thorough`")


def chosen(cases: Iterable[str], always: Iterable[str]) -> list[Any]:
    """Cases as parameters of a test: all but those of `always` are left out of most runs."""
    some = frozenset(always)
    return [pytest.param(case, marks=() if case in some else left_out()) for case in cases]


def leave_out(items: Sequence[pytest.Item], *, whole_files: bool) -> None:
    """Marks the collected cases that `LEFT_OUT` lists.

    Args:
        items: what was collected.
        whole_files: all cases of each file are there.

    Raises:
        pytest.UsageError: a listed case is not in its file (any more).
    """
    listed = {
        f"tests/{case}" for cases in yaml.safe_load(LEFT_OUT.read_text(encoding="utf-8")).values() for case in cases
    }
    found = {item.nodeid: item for item in items if item.nodeid in listed}
    for item in found.values():
        item.add_marker(left_out())
    files = {item.nodeid.partition("::")[0] for item in items}
    gone = sorted(case for case in listed - found.keys() if case.partition("::")[0] in files)
    if whole_files and gone:
        raise pytest.UsageError(f"{LEFT_OUT.name} lists cases that are not there: {', '.join(gone)}")
