"""Cuts the processor's operations into the same number of pieces, whatever the number of threads that work on them.

TensorFlow's kernels cut a sum or a product into as many pieces as there are threads, which decides its last bits. Here
they are told one number, and any number of threads works on the pieces (`native_code/pieces.cc`). Without that library,
a pool of as many threads gives the same bits; it is slower where there are fewer cores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from embexp.system import machine, native

_LIBRARY = "pieces"
_in_force: int | None = None
"""Of this process; None: TensorFlow decides."""


def set_threads(intra_op: int, inter_op: int, pieces: int) -> str | None:
    """Sets the numbers of threads; they can't change once TensorFlow has run its first operation.

    Args:
        intra_op: threads inside one operation; 0: a thread for each core.
        inter_op: operations at once; 0: TensorFlow decides. `embexp.system.machine.kernel_threads` tells how.
        pieces: see `machine.pieces`.

    Returns:
        Why last bits may be others than those of the same run elsewhere; None: they are not.

    Raises:
        RuntimeError: TensorFlow is already running with other numbers than were asked for.
    """
    _set("inter", inter_op)
    if native.library(_LIBRARY) is not None:
        _set("intra", intra_op)
        return None
    try:
        _set("intra", machine.pieces(pieces))
    except RuntimeError:
        return "TensorFlow was already running with other thread counts, so the last bits of large products may differ"
    return None


def _set(kind: str, count: int) -> None:
    threading = tf.config.threading
    if count != getattr(threading, f"get_{kind}_op_parallelism_threads")():
        getattr(threading, f"set_{kind}_op_parallelism_threads")(count)


def cut(pieces: int, device: str | None = None) -> None:
    """Has this process' processors cut operations into so many pieces, see `machine.pieces`.

    Args:
        device: TensorFlow's name of the only one, in a cluster; None: all that are in none.
    """
    global _in_force
    library = native.library(_LIBRARY)
    if library is None:
        return
    _in_force = machine.pieces(pieces)
    own = [device] if device is not None else _out_of_clusters()
    for name in own:
        with tf.device(name):
            library.embexp_pieces(pieces=_in_force)


def cut_again(pieces: int) -> None:
    """Has this process cut operations as a run did that has ended, see `cut`, whatever it has computed before."""
    if native.library(_LIBRARY) is not None:
        cut(pieces)
        return
    with contextlib.suppress(RuntimeError):  # TensorFlow ran before, with other numbers of threads
        _set("intra", machine.pieces(pieces))


def _out_of_clusters() -> list[str]:
    names = [each.name for each in tf.config.list_logical_devices("CPU")]
    return [name for name in names if tf.DeviceSpec.from_string(name).job is None]


def cut_in_session() -> Callable[[Any], None]:
    """What does the same for the devices of a session of the default graph, which are its own."""
    if _in_force is None:
        return lambda session: None
    with tf.device("CPU:0"):
        operation = native.library(_LIBRARY).embexp_pieces(pieces=_in_force)

    def fill(session: Any) -> None:
        session.run(operation)

    return fill
