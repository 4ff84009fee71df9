"""A web server on this machine, for tests of what is fetched: nothing beyond the loopback is reached."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    """Answers GET by path.

    Attributes:
        answers: path -> content, or a function that answers.
        asked: paths, in the order in which they were asked for.
        over: set when the server ends; an answer that is to hang waits for it.
    """

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, bytes | Answer] = {}
        self.asked: list[str] = []
        self.over = threading.Event()

    def url(self, path: str) -> str:
        """The URL of a path, which begins with a slash."""
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing where a client went away."""


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        answer = self.server.answers.get(self.path)
        if answer is None:
            self.send_error(404)
        elif isinstance(answer, bytes):
            head(self, len(answer))
            self.wfile.write(answer)
        else:
            answer(self)

    def log_message(self, format: str, *values: object) -> None:
        """Says nothing."""


def head(handler: BaseHTTPRequestHandler, length: int | None) -> None:
    """Answers 200, with a length unless it is None."""
    handler.send_response(200)
    if length is not None:
        handler.send_header("Content-Length", str(length))
    handler.end_headers()


@contextmanager
def served() -> Iterator[Server]:
    """A server that runs until the block ends."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def closed_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
