"""Stages before a training on the console: a line each, and how far a long one is."""

from __future__ import annotations

import io
import os
import pty
import threading

import pytest
from rich.console import Console

from embexp.cli import stages
from embexp.cli.stages import Stages
from embexp.system.terminal import SafeConsole
from embexp.training import progress


def test_a_long_stage_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(stages.time, "monotonic", lambda: clock[0])
    said = io.StringIO()
    shown = Stages(Console(file=said, width=80))
    for second in range(61):
        clock[0] = 100.0 + second
        shown("reading the data", 0.1 + second / 100)
    shown("building vocabularies", None)
    assert said.getvalue().splitlines() == [
        "reading the data",
        "reading the data 20%, 1:20 left",
        "reading the data 30%, 1:10 left",
        "reading the data 40%, 1:00 left",
        "reading the data 50%, 0:50 left",
        "reading the data 60%, 0:40 left",
        "reading the data 70%, 0:30 left",
        "building vocabularies",
    ]


def test_a_terminal_shows_a_bar_with_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pseudo-terminal, as for a user; nothing stays on the screen when the stages have ended."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    parent, child = pty.openpty()
    said = bytearray()

    def read() -> None:
        try:
            while piece := os.read(parent, 65536):
                said.extend(piece)
        except OSError:
            pass  # the end of the terminal

    reader = threading.Thread(target=read)
    reader.start()
    clock = [100.0]
    with os.fdopen(child, "w") as file:
        shown = Stages(SafeConsole(file=file))
        monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
        for second in range(21):
            clock[0] = 100.0 + second
            shown("evaluating", second / 100)
        shown._status._live.refresh()
        shown("writing the checkpoint", None)
        clock[0] += 5.0
        shown._status._live.refresh()
        shown.close()
    reader.join(30)
    os.close(parent)
    text = said.decode()
    assert "evaluating" in text
    assert "━" in text
    assert "20%, 1:20 left" in text
    assert "writing the checkpoint" in text
    assert "0:05 elapsed" in text
    assert text.endswith("\x1b[2K")  # the line is cleared
