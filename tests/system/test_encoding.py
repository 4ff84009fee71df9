from __future__ import annotations

import errno
import io
import subprocess
import sys

import pytest

from embexp.system import printable

TEXT = "Café · 3 × 5 … │ ⠋ ü → 5 µs"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("ascii", "Caf\\xe9 - 3 x 5 ... - * \\xfc -> 5 us"),
        ("latin-1", "Café · 3 × 5 ... - * ü -> 5 µs"),
        ("utf-8", TEXT),
    ],
)
@pytest.mark.parametrize("errors", ["strict", "surrogateescape", "backslashreplace"])
def test_what_an_encoding_lacks_is_written_in_other_characters(
    name: str, shown: str, errors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=name, errors=errors)
    monkeypatch.setattr(sys, "stdout", stream)
    printable.fit_streams()
    print(TEXT, end="", flush=True)
    assert stream.buffer.getvalue().decode(name) == shown  # type: ignore[attr-defined]


def test_the_users_choice_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    monkeypatch.setattr(sys, "stdout", stream)
    printable.fit_streams()
    print("é", end="", flush=True)
    assert stream.buffer.getvalue() == b"?"  # type: ignore[attr-defined]


def test_a_log_is_utf8_whatever_the_terminal_has(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", stream)
    printable.write_utf8()
    print(TEXT, end="", flush=True)
    assert stream.buffer.getvalue().decode() == TEXT  # type: ignore[attr-defined]


def test_data_are_utf8_whatever_the_terminal_has(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    printable.fit_streams()
    printable.print("é")
    printable.write_data(TEXT + "\udcff")
    assert stream.buffer.getvalue() == b"\\xe9\n" + TEXT.encode() + b"\xff"  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_pipe_that_nobody_reads_any_more_ends_nothing(name: str) -> None:
    script = f"""
import sys
from embexp.system.printable import lasting_streams, print
lost = []
with lasting_streams(lost.append):
    for line in range(3):
        print("line", line, file=sys.{name}, flush=True)
        sys.stdin.readline()
    print("held back", file=sys.{name})
other = sys.stderr if {name!r} == "stdout" else sys.stdout
print([type(error).__name__ for error in lost], file=other)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    closed, other = (process.stdout, process.stderr) if name == "stdout" else (process.stderr, process.stdout)
    assert closed is not None
    assert other is not None
    assert process.stdin is not None
    assert closed.readline() == "line 0\n"
    closed.close()
    process.stdin.write("\n\n\n")
    process.stdin.close()
    assert other.read() == "['BrokenPipeError']\n"
    assert process.wait(60) == 0
    other.close()


def test_a_full_disk_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[OSError] = []
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with printable.lasting_streams(lost.append):
            for _ in range(2):
                print("line", flush=True)
    assert [error.errno for error in lost] == [errno.ENOSPC]
