"""Processes that end with the one that has started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from embexp.cli import job
from embexp.system import machine

CHILD = """
import time
from embexp.system import machine
machine.die_with_parent(machine.parent())
print("alive", flush=True)
time.sleep(600)
"""
PARENT = f"""
import os, subprocess, sys
from embexp.system import machine
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], env={{**os.environ, **machine.variables()}})
print(child.pid, flush=True)
child.wait()
"""


def test_a_child_ends_with_its_parent_however_that_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert parent.stdout.readline() == "alive\n"
        parent.kill()
    give_up = time.monotonic() + 20
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < give_up:
        time.sleep(0.02)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_child_whose_parent_was_gone_before_it_asked_ends_too() -> None:
    """As where a sweep is killed while its job starts: by then the child belongs to another process."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        gone.wait()
    variables = {**os.environ, "EMBEXP_PARENT": str(gone.pid)}
    assert subprocess.run([sys.executable, "-c", CHILD], env=variables, check=False).returncode == -signal.SIGKILL


@pytest.mark.parametrize("words", [["3"], ["3", "--elsewhere"]])
def test_every_job_ends_with_who_started_it(words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whether the sweep itself has, or the worker of another launcher."""
    asked: list[int] = []

    def become_job(parent: int) -> None:
        asked.append(parent)
        raise KeyboardInterrupt  # there is no job

    monkeypatch.setattr(job, "become_job", become_job)
    monkeypatch.setattr(sys, "argv", ["job", str(tmp_path), *words])
    monkeypatch.setenv("EMBEXP_PARENT", "12345")
    with pytest.raises(KeyboardInterrupt):
        job.main()
    assert asked == [12345]
    assert machine.parent() == os.getppid()  # what the job starts has another one
