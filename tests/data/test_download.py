"""Files of the web: whole, or an error that says why. The server is on this machine."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from embexp.data import datasets as module
from embexp.data.datasets import DownloadError, download
from tests import disks, loopback
from tests.loopback import Server
from tests.small_data_sets import no_proxies

CONTENT = bytes(range(256)) * 4_000


@pytest.fixture
def server() -> Iterator[Server]:
    with loopback.served() as server:
        yield server


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    no_proxies(monkeypatch)


def got(url: str, to: Path, limit: int = len(CONTENT)) -> list[int]:
    seen: list[int] = []
    download(url, to, limit=limit, progress=seen.append)
    return seen


def test_a_file_comes_whole(server: Server, tmp_path: Path) -> None:
    server.answers["/file"] = CONTENT
    seen = got(server.url("/file"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert seen == sorted(seen)
    assert seen[-1] == len(CONTENT)


def test_a_redirection_is_followed(server: Server, tmp_path: Path) -> None:
    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", "/file")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.answers |= {"/old": elsewhere, "/file": CONTENT}
    got(server.url("/old"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_proxy_of_the_environment_is_asked(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.url(""))
    server.answers["http://data.invalid/file"] = CONTENT
    got("http://data.invalid/file", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_missing_file_and_a_refused_connection(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"^the server answers 404 Not Found$"):
        got(server.url("/none"), tmp_path / "file")
    with pytest.raises(DownloadError, match=r"^Connection refused$"):
        got(f"http://127.0.0.1:{loopback.closed_port()}/file", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_no_machine_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(DownloadError, match=r"^Name or service not known$"):
        got("http://nowhere.invalid/file", tmp_path / "file")


def test_a_connection_that_ends_too_early(server: Server, tmp_path: Path) -> None:
    def cut(handler: BaseHTTPRequestHandler) -> None:
        loopback.head(handler, len(CONTENT))
        handler.wfile.write(CONTENT[:1000])

    server.answers["/file"] = cut
    with pytest.raises(DownloadError, match=r"^the connection ended after 1,000 of 1,024,000 bytes$"):
        got(server.url("/file"), tmp_path / "file")


def test_a_server_that_stops_sending(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(handler: BaseHTTPRequestHandler) -> None:
        loopback.head(handler, len(CONTENT))
        handler.wfile.write(CONTENT[:1000])
        handler.wfile.flush()
        server.over.wait(10.0)

    monkeypatch.setattr(module, "SECONDS", 0.2)
    server.answers |= {"/file": hang, "/silent": lambda _: server.over.wait(10.0) and None}
    for path in ("/file", "/silent"):
        with pytest.raises(DownloadError, match=r"^no answer for 0.2 s$"):
            got(server.url(path), tmp_path / path[1:])


@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
def test_more_bytes_than_expected_are_not_taken(server: Server, tmp_path: Path, told: bool) -> None:
    def much(handler: BaseHTTPRequestHandler) -> None:
        loopback.head(handler, len(CONTENT) if told else None)
        handler.wfile.write(CONTENT)

    server.answers["/file"] = much
    with pytest.raises(DownloadError, match="1,024,000 bytes, expected 1,000" if told else "more than the 1,000 bytes"):
        got(server.url("/file"), tmp_path / "file", limit=1000)
    assert not (tmp_path / "file").exists() or (tmp_path / "file").stat().st_size <= 1000


def test_a_full_disk_is_an_error_of_the_system_with_the_file(server: Server, tmp_path: Path) -> None:
    server.answers["/file"] = CONTENT
    with disks.small(tmp_path / "disk", kilobytes=64) as disk:
        with pytest.raises(OSError, match="No space left") as raised:
            got(server.url("/file"), disk / "file")
        assert raised.value.errno == errno.ENOSPC
        assert raised.value.filename == str(disk / "file")
