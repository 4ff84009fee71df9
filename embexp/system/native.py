"""Libraries of fused operations, built where there is a C++ compiler: `python -m embexp.system.native`.

Each belongs to one version of TensorFlow and of its source in `native_code`; others are ignored. Nothing needs them:
without, steps run TensorFlow's own operations, with the same results to the last bit.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from embexp.system import environment
from embexp.system.printable import print

SOURCES = Path(__file__).with_name("native_code")
_BUILT = SOURCES / "built"
_COMPILERS = ("c++", "g++", "clang++")
# TensorFlow's wheels are built for AVX and without fused multiply-add; with others, last bits would differ.
_MACHINE = {"x86_64": ["-mavx"]}
_FLAGS = ["-w", "-O2", "-DNDEBUG", "-ffp-contract=off", "-fPIC", "-shared"]


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


def path(name: str) -> Path:
    """Where the library of a source, and of the headers, lies for this TensorFlow, if it was built."""
    import tensorflow as tf

    parts = [tf.__version__, tf.version.COMPILER_VERSION, platform.machine(), *_flags()]
    headers = sorted(SOURCES.glob("*.h"))
    content = b"".join(file.read_bytes() for file in (SOURCES / f"{name}.cc", *headers))
    return _BUILT / f"{name}-{hashlib.sha256(chr(0).join(parts).encode() + content).hexdigest()[:16]}.so"


def build() -> list[Path]:
    """Compiles the libraries that are not there, which takes 10 to 20 seconds.

    Raises:
        OSError: there is no compiler, or it failed, or the folder can't be written.
    """
    environment.load_tensorflow()
    missing = [name for name in names() if not path(name).exists()]
    if missing:
        named = os.environ.get("CXX")
        compiler = next(filter(None, map(shutil.which, [named] if named else _COMPILERS)), None)
        if compiler is None:
            raise OSError(f"no C++ compiler was found ({named or ', '.join(_COMPILERS)}); set CXX to one")
        _BUILT.mkdir(exist_ok=True)
        with ThreadPoolExecutor() as pool:
            list(pool.map(functools.partial(_compile, compiler), missing))
    return [path(name) for name in names()]


def _compile(compiler: str, name: str) -> None:
    import tensorflow as tf

    with tempfile.TemporaryDirectory(dir=_BUILT) as folder:
        made = Path(folder) / "made.so"
        flags = [*tf.sysconfig.get_compile_flags(), *_flags()]
        command = [compiler, *flags, str(SOURCES / f"{name}.cc"), "-o", str(made), *tf.sysconfig.get_link_flags()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{compiler} ended with status {done.returncode}:\n{done.stderr[:2000]}")
        made.replace(path(name))


def _flags() -> list[str]:
    return [*_FLAGS, *_MACHINE.get(platform.machine(), [])]


def main() -> int:
    """Builds; says where they are, or why not."""
    try:
        for each in build():
            print(f"fused operations: {each}")
    except OSError as error:
        print(f"no fused operations: {error}\nTraining steps run TensorFlow's own, with the same results.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
