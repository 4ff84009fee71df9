"""A public data set: where its owners have it, the digests of its files, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Write = Callable[[Mapping[str, Path], Path], None]
"""Called with the owners' files by name, and an empty folder to fill; it reads what the digests have vouched for."""


@dataclass(frozen=True)
class Remote:
    """A file as its owners have it.

    Attributes:
        url: of the file.
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
        terms: what its owners allow, in short.
        page: of the owners, with all the terms.
        files: what is fetched.
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
