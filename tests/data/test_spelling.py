"""Tokens that differ in their spelling only: normalised as Python does, counted by brute force, and warned of."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from embexp.cli import commands
from embexp.data.columns import ClassNames, Columns, columns_of
from embexp.data.scan import DoubtKind, Scan, encode_file, encode_in_memory, scan, unknown_alike
from embexp.data.sources.source import source_of
from embexp.data.vocabularies.spelling import Alike, alike, normalized
from embexp.data.vocabularies.vocabulary import HashVocabulary, TokenVocabulary
from embexp.errors import DataError
from embexp.fields.columns.tasks import BINARY
from embexp.fields.graphs.specs import Triples
from embexp.specs.data import CSV, Parquet, RecBole
from embexp.specs.pretrained import Match
from embexp.specs.vocabularies import Step, normalized_text
from embexp.vectors.alignment import by_token
from embexp.vectors.pretrained.earlier import row_tokens
from embexp.vectors.pretrained.growth import read_vocabularies

pieces = st.sampled_from(
    [
        *(
            " ",
            "\t",
            "\u00a0",
            "\x1c",
            "a",
            "A",
            "\u00e9",
            "e\u0301",
            "E\u0301",
            "\u0130",
            "\u03a3",
            "J\u030c",
            "\u212a",
        ),
        *("0", "7", "00", ".0", ".", "+", "-", "x1", "\u0661", "\uff17", "\0"),
    ]
)
words = st.lists(pieces, max_size=5).map("".join) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
some_steps = st.sets(st.sampled_from(list(Step)))


def strings(texts: Sequence[str | None]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


@given(st.lists(st.none() | words, max_size=20), some_steps)
def test_many_are_normalized_as_one_is(texts: list[str | None], steps: set[Step]) -> None:
    expected = [None if text is None else normalized_text(text, steps) for text in texts]
    assert normalized(strings(texts), steps).to_pylist() == expected
    assert normalized(strings(texts).dictionary_encode(), steps).to_pylist() == expected
    lists = pa.array([texts, None, [], texts[:2]], pa.list_(pa.string()))
    assert normalized(lists[1:], steps).to_pylist() == ([None, [], expected[:2]] if steps else lists[1:].to_pylist())


@given(words, some_steps)
def test_what_is_normalized_stays(text: str, steps: set[Step]) -> None:
    once = normalized_text(text, steps)
    assert normalized_text(once, steps) == once


@pytest.mark.parametrize(
    ("text", "steps", "expected"),
    [
        (" i1\u00a0\n", ["strip"], "i1"),
        ("cafe\u0301", ["nfc"], "caf\u00e9"),
        ("J\u030c", ["nfc", "lower"], "\u01f0"),
        ("\u039f\u03a3", ["lower"], "\u03bf\u03c2"),
        ("7.0", ["number"], "7"),
        ("007", ["number"], "7"),
        ("+7.", ["number"], "7"),
        ("-07.00", ["number"], "-7"),
        ("000", ["number"], "0"),
        ("7.5", ["number"], "7.5"),
        ("1e3", ["number"], "1e3"),
        ("7 ", ["number"], "7 "),
        ("7\n", ["number"], "7\n"),
        ("\u0667", ["number"], "\u0667"),
        (" 07.0 ", ["number", "strip"], "7"),
    ],
)
def test_steps(text: str, steps: list[str], expected: str) -> None:
    assert normalized_text(text, [Step(step) for step in steps]) == expected


def counted(tokens: Collection[str], known: Collection[str] | None, steps: Collection[Step]) -> int:
    """By Python's sets."""
    if known is None:
        return len(tokens) - len({normalized_text(token, steps) for token in tokens})
    keys = {normalized_text(token, steps) for token in known}
    return sum(normalized_text(token, steps) in keys for token in tokens)


@given(st.sets(words, max_size=15), st.none() | st.sets(words, max_size=15))
@example({"i1", "i1 ", "Yes ", "yes", "caf\u00e9", "cafe\u0301", "7", "7.0", "007"}, None)
@example({"i1 ", "x", "7"}, {"i1", "Y"})
def test_alike_tokens_are_counted(tokens: set[str], known: set[str] | None) -> None:
    tokens -= known or set()
    found = alike(strings(sorted(tokens)), None if known is None else strings(sorted(known)))
    most = counted(tokens, known, tuple(Step))
    assert (found.count if found else 0) == most
    if found is None:
        return
    assert found.tokens == len(tokens)
    assert counted(tokens, known, found.steps) == most
    for fewer in itertools.combinations(found.steps, len(found.steps) - 1):
        assert counted(tokens, known, fewer) < most  # no step can be left out
    first, second = found.pair
    assert first in tokens
    assert second in (tokens if known is None else known)
    assert first != second
    assert normalized_text(first, found.steps) == normalized_text(second, found.steps)
    assert Alike.of_json(found.as_json()) == found


def test_a_pair_is_shown_so_that_one_sees_the_difference() -> None:
    [first, second] = Alike(1, 2, ("caf\u00e9", "cafe\u0301"), (Step.NFC,)).shown
    assert (first, second) == ("'caf\\xe9'", "'cafe\\u0301'")
    assert Alike(1, 2, ("\u00e4", "\u00e4 "), (Step.STRIP,)).shown == ("'\u00e4'", "'\u00e4 '")


DIRTY = [("u1 ", "I1", 1), ("u1", "i1", 0), (" u2", "caf\u00e9", 1), ("u2", "cafe\u0301", 0), ("u3", "7.0", 1)]
DIRTY = [*DIRTY, ("u3", "007", 0), ("U3", "7", 1), ("u1", "x\u00a0", 0)]
STEPS = (Step.NFC, Step.STRIP, Step.LOWER, Step.NUMBER)
COLUMNS = Columns(ids={"user": "user", "item": "item"}, label="y")


def lines(rows: Sequence[tuple[str, str, int]], header: str = "user,item,y", mark: str = ",") -> str:
    return "\n".join([header, *(mark.join(map(str, row)) for row in rows)]) + "\n"


def clean(rows: Sequence[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    return [(normalized_text(user, STEPS), normalized_text(item, STEPS), y) for user, item, y in rows]


def data_of(kind: str, folder: Path, rows: Sequence[tuple[str, str, int]], **more: Any) -> Any:
    folder.mkdir()
    if kind == "csv":
        (folder / "a.csv").write_text(lines(rows))
        return CSV(path=str(folder / "a.csv"), label="y", **more)
    if kind == "parquet":
        users, items, ys = zip(*rows, strict=True)
        table = pa.table({"user": pa.array(users).dictionary_encode(), "item": items, "y": ys})
        pq.write_table(table, folder / "a.parquet")
        return Parquet(path=str(folder / "a.parquet"), label="y", **more)
    (folder / "a.inter").write_text(lines(rows, "user:token\titem:token\ty:float", "\t"))
    return RecBole(path=str(folder), label="y", **more)


def assert_same(ours: Scan, theirs: Scan) -> None:
    assert {t: v.tokens() for t, v in ours.vocabularies.items()} == {
        t: v.tokens() for t, v in theirs.vocabularies.items()
    }
    np.testing.assert_array_equal(ours.examples.ids, theirs.examples.ids)
    for split, rows in theirs.splits.items():
        np.testing.assert_array_equal(ours.splits[split], rows)


@pytest.mark.parametrize("kind", ["csv", "parquet", "recbole"])
def test_a_source_is_read_as_if_its_tokens_were_clean(tmp_path: Path, kind: str) -> None:
    split = {"split": {"kind": "random", "within": "user", "group": "user"}}
    ours = data_of(kind, tmp_path / "dirty", DIRTY * 5, normalize=STEPS, **split)
    theirs = data_of(kind, tmp_path / "clean", clean(DIRTY * 5), **split)
    found = scan(ours, COLUMNS, cache=tmp_path / "cache")
    assert_same(found, scan(theirs, COLUMNS, cache=tmp_path / "cache"))
    assert not found.doubts
    # Other files, and data in memory, are read in the same way.
    columns = Columns(ids=COLUMNS.ids)
    path = data_of(kind, tmp_path / "more", DIRTY).path
    other = encode_file(Path(path), ours, columns, found.vocabularies, cache=tmp_path / "cache")
    frame = {"user": [row[0] for row in DIRTY], "item": [row[1] for row in DIRTY]}
    memory = encode_in_memory(frame, source_of(ours), columns, found.vocabularies)
    rows = {name: {token: row for row, token in enumerate(found.vocabularies[name].tokens())} for name in COLUMNS.ids}
    expected = [[rows["user"][user], rows["item"][item]] for user, item, _ in clean(DIRTY)]
    assert other.ids.tolist() == memory.ids.tolist() == expected


def test_files_are_joined_by_what_is_normalized(tmp_path: Path) -> None:
    ours = data_of("recbole", tmp_path / "a", DIRTY[:6] * 4, normalize=STEPS)
    (tmp_path / "a/a.user").write_text("user:token\tcity:token\n u1\tRome \nU2\tParis\nu3\tROME\n")
    columns = Columns(ids={"user": "user", "city": "city"}, label="y")
    found = scan(ours, columns, cache=tmp_path / "cache")
    cities = [found.vocabularies["city"].tokens()[row] for row in found.examples.column("city")]
    assert cities == ["rome", "rome", "paris", "paris", "rome", "rome"] * 4
    (tmp_path / "a/a.user").write_text("user:token\tcity:token\nu1\tRome\nu1 \tParis\n")
    with pytest.raises(DataError, match="'u1' has more than one line"):
        scan(ours, columns, cache=tmp_path / "cache")


def test_lists_and_classes_are_normalized(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("tags,y\n" + "a |B,Yes \nA|b ,yes\nc,no\n" * 4)
    data = CSV(path=str(tmp_path / "a.csv"), label="y", positive="YES", list_columns=("tags",), list_separator="|",
               normalize=("strip", "lower"))  # fmt: skip
    columns = Columns(ids={"tags": "tag"}, label="y", classes=ClassNames(two=True, positive="yes"))
    found = scan(data, columns, cache=tmp_path / "cache")
    assert found.vocabularies["tag"].tokens() == ["<oov>", "a", "b", "c"]
    assert found.classes[1] == "yes"
    assert found.examples.labels is not None
    assert found.examples.labels.tolist() == [1, 1, 0] * 4
    made, _ = columns_of(data, {}, task=BINARY)
    assert made.classes == ClassNames(two=True, positive="yes")


def write_graph(folder: Path, triples: Sequence[str]) -> Triples:
    folder.mkdir()
    for name in ("train", "valid", "test"):
        (folder / f"{name}.txt").write_text(
            "".join(f"{line}\n" for line in (triples if name == "train" else triples[:2]))
        )
    return Triples(path=str(folder))


def test_a_graph_is_read_as_if_its_names_were_clean(tmp_path: Path) -> None:
    columns = Columns(ids={"source": "entity", "relation": "relation", "candidates": "entity"}, label="answer")
    triples = ["a\tR\tb ", "A\tr\tb", "b\ts\tcaf\u00e9", "cafe\u0301\ts \ta", "a\ts\tb"]
    dirty = write_graph(tmp_path / "dirty", triples)
    cleaned = write_graph(
        tmp_path / "clean", ["\t".join(normalized_text(each, STEPS) for each in line.split("\t")) for line in triples]
    )
    ours = dirty.model_copy(update={"normalize": STEPS})
    found = scan(ours, columns, cache=tmp_path / "cache")
    assert_same(found, scan(cleaned, columns, cache=tmp_path / "cache"))
    other = encode_file(tmp_path / "dirty/test.txt", ours, columns, found.vocabularies, cache=tmp_path / "cache")
    assert other.count == 4
    [of_entities, of_relations] = scan(dirty, columns, cache=tmp_path / "cache").doubts
    assert "3 of 6 values" in of_entities.found
    assert "2 of 4 values" in of_relations.found  # without their inverses
    (tmp_path / "dirty/train.txt").write_text("a\tr\t \nb\tr\ta\n")
    with pytest.raises(DataError, match="only whitespace"):
        scan(ours, columns, cache=tmp_path / "cache")


def test_a_scan_warns_unless_the_config_says_how_tokens_are(tmp_path: Path) -> None:
    data = data_of("csv", tmp_path / "a", DIRTY * 5)
    doubts = scan(data, COLUMNS, cache=tmp_path / "cache").doubts
    assert [(each.kind, tuple(each.columns)) for each in doubts] == [
        (DoubtKind.ALIKE, ("user",)),
        (DoubtKind.ALIKE, ("item",)),
    ]
    assert "3 of 6 values" in doubts[0].found
    assert "data.normalize=[strip,lower]" in doubts[0].remedy
    assert "data.normalize=[strip,lower,nfc,number]" not in doubts[1].remedy  # no item differs in only whitespace only
    assert scan(data, COLUMNS, cache=tmp_path / "cache").doubts == doubts
    decided = data.model_copy(update={"normalize": ()})
    assert not scan(decided, COLUMNS, cache=tmp_path / "cache").doubts


def test_a_scan_warns_of_lists_that_are_one_token(tmp_path: Path) -> None:
    rows = [f"u{n},\"['p{n}', 'q{n}']\",{n % 2}" for n in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(["user,item,y", *rows, "u1,[],0"]) + "\n")
    data = CSV(path=str(tmp_path / "a.csv"), label="y")
    [doubt] = scan(data, COLUMNS, cache=tmp_path / "cache").doubts
    assert doubt.kind is DoubtKind.LISTS
    assert doubt.remedy == "set data.list_separator=brackets data.list_columns=[item]"
    pieces = data.model_copy(update={"list_columns": ("item",), "list_separator": ","})
    [doubt] = scan(pieces, COLUMNS, cache=tmp_path / "cache").doubts
    assert doubt.kind is DoubtKind.LISTS
    right = pieces.model_copy(update={"list_separator": "brackets"})
    assert not scan(right, COLUMNS, cache=tmp_path / "cache").doubts
    names = "\n".join(f"u{n},[REC {n}],1\nu{n},(500) Days {n},0" for n in range(20))
    (tmp_path / "a.csv").write_text(f"user,item,y\n{names}\n")
    assert not scan(data, COLUMNS, cache=tmp_path / "cache").doubts


def test_a_config_without_it_is_as_before() -> None:
    assert "normalize" not in CSV(path="a", label="y").model_dump(mode="json")
    assert "normalize" not in Triples(path="a").model_dump(mode="json")


def test_a_vocabulary_normalizes_what_it_looks_up() -> None:
    plain = TokenVocabulary(strings(["i1", "caf\u00e9"]), np.array([2, 1]), oov=1)
    found = plain.normalizing(STEPS)
    assert found.rows(["I1 ", "cafe\u0301", "x", None]).tolist() == [1, 2, 0, 0]
    assert plain.rows(["I1 "]).tolist() == [0]
    assert found.digest == plain.digest
    hashed = HashVocabulary(1_000).normalizing(STEPS)
    assert hashed.rows([" I1"]).tolist() == HashVocabulary(1_000).rows(["i1"]).tolist()
    near = unknown_alike(strings(["i1", "i1 ", "y"]), plain)
    assert near is not None
    assert (near.count, near.tokens, near.pair) == (1, 2, ("i1 ", "i1"))


def test_tokens_of_files_of_vectors_are_normalized() -> None:
    vocabulary = TokenVocabulary(strings(["i1", "i2", "i3"]), np.array([3, 2, 1]), oov=1)
    among = strings(["I1 ", "i2 ", "i2"])
    exact = by_token(row_tokens(vocabulary), among, Match.EXACT, rows=4)
    assert exact.file_rows.tolist() == [-1, -1, 2, -1]
    found = by_token(row_tokens(vocabulary.normalizing(STEPS)), among, Match.EXACT, rows=4)
    assert found.file_rows.tolist() == [-1, 0, 2, -1]  # an equal token goes before one that is normalised
    assert found.by == {Match.EXACT: 2}


def test_a_grown_vocabulary_is_normalized(tmp_path: Path) -> None:
    before = TokenVocabulary(strings(["i1", "i2"]), np.array([3, 2]), oov=1).normalizing(STEPS)
    (tmp_path / "tokens.txt").write_text("I2 \ni1\ni3\n")
    grown = read_vocabularies(tmp_path / "tokens.txt", before)
    assert isinstance(grown, TokenVocabulary)
    assert grown.known.to_pylist() == ["i2", "i1", "i3"]
    assert grown.known_frequencies.tolist() == [2, 3, 0]
    assert grown.rows(["I3"]).tolist() == [3]
    (tmp_path / "tokens.txt").write_text("i1\nI1\n")
    with pytest.raises(DataError, match="i1"):
        read_vocabularies(tmp_path / "tokens.txt", before)


def test_new_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text(
        "user,item,click\n" + "".join(f"u{n % 9}{' ' * (n % 2)},i{n % 7},{n % 2}\n" for n in range(200))
    )
    assert commands.main(["new", str(tmp_path / "a.csv"), "--label", "click", "--out", str(tmp_path / "mine")]) == 0
    shown = capsys.readouterr().err
    assert "user: 9 of 18 values" in shown
    assert "data.normalize=[strip]" in shown
    assert "item" not in shown
