from __future__ import annotations

import io

from rich.console import Console

from embexp.system import terminal


def test_nothing_is_shown_at_first_and_then_a_line_now_and_then() -> None:
    to, seconds = io.StringIO(), 0.0
    with terminal.shown_if_long(Console(file=to), clock=lambda: seconds) as progress:
        for percent in range(100):
            seconds = percent / 4
            progress("checking 400 jobs", percent / 100)
    assert to.getvalue().splitlines() == ["checking 400 jobs: 40%", "checking 400 jobs: 80%"]


def test_a_terminal_shows_one_line_and_clears_it() -> None:
    to, seconds = io.StringIO(), 0.0
    console = Console(file=to, force_terminal=True, width=60)
    with terminal.shown_if_long(console, clock=lambda: seconds) as progress:
        progress("checking [b]400[/b] jobs", 0.1)
        assert to.getvalue() == ""
        seconds = terminal.LONG
        progress("checking 400 jobs", 0.2)
    assert "checking 400 jobs: 20%" in to.getvalue()
