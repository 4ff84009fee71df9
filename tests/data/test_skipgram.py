"""Pairs of words: against the pairs that stand in the texts, and against the distributions of the paper."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.columns import Columns, columns_of
from embexp.data.scan import Scan, encode_file, scan
from embexp.data.sources.source import source_of
from embexp.errors import ConfigError, DataError
from embexp.fields.texts import sources
from embexp.fields.texts.sources import Corpus
from embexp.fields.texts.specs import SkipGram
from embexp.specs.data import Split
from embexp.specs.tables import Feature

FEATURES = {"center": Feature(table="word"), "context": Feature(table="context")}
PLAIN = {"min_count": 1, "subsample": 0.0, "negatives": 0, "split": Split(validation=0.0, test=0.0)}
Texts = list[list[str]]


def columns() -> Columns:
    return columns_of(SkipGram(), FEATURES)[0]


def write(texts: Texts, folder: Path) -> Path:
    path = folder / "texts.txt"
    path.write_text("".join(f"{' '.join(text)}\n" for text in texts))
    return path


def scanned(texts: Texts, folder: Path, **settings: object) -> Scan:
    data = SkipGram(path=str(write(texts, folder)), **{**PLAIN, **settings})  # type: ignore[arg-type]
    return scan(data, columns(), cache=folder / "cache")


def pairs_of(found: Scan, label: int) -> list[tuple[str, str]]:
    names = found.vocabularies["word"].tokens()
    assert found.examples.labels is not None
    assert found.examples.id_columns == ("center", "context")
    ids = found.examples.ids[found.examples.labels == label]
    return [(names[center], names[context]) for center, context in ids]


WORD = st.sampled_from(["aa", "bb", "cc", "dd"])


@given(texts=st.lists(st.lists(WORD, max_size=7), min_size=1, max_size=6))
def test_neighbours_in_a_text_make_all_pairs(texts: Texts, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    expected = Counter(
        pair for text in texts for left, right in pairwise(text) for pair in [(left, right), (right, left)]
    )
    if not expected or len({word for text in texts for word in text}) < 2:
        with pytest.raises(DataError, match=r"no text with two words next to each other|expected 2 or more"):
            scanned(texts, folder, context_window=1)
        return
    found = scanned(texts, folder, context_window=1)
    assert Counter(pairs_of(found, 1)) == expected
    assert not pairs_of(found, 0)
    assert found.label_mean == 1.0


def test_each_center_draws_its_own_reach(tmp_path: Path) -> None:
    """In a text of distinct words the contexts of each are those within one distance, which is uniform on 1..4.

    The text is longer than what is drawn from together, which costs the few pairs across each border.
    """
    count, window = 40_000, 4
    found = scanned([[f"w{i}" for i in range(count)]], tmp_path, context_window=window)
    contexts: dict[int, set[int]] = {}
    for center, context in pairs_of(found, 1):
        contexts.setdefault(int(center[1:]), set()).add(int(context[1:]) - int(center[1:]))
    whole = {frozenset(range(-b, b + 1)) - {0}: b for b in range(1, window + 1)}
    reaches = [whole.get(frozenset(each)) for each in contexts.values()]
    assert reaches.count(None) <= 2 * window * 3
    drawn = np.bincount([reach for reach in reaches if reach], minlength=window + 1)[1:]
    # 10,000 expected of each, standard deviation 87.
    assert np.abs(drawn - count / window).max() < 5 * 87


def test_words_of_other_texts_are_no_context(tmp_path: Path) -> None:
    found = scanned([["aa", "bb"], ["cc", "dd"]] * 50, tmp_path, context_window=5)
    assert set(pairs_of(found, 1)) == {("aa", "bb"), ("bb", "aa"), ("cc", "dd"), ("dd", "cc")}


def test_rare_words_are_left_out_before_distances_count(tmp_path: Path) -> None:
    found = scanned([["aa", "rare", "bb"], ["aa", "bb"]], tmp_path, context_window=1, min_count=2)
    assert Counter(pairs_of(found, 1)) == {("aa", "bb"): 2, ("bb", "aa"): 2}
    assert found.vocabularies["word"].tokens() == ["aa", "bb"]  # no row for unknown words
    fewer = scanned([["aa", "aa", "bb", "bb", "bb", "cc"]], tmp_path, max_words=2)
    assert fewer.vocabularies["word"].tokens() == ["bb", "aa"]


def test_frequent_words_are_left_out_at_random(tmp_path: Path) -> None:
    """Of a word of frequency f as many as sqrt(t / f) stay; each makes two pairs of direct neighbours."""
    draw = np.random.default_rng(0)
    frequency = np.array([0.75, 0.2, 0.05])
    text = [["aa", "bb", "cc"][i] for i in draw.choice(3, 60_000, p=frequency)]
    t = 0.1
    found = scanned([text], tmp_path, context_window=1, subsample=t)
    stayed = Counter(center for center, _ in pairs_of(found, 1))
    for word, f in zip(("aa", "bb", "cc"), frequency, strict=True):
        expected = 2 * 60_000 * f * min(1.0, np.sqrt(t / f))
        assert stayed[word] == pytest.approx(expected, rel=0.03)


def test_negatives_follow_the_power_of_the_counts(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    text = [["aa", "bb", "cc", "dd"][i] for i in draw.choice(4, 20_000, p=[0.6, 0.25, 0.1, 0.05])]
    power, negatives = 0.75, 4
    found = scanned([text], tmp_path, context_window=1, negatives=negatives, power=power)
    positive, negative = Counter(pairs_of(found, 1)), Counter(pairs_of(found, 0))
    counts = Counter(text)
    weight = {word: count**power for word, count in counts.items()}
    share = {word: each / sum(weight.values()) for word, each in weight.items()}
    for center in counts:
        for drawn in counts:
            # Every positive pair of the center gives its negatives, but not the pair's own context.
            others = sum(n for (first, context), n in positive.items() if first == center and context != drawn)
            assert negative[center, drawn] == pytest.approx(negatives * others * share[drawn], rel=0.1, abs=30)
    assert found.label_mean == pytest.approx(positive.total() / (positive.total() + negative.total()))


def test_labels_are_mixed(tmp_path: Path) -> None:
    found = scanned([[f"w{i % 50}" for i in range(5_000)]], tmp_path, negatives=1)
    assert found.examples.labels is not None
    half = len(found.examples.labels) // 2
    assert abs(float(found.examples.labels[:half].mean()) - float(found.examples.labels.mean())) < 0.02


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    texts = [[f"w{i * i % 17}" for i in range(300)]]
    settings = {"negatives": 2, "subsample": 0.01}
    first = scanned(texts, tmp_path, **settings, seed=3)
    (tmp_path / "again").mkdir()
    again, other = scanned(texts, tmp_path / "again", **settings, seed=3), scanned(texts, tmp_path, **settings, seed=4)
    np.testing.assert_array_equal(first.examples.ids, again.examples.ids)
    assert first.examples.ids.tolist() != other.examples.ids.tolist()


def test_two_tables_have_one_vocabulary(tmp_path: Path) -> None:
    found = scanned([["aa", "bb", "aa"]], tmp_path)
    assert found.vocabularies["word"].tokens() == found.vocabularies["context"].tokens() == ["aa", "bb"]
    assert found.classes == ()


def test_a_label_before_a_tab_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("sport\taa bb\n")
    data = SkipGram(path=str(path), **PLAIN)  # type: ignore[arg-type]
    assert scan(data, columns(), cache=tmp_path / "cache").vocabularies["word"].tokens() == ["aa", "bb"]


def test_further_draws_have_other_pairs_and_the_first_stays(tmp_path: Path) -> None:
    """The first of several draws is that of a single one; each has its own negatives, and its own words left out."""
    texts = [[f"w{(3 * i + j) % 11}" for j in range(9)] for i in range(40)]
    settings = {"min_count": 1, "subsample": 0.05, "negatives": 3, "split": Split(validation=0.0, test=0.0)}
    path = write(texts, tmp_path)
    found = {}
    for draws in (1, 3):
        data = SkipGram(path=str(path), draws=draws, **settings)  # type: ignore[arg-type]
        found[draws] = scan(data, columns(), cache=tmp_path / "cache").examples.ids[:]
    once, thrice = found[1], found[3]
    first = len(once)
    assert thrice[:first].tolist() == once.tolist()
    assert 2 * first < len(thrice) < 4 * first
    assert thrice[first : 2 * first].tolist() != once.tolist()
    assert "draws" not in SkipGram().model_dump(mode="json")


def test_memory_is_bounded_by_cutting_a_long_text(tmp_path: Path) -> None:
    path = write([[f"w{i % 9}" for i in range(50_000)]], tmp_path)
    data = SkipGram(path=str(path), context_window=5, **PLAIN)  # type: ignore[arg-type]
    corpus = Corpus(Path(str(data.path)), "text", None)
    vocabulary = sources.vocabulary_of(data, corpus, lambda what, part: None)
    sizes = [len(labels) for _, labels, _ in sources.Pairs(data, corpus, vocabulary).chunks()]
    assert len(sizes) == 4
    assert max(sizes) <= 16_384 * 10


@pytest.mark.slow
def test_the_library_of_this_python(tmp_path: Path) -> None:
    data = SkipGram()
    corpus = Corpus(None, "text", None)
    vocabulary = sources.vocabulary_of(data, corpus, lambda what, part: None)
    assert 3_000 < vocabulary.size < 30_000
    assert vocabulary.tokens()[0] == "the"
    assert source_of(data).digest(columns(), cache=tmp_path) == source_of(data).digest(columns(), cache=tmp_path)


def test_faults(tmp_path: Path) -> None:
    data = SkipGram(path=str(tmp_path / "none.txt"), split=Split(kind="leave_one_out", group="center"))
    read, _ = columns_of(data, {"centre": Feature(table="word"), "context": Feature(table="c", max_sequence_length=3)})
    split, column, sequence, path = source_of(data).head_faults(read)
    assert split.path == "data.split.kind"
    assert column.rule == "pairs of words have no such column; the columns are center and context"
    assert (sequence.path, sequence.value) == ("features.context.max_sequence_length", "3")
    assert path.rule == "there is no such file or folder"
    with pytest.raises(ConfigError, match="no such file"):
        scan(SkipGram(path=data.path), columns(), cache=tmp_path)
    with pytest.raises(DataError, match="found 0 of 2 distinct words at least 5 times, expected 2 or more"):
        scanned([["aa", "bb"]], tmp_path, min_count=5)
    with pytest.raises(DataError, match="drawn from the run's own texts"):
        encode_file(tmp_path, SkipGram(), columns(), {}, cache=tmp_path)
