"""Python's collector while a command starts. Each case has a process of its own, as it changes the whole process."""

from __future__ import annotations

import subprocess
import sys

import pytest

_OBSERVED = """
import gc
from embexp.system import environment
states = [gc.isenabled()]
before = gc.get_freeze_count()  # Python 3.12 begins with some
{0}
print(*states)
"""


def _states(code: str) -> list[bool]:
    done = subprocess.run(
        [sys.executable, "-c", _OBSERVED.format(code)], capture_output=True, text=True, check=True
    ).stdout
    return [word == "True" for word in done.split()]


CASES = {
    "a command that begins": (
        """
environment.postpone_collecting(); states.append(gc.isenabled())
environment.begin_collecting(); states.append(gc.isenabled())
with environment.collecting_paused(): states.append(gc.isenabled())
states.append(gc.isenabled() and gc.get_freeze_count() > before)
environment.end_collecting(); states.append(gc.isenabled())
""",
        [True, False, True, False, True, True],
    ),
    "a command that ends before": (
        """
environment.postpone_collecting()
with environment.collecting_paused(): states.append(gc.isenabled())
states.append(gc.isenabled())
environment.end_collecting(); states.append(gc.isenabled() or gc.get_freeze_count() == before)
""",
        [True, False, False, False],
    ),
    "a notebook": (
        """
with environment.collecting_paused(): states.append(gc.isenabled())
environment.begin_collecting(); environment.end_collecting()
states.append(gc.isenabled() and gc.get_freeze_count() == before)
states.append(not environment._process)
""",
        [True, True, True, True],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_states(name: str) -> None:
    code, expected = CASES[name]
    assert _states(code) == expected
