"""How far the work before a training is: reported as it goes on."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float | None], None]
"""Called with the name of a stage and, where known, the fraction of it that is done (0 to 1)."""


def quiet(stage: str, fraction: float | None) -> None:
    """A `Progress` that shows nothing."""
