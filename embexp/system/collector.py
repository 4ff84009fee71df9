"""Python's collector of cyclic garbage, while a command starts.

Starting makes several hundred thousand objects, almost all of which stay: modules, classes, the config. The collector
would search them again and again, at the process's end too, and find next to nothing: it takes a fifth of the time in
which a config is composed, and a third of that in which TensorFlow is imported. So a process that runs one command
begins without it. It begins to work where the command does, and leaves alone what is there by then.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_process = False
"""Whether this process only runs a command; a notebook or a test has its collector to itself."""


def postpone() -> None:
    """Stops the collector in a process that only runs a command, until `begin`."""
    global _process
    _process = True
    gc.disable()


def serves_a_command() -> bool:
    """Whether this process only runs a command, so that nobody else uses what it imports."""
    return _process


def begin() -> None:
    """Starts the collector, for what is made from now on; without `postpone` before, nothing is changed."""
    if _process:
        gc.freeze()
        gc.enable()


@contextmanager
def paused() -> Iterator[None]:
    """A block that only imports, such as TensorFlow."""
    if not (_process and gc.isenabled()):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        begin()


def end() -> None:
    """Has Python search nothing at its own end if the command has not begun to work, so that no file is left open."""
    if _process and not gc.isenabled():
        gc.freeze()
