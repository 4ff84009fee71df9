"""Tests of vectors in files, in the forms in which they are published."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from embexp.errors import DataError
from embexp.vectors import quality

PAIRS = {
    "wordsim353.tsv": "# The WordSimilarity-353 Test Collection\n# Word 1\tWord 2\tHuman (mean)\nlove\tsex\t6.77\n",
    "combined.csv": "Word 1,Word 2,Human (mean)\nlove,sex,6.77\n",
    "set1.csv": "Word 1,Word 2,Human (Mean),1,2\r\nlove,sex,6.77,9,6\r\ntiger,cat,7.35,9,7\r\n",
    "SimLex-999.txt": "word1\tword2\tPOS\tSimLex999\tconc(w1)\nlove\tsex\tA\t6.77\t2.72\nbad\tgood\tA\t1\t2\n",
    "men.txt": "love sex 6.770000\nsun sunlight 50.000000\n",
    "rg65.csv": "love;sex;6.77\ncord;smile;0.02\n",
    "simverb.txt": "love\tsex\tV\t6.77\tSYNONYMS\ntake\tremain\tV\t1.2\tNONE\n",
    "numbered.csv": ',word1,word2,similarity\n0,love,sex,6.77\n1,"a, b",nan,2\n2,,,\n',
    "marked.tsv": "\ufefflove\tsex\t6.77\rtiger\tcat\t7.35\r",
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(PAIRS[name].encode())
    found = quality.read_pairs(tmp_path / name)
    assert found.words[0] == ("love", "sex")
    assert found.scores[0] == 6.77
    assert len(found.words) == len(found.scores) == (1 if name in ("wordsim353.tsv", "combined.csv") else 2)


def test_a_word_may_be_a_number_of_python_or_have_a_comma(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text(PAIRS["numbered.csv"])
    assert quality.read_pairs(tmp_path / "n.csv").words[1] == ("a, b", "nan")


def test_analogies(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text(": capitals\nAthens Greece Oslo Norway\n: gram1\n\na b c d\ne f g h\n")
    found = quality.read_analogies(tmp_path / "q.txt")
    assert found.questions == [("Athens", "Greece", "Oslo", "Norway"), ("a", "b", "c", "d"), ("e", "f", "g", "h")]
    assert (found.sections, found.section) == (["capitals", "gram1"], [0, 1, 1])
    (tmp_path / "bare.txt").write_text("a b c d\n")
    assert quality.read_analogies(tmp_path / "bare.txt").sections == ["bare"]


CATEGORIES = {
    "two columns": "cat\tanimal\ndog\tanimal\noak\ttree\ncat\ttree\n",
    "header": "word,category\ncat,animal\ndog,animal\noak,tree\n",
    "index": ",word,category\n0,cat,animal\n1,dog,animal\n2,oak,tree\n",
    "sections": ": animal\ncat dog\n: tree\noak\n",
}


@pytest.mark.parametrize("form", CATEGORIES)
def test_categories(form: str, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text(CATEGORIES[form])
    found = quality.read_categories(tmp_path / "c.txt")
    assert (found.words, found.categories) == (["cat", "dog", "oak"], ["animal", "animal", "tree"])


def test_categories_that_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("cat 1\ndog 1\noak 2\n")
    assert quality.read_categories(tmp_path / "c.txt").categories == ["1", "1", "2"]


FAULTS = {
    "no number": ("pairs", "a\tb\nc\td\n", r"found columns of words, words, expected two columns of words and one"),
    "bad number": ("pairs", "a\tb\t1\nc\td\tx\ne\tf\t2\ng\th\t2\n", r"line 2: found 'x', expected a number"),
    "infinite": ("pairs", "a\tb\t1\nc\td\tinf\ne\tf\t2\n", r"line 2: found 'inf', expected a number"),
    "columns": ("pairs", "a\tb\t1\nc\td\n", r"line 2: found 2 columns, expected 3, as in line 1"),
    "empty": ("pairs", "# nothing\n\n", r"found no lines with words"),
    "not text": ("pairs", "\udcff\udcfe", r"byte 1: found bytes that are not UTF-8"),
    "three words": ("analogies", ": s\na b c d\na b c\n", r"line 3: found 3 words, expected four"),
    "no questions": ("analogies", ": s\n", r"found no questions"),
    "one column": ("categories", "cat\ndog\n", r"found 1 column, expected a word and its category"),
    "quotes": ("categories", 'cat,animal\n"dog,' + "x" * 140_000 + ",animal\n", r"line 2: found"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults(case: str, tmp_path: Path) -> None:
    kind, text, said = FAULTS[case]
    (tmp_path / "f.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=said):
        getattr(quality, f"read_{kind}")(tmp_path / "f.txt")
    with pytest.raises(DataError, match="there is no such file"):
        getattr(quality, f"read_{kind}")(tmp_path / "none.txt")


def test_lookup() -> None:
    tokens = pa.array(["US", "us", "straße", "STRASSE", "sun", "last"], pa.large_string())
    found = quality.Lookup(tokens, rows=5)
    assert found.rows(["us", "US", "STRASSE", "last", "none"]).tolist() == [0, 0, 2, -1, -1]
    assert found.first.tolist() == [0, 0, 2, 2, 4]
    exact = quality.Lookup(tokens, rows=6, any_case=False)
    assert exact.rows(["us", "US", "Us"]).tolist() == [1, 0, -1]


def test_parts_of_speech_may_be_missing_in_the_tokens() -> None:
    lookup = quality.Lookup(pa.array(["sun", "sun-n", "run"], pa.large_string()), rows=3)
    assert lookup.rows(["sun-n", "run-v"]).tolist() == [1, 2]
    assert lookup.rows(["run-v", "sun"]).tolist() == [-1, 0]  # not all words have one, so these are words
