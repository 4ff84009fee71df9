"""How many examples hypothesis tries where each is a training: some in every run, many with a profile for that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

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
