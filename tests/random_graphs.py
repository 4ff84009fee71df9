"""Graphs of tables and features drawn by hypothesis, with files that serve them, and what their runs are by definition.

What is told of rows (which row a token has, which rows a policy names, which example is in which batch) is computed
here from what was drawn and written, without the package.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from hypothesis import strategies as st

from tests.exact_training import Examples, Lists
from tests.random_policies import STEPS_PER_EPOCH, Rows, factors, policies, without_idle_rules

BATCH, STEPS, TEST = 8, 50, 40
TRAIN = BATCH * STEPS_PER_EPOCH
RATE = 0.0625
INITIALIZERS = (
    {"kind": "normal", "stddev": 0.5},
    {"kind": "uniform", "scale": 0.5},
    {"kind": "constant", "value": 0.25},
)


@dataclass(frozen=True)
class Column:
    """A column of ids.

    Attributes:
        values: for each example its tokens; "" where an example has no id. Training examples come first.
        weights: for each token a weight, if the column has any.
        lists: whether an example has several.
    """

    values: list[list[str]]
    weights: list[list[float]] | None
    lists: bool


@dataclass(frozen=True)
class Graph:
    """What was drawn.

    Attributes:
        settings: of the run but for data, layouts and runtime, as plain values; files are named `{folder}/…`.
        columns: of ids.
        dense: float32 [examples, n].
        labels: float32 [examples].
        vocabularies: of each table the token of each row; None: the row of unknown values, or one that is free.
        files: of each pretrained table the tokens and rows of its file.
        written: other files, by name: text or an array.
        parquet: whether the data is Parquet.
        tested: whether the examples behind those that train are evaluated on; else they are not written.
        runtime: function, session or estimator.
    """

    settings: Mapping[str, Any]
    columns: Mapping[str, Column] = field(repr=False)
    dense: np.ndarray = field(repr=False)
    labels: np.ndarray = field(repr=False)
    vocabularies: Mapping[str, list[str | None]] = field(repr=False)
    files: Mapping[str, tuple[list[str], np.ndarray]] = field(repr=False)
    written: Mapping[str, str | np.ndarray]
    parquet: bool
    tested: bool
    runtime: str

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Hypothesis shows the settings, and no columns."""
        printer.text(repr(self))

    @property
    def tables(self) -> Mapping[str, Any]:
        """Their settings."""
        found: Mapping[str, Any] = self.settings["tables"]
        return found

    def factors(self, table: str, step: int) -> np.ndarray:
        """What the policy of a table makes of the learning rate of each row at a step; 0: the row does not move."""
        own = self.tables[table]["freeze"]
        return factors(self.settings["freeze"] if own is None else own, step, self._rows(table))

    def still(self, table: str) -> np.ndarray:
        """Bool [rows]: whether a row never moves."""
        return np.all([self.factors(table, step) == 0 for step in range(STEPS)], 0)

    def of_file(self, table: str) -> np.ndarray:
        """Bool [rows]: whether a row came from the table's file."""
        tokens = self.files[table][0] if table in self.files else []
        return np.isin(np.arange(len(self.vocabularies[table])), [
            row for row, token in enumerate(self.vocabularies[table]) if token is not None and token in tokens
        ])  # fmt: skip

    def _rows(self, table: str) -> Rows:
        return Rows(self.vocabularies[table], self.of_file(table), self.written)

    def batches(self) -> list[Examples]:
        """The examples of each step: those that train, in the order of the file, again and again."""
        found = []
        for step in range(STEPS):
            start = step % STEPS_PER_EPOCH * BATCH
            given: dict[str, Lists] = {}
            for name, feature in self.settings["features"].items():
                column, tokens = self.columns[feature["column"]], self.vocabularies[feature["table"]]
                number = {token: row for row, token in enumerate(tokens) if token is not None}
                weighted = column.weights is not None and feature["weights"] is not None
                given[name] = [
                    [
                        (place, number.get(token, 0), column.weights[example][place] if weighted else 1.0)  # type: ignore[index]
                        for place, token in enumerate(column.values[example])
                    ]
                    for example in range(start, start + BATCH)
                ]
            found.append(Examples(given, self.dense[start : start + BATCH], self.labels[start : start + BATCH]))
        return found

    def write(self, folder: Path) -> None:
        """Writes the data and all files that the settings name."""
        columns: dict[str, Sequence[Any]] = {}
        count = TRAIN + (TEST if self.tested else 0)
        for name, column in self.columns.items():
            columns[name] = column.values if column.lists else [one for (one,) in column.values]
            if column.weights is not None:
                columns[f"{name}_weights"] = column.weights
        columns |= {f"number{place}": each.tolist() for place, each in enumerate(self.dense.T)}
        columns |= {"label": self.labels.tolist(), "time": range(TRAIN + TEST)}
        columns = {name: each[:count] for name, each in columns.items()}
        if self.parquet:
            pyarrow.parquet.write_table(
                pa.table({name: list(each) for name, each in columns.items()}), folder / "data.parquet"
            )
        else:
            with (folder / "data.csv").open("w", newline="") as file:
                lines = csv.writer(file)
                lines.writerow(columns)
                for line in zip(*columns.values(), strict=True):
                    lines.writerow([" ".join(map(str, each)) if isinstance(each, list) else each for each in line])
        for table, (tokens, rows) in self.files.items():
            np.save(folder / f"{table}.npy", rows)
            (folder / f"{table}.tokens.txt").write_text("".join(f"{token}\n" for token in tokens))
        for name, content in self.written.items():
            if isinstance(content, str):
                (folder / name).write_text(content)
            else:
                np.save(folder / name, content)

    def container(self, folder: Path, layout: str) -> dict[str, Any]:
        """The whole config, with every table in a layout as far as it can be; files lie in a folder."""
        data: dict[str, Any] = {
            "kind": "parquet" if self.parquet else "csv",
            "path": str(folder / ("data.parquet" if self.parquet else "data.csv")),
            "label": "label",
            "timestamp": "time",
            "dense_features": [f"number{place}" for place in range(self.dense.shape[1])],
            "vocabulary": self.settings["vocabulary"],
            "split": {"kind": "time", "validation": 0.0, "test": TEST / (TRAIN + TEST) if self.tested else 0.0},
            "shuffle": False,
        }
        lists = [name for name, column in self.columns.items() if column.lists]
        if not self.parquet:
            weights = [f"{name}_weights" for name in lists if self.columns[name].weights is not None]
            data["list_columns"] = [*lists, *weights]
        tables = {name: {**table, **self._kept(name, layout)} for name, table in self.tables.items()}
        others = {key: each for key, each in self.settings.items() if key not in ("vocabulary", "tables")}
        made: dict[str, Any] = _placed({**others, "tables": tables}, folder)
        return {
            "name": "random graph",
            "data": data,
            "model": {"kind": "mlp", "hidden": []},
            "dense_optimizer": {"kind": "sgd", "learning_rate": RATE},
            "runtime": {"kind": self.runtime},
            "train": {"steps": STEPS, "batch_size": BATCH, "log_every": 1},
            "output": {"cache": str(folder / "cache"), "tensorboard": False, "plots": False},
            **made,
        }

    def lies_in_file(self, table: str) -> bool:
        """Whether a table is in no checkpoint, as it is frozen whole and its file has it."""
        own = self.tables[table]["freeze"]
        return (self.settings["freeze"] if own is None else own)["kind"] == "table" and table in self.files

    def storage(self, table: str, layout: str) -> str:
        """How a table is kept where it is in a layout as far as it can be."""
        still = self.still(table)
        if layout == "split" and 0 < np.count_nonzero(still) < len(still):
            return layout
        return layout if layout == "memory_map" and (still & self.of_file(table)).any() else "variable"

    def _kept(self, table: str, layout: str) -> dict[str, Any]:
        match self.storage(table, layout):
            case "memory_map":
                return {"init": {"kind": "memory_map"}}
            case storage:
                return {"storage": storage, "init": {"kind": "assign"}}


def _placed(value: Any, folder: Path) -> Any:
    if isinstance(value, Mapping):
        return {key: _placed(each, folder) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_placed(each, folder) for each in value]
    return value.replace("{folder}", str(folder)) if isinstance(value, str) else value


@st.composite
def optimizers(draw: Any) -> dict[str, Any]:
    """Any of the five; what moves most that should not comes first, as hypothesis begins with it."""
    found = draw(
        st.sampled_from(
            [
                {"kind": "adam", "learning_rate": 0.015625, "lazy_adam": False},
                {"kind": "adagrad_momentum", "learning_rate": 0.03125, "momentum": 0.5},
                {"kind": "sgd", "learning_rate": 0.125},
                {"kind": "adagrad", "learning_rate": 0.125},
                {"kind": "ftrl", "learning_rate": 0.125, "l2_regularization_strength": 0.25},
                {"kind": "adam", "learning_rate": 0.015625, "sum_inside_sqrt": False, "epsilon": 0.0009765625},
                {"kind": "adagrad_momentum", "learning_rate": 0.03125, "momentum": 0.875, "use_nesterov": True},
                # Not with l1: a weight that has just left 0 is a small difference of a sum and a threshold, which
                # float32 has less exactly, in TensorFlow's own kernel too.
                {"kind": "ftrl", "learning_rate": 0.125, "beta": 0.5},
            ]
        )
    )
    more = {
        "weight_decay_factor": draw(st.sampled_from([0.0625, 0.0])),
        "multiply_weight_decay_factor_by_learning_rate": draw(st.booleans()),
        "clipvalue": draw(st.sampled_from([None, 0.03125, [-0.03125, 0.125]])),
        "clip_weight_max": draw(st.sampled_from([None, 0.25])),
        "clip_weight_min": draw(st.sampled_from([None, -0.5])),
    }
    return {**found, **more}


def _column(lists: bool, weighted: bool, pool: int, generator: np.random.Generator) -> Column:
    """Ids with many repetitions, some that only the examples that test have, and examples without any."""
    values, weights = [], []
    for example in range(TRAIN + TEST):
        count = int(generator.integers(0, 5)) if lists else 1
        ids = np.minimum(generator.zipf(1.3, count), pool) + (pool if example >= TRAIN and example % 3 == 0 else 0)
        empty = not lists and generator.random() < 0.1
        values.append([""] if empty else [f"w{number}" for number in ids])
        weights.append((generator.integers(0, 9, count) / 4).tolist())
    return Column(values, weights if weighted else None, lists)


def _vocabulary(columns: Sequence[Column], rules: Mapping[str, Any]) -> list[str | None]:
    """Row 0, then the tokens of the training part by falling frequency, then by code point."""
    tokens = (token for column in columns for some in column.values[:TRAIN] for token in some)
    counts = {token: n for token, n in Counter(tokens).items() if token and n >= rules["min_frequency"]}
    return [None, *sorted(counts, key=lambda token: (-counts[token], token))[: rules["max_size"]]]


def _connected(features: Mapping[str, Mapping[str, Any]], table: str) -> set[str]:
    """The columns whose tokens a table's vocabulary holds: tables with a column in common share theirs."""
    tables, columns = {table}, set()
    while True:
        found = {each["column"] for each in features.values() if each["table"] in tables}
        tables |= {each["table"] for each in features.values() if each["column"] in found}
        if found == columns:
            return columns
        columns = found


@st.composite
def graphs(draw: Any) -> Graph:
    """A graph, data, and settings that can be run together."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = [f"table{number}" for number in range(draw(st.integers(1, 4)))]
    columns: dict[str, Column] = {}
    features: dict[str, dict[str, Any]] = {}
    for number in range(draw(st.integers(len(names), 6))):
        table = names[number] if number < len(names) else draw(st.sampled_from(names))
        kind = draw(st.sampled_from(["weighted", "id", "bag", "sequence"]))
        lists, column = kind != "id", f"column{number}"
        old = [name for name, each in columns.items() if each.lists == lists and (kind != "weighted" or each.weights)]
        if old and not draw(st.integers(0, 2)):
            column = draw(st.sampled_from(old))
        else:
            pool = draw(st.sampled_from([12, 3, 40]))
            columns[column] = _column(lists, kind == "weighted" or (lists and draw(st.booleans())), pool, generator)
        length = draw(st.integers(1, 4)) if kind == "sequence" else 0
        weights = f"{column}_weights" if kind == "weighted" else None
        features[f"feature{number}"] = {
            "table": table,
            "column": column,
            "weights": weights,
            "max_sequence_length": length,
        }
    rules = {"min_frequency": draw(st.integers(1, 3)), "max_size": draw(st.sampled_from([None, 9]))}
    vocabularies: dict[str, list[str | None]] = {}
    tables: dict[str, dict[str, Any]] = {}
    files: dict[str, tuple[list[str], np.ndarray]] = {}
    written: dict[str, str | np.ndarray] = {}
    for name in names:
        tokens = _vocabulary([columns[each] for each in sorted(_connected(features, name))], rules)
        free = draw(st.sampled_from([None, None, 1, 7]))
        vocabularies[name] = [*tokens, *([None] * (free or 0))]
        dim = draw(st.sampled_from([3, 1, 2, 5]))
        table = {
            "vocabulary_size": None if free is None else len(vocabularies[name]),
            "dim": dim,
            "combiner": draw(st.sampled_from(["mean", "sum", "sqrtn"])),
            "initializer": draw(st.sampled_from(INITIALIZERS)),
            "optimizer": draw(st.none() | optimizers()),
            "pretrained": None,
        }
        known = [token for token in tokens if token is not None]
        if known and draw(st.sampled_from([True, True, True, False])):
            chosen = [token for token in known if generator.random() < 0.6] or known[:1]
            chosen += ["one that the data lacks", "another"]
            rows = generator.normal(0, 0.5, (len(chosen), dim)).astype(np.float32)
            rows[0, 0], rows[1, 0] = -0.0, 1e-40
            order = generator.permutation(len(chosen))
            files[name] = [chosen[place] for place in order], rows[order]
            missing = draw(st.sampled_from(["initializer", "zeros", "mean"]))
            table["pretrained"] = {"kind": "file", "path": f"{{folder}}/{name}.npy", "missing": missing}
        tables[name] = table
    settings: dict[str, Any] = {"tables": tables, "features": features, "vocabulary": rules}
    settings |= {"optimizer": draw(optimizers()), "seed": draw(st.integers(0, 2**16))}
    bare = Graph(settings, columns, np.zeros(0), np.zeros(0), vocabularies, files, written, False, False, "function")
    for name in names:
        own = draw(st.sampled_from([True, True, False]))
        freeze = draw(policies(name, vocabularies[name], written, True)) if own else None
        tables[name]["freeze"] = freeze and without_idle_rules(freeze, [bare._rows(name)])
    heirs = [name for name in names if tables[name]["freeze"] is None]
    freeze = draw(policies("all", vocabularies[heirs[0]], written, False)) if heirs else {"kind": "none"}
    settings["freeze"] = without_idle_rules(freeze, [bare._rows(name) for name in heirs])
    settings["task"] = draw(st.sampled_from(["regression", "binary"]))
    count = TRAIN + TEST
    labels = generator.integers(0, 2, count) if settings["task"] == "binary" else generator.integers(-8, 9, count) / 8
    dense = generator.integers(-8, 9, (count, draw(st.integers(0, 2)))) / 8
    return Graph(
        settings=settings,
        columns=columns,
        dense=dense.astype(np.float32),
        labels=labels.astype(np.float32),
        vocabularies=vocabularies,
        files=files,
        written=written,
        parquet=draw(st.booleans()),
        tested=draw(st.booleans()),
        runtime=draw(st.sampled_from(["function", "session", "function", "session", "estimator"])),
    )
