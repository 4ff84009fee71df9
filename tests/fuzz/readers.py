"""Every reader of files from outside, as commands call it: opened, and read whole in every way that it offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from embexp.checkpoints import object_graph
from embexp.checkpoints.contents import open_checkpoint
from embexp.checkpoints.difference import statistics
from embexp.data import numbers
from embexp.data.columns import columns_of
from embexp.data.sources.source import source_of
from embexp.data.vocabularies.vocabulary import IdentityVocabulary, Vocabulary, token_lines
from embexp.specs.freezing import FreezeRows
from embexp.specs.pretrained import Format, HeaderCount, InvalidText, NonFinite
from embexp.specs.run import data_of
from embexp.specs.tables import Feature, RowType
from embexp.system.parallel import quiet
from embexp.training.freezing import policies
from embexp.training.freezing.policies import RowFacts
from embexp.vectors import quality
from embexp.vectors.file_source import open_vectors
from tests.fuzz import configs, corpus
from tests.fuzz.contents import Files

_MOST = 1 << 26
_WITH_KEYS = (".npz", ".safetensors", ".h5", ".arrow", ".parquet", ".index")


@dataclass(frozen=True)
class Reader:
    """A reader.

    Attributes:
        name: of the form of file.
        corpus: makes small files of it.
        read: reads a file as far as it goes, and returns the bytes of what it gave; `Random` chooses among options.
        words: that mean something in such a file.
        mutated: makes an input of files; None: the mutations of all binary forms.
    """

    name: str
    corpus: Callable[[], list[Files]]
    read: Callable[[Path, Random], int]
    words: tuple[bytes, ...] = ()
    mutated: Callable[[Files, Sequence[Files], Random], dict[str, bytes]] | None = None


def _vectors(path: Path, random: Random, format: Format | None = None) -> int:
    form = format or (random.choice((Format.GLOVE, Format.WORD2VEC, None, None)) if path.suffix == ".txt" else None)
    source = open_vectors(
        path,
        cache=path.parent / "cache",
        format=form,
        key=random.choice((None, None, None, "m", "g/m")) if path.suffix in _WITH_KEYS else None,
        token_column=random.choice((None, "tokens", "short")) if path.suffix == ".h5" else None,
        invalid_text=random.choice(list(InvalidText)),
        non_finite=random.choice(list(NonFinite)),
        header_count=random.choice(list(HeaderCount)),
    )
    if random.random() < 0.3:
        source.map_as(random.choice(list(RowType)))
    tokens = source.tokens
    for start in sorted({0, source.rows // 2, source.rows - 1}):
        source.read(start, min(source.rows, start + 2))
    _ = source.digest, source.dtype, source.notes
    size = 4 * source.rows * source.dim
    if size <= _MOST:
        source.memory_map()
    return size + (0 if tokens is None else int(tokens.nbytes))


def _word_tests(path: Path, random: Random) -> int:
    if path.name.startswith("pairs"):
        pairs = quality.read_pairs(path)
        return pairs.scores.nbytes + sum(len(word) for pair in pairs.words for word in pair)
    if path.name.startswith("questions"):
        return sum(len(word) for question in quality.read_analogies(path).questions for word in question)
    return sum(map(len, quality.read_categories(path).words))


def _checkpoint(path: Path, random: Random) -> int:
    contents = open_checkpoint(path, as_objects=random.random() < 0.3)
    most = 0
    for entry in contents.entries.values():
        statistics(entry)
        entry.values.verify()
        if entry.values.dtype is not None:
            values = entry.values.value()
            strings = values.reshape(-1).tolist() if values.dtype == object else []
            most = max(most, values.nbytes + sum(map(len, strings)))
            if entry.info.shape:
                entry.values.read(0, min(2, entry.info.shape[0]))
    return most


def _tensorflow(path: Path, random: Random) -> int:
    if random.random() < 0.2:
        return len(object_graph.read(path).nodes)
    if random.random() < 0.2:
        return _vectors(path, random)
    return _checkpoint(random.choice((path, path.parent, path.with_suffix(""))), random)


def _data(path: Path, random: Random, *, features: Mapping[str, str], settings: Mapping[str, Any]) -> int:
    place = path.parent if settings["kind"] == "triples" else path
    data: Any = data_of({"path": str(place), **settings})
    columns, _ = columns_of(data, {name: Feature(table=table) for name, table in features.items()})
    source = source_of(data)
    source.head_faults(columns)
    source.digest(columns, cache=path.parent / "cache")
    encoded = source.encode(columns, cache=path.parent / "cache", progress=quiet)
    return sum(file.stat().st_size for file in encoded.folder.iterdir())


def _csv(path: Path, random: Random) -> int:
    forms: dict[str, dict[str, Any]] = {
        "colons": {"delimiter": "::"},
        "blanks": {"delimiter": "whitespace"},
        "utf16": {"encoding": "utf-16"},
        "headless": {"names": ["user", "item", "tags", "rating", "time"]},
        "dates": {"timestamp": "time", "split": {"kind": "time"}, "dense_features": []},
        "d": {"list_columns": ["tags"]},
    }
    name = path.name.split(".")[0] if random.random() < 0.9 else random.choice(list(forms))
    return _data(path, random, features=_LISTS, settings=_COLUMNS | {"kind": "csv"} | forms[name])


def _texts(path: Path, random: Random) -> int:
    text = {"kind": "text"}, {"words": "words"}
    skipgram = {"kind": "skipgram", "min_count": 1}, {"center": "words", "context": "words"}
    settings, features = random.choice((text, text, text, skipgram))
    return _data(path, random, features=features, settings=settings)


def _vocabulary(path: Path, random: Random) -> int:
    if path.name.endswith(".tokens.txt"):
        return int(token_lines(path).nbytes)
    found = Vocabulary.read(path.with_suffix(""))
    found.rows(pa.array(found.tokens(0, 5), pa.large_string()))
    return found.size if path.suffix == ".tsv" else len(found.digest)


def _numbers(path: Path, random: Random) -> int:
    return sum(len(column.quantiles) for column in numbers.read(path))


def _mask(path: Path, random: Random) -> int:
    facts = RowFacts(8, IdentityVocabulary(8))
    return policies.listed_rows(FreezeRows(mask_file=str(path)), "freeze", facts).mask.nbytes


_LISTS = {"user": "users", "item": "items", "tags": "tags"}
_COLUMNS: dict[str, Any] = {"label": "rating", "dense_features": ["time"]}
_NESTED = {"user": "users", "item.id": "items", "tags": "tags"}
_JSON: dict[str, Any] = {"label": "rating", "missing_label": "skip"}
_RECBOLE = {"user_id": "users", "item_id": "items", "tags": "tags"}
_GRAPH = {"source": "entities", "relation": "relations", "candidates": "entities"}

READERS = (
    Reader("text vectors", corpus.text, _vectors, (b" 1", b" 0.5\n", b"\n\n\n", b"nan", b"\xc2\xa0")),
    Reader("tests of vectors", corpus.word_tests, _word_tests, (b": ", b"#", b"\t", b",,", b'"', b"nan", b"1e999")),
    Reader("word2vec binary", corpus.word2vec, _vectors, (b"8 3\n", b" ", b"\n")),
    Reader("npy", corpus.npy, _vectors, (b"<f4", b"True", b"(8, 3)", b"'shape'", b"}", b"'''")),
    Reader("npz", corpus.npz, _vectors, (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"m.npy", b"<f4")),
    Reader("safetensors", corpus.safetensors, _vectors, (b'"F32"', b"[8,3]", b"[0,96]", b"null", b"{", b"1e999")),
    Reader("HDF5", corpus.hdf5, _vectors, (b"TREE", b"SNOD", b"HEAP", b"OHDR", b"FRHP", b"GCOL")),
    Reader("Arrow", corpus.arrow, _vectors, (b"ARROW1", b"\xff\xff\xff\xff")),
    Reader("Parquet", corpus.parquet, _vectors, (b"PAR1",)),
    Reader("TensorFlow checkpoints", corpus.checkpoints, _tensorflow, (b"\x0a\x00", b"\x12\x00", b"..")),
    Reader("Keras weights", corpus.keras, _checkpoint, (b"TREE", b"SNOD", b"PK\x03\x04", b"bfloat16")),
    Reader(
        "CSV",
        corpus.csv,
        _csv,
        (b'"', b'""', b",,", b"\r", b"user", b"rating", b"::", b"\x1f", b"2024-05-31", b"\0"),
    ),
    Reader(
        "RecBole",
        corpus.recbole,
        partial(_data, features=_RECBOLE, settings=_COLUMNS | {"kind": "recbole"}),
        (b":token", b":float_seq", b"\t\t", b"item_id"),
    ),
    Reader(
        "Parquet data",
        corpus.data_parquet,
        partial(_data, features=_LISTS, settings=_COLUMNS | {"kind": "parquet"}),
        (b"PAR1",),
    ),
    Reader(
        "JSON Lines",
        corpus.data_json_lines,
        partial(_data, features=_NESTED, settings=_JSON | {"kind": "jsonl"}),
        (b'"', b"{}", b"[", b"null", b"NaN", b"1e999", b"\\ud800", b"12345678901234567890", b"\n\n"),
    ),
    Reader("texts", corpus.texts, _texts, (b"label", b"text", b'"', b"\t", b"PAR1")),
    Reader(
        "adjacency lists",
        corpus.adjacency,
        partial(_data, features={"user": "users", "item": "items"}, settings={"kind": "adjacency"}),
        (b" ", b"\n", b"\t", b"\xc2\xa0"),
    ),
    Reader("triples", corpus.triples, partial(_data, features=_GRAPH, settings={"kind": "triples"}), (b"\t", b"knows")),
    Reader("vocabularies", corpus.vocabularies, _vocabulary, (b"token", b"oov", b"\t", b"identity", b"-1")),
    Reader("numeric columns", corpus.numeric_columns, _numbers, (b"quantile", b"log1p", b"null", b"digest")),
    Reader("configs", configs.configs, configs.plan_config, mutated=configs.mutated_config),
    Reader("command lines", configs.command_lines, configs.run_line, mutated=configs.mutated_line),
    Reader("masks", corpus.masks, _mask, (b"|b1", b"(8,)")),
)
