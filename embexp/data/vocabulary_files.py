r"""Reads the files of vocabularies.

A token vocabulary is a TSV file with the header `token, frequency, kind`, one line per row of the table, in the order
of the rows. Kinds are `oov`, `missing` and `rare`, of rows for values that have no row of their own, and `token`.
Behind the rows there may be lines of kind `rare_token`, the tokens that share the row of kind `rare`. Backslash, tab,
newline and carriage return in a token are written `\\`, `\t`, `\n` and `\r`. Other vocabularies are small JSON files.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from embexp.data import bucket_vocabulary, hash_vocabulary
from embexp.data.bucket_vocabulary import BucketVocabulary
from embexp.data.hash_vocabulary import HashVocabulary
from embexp.data.vocabulary import ESCAPES, HEADER, IdentityVocabulary, TokenVocabulary, Vocabulary, one_array
from embexp.errors import DataError, read_by_library
from embexp.system import regular

_PLAIN = {escape: plain for plain, escape in ESCAPES}
_JSON_BYTES = 1 << 26
_MOST_SPECIAL = 1 << 20
_LARGEST = float(np.finfo(np.float32).max)
_BEFORE_TOKENS = ("oov", "missing", "rare")


def read(stem: Path) -> Vocabulary:
    """Reads what `Vocabulary.write(stem)` wrote.

    Raises:
        DataError: there is no such file, or it is not a vocabulary.
    """
    text, small = stem.parent / f"{stem.name}.tsv", stem.parent / f"{stem.name}.json"
    if not small.exists() and not text.exists():
        raise DataError(f"there is no vocabulary {text}, nor {small.name} beside it")
    path = small if small.exists() else text
    if fault := regular.fault_of(path):
        raise DataError(f"{path}: {fault}")
    return _read_json(small) if path == small else _read_tsv(text)


def _read_json(path: Path) -> Vocabulary:
    with regular.opened(path) as file:
        written = file.read(_JSON_BYTES)
    try:
        content = json.loads(written)
    except (ValueError, RecursionError):
        content = None
    found = _of_json(content) if isinstance(content, dict) else None
    if found is None:
        raise DataError(
            f"{path} is not a vocabulary: expected a JSON object with kind identity and size, kind hash and buckets, or"
            " kind buckets and boundaries"
        )
    return found


def _of_json(content: dict[str, Any]) -> Vocabulary | None:
    match content:
        case {"kind": "identity", "size": int(size)} if type(size) is int and 0 <= size < 1 << 63:
            return IdentityVocabulary(size)
        case {"kind": hash_vocabulary.KIND, "function": hash_vocabulary.FUNCTION, "buckets": int(count), **rest}:
            missing = rest.get("missing")
            if type(count) is int and 0 < count < 1 << 31 and isinstance(missing, bool):
                return HashVocabulary(count, missing)
        case {"kind": bucket_vocabulary.KIND, "boundaries": list(marks)}:
            numbers = all(type(mark) in (int, float) and abs(mark) <= _LARGEST for mark in marks)
            if numbers and all(a < b for a, b in pairwise(marks)):
                return BucketVocabulary(tuple(map(float, marks)))
    return None


def _read_tsv(path: Path) -> TokenVocabulary:
    with regular.opened(path) as file:
        header = file.readline(len(HEADER) + 1).decode("utf-8", "replace").rstrip("\n")
    if header != HEADER:
        raise DataError(f"{path}, line 1: found {header!r}, expected {HEADER!r}")
    types = {"token": pa.large_string(), "frequency": pa.int64(), "kind": pa.string()}
    with read_by_library(f"{path} is not a vocabulary"):
        table = pyarrow.csv.read_csv(
            path,
            parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types, null_values=[]),
        )
    special = _special(table)
    first = sum(map(len, special.values()))
    rest = table.slice(first)
    shared = pc.index(rest["kind"], "rare_token").as_py() if special["rare"] else -1
    tokens = rest if shared < 0 else rest.slice(0, shared)
    rare = rest.slice(len(rest) if shared < 0 else shared)
    _check(path, tokens, "token", first + 2)
    _check(path, rare, "rare_token", first + 2 + len(tokens))
    return TokenVocabulary(
        known=_unescaped(one_array(tokens["token"])),
        known_frequencies=tokens["frequency"].to_numpy(),
        oov=len(special["oov"]),
        oov_frequencies=tuple(special["oov"]),
        missing_frequency=special["missing"][0] if special["missing"] else None,
        rare=_unescaped(one_array(rare["token"])) if special["rare"] else None,
        rare_frequency=special["rare"][0] if special["rare"] else 0,
    )


def _special(table: pa.Table) -> dict[str, list[int]]:
    """The frequencies of the rows in front of those of tokens, by kind: OOV rows, then one of missing, one of rare."""
    found: dict[str, list[int]] = {kind: [] for kind in _BEFORE_TOKENS}
    place = 0
    for row in range(min(_MOST_SPECIAL, table.num_rows)):
        kind = table["kind"][row].as_py()
        if kind not in _BEFORE_TOKENS[place:] or (kind == _BEFORE_TOKENS[place] != "oov" and found[kind]):
            break
        place = _BEFORE_TOKENS.index(kind)
        found[kind].append(table["frequency"][row].as_py())
    return found


def _check(path: Path, lines: pa.Table, kind: str, first: int) -> None:
    """Raises DataError for a line of another kind; `first` is the number of the first line."""
    strange = pc.index(pc.equal(lines["kind"], kind), False).as_py()
    if strange >= 0:
        found = lines["kind"][strange].as_py()
        raise DataError(f"{path}, line {strange + first}: found kind {found!r}, expected {kind!r}")


def _unescaped(tokens: pa.LargeStringArray) -> pa.LargeStringArray:
    escaped = pc.match_substring(tokens, "\\")
    if not pc.any(escaped).as_py():
        return tokens
    plain = [
        re.sub(r"\\.", lambda match: _PLAIN.get(match[0], match[0]), text)
        for text in tokens.filter(escaped).to_pylist()
    ]
    return pc.replace_with_mask(tokens, escaped, pa.array(plain, pa.large_string()))
