"""Formats of files of vectors, and how to handle invalid values. Standard library only."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """The format of a file of vectors."""

    NPY = "npy"
    NPZ = "npz"
    TEXT = "text"
    """A token and its numbers per line; a header line is detected."""
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
    """How to handle a token that is not UTF-8."""

    ERROR = "error"
    REPLACE = "replace"
    """Each invalid byte becomes U+FFFD."""
    SKIP = "skip"
    """The row is skipped."""


class NonFinite(StrEnum):
    """How to handle NaN, infinities and numbers beyond float32."""

    ERROR = "error"
    ZERO = "zero"
    """The number becomes 0."""
    SKIP = "skip"
    """The row is skipped, so that its token counts as missing."""
    KEEP = "keep"
    """Values are not checked."""


class HeaderCount(StrEnum):
    """How to handle a file with a wrong number of rows in its header line."""

    ERROR = "error"
    IGNORE = "ignore"
