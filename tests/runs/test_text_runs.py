"""Whole runs on texts: word vectors from texts without labels, and classes by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.errors import DataError, RunError
from embexp.runs import run as single
from embexp.system.arrays import ArrayRows
from embexp.vectors.neighbors import nearest

TOPICS = {"zoo": [f"animal{i}" for i in range(8)], "art": [f"colour{i}" for i in range(8)]}
QUIET = ["output.plots=false", "output.tensorboard=false", "output.baselines=false"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of one topic each, with words that both have."""
    folder = tmp_path_factory.mktemp("texts")
    draw = np.random.default_rng(0)
    lines = []
    for _ in range(600):
        topic = str(draw.choice(list(TOPICS)))
        lines.append(f"{topic}\t{' '.join(draw.choice([*TOPICS[topic], 'the', 'and'], 8))}\n")
    (folder / "texts.txt").write_text("".join(lines))
    return folder


def run(folder: Path, name: str, *overrides: str) -> embexp.Run:
    (folder / name).mkdir()
    settings = [f"data.path={folder}/texts.txt", f"output.cache={folder}/cache", *QUIET, *overrides]
    return embexp.load_run(single.run(embexp.compose(settings), folder / name).directory)


def test_words_of_a_topic_are_near_each_other(folder: Path) -> None:
    found = run(
        folder,
        "pairs",
        "experiment=skipgram",
        "data.context_window=5",
        "data.subsample=0.0",
        "data.negatives=5",
        "optimizer=adam",
        "optimizer.learning_rate=0.01",
        "tables.word.dim=8",
        "train.epochs=3",
        "train.batch_size=512",
    )
    tokens = found.vocabulary("word").tokens()
    assert set(tokens) == {*TOPICS["zoo"], *TOPICS["art"], "the", "and"}
    # About half of the negatives are words of the other topic, which never stand near.
    assert found.summary["metrics"]["test"]["auc"] > 0.6
    vectors = ArrayRows(found.table("word"))
    for words in TOPICS.values():
        rows = [tokens.index(word) for word in words]
        for near in nearest(vectors, rows, 5):
            assert sum(tokens[each.row] in words for each in near) >= 4
    with pytest.raises(RunError, match="drawn from the run's own texts"):
        found.predict(folder / "texts.txt")


def test_classes_go_by_name_in_other_files(folder: Path) -> None:
    found = run(
        folder,
        "classes",
        "experiment=text_classification",
        "data=text",
        "model=bag_of_words",
        "tables.word.dim=8",
        "data.train_examples=200",
        "optimizer=adam",
        "optimizer.learning_rate=0.05",
        "train.epochs=5",
    )
    assert found.summary["classes"] == ["art", "zoo"]
    other = folder / "other.txt"
    other.write_text("zoo\tanimal1 the animal2\nzoo\tanimal5 and animal7\n")  # one class: its number is that of the run
    assert found.evaluate(other)["accuracy"] == 1.0
    other.write_text("animal1 the animal2\ncolour3 colour4\n")
    assert found.predict(other).tolist() == ["zoo", "art"]
    other.write_text("tree\tanimal1\n")
    with pytest.raises(DataError, match="found the label 'tree', expected one of the classes art, zoo"):
        found.evaluate(other)


def test_a_run_is_known_by_what_its_texts_are(folder: Path) -> None:
    """Not by where they lie."""
    (folder / "copy.txt").write_bytes((folder / "texts.txt").read_bytes())
    short = ["experiment=skipgram", "tables.word.dim=2", "train.steps=1", "data.negatives=1"]
    first = run(folder, "first", *short)
    copied = run(folder, "copied", *short, f"data.path={folder}/copy.txt")
    other = run(folder, "other", *short, "data.seed=1")
    assert first.summary["run_id"] == copied.summary["run_id"] != other.summary["run_id"]


def test_a_run_says_that_it_stopped_by_another_metric_than_the_one_that_is_bad(tmp_path: Path) -> None:
    """A third of the labels is wrong, and each text has a word of its own: the model is ever surer of them."""
    draw = np.random.default_rng(1)
    lines = []
    for number in range(240):
        topic = number % 2
        label = topic if draw.random() < 0.7 else 1 - topic
        lines.append(f"c{label}\t{['animal', 'colour'][topic]} {' '.join(f'w{draw.integers(60)}' for _ in range(6))}\n")
    (tmp_path / "texts.txt").write_text("".join(lines))
    fast = ["optimizer.learning_rate=0.3", "dense_optimizer.learning_rate=0.3", "train.early_stopping.patience=20"]
    small = [
        "experiment=text_classification",
        "data=text",
        "model=bag_of_words",
        "tables.word.dim=8",
        "train.epochs=12",
    ]
    for metric, said in (("accuracy", True), ("log_loss", False)):
        stopping = f"train.early_stopping.metric={metric}"
        found = run(tmp_path, metric, *small, *fast, stopping, "data.split.test=0.3")
        assert any("train.early_stopping.metric=log_loss" in line for line in found.summary["warnings"]) == said
