"""Whether what listens somewhere is a gRPC server, as every worker of TensorFlow is; asked without TensorFlow."""

from __future__ import annotations

import socket
import time

from embexp.system import environment

_CALL = "/tensorflow.WorkerService/GetStatus"
"""TensorFlow's own first call of a worker; it changes nothing there."""
_SILENCE_SECONDS = 2.0
"""For the greeting: a server that is awake sends it at once."""
_CALL_SECONDS = 1.0
"""For the answer to a call. It may be late: TensorFlow asks again, and takes its own time."""


def fault(host: str, port: int, until: float) -> str | None:
    """Greets what listens as a client of gRPC does, and says what is wrong with its answer; None: nothing.

    Args:
        host: name or address of the machine.
        port: on which it listens.
        until: when to give up, by `time.monotonic`.

    Returns:
        Words that go on after "it".

    Raises:
        OSError: nothing takes connections there.
    """
    socket.create_connection((host, port), timeout=max(0.1, until - time.monotonic())).close()
    environment.quiet()
    import grpc

    silent = min(max(0.1, until - time.monotonic()), _SILENCE_SECONDS)
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with grpc.insecure_channel(target, options=(("grpc.enable_http_proxy", 0),)) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=silent)
        except grpc.FutureTimeoutError:
            return f"does not greet as a server of gRPC within {silent:.1f} s"
        try:
            channel.unary_unary(_CALL)(b"", timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            # Something that speaks HTTP/2, as proxies do, can greet as well; but a gRPC server answers every call with
            # status 200 of HTTP, whatever comes of it (gRPC over HTTP/2, "Responses").
            if "http2 header with status" in (said := error.details() or ""):
                return f"speaks HTTP/2 without gRPC ({said})"
    return None
