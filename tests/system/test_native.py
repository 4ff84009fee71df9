"""Libraries of fused operations: built where there is a compiler, and not needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from embexp.system import native


def test_without_a_compiler_it_is_said_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "_BUILT", tmp_path / "made")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert native.main() == 1
    assert "no C++ compiler was found (no-such-compiler)" in capsys.readouterr().out
    monkeypatch.setenv("CXX", "false")
    assert native.main() == 1
    assert "ended with status 1" in capsys.readouterr().out
    assert not any((tmp_path / "made").glob("*"))


def test_a_library_that_does_not_load_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.so").write_bytes(b"not a library")
    monkeypatch.setattr(native, "path", lambda name: tmp_path / f"{name}.so")
    native.library.cache_clear()
    try:
        assert native.library("rows") is None
    finally:
        native.library.cache_clear()
