"""Exported models of runs of every kind: strategies, runtimes and layouts, texts, knowledge graphs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

import embexp
from embexp.data import batches
from embexp.fields.texts.models import words_of_texts
from embexp.fields.texts.sources import with_ngrams
from embexp.fields.texts.sources import words as python_words
from embexp.fields.texts.specs import Words
from embexp.runs import run as single
from embexp.runs import serving
from embexp.runs.evaluations import predictions
from embexp.runs.prepare import read_data
from embexp.system.parallel import quiet
from tests import planted_triples, short_runs
from tests.thoroughness import examples, left_out

QUIET = ("output.plots=false", "output.baselines=false", "output.tensorboard=false")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> short_runs.Run:
    return short_runs.runner(tmp_path_factory)


@pytest.mark.parametrize(
    "overrides",
    [
        ("strategy=mirrored", "strategy.replicas=2"),
        ("strategy=tpu_simulator",),
        ("runtime=session",),
        ("runtime=estimator",),
        (*short_runs.PRETRAINED, "tables.item.storage=split"),
        pytest.param((*short_runs.PRETRAINED, "init@tables.item.init=memory_map"), marks=left_out()),
        pytest.param(("pretrained@tables.item.pretrained=file", "freeze@tables.item.freeze=table"), marks=left_out()),
        (
            "pretrained@tables.item.pretrained=file",
            "freeze@tables.item.freeze=table",
            "init@tables.item.init=memory_map",
        ),
    ],
    ids=lambda overrides: ",".join(each.rpartition(".")[2] for each in overrides),
)
def test_runs_of_every_strategy_runtime_and_layout(
    overrides: tuple[str, ...], clicks: short_runs.Run, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if overrides[:1] == ("pretrained@tables.item.pretrained=file",):
        path = next(tmp_path_factory.getbasetemp().glob("runs*/item.npy"))
        overrides = (*overrides, f"tables.item.pretrained.path={path}")
    finished = embexp.load_run(clicks(*overrides).directory)
    finished.export(tmp_path / "model")
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for name, variable in loaded.tables.items():
        np.testing.assert_array_equal(variable.numpy(), finished.table(name))
    data = read_data(finished.spec, quiet)
    rows = data.scan.splits["test"]
    batch = batches.evaluation_batches(data.scan.examples, rows, data.columns, batch_size=128, full=True)
    _, logits = predictions(finished._restored.runtime, batch, len(rows))
    found = [
        loaded.predict({name: tf.cast(ids, tf.int64) for name, ids in each.ids.items()})["predictions"].numpy()
        for each in batch
    ]
    expected = 1 / (1 + np.exp(-logits.astype(np.float64)))
    np.testing.assert_allclose(np.concatenate(found)[: len(rows)], expected, rtol=1e-6)
    serve = loaded.signatures["serving_ids"]
    inputs = {name: tf.ones([2 + (name == "user")], tf.int64) for name in serve.structured_input_signature[1]}
    for count in (1, 3):  # one item for two users would serve both
        inputs["item"] = tf.ones([count], tf.int64)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"different numbers of examples:\W+\d+\W+\d+"):
            serve(**inputs)


@pytest.fixture(scope="module")
def texts(folder: Path) -> Path:
    draw = np.random.default_rng(0)
    topics = {"zoo": ["Löwe", "TIGER", "x", "snake_42"], "art": ["red", "Blue", "grün", "y"]}
    labels = draw.choice(list(topics), 200)
    lines = [f"{label}\t{', '.join(draw.choice([*topics[str(label)], 'the', 'and'], 8))}!\n" for label in labels]
    (folder / "texts.txt").write_text("".join(lines), "utf-8")
    return folder / "texts.txt"


def test_texts_are_cut_into_words_inside(texts: Path, folder: Path) -> None:
    settings = [
        "experiment=text_classification",
        "data=text",
        "model=bag_of_words",
        "tables.word.dim=4",
        "train.epochs=2",
    ]
    settings += [f"data.path={texts}", "data.max_length=5", f"output.cache={folder}/cache", *QUIET]
    (folder / "texts").mkdir()
    finished = embexp.load_run(single.run(embexp.compose(settings), folder / "texts").directory)
    loaded = tf.saved_model.load(str(finished.export(folder / f"{finished.folder.path.name}_model").path))
    raw = [line.partition("\t")[2] for line in texts.read_text("utf-8").splitlines()]
    found = loaded.signatures["serving_text"](text=tf.constant(raw))
    expected = finished.predict(texts)
    assert len(set(expected)) == 2
    assert [name.decode() for name in found["predictions"].numpy()] == expected.tolist()
    assert found["classes"].numpy()[0].tolist() == [b"art", b"zoo"]
    assert found["classes"].shape == found["probabilities"].shape == [200, 2]
    np.testing.assert_allclose(found["probabilities"].numpy().sum(1), 1, rtol=1e-6)
    best = found["classes"].numpy()[np.arange(200), found["probabilities"].numpy().argmax(1)]
    np.testing.assert_array_equal(best, found["predictions"].numpy())
    cut = [python_words(each)[:5] for each in raw]
    again = loaded.signatures["serving_ragged"](
        words_values=tf.constant([word for each in cut for word in each]),
        words_row_splits=tf.constant(np.cumsum([0, *map(len, cut)])),
    )
    np.testing.assert_array_equal(again["probabilities"].numpy(), found["probabilities"].numpy())


LETTERS = st.characters(max_codepoint=0x2FFF, exclude_categories=["Cs", "Cn"])


@given(st.lists(st.text(LETTERS, max_size=12), min_size=1, max_size=4))
def test_words_inside_are_those_outside(texts: list[str]) -> None:
    found = words_of_texts(tf.constant(texts), max_length=None).to_list()
    assert [[word.decode() for word in each] for each in found] == [python_words(text) for text in texts]
    for kind in Words:
        found = words_of_texts(tf.constant(texts), max_length=None, kind=kind).to_list()
        assert [[word.decode() for word in each] for each in found] == [
            python_words(text, None, kind) for text in texts
        ]
    for ngrams in (1, 2, 3):
        split = words_of_texts(tf.constant(texts), max_length=3, separator="a ", ngrams=ngrams).to_list()
        expected = [with_ngrams(python_words(text, "a ")[:3], ngrams) for text in texts]
        assert [[word.decode() for word in each] for each in split] == expected


@pytest.mark.parametrize("reciprocal", [True, False])
def test_triples_are_scored_as_the_formula_says(reciprocal: bool, folder: Path) -> None:
    graph = folder / f"graph_{reciprocal}"
    planted_triples.divided(graph, planted_triples.circle(12), test=6, valid=6)
    settings = ["experiment=knowledge_graph", f"data.path={graph}", "tables.entity.dim=6", "train.steps=30"]
    settings += [f"data.reciprocal={reciprocal}", "train.batch_size=16", f"output.cache={folder}/cache", *QUIET]
    (folder / f"complex_{reciprocal}").mkdir()
    finished = embexp.load_run(single.run(embexp.compose(settings), folder / f"complex_{reciprocal}").directory)
    loaded = tf.saved_model.load(str(finished.export(folder / f"{finished.folder.path.name}_model").path))
    assert set(loaded.signatures) == {"serving_default", "serving_ids", "tails", "heads"}
    entities, relations = finished.vocabulary("entity"), finished.vocabulary("relation")
    vectors, kinds = (finished.table(name).astype(np.float64) for name in ("entity", "relation"))

    def number(rows: np.ndarray) -> np.ndarray:
        return rows[:, :3] + 1j * rows[:, 3:]

    triples = planted_triples.read(graph, "test")
    head, relation, tail = ([triple[place] for triple in triples] for place in range(3))
    h, r, t = entities.lookup(head), relations.lookup(relation), entities.lookup(tail)
    # Trouillon et al. 2016, eq. 9.
    expected = (number(vectors[h]) * number(kinds[r]) * number(vectors[t]).conj()).sum(1).real
    given = {"head": tf.constant(head), "relation": tf.constant(relation), "tail": tf.constant(tail)}
    found = loaded.signatures["serving_default"](**given)["predictions"].numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    rows = {"head": tf.constant(h), "relation": tf.constant(r), "tail": tf.constant(t)}
    np.testing.assert_array_equal(loaded.signatures["serving_ids"](**rows)["predictions"].numpy(), found)
    tails = loaded.signatures["tails"](head=given["head"], relation=given["relation"], k=tf.constant(3))
    every = (number(vectors[h])[:, None] * number(kinds[r])[:, None] * number(vectors).conj()[None]).sum(2).real
    _check_best(tails, every, entities.tokens())
    counts = [number % 4 for number in range(len(head))]
    cut = loaded.signatures["tails"](head=given["head"], relation=given["relation"], k=tf.constant(counts))
    for place, count in enumerate(counts):
        assert cut["entities"][place, :count].numpy().tolist() == tails["entities"][place, :count].numpy().tolist()
        assert cut["scores"][place, :count].numpy().tolist() == tails["scores"][place, :count].numpy().tolist()
        assert set(cut["entities"][place, count:].numpy().tolist()) <= {b""}
    heads = loaded.signatures["heads"](tail=given["tail"], relation=given["relation"], k=tf.constant(99))
    inverse = number(kinds[r + 1]) if reciprocal else number(kinds[r]).conj()
    every = (number(vectors[t])[:, None] * inverse[:, None] * number(vectors).conj()[None]).sum(2).real
    _check_best(heads, every, entities.tokens())


def _check_best(found: dict[str, Any], scores: np.ndarray, tokens: list[str]) -> None:
    entities, best = found["entities"].numpy(), found["scores"].numpy()
    np.testing.assert_allclose(best, -np.sort(-scores, axis=1)[:, : best.shape[1]], atol=1e-6)
    rows = np.array([[tokens.index(token.decode()) for token in each] for each in entities])
    np.testing.assert_allclose(np.take_along_axis(scores, rows, 1), best, atol=1e-6)


@examples(5)
@given(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=6, unique=True))
@example(["Shop", "shop", "SHOP_2", "a b", "a_b", "Ä", "1", "_1"])
def test_names_of_columns_are_arguments_that_tensorflow_takes(names: list[str]) -> None:
    found = serving._arguments([], names, {})
    assert found.keys() == set(names)
    specs = {own: tf.TensorSpec([None], tf.float32) for own in found.values()}
    traced = tf.function(lambda **given: {"out": tf.add_n(list(given.values()))}, autograph=False)
    signature = traced.get_concrete_function(**specs)
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(tf.Module(), folder, signatures=signature)
        loaded = tf.saved_model.load(folder).signatures["serving_default"]
    assert set(loaded.structured_input_signature[1]) == set(found.values())
