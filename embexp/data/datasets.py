"""The public data sets known by name, which datasets.yaml lists, and what is made of their files.

From the files of public data sets to the form that a source reads: RecBole's atomic files, triples, texts. Only members
of archives that are named here are read, and they are written under names of this module, so no archive says where
something is written. What is read has been compared with a digest.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import yaml

from embexp.errors import ConfigError, DataError, Fault

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
        rule = "there is no data set of this name"
        raise ConfigError([Fault("data.fetch", repr(name), rule, f"the data sets are {', '.join(DATA_SETS)}")])
    return DATA_SETS[name]
