"""Exported models and tables, against `Run.predict`, float64 NumPy and the readers of other programs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import embexp
from embexp.errors import NotARunError, RunError
from embexp.records import inventory
from embexp.runs import finished as exporting
from embexp.runs import run as single
from embexp.runs import serving

USERS, ITEMS, EXAMPLES, DIM = 12, 15, 240, 4
Example = tuple[str, str, list[tuple[str, float]]]
"""A user, an item, and items seen with their weights."""
QUIET = ("output.plots=false", "output.baselines=false", "output.tensorboard=false")
TABLE = {"initializer": {"kind": "normal", "stddev": 0.5}}
OTHERS = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("embexp", "hydra", "hydra_plugins", "omegaconf", "pydantic", "pyarrow", "rich"):
            raise ImportError(f"{name} is refused here")
sys.meta_path.insert(0, Refused())
"""
"""Lets a process import TensorFlow and what that needs, and nothing of ours."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


@pytest.fixture(scope="module")
def visits(folder: Path) -> Path:
    """Examples with every kind of column; user names hold a comma, a backslash, a quote and an umlaut."""
    draw = np.random.default_rng(0)
    lines = ["who;item;seen;how often;price;hour;bought"]
    for _ in range(EXAMPLES):
        seen = draw.integers(ITEMS, size=draw.integers(0, 6))
        often = " ".join(f"{value:.2f}" for value in draw.uniform(0.1, 2, len(seen)))
        who, item = USER_NAMES[draw.integers(USERS)], draw.integers(ITEMS)
        numbers = f"{draw.uniform(-1, 1):.3f};{draw.uniform(0, 1):.3f};{draw.integers(2)}"
        lines.append(f"{who};i{item};{' '.join(f'i{each}' for each in seen)};{often};{numbers}")
    path = folder / "visits.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


USER_NAMES = [f"u{number}" for number in range(USERS - 4)] + ["a,b", "back\\slash", "it's", "Zoë"]


def spec_of(path: Path, **changes: Any) -> embexp.RunSpec:
    """A run with ids, weighted bags, sequences and, unless the model is a dot product, numbers."""
    base: dict[str, Any] = {
        "name": "visits",
        "task": "binary",
        "data": {
            "kind": "csv",
            "path": str(path),
            "delimiter": ";",
            "label": "bought",
            "list_columns": ["seen", "how often"],
            "dense_features": ["price", "hour"],
        },
        "tables": {"user": {"dim": DIM, **TABLE}, "item": {"dim": DIM, "combiner": "sqrtn", **TABLE}},
        "features": {
            "user": {"table": "user", "column": "who"},
            "item": {"table": "item"},
            "bag": {"table": "item", "column": "seen", "weights": "how often"},
            "last": {"table": "item", "column": "seen", "max_sequence_length": 3},
        },
        "model": {"kind": "mlp", "hidden": [8]},
        "optimizer": {"kind": "adagrad", "learning_rate": 0.1},
        "dense_optimizer": {"kind": "adam", "learning_rate": 0.01},
        "train": {"steps": 20, "epochs": None, "batch_size": 16},
        "output": {"plots": False, "tensorboard": False, "baselines": False, "cache": str(path.parent / "cache")},
    }
    return embexp.RunSpec.model_validate({**base, **changes})


DOT: dict[str, Any] = {
    "task": "regression",
    "features": {
        "user": {"table": "user", "column": "who"},
        "item": {"table": "item"},
        "bag": {"table": "item", "column": "seen", "weights": "how often"},
    },
    "model": {"kind": "dot", "left": ["user"], "right": ["item", "bag"]},
}


@pytest.fixture(scope="module")
def run(folder: Path, visits: Path) -> Callable[..., Path]:
    """Runs an experiment, each once; returns its directory."""
    made: dict[str, Path] = {}

    def run(name: str, **changes: Any) -> Path:
        if name not in made:
            (folder / name).mkdir()
            made[name] = single.run(spec_of(visits, **changes), folder / name).directory
        return made[name]

    return run


def dot_run(run: Callable[..., Path], visits: Path) -> Path:
    data = spec_of(visits).data.model_dump(mode="json") | {"dense_features": []}
    return run("dot", **DOT, data=data)


@pytest.fixture(scope="module")
def exported(folder: Path) -> Callable[[Path], Path]:
    """Exports a run as a SavedModel, once."""

    def export(directory: Path) -> Path:
        out = folder / f"{directory.name}_model"
        if not out.exists():
            exporting.export(directory, out)
        return out

    return export


def columns(path: Path) -> dict[str, list[str]]:
    header, *lines = path.read_text("utf-8").splitlines()
    fields = [line.split(";") for line in lines]
    return {name: [line[place] for line in fields] for place, name in enumerate(header.split(";"))}


def in_forms(path: Path, form: str, rows: Callable[[str, list[str]], Any] | None = None) -> dict[str, Any]:
    """A file as `predict` of an exported model takes it: as tokens, or as the numbers that `rows` makes of them."""
    found = columns(path)
    rows = rows or (lambda _, tokens: np.array(tokens, object))
    seen = [each.split() for each in found["seen"]]
    often = [[float(value) for value in each.split()] for each in found["how often"]]
    ids = tf.RaggedTensor.from_row_lengths(rows("item", [token for each in seen for token in each]), [*map(len, seen)])
    weights = tf.RaggedTensor.from_row_lengths(
        np.array([value for each in often for value in each], np.float32), [*map(len, often)]
    )
    if form == "sparse":
        ids, weights = ids.to_sparse(), weights.to_sparse()
    if form == "padded":
        ids = ids.to_tensor("" if ids.dtype == tf.string else -1)
        weights = weights.to_tensor(7.0)
    return {
        "who": tf.constant(rows("user", found["who"])),
        "item": tf.constant(rows("item", found["item"])),
        "seen": ids,
        "how often": weights,
        "price": tf.constant(np.array(found["price"], np.float32)),
        "hour": tf.constant(np.array(found["hour"], np.float32)),
    }


def plain(features: dict[str, Any]) -> dict[str, np.ndarray]:
    """The same as the arguments of a signature."""
    found: dict[str, np.ndarray] = {}
    for name, value in features.items():
        key = {"how often": "how_often"}.get(name, name)
        if isinstance(value, tf.RaggedTensor):
            found |= {f"{key}_values": value.values.numpy(), "seen_row_splits": value.row_splits.numpy()}
        elif isinstance(value, tf.SparseTensor):
            found |= {f"{key}_values": value.values.numpy(), "seen_indices": value.indices.numpy()}
            found["seen_dense_shape"] = value.dense_shape.numpy()
        else:
            found[key] = value.numpy()
    return found


SIGNATURES = {
    "serving_default": ("padded", True),
    "serving_ragged": ("ragged", True),
    "serving_sparse": ("sparse", True),
    "serving_ids": ("padded", False),
    "serving_ids_ragged": ("ragged", False),
    "serving_ids_sparse": ("sparse", False),
}
"""Form, and whether of tokens, of each signature."""


def arguments(run: embexp.Run, path: Path, signature: str) -> dict[str, Any]:
    form, tokens = SIGNATURES[signature]
    return in_forms(path, form, None if tokens else lambda table, each: run.vocabulary(table).rows(each))


def test_it_predicts_as_the_run_does_in_a_process_with_tensorflow_alone(
    run: Callable[..., Path], exported: Callable[[Path], Path], visits: Path, tmp_path: Path
) -> None:
    directory = run("mlp")
    finished = embexp.load_run(directory)
    asked = tmp_path / "asked.csv"
    lines = visits.read_text("utf-8").splitlines()
    asked.write_text("\n".join([*lines[:40], "nobody;nothing;i1 unknown i2;0.5 2.0 0.1;0.1;0.2;1", lines[40]]), "utf-8")
    for signature in SIGNATURES:
        given = plain(arguments(finished, asked, signature))
        # Strings as bytes of a fixed length, which need no pickle.
        fixed = {key: np.array(value.tolist()) if value.dtype == object else value for key, value in given.items()}
        np.savez(tmp_path / f"{signature}.npz", **fixed)
    script = f"""
{OTHERS}
import numpy as np
import tensorflow as tf
model = tf.saved_model.load({str(exported(directory))!r})
for name, signature in model.signatures.items():
    given = {{key: tf.constant(value) for key, value in np.load(f"{tmp_path}/{{name}}.npz").items()}}
    np.save(f"{tmp_path}/{{name}}.npy", signature(**given)["predictions"].numpy())
assert not [name for name in sys.modules if name.split(".")[0] in ("embexp", "hydra", "pydantic")]
print(*sorted(model.signatures))
"""
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == sorted(SIGNATURES)
    expected = finished.predict(asked)
    assert np.ptp(expected) > 0.05
    for signature in SIGNATURES:
        np.testing.assert_allclose(np.load(tmp_path / f"{signature}.npy"), expected, rtol=1e-6, err_msg=signature)


def test_in_python_it_takes_a_dict_of_columns(
    run: Callable[..., Path], exported: Callable[[Path], Path], visits: Path
) -> None:
    finished = embexp.load_run(run("mlp"))
    loaded, expected = tf.saved_model.load(str(exported(run("mlp")))), finished.predict(visits)
    for signature in SIGNATURES:
        found = loaded.predict(arguments(finished, visits, signature))["predictions"].numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=signature)


def test_nothing_in_it_is_of_keras_or_embexp(run: Callable[..., Path], exported: Callable[[Path], Path]) -> None:
    from tensorflow.core.protobuf import saved_model_pb2

    proto = saved_model_pb2.SavedModel()
    proto.ParseFromString((exported(run("mlp")) / "saved_model.pb").read_bytes())
    kinds = {node.user_object.identifier for node in proto.meta_graphs[0].object_graph_def.nodes}
    assert kinds <= {"", "_generic_user_object", "trackable_list_wrapper", "trackable_dict_wrapper", "signature_map"}
    # Nor does the graph hold a table: variables do.
    assert max(len(node.attr["value"].tensor.tensor_content) for node in proto.meta_graphs[0].graph_def.node) < 100


class DotProduct:
    """The dot product of a user with an item and a weighted bag, in float64."""

    def __init__(self, finished: embexp.Run) -> None:
        self.users, self.items = finished.vocabulary("user"), finished.vocabulary("item")
        self.user, self.item = (finished.table(name).astype(np.float64) for name in ("user", "item"))
        self.bias = _bias(finished)

    def __call__(self, examples: list[Example]) -> tuple[np.ndarray, np.ndarray]:
        """Predictions, and bounds of the error of float32."""
        users = self.user[self.users.rows([who for who, _, _ in examples])]
        items = self.item[self.items.rows([item for _, item, _ in examples])]
        for place, (_, _, seen) in enumerate(examples):
            if seen:
                own = np.array([weight for _, weight in seen])
                rows = self.item[self.items.rows([token for token, _ in seen])]
                items[place] += own @ rows / np.sqrt((own**2).sum())
        bounds = 1e-6 * (np.abs(users * items).sum(1) + np.abs(users).sum(1) + 1)
        return (users * items).sum(1) + self.bias, bounds


TOKENS = st.one_of(
    st.sampled_from([f"i{number}" for number in range(ITEMS)]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3),
)
EXAMPLE = st.tuples(
    st.one_of(st.sampled_from(USER_NAMES), st.text(max_size=3)),
    TOKENS,
    st.lists(st.tuples(TOKENS, st.floats(0.125, 4, width=16)), max_size=5),
)


def test_a_dot_product_is_that_of_numpy(
    run: Callable[..., Path], exported: Callable[[Path], Path], visits: Path
) -> None:
    directory = dot_run(run, visits)
    loaded, expected = tf.saved_model.load(str(exported(directory))), DotProduct(embexp.load_run(directory))

    @given(st.lists(EXAMPLE, min_size=1, max_size=7), st.sampled_from(["padded", "ragged", "sparse"]))
    def agrees(examples: list[Example], form: str) -> None:
        lengths = [len(seen) for _, _, seen in examples]
        flat = [token for _, _, seen in examples for token, _ in seen]
        weights = np.array([weight for _, _, seen in examples for _, weight in seen], np.float32)
        ids: Any = tf.RaggedTensor.from_row_lengths(tf.constant(flat, tf.string), lengths)
        often: Any = tf.RaggedTensor.from_row_lengths(weights, lengths)
        if form == "padded":
            ids, often = ids.to_tensor(""), often.to_tensor()
        if form == "sparse":
            ids, often = ids.to_sparse(), often.to_sparse()
        who, item = ([example[place] for example in examples] for place in (0, 1))
        features = {"who": tf.constant(who), "item": tf.constant(item), "seen": ids, "how often": often}
        found = loaded.predict(features)["predictions"].numpy()
        predicted, bounds = expected(examples)
        assert (np.abs(found - predicted) <= bounds).all()

    agrees()


def _bias(finished: embexp.Run) -> float:
    """The model's only dense variable, read with TensorFlow's own reader."""
    reader = tf.train.load_checkpoint(str(finished.folder.final_checkpoint / "checkpoint"))
    return float(reader.get_tensor("optimizer/_trainable_variables/0/.ATTRIBUTES/VARIABLE_VALUE").reshape(()))


def test_an_unknown_token_without_an_oov_row_is_an_error(
    run: Callable[..., Path], exported: Callable[[Path], Path], visits: Path
) -> None:
    data = spec_of(visits).data.model_dump(mode="json") | {"dense_features": [], "vocabulary": {"unknown": "error"}}
    loaded = tf.saved_model.load(str(exported(run("strict", **DOT, data=data))))
    given = {key: tf.constant(value) for key, value in plain(in_forms(visits, "padded")).items()}
    given = {key: given[key] for key in ("who", "item", "seen", "how_often")}
    assert loaded.signatures["serving_default"](**given)["predictions"].shape == [EXAMPLES]
    given["who"] = tf.constant([*USER_NAMES[:1] * (EXAMPLES - 1), "nobody"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"vocabulary of table user.*nobody"):
        loaded.signatures["serving_default"](**given)


def test_a_row_number_outside_the_table_is_an_error(run: Callable[..., Path], exported: Callable[[Path], Path]) -> None:
    loaded = tf.saved_model.load(str(exported(run("mlp"))))
    number, weight = tf.constant([1], tf.int64), tf.constant([[1.0]])
    given = {"item": number, "seen": number[None], "how_often": weight, "price": weight[0], "hour": weight[0]}
    with pytest.raises(tf.errors.InvalidArgumentError, match="feature user in table user of 13 rows"):
        loaded.signatures["serving_ids"](who=tf.constant([13], tf.int64), **given)


def test_an_output_shape_holds_for_batches_of_any_size(
    run: Callable[..., Path], exported: Callable[[Path], Path], visits: Path
) -> None:
    features = spec_of(visits).model_dump(mode="json")["features"]
    features["last"] = {"table": "item", "column": "seen", "output_shape": [16, 3]}
    features["bag"]["output_shape"] = [16, 1]
    directory = run("shaped", features=features)
    loaded = tf.saved_model.load(str(exported(directory)))
    finished = embexp.load_run(directory)
    found = loaded.predict(in_forms(visits, "ragged"))["predictions"].numpy()
    np.testing.assert_allclose(found, finished.predict(visits), rtol=1e-6)


ODD_NAMES = ["a\nb", "a\\nb", "c\r", "c", "\\", "\r\n"]


@pytest.fixture(scope="module")
def odd(folder: Path) -> Path:
    """Users whose names hold line ends, and items."""
    draw, path = np.random.default_rng(1), folder / "odd.parquet"
    data = {
        "who": draw.choice(ODD_NAMES, 60).tolist(),
        "item": draw.choice(["x", "y"], 60).tolist(),
        "stars": draw.normal(size=60),
    }
    pq.write_table(pa.table(data), path)
    return path


PLAIN = {"user": {"table": "user", "column": "who"}, "item": {"table": "item"}}
"""Features of one value each, of which an export traces few signatures."""


@pytest.fixture(scope="module")
def odd_run(run: Callable[..., Path], odd: Path) -> Path:
    data, model = {"kind": "parquet", "path": str(odd), "label": "stars"}, {"kind": "dot", "left": ["user"]}
    return run("odd", task="regression", data=data, features=PLAIN, model={**model, "right": ["item"]})


def test_tokens_with_line_ends(odd: Path, odd_run: Path, exported: Callable[[Path], Path]) -> None:
    data = pq.read_table(odd).to_pydict()
    loaded = tf.saved_model.load(str(exported(odd_run)))
    given = {"who": tf.constant(data["who"]), "item": tf.constant(data["item"])}
    expected = embexp.load_run(odd_run).predict(odd)
    assert len(np.unique(expected)) > len(ODD_NAMES)
    np.testing.assert_allclose(loaded.predict(given)["predictions"].numpy(), expected, rtol=1e-6)


OWN_MODELS = '''
import keras
import tensorflow as tf


class Looked(keras.layers.Layer):
    """A layer with a lookup table of its own."""

    def __init__(self):
        super().__init__()
        keys = tf.constant([True, False])
        self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
            tf.cast(keys, tf.int64), tf.constant([0.5, -0.5])), 0.0)

    def call(self, x):
        return x + self.table.lookup(tf.cast(x > 0, tf.int64))


def joined(activations):
    x = keras.layers.Concatenate()([keras.layers.Flatten()(each) for each in activations.values()])
    return keras.layers.BatchNormalization()(keras.layers.Dense(5, activation="gelu")(x))


def looked(activations):
    return keras.Model(activations, Looked()(keras.layers.Dense(1)(joined(activations))))


class Python(keras.layers.Layer):
    def call(self, x):
        return x + tf.stop_gradient(tf.ensure_shape(tf.numpy_function(lambda a: a, [x], tf.float32), x.shape))

    def compute_output_shape(self, shape):
        return shape


def python(activations):
    return keras.Model(activations, keras.layers.Dense(1)(Python()(joined(activations))))
'''


def test_models_of_users(run: Callable[..., Path], tmp_path: Path, visits: Path, own_models: str) -> None:
    function = f"{own_models}:looked"
    directory = run("own", model={"kind": "keras", "function": function})
    opened = embexp.load_run(directory, allow_code=[function])
    opened.export(tmp_path / "out")
    loaded = tf.saved_model.load(str(tmp_path / "out"))
    found = loaded.predict(in_forms(visits, "ragged"))["predictions"].numpy()
    np.testing.assert_allclose(found, opened.predict(visits), rtol=1e-6)


@pytest.fixture
def own_models(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path_factory.mktemp("models")
    (folder / "models_to_export.py").write_text(OWN_MODELS)
    monkeypatch.chdir(folder)
    return "models_to_export"


def test_a_model_that_calls_python_is_refused(
    run: Callable[..., Path], odd: Path, tmp_path: Path, own_models: str
) -> None:
    function = f"{own_models}:python"
    data = {"kind": "parquet", "path": str(odd), "label": "stars"}
    directory = run(
        "python", task="regression", data=data, features=PLAIN, model={"kind": "keras", "function": function}
    )
    with pytest.raises(RunError, match=r"calls a Python function .*use TensorFlow's operations"):
        exporting.export(directory, tmp_path / "out", allow_code=[function])
    assert not list(tmp_path.glob("out*"))
    assert not list(tmp_path.glob(".*"))


def test_any_path(run: Callable[..., Path], tmp_path: Path, visits: Path) -> None:
    directory = run("mlp")
    odd = tmp_path / "a[64,32] b* c? d\\e {}='\" %ü"
    (odd / "run").mkdir(parents=True)
    for path in directory.iterdir():
        (odd / "run" / path.name).symlink_to(path)
    exporting.export(odd / "run", odd / "model")
    (odd / "model").rename(tmp_path / "plain")
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    found = loaded.predict(in_forms(visits, "ragged"))["predictions"].numpy()
    np.testing.assert_allclose(found, embexp.load_run(directory).predict(visits), rtol=1e-6)


def test_what_can_not_be_exported_is_said_before_anything_is_written(
    run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, out = run("mlp"), tmp_path / "new" / "out"
    with pytest.raises(RunError, match=r"no table 'films'; the tables are user, item"):
        exporting.export(directory, out, "npy", tables=["films"])
    with pytest.raises(RunError, match=r"needs all tables of the run"):
        exporting.export(directory, out, "savedmodel", tables=["item"])
    with pytest.raises(NotARunError, match=r"there is no such directory"):
        exporting.export(tmp_path / "nothing", out)
    (tmp_path / "there").mkdir()
    with pytest.raises(RunError, match=r"there already exists: give the export another name"):
        exporting.export(directory, tmp_path / "there")
    small = type("Usage", (), {"free": 100})()
    monkeypatch.setattr("shutil.disk_usage", lambda path: small)
    with pytest.raises(RunError, match=r"the tables need about 464 B, but the disk of .* has only 100 B left"):
        exporting.export(directory, out)
    assert not out.parent.exists()


def test_a_run_without_end_or_checkpoint(run: Callable[..., Path], tmp_path: Path) -> None:
    for path in run("mlp").iterdir():
        if path.name not in ("checkpoints", inventory.NAME):
            (tmp_path / path.name).symlink_to(path)
    with pytest.raises(NotARunError, match=r"holds no checkpoint to take rows from"):
        exporting.export(tmp_path, tmp_path.with_name("out"))
    (tmp_path / "summary.json").unlink()
    inventory.unseal(tmp_path)
    with pytest.raises(NotARunError, match=r"the run has not finished"):
        exporting.export(tmp_path, tmp_path.with_name("out"))


def test_a_run_that_does_not_tell_its_columns(run: Callable[..., Path], tmp_path: Path) -> None:
    for path in run("mlp").iterdir():
        if path.name not in ("summary.json", inventory.NAME):
            (tmp_path / path.name).symlink_to(path)
    summary = json.loads((run("mlp") / "summary.json").read_text())
    assert summary.pop("columns") == {"who": "one", "item": "one", "seen": "several"}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(RunError, match=r"has no `columns`: an earlier version of embexp made this run"):
        exporting.export(tmp_path, tmp_path.with_name("out"))


def test_each_form_is_traced_once(odd_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow traces a function again when it saves it, unless it was traced with what it looks for then."""
    traced, predict = [], serving.FeatureModel._predict

    def counted(self: serving.FeatureModel, features: Any) -> Any:
        traced.append(features["who"].dtype)
        return predict(self, features)

    monkeypatch.setattr(serving.FeatureModel, "_predict", counted)
    exporting.export(odd_run, tmp_path / "out")
    assert traced == [tf.string, tf.int64]


def test_a_disk_that_is_full_leaves_nothing(odd_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("embexp.system.tensor_bundle.writer.BundleWriter.finish", full)
    with pytest.raises(RunError, match=r"out can't be written: No space left on device"):
        exporting.export(odd_run, tmp_path / "out")
    assert not list(tmp_path.iterdir())
