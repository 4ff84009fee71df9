"""A process that answers questions: whether it raises, crashes or never ends, the next question is answered."""

from __future__ import annotations

import os
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from embexp.system.hdf5 import Isolated, IsolatedError

MODULE = """
import os
from embexp.system import hdf5

def answer(question):
    match question["do"]:
        case "raise":
            raise KeyError("a word")
        case "crash":
            os.abort()
        case "never end":
            while True:
                pass
        case "write":
            print("something", flush=True)
        case "give":
            return os.getpid(), b"x" * question["size"]
    return os.getpid(), b""

hdf5.serve(answer)
"""


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Isolated]:
    (tmp_path / "answering.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    found = Isolated("answering")
    yield found
    found._end()


def test_answers(process: Isolated) -> None:
    first, data = process.ask({"do": "give", "size": 300_000}, seconds=5)
    assert (first != os.getpid(), data) == (True, b"x" * 300_000)
    assert process.ask({"do": "write"}, seconds=5) == (first, b"")
    with pytest.raises(IsolatedError, match="'a word'"):
        process.ask({"do": "raise"}, seconds=5)
    assert process.ask({"do": ""}, seconds=5) == (first, b"")  # still the same process
    threads = [threading.Thread(target=process.ask, args=({"do": ""},), kwargs={"seconds": 5}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert process.ask({"do": ""}, seconds=5) == (first, b"")


def test_it_may_crash_and_never_end(process: Isolated) -> None:
    first, _ = process.ask({"do": ""}, seconds=5)
    with pytest.raises(IsolatedError, match="the library that reads it crashed: the file is damaged"):
        process.ask({"do": "crash"}, seconds=5)
    second, _ = process.ask({"do": ""}, seconds=5)
    with pytest.raises(IsolatedError, match="reading it took more than 0 s: the file is damaged"):
        process.ask({"do": "never end"}, seconds=0.3)
    third, _ = process.ask({"do": ""}, seconds=5)
    assert len({first, second, third}) == 3
    assert not any(psutil.pid_exists(pid) for pid in (first, second))
    psutil.Process(third).kill()  # as the system does where memory runs out, or the thread that started it ends
    process._process.wait()
    fourth, _ = process.ask({"do": ""}, seconds=5)
    assert fourth not in (first, second, third)
