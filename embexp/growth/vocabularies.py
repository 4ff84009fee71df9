"""The vocabularies that a checkpoint is to be grown to, as the command line names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.vocabularies import vocabulary
from embexp.data.vocabularies.buckets import described, stands_for_tokens
from embexp.data.vocabularies.vocabulary import IdentityVocabulary, TokenVocabulary, Vocabulary
from embexp.errors import CommandLineError, DataError
from embexp.pretrained.earlier import EarlierCheckpoint
from embexp.vectors import stored

_SHOWN = 3


def files(arguments: Sequence[str], source: EarlierCheckpoint) -> dict[str, Path]:
    """The file of each table that is to be grown.

    Args:
        arguments: `FILE` where there is one table, `TABLE=FILE`, or a folder of vocabularies as a run writes it.
        source: the run, or checkpoint, that is grown.

    Raises:
        CommandLineError: an argument is none of these; with all faults.
    """
    found: dict[str, Path] = {}
    faults: list[str] = []
    for word in arguments:
        named, faulty = _named(word, source)
        faults += faulty
        faults += [f"{word}: a vocabulary for table {table!r} is named twice" for table in named if table in found]
        found |= named
    if not arguments:
        faults.append("name what it grows to: --vocabulary FILE, TABLE=FILE or FOLDER")
    if faults:
        tables = f"the tables of {source.folder.path} are {', '.join(source.tables)}"
        raise CommandLineError("\n    ".join([f"embexp checkpoint grow: {faults[0]}", *faults[1:], tables]))
    return found


def _named(word: str, source: EarlierCheckpoint) -> tuple[dict[str, Path], list[str]]:
    table, equals, rest = word.partition("=")
    if equals and not Path(word).exists():
        faults = [] if table in source.tables else [f"{word}: there is no table {table!r}"]
        faults += [] if Path(rest).is_file() else [f"{word}: there is no file {rest}"]
        return ({} if faults else {table: Path(rest)}), faults
    path = Path(word)
    if path.is_dir():
        of_tables = {each.stem: each for each in sorted(path.iterdir()) if each.suffix in (".tsv", ".json")}
        faults = [
            f"{word}: {each.name} is of no table" for name, each in of_tables.items() if name not in source.tables
        ]
        faults += [] if of_tables else [f"{word}: there is no vocabulary in this folder (TABLE.tsv or TABLE.json)"]
        return ({} if faults else of_tables), faults
    if not path.is_file():
        return {}, [f"{word}: there is no such file"]
    if len(source.tables) > 1:
        return {}, [f"{word}: there are several tables, so name one: TABLE={word}"]
    return {source.tables[0]: path}, []


def read(path: Path, before: Vocabulary) -> Vocabulary:
    """A new vocabulary.

    Args:
        path: a token per line, in the order of the rows; or a vocabulary as a run writes it.
        before: the old one. A file of tokens gets an OOV row if this has one, and tokens that it knows
            keep their frequencies.

    Raises:
        DataError: it is no such file, or a token is empty or repeated.
    """
    if not stands_for_tokens(before):
        raise DataError(
            f"{path}: the table's rows are {described(before)}, which don't grow by token; train a new run with more"
        )
    if path.suffix == ".json" or _is_written_by_a_run(path):
        found = Vocabulary.read(path.with_suffix(""))
        if isinstance(found, TokenVocabulary):
            _check(path, found.known, first=2 + found.first)
        kinds = type(found), type(before)
        if kinds[0] is not kinds[1]:
            raise DataError(
                f"{path}: found a vocabulary of {described(found)}, and the table's is one of {described(before)}"
            )
        return found
    tokens = stored.token_lines(path)
    _check(path, tokens, first=1)
    if isinstance(before, IdentityVocabulary):
        numbers = pc.cast(pa.array(np.arange(len(tokens))), pa.large_string())
        if (strange := pc.index(pc.equal(tokens, numbers), False).as_py()) >= 0:
            raise DataError(
                f"{path}, line {strange + 1}: found {tokens[strange].as_py()!r}, expected {strange}: ids of this table"
                " are its row numbers, so a longer vocabulary is 0, 1, 2, … (a line each)"
            )
        return IdentityVocabulary(len(tokens))
    assert isinstance(before, TokenVocabulary)
    rows = before.rows(tokens) - before.first
    counts = np.where(rows >= 0, before.known_frequencies[np.maximum(rows, 0)], 0) if len(before.known) else rows * 0
    rare = before.rare
    if rare is not None:  # those that have a row now
        rare = rare.filter(pc.invert(pc.is_in(rare, value_set=tokens)))
    return replace(before, known=tokens, known_frequencies=counts, rare=rare)


def with_gone(new: Vocabulary, before: Vocabulary, gone: np.ndarray) -> Vocabulary:
    """A vocabulary with tokens of the old one behind its own.

    Args:
        new: the new vocabulary.
        before: the old one.
        gone: int64, rising, the rows of the old one that are kept although `new` lacks them.
    """
    if isinstance(new, IdentityVocabulary):
        return IdentityVocabulary(new.size + len(gone))
    assert isinstance(new, TokenVocabulary)
    assert isinstance(before, TokenVocabulary)
    places = gone - before.first
    return replace(
        new,
        known=pa.concat_arrays([new.known, before.known.take(pa.array(places))]),
        known_frequencies=np.concatenate([new.known_frequencies, before.known_frequencies[places]]),
    )


def _is_written_by_a_run(path: Path) -> bool:
    if path.suffix != ".tsv":
        return False
    with path.open("rb") as file:
        return file.readline().rstrip(b"\n") == vocabulary.HEADER.encode()


def _check(path: Path, tokens: pa.LargeStringArray, *, first: int) -> None:
    """Raises DataError where a token is empty or repeated; `first` is the line of the first."""
    if not len(tokens):
        raise DataError(f"{path}: found no token, expected at least one")
    if (empty := pc.index(tokens, "").as_py()) >= 0:
        raise DataError(f"{path}, line {empty + first}: found an empty line, expected a token")
    encoded = tokens.dictionary_encode()
    if len(encoded.dictionary) == len(tokens):
        return
    codes = encoded.indices.to_numpy()
    _, earliest = np.unique(codes, return_index=True)
    again = np.setdiff1d(np.arange(len(codes)), earliest)
    some = [
        f"line {place + first}: {tokens[int(place)].as_py()!r}, as in line {earliest[codes[place]] + first}"
        for place in again[:_SHOWN]
    ]
    more = f"; and {len(again) - _SHOWN} more" if len(again) > _SHOWN else ""
    raise DataError(f"{path}: found tokens more than once, expected each once ({'; '.join(some)}{more})")
