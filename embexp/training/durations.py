"""Durations as text."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Such as `0:07`, `12:34` or `62:59:59`: minutes and seconds, with hours from the first on."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
