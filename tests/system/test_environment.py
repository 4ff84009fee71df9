"""Packages that can't be imported for a while."""

from __future__ import annotations

import importlib
import os
import subprocess
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


SPEAKS = """
import sys
from embexp.system import environment
if sys.argv[1] == "command":
    environment.postpone_collecting()
environment.load_tensorflow()
import tensorflow as tf
with tf.io.TFRecordWriter(sys.argv[2]) as writer:
    writer.write(b"")
list(tf.compat.v1.train.summary_iterator(sys.argv[2]))  # deprecated
tf.get_logger().error("an error")
"""


@pytest.mark.parametrize(
    ("process", "level", "speaks"),
    [("command", "3", False), ("program", "3", True), ("command", "0", True)],  # the last is asked for
)
def test_tensorflow_warns_of_nothing_in_the_process_of_a_command(
    process: str, level: str, speaks: bool, tmp_path: Path, forked: Path
) -> None:
    words = [forked / "python", "-c", SPEAKS, process, str(tmp_path / "events")]
    done = subprocess.run(
        words, capture_output=True, text=True, check=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": level}
    )
    assert ("deprecated" in done.stderr) == speaks
    assert "an error" in done.stderr
