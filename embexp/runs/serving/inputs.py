"""What an exported model takes, inside its TensorFlow graph: tokens to rows, numbers transformed.

The arithmetic of numeric columns is that of `embexp.data.numbers`, in float64. Only the logarithms may differ in their
last bit, and so, once in a hundred million values, float32 by one unit in the last place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from embexp.data.files.dialect import NULLS
from embexp.data.numbers import FittedColumn
from embexp.data.vocabularies.vocabulary import BucketVocabulary, HashVocabulary, TokenVocabulary, Vocabulary
from embexp.specs.data import Transform
from embexp.specs.vocabularies import WHOLE_NUMBER, Step
from embexp.system import files

_LINES = 65_536


class Served(tf.Module):  # type: ignore[misc]  # TensorFlow is untyped
    """A vocabulary in a graph.

    Attributes:
        size: number of rows.
        takes: dtype of the values: `tf.string` of tokens, `tf.float32` of numbers in buckets, or `tf.int64` if they are
            the row numbers themselves.
        rows: the row of each value, int64, of the shape of the values; row numbers are returned as they are.
        find: the same, where values without a row are no error but have a negative number.
    """

    def __init__(self, size: int, takes: Any, rows: Callable[[Any], Any]) -> None:
        super().__init__()
        self.size, self.takes, self.rows, self.find = size, takes, rows, rows


def served(name: str, vocabulary: Vocabulary, folder: Path) -> Served:
    """A vocabulary in a graph.

    Args:
        name: of the vocabulary, for its file and for errors.
        folder: where the file of tokens is written; exporting copies it.
    """
    match vocabulary:
        case TokenVocabulary():
            return ServedTokens(name, vocabulary, folder)
        case HashVocabulary():
            return Served(vocabulary.size, tf.string, partial(_hash_rows, vocabulary))
        case BucketVocabulary():
            return Served(vocabulary.size, tf.float32, partial(_bucket_rows, vocabulary))
        case _:  # ids that are row numbers; the lookup checks them
            return Served(vocabulary.size, tf.int64, lambda values: tf.cast(values, tf.int64))


def _bucket_rows(vocabulary: BucketVocabulary, values: Any) -> Any:
    """Rows of numbers, NaN where a value is missing. There is no form of row numbers."""
    place = tf.searchsorted(tf.constant(vocabulary.boundaries, tf.float32), values, "right")
    return tf.cast(tf.where(tf.math.is_nan(values), 0, place + 1), tf.int64)


def _hash_rows(vocabulary: HashVocabulary, values: Any) -> Any:
    if values.dtype != tf.string:
        return tf.cast(values, tf.int64)
    values = normalized(values, vocabulary.steps)
    found = tf.strings.to_hash_bucket_fast(values, vocabulary.buckets)
    return tf.where(values == "", tf.zeros_like(found), found + 1) if vocabulary.missing else found


class ServedTokens(Served):
    """Tokens: `tf.lookup` tables, initialized from a file of tokens, one per line; tokens of the rare row come last."""

    def __init__(self, name: str, vocabulary: TokenVocabulary, folder: Path) -> None:
        """Writes the file and makes the table; see `served`."""
        super().__init__(vocabulary.size, tf.string, self._rows_of)
        self.find = self._found
        self._of, self._first, self._oov = name, vocabulary.first, vocabulary.oov
        self._missing, self._rare = vocabulary.missing_frequency is not None, vocabulary.rare is not None
        self._known, self._steps = len(vocabulary.known), vocabulary.steps
        tokens = vocabulary.known
        if vocabulary.rare is not None:
            tokens = pa.concat_arrays([tokens, vocabulary.rare])
        self._file = folder / f"{name}.tokens.txt"
        # TensorFlow's reader of lines ends them at line feeds and drops carriage returns.
        self._escaped = bool(pc.any(pc.match_substring_regex(tokens, "[\n\r]")).as_py())
        _write(self._file, tokens, escaped=self._escaped)
        lines = tf.lookup.TextFileInitializer(
            str(self._file),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        if not len(tokens):  # all values were too rare, and TensorFlow makes no empty table: one key, and no line
            lines = tf.lookup.KeyValueTensorInitializer(tf.constant([""]), tf.constant([-1], tf.int64))
        self._rows = tf.lookup.StaticHashTable(lines, -1)

    def _found(self, values: Any) -> Any:
        """The row of each token, negative where there is none."""
        if values.dtype != tf.string:
            return tf.cast(values, tf.int64)
        values = normalized(values, self._steps)
        line = self._rows.lookup(_escaped(values) if self._escaped else values)
        # Lines that are no token's: -1, and with one OOV row in front of the tokens that is row 0 at once.
        simple = self._first == self._oov <= 1
        return line + self._first if simple else self._with_special_rows(values, line)

    def _rows_of(self, values: Any) -> Any:
        """The row of each token. Without an OOV row, an unknown one is an InvalidArgumentError of the running graph."""
        found = self._found(values)
        if self._oov or values.dtype != tf.string:
            return found
        unknown = tf.boolean_mask(values, found < 0)
        message = f"tokens without a row in the vocabulary of table {self._of}, which has no OOV row"
        with tf.control_dependencies(
            [tf.raw_ops.Assert(condition=tf.equal(tf.size(unknown), 0), data=[message, unknown])]
        ):
            return tf.identity(found)

    def _with_special_rows(self, tokens: Any, line: Any) -> Any:
        others = tf.fill(tf.shape(line), tf.constant(-1, tf.int64))
        if self._oov:
            others = tf.strings.to_hash_bucket_fast(tokens, self._oov)
        if self._missing:
            others = tf.where(tokens == "", tf.constant(self._oov, tf.int64), others)
        found = tf.where(line < 0, others, line + self._first)
        if self._rare:
            found = tf.where(line >= self._known, tf.constant(self._first - 1, tf.int64), found)
        return found


def _write(file: Path, tokens: pa.LargeStringArray, *, escaped: bool) -> None:
    with files.atomic_write(file) as out:
        for start in range(0, len(tokens), _LINES):
            some = tokens.slice(start, _LINES)
            if escaped:
                for plain, escape in _ESCAPES:
                    some = pc.replace_substring(some, plain, escape)
            out.write("".join(f"{token}\n" for token in some.to_pylist()).encode())


_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"))


def _escaped(tokens: Any) -> Any:
    for plain, escape in _ESCAPES:
        # In a pattern and in a rewrite of RE2, a backslash is written twice.
        tokens = tf.strings.regex_replace(tokens, plain.replace("\\", "\\\\"), escape.replace("\\", "\\\\"))
    return tokens


_SPACE = "".join(f"\\x{{{ord(letter):x}}}" for letter in map(chr, range(0x3001)) if letter.isspace())
"""What `str.strip` removes, for a class of RE2; `tf.strings.strip` removes ASCII only."""


def normalized(tokens: Any, steps: Collection[Step]) -> Any:
    """Tokens after some steps, as `normalized_text` makes them; all but `nfc`, which TensorFlow lacks."""
    if Step.STRIP in steps:
        tokens = tf.strings.regex_replace(tokens, f"^[{_SPACE}]+|[{_SPACE}]+$", "")
    if Step.LOWER in steps:
        tokens = lowered(tokens)
    if Step.NUMBER in steps:
        tokens = tf.strings.regex_replace(tokens, WHOLE_NUMBER, r"\1\2")
    return tokens


def lowered(texts: Any) -> Any:
    """In lower case, whatever the language of the machine: with a Turkish one, TensorFlow makes I another letter."""
    texts = tf.strings.regex_replace(tf.strings.lower(texts), "\u0130", "i\u0307")
    return tf.strings.lower(texts, encoding="utf-8")


def numbers_of_texts(texts: Any, decimal: str = ".", thousands: str = "") -> Any:
    """float32: the numbers that texts hold, NaN where one stands for a missing value; of the shape of the texts.

    A text that is no number is an InvalidArgumentError of the running graph.

    Args:
        decimal: the point of the numbers.
        thousands: between their groups of three digits; "" for nothing.
    """
    plain = tf.strings.strip(texts)
    missing = tf.reduce_any(plain[..., None] == tf.constant(NULLS), axis=-1)
    if thousands:
        plain = tf.strings.regex_replace(plain, re.escape(thousands), "")
    if decimal != ".":
        plain = tf.strings.regex_replace(plain, re.escape(decimal), ".")
    return tf.cast(tf.strings.to_number(tf.where(missing, "nan", plain), tf.float64), tf.float32)


def transformed_numbers(column: FittedColumn, values: Any) -> list[Any]:
    """float32 [n], NaN where a value is missing, to what the model gets: columns, float32 [n] each.

    A number that the data may not have is an InvalidArgumentError of the running graph.
    """
    missing = tf.math.is_nan(values)
    found = tf.cast(_checked(column, values, missing), tf.float64)
    if column.fill is not None:
        found = tf.where(missing, tf.constant(column.fill, tf.float64), found)
    for transform in column.transforms:
        found = _transformed(column, found, transform)
    return [tf.cast(found, tf.float32), *([tf.cast(missing, tf.float32)] if column.indicator else [])]


def _checked(column: FittedColumn, values: Any, missing: Any) -> Any:
    """The values, finite, or missing if the column's setting allows it."""
    allowed = tf.math.is_finite(values)
    expected = "finite numbers, as data.dense_features has missing: error"
    if column.fill is not None:
        allowed, expected = allowed | missing, "finite numbers, or NaN for missing ones"
    wrong = tf.boolean_mask(values, ~allowed)
    message = f"column {column.name}: expected {expected}, found"
    with tf.control_dependencies([tf.raw_ops.Assert(condition=tf.equal(tf.size(wrong), 0), data=[message, wrong])]):
        return tf.identity(values)


def _transformed(column: FittedColumn, values: Any, transform: Transform) -> Any:
    match transform:
        case Transform.NONE:
            return values
        case Transform.LOG1P:
            return tf.sign(values) * tf.math.log1p(tf.abs(values))
        case Transform.STANDARDIZE:
            return (values - tf.constant(column.mean, tf.float64)) / tf.constant(column.scale, tf.float64)
        case Transform.QUANTILE:
            return _ranks(values, tf.constant(column.quantiles, tf.float64), len(column.quantiles) - 1)


def _ranks(values: Any, quantiles: Any, steps: int) -> Any:
    left = tf.searchsorted(quantiles, values, "left")
    right = tf.searchsorted(quantiles, values, "right")
    low = tf.clip_by_value(right - 1, 0, steps - 1)
    below, above = tf.gather(quantiles, low), tf.gather(quantiles, low + 1)
    between = (tf.cast(low, tf.float64) + (values - below) / (above - below)) / steps
    found = tf.where(right > left, tf.cast(left + right - 1, tf.float64) / 2 / steps, between)
    found = tf.where(values >= quantiles[-1], tf.ones_like(found), found)
    return tf.where(values <= quantiles[0], tf.zeros_like(found), found)


def traced(function: Callable[..., Any], **specs: Any) -> Any:
    """A function for a signature, which takes arguments by keyword only."""
    return tf.function(lambda **given: function(**given), autograph=False).get_concrete_function(**specs)
