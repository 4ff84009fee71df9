"""The environment of a process that trains or predicts: the one place where it is set."""

from __future__ import annotations

import importlib
import os
import re
import resource
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from embexp.system import collector

_CHATTER = re.compile(rb"^(WARNING: All log messages before absl::InitializeLog\(\)|[IW]\d{4} \d\d:\d\d:)")
"""Lines of information and warning that TensorFlow's libraries write while they are loaded, whatever the log level."""


_ADDRESSES = 2_500_000_000
"""Addresses that TensorFlow takes before it has done anything: its libraries, and the stacks of its threads."""
_ASIDE = ("sklearn", "pandas", "matplotlib")
"""Packages that Keras imports if they are installed: for its wrappers for scikit-learn, for DataFrames as the input of
`Model.fit`, for galleries of images. They take a third of the import, and no run uses these."""


def quiet() -> None:
    """Asks TensorFlow and gRPC for errors only, unless the user has set otherwise; to be called before either."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    os.environ.setdefault("AUTOGRAPH_VERBOSITY", "0")


def load_tensorflow() -> None:
    """Imports TensorFlow without its chatter, as Keras' backend. To be called before anything that imports it.

    What the user has set in the environment stays as it is, but for the backend: embexp trains with TensorFlow. In the
    process of a command, Keras is imported as if packages that no run uses were not installed.
    """
    if "tensorflow" not in sys.modules and 0 <= resource.getrlimit(resource.RLIMIT_AS)[0] < _ADDRESSES:
        raise MemoryError(f"TensorFlow needs {_ADDRESSES / 1e9:.3g} GB of addresses")  # else it ends the process
    quiet()
    os.environ["KERAS_BACKEND"] = "tensorflow"
    with collector.paused(), _without_chatter(), hidden(_ASIDE if collector.serves_a_command() else ()):
        importlib.import_module("tensorflow")


@contextmanager
def hidden(packages: Iterable[str]) -> Iterator[None]:
    """Within the block, packages that are not imported yet can't be: their import raises `ModuleNotFoundError`."""
    names = [name for name in packages if name not in sys.modules]
    sys.modules |= dict.fromkeys(names)  # type: ignore[arg-type]  # None: what Python's documentation has for this
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Buffers the standard error within the block, and passes it on afterwards without chatter.

    The libraries write to the file descriptor itself, so `sys.stderr` is not enough.
    """
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ and os.environ["TF_CPP_MIN_LOG_LEVEL"] in ("0", "1"):
        yield  # the user wants to see it
        return
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            held.seek(0)
            for line in held:
                if not _CHATTER.match(line):
                    os.write(2, line)
