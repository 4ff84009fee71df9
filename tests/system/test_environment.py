"""Packages that can't be imported for a while."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from embexp.system import environment


def test_hidden_packages_cant_be_imported_within_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "__init__.py").write_text("")
    (tmp_path / "aside" / "inner.py").write_text("value = 3")
    monkeypatch.syspath_prepend(tmp_path)
    with environment.hidden(["aside"]):
        for name in ("aside", "aside.inner"):
            with pytest.raises(ModuleNotFoundError):
                importlib.import_module(name)
    assert importlib.import_module("aside.inner").value == 3
    with environment.hidden(["aside"]):  # what is imported stays
        assert importlib.import_module("aside.inner").value == 3
    assert "aside" in sys.modules
    for name in ("aside", "aside.inner"):
        del sys.modules[name]


def test_hidden_packages_come_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), environment.hidden(["aside"]):
        raise ZeroDivisionError
    assert "aside" not in sys.modules
