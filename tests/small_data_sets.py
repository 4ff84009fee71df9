"""Public data sets in small: files of the owners' form, served on this machine, in the table of `data.fetch`."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from embexp.config import resources
from embexp.data import datasets
from embexp.data import datasets as forms
from embexp.data.datasets import DATA_SETS, DataSet, Remote
from tests.loopback import Server

RING = {
    "train.txt": b"a\tlikes\tb\nb\tlikes\tc\nc\tlikes\ta\n" * 2,
    "valid.txt": b"a\tlikes\tc\n",
    "test.txt": b"b\tlikes\ta\n",
}
"""The files of a graph of three entities."""


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def no_proxies(patch: pytest.MonkeyPatch) -> None:
    """Has nothing between a test and the server on this machine."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        patch.delenv(name, raising=False)


def use_folder(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Has data sets fetched anew, past any proxy, and kept in a folder."""
    no_proxies(patch)
    patch.setenv(datasets.VARIABLE, str(folder))
    patch.setattr(resources, "_failed", {})


def serve(server: Server, files: Mapping[str, bytes]) -> tuple[Remote, ...]:
    """Files on a server, and their entries of the table."""
    server.answers |= {f"/{name}": content for name, content in files.items()}
    return tuple(Remote(server.url(f"/{name}"), len(each), sha256(each)) for name, each in files.items())


def add_ring(server: Server, patch: pytest.MonkeyPatch, files: Mapping[str, bytes] = RING) -> DataSet:
    """A data set `ring` in the table, of three files on a server."""
    remote = serve(server, files)
    found = DataSet("a ring", "free", "https://ring.example", remote, ("triples",), ("knowledge_graph",), forms.copies)
    patch.setitem(DATA_SETS, "ring", found)
    return found


def replace_files(server: Server, patch: pytest.MonkeyPatch, name: str, files: Mapping[str, bytes]) -> None:
    """Other files for a data set of the table."""
    patch.setitem(DATA_SETS, name, replace(DATA_SETS[name], files=serve(server, files)))


def small(name: str, patch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Files of the form of a data set, so small that a test reads them at once."""
    match name:
        case "ml-100k":
            flags = "|".join("1" if each == "Drama" else "0" for each in forms._GENRES)
            ratings = "".join(f"{user}\t{item}\t{rating}\t{time}\n" for user, item, rating, time in _ratings())
            items = "".join(f"{item}|Film (199{item})|01-Jan-1995||http://x|{flags}\n" for item in range(6))
            users = "".join(f"{user}|24|M|technician|85711\n" for user in range(10))
            return zipped({"ml-100k/u.data": ratings, "ml-100k/u.item": items, "ml-100k/u.user": users})
        case "ml-1m":
            ratings = "".join("::".join(map(str, row)) + "\n" for row in _ratings())
            items = "".join(f"{item}::Film (199{item})::Drama|Comedy\n" for item in range(6))
            users = "".join(f"{user}::F::1::10::48067\n" for user in range(10))
            return zipped({"ml-1m/ratings.dat": ratings, "ml-1m/movies.dat": items, "ml-1m/users.dat": users})
        case "ml-20m" | "ml-25m" | "ml-32m":
            ratings = "userId,movieId,rating,timestamp\n"
            ratings += "".join(",".join(map(str, row)) + "\n" for row in _ratings())
            items = "movieId,title,genres\n" + "".join(f'{item},"Film, The (199{item})",Drama\n' for item in range(6))
            return zipped({f"{name}/ratings.csv": ratings, f"{name}/movies.csv": items})
        case "imdb":
            parts = [(part, label) for part in ("train", "test") for label in ("pos", "neg")]
            texts = {
                f"aclImdb/{part}/{label}/{number}_7.txt": f"a {label} film of {number % 3} stars"
                for part, label in parts
                for number in range(20)
            }
            return {"aclImdb_v1.tar.gz": tarred(texts)}
        case "text8":
            text = " anarchism originated as a term of abuse first used against early" * 400
            patch.setattr(forms, "_TEXT8_MD5", hashlib.md5(text.encode()).hexdigest())
            return zipped({"text8": text})
        case _:
            return dict(RING)


def _ratings() -> Sequence[tuple[int, int, int, int]]:
    """User, item, stars, time."""
    return [(user, item, 1 + (user + item) % 5, 1000 + 10 * user + item) for user in range(10) for item in range(6)]


def zipped(members: Mapping[str, str]) -> dict[str, bytes]:
    """An archive in Latin-1, by a name."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text.encode("latin-1"))
    return {"archive.zip": packed.getvalue()}


def tarred(members: Mapping[str, str], links: Mapping[str, str] | None = None) -> bytes:
    """A tar.gz with texts in UTF-8, and links."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
    return packed.getvalue()
