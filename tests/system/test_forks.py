"""Forks of a process with threads of libraries."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import os, threading
from embexp.system import machine
end = threading.Event()
threading.Thread(target=end.wait, daemon=True).start()
child = machine.fork()
if child == 0:
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
end.set()
"""


def test_it_does_not_warn_of_threads() -> None:
    command = [sys.executable, "-W", "always", "-c", CODE]  # Python drops the warning where warnings are errors
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("3\n", "")
