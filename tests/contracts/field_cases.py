"""A small experiment of each task of the fields of embexp, for the contract that every field keeps."""

from __future__ import annotations

import csv
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import embexp
from tests import planted_data, planted_triples
from tests.contracts.contract import Case

Rows = list[dict[str, str]]
PARTS = ("train", "validation", "test")
_QUERY = ("head", "relation", "tail")
SEQUENCES = Path(__file__).resolve().parents[2] / "examples" / "sequences"


def read(path: Path) -> Rows:
    """The lines of a CSV file, by column."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """Writes a CSV file with the columns of its first line."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def divided(folder: Path, rows: Rows, label: str) -> list[str]:
    """Writes three files, the last tenths of which validate and test, and the last without its label."""
    tenth = len(rows) // 10
    splits = (rows[2 * tenth :], rows[tenth : 2 * tenth], rows[:tenth])
    for name, some in zip(PARTS, splits, strict=True):
        write(folder / f"{name}.csv", some)
    write(folder / "asked.csv", [{name: each for name, each in row.items() if name != label} for row in splits[2]])
    paths = ",".join(f"{name}:{folder / name}.csv" for name in PARTS)
    return [f"data.path={{{paths}}}", f"data.label={label}"]


def with_new_items(rows: Rows) -> Rows:
    """The same with items that were not there: every fourth line once more, with one of three."""
    return [*rows, *({**row, "item": f"n{place % 3}"} for place, row in enumerate(rows[::4]))]


def ratings(folder: Path, grown: bool) -> list[str]:
    """Ratings of films."""
    rows = read(
        planted_data.ratings(folder / "all.csv", examples=1200, users=40, items=25, scale=(1, 5), step=1, seed=0)
    )
    return divided(folder, with_new_items(rows) if grown else rows, "rating")


def classes(folder: Path, grown: bool) -> list[str]:
    """Users who give the same rating nine times of ten."""
    random = np.random.default_rng(0)
    users, items, same = random.integers(0, 40, 1200), random.integers(0, 25, 1200), random.random(1200) < 0.9
    kinds = np.where(same, users % 3, random.integers(0, 3, 1200))
    rows = [{"user": f"u{u}", "item": f"i{i}", "rating": f"{k}"} for u, i, k in zip(users, items, kinds, strict=True)]
    return divided(folder, with_new_items(rows) if grown else rows, "rating")


def clicks(folder: Path, grown: bool) -> list[str]:
    """Clicks, with histories."""
    rows = read(planted_data.clicks(folder / "all.csv", examples=1500, users=50, items=30, rate=0.4, seed=1))
    return [
        "data=csv",
        "data.list_columns=[history]",
        *divided(folder, with_new_items(rows) if grown else rows, "click"),
    ]


def texts(folder: Path, grown: bool) -> list[str]:
    """Texts with labels."""
    planted_data.texts(folder / "all.txt", examples=500, classes=3, words=200, length=8, share=0.4, seed=0)
    pairs = (line.split("\t") for line in (folder / "all.txt").read_text(encoding="utf-8").splitlines())
    rows = [{"label": label, "text": text} for label, text in pairs]
    if grown:
        rows += [{**row, "text": f"{row['text']} new{place % 3}"} for place, row in enumerate(rows[::4])]
    return ["data=text", *divided(folder, rows, "label")]


def corpus(folder: Path, grown: bool) -> list[str]:
    """Texts without labels."""
    path = planted_data.corpus(folder / "lines.txt", sentences=300, topics=5, words=60, length=10, seed=0)
    if grown:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"fresh{number % 3} w1 w2 w3 w4\n" for number in range(40))
    return [f"data.path={path}"]


def interactions(folder: Path, grown: bool) -> list[str]:
    """Items that users like; each user's last one tests."""
    path = planted_data.liked(folder / "liked.csv", users=50, items=30, groups=3, each=8, seed=0)
    rows = read(path)
    items, users = (sorted({row[name] for row in rows}) for name in ("item", "user"))
    write(folder / "asked.csv", [{"user": user, "item": item} for user in users for item in items])
    if grown:
        rows += [{"user": f"u{user}", "item": f"n{user % 3}", "time": "0"} for user in range(20)]
        write(path, rows)
    return [f"data.path={path}", "data.timestamp=time"]


def graph(folder: Path, grown: bool) -> list[str]:
    """A knowledge graph."""
    path = planted_data.graph(folder / "graph", entities=30, groups=4, triples=500, seed=0)
    if grown:
        with (path / "train.txt").open("a", encoding="utf-8") as file:
            file.writelines(f"n{number % 3}\tr{number % 6}\te{number % 30}\n" for number in range(30))
    return [f"data.path={path}"]


def histories(folder: Path, grown: bool) -> list[str]:
    """Items that users have one after the other, none twice: of four, three follow from the item before."""
    random = np.random.default_rng(0)
    following, rows = np.roll(np.arange(25), 1), []
    for user in range(200):
        had = [int(random.integers(25))]
        for _ in range(int(random.integers(4, 9))):
            left = np.setdiff1d(np.arange(25), had)
            after = following[had[-1]]
            had.append(int(after if after in left and random.random() < 0.75 else random.choice(left)))
        rows += [{"user": f"u{user}", "item": f"i{item}", "timestamp": str(time)} for time, item in enumerate(had)]
    if grown:
        rows += [{"user": f"v{user}", "item": f"n{user % 3}", "timestamp": "0"} for user in range(20)]
        rows += [{"user": f"v{user}", "item": f"i{user}", "timestamp": "1"} for user in range(20)]
    write(folder / "histories.csv", rows)
    write(folder / "asked.csv", [{"user": f"q{item}", "item": f"i{item}", "timestamp": "0"} for item in range(25)])
    return [f"data.path={folder / 'histories.csv'}"]


def of_numbers(run: embexp.Run, folder: Path) -> dict[str, float]:
    """RMSE, MAE and squared error."""
    errors = run.predict(folder / "asked.csv") - np.array([float(row["rating"]) for row in read(folder / "test.csv")])
    return {"rmse": math.sqrt(np.mean(errors**2)), "mae": np.mean(np.abs(errors)), "loss": np.mean(errors**2)}


def of_clicks(run: embexp.Run, folder: Path) -> dict[str, float]:
    """Log loss, and the share of pairs of a click and a non-click that are in order."""
    p = run.predict(folder / "asked.csv").astype(np.float64)
    y = np.array([int(row["click"]) for row in read(folder / "test.csv")])
    loss = -np.mean(np.log(np.where(y == 1, p, 1 - p)))
    higher = np.sign(p[y == 1][:, None] - p[y == 0])
    return {"log_loss": loss, "auc": np.mean((1 + higher) / 2), "loss": loss}


def of_classes(label: str) -> Any:
    """Accuracy, log loss and macro F1, by the name of the label's column."""

    def recounted(run: embexp.Run, folder: Path) -> dict[str, float]:
        found = run.predictions(folder / "asked.csv")
        truth = np.array([row[label] for row in read(folder / "test.csv")])
        p = np.stack([found.probabilities[name] for name in run.classes], 1).astype(np.float64)
        loss = -np.mean(np.log(p[np.arange(len(truth)), [run.classes.index(name) for name in truth]]))
        f1 = [2 * np.sum((truth == c) & (found.prediction == c)) for c in run.classes]
        f1 = [
            hit / (np.sum(truth == c) + np.sum(found.prediction == c)) for hit, c in zip(f1, run.classes, strict=True)
        ]
        return {
            "accuracy": np.mean(found.prediction == truth),
            "log_loss": loss,
            "macro_f1": np.mean(f1),
            "loss": loss,
        }

    return recounted


def of_lists(run: embexp.Run, folder: Path) -> dict[str, float]:
    """Metrics of lists of 3, from the scores of all pairs of a user and an item."""
    asked, rows = read(folder / "asked.csv"), sorted(read(folder / "liked.csv"), key=lambda row: int(row["time"]))
    scores = {
        (row["user"], row["item"]): each for row, each in zip(asked, run.predict(folder / "asked.csv"), strict=True)
    }
    own: dict[str, list[str]] = {}
    for row in rows:
        own.setdefault(row["user"], []).append(row["item"])
    catalogue = {item for items in own.values() for item in items[:-2]}
    places, shown = [], set()
    for user, items in own.items():
        left = sorted(catalogue - set(items[:-1]), key=lambda item: -scores[user, item])
        shown |= set(left[:3])
        places.append(left.index(items[-1]) + 1 if items[-1] in left else math.inf)
    place = np.array(places)
    hits = np.mean(place <= 3)
    return {
        "ndcg_at_3": np.mean(np.where(place <= 3, 1 / np.log2(place + 1), 0)),
        "recall_at_3": hits,
        "hit_rate_at_3": hits,
        "mrr": np.mean(1 / place),
        "coverage_at_3": len(shown) / len(catalogue),
    }


def _following(run: embexp.Run, lists: Sequence[Sequence[str]], count: int) -> list[list[str]]:
    """The best items to follow histories, by an exported model."""
    with tempfile.TemporaryDirectory() as folder:
        run.export(Path(folder) / "model")
        serve = tf.saved_model.load(f"{folder}/model").signatures["serving_default"]
        padded = tf.ragged.constant(lists, dtype=tf.string).to_tensor("")
        items = serve(history=padded, k=tf.constant(count))["items"].numpy().tolist()
    return [[item.decode() for item in some] for some in items]


def of_next_items(run: embexp.Run, folder: Path) -> dict[str, float]:
    """Metrics of the places of the last items among all that are not in the histories before them."""
    own: dict[str, list[str]] = {}
    for row in read(folder / "histories.csv"):
        own.setdefault(row["user"], []).append(row["item"])
    catalogue = {item for had in own.values() for item in had}
    lists = _following(run, [had[:-1] for had in own.values()], len(catalogue))
    place = np.array([some.index(had[-1]) + 1 for some, had in zip(lists, own.values(), strict=True)])
    return {
        "ndcg_at_10": np.mean(np.where(place <= 10, 1 / np.log2(place + 1), 0)),
        "hit_rate_at_10": np.mean(place <= 10),
        "mrr": np.mean(1 / place),
    }


def next_items(run: embexp.Run, folder: Path) -> tuple[dict[str, Any], np.ndarray]:
    """Histories of one item, and the item that the run predicts after each."""
    asked = [[row["item"]] for row in read(folder / "asked.csv")]
    return {"history": tf.constant(asked), "k": tf.constant(1)}, run.predict(folder / "asked.csv")[:, None]


def _complex(rows: np.ndarray) -> np.ndarray:
    half = rows.shape[-1] // 2
    return rows[..., :half] + 1j * rows[..., half:]


def _vectors(run: embexp.Run, name: str) -> dict[str, np.ndarray]:
    """Complex vectors by name, without OOV rows."""
    rows = zip(run.vocabulary(name).tokens(), _complex(run.table(name).astype(np.float64)), strict=True)
    return {token: row for token, row in rows if token != "<oov>"}


def of_ranks(run: embexp.Run, folder: Path) -> dict[str, float]:
    """Filtered ranks among all entities by the formula of ComplEx (Trouillon et al. 2016, eq. 9)."""
    entities, relations = _vectors(run, "entity"), _vectors(run, "relation")
    triples = {part: planted_triples.read(folder / "graph", part) for part in ("train", "valid", "test")}
    true = {triple for some in triples.values() for triple in some}
    ranks: dict[str, list[int]] = {"tails": [], "heads": []}
    for head, relation, tail in triples["test"]:
        for side, source, kind, answer in (("tails", head, relation, tail), ("heads", tail, f"{relation}^-1", head)):
            query = entities[source] * relations[kind]
            score = {name: float(np.sum(query * vector.conj()).real) for name, vector in entities.items()}
            of = {name: (head, relation, name) if side == "tails" else (name, relation, tail) for name in entities}
            others = [each for name, each in score.items() if name != answer and of[name] not in true]
            ranks[side].append(1 + sum(each > score[answer] for each in others))
    every = np.array([*ranks["tails"], *ranks["heads"]])
    return {
        "mrr": np.mean(1 / every),
        **{f"hits_at_{k}": np.mean(every <= k) for k in (1, 3, 10)},
        "mean_rank": np.mean(every),
        **{f"mrr_{side}": np.mean(1 / np.array(some)) for side, some in ranks.items()},
    }


def columns(run: embexp.Run, folder: Path) -> tuple[dict[str, Any], np.ndarray]:
    """The columns of the file that is asked, and its predictions."""
    rows = read(folder / "asked.csv")
    asked: dict[str, Any] = {"words" if name == "text" else name: [row[name] for row in rows] for name in rows[0]}
    for name in {"words", "history"} & asked.keys():
        asked[name] = tf.ragged.constant([text.split() for text in asked[name]], dtype=tf.string).to_tensor("")
    asked = {name: tf.constant(values) for name, values in asked.items()}
    found = run.predictions(folder / "asked.csv")
    if run.spec.task == "classification":
        return asked, np.stack([found.probabilities[name] for name in run.classes], 1)
    return asked, found.prediction


def triples(run: embexp.Run, folder: Path) -> tuple[dict[str, Any], np.ndarray]:
    """The triples that test, and their scores by the formula."""
    entities, relations = _vectors(run, "entity"), _vectors(run, "relation")
    asked = planted_triples.read(folder / "graph", "test")
    scores = [np.sum(entities[h] * relations[r] * entities[t].conj()).real for h, r, t in asked]
    return {name: tf.constant(words) for name, words in zip(_QUERY, zip(*asked, strict=True), strict=True)}, np.array(
        scores
    )


def word_pairs(run: embexp.Run, folder: Path) -> tuple[dict[str, Any], np.ndarray]:
    """Pairs of words, and the logistic function of their dot products."""
    words = run.vocabulary("word").tokens()[1:9]
    rows = [dict(zip(run.vocabulary(name).tokens(), run.table(name), strict=True)) for name in ("word", "context")]
    center, context = words[:4], words[4:]
    dots = [np.dot(rows[0][one].astype(np.float64), rows[1][other]) for one, other in zip(center, context, strict=True)]
    bias = float(run.model.weights[0].numpy()[0]) if run.model.weights else 0.0
    return {"center": tf.constant(center), "context": tf.constant(context)}, 1 / (1 + np.exp(-np.array(dots) - bias))


CASES = {
    "regression": Case(
        field="columns",
        task="regression",
        settings=("experiment=ratings", "tables.user.dim=4", "train.early_stopping.patience=null"),
        write=ratings,
        recounted=of_numbers,
        served=columns,
    ),
    "binary": Case(
        field="columns",
        task="binary",
        settings=("experiment=clicks", "tables.user.dim=4", "tables.item.dim=4", "model=mlp", "model.hidden=[8]"),
        write=clicks,
        recounted=of_clicks,
        served=columns,
    ),
    "classification": Case(
        field="columns",
        task="classification",
        settings=(
            *("experiment=ratings", "task=classification", "tables.user.dim=4", "model=mlp", "model.hidden=[8]"),
            *("train.early_stopping.patience=null", "train.standardize_labels=false"),
        ),
        write=classes,
        recounted=of_classes("rating"),
        served=columns,
    ),
    "texts": Case(
        field="texts",
        task="classification",
        table="word",
        settings=(
            *("experiment=text_classification", "model=bag_of_words", "model.dropout=0", "tables.word.dim=4"),
            "train.early_stopping.patience=null",
        ),
        write=texts,
        recounted=of_classes("label"),
        served=columns,
    ),
    "word pairs": Case(
        field="texts",
        task="binary",
        table="word",
        settings=(
            *("experiment=skipgram", "tables.word.dim=4", "tables.word.initializer.scale=1", "data.subsample=0.0"),
            *("data.split.test=0.1", "data.negatives=1", "optimizer.learning_rate=0.3"),
        ),
        write=corpus,
        served=word_pairs,
        predicts=False,
    ),
    "recommendation": Case(
        field="recommendation",
        task="recommendation",
        settings=(
            *("experiment=recommendation", "tables.user.dim=8", "train.early_stopping.patience=null"),
            *("recommendation.cutoffs=[3]", "loss.negatives=8"),
        ),
        write=interactions,
        recounted=of_lists,
        served=columns,
        refuses={"mirrored": "strategy", "estimator": "runtime"},
    ),
    "knowledge graph": Case(
        field="graphs",
        task="ranking",
        table="entity",
        settings=(
            *("experiment=knowledge_graph", "data.negatives=8", "tables.entity.dim=8", "model.dropout=0"),
            "train.early_stopping.patience=null",
        ),
        write=graph,
        recounted=of_ranks,
        served=triples,
        predicts=False,
        refuses={"tpu_simulator": "data.negatives"},
    ),
    "next items": Case(
        field="sequences",
        task="next_item",
        settings=(
            *("experiment=sequences", "features.history.max_sequence_length=8", "tables.item.dim=8", "model.blocks=1"),
            *("model.dropout=0", "train.early_stopping.patience=null", "dense_optimizer.learning_rate=0.02"),
        ),
        write=histories,
        recounted=of_next_items,
        served=next_items,
        answers="items",
        refuses={"mirrored": "strategy", "tpu_simulator": "strategy", "estimator": "runtime"},
        also={"multi_worker": ("tables.item.storage=mirrored",)},
        package=(SEQUENCES, "embexp_sequences"),
    ),
}
"""By name."""
