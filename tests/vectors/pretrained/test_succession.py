"""Which row of an earlier table each row is, against dicts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.vocabularies.vocabulary import IdentityVocabulary, TokenVocabulary, Vocabulary
from embexp.specs.pretrained import Match
from embexp.vectors.alignment import RowKind
from embexp.vectors.pretrained import earlier


def of_tokens(tokens: list[str], oov: bool) -> TokenVocabulary:
    return TokenVocabulary(pa.array(tokens, pa.large_string()), np.ones(len(tokens), np.int64), oov)


TOKENS = st.builds(
    of_tokens, st.lists(st.sampled_from([str(n) for n in range(12)] + ["a", "b"]), unique=True), st.booleans()
)
VOCABULARIES = TOKENS | st.builds(IdentityVocabulary, st.integers(1, 14))


def names(vocabulary: Vocabulary, rows: int) -> list[object]:
    """What each row stands for, written down by hand: texts for tokens, numbers for special rows."""
    if isinstance(vocabulary, IdentityVocabulary):
        known: list[object] = [str(row) for row in range(vocabulary.size)]
    else:
        assert isinstance(vocabulary, TokenVocabulary)
        known = [*([-1] if vocabulary.oov else []), *vocabulary.known.to_pylist()]
    return [*known, *range(rows - len(known))]


@given(new=VOCABULARIES, old=VOCABULARIES, free=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_every_row_is_the_one_of_its_name(new: Vocabulary, old: Vocabulary, free: tuple[int, int]) -> None:
    rows, earlier_rows = new.size + free[0], old.size + free[1]
    found = earlier.aligned_with(new, rows, old, earlier_rows, Match.EXACT)
    after, place = names(new, rows), {name: row for row, name in enumerate(names(old, earlier_rows))}
    if not any(isinstance(name, str) and name in place for name in after):
        place = {}  # nothing in common: then special rows have nothing to go with either
    assert found.file_rows.tolist() == [place.get(name, -1) for name in after]
    kinds = [
        RowKind.PRETRAINED if name in place else RowKind.MISSING if isinstance(name, str) else RowKind.SPECIAL
        for name in after
    ]
    assert found.kinds.tolist() == kinds
    assert found.by[Match.EXACT] == sum(isinstance(name, str) and name in place for name in after)


@pytest.mark.parametrize(
    ("how", "expected"), [(Match.EXACT, [-1, -1, 1]), (Match.LOWER, [0, -1, 1]), (Match.NORMALISED, [0, 2, 1])]
)
def test_comparisons(how: Match, expected: list[int]) -> None:
    found = earlier.aligned_with(
        of_tokens(["US", "Straße", "it"], False), 3, of_tokens(["us", "it", "STRASSE"], False), 3, how
    )
    assert found.file_rows.tolist() == expected
