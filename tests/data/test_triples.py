"""Queries of knowledge graphs, against the triples that were written and sets in Python."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.data import batches
from embexp.data.columns import Columns, columns_of
from embexp.data.scan import Overlap, Scan, encode_file, scan
from embexp.data.sources.source import source_of
from embexp.errors import DataError, VocabularyError
from embexp.fields.graphs.evaluation import Entities, all_entities
from embexp.fields.graphs.queries import Candidates, answer_shares, distinct_queries, head_predictions, known_answers
from embexp.fields.graphs.specs import Place, Triples
from embexp.specs.tables import Feature

FEATURES = {
    "source": Feature(table="entity"),
    "relation": Feature(table="relation"),
    "candidates": Feature(table="entity"),
}
Triple = tuple[str, str, str]
Splits = tuple[list[Triple], list[Triple], list[Triple]]
FAMILY: Splits = (
    [("ann", "parent", "bob"), ("bob", "parent", "cy"), ("ann", "knows", "cy"), ("ann", "parent", "dan")],
    [("cy", "knows", "ann")],
    [("bob", "knows", "ann"), ("eve", "parent", "ann")],
)


def columns(**settings: object) -> Columns:
    return columns_of(Triples(path="-", **settings), FEATURES)[0]  # type: ignore[arg-type]


def write(parts: Splits, folder: Path, order: tuple[int, int, int] = (0, 1, 2), suffix: str = ".txt") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, triples in zip(("train", "valid", "test"), parts, strict=True):
        lines = ["\t".join(triple[place] for place in order) for triple in triples]
        (folder / f"{name}{suffix}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return folder


def scanned(folder: Path, **settings: object) -> Scan:
    data = Triples(path=str(folder), **settings)  # type: ignore[arg-type]
    return scan(data, columns(**settings), cache=folder.parent / "cache")


def queries(found: Scan, split: str) -> list[tuple[str, str, str, float]]:
    """source, relation, answer, and what the dense column says (0 where there is none)."""
    assert found.examples.labels is not None
    entities, relations = (found.vocabularies[name].tokens() for name in ("entity", "relation"))
    assert found.examples.id_columns == ("source", "relation", "target")
    return [
        (
            entities[found.examples.ids[row, 0]],
            relations[found.examples.ids[row, 1]],
            entities[int(found.examples.labels[row])],
            float(found.examples.dense[row].sum()),
        )
        for row in found.splits[split]
    ]


NAME = st.sampled_from(["a", "b", "é", "d d", '"e'])
TRIPLES = st.lists(st.tuples(NAME, st.sampled_from(["r", "s", "t"]), NAME), min_size=1, max_size=6)
ORDER = {(0, 1, 2): "head relation tail", (1, 0, 2): "relation head tail", (0, 2, 1): "head tail relation"}


@settings(max_examples=25)
@given(parts=st.tuples(TRIPLES, TRIPLES, TRIPLES), order=st.permutations([0, 1, 2]), reciprocal=st.booleans())
def test_each_triple_is_a_tail_and_a_head_prediction(
    parts: Splits, order: list[int], reciprocal: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write(parts, tmp_path_factory.mktemp("graphs") / "graph", tuple(order))  # type: ignore[arg-type]
    names = [list(Place)[place] for place in order]
    found = scanned(folder, columns=names, reciprocal=reciprocal)
    for part, triples in zip(("train", "validation", "test"), parts, strict=True):
        expected = []
        for head, relation, tail in triples:
            expected.append((head, relation, tail, 0.0))
            expected.append((tail, f"{relation}^-1", head, 0.0) if reciprocal else (tail, relation, head, 1.0))
        assert queries(found, part) == expected
        np.testing.assert_array_equal(head_predictions(found.splits[part]), [False, True] * len(triples))
    trained = Counter(itertools.chain.from_iterable((head, tail) for head, _, tail in parts[0]))
    everywhere = {name for head, _, tail in itertools.chain(*parts) for name in (head, tail)}
    assert found.vocabularies["entity"].tokens() == sorted(everywhere, key=lambda name: (-trained[name], name))
    counts = Counter(relation for _, relation, _ in parts[0])
    relations = sorted({relation for _, relation, _ in itertools.chain(*parts)}, key=lambda name: (-counts[name], name))
    twice = [name for each in relations for name in (each, f"{each}^-1")]
    assert found.vocabularies["relation"].tokens() == (twice if reciprocal else relations)


@settings(max_examples=25)
@given(parts=st.tuples(TRIPLES, TRIPLES, TRIPLES), reciprocal=st.booleans())
def test_triples_that_train_too_are_counted(
    parts: Splits, reciprocal: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = scanned(write(parts, tmp_path_factory.mktemp("graph") / "graph"), reciprocal=reciprocal).overlap
    train = parts[0]
    usual = sum(train.count(triple) > 1 for triple in train) / len(train)
    for name, triples in (("validation", parts[1]), ("test", parts[2])):
        repeated = sum(triple in train for triple in triples)
        assert found[name] == Overlap(repeated, len(triples), pytest.approx(usual), "triples")


@given(parts=st.tuples(TRIPLES, TRIPLES, TRIPLES), reciprocal=st.booleans(), data=st.data())
@settings(max_examples=25)
def test_known_answers_are_those_of_all_splits(
    parts: Splits, reciprocal: bool, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write(parts, tmp_path_factory.mktemp("graphs") / "graph")
    found = scanned(folder, columns=["head", "relation", "tail"], reciprocal=reciprocal)
    tails, heads = defaultdict(set), defaultdict(set)
    for head, relation, tail in itertools.chain(*parts):
        tails[head, relation].add(tail)
        heads[relation, tail].add(head)
    rows = np.array(data.draw(st.lists(st.integers(0, found.examples.count - 1), max_size=6)), np.int64)
    entities = found.vocabularies["entity"].tokens()
    answers = known_answers(found.examples, rows)
    known = answers.between(0, len(rows))
    np.testing.assert_array_equal(answers.counts, np.diff(known.splits))
    triples = list(itertools.chain(*parts))
    assert len(known.splits) == len(rows) + 1
    for place, row in enumerate(rows):
        head, relation, tail = triples[row // 2]
        mine = known.values[known.splits[place] : known.splits[place + 1]].tolist()
        assert mine == sorted(set(mine))
        assert {entities[each] for each in mine} == (heads[relation, tail] if row % 2 else tails[head, relation])


@pytest.mark.parametrize("order", ORDER, ids=ORDER.get)
def test_the_relation_is_found_by_itself(order: tuple[int, int, int], tmp_path: Path) -> None:
    found = scanned(write(FAMILY, tmp_path / "graph", order, ".tsv"))
    assert queries(found, "validation") == [("cy", "knows", "ann", 0.0), ("ann", "knows^-1", "cy", 0.0)]


def test_a_graph_whose_fields_share_nothing_asks_for_the_columns(tmp_path: Path) -> None:
    parts: Splits = ([("u", "likes", "i")], [("u", "likes", "j")], [("v", "likes", "i")])
    folder = write(parts, tmp_path / "graph")
    with pytest.raises(DataError, match=r"can't tell which field is the relation.*set data\.columns"):
        scanned(folder)
    assert queries(scanned(folder, columns=["head", "relation", "tail"]), "test")[0][:3] == ("v", "likes", "i")


def test_splits_are_those_of_the_files_and_the_content_is_the_identity(tmp_path: Path) -> None:
    folder, other = write(FAMILY, tmp_path / "graph"), write(FAMILY, tmp_path / "copy")
    found = scanned(folder)
    assert {part: len(rows) for part, rows in found.splits.items()} == {"train": 8, "validation": 2, "test": 4}

    def digest(path: Path) -> str:
        return source_of(Triples(path=str(path))).digest(columns(), cache=tmp_path / "cache")

    assert digest(folder) == digest(other) == found.digest
    (other / "valid.txt").write_text("cy\tknows\tbob\n")
    assert digest(other) != found.digest


def drawn(
    found: Scan, negatives: int, *, steps: int, start: int = 0, seed: int = 0, shares: np.ndarray | None = None
) -> list[batches.Batch]:
    return list(
        batches.training_batches(
            found.examples,
            found.splits["train"],
            columns(),
            batch_size=5,
            seed=seed,
            shuffle=True,
            window=100,
            steps=steps,
            start_step=start,
            additions=Entities(Candidates(found.vocabularies["entity"].size, negatives, seed, shares=shares)),
        )
    )


def test_negatives_are_drawn_from_all_other_entities_alike(tmp_path: Path) -> None:
    """By steps: the first candidate is the answer, which no other is; all others come equally often."""
    found = scanned(write(FAMILY, tmp_path / "graph"))
    size = found.vocabularies["entity"].size
    counts = np.zeros((size, size), np.int64)
    known = {tuple(row) for row in found.examples.ids[found.splits["train"]].tolist()}
    for batch in drawn(found, 40, steps=100):
        candidates = batch.ids["candidates"].numpy()
        assert (candidates.shape, candidates.dtype, set(batch.ids)) == ((5, 41), np.int32, {*FEATURES})
        np.testing.assert_array_equal(batch.labels, np.zeros(5))
        shown = zip(batch.ids["source"].numpy(), batch.ids["relation"].numpy(), candidates[:, 0], strict=True)
        assert {tuple(each) for each in shown} <= known
        for row in candidates:
            counts[row[0]] += np.bincount(row[1:], minlength=size)
    predicted = counts.sum(axis=1) > 0
    assert not counts.diagonal().any()
    expected = counts.sum(axis=1, keepdims=True) / (size - 1) * (1 - np.eye(size))
    # Each is binomial; five standard deviations.
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected))[predicted].all()


def test_shared_negatives_come_as_often_as_their_labels_say(tmp_path: Path) -> None:
    found = scanned(write(FAMILY, tmp_path / "graph"))
    size, steps, negatives = found.vocabularies["entity"].size, 400, 7
    shares = answer_shares(found.examples, found.splits["train"], size)
    targets = found.examples.labels[found.splits["train"]]  # type: ignore[index]
    np.testing.assert_array_equal(shares * len(targets), [np.sum(targets == entity) for entity in range(size)])
    counts, expected = np.zeros(size), np.zeros(size)
    for batch in drawn(found, negatives, steps=steps, shares=shares):
        candidates, labels = batch.ids["candidates"].numpy(), batch.labels.numpy()
        assert (candidates.shape, candidates.dtype) == ((1, 5 + negatives), np.int32)
        assert (labels.shape, labels.dtype) == ((5 + negatives, 2), np.float32)
        np.testing.assert_array_equal(labels[:, 0], candidates[0])
        counts += np.bincount(candidates[0], minlength=size)
        expected[candidates[0]] = np.exp(labels[:, 1])
    # The drawn ones are binomial, those of the batch come exactly as often: five standard deviations.
    assert (np.abs(counts - steps * expected) <= 5 * np.sqrt(steps * negatives / size)).all()


def test_negatives_are_a_function_of_seed_and_step(tmp_path: Path) -> None:
    found = scanned(write(FAMILY, tmp_path / "graph"))

    def candidates(**settings: int) -> list[list[list[int]]]:
        return [batch.ids["candidates"].numpy().tolist() for batch in drawn(found, 3, **settings)]

    whole = candidates(steps=6)
    assert candidates(steps=6, start=4) == whole[4:]
    assert candidates(steps=6, seed=1) != whole
    assert whole[0] != whole[1]


def test_evaluation_and_one_vs_all_see_all_entities(tmp_path: Path) -> None:
    found = scanned(write(FAMILY, tmp_path / "graph"))
    every = Candidates(found.vocabularies["entity"].size, None, 0)
    rows = found.splits["test"]
    shown = all_entities(found.examples, rows, columns(), batch_size=3, full=False, candidates=every)
    assert shown.element_spec.ids["candidates"] == tf.TensorSpec([1, 5], tf.int32)
    labels = np.concatenate([batch.labels for batch in shown])
    assert found.examples.labels is not None
    np.testing.assert_array_equal(labels, found.examples.labels[found.splits["test"]])
    for batch in shown:
        np.testing.assert_array_equal(batch.ids["candidates"], [[0, 1, 2, 3, 4]])


def test_all_positives_of_a_query_are_those_of_the_training_split(tmp_path: Path) -> None:
    """By sets in Python: what validation and test know is no positive, and each query comes once in an epoch."""
    found = scanned(write(FAMILY, tmp_path / "graph"))
    rows, positives = distinct_queries(found.examples, found.splits["train"])
    expected = defaultdict(set)
    for source, relation, target in found.examples.ids[found.splits["train"]].tolist():
        expected[source, relation].add(target)
    shown = batches.training_batches(
        found.examples,
        rows,
        columns(),
        batch_size=len(rows),
        seed=0,
        shuffle=True,
        window=100,
        steps=2,
        additions=Entities(Candidates(found.vocabularies["entity"].size, None, 0, positives)),
    )
    for batch in shown:
        asked = zip(batch.ids["source"].numpy(), batch.ids["relation"].numpy(), strict=True)
        answers = [set(row) for row in batch.ids["known"].to_list()]
        assert dict(zip(asked, answers, strict=True)) == expected
        assert all(label in row for label, row in zip(batch.labels.numpy(), answers, strict=True))


@pytest.mark.parametrize("order", ORDER, ids=ORDER.get)
@pytest.mark.parametrize("reciprocal", [True, False])
def test_another_file_is_read_with_the_run_s_vocabularies(
    order: tuple[int, int, int], reciprocal: bool, tmp_path: Path
) -> None:
    found = scanned(write(FAMILY, tmp_path / "graph", order), reciprocal=reciprocal)
    other = tmp_path / "more.tsv"
    lines = [("dan", "knows", "eve"), ("eve", "parent", "ann")]
    other.write_text("".join("\t".join(line[place] for place in order) + "\n" for line in lines))
    data = Triples(path=str(tmp_path / "graph"), reciprocal=reciprocal)
    read_columns = columns(reciprocal=reciprocal)
    known = {"entity": found.vocabularies["entity"], "relation": found.vocabularies["relation"]}
    read = encode_file(other, data, read_columns, known, cache=tmp_path / "cache")
    entities, relations = (known[name].tokens() for name in ("entity", "relation"))
    shown = [(entities[source], relations[relation], entities[target]) for source, relation, target in read.ids]
    back = "^-1" if reciprocal else ""
    assert shown == [
        ("dan", "knows", "eve"),
        ("eve", f"knows{back}", "dan"),
        ("eve", "parent", "ann"),
        ("ann", f"parent{back}", "eve"),
    ]
    both = known_answers(read, np.array([2]), [found.examples]).between(0, 1)
    assert [entities[row] for row in both.values] == ["ann"]
    heads = known_answers(read, np.array([1]), [found.examples]).between(0, 1)
    assert {entities[row] for row in heads.values} == {"dan"}
    other.write_text("\t".join(("dan", "knows", "zoe")[place] for place in order) + "\n")
    with pytest.raises(VocabularyError, match=r"more\.tsv, triple 1: 'zoe' is none of the entities"):
        encode_file(other, data, read_columns, known, cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ann\tparent", r"line 2: found 2 fields in 'ann\\tparent', expected 3"),
        ("ann parent bob", "line 2: found 1 field in"),
        ("ann\t\tbob", "line 2: found an empty field"),
    ],
)
def test_lines_that_are_no_triples_are_told(line: str, words: str, tmp_path: Path) -> None:
    folder = write(FAMILY, tmp_path / "graph")
    (folder / "valid.txt").write_text(f"ann\tknows\tbob\n{line}\n")
    with pytest.raises(DataError, match=words):
        scanned(folder)
    (fault,) = source_of(Triples(path=str(folder))).head_faults(columns())
    assert fault.path == "data.path"


def test_faults_of_the_folder(tmp_path: Path) -> None:
    def rules(path: Path) -> list[str]:
        return [fault.rule for fault in source_of(Triples(path=str(path))).head_faults(columns())]

    assert rules(tmp_path / "none") == ["there is no such file or folder"]
    folder = write(FAMILY, tmp_path / "graph")
    assert rules(folder) == []
    whole = "the file is the split train of a graph whose folder also holds valid and test"
    assert rules(folder / "train.txt") == [whole]
    (folder / "valid.txt").unlink()
    (folder / "test.tsv").write_text("a\tb\tc\n")
    assert rules(folder) == [
        "the folder needs valid.txt, .tsv, .csv or .nt, but has none",
        "the folder needs test.txt, .tsv, .csv or .nt, but has several",
    ]


def test_the_look_imports_neither_tensorflow_nor_arrow_nor_numpy(tmp_path: Path) -> None:
    folder = write(FAMILY, tmp_path / "graph")
    code = f"""
import sys
from embexp.data.columns import Columns
from embexp.data.sources.source import source_of
from embexp.fields.graphs.specs import Triples
assert source_of(Triples(path={str(folder)!r})).head_faults(Columns(ids={{"source": "entity"}}, label="answer")) == []
print(sorted({{"tensorflow", "pyarrow", "numpy", "keras"}} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_relation_that_is_called_as_an_inverse(tmp_path: Path) -> None:
    parts = (FAMILY[0], FAMILY[1], [("ann", "knows^-1", "bob")])
    with pytest.raises(
        DataError,
        match=r"'knows\^-1', which is also the name of another relation's inverse.* " r"data\.reciprocal=false",
    ):
        scanned(write(parts, tmp_path / "graph"))


def test_columns_that_queries_do_not_have(tmp_path: Path) -> None:
    data = Triples(path=str(write(FAMILY, tmp_path / "graph")))
    wrong = {**FEATURES, "user": Feature(table="entity"), "relation": Feature(table="relation", max_sequence_length=3)}
    faults = source_of(data).head_faults(columns_of(data, wrong)[0])
    assert [(fault.path, fault.value) for fault in faults] == [
        ("features.user", "'user'"),
        ("features.relation.max_sequence_length", "3"),
    ]


def write_numbered(parts: Splits, folder: Path) -> Path:
    """As OpenKE has them; numbers are not in the order of the lines."""
    folder.mkdir(parents=True)
    ends = sorted({name for head, _, tail in itertools.chain(*parts) for name in (head, tail)}, reverse=True)
    kinds = sorted({name for _, name, _ in itertools.chain(*parts)})
    for stem, names in (("entity2id", ends), ("relation2id", kinds)):
        lines = [f"{name}\t{number}\n" for number, name in reversed(list(enumerate(names)))]
        (folder / f"{stem}.txt").write_text(f"{len(names)}\n" + "".join(lines), "utf-8")
    for stem, triples in zip(("train2id", "valid2id", "test2id"), parts, strict=True):
        lines = [f"{ends.index(head)} {ends.index(tail)}\t{kinds.index(name)}\n" for head, name, tail in triples]
        (folder / f"{stem}.txt").write_text(f"{len(triples)}\n" + "".join(lines))
    return folder


def test_numbered_triples_are_the_same_graph(tmp_path: Path) -> None:
    """OpenKE's files, against the same triples by their names."""
    parts: Splits = ([*FAMILY[0], ("r\u00e9 d", "knows", "ann")], *FAMILY[1:])
    plain = scanned(write(parts, tmp_path / "plain"), columns=["head", "relation", "tail"])
    folder = write_numbered(parts, tmp_path / "numbered")
    assert source_of(Triples(path=str(folder))).head_faults(columns()) == []
    numbered = scanned(folder)
    for split in ("train", "validation", "test"):
        assert queries(numbered, split) == queries(plain, split)
    for name, known in plain.vocabularies.items():
        assert numbered.vocabularies[name].digest == known.digest
    # Each form of file can be read with the vocabularies of the other.
    for path, found in ((folder / "test2id.txt", plain), (tmp_path / "plain" / "test.txt", numbered)):
        data = Triples(path=str(path.parent))
        other = encode_file(path, data, columns(), found.vocabularies, cache=tmp_path / "cache")
        np.testing.assert_array_equal(other.ids, found.examples.ids[found.splits["test"]])


@pytest.mark.parametrize(
    ("file", "content", "rule"),
    [
        ("test2id.txt", "3\n0 1 0\n1 2 1\n", "found 2 triples, expected 3, as line 1 says"),
        ("test2id.txt", "1\n0 9 0\n", "line 2: found '9', expected a number below 5, as entity2id.txt has"),
        ("test2id.txt", "1\n0 1 -1\n", "line 2: found '-1', expected a number below 2, as relation2id.txt has"),
        ("train2id.txt", "1\n0 1\n", "line 2: found 2 fields in '0 1', expected 3, the numbers of head, tail and"),
        ("valid2id.txt", "0\t1\t0\n", r"line 1: found '0\t1\t0', expected the number of lines that follow"),
        ("relation2id.txt", "3\nknows\t0\nparent\t1\n", "found 2 names, expected 3, as line 1 says"),
        ("relation2id.txt", "2\nknows\t0\nparent\t2\n", "line 3: found the number 2, expected one below 2"),
        ("relation2id.txt", "2\nknows\t0\nparent\t0\n", "line 3: found the number 0 again"),
        ("relation2id.txt", "2\nknows\t0\nknows\t1\n", "found the name 'knows' twice"),
        ("entity2id.txt", "9\n \nann\t0\n", "line 2: found ' ', expected a name, a tab and its number"),
        ("relation2id.txt", "2\nknows\n", "line 2: found 'knows', expected a name, a tab and its number"),
        ("entity2id.txt", "", "line 1: found nothing, expected the number of lines that follow"),
        ("relation2id.txt", None, "the folder needs relation2id.txt or .tsv, but has none"),
        ("test2id.txt", None, "the folder needs test2id.txt or .tsv, but has none"),
    ],
)
def test_faults_of_numbered_triples(file: str, content: str | None, rule: str, tmp_path: Path) -> None:
    path = write_numbered(FAMILY, tmp_path / "graph") / file
    path.unlink()
    if content is not None:
        path.write_text(content)
    [fault] = source_of(Triples(path=str(path.parent))).head_faults(columns())
    assert fault.path == "data.path"
    assert fault.rule.startswith(str(path)) or content is None
    assert rule in fault.rule


def test_the_order_of_numbered_triples_is_no_setting(tmp_path: Path) -> None:
    data = Triples(path=str(write_numbered(FAMILY, tmp_path / "graph")), columns=("head", "relation", "tail"))  # type: ignore[arg-type]
    [fault] = source_of(data).head_faults(columns())
    assert (fault.path, fault.value, fault.remedy) == (
        "data.columns", "[head, relation, tail]", "set data.columns=null"
    )  # fmt: skip
