"""Forks of a process that has imported TensorFlow."""

from __future__ import annotations

import os
import warnings


def fork() -> int:
    """`os.fork`, without the warning that Python 3.12 and later give where a process has other threads.

    For a process that has started none of its own. Imports start some: NumPy's OpenBLAS one for each further core, and
    Arrow's allocator, jemalloc, one. They run no Python, and their libraries handle a fork (`pthread_atfork`).

    Returns:
        0 in the child, in the parent the child's process id.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"This process \(pid=\d+\) is multi-threaded", DeprecationWarning)
        return os.fork()
