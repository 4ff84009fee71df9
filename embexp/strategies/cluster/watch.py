"""Ends a worker that waits for one that is gone while TensorFlow forms its cluster.

TensorFlow holds Python's lock until all workers are there, so no thread of the worker can notice a loss or a deadline.
A small process does, which executes this module without any other of embexp, and which ends with the worker.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def watched(connections: Mapping[str, int], *, seconds: float) -> Iterator[None]:
    """Within the block, this process is killed as soon as a connection ends, or when it takes too long.

    Args:
        connections: descriptors of sockets, by the name of who is at the other end.
        seconds: that the block may take.
    """
    names = [word for name, descriptor in connections.items() for word in (str(descriptor), name)]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(seconds), *names],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=list(connections.values()),
        start_new_session=True,  # Ctrl-C is for the worker
    )
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def _watch(worker: int, seconds: float, names: Mapping[int, str]) -> None:
    """Waits for the end of a connection, of the worker, or of its time."""
    waiting = select.poll()
    for descriptor in names:
        waiting.register(descriptor, select.POLLRDHUP)
    waiting.register(sys.stdin, 0)  # it ends with the worker
    ended = [descriptor for descriptor, _ in waiting.poll(seconds * 1_000)]
    if sys.stdin.fileno() in ended:
        return
    lost = ", ".join(names[descriptor] for descriptor in ended)
    why = f"{lost} was lost" if lost else f"it took more than {seconds:g} seconds"
    os.write(2, f"embexp: {why} while TensorFlow formed the cluster; `embexp resume` goes on with the run\n".encode())
    os.kill(worker, signal.SIGKILL)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), float(sys.argv[2]), dict(zip(map(int, sys.argv[3::2]), sys.argv[4::2], strict=True)))
