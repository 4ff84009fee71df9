"""Tokens that are rarely meant: such as differ from another in their spelling only, and lists that are one token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyarrow as pa

from embexp.data.columns import Columns
from embexp.data.examples import Encoded
from embexp.data.files.dialect import are_lists, values_of_list
from embexp.data.sources.source import FORMAT, Source
from embexp.data.vocabularies.spelling import Alike, alike
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import excerpt
from embexp.system import caching, digests

_FILE = "doubts.json"
_LOOKED_AT = 1_000
_LEAST = 0.05
"""Share of the tokens that begin with a bracket, and that end with one, from which they are pieces of lists."""


class DoubtKind(StrEnum):
    """What is wrong with some tokens."""

    ALIKE = "tokens_alike"
    LISTS = "tokens_are_lists"


@dataclass(frozen=True)
class Doubt:
    """What is wrong with some tokens of a table, and what to do.

    Attributes:
        columns: of the table.
        found: what was found, such as `9 of 18 values differ …`.
    """

    kind: DoubtKind
    columns: Sequence[str]
    found: str
    remedy: str

    def __str__(self) -> str:
        """The warning."""
        return f"{', '.join(self.columns)}: {self.found}; {self.remedy}"


def doubts(source: Source, columns: Columns, encoded: Encoded, *, cache: Path) -> list[Doubt]:
    """Those of all tables; they are kept in the cache, next to what was read."""
    unsaid = source.data.token_steps is None

    def make(folder: Path) -> None:
        tokens = source.distinct_tokens(columns, encoded)
        near = {table: alike(found) for table, found in tokens.items()} if unsaid else {}
        lists = {table: example for table, found in tokens.items() if (example := _list_among(found)) is not None}
        content = {"alike": {table: found.as_json() for table, found in near.items() if found}, "lists": lists}
        (folder / _FILE).write_text(json.dumps(content), "utf-8")

    if not columns.ids:
        return []
    key = digests.of_json({"format": FORMAT, "raw": encoded.key, "unsaid": unsaid, "tables": dict(columns.ids)})
    content = json.loads((caching.folder(cache, "doubts", key, make) / _FILE).read_text("utf-8"))
    names: dict[str, list[str]] = {}
    for column, table in columns.ids.items():
        names.setdefault(table, []).append(column)
    found = [_of_alike(Alike.of_json(each), names[table]) for table, each in content["alike"].items()]
    return [*found, *(_of_lists(example, names[table], source) for table, example in content["lists"].items())]


def _of_alike(found: Alike, columns: Sequence[str]) -> Doubt:
    first, second = found.shown
    remedy = f"if they mean the same, set {found.setting()}{found.caution}, else data.normalize=[]"
    what = (
        f"{found.count:,} of {found.tokens:,} values differ from another one only by {found.differences}, such"
        f" as {second} and {first}, but have separate rows"
    )
    return Doubt(DoubtKind.ALIKE, columns, what, remedy)


def _of_lists(example: str, columns: Sequence[str], source: Source) -> Doubt:
    what = f"the values are lists in brackets, or pieces of them, such as {excerpt(example)}, and each is one token"
    return Doubt(DoubtKind.LISTS, columns, what, source.data.remedy_for_lists(columns))


def _list_among(tokens: pa.LargeStringArray) -> str | None:
    """One of the tokens if many are lists that were printed, or pieces of such lists; else None."""
    texts = tokens.slice(0, _LOOKED_AT).to_pylist()
    inside: list[str] = [text.strip() for text in texts]
    whole = [text for text in inside if text[:1] in ("[", "(", "{") and values_of_list(text) is not None]
    if len(whole) >= len(texts) / 2 and are_lists(whole):
        return whole[0]
    begin = [text for text in inside if text.startswith(("[", "{", "('", '("')) and not text.endswith(("]", "}"))]
    end = [text for text in inside if text.endswith(("]", "}")) and not text.startswith(("[", "{"))]
    return begin[0] if min(len(begin), len(end)) > _LEAST * len(texts) else None


def unknown_alike(tokens: pa.LargeStringArray, vocabulary: Vocabulary) -> Alike | None:
    """Tokens that a vocabulary lacks, and that differ from one of its own in their spelling only; None if none do."""
    if not isinstance(vocabulary, TokenVocabulary):
        return None
    unknown = tokens.filter(pa.array(vocabulary.rows(tokens) < vocabulary.first))
    return alike(unknown, vocabulary.known) if len(unknown) else None
