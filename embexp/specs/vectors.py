"""The forms in which vectors lie on disk, and what becomes of values that can't be used. Standard library only."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """The form of a file of vectors."""

    NPY = "npy"
    NPZ = "npz"
    TEXT = "text"
    """A token and its numbers per line, with a header line or without, as the first lines tell."""
    GLOVE = "glove"
    """The same, without a header line."""
    WORD2VEC = "word2vec"
    """The same, with a header line: rows and dimension."""
    FASTTEXT = "fasttext"
    """As word2vec."""
    WORD2VEC_BINARY = "word2vec_binary"
    SAFETENSORS = "safetensors"
    HDF5 = "hdf5"
    PARQUET = "parquet"
    ARROW = "arrow"
    CHECKPOINT = "checkpoint"


class InvalidText(StrEnum):
    """What becomes of a token that is not UTF-8."""

    ERROR = "error"
    REPLACE = "replace"
    """Each wrong byte becomes U+FFFD."""
    SKIP = "skip"
    """The row is left out."""


class NonFinite(StrEnum):
    """What becomes of NaN, of infinities, and of numbers that float32 can't hold."""

    ERROR = "error"
    ZERO = "zero"
    """The number becomes 0."""
    SKIP = "skip"
    """The row is left out, so that its token counts as missing."""
    KEEP = "keep"
    """Nothing is looked at."""


class HeaderCount(StrEnum):
    """What becomes of a file whose header line names another number of rows than follow."""

    ERROR = "error"
    IGNORE = "ignore"
