"""A SavedModel without tables, which is given rows by a program of the user's, next to the one that has the tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.cli.commands import main
from embexp.errors import RunError
from embexp.runs import run as single
from tests import planted_triples
from tests.runs import test_deltas

QUIET = ("output.plots=false", "output.tensorboard=false", "output.baselines=false")
LENGTH, DIM = 3, 4


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> embexp.Run:
    """A run with one value per example, bags, sequences, hash buckets and buckets of numbers, and numbers."""
    folder = tmp_path_factory.mktemp("apart")
    data = test_deltas.write(folder / "monday.csv", test_deltas.BEFORE, 200, 0)
    spec = test_deltas.spec_of(data)
    features = spec.model_dump(mode="json")["features"]
    features["last"] = {"table": "item", "column": "item", "max_sequence_length": LENGTH}
    features["price"] = features.pop("cheap")  # the name of the column of numbers, too
    (folder / "run").mkdir()
    spec = test_deltas.spec_of(data, features=features, task="classification", data={**_data(spec), "label": "liked"})
    return embexp.load_run(single.run(spec, folder / "run").directory)


def _data(spec: embexp.RunSpec) -> dict[str, object]:
    found: dict[str, object] = spec.data.model_dump(mode="json")
    found["dense_features"] = {"price": {"transform": "standardize", "missing": "mean", "indicator": True}}
    return found


class Store:
    """Rows by token, from the files of a table."""

    def __init__(self, folder: Path, table: str) -> None:
        self.rows = np.load(folder / f"{table}.npy")
        lines = (folder / f"{table}.tokens.txt").read_text("utf-8").split("\n")
        self.number = {token: row for row, token in enumerate(lines) if token and not token.startswith("<oov ")}

    def __call__(self, token: str) -> np.ndarray:
        return self.rows[self.number[token]]


USERS = [*test_deltas.OLD, "u0"]
BAGS = [["i0", "i1", "i2", "i3"], ["i5"], [], ["i1", "i1"], ["i8", "i7", "i6"], ["i2"], [], ["i3", "i4"], ["i0"]]


def asked() -> dict[str, tf.Tensor]:
    draw = np.random.default_rng(3)
    return {
        "user": tf.constant(USERS),
        "item": tf.ragged.constant(BAGS, row_splits_dtype=tf.int64).to_tensor(""),
        "price": tf.constant([np.nan, *draw.normal(size=len(USERS) - 1)], tf.float32),
        "place": tf.constant([f"p{number}" for number in range(len(USERS))]),
    }


def test_it_predicts_as_the_whole_model(run: embexp.Run, tmp_path: Path) -> None:
    run.export(tmp_path / "whole")
    exported = run.export(tmp_path / "out", tables_apart=True)
    model = tf.saved_model.load(str(tmp_path / "out" / "model"))
    assert list(exported.signatures) == ["serving_default"]
    serve = model.signatures["serving_default"]
    takes = {name: (spec.dtype, spec.shape.as_list()) for name, spec in serve.structured_input_signature[1].items()}
    rows, numbers = tf.float32, (tf.float32, [None])
    shapes = {"user": [None, 3], "item": [None, DIM], "last": [None, LENGTH, DIM], "place": [None, 2]}
    assert takes == {name: (rows, shape) for name, shape in {**shapes, "price": [None, 2]}.items()} | {
        "price_number": numbers
    }
    tables = tmp_path / "out" / "tables"
    user, item = Store(tables, "user"), Store(tables, "item")
    given = asked()
    last = np.zeros((len(BAGS), LENGTH, DIM), np.float32)
    for place, bag in enumerate(BAGS):
        for at, token in enumerate(bag[:LENGTH]):
            last[place, at] = item(token)
    bags = [np.sum([item(token) for token in bag], axis=0) / len(bag) if bag else np.zeros(DIM) for bag in BAGS]
    buckets = run.vocabulary("price").rows_of(given["price"].numpy())  # type: ignore[attr-defined]
    places = run.vocabulary("place").rows([text.decode() for text in given["place"].numpy()])
    found = {
        "user": np.array([user(token) for token in USERS]),
        "item": np.array(bags, np.float32),
        "last": last,
        "place": np.load(tables / "place.npy")[places],
        "price": np.load(tables / "price.npy")[buckets],
        "price_number": given["price"].numpy(),
    }
    expected = tf.saved_model.load(str(tmp_path / "whole")).signatures["serving_default"](**given)
    got = serve(**{name: tf.constant(value) for name, value in found.items()})
    assert got.keys() == expected.keys()
    assert np.ptp(expected["probabilities"].numpy()[:, 0]) > 0.01
    # Bags were combined by NumPy.
    np.testing.assert_allclose(got["probabilities"].numpy(), expected["probabilities"].numpy(), atol=1e-6)
    # Where no bag is of several, each number is the same.
    single_rows = [place for place, bag in enumerate(BAGS) if len(bag) < 2]
    some = {name: tf.gather(value, single_rows) for name, value in found.items()}
    of_whole = {name: tf.gather(value, single_rows) for name, value in given.items()}
    expected = tf.saved_model.load(str(tmp_path / "whole")).signatures["serving_default"](**of_whole)
    np.testing.assert_array_equal(serve(**some)["probabilities"].numpy(), expected["probabilities"].numpy())
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"different numbers of examples:\W+\d+\W+\d+"):
        serve(**{**some, "user": some["user"][:1]})


def test_it_has_no_table(run: embexp.Run, tmp_path: Path) -> None:
    run.export(tmp_path / "out", tables_apart=True)
    reader = tf.train.load_checkpoint(str(tmp_path / "out" / "model" / "variables" / "variables"))
    assert not [key for key in reader.get_variable_to_shape_map() if key.startswith("tables/")]
    run.export(tmp_path / "tables", "npy")
    names = {each.name for each in (tmp_path / "tables").iterdir()}
    found = {each.name for each in (tmp_path / "out" / "tables").iterdir()}
    assert found == names | {"price.json", "place.json"}
    for name in names:
        assert (tmp_path / "out" / "tables" / name).read_bytes() == (tmp_path / "tables" / name).read_bytes()


def test_the_command(run: embexp.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", str(run.folder.path), str(tmp_path / "out"), "--as"]
    assert main([*words, "savedmodel", "--tables", "apart"]) == 0
    assert "signature serving_default: item float32 [B, 4], last float32 [B, 3, 4], " in capsys.readouterr().out
    assert main([*words[:2], str(tmp_path / "o"), "--as", "npy", "--tables", "apart"]) == 2
    assert "--tables apart is for --as savedmodel" in capsys.readouterr().err
    assert main([*words[:2], str(tmp_path / "o"), "--since", "x", "--tables", "apart"]) == 2
    assert "--tables apart is for whole exports, not with --since" in capsys.readouterr().err


def test_a_model_that_needs_all_rows_is_refused(tmp_path: Path) -> None:
    planted_triples.divided(tmp_path / "graph", planted_triples.circle(12), test=6, valid=6)
    settings = ["experiment=knowledge_graph", f"data.path={tmp_path / 'graph'}", "tables.entity.dim=6", "train.steps=3"]
    (tmp_path / "run").mkdir()
    spec = embexp.compose([*settings, "train.batch_size=16", f"output.cache={tmp_path}/cache", *QUIET])
    finished = embexp.load_run(single.run(spec, tmp_path / "run").directory)
    with pytest.raises(RunError, match=r"task ranking looks up rows itself, .* export the whole SavedModel"):
        finished.export(tmp_path / "out", tables_apart=True)
    assert not (tmp_path / "out").exists()
