"""New vocabularies as the user names them, and what is wrong with them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from embexp.data.vocabularies.vocabulary import IdentityVocabulary, TokenVocabulary
from embexp.errors import CommandLineError, DataError, NotARunError
from embexp.specs.pretrained import Match
from embexp.vectors.pretrained import earlier, growth
from embexp.vectors.pretrained.earlier import EarlierCheckpoint
from embexp.vectors.pretrained.growth import Gone, growths
from tests.growth.conftest import Runs

BEFORE = TokenVocabulary(pa.array(["a", "b"], pa.large_string()), np.array([5, 3]), True, (9,))


@pytest.fixture(scope="module")
def source(runs: Runs) -> EarlierCheckpoint:
    return earlier.open_run(runs.make(["a", "b", "c"]).path, cache=runs.folder / "cache")


WRONG = {
    "an empty line": (b"a\n\nb\n", "FILE, line 2: found an empty line, expected a token"),
    "nothing": (b"", "FILE: found no token, expected at least one"),
    "tokens twice": (
        b"a\nb\na\nc\nb\nb\na\n",
        "FILE: found tokens more than once, expected each once (line 3: 'a', as in line 1; line 5: 'b', as in line 2;"
        " line 6: 'b', as in line 2; and 1 more)",
    ),
    "not UTF-8": (b"a\n\xff\n", "FILE, line 2: found bytes that are not UTF-8 (b'\\xff'), expected text in UTF-8"),
}


@pytest.mark.parametrize(("content", "words"), WRONG.values(), ids=WRONG)
def test_wrong_files(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "new.txt"
    file.write_bytes(content)
    with pytest.raises(DataError, match=f"^{re.escape(words.replace('FILE', str(file)))}$"):
        growth.read_vocabularies(file, BEFORE)


def test_a_file_of_tokens_keeps_frequencies_and_the_row_of_unknown_values(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"x\r\nb\r\na y\r\n")
    found = growth.read_vocabularies(tmp_path / "new", BEFORE)
    assert isinstance(found, TokenVocabulary)
    assert found.known.to_pylist() == ["x", "b", "a y"]
    assert found.known_frequencies.tolist() == [0, 3, 0]
    assert (found.oov, found.oov_frequencies) == (True, (9,))


def test_a_vocabulary_of_a_run_speaks_for_itself(tmp_path: Path) -> None:
    TokenVocabulary(pa.array(["b", "t\tt"], pa.large_string()), np.array([8, 1]), False).write(tmp_path / "item")
    found = growth.read_vocabularies(tmp_path / "item.tsv", BEFORE)
    assert isinstance(found, TokenVocabulary)
    assert (found.known.to_pylist(), found.known_frequencies.tolist(), found.oov) == (["b", "t\tt"], [8, 1], False)
    (tmp_path / "item.tsv").write_text("token\tfrequency\tkind\n<oov>\t1\toov\na\t1\ttoken\na\t1\ttoken\n")
    with pytest.raises(DataError, match=r"line 4: 'a', as in line 3"):
        growth.read_vocabularies(tmp_path / "item.tsv", BEFORE)


def test_row_numbers(tmp_path: Path) -> None:
    before = IdentityVocabulary(3)
    (tmp_path / "more").write_text("0\n1\n2\n3\n4\n")
    assert growth.read_vocabularies(tmp_path / "more", before) == IdentityVocabulary(5)
    IdentityVocabulary(7).write(tmp_path / "item")
    assert growth.read_vocabularies(tmp_path / "item.json", before) == IdentityVocabulary(7)
    with pytest.raises(DataError, match="found a vocabulary of row numbers, but the table's is one of tokens"):
        growth.read_vocabularies(tmp_path / "item.json", BEFORE)
    (tmp_path / "more").write_text("0\n2\n1\n")
    with pytest.raises(DataError, match=r"more, line 2: found '2', expected 1: ids of this table are its row numbers"):
        growth.read_vocabularies(tmp_path / "more", before)


def test_words(source: EarlierCheckpoint, tmp_path: Path) -> None:
    file, odd = tmp_path / "new.txt", tmp_path / "a=b.txt"
    for each in (file, odd):
        each.write_text("a\n")
    assert growth.vocabulary_files([f"item={file}", f"user={odd}"], source) == {"item": file, "user": odd}
    folder = tmp_path / "vocabularies"
    folder.mkdir()
    (folder / "item.tsv").write_text("")
    (folder / "user.json").write_text("")
    assert growth.vocabulary_files([str(folder)], source) == {
        "item": folder / "item.tsv",
        "user": folder / "user.json",
    }


def test_every_wrong_word_is_told_at_once(source: EarlierCheckpoint, tmp_path: Path) -> None:
    file = tmp_path / "new.txt"
    file.write_text("a\n")
    (tmp_path / "film.tsv").write_text("")
    words = [f"itme={file}", "item=nowhere.txt", str(file), f"user={file}", f"user={file}", str(tmp_path), "nothing"]
    with pytest.raises(CommandLineError) as error:
        growth.vocabulary_files(words, source)
    assert str(error.value).splitlines() == [
        f"embexp checkpoint grow: itme={file}: there is no table 'itme'",
        "    item=nowhere.txt: there is no file nowhere.txt",
        f"    {file}: there are several tables, so name one: TABLE={file}",
        f"    user={file}: table 'user' is given two vocabularies",
        f"    {tmp_path}: film.tsv belongs to no table",
        "    nothing: there is no such file",
        f"    the tables of {source.folder.path} are user, item, user_bias, item_bias",
    ]


def test_nothing_in_common(source: EarlierCheckpoint, tmp_path: Path) -> None:
    file = tmp_path / "new.txt"
    file.write_text("A\nB\n")
    with pytest.raises(DataError, match="not one of its 2 tokens is in the vocabulary of table 'item'"):
        growths(source, {"item": file}, match=Match.EXACT, gone=Gone.DROP)
    found = growths(source, {"item": file}, match=Match.LOWER, gone=Gone.DROP)["item"]
    assert found.alignment.file_rows.tolist() == [0, 1, 2]


NOT_RUNS = {
    "nothing": ("nothing", "nothing: there is no such directory; give the directory of a finished run"),
    "a file": ("file", "file: is a file; give the directory"),
    "another folder": ("folder", "folder is not the directory of a run: there is no spec.json in it"),
    "a run that goes on": ("running", "running holds no checkpoint to take rows from: the run has not finished"),
    "a run without checkpoint": ("bare", r"bare holds no checkpoint to take rows from: the run saved no checkpoint \("),
}


@pytest.mark.parametrize(("name", "words"), NOT_RUNS.values(), ids=NOT_RUNS)
def test_what_is_no_run(runs: Runs, tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").write_text("")
    for folder in ("folder", "running", "bare"):
        (tmp_path / folder).mkdir()
    for folder in ("running", "bare"):
        (tmp_path / folder / "spec.json").write_text(runs.spec().model_dump_json())
    (tmp_path / "bare" / "summary.json").write_text("{}")
    with pytest.raises(NotARunError, match=words):
        earlier.open_run(tmp_path / name, cache=tmp_path)
