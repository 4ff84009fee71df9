"""The models of `bench.models`: their data, their configs, and the batches and sizes for the other libraries."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from bench import planted_graph
from embexp.system import files

CATEGORIES, NUMBERS, ROWS = 26, 13, 100_000
"""For the models of clicks: number of categories, of numeric columns, and of rows in each category's table."""
CLICKS, RATINGS, PAIRS, TEXTS = 200_000, 400_000, 800_000, 5_000
"""Number of examples of each kind of data."""
USERS, ITEMS, WORDS = 100_000, 20_000, 50_000
SHORTEST, LONGEST = 8, 64
"""Bounds on the number of words of a text, which is uniform."""
ADAGRAD_RATES = {"lr": 0.05, "initial_accumulator_value": 1e-7}
ADAM_RATES = 0.001
_CLICK_GRAPH = f"""# @package _global_
tables:
  "C{{1..{CATEGORIES}}}": {{dim: 16, vocabulary: {{hash_buckets: {ROWS}}}}}
features:
  "C{{1..{CATEGORIES}}}": {{}}
"""


@dataclass(frozen=True)
class Case:
    """A model to train.

    Attributes:
        family: the plain model of the other libraries: clicks, products, dot, texts or graph.
        data: writes the data into a folder, and returns their path.
        overrides: overrides of embexp's config, without the path of the data.
        rule: optimizer of the tables: sgd, adagrad or adam.
        torch: the target: how many times as fast as PyTorch.
        keras: the same for Keras.
        fbgemm: the same for PyTorch with FBGEMM's tables; None: not measured.
    """

    family: str
    data: Callable[[Path], Path]
    overrides: tuple[str, ...]
    rule: str = "adagrad"
    torch: float = 1.0
    keras: float = 3.0
    fbgemm: float | None = None


def clicks(folder: Path) -> Path:
    """Writes labels, numbers, and uniform categories, so that a batch has hardly any row twice."""
    random = np.random.default_rng(0)
    columns = {"label": random.integers(0, 2, CLICKS)}
    columns |= {f"I{n + 1}": random.normal(size=CLICKS).astype(np.float32) for n in range(NUMBERS)}
    columns |= {f"C{n + 1}": random.integers(0, 2**40, CLICKS) for n in range(CATEGORIES)}
    # Patterns of columns need their own graph.
    files.write_text(folder / "conf" / "graph" / "bench_models.yaml", _CLICK_GRAPH)
    return _written(folder / "clicks.parquet", columns)


def ratings(folder: Path) -> Path:
    """Writes ratings by uniform users, of items whose popularity follows Zipf's law."""
    random = np.random.default_rng(1)
    columns = {
        "user": random.integers(0, USERS, RATINGS),
        "item": _popular(random, ITEMS, RATINGS),
        "rating": random.integers(1, 6, RATINGS),
    }
    return _written(folder / "ratings.parquet", columns)


def pairs(folder: Path) -> Path:
    """Writes pairs of words, whose frequency follows Zipf's law. One pair in six comes from a text."""
    random = np.random.default_rng(2)
    columns = {name: _popular(random, WORDS, PAIRS) for name in ("center", "context")}
    return _written(folder / "pairs.parquet", {**columns, "label": (random.random(PAIRS) < 1 / 6).astype(np.int64)})


def texts(folder: Path) -> Path:
    """Writes texts of `SHORTEST` to `LONGEST` words, and their classes."""
    random = np.random.default_rng(3)
    lines = []
    for length in random.integers(SHORTEST, LONGEST + 1, TEXTS):
        words = " ".join(f"w{word}" for word in _popular(random, WORDS, length))
        lines.append(f"{'yes' if random.random() < 0.5 else 'no'}\t{words}\n")
    files.write_text(folder / "texts.txt", "".join(lines))
    return folder / "texts.txt"


def graph(folder: Path) -> Path:
    """Writes 90,000 triples of 40,000 entities."""
    return planted_graph.write_graph(folder / "graph")


def _popular(random: np.random.Generator, values: int, count: int) -> np.ndarray:
    weights = 1 / np.arange(1, values + 1)
    return random.choice(values, size=count, p=weights / weights.sum())


def _written(path: Path, columns: dict[str, np.ndarray]) -> Path:
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


_PARQUET = ("data=parquet", "data.label=label", "dense_optimizer=adam")
_CLICKS = (
    "experiment=clicks",
    *_PARQUET,
    "graph=bench_models",
    f"data.dense_features=[{','.join(f'I{n + 1}' for n in range(NUMBERS))}]",
    "train.batch_size=4096",
)
_DLRM = (*_CLICKS, "model=dlrm", "model.bottom=[64]", "model.top=[256,64]")
_DEEP = ("model.hidden=[256,64]",)
_DOT = ("train.batch_size=4096",)
_TEXTS = ("experiment=text_classification", "data=text")
_GRAPH = ("experiment=knowledge_graph_large", "data=triples", "tables.entity.dim=200", "train.batch_size=512")
CASES = {
    "dlrm": Case("clicks", clicks, (*_DLRM, "optimizer=adagrad"), torch=2.0, fbgemm=1.5),
    "dlrm_sgd": Case("clicks", clicks, (*_DLRM, "optimizer=sgd"), rule="sgd"),
    "dlrm_concat": Case("clicks", clicks, (*_CLICKS, "model=dlrm_concat", "optimizer=adagrad")),
    "mlp": Case("clicks", clicks, (*_CLICKS, "model=mlp", "optimizer=adagrad"), torch=2.0),
    "fm": Case("products", clicks, (*_CLICKS, "model=fm", "optimizer=adagrad"), torch=2.0),
    "deepfm": Case("products", clicks, (*_CLICKS, "model=deepfm", *_DEEP, "optimizer=adagrad"), torch=2.0),
    "dcn_v2": Case("products", clicks, (*_CLICKS, "model=dcn_v2", *_DEEP, "optimizer=adagrad"), torch=2.0),
    "biased_dot": Case(
        "dot",
        ratings,
        (
            "experiment=ratings",
            "data=parquet",
            "data.label=rating",
            "features.user.column=user",
            "features.item.column=item",
            "optimizer=adagrad",
            "train.batch_size=4096",
        ),
    ),
    "skipgram": Case("dot", pairs, ("experiment=skipgram", *_PARQUET, "optimizer=adam"), rule="adam"),
    "text_cnn": Case("texts", texts, (*_TEXTS, "model=text_cnn"), rule="adam"),
    "bag_of_words": Case("texts", texts, (*_TEXTS, "model=bag_of_words"), rule="adam"),
    "complex": Case("graph", graph, (*_GRAPH, "model=complex_large", "model.n3=0.1", "data.negatives=128"), torch=2.0),
    "complex_1vsall": Case("graph", graph, (*_GRAPH, "model=complex_large", "model.n3=0.1"), torch=1.5, keras=2.0),
    "transe": Case("graph", graph, (*_GRAPH, "model=transe", "data.negatives=128")),
}
"""The cases by name."""


@dataclass(frozen=True)
class Setting:
    """A model and its batches.

    Attributes:
        family: see `Case`.
        rule: optimizer of the tables.
        model: embexp's settings of the model.
        tables: rows and dim of each table by name.
        batches: ids by column, `dense`, `label`, and for texts `lengths`. Lists are padded with an additional row after
            the last one.
        sides: for products, the column of each table.
        biases: the same for tables of biases.
        numbers: number of dense columns.
        classes: number of classes of the label.
        every_entity: whether every query has all entities as candidates.
    """

    family: str
    rule: str
    model: Mapping[str, Any]
    tables: Mapping[str, tuple[int, int]]
    batches: list[dict[str, np.ndarray]]
    sides: Mapping[str, str]
    biases: Mapping[str, str]
    numbers: int = NUMBERS
    classes: int = 2
    every_entity: bool = False


def setting(case: Case, folder: Path) -> Setting:
    """Reads the files that `models_ours.begun` has written."""
    told = json.loads((folder / "sizes.json").read_text())
    tables = {name: (rows, dim) for name, (rows, dim) in told["tables"].items()}
    with np.load(folder / "batches.npz") as file:
        columns = {name: file[name] for name in file.files}
    every_entity = "candidates" in columns and columns["candidates"].shape[1] == 1
    if every_entity:
        del columns["candidates"]
    if case.family == "texts":
        words = columns["words"]
        columns["lengths"] = np.maximum((words >= 0).sum(2), 1).astype(np.float32)
        columns["words"] = np.where(words < 0, tables["word"][0], words)
    count = len(columns["label"])
    words_of_pairs = {"word": "center", "context": "context"}
    ratings = "user_bias" in tables
    return Setting(
        family=case.family,
        rule=case.rule,
        model=told["model"],
        tables=tables,
        batches=[{name: array[number] for name, array in columns.items()} for number in range(count)],
        sides={"user": "user", "item": "item"} if ratings else words_of_pairs,
        biases={"user_bias": "user", "item_bias": "item"} if ratings else {},
        every_entity=every_entity,
    )
