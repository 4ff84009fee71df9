"""The public data sets known by name, which datasets.yaml lists, and what is made of their files.

From the files of public data sets to the form that a source reads: RecBole's atomic files, triples, texts. Only members
of archives that are named here are read, and they are written under names of this module, so no archive says where
something is written. What is read has been compared with a digest.

Data sets by name (`data.fetch`): found on this machine, or fetched from their owners, and kept.

A data set is kept in a folder `NAME-DIGEST` of `folder()`, made once and whole (`system/caching.py`): of several
processes one fetches, and the others wait for it. Nothing is fetched unless its name is asked for.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib.util
import io
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import yaml

from embexp.errors import ConfigError, DataError, Fault, read_by_library
from embexp.specs.data import Columnar, Data, named_paths, with_paths
from embexp.system import caching, digests, files, machine_faults, stores
from embexp.system.locks import FileLock
from embexp.system.parallel import Progress

FORMAT = 1
"""Version of what is made of the owners' files; raised when that changes."""

Write = Callable[[Mapping[str, Path], Path], None]
"""Called with the owners' files by name, and an empty folder to fill; it reads what the digests have vouched for."""
_LARGEST = 1 << 30
"""Bytes of the largest member: the ratings of ml-32m have 0.88 GB."""
_AT_ONCE = 1 << 22
_INTERACTIONS = b"user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
_ITEMS = "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
_USERS = "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
_GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
"""Those of ml-100k, in the order of its columns."""
_NO_GENRE = "(no genres listed)"

Rows = Iterable[list[str]]


@dataclass(frozen=True)
class Remote:
    """A file as its owners have it.

    Attributes:
        size: in bytes; more are not taken.
        digest: `sha256:…` or `md5:…`, in hexadecimal digits.
        package: an installed package that may carry it, and its path there; None: none does.
    """

    url: str
    size: int
    digest: str
    package: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class DataSet:
    """A public data set.

    Attributes:
        about: what it is, in a few words.
        page: of the owners, with all the terms.
        kinds: the kinds of source that read it.
        experiments: those that it fits, as they are written on the command line.
        write: makes what `data.path` names of the files.
        path: file in the folder that `write` fills, which is `data.path`; "": the folder.
    """

    about: str
    terms: str
    page: str
    files: tuple[Remote, ...]
    kinds: tuple[str, ...]
    experiments: tuple[str, ...]
    write: Write
    path: str = ""

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class MovieLens:
    """How the files of a MovieLens archive are written.

    Attributes:
        ratings: name of the file of ratings: user, item, rating, time.
        separator: of its columns.
        header: whether it has a header line.
        items: name of the file of films, and a function from its text to rows of id, title and genres.
        users: name of the file of users, and a function from its text to rows of id, age, gender, occupation and zip
            code; None: there is none.
    """

    ratings: str
    separator: bytes
    header: bool
    items: tuple[str, Callable[[str], Rows]]
    users: tuple[str, Callable[[str], Rows]] | None = None


def _fields(text: str, separator: str) -> Iterator[list[str]]:
    return (line.split(separator) for line in text.splitlines() if line)


def _items_100k(text: str) -> Rows:
    for number, title, _, _, _, *flags in _fields(text, "|"):
        genres = [genre for genre, flag in zip(_GENRES, flags, strict=True) if flag == "1"]
        yield [number, title, " ".join(genres)]


def _items_1m(text: str) -> Rows:
    return ([number, title, genres.replace("|", " ")] for number, title, genres in _fields(text, "::"))


def _items_csv(text: str) -> Rows:
    rows = csv.reader(io.StringIO(text, newline=""))
    next(rows, None)
    for number, title, genres in rows:
        yield [number, title, "" if genres == _NO_GENRE else genres.replace("|", " ")]


def _users_1m(text: str) -> Rows:
    return ([user, age, gender, *rest] for user, gender, age, *rest in _fields(text, "::"))


ML_100K = MovieLens("u.data", b"\t", False, ("u.item", _items_100k), ("u.user", lambda text: _fields(text, "|")))
ML_1M = MovieLens("ratings.dat", b"::", False, ("movies.dat", _items_1m), ("users.dat", _users_1m))
ML_CSV = MovieLens("ratings.csv", b",", True, ("movies.csv", _items_csv))


def movielens(name: str, form: MovieLens, files: Mapping[str, Path], folder: Path) -> None:
    """Writes a MovieLens archive as RecBole's atomic files, of the form in which RecBole has them.

    Args:
        name: of the data set, which is also the name of the folder in the archive.
    """
    [archive] = files.values()
    with zipfile.ZipFile(archive) as packed:
        with _member(packed, f"{name}/{form.ratings}") as ratings, (folder / f"{name}.inter").open("wb") as out:
            out.write(_INTERACTIONS)
            if form.header:
                ratings.readline()
            while lines := ratings.readlines(_AT_ONCE):
                out.write(b"".join(lines).replace(form.separator, b"\t").replace(b"\r\n", b"\n"))
        file, rows = form.items
        items = ([number, *_title_and_year(title), genres] for number, title, genres in rows(_text(packed, name, file)))
        _write(folder / f"{name}.item", _ITEMS, items)
        if form.users is not None:
            file, rows = form.users
            _write(folder / f"{name}.user", _USERS, rows(_text(packed, name, file)))


def copies(files: Mapping[str, Path], folder: Path) -> None:
    """Takes the files as they are."""
    for name, path in files.items():
        shutil.copyfile(path, folder / name)


def imdb(files: Mapping[str, Path], folder: Path) -> None:
    """Writes the labelled reviews of the archive as lines label<TAB>text: those of its `train`, then those of `test`.

    In each, positive and negative ones alternate, so that the last ones of `train` can validate.
    """
    import tarfile

    found: dict[tuple[str, int, str], str] = {}
    [archive] = files.values()
    with tarfile.open(archive, "r:gz") as packed:
        for member in packed:
            place = re.fullmatch(r"aclImdb/(train|test)/(pos|neg)/([0-9]+)_[0-9]+\.txt", member.name)
            if place is None or not member.isreg() or member.size > _LARGEST:
                continue
            file = packed.extractfile(member)
            assert file is not None  # it is a regular file
            part, label, number = place.groups()
            found[part, int(number), label] = " ".join(file.read().decode("utf-8").split())
    order = sorted(found, key=lambda key: (key[0] == "test", key[1], key[2]))
    with (folder / "imdb.tsv").open("w", encoding="utf-8", newline="") as out:
        out.writelines(f"{key[2]}\t{found[key]}\n" for key in order)


_TEXT8_MD5 = "3bea1919949baf155f99411df5fada7e"
_TEXT8_WORDS = 10_000


def text8(files: Mapping[str, Path], folder: Path) -> None:
    """Writes the one line of text8 as lines of 10,000 words, the texts that Gensim makes of it (`Text8Corpus`).

    Raises:
        DataError: the text is not the one whose md5 its author publishes.
    """
    [archive] = files.values()
    with zipfile.ZipFile(archive) as packed, _member(packed, "text8") as file:
        content = file.read()
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != _TEXT8_MD5:
        raise DataError(f"{archive}: the text in it has the md5 {found}, expected {_TEXT8_MD5}")
    words = content.decode("ascii").split()
    with (folder / "text8.txt").open("w", encoding="ascii") as out:
        for start in range(0, len(words), _TEXT8_WORDS):
            out.write(" ".join(words[start : start + _TEXT8_WORDS]) + "\n")


def _member(packed: zipfile.ZipFile, name: str) -> IO[bytes]:
    """A file of an archive; no more bytes of it are read than it claims.

    Raises:
        DataError: it claims more than the largest data set has.
    """
    size = packed.getinfo(name).file_size
    if size > _LARGEST:
        raise DataError(f"{packed.filename}: {name} has {size:,} bytes, expected at most {_LARGEST:,}")
    return io.BufferedReader(packed.open(name), 1 << 20)  # type: ignore[type-var]  # typeshed: it is an IO


def _text(packed: zipfile.ZipFile, folder: str, name: str) -> str:
    """A small file of an archive; those of ml-100k and ml-1m are in Latin-1, and CSV in UTF-8."""
    with _member(packed, f"{folder}/{name}") as file:
        return file.read().decode("utf-8" if name.endswith(".csv") else "latin-1")


def _title_and_year(title: str) -> tuple[str, str]:
    """`Toy Story (1995)` as a title and a year; the year is "" where there is none. Videos end with `(V)`."""
    found = re.fullmatch(r"(.*?)\s*\((\d{4})\)\s*(?:\(V\))?\s*", title)
    return (title.strip(), "") if found is None else (found[1], found[2])


def _write(path: Path, header: str, rows: Rows) -> None:
    with path.open("w", encoding="utf-8", newline="") as out:
        out.write(header)
        out.writelines("\t".join(" ".join(field.split()) for field in row) + "\n" for row in rows)


_MAKE: Mapping[str, Callable[[str], Write]] = {
    "movielens_100k": lambda name: partial(movielens, name, ML_100K),
    "movielens_1m": lambda name: partial(movielens, name, ML_1M),
    "movielens_csv": lambda name: partial(movielens, name, ML_CSV),
    "copies": lambda name: copies,
    "imdb": lambda name: imdb,
    "text8": lambda name: text8,
}
"""What is made of the files of a data set, by the word in datasets.yaml, given its name."""


def _listed() -> dict[str, DataSet]:
    """What datasets.yaml lists."""
    content = yaml.load(Path(__file__).with_suffix(".yaml").read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {name: _data_set(name, **each) for name, each in content.items()}


def _data_set(
    name: str, *, make: str, base: str, files: Mapping[str, Any], package: Sequence[str] = (), **about: Any
) -> DataSet:
    remotes = tuple(
        Remote(base + file, size, digest, (package[0], f"{package[1]}/{file}") if package else None)
        for file, (size, digest) in files.items()
    )
    lists: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in about.items()}
    return DataSet(files=remotes, write=_MAKE[make](name), **lists)


DATA_SETS = _listed()
"""By name."""


def named(name: str) -> DataSet:
    """The data set of a name.

    Raises:
        ConfigError: there is none.
    """
    if name not in DATA_SETS:
        rule = "there is no data set with this name"
        raise ConfigError([Fault("data.fetch", repr(name), rule, f"the data sets are {', '.join(DATA_SETS)}")])
    return DATA_SETS[name]


VARIABLE = "EMBEXP_DATA"
"""Names the folder of the data sets."""
SECONDS = 10.0
"""A server that sends nothing for so long counts as out of reach."""
_BLOCK_BYTES = 1 << 18


class DownloadError(Exception):
    """A file that could not be had; the message says why, without the URL."""


def folder() -> Path:
    """Where data sets are kept: `$EMBEXP_DATA`, or `datasets` in the user's cache of embexp."""
    named = os.environ.get(VARIABLE)
    found = Path(os.path.abspath(os.path.expanduser(named))) if named else caching.cache_folder(None) / "datasets"
    machine_faults.name_place(found, f"the variable {VARIABLE}")
    return found


def place(name: str) -> Path:
    """What `data.path` is for a data set: a file or folder, which is there once it was fetched.

    Raises:
        ConfigError: there is no data set with this name.
    """
    found = named(name)
    return caching.place_of(folder(), name, _key(found)) / found.path


def by_hand(name: str, file: Remote) -> Path:
    """Where a file is looked for before it is downloaded."""
    return folder() / name / file.name


def is_here(name: str) -> bool:
    """Whether a data set was fetched, and its files are as they were made.

    Raises:
        ConfigError: there is no data set with this name.
    """
    kept = caching.place_of(folder(), name, _key(named(name)))
    return caching.unchanged(kept) or (kept.is_dir() and caching.verified(kept))  # a copy has other stamps


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Fetches a data set unless it is here.

    Args:
        progress: called as the work goes on; None: shown on standard error.

    Returns:
        What `data.path` is for it.

    Raises:
        ConfigError: there is no data set with this name.
        DataError: it can't be had, or is not what it should be.
        OSError: it can't be written.
    """
    if is_here(name):
        return place(name)
    if progress is not None:
        return _fetch(name, named(name), progress)
    from embexp.system import terminal  # rich, which a check of a config does not need

    with terminal.shown_if_long(after=0.0) as shown:
        return _fetch(name, named(name), shown)


def located(data: Data) -> Data:
    """A description of data with the paths that its `fetch`, or URLs, stand for on this machine; nothing is fetched."""
    name = getattr(data, "fetch", None)
    return with_paths(data, stores.local) if name is None else data.model_copy(update={"path": str(place(name))})


def ensure(data: Data, *, cache: Path, progress: Progress | None = None) -> None:
    """Fetches the data set, or the objects of a store, that a description of data names, if it names some.

    Args:
        cache: folder in which objects are kept.
        progress: called as objects are fetched; None: shown on standard error.

    Raises:
        ConfigError: objects can't be had.
        DataError: a data set can't be had; see `fetch`.
    """
    if (name := getattr(data, "fetch", None)) is not None:
        fetch(name)
    else:
        stores.fetch(named_paths(data), cache=cache, flat=isinstance(data, Columnar), progress=progress)


def are_here(data: Data) -> bool:
    """Whether what a description of data names is on this machine, as far as this process knows."""
    name = getattr(data, "fetch", None)
    return stores.are_here(named_paths(data).values()) if name is None else is_here(name)


def _key(data: DataSet) -> str:
    return digests.of_json([FORMAT, [[file.name, file.digest] for file in data.files]])


def _fetch(name: str, data: DataSet, progress: Progress) -> Path:
    def make(empty: Path) -> None:
        with tempfile.TemporaryDirectory(dir=empty, prefix=".") as temporary:
            found = {file.name: _file(name, file, Path(temporary), progress) for file in data.files}
            progress(f"unpacking {name}", None)
            _written(name, data, found, empty)

    def wait() -> None:
        progress(f"waiting for another process that downloads {name}", None)

    with FileLock(folder() / f".{name}.lock", name).awaited(wait):
        return caching.folder(folder(), name, _key(data), make) / data.path


def _written(name: str, data: DataSet, found: Mapping[str, Path], empty: Path) -> None:
    try:
        with read_by_library(f"the files of {name} can't be unpacked"):
            data.write(found, empty)
    except DataError as error:
        if isinstance(error.__cause__, OSError):  # the disk is full
            raise error.__cause__ from None
        raise


def _file(name: str, file: Remote, temporary: Path, progress: Progress) -> Path:
    """A file of a data set, as its digest says: one that was put here, of an installed package, or downloaded."""
    placed = by_hand(name, file)
    if placed.is_file():
        _check(placed, file, "remove it, or put the right file there")
        return placed
    packaged = _packaged(file)
    if packaged is not None and _digest(packaged, file) == file.digest:
        return packaged
    from embexp.system import terminal  # rich, which is rarely needed

    target = temporary / file.name
    label = f"fetching {file.url} ({terminal.byte_size(file.size)})"
    progress(label, None)
    remedy = f"download it on another machine and put it at {placed}, or set data.path=… instead"
    try:
        download(file.url, target, limit=file.size, progress=lambda done: progress(label, min(1.0, done / file.size)))
    except DownloadError as error:
        raise DataError(f"{file.url} can't be fetched: {error}", remedy) from error
    _check(target, file, f"the file has changed, or a proxy answers instead of the server: {remedy}", of=file.url)
    return target


def download(url: str, to: Path, *, limit: int, progress: Callable[[int], None]) -> None:
    """Writes what a URL holds into a new file, which the caller removes if this fails.

    Args:
        url: http or https; proxies are those of the environment.
        limit: bytes that it may have at most.
        progress: called with the bytes that are there so far.

    Raises:
        DownloadError: it can't be had, ends too early, or is larger than the limit.
        OSError: the file can't be written.
    """
    import urllib.request  # not above: it takes long, and is rarely needed

    request = urllib.request.Request(url, headers={"User-Agent": "embexp"})
    with _of_server():
        response = urllib.request.build_opener().open(request, timeout=SECONDS)  # with the proxies as they are now
    with response:
        header = response.headers.get("Content-Length", "")
        length = int(header) if header.isdecimal() else None
        if length is not None and length > limit:
            raise DownloadError(f"the server offers {length:,} bytes, expected {limit:,}")
        done = 0
        with files.naming(to), to.open("xb") as file:
            while True:
                with _of_server():
                    block = response.read(_BLOCK_BYTES)
                if not block:
                    break
                done += len(block)
                if done > limit:
                    raise DownloadError(f"the server sends more than the {limit:,} bytes that were expected")
                file.write(block)
                progress(done)
    if length is not None and done < length:
        raise DownloadError(f"the connection ended after {done:,} of {length:,} bytes")


@contextlib.contextmanager
def _of_server() -> Iterator[None]:
    """What goes wrong with a server inside the block becomes a DownloadError."""
    import http.client

    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a proxy that is no URL
        raise DownloadError(_reason(error)) from error


def _reason(error: BaseException) -> str:
    """Why a server gave nothing, in a few words."""
    import ssl
    import urllib.error

    if isinstance(error, urllib.error.HTTPError):
        error.close()
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


def _check(path: Path, file: Remote, remedy: str, *, of: str | None = None) -> None:
    """Raises DataError if a file has another digest than it should."""
    found = _digest(path, file)
    if found != file.digest:
        raise DataError(f"{of or path} has the digest {found}, expected {file.digest}", remedy)


def _digest(path: Path, file: Remote) -> str:
    """The digest of a file, of the kind that is known of it."""
    algorithm = file.digest.partition(":")[0]
    with path.open("rb") as content:
        found = hashlib.file_digest(content, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{found.hexdigest()}"


def _packaged(file: Remote) -> Path | None:
    """The file in an installed package, which is not imported."""
    if file.package is None:
        return None
    package, inside = file.package
    found = importlib.util.find_spec(package)
    for place in () if found is None else found.submodule_search_locations or ():
        if (path := Path(place) / inside).is_file():
            return path
    return None
