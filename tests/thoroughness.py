"""How many examples hypothesis tries where each is a training: some in every run, many with a profile for that."""

from __future__ import annotations

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
