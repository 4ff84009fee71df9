"""Libraries of fused operations: built once where there is a compiler, and not needed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import tensorflow as tf

from embexp.system import native

# Compilers: the test puts a folder in the place of FOLDER.
WORKS = """#!/bin/sh
echo >> FOLDER/calls
while [ "$1" != -o ]; do shift; done
echo whole > "$2"
"""
FAILS = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo half > "$2"
echo "no such instruction" >&2
exit 1
"""


WAITS = """#!/bin/sh
sleep 300 &
echo $! $$ >> FOLDER/started
wait
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package in which nothing is built, and with a cache. What is loaded is not looked into."""
    monkeypatch.setattr(tf, "load_op_library", lambda path: Path(path).read_text())
    monkeypatch.setattr(native, "BUILT", tmp_path / "package" / "built")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = folder / "compiler"
    path.write_text(script.replace("FOLDER", str(folder)))
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))


def test_without_a_compiler_it_is_said_and_nothing_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert native.main() == 1
    assert "no C++ compiler was found (no-such-compiler)" in capsys.readouterr().out
    said: list[str] = []
    why = native.ready(said.append)
    assert why == "no C++ compiler was found (no-such-compiler); install g++, or set CXX"
    [sentence] = said
    assert why in sentence
    assert "which are slower" in sentence
    assert not native.BUILT.exists()


def test_a_build_that_fails_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler(folder, monkeypatch, FAILS)
    assert native.main() == 1
    assert "ended with status 1:\nno such instruction" in capsys.readouterr().out
    said: list[str] = []
    assert native.ready(said.append) == f"{folder / 'compiler'} ended with status 1"
    assert [sentence.split(":")[0] for sentence in said] == [
        f"building fused operations for TensorFlow {tf.__version__}, once",
        "no fused operations",
    ]
    assert not list(native.BUILT.glob("*.so*"))


@pytest.mark.parametrize("first", [True, False], ids=["the first", "all"])
def test_compilers_end_with_the_process_that_builds(folder: Path, monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    """Also if that is killed before it has started all of them."""
    compiler(folder, monkeypatch, WAITS)
    count = 1 if first else len(native.names())
    builder = os.fork()
    if builder == 0:
        begin = subprocess.Popen

        def popen(command: list[str], **settings: Any) -> Any:
            process = begin(command, **settings)
            while first and "-o" in command:  # until it is killed
                time.sleep(1)
            return process

        with contextlib.suppress(BaseException):
            subprocess.Popen = popen  # type: ignore[assignment, misc]
            native.build()
        os._exit(1)
    started = folder / "started"
    while not started.exists() or len(started.read_text().split()) < 2 * count:
        time.sleep(0.02)
    processes = [psutil.Process(int(number)) for number in started.read_text().split()]
    os.kill(builder, signal.SIGKILL)
    os.waitpid(builder, 0)
    assert psutil.wait_procs(processes, timeout=30)[1] == []


def test_it_is_built_once_before_the_first_training(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(folder, monkeypatch, WORKS)
    native.library.cache_clear()
    try:
        assert native.library("rows") is None  # as a program may have asked before
        said: list[str] = []
        with ThreadPoolExecutor(2) as both:
            assert list(both.map(native.ready, [said.append] * 2)) == [None, None]
        assert said.count(f"building fused operations for TensorFlow {tf.__version__}, once: about a minute") == 1
        assert sum(sentence.startswith("built fused operations in ") for sentence in said) == 1
        assert (folder / "calls").read_text() == "\n" * len(native.names())
        assert native.library("rows") == "whole\n"
        assert native.ready(said.append) is None
        assert len(native.build()) == len(list(native.BUILT.glob("*.so")))
        assert (folder / "calls").read_text() == "\n" * len(native.names())
    finally:
        native.library.cache_clear()


def test_a_package_that_can_only_be_read_has_them_in_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(folder, monkeypatch, WORKS)
    native.BUILT.parent.write_text("no folder can be made here")
    try:
        found = native.build()
        assert {path.parent for path in found} == {folder / "cache" / "embexp" / "fused_operations"}
        assert found == [native.path(name) for name in native.names()]
        shutil.rmtree(folder / "cache")
        (folder / "cache").write_text("nor here")
        assert "can't be written" in str(native.ready())
    finally:
        native.library.cache_clear()


def test_a_library_that_does_not_load_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "path", lambda name: tmp_path / f"{name}.so")
    for name in native.names():
        native.path(name).write_bytes(b"not a library")
    native.library.cache_clear()
    try:
        assert native.library("rows") is None
        assert native.ready() == f"{', '.join(native.names())} can't be loaded by this TensorFlow"
    finally:
        native.library.cache_clear()


def test_a_graph_names_the_libraries_that_it_calls() -> None:
    if native.library("rows") is None:
        pytest.skip("nothing was built: no C++ compiler")

    @tf.function
    def inner(ids: tf.Tensor) -> tf.Tensor:
        return native.library("rows").embexp_distinct(ids=ids)[0]

    traced = tf.function(lambda ids: tf.cond(tf.size(ids) > 0, lambda: inner(ids), lambda: ids))
    graph = traced.get_concrete_function(tf.TensorSpec([None], tf.int64)).graph
    assert native.used(graph.as_graph_def()) == ["rows"]
    assert native.used(tf.Graph().as_graph_def()) == []
