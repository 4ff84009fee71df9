"""A file from the web by its URL. Standard library only; proxies are those of the environment."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from embexp.system import files

SECONDS = 10.0
"""A server that sends nothing for so long counts as out of reach."""
_AT_ONCE = 1 << 18


class DownloadError(Exception):
    """A file that could not be had; the message says why, without the URL."""


def download(url: str, to: Path, *, limit: int, progress: Callable[[int], None]) -> None:
    """Writes what a URL holds into a new file, which the caller removes if this fails.

    Args:
        url: http or https.
        limit: bytes that it may have at most.
        progress: called with the bytes that are there so far.

    Raises:
        DownloadError: it can't be had, ends too early, or is larger than the limit.
        OSError: the file can't be written.
    """
    with contextlib.closing(_opened(url)) as response:
        length = _length(response)
        if length is not None and length > limit:
            raise DownloadError(f"the server offers {length:,} bytes, expected {limit:,}")
        done = 0
        with files.naming(to), to.open("xb") as file:
            while block := _read(response):
                done += len(block)
                if done > limit:
                    raise DownloadError(f"the server sends more than the {limit:,} bytes that were expected")
                file.write(block)
                progress(done)
    if length is not None and done < length:
        raise DownloadError(f"the connection ended after {done:,} of {length:,} bytes")


def _opened(url: str) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "embexp"})
    try:
        return urllib.request.build_opener().open(request, timeout=SECONDS)  # with the proxies as they are now
    except urllib.error.HTTPError as error:
        error.close()
        raise DownloadError(_reason(error)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a proxy that is no URL
        raise DownloadError(_reason(error)) from error


def _length(response: Any) -> int | None:
    found = response.headers.get("Content-Length")
    return int(found) if found is not None and found.isdecimal() else None


def _read(response: Any) -> bytes:
    try:
        return bytes(response.read(_AT_ONCE))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DownloadError(_reason(error)) from error


def _reason(error: BaseException) -> str:
    """Why a server gave nothing, in a few words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}".rstrip()
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException):
        return _reason(error.reason)
    if isinstance(error, TimeoutError):
        return f"no answer for {SECONDS:.3g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
