"""Builds the library of `native_rows.cc`, where there is a C++ compiler: `python -m embexp.tables.native_build`.

It belongs to one version of TensorFlow and of the source; others are ignored. Nothing needs it: without it, steps run
TensorFlow's own operations, with the same results to the last bit.
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
from pathlib import Path

from embexp.system import environment

_SOURCE = Path(__file__).with_name("native_rows.cc")
_FOLDER = Path(__file__).with_name("_native")
_COMPILERS = ("c++", "g++", "clang++")
# TensorFlow's wheels are built for AVX and without fused multiply-add; with others, last bits would differ.
_MACHINE = {"x86_64": ["-mavx"]}
_FLAGS = ["-w", "-O2", "-DNDEBUG", "-ffp-contract=off", "-fPIC", "-shared"]


def path() -> Path:
    """Where the library for this TensorFlow lies, if it was built."""
    return _FOLDER / f"rows-{_key()}.so"


def build() -> Path:
    """Compiles the library, which takes 10 to 20 seconds, unless it is there.

    Raises:
        OSError: there is no compiler, or it failed, or the folder can't be written.
    """
    environment.load_tensorflow()
    import tensorflow as tf

    if path().exists():
        return path()
    named = os.environ.get("CXX")
    compiler = next(filter(None, map(shutil.which, [named] if named else _COMPILERS)), None)
    if compiler is None:
        raise OSError(f"no C++ compiler was found ({named or ', '.join(_COMPILERS)}); set CXX to one")
    _FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        made = Path(folder) / "rows.so"
        command = [
            compiler,
            *tf.sysconfig.get_compile_flags(),
            *_flags(),
            str(_SOURCE),
            "-o",
            str(made),
            *tf.sysconfig.get_link_flags(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{compiler} ended with status {done.returncode}:\n{done.stderr[:2000]}")
        made.replace(path())
    return path()


def _flags() -> list[str]:
    return [*_FLAGS, *_MACHINE.get(platform.machine(), [])]


@functools.cache
def _key() -> str:
    import tensorflow as tf

    parts = [
        tf.__version__,
        tf.version.COMPILER_VERSION,
        platform.machine(),
        *_FLAGS,
        *_MACHINE.get(platform.machine(), []),
    ]
    return hashlib.sha256("\0".join(parts).encode() + _SOURCE.read_bytes()).hexdigest()[:16]


def main() -> int:
    """Builds; says where it is, or why not."""
    try:
        print(f"fused row updates: {build()}")
    except OSError as error:
        print(f"no fused row updates: {error}\nTraining steps run TensorFlow's own operations, with the same results.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
