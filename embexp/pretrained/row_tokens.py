"""What the rows of a table stand for, as alignments take it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.vocabulary import IdentityVocabulary, TokenVocabulary, Vocabulary
from embexp.vectors.alignment import RowTokens


def row_tokens(vocabulary: Vocabulary) -> RowTokens:
    """The tokens of a vocabulary; row numbers as decimal text where ids are row numbers."""
    match vocabulary:
        case TokenVocabulary():
            return RowTokens(vocabulary.known, int(vocabulary.oov), vocabulary.known_frequencies)
        case IdentityVocabulary():
            return RowTokens(pc.cast(pa.array(np.arange(vocabulary.size)), pa.large_string()))
        case _:
            raise TypeError(f"a vocabulary of type {type(vocabulary).__name__}")
