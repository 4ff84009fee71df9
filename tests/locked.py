"""Folders that another process holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOLDER = """
import sys
from pathlib import Path
from embexp.system import locks
lock = locks.of_folder(Path(sys.argv[1]), "it")
with lock.exclusive() if sys.argv[2] == "exclusive" else lock.shared():
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(folder: Path, how: str = "exclusive") -> Iterator[subprocess.Popen[str]]:
    """Another process holds the lock of a folder, until the end of the block at the latest."""
    command = [sys.executable, "-c", HOLDER, str(folder), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()
