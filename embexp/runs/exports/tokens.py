"""Tokens to rows and back inside a TensorFlow graph, by a vocabulary that is written into a file of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import tensorflow as tf

from embexp.data.vocabulary import IdentityVocabulary, TokenVocabulary, Vocabulary
from embexp.system import files

_LINES = 65_536


class ServedVocabulary(tf.Module):  # type: ignore[misc]  # TensorFlow is untyped
    """A vocabulary in a graph: `tf.lookup` tables, initialized from a file of tokens, one per line.

    Attributes:
        size: number of rows.
        takes: dtype of the tokens: `tf.string`, or `tf.int64` if they are the row numbers themselves.
    """

    def __init__(self, name: str, vocabulary: Vocabulary, folder: Path) -> None:
        """Writes the file and makes the table.

        Args:
            name: of the vocabulary, for the file and for errors.
            vocabulary: what the rows stand for.
            folder: where the file is written; exporting copies it.
        """
        super().__init__()
        self.size, self._of, self._oov = vocabulary.size, name, vocabulary.oov
        self.takes = tf.int64 if isinstance(vocabulary, IdentityVocabulary) else tf.string
        self._escaped = False
        if isinstance(vocabulary, TokenVocabulary):
            self._file = folder / f"{name}.tokens.txt"
            # TensorFlow's reader of lines ends them at line feeds and drops carriage returns.
            self._escaped = bool(pc.any(pc.match_substring_regex(vocabulary.known, "[\n\r]")).as_py())
            _write(self._file, vocabulary, escaped=self._escaped)
            self._rows = tf.lookup.StaticHashTable(
                tf.lookup.TextFileInitializer(
                    str(self._file),
                    tf.string,
                    tf.lookup.TextFileIndex.WHOLE_LINE,
                    tf.int64,
                    tf.lookup.TextFileIndex.LINE_NUMBER,
                ),
                -1,
            )

    def rows(self, tokens: Any) -> Any:
        """The row of each token, int64, of the shape of `tokens`; that of the OOV row for unknown tokens.

        Without an OOV row, an unknown token is an InvalidArgumentError of the running graph. Row numbers are returned
        as they are: the lookup checks them.
        """
        if tokens.dtype != tf.string:
            return tf.cast(tokens, tf.int64)
        found = self._rows.lookup(_escaped(tokens) if self._escaped else tokens)
        if self._oov:
            return found + 1  # unknown tokens are -1, and the OOV row is 0
        unknown = tf.boolean_mask(tokens, found < 0)
        message = f"tokens without a row in the vocabulary of table {self._of}, which has no OOV row"
        with tf.control_dependencies(
            [tf.raw_ops.Assert(condition=tf.equal(tf.size(unknown), 0), data=[message, unknown])]
        ):
            return tf.identity(found)


def _write(file: Path, vocabulary: TokenVocabulary, *, escaped: bool) -> None:
    with files.written_whole(file) as out:
        for start in range(0, len(vocabulary.known), _LINES):
            tokens = vocabulary.known.slice(start, _LINES)
            if escaped:
                for plain, escape in _ESCAPES:
                    tokens = pc.replace_substring(tokens, plain, escape)
            out.write("".join(f"{token}\n" for token in tokens.to_pylist()).encode())


_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"))


def _escaped(tokens: Any) -> Any:
    for plain, escape in _ESCAPES:
        # In a pattern and in a rewrite of RE2, a backslash is written twice.
        tokens = tf.strings.regex_replace(tokens, plain.replace("\\", "\\\\"), escape.replace("\\", "\\\\"))
    return tokens
