"""Tokens as keys and codes, compared with Python's own strings and Arrow's own functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.vocabularies.token_keys import Codes, packed, places_in, sorted_places, unpacked

awkward = ["", "a", "a\0", "\0", "a\0b", "12345678", "1234567\0", "123456789", "é" * 4, "é" * 5, "𝒳𝒳", "𝒳𝒳x", "\0" * 9]
tokens = st.text(max_size=11) | st.sampled_from(awkward) | st.integers(0, 99).map(str)
columns = st.lists(tokens | st.none(), max_size=40)


def encodable(values: list[str | None]) -> list[str | None]:
    return [value if value is None or value.isascii() or _utf8(value) else "?" for value in values]


def _utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@given(blocks=st.lists(columns.map(encodable), min_size=1, max_size=4), kind=st.sampled_from(["text", "large", "dict"]))
def test_codes_are_those_of_a_dict(blocks: list[list[str | None]], kind: str, tmp_path_factory) -> None:
    codes, known = Codes(), {"": 0}
    for block in blocks:
        array = pa.array(block, pa.large_string() if kind == "large" else pa.string())
        array = array.dictionary_encode() if kind == "dict" else array
        expected = [known.setdefault(value or "", len(known)) for value in block]
        assert codes.encode(packed(array)).tolist() == expected
    path = tmp_path_factory.mktemp("codes") / "tokens.arrow"
    codes.write(path)
    assert pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)["token"].to_pylist() == list(known)


def test_slices_and_the_last_bytes_of_a_buffer() -> None:
    array = pa.array(["first", None, "abcdefgh", "ab", "end"])
    for start in range(6):
        for stop in range(start, 6):
            part = array.slice(start, stop - start)
            words = packed(part)
            assert unpacked(words.keys, pa.array([], pa.large_string())).to_pylist() == [
                value or "" for value in part.to_pylist()
            ]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64()])
def test_integers_go_by_their_decimal_text(kind: pa.DataType) -> None:
    values = [0, 7, None, 100, 7] if kind == pa.int8() else [0, 7, None, 10**15, 7]
    codes = Codes()
    found = codes.encode(packed(pa.array([None if v is None else str(v) for v in values])))
    assert codes.encode(packed(pa.array(values, kind))).tolist() == found.tolist() == [1, 2, 0, 3, 2]


@given(counted=st.dictionaries(tokens.filter(_utf8), st.integers(0, 4), max_size=40))
def test_order_is_by_frequency_then_code_point(counted: dict[str, int]) -> None:
    array, frequencies = pa.array(list(counted), pa.large_string()), np.array(list(counted.values()), np.int64)
    expected = sorted(range(len(counted)), key=lambda place: (-frequencies[place], list(counted)[place]))
    assert sorted_places(array, frequencies).tolist() == expected


@given(known=st.lists(tokens.filter(_utf8).filter(bool), unique=True, max_size=30), asked=columns.map(encodable))
def test_places_are_those_that_arrow_finds(known: list[str], asked: list[str | None]) -> None:
    values, those = pa.array(known, pa.large_string()), pa.array(asked, pa.large_string())
    expected = pc.fill_null(pc.index_in(those, value_set=values, skip_nulls=True), -1)
    assert places_in(values, those).tolist() == expected.to_pylist()


def test_short_and_long_tokens_share_one_numbering(tmp_path: Path) -> None:
    codes = Codes()
    values = ["a long token", "short", "another long one", "short", "a long token", "x"]
    assert codes.encode(packed(pa.array(values))).tolist() == [1, 2, 3, 2, 1, 4]
    assert codes.encode(packed(pa.array(values[::-1]))).tolist() == [4, 1, 2, 3, 2, 1]
