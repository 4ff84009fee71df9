"""Tables with rules of their own, hash buckets and buckets of numbers: from the files to the exported model."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.errors import ConfigError, DataError
from embexp.runs import finished
from embexp.runs import run as single
from embexp.runs.prepare import prepare
from embexp.specs.pretrained import Match
from embexp.vectors.pretrained import earlier
from embexp.vectors.pretrained import growth as growing

EXAMPLES = 300
TABLES: dict[str, Any] = {
    "user": {"dim": 4, "vocabulary": {"min_frequency": 6, "missing": "own_row", "rare": "own_row", "oov_buckets": 2}},
    "item": {"dim": 4, "vocabulary": {"hash_buckets": 7, "missing": "own_row"}},
    "age": {"dim": 4},
    "wide": {"dim": 4},
}
FEATURES: dict[str, Any] = {
    "user": {"table": "user"},
    "item": {"table": "item"},
    "seen": {"table": "item"},
    "age": {"table": "age", "buckets": {"quantiles": 5}},
    "wide": {"table": "wide", "column": "age", "buckets": {"boundaries": [30, 60]}},
}
QUERY = {"lists": ["seen"], "dense": {"age": {"transform": "standardize", "missing": "mean"}}}


def write(path: Path, seed: int, strangers: int = 0) -> Path:
    draw = np.random.default_rng(seed)
    lines = ["user,item,seen,age,bought"]
    for _ in range(EXAMPLES):
        user = "" if draw.random() < 0.1 else f"u{draw.zipf(1.5) % 40 + draw.integers(0, strangers + 1)}"
        item = "" if draw.random() < 0.1 else f"i{draw.integers(60)}"
        seen = " ".join(f"i{each}" for each in draw.integers(60, size=draw.integers(0, 4)))
        age = "" if draw.random() < 0.2 else draw.integers(18, 80)
        lines.append(f"{user},{item},{seen},{age},{int(draw.random() < 0.5)}")
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def spec_of(path: Path, **changes: Any) -> embexp.RunSpec:
    base: dict[str, Any] = {
        "name": "log",
        "task": "binary",
        "data": {
            "kind": "csv",
            "path": str(path),
            "label": "bought",
            "list_columns": QUERY["lists"],
            "dense_features": QUERY["dense"],
        },
        "tables": TABLES,
        "features": FEATURES,
        "model": {"kind": "mlp", "hidden": [8]},
        "optimizer": {"kind": "adagrad", "learning_rate": 0.1},
        "dense_optimizer": {"kind": "adam", "learning_rate": 0.01},
        "train": {"steps": 10, "epochs": None, "batch_size": 32},
        "output": {"plots": False, "tensorboard": False, "baselines": False, "cache": str(path.parent / "cache")},
    }
    return embexp.RunSpec.model_validate(base | changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocabularies")


@pytest.fixture(scope="module")
def log(folder: Path) -> Path:
    return write(folder / "log.csv", 0)


@pytest.fixture(scope="module")
def run(folder: Path, log: Path) -> Path:
    (folder / "run").mkdir()
    return single.run(spec_of(log), folder / "run").directory


def read(path: Path) -> dict[str, list[str]]:
    names, *lines = (line.split(",") for line in path.read_text().splitlines())
    return {name: [line[place] for line in lines] for place, name in enumerate(names)}


def test_rows_and_shares_are_those_of_the_file(log: Path) -> None:
    data = prepare(spec_of(log)).data
    columns, ids = read(log), data.scan.examples.ids
    place = {name: number for number, name in enumerate(data.scan.examples.id_columns)}
    train = data.scan.splits["train"]
    ages = np.array([float(age or "nan") for age in columns["age"]])
    marks = np.nanquantile(ages[train], np.arange(1, 5) / 5).astype(np.float32)
    for key, boundaries in ((FEATURES["age"], marks), (FEATURES["wide"], np.array([30, 60]))):
        expected = np.where(np.isnan(ages), 0, np.searchsorted(boundaries, np.nan_to_num(ages), "right") + 1)
        np.testing.assert_array_equal(ids[:, place[f"age in buckets of table {key['table']}"]], expected)
    hashed = tf.strings.to_hash_bucket_fast(columns["item"], 7).numpy()
    expected = np.where(np.array(columns["item"]) == "", 0, hashed + 1)
    np.testing.assert_array_equal(ids[:, place["item"]], expected)

    seen = Counter(columns["user"][row] for row in train)
    own = {user for user, count in seen.items() if user and count >= 6}
    for split, rows in data.scan.splits.items():
        users = [columns["user"][row] for row in rows]
        kinds = Counter(
            "missing" if not user else "own" if user in own else "rare" if user in seen else "unknown" for user in users
        )
        share = data.shares["user"][split]
        assert {kind: getattr(share, kind) for kind in ("own", "missing", "rare", "unknown")} == {
            kind: kinds[kind] for kind in ("own", "missing", "rare", "unknown")
        }
        assert share.count == len(rows)
        assert data.shares["age"][split].missing == np.isnan(ages[rows]).sum()


def test_shares_of_two_columns_of_a_hashed_table_are_those_of_the_file(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "embexp.data.vocabularies.token_rows._ROWS", 4
    )  # blocks of training examples alone, of others alone, of both
    output = {"plots": False, "tensorboard": False, "baselines": False, "cache": str(tmp_path / "cache")}
    data = prepare(spec_of(log, output=output)).data
    columns = read(log)

    def values(split: str) -> list[str]:
        rows = data.scan.splits[split]
        return [columns["item"][row] for row in rows] + [
            item for row in rows for item in columns["seen"][row].split(" ") if item
        ]

    trained = set(values("train"))
    for name in data.scan.splits:
        expected = Counter("missing" if not item else "own" if item in trained else "unknown" for item in values(name))
        share = data.shares["item"][name]
        assert (share.own, share.missing, share.rare, share.unknown) == (
            expected["own"],
            expected["missing"],
            0,
            expected["unknown"],
        )


def test_sizes_are_known_before_the_data_is_read(log: Path) -> None:
    from embexp.vectors.pretrained import aligned

    assert aligned.known_rows(spec_of(log)) == {"user": None, "item": 8, "age": None, "wide": 4}
    rows = prepare(spec_of(log)).tables.rows
    assert (rows["item"], rows["wide"], rows["age"]) == (8, 4, 6)


def test_the_exported_model_takes_the_files_values(run: Path, folder: Path) -> None:
    other = write(folder / "other.csv", 5, strangers=30)
    exported = finished.export(run, folder / "model")
    model = tf.saved_model.load(str(exported.path))
    given = read(other)
    lists = [text.split() for text in given["seen"]]
    widest = max(map(len, lists))
    taken = {
        "user": tf.constant(given["user"]),
        "item": tf.constant(given["item"]),
        "seen": tf.constant([[*each, *[""] * (widest - len(each))] for each in lists]),
        "age": tf.constant([float(age or "nan") for age in given["age"]], tf.float32),
    }
    expected = embexp.load_run(run).predict(other)
    found = model.signatures["serving_default"](**taken)["predictions"].numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    loaded = embexp.load_run(run)
    rows = {name: tf.constant(loaded.vocabulary(name).rows(given[name])) for name in ("user", "item")}
    hashed = [loaded.vocabulary("item").rows(each).tolist() for each in lists]
    rows["seen"] = tf.constant([[*each, *[-1] * (widest - len(each))] for each in hashed], tf.int64)
    by_row = model.signatures["serving_ids"](**rows, age=taken["age"])["predictions"].numpy()
    np.testing.assert_allclose(by_row, expected, rtol=2e-6)


def test_predictions_tell_missing_values_from_unknown_ones(run: Path, log: Path, folder: Path) -> None:
    given, known = read(write(folder / "others.csv", 6, strangers=30)), embexp.load_run(run)
    found = known.predictions(folder / "others.csv")
    for column, features in {"user": ["user"], "item": ["item"], "age": ["age", "wide"]}.items():
        for feature in features:  # rows of their own, those of hashes, and buckets
            assert found.missing[feature].tolist() == [not text for text in given[column]], feature
    train = {read(log)["user"][row] for row in prepare(spec_of(log)).data.scan.splits["train"]}
    assert found.unknown["user"].tolist() == [bool(text) and text not in train for text in given["user"]]
    assert not any(found.unknown[name].any() for name in ("item", "age", "wide"))


def test_files_of_vectors(run: Path, folder: Path) -> None:
    finished.export(run, folder / "npy", "npy")
    assert np.load(folder / "npy" / "item.npy").shape == (8, 4)
    assert not (folder / "npy" / "item.tokens.txt").exists()
    tokens = (folder / "npy" / "user.tokens.txt").read_text().splitlines()
    assert tokens[:4] == ["<oov 0>", "<oov 1>", "<missing>", "<rare>"]
    finished.export(run, folder / "vec", "word2vec", tables=["user"])
    with pytest.raises(DataError, match="the rows of table item are 7 hash buckets, but word2vec's files"):
        finished.export(run, folder / "refused", "word2vec")
    with pytest.raises(DataError, match="the rows of table age are 5 buckets of numbers"):
        finished.export(run, folder / "refused", "word2vec", tables=["age"])


def test_buckets_continue_from_the_same_buckets(run: Path, log: Path) -> None:
    checkpoint = {"kind": "checkpoint", "path": str(run)}
    again = prepare(spec_of(log, pretrained=checkpoint))
    for name, table in again.tables.pretrained.tables.items():
        np.testing.assert_array_equal(table.alignment.file_rows, np.arange(again.tables.rows[name]), err_msg=name)
    for tables, words in (
        ({"item": {"dim": 4, "vocabulary": {"hash_buckets": 9}}}, "9 hash buckets, .* 7 hash buckets"),
        ({"item": {"dim": 4}}, "rows are tokens, .* 7 hash buckets"),
    ):
        own = {name: each | {"pretrained": checkpoint} for name, each in tables.items()}
        with pytest.raises(ConfigError, match=words):
            prepare(spec_of(log, tables=TABLES | own))


def test_buckets_do_not_take_rows_by_token(log: Path, folder: Path) -> None:
    vectors = folder / "items.vec"
    vectors.write_text("2 4\ni1 1 2 3 4\ni2 5 6 7 8\n")
    own = {"item": TABLES["item"] | {"pretrained": {"kind": "file", "path": str(vectors)}}}
    with pytest.raises(ConfigError, match=r"rows are taken by token .* the table's rows are 7 hash buckets"):
        prepare(spec_of(log, tables=TABLES | own))


def test_frozen_rows_are_named_by_tokens_with_a_row_of_their_own(run: Path, log: Path) -> None:
    users = embexp.load_run(run).vocabulary("user")
    [token] = users.tokens(users.first, users.first + 1)

    def policy(table: str, tokens: list[str]) -> Any:
        own = {table: TABLES[table] | {"freeze": {"kind": "rows", "tokens": tokens}}}
        return prepare(spec_of(log, tables=TABLES | own)).tables.policies[table]

    assert np.flatnonzero(policy("user", [token, "u39"]).frozen).tolist() == [users.first]
    assert np.flatnonzero(policy("wide", ["45", "[60, inf)"]).frozen).tolist() == [2, 3]
    with pytest.raises(ConfigError, match="1 of 1 tokens are not in the vocabulary"):
        policy("item", ["i1"])


def test_buckets_do_not_grow_by_token(run: Path, log: Path, folder: Path) -> None:
    source = earlier.open_run(run, cache=log.parent / "cache")
    tokens = folder / "tokens.txt"
    tokens.write_text("i1\ni2\n")
    for table in ("item", "age"):
        with pytest.raises(
            DataError, match=r"tokens\.txt: the table's rows are .* buckets.*, which can't grow by token"
        ):
            growing.growths(source, {table: tokens}, match=Match.EXACT, gone=growing.Gone.DROP)
    users = source.vocabulary("user")
    rare = users.rare[0].as_py()
    tokens.write_text("\n".join([*users.tokens(users.first), rare]) + "\n")
    grown = growing.growths(source, {"user": tokens}, match=Match.EXACT, gone=growing.Gone.DROP)
    assert grown["item"].unchanged
    assert grown["age"].unchanged
    assert grown["user"].rows == users.size + 1
    assert grown["user"].vocabulary.rows([rare]).tolist() == [users.size]
    np.testing.assert_array_equal(grown["user"].alignment.file_rows, [*range(users.size), -1])


def test_a_run_says_which_columns_it_takes(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert summary["columns"]["seen"] == "several"
    assert summary["columns"]["age in buckets of table age"] == "one"
