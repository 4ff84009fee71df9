"""A source as it is, encoded in the cache; not divided yet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from embexp.data import (
    click_log,
    encode,
    labelled_texts,
    queries,
    readers,
    standard_library,
    triple_files,
    word_pairs,
)
from embexp.data.columns import WORDS, Columns
from embexp.data.corpus import Corpus
from embexp.data.encode import Progress
from embexp.data.examples import Layout
from embexp.data.files import Unreadable, locate
from embexp.data.wanted import group_of, timestamp_of, wanted
from embexp.data.words import PATTERN
from embexp.errors import ConfigError
from embexp.specs.data import CSV, Clicks, Columnar, Data, Parquet, RecBole, SkipGram, Text, Triples
from embexp.system import caching, digests

FORMAT = 1
"""Version of what the cache holds; raised when its meaning changes."""
_CLASSES = "classes.json"


@dataclass(frozen=True)
class Raw:
    """An encoded source.

    Attributes:
        folder: of the cache.
        key: of the folder: what it was made from, and how.
        digest: of the source's content.
    """

    folder: Path
    key: str
    digest: str

    @cached_property
    def layout(self) -> Layout:
        """What the folder holds."""
        return Layout.read(self.folder)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes by label number, of a source that names them."""
        file = self.folder / _CLASSES
        return tuple(json.loads(file.read_text("utf-8"))) if file.exists() else ()


def read(
    data: Data,
    columns: Columns,
    path: Path | None = None,
    *,
    cache: Path,
    tell: Progress,
    divided: bool,
    classes: Sequence[str] = (),
) -> Raw:
    """A source, read unless the cache has it.

    Args:
        data: the source.
        columns: what the run reads of it.
        path: read this instead of `data.path`.
        cache: folder for encoded data.
        tell: is told what is being done and how much of it is done.
        divided: whether the examples are to be split.
        classes: of labelled texts, by number; none: as the texts have them.

    Raises:
        ConfigError: the source lacks something the config asks for.
        DataError: a file's content is not what it should be.
    """
    content = digest(data, columns, path, cache=cache, divided=divided)
    if isinstance(data, Clicks):
        return Raw(
            caching.folder(cache, "clicks", content, partial(click_log.write, data, progress=tell)), content, content
        )
    how = {"format": FORMAT, "content": content, "kind": data.kind}
    if isinstance(data, Columnar):
        return _columnar(data, columns, path, how, cache=cache, tell=tell, divided=divided)
    if isinstance(data, Triples):
        asked = {"columns", "reciprocal"} | ({"new_entities"} if data.new_entities is not None else set())
        key = digests.of_json(how | data.model_dump(mode="json", include=asked))
        make = partial(queries.write, data, Path(data.path), progress=tell)
        return Raw(caching.folder(cache, "triples", key, make), key, content)
    corpus = corpus_of(data, columns, path)
    form = "" if corpus.path is None else "folder" if corpus.path.is_dir() else corpus.path.suffix.lower()
    how |= {"words": PATTERN, "text": data.text, "form": form}
    match data:
        case Text():
            how |= {
                "ids": list(columns.ids.items()),
                "label": columns.label,
                "max_length": data.max_length,
                "classes": list(classes),
            }
            key = digests.of_json(how)
            make = partial(_write_texts, data, columns, corpus, classes, tell)
            return Raw(caching.folder(cache, "codes", key, make), key, content)
        case SkipGram():
            drawn = {"min_count", "max_words", "context_window", "subsample", "negatives", "power", "seed"}
            key = digests.of_json(how | data.model_dump(mode="json", include=drawn))
            make = partial(word_pairs.write, data, corpus, progress=tell)
            return Raw(caching.folder(cache, "pairs", key, make), key, content)


def digest(data: Data, columns: Columns, path: Path | None = None, *, cache: Path, divided: bool) -> str:
    """Digest of a source's content, without reading more of it than that takes.

    Raises:
        ConfigError: the source lacks something the config asks for.
    """
    if isinstance(data, Clicks):
        drawn = {"examples", "users", "items", "rank", "history_length", "zipf", "signal", "seed"}
        return digests.of_json({"clicks": FORMAT, **data.model_dump(mode="json", include=drawn)})
    try:
        if isinstance(data, Columnar | Triples):
            files = (
                triple_files.files_of(Path(data.path))
                if isinstance(data, Triples)
                else locate(data, wanted(data, columns, divided=divided), path=path).files()
            )
            return digests.of_json([caching.file_digest(file, cache=cache) for file in files])
        corpus = corpus_of(data, columns, path)
        files = corpus.files()
    except Unreadable as unreadable:
        raise ConfigError(unreadable.faults) from None
    if corpus.path is None:
        return standard_library.digest()
    if corpus.path.is_dir():
        # The names of the folders are the classes.
        named = [[file.parent.name, file.name, digests.of_file(file)] for file in files]
        return digests.of_json(named)
    return digests.of_json([caching.file_digest(file, cache=cache) for file in files])


def corpus_of(data: Text | SkipGram, columns: Columns, path: Path | None = None) -> Corpus:
    """The texts of a source; `path` instead of `data.path`, if given."""
    own = None if data.path is None else Path(data.path)
    label = columns.label if isinstance(data, Text) else None
    return Corpus(own if path is None else path, data.text, label)


def _columnar(
    data: RecBole | CSV | Parquet,
    columns: Columns,
    path: Path | None,
    how: dict[str, object],
    *,
    cache: Path,
    tell: Progress,
    divided: bool,
) -> Raw:
    needed = wanted(data, columns, divided=divided)
    source = locate(data, needed, path=path)
    timestamp, group = (timestamp_of(data), group_of(data)) if divided else (None, None)
    dialect = [data.delimiter, data.list_separator, sorted(data.list_columns)] if isinstance(data, CSV) else None
    key = digests.of_json(
        {
            **how,
            "files": [file.name for file in source.files()],
            "written": dialect,
            "ids": list(columns.ids.items()),
            "weights": list(columns.weights.items()),
            "dense": columns.dense,
            "label": [columns.label, data.label_threshold],
            "timestamp": timestamp,
            "group": group,
        }
    )

    def make(folder: Path) -> None:
        encode.encode(
            readers.chunks(source, needed),
            folder,
            columns,
            lists=source.lists(),
            label_threshold=data.label_threshold,
            timestamp=timestamp,
            group=group,
            progress=tell,
        )

    return Raw(caching.folder(cache, "codes", key, make), key, str(how["content"]))


def _write_texts(
    data: Text, columns: Columns, corpus: Corpus, classes: Sequence[str], tell: Progress, folder: Path
) -> None:
    tell("reading the texts", None)
    known = list(classes)
    if corpus.label is not None:
        known = known or list(labelled_texts.classes(corpus))
        (folder / _CLASSES).write_text(json.dumps(known), "utf-8")
    encode.encode(
        labelled_texts.chunks(corpus, columns.label, known, max_length=data.max_length),
        folder,
        columns,
        lists=frozenset([WORDS]),
        label_threshold=None,
        timestamp=None,
        group=None,
        progress=tell,
    )
