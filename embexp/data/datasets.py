"""The public data sets known by name: where their owners have them, their digests, and what is made of their files.

A digest here is one that the owners publish next to the file, or one that a widely used library checks its own
downloads against; the comment at each says which. Nothing is listed whose content changes under the same name.

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from embexp.errors import ConfigError, DataError, Fault

FORMAT = 1
"""Version of what is made of the owners' files; raised when that changes."""

_RESEARCH = "for research; no redistribution, no commercial use without permission"
_SHARED = "for research; redistribution under the same terms, no commercial use without permission"
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


def _movielens(name: str, about: str, terms: str, size: int, digest: str, write: Write) -> DataSet:
    return DataSet(
        about=f"MovieLens ratings of films: {about}",
        terms=terms,
        page="https://grouplens.org/datasets/movielens/",
        files=(Remote(f"https://files.grouplens.org/datasets/movielens/{name}.zip", size, digest),),
        kinds=("recbole",),
        experiments=("movielens", "movielens_recommendation"),
        write=write,
    )


def _graph(about: str, terms: str, page: str, files: tuple[Remote, ...], experiments: tuple[str, ...]) -> DataSet:
    return DataSet(about, terms, page, files, ("triples",), experiments, copies)


def _of_pykeen(name: str, *files: tuple[str, int, str]) -> tuple[Remote, ...]:
    base = f"https://raw.githubusercontent.com/pykeen/pykeen/v1.11.1/src/pykeen/datasets/{name}"
    return tuple(
        Remote(f"{base}/{file}", size, f"sha256:{digest}", ("pykeen", f"datasets/{name}/{file}"))
        for file, size, digest in files
    )


_SMALL_GRAPH = ("knowledge_graph", "new_entities")
_PYKEEN = "carried by PyKEEN (MIT), which names the authors"
_PYKEEN_PAGE = "https://pykeen.readthedocs.io/en/stable/reference/datasets.html"
_GRAPHS = "https://raw.githubusercontent.com/DeepGraphLearning/KnowledgeGraphEmbedding"
_WN18RR = f"{_GRAPHS}/617062aaedf53bf4d6b44450a580a96dc30e0632/data/wn18rr"
_FB15K_237 = f"{_GRAPHS}/master/data/FB15k-237"

DATA_SETS: dict[str, DataSet] = {
    # GroupLens publishes NAME.zip.md5 next to each archive. The sha256 and the sizes, but for ml-32m, are those of
    # tensorflow_datasets/url_checksums/movielens.txt; ml-32m has the md5 of GroupLens. ml-latest and ml-latest-small
    # change under their names.
    "ml-100k": _movielens(
        "ml-100k",
        "100,000, by 943 users",
        _RESEARCH,
        4_924_029,
        "sha256:50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
        partial(movielens, "ml-100k", ML_100K),
    ),
    "ml-1m": _movielens(
        "ml-1m",
        "1 million, by 6,040 users",
        _RESEARCH,
        5_917_549,
        "sha256:a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        partial(movielens, "ml-1m", ML_1M),
    ),
    "ml-20m": _movielens(
        "ml-20m",
        "20 million, by 138,493 users",
        _SHARED,
        198_702_078,
        "sha256:96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
        partial(movielens, "ml-20m", ML_CSV),
    ),
    "ml-25m": _movielens(
        "ml-25m",
        "25 million, by 162,541 users",
        _SHARED,
        261_978_986,
        "sha256:8b21cfb7eb1706b4ec0aac894368d90acf26ebdfb6aced3ebd4ad5bd1eb9c6aa",
        partial(movielens, "ml-25m", ML_CSV),
    ),
    "ml-32m": _movielens(
        "ml-32m",
        "32 million, by 200,948 users",
        _SHARED,
        238_950_008,
        "md5:d472be332d4daa821edc399621853b57",
        partial(movielens, "ml-32m", ML_CSV),
    ),
    # The digests are those of the RECORD of PyKEEN 1.11.1.
    "kinships": _graph(
        "kinship among 104 people of the Alyawarra, 25 relations",
        _PYKEEN,
        _PYKEEN_PAGE,
        _of_pykeen(
            "kinships",
            ("train.txt", 208_710, "738612111a6acf0e39662bde24c7e72a4d1edf20931beea077da367dda689731"),
            ("valid.txt", 26_088, "c56f8630a583178b1e569f11a64aa535ae1ce0b0912d8b1e24716be2b37f04da"),
            ("test.txt", 26_255, "05e5733265761d55be9c05bfaff5a8d0808df46f9c1e9d66cc3f2fe114e43d88"),
        ),
        _SMALL_GRAPH,
    ),
    "nations": _graph(
        "relations of 14 countries, 55 relations",
        _PYKEEN,
        _PYKEEN_PAGE,
        _of_pykeen(
            "nations",
            ("train.txt", 39_101, "0830fa9da8e5bba2ccdaa45b7bdc9130451ba66b09ff2708f35fccaf82473e57"),
            ("valid.txt", 4_851, "2b337a62e51a2f45c283eac98a70d21b7e0e102136be1539b2a52c652a7b0530"),
            ("test.txt", 4_951, "3971085165b47b6aeaec68058c6d8d98b3005e929db81268410b95ae4db770ab"),
        ),
        _SMALL_GRAPH,
    ),
    "umls": _graph(
        "concepts of medicine (UMLS), 135 entities, 46 relations",
        _PYKEEN,
        _PYKEEN_PAGE,
        _of_pykeen(
            "umls",
            ("train.txt", 260_013, "873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35"),
            ("valid.txt", 32_963, "025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e"),
            ("test.txt", 32_968, "a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014"),
        ),
        _SMALL_GRAPH,
    ),
    # The md5 of the files are those that AmpliGraph (`load_wn18rr`) and TorchDrug (`WN18RR`) check.
    "wn18rr": _graph(
        "words of WordNet, 40,943 entities, 11 relations",
        "WordNet's licence: free use with its notice",
        "https://wordnet.princeton.edu/license-and-commercial-use",
        (
            Remote(f"{_WN18RR}/train.txt", 3_135_377, "md5:35e81af3ae233327c52a87f23b30ad3c"),
            Remote(f"{_WN18RR}/valid.txt", 110_415, "md5:74a2ee9eca9a8d31f1a7d4d95b5e0887"),
            Remote(f"{_WN18RR}/test.txt", 113_180, "md5:2b45ba1ba436b9d4ff27f1d3511224c9"),
        ),
        ("knowledge_graph_large",),
    ),
    # As for wn18rr (`load_fb15k_237`, `FB15k237`). The size of train.txt is not published: this is a bound, 4% above
    # what its 272,115 lines take if they are as long as those of the others.
    "fb15k-237": _graph(
        "facts of Freebase, 14,541 entities, 237 relations",
        "drawn from Freebase (CC BY) by Toutanova and Chen 2015; see their page",
        "https://www.microsoft.com/en-us/download/details.aspx?id=52312",
        (
            Remote(f"{_FB15K_237}/train.txt", 21_000_000, "md5:c05b87b9ac00f41901e016a2092d7837"),
            Remote(f"{_FB15K_237}/valid.txt", 1_303_101, "md5:6a94efd530e5f43fcf84f50bc6d37b69"),
            Remote(f"{_FB15K_237}/test.txt", 1_519_499, "md5:f5bdf63db39f455dec0ed259bb6f8628"),
        ),
        ("knowledge_graph_large",),
    ),
    # Size and sha256: tensorflow_datasets/url_checksums/imdb_reviews.txt; torchtext checks the md5.
    "imdb": DataSet(
        about="50,000 reviews of films, positive or negative",
        terms="published for research, by Maas et al. 2011; no licence is stated",
        page="https://ai.stanford.edu/~amaas/data/sentiment/",
        files=(
            Remote(
                "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                84_125_825,
                "sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            ),
        ),
        kinds=("text", "skipgram"),
        experiments=("text_classification", "skipgram"),
        write=imdb,
        path="imdb.tsv",
    ),
    # The size of the archive is that of TensorFlow's word2vec tutorial. Several public projects check this sha256, and
    # Matt Mahoney's page has the md5 of the text, which is checked after unpacking.
    "text8": DataSet(
        about="17 million words of Wikipedia, without labels",
        terms="Wikipedia's text: CC BY-SA",
        page="https://mattmahoney.net/dc/textdata.html",
        files=(
            Remote(
                "https://mattmahoney.net/dc/text8.zip",
                31_344_016,
                "sha256:a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
            ),
        ),
        kinds=("skipgram",),
        experiments=("skipgram",),
        write=text8,
        path="text8.txt",
    ),
}
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
