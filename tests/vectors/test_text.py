"""Vectors in text, against files written by plain Python."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.errors import DataError
from embexp.specs.pretrained import Format, HeaderCount, InvalidText, NonFinite
from embexp.vectors import word_vectors
from embexp.vectors.file_source import open_vectors


def rounded(number: float) -> float:
    """The float32 next to a number."""
    return struct.unpack("<f", struct.pack("<f", number))[0]


def opened(folder: Path, data: bytes, name: str = "v.txt", **options):
    path = folder / name
    path.write_bytes(data)
    return open_vectors(path, cache=folder / "cache", **options)


def content(source) -> tuple[list[str], list[list[float]]]:
    assert source.dtype == np.float32
    values = source.read(0, source.rows)
    mapped = source.memory_map()
    assert type(mapped) is np.ndarray
    assert mapped.ctypes.data % 64 == 0
    assert mapped.flags.c_contiguous
    np.testing.assert_array_equal(mapped, values)
    return source.tokens.to_pylist(), values.tolist()


PLAIN = (["a", "b"], [[1.0, 2.0, 3.0], [-4.0, 0.5, 1e-3]])
PLAIN = (PLAIN[0], [[rounded(x) for x in row] for row in PLAIN[1]])
GOOD = {
    "plain": b"a 1 2 3\nb -4 .5 1e-3\n",
    "no line end at the end": b"a 1 2 3\nb -4 .5 1e-3",
    "header": b"2 3\na 1 2 3\nb -4 .5 1e-3\n",
    "header and trailing blanks": b"2 3 \na 1 2 3 \nb -4 .5 1e-3 \n",
    "CRLF": b"2 3\r\na 1 2 3\r\nb -4 .5 1e-3\r\n",
    "CRLF after blanks": b"a 1 2 3 \r\nb -4 .5 1e-3 \r\n",
    "tabs": b"a\t1\t2\t3\nb\t-4\t.5\t1e-3\n",
    "blanks in a row": b"a  1 2   3\nb -4\t .5 1e-3\n",
    "blank lines at the end": b"a 1 2 3\nb -4 .5 1e-3\n\n \r\n\n",
    "byte order mark": b"\xef\xbb\xbfa 1 2 3\nb -4 .5 1e-3\n",
    "plus signs and many digits": b"a +1 2.0000000000000000000 3E0\nb -4.0 +.5 0.001000\n",
    "a number too small for float32": b"a 1 2 3\nb -4 .5 1e-3\nc 1e-60 0 0\n",
}


@pytest.mark.parametrize("case", GOOD)
def test_good_text(case: str, tmp_path: Path) -> None:
    tokens, values = content(opened(tmp_path, GOOD[case]))
    assert (tokens[:2], values[:2]) == PLAIN
    assert values[2:] in ([], [[0.0, 0.0, 0.0]])


ODD = [
    ". . .", "at name@domain.com", "New York", "\u00a0", "a\u00a0b", "\u3000", "\x85", "x\x0by", "x\x0cy", "\x1c",
    "\u2028", "\u200b", "</s>", "x\ry", "a\tb", "\ufeff", "\x00", "1", "-", "e", "nan", "1_000", "😀", "a  b", "٣",
]  # fmt: skip


@pytest.mark.parametrize("header", [True, False])
def test_odd_white_space_and_blanks_in_tokens(header: bool, tmp_path: Path) -> None:
    tokens = ["the", *ODD]
    lines = [f"{token} {number} 0.5" for number, token in enumerate(tokens)]
    if header:
        lines.insert(0, f"{len(tokens)} 2")
    source = opened(tmp_path, "".join(f"{line}\n" for line in lines).encode())
    assert source.tokens.to_pylist() == tokens
    assert source.read(0, source.rows)[:, 0].tolist() == list(range(len(tokens)))


def test_first_of_duplicates_wins_and_they_are_counted(tmp_path: Path) -> None:
    source = opened(tmp_path, b"a 1\nb 2\na 3\nc 4\nb 5\na 6\n")
    assert content(source) == (["a", "b", "c"], [[1.0], [2.0], [4.0]])
    assert source.notes == {"rows left out: tokens seen before": 3}
    assert source.rows == 3


def test_duplicates_in_a_file_of_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "_BLOCK_BYTES", 64)
    monkeypatch.setattr("embexp.vectors.stored.CHUNK_BYTES", 24)
    tokens = [f"t{number % 37}" for number in range(500)]
    source = opened(tmp_path, "".join(f"{t} {n} {-n}\n" for n, t in enumerate(tokens)).encode())
    assert content(source) == ([f"t{n}" for n in range(37)], [[n, -n] for n in range(37)])


WRONG = {
    "row too short": (b"a 1 2 3\nb 1 2\n", r"v.txt, line 2: found 2 fields after the first, expected a token and 3"),
    "first row too short": (b"a 1 2\nb 1 2 3\nc 1 2 3\n", r"line 1: found 2 fields after the first, expected .* 3 num"),
    "row too long": (b"a 1 2 3\nb 1 2 3 4\nc 1 2 3\n", r"line 2: found a token and 4 numbers, expected .* 3 numbers"),
    "no number": (b"a 1 2 3\nb 1 x2 3\n", r"line 2: found 'x2' at place 2 of 3, expected a number"),
    "underscore": (b"a 1 2 3\nb 1 1_0 3\n", r"line 2: found '1_0' at place 2 of 3, expected a number"),
    "hexadecimal": (b"a 1 2 3\nb 1 0x1 3\n", r"line 2: found '0x1' at place 2 of 3, expected a number"),
    "empty line": (b"a 1 2 3\n\nb 1 2 3\n", r"line 2: found an empty line, expected a token and 3 numbers"),
    "header count too large": (b"3 1\na 1\nb 2\n", r"line 1: found 3 rows in the header line, and 2 rows below it"),
    "header count too small": (b"1 2\na 1 2\nb 2 2\n", r"line 1: found 1 row in the header line, and 2 rows below"),
    "header dim too large": (b"2 4\na 1 2\nb 2 2\n", r"line 1: found dimension 4 in the header line, and 2 numbers"),
    "header dim too small": (b"2 2\na 1 2 3\nb 2 2 3\n", r"line 2: found a token and 3 numbers, expected a token"),
    "invalid UTF-8": (b"a 1 2\n\xff\xfe 1 2\n", r"line 2: found the token b'\\xff\\xfe', expected text in UTF-8; to"),
    "NaN": (b"a 1 2\nb 3 nan\n", r"line 2: found nan at place 2 of 2, expected finite numbers; to continue, set"),
    "infinity": (b"2 2\na 1 2\nb -inf 2\n", r"line 3: found -inf at place 1 of 2, expected finite"),
    "too large for float32": (b"a 1 2\nb 1e39 2\n", r"line 2: found inf at place 1 of 2, expected finite"),
    "empty file": (b"", r"v.txt: found only whitespace, expected"),
    "blanks": (b" \n\n", r"v.txt: found only whitespace, expected"),
    "header alone": (b"0 3\n", r"v.txt: found no row of vectors"),
    "prose": (b"It was a dark night\nand stormy\n", r"line 1: found 'It was a dark night', expected a token and its"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("block", [1 << 18, 8], ids=["one block", "many blocks"])
def test_wrong_text(case: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, said = WRONG[case]
    if block == 8 and case not in ("first row too short", "prose", "header dim too large"):  # they look at many lines
        monkeypatch.setattr(word_vectors, "_BLOCK_BYTES", block)
    with pytest.raises(DataError, match=said):
        opened(tmp_path, data)
    assert not list((tmp_path / "cache").glob("vectors-*"))
    assert not list((tmp_path / "cache").glob(".making*"))


def test_bytes_that_are_valid_only_across_tokens_are_invalid(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1: found the token b'x\\xc3'"):
        opened(tmp_path, b"x\xc3 1\n\xa9 2\n")


def test_policies(tmp_path: Path) -> None:
    data = b"3 2\na 1 2\n\xff 3 4\nc nan 6\n"
    source = opened(tmp_path, data, invalid_text=InvalidText.REPLACE, non_finite=NonFinite.ZERO)
    assert content(source) == (["a", "\ufffd", "c"], [[1, 2], [3, 4], [0, 6]])
    assert source.notes == {
        "tokens that were not UTF-8, wrong bytes replaced": 1,
        "rows with numbers that were not finite, set to 0": 1,
    }
    source = opened(tmp_path, data, invalid_text=InvalidText.SKIP, non_finite=NonFinite.SKIP)
    assert content(source) == (["a"], [[1, 2]])
    source = opened(tmp_path, data, invalid_text=InvalidText.SKIP, non_finite=NonFinite.KEEP)
    assert source.tokens.to_pylist() == ["a", "c"]
    assert np.isnan(source.read(1, 2)[0, 0])


def test_a_row_that_is_left_out_may_hold_any_number(tmp_path: Path) -> None:
    source = opened(tmp_path, b"a 1 2\n\xff nan 4\n", invalid_text=InvalidText.SKIP)
    assert content(source) == (["a"], [[1, 2]])
    assert source.notes == {"rows left out: tokens that are not UTF-8": 1}


def test_wrong_header_count_may_be_ignored(tmp_path: Path) -> None:
    source = opened(tmp_path, b"9 1\na 1\nb 2\n", header_count=HeaderCount.IGNORE)
    assert content(source) == (["a", "b"], [[1], [2]])


def test_stated_formats(tmp_path: Path) -> None:
    data = b"2 1\n5 7\n"
    assert content(opened(tmp_path, data, format=Format.GLOVE)) == (["2", "5"], [[1], [7]])
    with pytest.raises(DataError, match="found 2 rows in the header line, and 1 row below it"):
        opened(tmp_path, data, format=Format.WORD2VEC)
    with pytest.raises(DataError, match=r"line 1: found 'a 1 2', expected the number of rows and the dimension; if"):
        opened(tmp_path, b"a 1 2\n", format=Format.FASTTEXT)


def test_a_first_token_that_is_a_number_is_no_header(tmp_path: Path) -> None:
    assert content(opened(tmp_path, b"7 1 2\n8 3 4\n")) == (["7", "8"], [[1, 2], [3, 4]])
    assert content(opened(tmp_path, b"7 5\nb 4\n")) == (["7", "b"], [[5], [4]])


def test_compressed(tmp_path: Path) -> None:
    data = b"2 1\na 1\nb 2\n"
    expected = (["a", "b"], [[1.0], [2.0]])
    for suffix, packed in {"gz": gzip.compress(data), "bz2": bz2.compress(data), "xz": lzma.compress(data)}.items():
        assert content(opened(tmp_path, packed, f"v.vec.{suffix}")) == expected
    with zipfile.ZipFile(tmp_path / "v.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.vec", data)
    assert content(open_vectors(tmp_path / "v.zip", cache=tmp_path / "cache")) == expected
    with zipfile.ZipFile(tmp_path / "v.zip", "a") as archive:
        archive.writestr("other.vec", data.replace(b"a", b"c"))
    with pytest.raises(DataError, match=r"found 2 files in the archive, expected a key .*: inner.vec, other.vec"):
        open_vectors(tmp_path / "v.zip", cache=tmp_path / "cache")
    other = open_vectors(tmp_path / "v.zip", cache=tmp_path / "cache", key="other.vec", format=Format.TEXT)
    assert other.tokens.to_pylist() == ["c", "b"]
    with pytest.raises(DataError, match=r"found no file 'x'; the files in it are inner.vec, other.vec"):
        open_vectors(tmp_path / "v.zip", cache=tmp_path / "cache", key="x", format=Format.TEXT)


def test_truncated_compressed_files(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    data = "".join(f"t{n} {random.normal()}\n" for n in range(3_000)).encode()
    whole = gzip.compress(data)
    with pytest.raises(DataError, match=r"v.txt.gz: found damaged data, expected a gz file: .* ended before"):
        opened(tmp_path, whole[: len(whole) // 2], "v.txt.gz")
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    with pytest.raises(DataError, match=r"v.txt.gz[:,]"):
        opened(tmp_path, bytes(broken), "v.txt.gz")
    damaged = "found damaged data, expected a gz file"
    with pytest.raises(DataError, match=f"v.txt.gz: {damaged}: Not a gzipped file"):
        opened(tmp_path, data, "v.txt.gz")
    with zipfile.ZipFile(tmp_path / "v.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("v.txt", data)
    whole = (tmp_path / "v.zip").read_bytes()
    with pytest.raises(DataError, match="found an incomplete zip archive"):
        opened(tmp_path, whole[: len(whole) // 2], "v.txt.zip")
    assert not list((tmp_path / "cache").glob("vectors-*"))


BLANKS = " \t"
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=8).filter(
    lambda token: token[0] not in BLANKS and token[-1] not in BLANKS and not number_after_blank(token)
)
NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def number_after_blank(token: str) -> bool:
    parts = token.replace("\t", " ").split(" ")
    try:
        float(parts[-1])
    except ValueError:
        return False
    return len(parts) > 1


@st.composite
def matrices(draw: st.DrawFn) -> tuple[list[str], list[list[float]]]:
    tokens = draw(st.lists(WORDS, min_size=1, max_size=12, unique=True))
    dim = draw(st.integers(1, 5))
    return tokens, draw(st.lists(st.lists(NUMBERS, min_size=dim, max_size=dim), min_size=len(tokens),
                                 max_size=len(tokens)))  # fmt: skip


@settings(max_examples=60)
@given(
    matrix=matrices(),
    ending=st.sampled_from(["\n", "\r\n", " \n", "\t \r\n"]),
    separator=st.sampled_from([" ", "\t", "  "]),
    form=st.sampled_from([repr, "{:.9e}".format, "{:.60f}".format]),
    block=st.sampled_from([7, 1 << 18]),
)
def test_round_trip_with_a_header(matrix, ending, separator, form, block, tmp_path_factory) -> None:
    tokens, values = matrix
    folder = tmp_path_factory.mktemp("text")
    lines = [f"{len(tokens)} {len(values[0])}"]
    lines += [separator.join([token, *map(form, row)]) for token, row in zip(tokens, values, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_vectors, "_BLOCK_BYTES", block)
        source = opened(folder, "".join(line + ending for line in lines).encode(), format=Format.WORD2VEC)
    assert source.tokens.to_pylist() == tokens
    expected = np.array([[rounded(float(form(x))) for x in row] for row in values], np.float32)
    np.testing.assert_array_equal(source.read(0, source.rows), expected)


@settings(max_examples=40)
@given(matrix=matrices())
def test_round_trip_without_a_header(matrix, tmp_path_factory) -> None:
    tokens, values = matrix
    tokens = [f"w{token}" for token in tokens]  # a first line of two numbers, or a byte order mark, would be read so
    lines = [" ".join([token, *map(repr, row)]) for token, row in zip(tokens, values, strict=True)]
    source = opened(tmp_path_factory.mktemp("text"), "".join(f"{line}\n" for line in lines).encode())
    assert source.tokens.to_pylist() == tokens
    np.testing.assert_array_equal(source.read(0, source.rows), np.array(values, np.float32))


BLANK_TOKENS = ["", " ", "  ", "\t", " \t"]
BLANK_NOTE = "rows left out: tokens that are blanks"


def read_plainly(lines: list[str], dim: int) -> tuple[list[str], list[list[float]], int]:
    """Tokens, values, and how many rows have a blank token, by Python's strings alone."""
    tokens, values, blank = [], [], 0
    for line in lines:
        *token, rest = line.rsplit(" ", dim)[0], line.rsplit(" ", dim)[1:]
        if "".join(token).strip(" \t"):
            tokens.append("".join(token))
            values.append([rounded(float(number)) for number in rest])
        else:
            blank += 1
    return tokens, values, blank


@settings(max_examples=80)
@given(
    matrix=matrices(),
    blanks=st.lists(st.tuples(st.integers(0, 12), st.sampled_from(BLANK_TOKENS)), min_size=1, max_size=4),
    header=st.booleans(),
    careful=st.booleans(),
    packed=st.sampled_from(["", ".gz", ".zip"]),
    block=st.sampled_from([7, 1 << 18]),
)
def test_rows_of_blank_tokens_are_left_out(matrix, blanks, header, careful, packed, block, tmp_path_factory) -> None:
    tokens, values = matrix
    rows = [(f"w{token}x", row) for token, row in zip(tokens, values, strict=True)]
    for place, token in blanks:
        # The first row stays the first: without a header, the dimension is taken from it.
        rows.insert(1 + place, (token, rows[0][1]))
    form = "{:.60f}".format if careful else repr
    lines = [" ".join([token, *map(form, row)]) for token, row in rows]
    expected = read_plainly(lines, len(values[0]))
    data = "".join(f"{line}\n" for line in ([f"{len(rows)} {len(values[0])}"] if header else []) + lines).encode()
    folder = tmp_path_factory.mktemp("blank")
    name = f"v.vec{packed}"
    if packed == ".gz":
        data = gzip.compress(data)
    elif packed == ".zip":
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr("v.vec", data)
        data = (folder / name).read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        if header or block > 7:
            patch.setattr(word_vectors, "_BLOCK_BYTES", block)
        if careful:
            patch.setattr(word_vectors, "_numbers", lambda *_: None)
        source = opened(folder, data, name, format=Format.WORD2VEC if header else Format.GLOVE)
    assert source.tokens.to_pylist() == expected[0]
    np.testing.assert_array_equal(source.read(0, source.rows), np.array(expected[1], np.float32))
    assert source.notes == {BLANK_NOTE: expected[2]}


@pytest.mark.parametrize("data", [b" 4 5 6\na 1 2 3\n", b"  4 5 6\na 1 2 3\n", b"\t4 5 6\na 1 2 3\n"])
def test_a_blank_token_in_the_first_row(data: bytes, tmp_path: Path) -> None:
    source = opened(tmp_path, data)
    assert content(source) == (["a"], [[1, 2, 3]])
    assert source.notes == {BLANK_NOTE: 1}


def test_a_short_row_after_a_blank_is_still_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 2: found 2 fields after the first, expected a token and 3 numbers"):
        opened(tmp_path, b"a 1 2 3\n b 2 3\nc 1 2 3\n")
