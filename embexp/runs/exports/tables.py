"""Tables of a finished run in files of vectors, written in blocks. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.vocabularies.buckets import described, stands_for_tokens
from embexp.data.vocabularies.vocabulary import TokenVocabulary
from embexp.errors import DataError
from embexp.pretrained.earlier import EarlierCheckpoint, row_tokens
from embexp.system.arrays import Rows, SomeRows
from embexp.system.parallel import Progress
from embexp.vectors import write
from embexp.vectors import write as vectors
from embexp.vectors.stored import shown


def write_npy(run: EarlierCheckpoint, tables: Mapping[str, Rows], directory: Path, *, progress: Progress) -> None:
    """Writes `NAME.npy` with all rows of each table and, where ids are no row numbers, `NAME.tokens.txt`.

    The line of the OOV row is `<oov>`, or empty if that is a token, and so are those of missing and rare values; lines
    of rows without a token are empty. Buckets have no tokens.

    Raises:
        DataError: a token has a line end.
    """
    for name, rows in tables.items():
        vocabulary, tokens = run.vocabulary(name), None
        if isinstance(vocabulary, TokenVocabulary):
            shown = [text for text, *_ in vocabulary.special]
            tokens_too = vocabulary.rows(shown) >= vocabulary.first
            before = ["" if token else text for text, token in zip(shown, tokens_too, strict=True)]
            after = [""] * (rows.rows - vocabulary.size)
            tokens = pa.concat_arrays([_strings(before), vocabulary.known, _strings(after)])
        vectors.write_vectors(rows, tokens, directory / f"{name}.npy", progress=progress)


def write_word2vec(
    run: EarlierCheckpoint, tables: Mapping[str, Rows], directory: Path, *, binary: bool, progress: Progress
) -> None:
    """Writes word2vec's text, `NAME.vec`, or binary form, `NAME.bin`, with the rows that have a token.

    Where ids are row numbers, they are the tokens.

    Raises:
        DataError: a token that word2vec's files can't hold, or rows that are buckets.
    """
    for name, rows in tables.items():
        path = directory / f"{name}.{'bin' if binary else 'vec'}"
        vocabulary = run.vocabulary(name)
        if not stands_for_tokens(vocabulary):
            rule = f"the rows of table {name} are {described(vocabulary)}, and word2vec's files hold rows of tokens"
            raise DataError(f"{path.name}: {rule}; leave the table out, or export it as npy")
        known = row_tokens(vocabulary)
        _check_word2vec(path, known.tokens)
        some = SomeRows(rows, np.arange(known.first, known.first + len(known.tokens)))
        vectors.write_vectors(some, known.tokens, path, progress=progress)


def write_projector(run: EarlierCheckpoint, tables: Mapping[str, Rows], directory: Path, *, progress: Progress) -> None:
    """Writes the rows that stand for something, with tokens and frequencies, for TensorBoard's Embedding Projector."""
    shapes = {}
    for name, rows in tables.items():
        vocabulary = run.vocabulary(name)
        columns = {"frequency": map(str, vocabulary.frequencies)} if isinstance(vocabulary, TokenVocabulary) else {}
        write.write_projector_table(rows, vocabulary.tokens(), columns, directory, name, progress=progress)
        shapes[name] = (vocabulary.size, rows.dim)
    write.write_projector_config(shapes, directory)


def _check_word2vec(path: Path, tokens: pa.LargeStringArray) -> None:
    """Raises DataError for a token with a blank, at which word2vec's readers would end it."""
    row = pc.index(pc.match_substring(tokens, " "), True).as_py()
    if row >= 0:
        raise DataError(
            f"{path.name}: found the token {shown(tokens[row].as_py())}, and word2vec's files hold no tokens with"
            " blanks; export the table as npy, which holds any"
        )


def _strings(values: list[str]) -> pa.LargeStringArray:
    return pa.array(values, pa.large_string())
