"""The files of tokens in a SavedModel: one token per line, as TensorFlow's reader of lines takes them."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.vocabularies.vocabulary import TokenVocabulary
from embexp.system import files

_LINES = 65_536
ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"))
"""How line ends are written, if a token of the file has one."""


def lines_of(vocabulary: TokenVocabulary) -> pa.LargeStringArray:
    """The tokens in the order of their lines in a file for a graph: of rows, then those that share the rare row."""
    if vocabulary.rare is None:
        return vocabulary.known
    return pa.concat_arrays([vocabulary.known, vocabulary.rare])


def has_line_ends(tokens: pa.LargeStringArray) -> bool:
    """Whether the lines of tokens are escaped: TensorFlow's reader ends them at line feeds, drops carriage returns."""
    return bool(pc.any(pc.match_substring_regex(tokens, "[\n\r]")).as_py())


def write_tokens(file: Path, tokens: pa.LargeStringArray) -> None:
    """Writes tokens for a graph, one per line."""
    escaped = has_line_ends(tokens)
    with files.atomic_write(file) as out:
        for start in range(0, len(tokens), _LINES):
            some = tokens.slice(start, _LINES)
            if escaped:
                for plain, escape in ESCAPES:
                    some = pc.replace_substring(some, plain, escape)
            out.write("".join(f"{token}\n" for token in some.to_pylist()).encode())


def unescaped(lines: pa.LargeStringArray) -> pa.LargeStringArray:
    """The tokens of escaped lines."""
    plain = {escape: each for each, escape in ESCAPES}
    texts = [re.sub(r"\\.", lambda found: plain[found[0]], line) for line in lines.to_pylist()]
    return pa.array(texts, pa.large_string())
