"""Libraries of fused operations, built once, before the first training: `python -m embexp.system.native`.

Each belongs to one version of TensorFlow and of its source in `native_code`; others are ignored. A platform wheel has
them. Nothing needs them: without, steps run TensorFlow's own operations, with the same results to the last bit.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from embexp.system import caching, environment, files, locks
from embexp.system.printable import print

SOURCES = Path(__file__).with_name("native_code")
BUILT = SOURCES / "built"
_COMPILERS = ("c++", "g++", "clang++")
# TensorFlow's wheels are built for AVX and without fused multiply-add; with others, last bits would differ.
_MACHINE = {"x86_64": ["-mavx"]}
_FLAGS = ["-w", "-O2", "-DNDEBUG", "-ffp-contract=off", "-fPIC", "-shared"]
_REGISTERED = re.compile(r'REGISTER_OP\("(\w+)"\)')


def names() -> list[str]:
    """Of all libraries, built or not."""
    return [source.stem for source in sorted(SOURCES.glob("*.cc"))]


@functools.cache
def library(name: str) -> Any:
    """The operations of `native_code/NAME.cc`, or None if they were not built for this TensorFlow."""
    import tensorflow as tf

    built = path(name)
    if not built.exists():
        return None
    try:
        return tf.load_op_library(str(built))
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError):  # of another build of TensorFlow
        return None


def used(graph: Any) -> list[str]:
    """The libraries that have operations in a GraphDef, and in its functions."""
    nodes = itertools.chain(graph.node, *(function.node_def for function in graph.library.function))
    kinds = {node.op for node in nodes}
    return [name for name in names() if not kinds.isdisjoint(_REGISTERED.findall(_source(name).read_text("utf-8")))]


def path(name: str) -> Path:
    """Where the library of a source, and of the headers, lies for this TensorFlow, or would lie in the package."""
    import tensorflow as tf

    parts = [tf.__version__, tf.version.COMPILER_VERSION, platform.machine(), *_flags()]
    headers = sorted(SOURCES.glob("*.h"))
    content = b"".join(file.read_bytes() for file in (_source(name), *headers))
    file = f"{name}-{hashlib.sha256(chr(0).join(parts).encode() + content).hexdigest()[:16]}.so"
    found = (folder / file for folder in _folders() if (folder / file).exists())
    return next(found, BUILT / file)


def ready(say: Callable[[str], object] = lambda sentence: None) -> str | None:
    """Builds what is missing before a training.

    Args:
        say: called with a sentence before a build and after it.

    Returns:
        Why there are libraries that the training can't use; None: it can use all.
    """
    try:
        build(say)
        unloaded = [name for name in names() if library(name) is None]
        why = f"{', '.join(unloaded)} can't be loaded by this TensorFlow" if unloaded else None
    except OSError as error:
        why = str(error).partition(":\n")[0]  # what the compiler says is long
    if why is not None:
        more = "`python -m embexp.system.native` tries again with full output"
        say(f"no fused operations: {why}. Training uses TensorFlow's own, which are slower; {more}")
    return why


def build(say: Callable[[str], object] = lambda sentence: None) -> list[Path]:
    """Compiles the libraries that are not there, which takes about a minute.

    One process builds, and others wait for it. They are put into the package or, where that can only be read, into the
    user's cache.

    Raises:
        OSError: there is no compiler, or it failed, or no folder can be written.
    """
    environment.load_tensorflow()
    if _missing():
        named = os.environ.get("CXX")
        compiler = next(filter(None, map(shutil.which, [named] if named else _COMPILERS)), None)
        if compiler is None:
            raise OSError(f"no C++ compiler was found ({named or ', '.join(_COMPILERS)}); install g++, or set CXX")
        folder = next(filter(_writable, _folders()), None)
        if folder is None:
            raise OSError(f"{' and '.join(map(str, _folders()))} can't be written")
        lock = locks.of_folder(folder, f"the build in {folder}")
        with lock.awaited(lambda: say("waiting for another process to build fused operations")):
            files.remove_leftovers(folder)
            if missing := _missing():  # still
                _compile(compiler, missing, folder, say)
    return [path(name) for name in names()]


def _missing() -> list[str]:
    return [name for name in names() if not path(name).exists()]


def _folders() -> list[Path]:
    """Where libraries may lie: in the package, and in the user's cache."""
    with contextlib.suppress(RuntimeError):  # there is no home
        return [BUILT, caching.cache_folder(None) / "fused_operations"]
    return [BUILT]


def _writable(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return os.access(folder, os.W_OK | os.X_OK)


def _compile(compiler: str, missing: list[str], folder: Path, say: Callable[[str], object]) -> None:
    import tensorflow as tf

    say(f"building fused operations for TensorFlow {tf.__version__}, once: about a minute")
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="embexp-")))
        running, group = {}, stack.enter_context(_group_that_ends_with_this_process())
        for name in missing:
            flags = [*tf.sysconfig.get_compile_flags(), *_flags()]
            command = [compiler, *flags, str(_source(name)), "-o", str(made / name), *tf.sysconfig.get_link_flags()]
            started = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=group
            )
            running[name] = stack.enter_context(started)
            stack.callback(_end, started)  # when another has failed, or a signal has come
        for process in running.values():
            _, errors = process.communicate()
            if process.returncode:
                raise OSError(f"{compiler} ended with status {process.returncode}:\n{errors[:2000]}")
        for name in missing:
            with files.atomic_write(folder / path(name).name) as whole:
                whole.write((made / name).read_bytes())
    library.cache_clear()  # which may know that they were missing
    say(f"built fused operations in {time.monotonic() - began:.0f} s")


@contextlib.contextmanager
def _group_that_ends_with_this_process() -> Iterator[int]:
    """Yields a group of processes that, within the block, is killed as soon as this process ends, even by SIGKILL.

    A shell in it waits for the end of a pipe that only this process holds. A process that is started there later holds
    it until it is in the group, so none escapes.
    """
    reading, writing = os.pipe()
    script = "read -r line; kill -s KILL 0"
    watch = subprocess.Popen(["/bin/sh", "-c", script], stdin=reading, stderr=subprocess.DEVNULL, process_group=0)
    os.close(reading)
    try:
        yield watch.pid
    finally:
        watch.kill()
        watch.wait()
        os.close(writing)


def _end(compiler: subprocess.Popen[str]) -> None:
    """Ends a compiler that still runs, and what it has started."""
    if compiler.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in psutil.Process(compiler.pid).children(recursive=True):
                each.kill()
        compiler.kill()


def _source(name: str) -> Path:
    return SOURCES / f"{name}.cc"


def _flags() -> list[str]:
    return [*_FLAGS, *_MACHINE.get(platform.machine(), [])]


def main() -> int:
    """Builds; says where they are, or why not."""
    try:
        for each in build(print):
            print(f"fused operations: {each}")
    except OSError as error:
        print(f"no fused operations: {error}\nTraining steps run TensorFlow's own, with the same results.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
