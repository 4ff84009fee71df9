"""Labelled texts: every form of file against the words and classes that stand in it."""

from __future__ import annotations

import gzip
import html
import importlib
import itertools
import re
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from embexp.data.columns import Columns, columns_of
from embexp.data.scan import Scan, encode_file, scan
from embexp.data.sources.source import source_of
from embexp.errors import ConfigError, DataError
from embexp.fields.texts.sources import with_ngrams, without_ngrams, words
from embexp.fields.texts.specs import Text, Words
from embexp.specs.data import Split
from embexp.specs.tables import Feature
from embexp.specs.vocabularies import VocabularyRules

TEXTS = [
    ("sport", "The ball, the GOAL!"),
    ("food", "Bread & ünder_cooked soup"),
    ("sport", "run2 x"),
    ("a, b", 'a "quoted" text'),
    ("food", ""),
]
WORDS = [["the", "ball", "the", "goal"], ["bread", "ünder_cooked", "soup"], ["run2"], ["quoted", "text"], []]
CLASSES = ("a, b", "food", "sport")
WHOLE = {"validation": 0, "test": 0}
FEATURES = {"words": Feature(table="word", max_sequence_length=4)}


def columns(data: Text, *, labelled: bool = True) -> Columns:
    return columns_of(data, FEATURES, labelled=labelled)[0]


def scanned(data: Text, tmp_path: Path) -> Scan:
    return scan(data, columns(data), cache=tmp_path / "cache")


def words_of(found: Scan) -> list[list[str]]:
    column, names = found.examples.lists["words"], found.vocabularies["word"].tokens()
    ends = column.splits
    return [[names[row] for row in column.values[ends[i] : ends[i + 1]]] for i in range(found.examples.count)]


def labels_of(found: Scan) -> list[str]:
    assert found.examples.labels is not None
    assert found.examples.labels.dtype == np.float32
    return [found.classes[int(label)] for label in found.examples.labels]


def write(form: str, tmp_path: Path) -> Path:
    path = tmp_path / f"texts{form}"
    match form:
        case ".txt":
            lines = [f"{label}\t{text}\n" for label, text in TEXTS]
            path.write_text("\ufeff" + "\n".join(lines), "utf-8")  # with empty lines, and a mark that editors add
        case ".csv":
            lines = [f'"{label}","{text.replace(chr(34), chr(34) * 2)}",x\r\n' for label, text in TEXTS]
            path.write_bytes("".join(["label,text,more\r\n", *lines]).encode("utf-8-sig"))
        case ".parquet":
            labels, texts = zip(*TEXTS, strict=True)
            pyarrow.parquet.write_table(pyarrow.table({"label": labels, "text": texts}), path)
        case "":
            for number, (label, text) in enumerate(TEXTS):
                (path / label).mkdir(parents=True, exist_ok=True)
                (path / label / f"{number}.txt").write_text(text, "utf-8")
    return path


TRAIN_ALL = Split(validation=0.0, test=0.0)


@pytest.mark.parametrize("form", [".txt", ".csv", ".parquet", ""])
def test_every_form_gives_the_same_words_and_classes(form: str, tmp_path: Path) -> None:
    found = scanned(Text(path=str(write(form, tmp_path)), split=TRAIN_ALL), tmp_path)
    order = [3, 1, 4, 0, 2] if form == "" else range(5)  # a folder is read class by class
    assert found.classes == CLASSES
    assert words_of(found) == [WORDS[i] for i in order]
    assert labels_of(found) == [TEXTS[i][0] for i in order]
    assert found.vocabularies["word"].tokens()[:2] == ["<oov>", "the"]
    assert found.label_mean == pytest.approx(6 / 5)


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_words_are_runs_of_two_or_more_word_characters(text: str) -> None:
    runs = re.split(r"\W+", text.lower())
    assert words(text) == [run for run in runs if len(run) > 1]


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_words_of_one_letter_and_punctuation_stay_by_choice(text: str) -> None:
    """Character by character: those of words are joined, blanks are dropped, others stand alone."""
    every: list[str] = []
    joined = False
    for letter in text.lower():
        word = letter == "_" or letter.isalnum()
        if word and joined:
            every[-1] += letter
        elif not letter.isspace():
            every.append(letter)
        joined = word
    assert words(text, kind=Words.PUNCTUATION) == every
    assert words(text, kind=Words.ALL) == [word for word in every if word[0] == "_" or word[0].isalnum()]


def test_the_kind_of_words_is_that_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a\tI 'd buy a B2, again!\n")
    expected = {"long": "buy b2 again", "all": "i d buy a b2 again", "punctuation": "i ' d buy a b2 , again !"}
    for kind, found in expected.items():  # one cache for all
        data = Text(path=str(tmp_path / "t.txt"), split=TRAIN_ALL, words=Words(kind))
        assert words_of(scanned(data, tmp_path)) == [found.split()]


def test_numbers_as_labels_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("".join(f"{label}\tsome words\n" for label in (10, 9, 2)))
    assert scanned(Text(path=str(tmp_path / "n.txt"), split=TRAIN_ALL), tmp_path).classes == ("2", "9", "10")


def test_long_texts_are_cut(tmp_path: Path) -> None:
    data = Text(path=str(write(".txt", tmp_path)), split=TRAIN_ALL, max_length=2)
    assert words_of(scanned(data, tmp_path)) == [each[:2] for each in WORDS]


def test_vocabulary_rules_hold(tmp_path: Path) -> None:
    rules = VocabularyRules(min_frequency=2)
    data = Text(path=str(write(".txt", tmp_path)), split=TRAIN_ALL, vocabulary=rules)
    assert scanned(data, tmp_path).vocabularies["word"].tokens() == ["<oov>", "the"]


@pytest.fixture
def many(tmp_path: Path) -> Path:
    path = tmp_path / "many.txt"
    path.write_text("".join(f"{'ab'[i % 2]}\tword{i} common\n" for i in range(200)))
    return path


def test_fewer_examples_train_and_the_rest_stays(many: Path, tmp_path: Path) -> None:
    full, some, fewer = (scanned(Text(path=str(many), train_examples=count), tmp_path) for count in (None, 40, 10))
    assert [len(each.splits["train"]) for each in (full, some, fewer)] == [160, 40, 10]
    assert set(fewer.splits["train"]) < set(some.splits["train"]) < set(full.splits["train"])
    assert (np.diff(some.splits["train"]) > 0).all()
    assert (some.splits["train"] >= 100).sum() > 10  # 20 expected, standard deviation 3; not just the first ones
    for part in ("validation", "test"):
        np.testing.assert_array_equal(full.splits[part], fewer.splits[part])
    # The vocabulary is that of the whole training part: its texts are known, only the labels are few.
    assert fewer.vocabularies["word"].digest == full.vocabularies["word"].digest
    assert fewer.vocabularies["word"].size == 160 + 2
    assert fewer.examples.labels is not None
    assert fewer.label_mean == pytest.approx(float(fewer.examples.labels[fewer.splits["train"]].mean()))


def test_more_training_examples_than_there_are(many: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="train_examples is 161, but the training split has 160 examples"):
        scanned(Text(path=str(many), train_examples=161), tmp_path)


def test_the_digest_is_of_the_content(tmp_path: Path) -> None:
    def digest(path: Path) -> str:
        data = Text(path=str(path))
        return source_of(data).digest(columns(data), cache=tmp_path / "cache")

    first, folder = write(".txt", tmp_path), write("", tmp_path)
    copy = tmp_path / "copy.txt"
    copy.write_bytes(first.read_bytes())
    assert digest(first) == digest(copy)
    copy.write_text("a\tb")
    assert digest(first) != digest(copy)
    before = digest(folder)
    (folder / "food").rename(folder / "drink")
    assert digest(folder) != before


def test_another_file_with_the_classes_of_a_run(tmp_path: Path) -> None:
    data = Text(path=str(write(".csv", tmp_path)), split=TRAIN_ALL)
    found = scanned(data, tmp_path)

    def encoded(text: str, *, labelled: bool) -> list[float] | None:
        other = tmp_path / "other.csv"
        other.write_text(text)
        examples = encode_file(
            other,
            data,
            columns(data, labelled=labelled),
            found.vocabularies,
            cache=tmp_path / "cache",
            classes=found.classes,
        )
        assert examples.lists["words"].values.tolist() == found.vocabularies["word"].rows(["soup", "new"]).tolist()
        return None if examples.labels is None else examples.labels.tolist()

    assert encoded("label,text\nsport,soup new\n", labelled=True) == [2.0]  # one class, by its number in the run
    assert encoded("text\nsoup new\n", labelled=False) is None
    with pytest.raises(DataError, match=r"other.csv, line 2: found the label 'art', expected .* a, b, food, sport"):
        encoded("label,text\nart,soup new\n", labelled=True)


@pytest.mark.parametrize(("line", "expected"), [("cats purr", ["cats", "purr"]), ("pets\tcats purr", ["cats", "purr"])])
def test_unlabelled_lines(line: str, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("pets\tcats purr pets")
    data = Text(path=str(path), split=TRAIN_ALL)
    vocabularies = scanned(data, tmp_path).vocabularies
    (tmp_path / "o.txt").write_text(line)
    examples = encode_file(
        tmp_path / "o.txt", data, columns(data, labelled=False), vocabularies, cache=tmp_path / "cache"
    )
    names = vocabularies["word"].tokens()
    assert [names[row] for row in examples.lists["words"].values] == expected


@pytest.mark.parametrize(
    ("delimiter", "encoding", "lines"),
    [
        ("space", "cp1252", "0 caf\xe9 red\r\n\r\n1 blue sky\n"),
        ("whitespace", "utf-8", " 0\tcaf\xe9  red\n1   blue sky"),
        ("colons", "utf-16", "0::caf\xe9 red\r\n1::blue sky\r\n"),
    ],
)
def test_lines_with_another_delimiter_and_encoding(delimiter: str, encoding: str, lines: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(lines.encode(encoding))
    data = Text.model_validate(
        {"path": str(tmp_path / "t.txt"), "delimiter": delimiter, "encoding": encoding, "split": TRAIN_ALL}
    )
    assert not source_of(data).head_faults(columns(data))
    found = scanned(data, tmp_path)
    assert words_of(found) == [["café", "red"], ["blue", "sky"]]
    assert labels_of(found) == ["0", "1"]


def test_unlabelled_lines_whose_delimiter_words_have_too(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("good fine film\nbad poor plot\n")
    data = Text(path=str(tmp_path / "t.txt"), delimiter="space", split=TRAIN_ALL)
    found = scanned(data, tmp_path)
    names = found.vocabularies["word"].tokens()
    for lines, expected in (
        ("good plot\nbad film\n", ["plot", "film"]),  # all begin with a class
        ("fine plot\nbad film\n", ["fine", "plot", names[0], "film"]),
    ):
        (tmp_path / "o.txt").write_text(lines)
        columns_ = columns(data, labelled=False)
        examples = encode_file(
            tmp_path / "o.txt", data, columns_, found.vocabularies, cache=tmp_path / "cache", classes=found.classes
        )
        assert [names[row] for row in examples.lists["words"].values] == expected


def test_csv_with_another_delimiter_and_encoding(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes('text;label\r\n"caf\xe9; ""red""";a\r\n;b\r\n'.encode("latin-1"))
    data = Text(path=str(tmp_path / "t.csv"), delimiter="semicolon", encoding="latin-1", split=TRAIN_ALL)
    assert words_of(scanned(data, tmp_path)) == [["café", "red"], []]


def test_records_lack_the_defaults() -> None:
    assert not {"delimiter", "encoding", "words"} & set(Text().model_dump(mode="json"))


FAULTS = {
    "no tab": ("t.txt", b"a\tgood\nbad line\n", "t.txt, line 2: found no tab, expected label<TAB>text"),
    "no label": ("t.txt", b"a\tgood\n\tbad\n", "t.txt, line 2: found no label, expected the name of a class"),
    "not UTF-8": ("t.txt", b"a\tgood\nb\t\xff\n", "t.txt, line 2: found bytes that are not UTF-8"),
    "too few fields": ("t.csv", b'label,text\na,"two\nlines"\nb\n', "t.csv, line 4: found 1 fields, expected 2"),
    "no label in a field": ("t.csv", b"label,text\n,x\n", "t.csv, line 2: found no label"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_wrong_line_is_named(case: str, tmp_path: Path) -> None:
    name, content, message = FAULTS[case]
    (tmp_path / name).write_bytes(content)
    data = Text(path=str(tmp_path / name))
    with pytest.raises(DataError, match=re.escape(message)):
        scanned(data, tmp_path)
    [fault] = source_of(data).head_faults(columns(data))  # and before anything starts
    assert (fault.path, message in fault.rule) == ("data.path", True)


HEADS = {
    "missing": ("none.txt", None, "data.path", "there is no such file or folder"),
    "empty": ("t.txt", b"", "data.path", "the file is empty"),
    "no column": ("t.csv", b"kind,text\na,b\n", "data.label", "has no such column"),
    "a column twice": ("t.csv", b"label,text,text\na,b,c\n", "data.text", "has 2 columns with this name"),
    "no Parquet": ("t.parquet", b"label", "data.path", "can't be read as Parquet"),
}


@pytest.mark.parametrize("case", HEADS)
def test_what_a_look_at_the_file_tells(case: str, tmp_path: Path) -> None:
    name, content, path, message = HEADS[case]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    data = Text(path=str(tmp_path / name))
    [fault] = source_of(data).head_faults(columns(data))
    assert fault.path == path
    assert message in fault.rule
    with pytest.raises(ConfigError, match=re.escape(message)):
        scanned(data, tmp_path)


def test_folders_that_hold_no_texts(tmp_path: Path) -> None:
    data = Text(path=str(tmp_path))
    [fault] = source_of(data).head_faults(columns(data))
    assert fault.rule == "a folder of labelled texts must hold one folder per class"
    (tmp_path / "sport").mkdir()
    [fault] = source_of(data).head_faults(columns(data))
    assert fault.rule == "the folder holds no texts (NAME.txt) in folders"


def test_columns_and_splits_that_texts_do_not_have(tmp_path: Path) -> None:
    data = Text(path=str(write(".txt", tmp_path)), split=Split(kind="leave_one_out", group="user"))
    read, _ = columns_of(data, {"tokens": Feature(table="word")})
    split, column = source_of(data).head_faults(read)
    assert (split.path, split.rule) == ("data.split.kind", "texts have no users, so leave_one_out can't be used")
    assert (column.path, column.rule) == ("features.tokens", "texts have no such column; their only column is words")
    with pytest.raises(ConfigError, match="texts have no users"):
        scanned(data, tmp_path)


def test_a_number_column_of_parquet_is_no_text(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"label": ["a"], "text": [1.5]}), tmp_path / "t.parquet")
    data = Text(path=str(tmp_path / "t.parquet"))
    [fault] = source_of(data).head_faults(columns(data))
    assert (fault.path, fault.value) == ("data.text", "'text'")
    assert fault.rule == f"its values must be text or integers in {tmp_path / 't.parquet'}"


@pytest.mark.slow
def test_the_library_of_this_python(tmp_path: Path) -> None:
    data = Text(split=TRAIN_ALL)
    assert source_of(data).head_faults(columns(data)) == []
    found = scanned(data, tmp_path)
    assert 8 <= len(found.classes) <= 15
    assert found.examples.count > 2_000
    assert found.examples.labels is not None
    sizes = np.bincount(found.examples.labels.astype(int), minlength=len(found.classes))
    assert sizes.max() <= 400
    vocabulary = found.vocabularies["word"]
    assert (vocabulary.rows(["the", "socket", "decimal", "mailbox"]) > 0).all()
    # The texts are those that Python itself shows.
    labels = {" ".join(each): label for label, each in zip(labels_of(found), words_of(found), strict=True)}
    for text, label in ((html.escape.__doc__, "markup"), (importlib.import_module.__doc__, "imports")):
        assert labels[" ".join(words(str(text)))] == label
    assert len(labels) == found.examples.count  # each once


@given(st.lists(st.text(alphabet="ab c.é", max_size=12), min_size=1, max_size=4), st.integers(1, 5))
def test_ngrams_are_those_of_scikit_learn(texts: list[str], longest: int) -> None:
    analyzed = CountVectorizer(ngram_range=(1, longest)).build_analyzer()
    found = [with_ngrams(words(text), longest) for text in texts]
    assert found == [analyzed(text) for text in texts]
    sizes = np.array([len(each) for each in found])
    assert without_ngrams(sizes, longest).tolist() == [len(words(text)) for text in texts]


def test_ngrams_are_values_of_the_column(tmp_path: Path) -> None:
    (tmp_path / "texts.tsv").write_text("a\tnot good at all\nb\tnot bad\na\tgood\n")
    data = Text.model_validate({"path": str(tmp_path / "texts.tsv"), "max_length": 3, "ngrams": 2, "split": WHOLE})
    pairs = [["not", "good", "at", "not good", "good at"], ["not", "bad", "not bad"], ["good"]]
    assert words_of(scanned(data, tmp_path)) == pairs
    # What another setting has left in the cache is not read.
    single = [[word for word in each if " " not in word] for each in pairs]
    assert words_of(scanned(data.model_copy(update={"ngrams": 1}), tmp_path)) == single


class TestSplitElsewhere:
    """Texts that come as tokens."""

    TOKENS = (["The", "cat", "-"], ["a", "The"], ["cat", "cat"], ["-", "x"])

    def words_of(self, path: Path, tmp_path: Path, **more: object) -> list[list[str]]:
        data = Text(path=str(path), split=WHOLE, **more)  # type: ignore[arg-type]
        columns, _ = columns_of(data, {"words": Feature(table="word")})
        assert source_of(data).head_faults(columns) == []
        found = scan(data, columns, cache=tmp_path / "cache")
        tokens, column = found.vocabularies["word"].tokens(), found.examples.lists["words"]
        return [
            [tokens[row] for row in column.values[begin:end]]
            for begin, end in itertools.pairwise(column.splits.tolist())
        ]

    @pytest.mark.parametrize("separator", [" ", "|", ", "])
    def test_by_a_separator(self, separator: str, tmp_path: Path) -> None:
        lines = [f"{'ab'[number % 2]}\t{separator.join(tokens)}\n" for number, tokens in enumerate(self.TOKENS)]
        (tmp_path / "d.tsv.gz").write_bytes(gzip.compress("".join(lines).encode()))
        assert self.words_of(tmp_path / "d.tsv.gz", tmp_path, token_separator=separator) == list(self.TOKENS)

    @pytest.mark.parametrize("kind", [pyarrow.list_(pyarrow.string()), pyarrow.large_list(pyarrow.large_string())])
    def test_as_lists(self, kind: pyarrow.DataType, tmp_path: Path) -> None:
        table = pyarrow.table({"text": pyarrow.array(list(self.TOKENS), kind), "label": ["a", "b", "a", "b"]})
        pyarrow.parquet.write_table(table, tmp_path / "d.parquet")
        assert self.words_of(tmp_path / "d.parquet", tmp_path) == list(self.TOKENS)
