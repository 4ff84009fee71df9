"""Predictions and evaluations of data in memory: dicts, Arrow tables, data frames. They are those of the same file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import embexp
from embexp.data import batches
from embexp.data.columns import columns_of
from embexp.errors import DataError, UsageError

EXPERIMENT = """\
# @package _global_
defaults: [{override /data: csv}, {override /graph: null}, {override /model: dlrm_concat}]
name: own
task: binary
data:
  label: cancelled
  list_columns: [extras]
  dense_features: {lead: {transform: standardize, missing: mean, indicator: true}}
tables: {hotel: {dim: 4}, extras: {dim: 4}, lead: {dim: 4}}
features: {hotel: {}, extras: {}, lead: {buckets: {quantiles: 8}}}
train: {epochs: 2, batch_size: 16}
"""
QUIET = ("output.plots=false", "output.baselines=false", "output.tensorboard=false")
ROW: dict[str, Any] = {"hotel": ["h3"], "lead": [12.5], "extras": [["pool", "bar"]]}


def spec_of(folder: Path, experiment: str, *overrides: str) -> embexp.RunSpec:
    (folder / "experiment").mkdir(exist_ok=True)
    (folder / "experiment" / "own.yaml").write_text(experiment)
    own = ["experiment=own", f"output.cache={folder / 'cache'}", *QUIET, *overrides]
    return embexp.compose(own, config_dir=folder)


@pytest.fixture(scope="module")
def bookings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bookings whose label depends on the hotel: text, lists in a text, and numbers, some of them missing."""
    random = np.random.default_rng(0)
    lines = ["hotel,lead,extras,cancelled"]
    for _ in range(400):
        hotel = int(random.integers(8))
        lead = "" if random.random() < 0.1 else f"{random.gamma(2, 20):.2f}"
        extras = " ".join(random.permutation(["pool", "bar", "spa"])[: random.integers(4)])
        lines.append(f"h{hotel},{lead},{extras},{'yes' if random.random() < (hotel % 3 + 1) / 4 else 'no'}")
    path = tmp_path_factory.mktemp("data") / "bookings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def finished(bookings: Path) -> embexp.Run:
    folder = bookings.parent
    spec = spec_of(folder, EXPERIMENT, f"data.path={bookings}")
    return embexp.load_run(embexp.run(spec, folder / "run", quiet=True).directory)


def arrow_table(path: Path) -> pa.Table:
    """The file as Arrow reads it, with lists."""
    table = pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True))
    extras = [[part for part in (text or "").split(" ") if part] for text in table["extras"].to_pylist()]
    return table.set_column(2, "extras", pa.array(extras))


def of_lists(path: Path) -> Any:
    return arrow_table(path).to_pydict()


def of_arrays(path: Path) -> Any:
    table = arrow_table(path)
    arrays = {name: np.array(table[name].to_pylist()) for name in ("hotel", "cancelled")}
    return arrays | {"lead": np.array(table["lead"].to_pylist(), float), "extras": table["extras"]}


def of_other_types(path: Path) -> Any:
    """Dictionaries, views, long lists, and chunks that do not fit each other."""
    table = arrow_table(path)
    hotel = table["hotel"].combine_chunks().dictionary_encode()
    views = pa.DictionaryArray.from_arrays(hotel.indices, hotel.dictionary.cast(pa.string_view()))
    extras = table["extras"].combine_chunks().cast(pa.large_list(pa.string_view()))
    return table.set_column(0, "hotel", views).set_column(2, "extras", pa.chunked_array([extras[:7], extras[7:]]))


def of_pandas(path: Path) -> Any:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(path)  # lists stay text, as in the file
    frame.index += 7
    return frame.astype({"hotel": "category"})


def of_polars(path: Path) -> Any:
    polars = pytest.importorskip("polars")
    return polars.read_csv(path).with_columns(polars.col("hotel").cast(polars.Categorical))


FORMS = (of_lists, of_arrays, arrow_table, of_other_types, of_pandas, of_polars)


@pytest.mark.parametrize("form", FORMS)
def test_predictions_are_those_of_the_file(finished: embexp.Run, bookings: Path, form: Callable[[Path], Any]) -> None:
    data = form(bookings)
    expected, found = finished.predictions(bookings), finished.predictions(data)
    np.testing.assert_array_equal(found.prediction, expected.prediction)
    assert found.classes is not None
    assert found.classes.tolist() == np.where(expected.prediction > 0.5, "yes", "no").tolist()
    assert finished.evaluate(data) == finished.evaluate(bookings)


def test_rows_in_their_order_without_a_label(finished: embexp.Run, tmp_path: Path) -> None:
    (tmp_path / "three.csv").write_text("hotel,lead,extras\nh3,12.5,pool bar\nunheard,,\n,4,pool\n")
    rows = {
        "hotel": ["h3", "unheard", None],  # the last two have the OOV row
        "lead": [12.5, None, 4],
        "extras": [["pool", "bar"], [], ["pool"]],
        "unused": [1, 2, 3],
    }
    found, of_file = finished.predictions(rows), finished.predictions(tmp_path / "three.csv")
    np.testing.assert_array_equal(found.prediction, of_file.prediction)
    for each in (found, of_file):
        assert each.unknown["hotel"].tolist() == [False, True, False]
        assert each.missing["hotel"].tolist() == [False, False, True]
        assert not each.missing["extras"].any()  # a list without values lacks none
    for place in range(3):
        one = finished.predict({name: values[place : place + 1] for name, values in rows.items()})
        np.testing.assert_allclose(one, found.prediction[place : place + 1], rtol=1e-6)


def test_whole_numbers_that_pandas_made_floats_are_tokens(tmp_path: Path) -> None:
    path = tmp_path / "codes.csv"
    path.write_text("code,y\n" + "".join(f"{n % 5 or ''},{n % 2}\n" for n in range(200)))
    experiment = """\
# @package _global_
defaults: [{override /data: csv}, {override /graph: null}, {override /model: mlp}]
name: own
task: binary
data: {label: y}
tables: {code: {dim: 2}}
features: {code: {}}
train: {epochs: 1, batch_size: 16}
"""
    spec = spec_of(tmp_path, experiment, f"data.path={path}")
    run = embexp.load_run(embexp.run(spec, tmp_path / "run", quiet=True).directory)
    (tmp_path / "new.csv").write_text("code,x\n3,1\n,1\n")
    np.testing.assert_array_equal(run.predict({"code": np.array([3.0, np.nan])}), run.predict(tmp_path / "new.csv"))
    with pytest.raises(DataError, match=r"'code': its values must be text or integers in the data; convert them"):
        run.predict({"code": [1.5]})


FAULTS: dict[str, tuple[Any, type[Exception], str]] = {
    "missing": ({"hotle": ["h"], "lead": [1], "extras": [[]]}, DataError, "'hotel': .* did you mean 'hotle'"),
    "lengths": (ROW | {"lead": [1, 2]}, DataError, "different lengths.*'hotel' has 1, 'lead' has 2"),
    "text for numbers": (
        ROW | {"lead": ["x"]},
        DataError,
        "row 1: found 'x' in column 'lead', expected a finite number",
    ),
    "lists of numbers": (ROW | {"lead": [[1.0]]}, DataError, "'lead': the column holds several values"),
    "infinite": (ROW | {"lead": [np.inf]}, DataError, "the data, row 1: found inf in column 'lead'"),
    "mixed": (ROW | {"hotel": ["a", 1]}, DataError, "column 'hotel': .* use values of one type"),
    "time": (ROW | {"hotel": np.array(["2024-01-01"], "M8[ns]")}, DataError, "'hotel': its values must be text"),
    "one value": (ROW | {"hotel": "h3"}, DataError, r"column 'hotel': found 'h3', expected a list.*\['h3'\]"),
    "matrix": (ROW | {"lead": np.zeros((1, 1, 1))}, DataError, r"shape \[1, 1, 1\]"),
    "empty": ({"hotel": [], "lead": [], "extras": []}, DataError, "columns but no examples"),
    "two of a name": (pa.table([["a"], ["b"]], names=["hotel"] * 2), DataError, "'hotel': the data has 2 columns"),
    "rows": ([{"hotel": "h3"}], UsageError, r"a dict of columns .* not list; to convert a list of rows"),
    "number": (5, UsageError, "an Arrow table, or a data frame of pandas or Polars, not int"),
    "one column": (pa.chunked_array([["a"]]), UsageError, "a dict of columns .* not ChunkedArray"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_data(finished: embexp.Run, name: str) -> None:
    data, kind, words = FAULTS[name]
    with pytest.raises(kind, match=f"(?s){words}"):
        finished.predict(data)


def test_wrong_frames(finished: embexp.Run) -> None:
    pandas = pytest.importorskip("pandas")
    row = pandas.DataFrame(ROW)
    with pytest.raises(DataError, match=r"Conversion failed for column hotel.*values of one type"):
        finished.predict(pandas.concat([row, row.assign(hotel=1)]))
    with pytest.raises(DataError, match="'hotel': the data has 2 columns with this name"):
        finished.predict(pandas.concat([row, row[["hotel"]]], axis=1))
    np.testing.assert_array_equal(finished.predict(row.set_index("hotel")), finished.predict(ROW))


def test_evaluation_needs_the_label(finished: embexp.Run) -> None:
    with pytest.raises(DataError, match="'cancelled': the data has no such column"):
        finished.evaluate(ROW)
    with pytest.raises(DataError, match="the data, row 1: found 'maybe' in column 'cancelled', expected one of"):
        finished.evaluate({**ROW, "cancelled": ["maybe"]})


def test_a_wrong_file_is_worded_alike(finished: embexp.Run, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("lead\n1\n")
    words = r"^.*new\.csv can't be read like this run's data\n  'hotel': .* has no such column; its columns are: lead"
    with pytest.raises(DataError, match=words):
        finished.predict(path)
    with pytest.raises(DataError, match=words):
        finished.columns_of_file(path, ["hotel"])


def test_a_run_of_drawn_examples_takes_none(tmp_path: Path) -> None:
    spec = embexp.compose(["data.examples=2000", "train.steps=2", *QUIET])
    run = embexp.load_run(embexp.run(spec, tmp_path / "run", quiet=True).directory)
    with pytest.raises(DataError, match="data=clicks reads only files"):
        run.predict({"user": [1]})


def test_one_batch_is_one_of_a_dataset(finished: embexp.Run) -> None:
    columns, examples = finished._encode(ROW, lambda stage, done: None, labelled=False)
    assert columns_of(finished.spec.data, finished.spec.features)[0].ids == columns.ids
    dataset = batches.evaluation_batches(examples, np.arange(1), columns, batch_size=8)
    assert batches.one_batch(examples, columns).element_spec == dataset.element_spec


def of_parquet(experiment: str) -> str:
    return experiment.replace("/data: csv", "/data: parquet").replace("  list_columns: [extras]\n", "")


@pytest.fixture(scope="module")
def recorded(bookings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on data in memory, whose directory was moved."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "experiment").mkdir()
    (folder / "experiment" / "own.yaml").write_text(of_parquet(EXPERIMENT))
    own = ["experiment=own", f"output.cache={folder / 'cache'}", *QUIET]
    embexp.run(own, folder / "first", data=arrow_table(bookings), config_dir=folder, quiet=True)
    (folder / "first").rename(folder / "moved")
    assert sorted(path.name for path in folder.iterdir()) == ["cache", "experiment", "moved"]
    return folder / "moved"


def test_data_is_recorded_in_the_directory(recorded: Path, bookings: Path) -> None:
    content = json.loads((recorded / "spec.json").read_text())
    assert content["data"]["path"] == "{run}/recorded_data/data.parquet"
    kept = pq.read_table(recorded / "recorded_data" / "data.parquet")
    assert kept.to_pydict() == {name: arrow_table(bookings).to_pydict()[name] for name in kept.column_names}
    assert "recorded_data/data.parquet" in json.loads((recorded / "inventory.json").read_text())["files"]
    run = embexp.load_run(recorded)
    assert run.evaluate() == run.summary["metrics"]["test"]


def test_a_moved_run_is_verified(recorded: Path) -> None:
    found = embexp.verify(recorded)
    assert found.intact
    assert not found.differences, str(found)


def test_runs_on_the_same_values_are_the_same(recorded: Path, bookings: Path, tmp_path: Path) -> None:
    """In other types, in other chunks, and with the spec of a CSV file, whose lists are text."""
    first = embexp.load_run(recorded)
    (recorded.parent / "experiment" / "own.yaml").write_text(of_parquet(EXPERIMENT))
    own = ["experiment=own", f"output.cache={tmp_path / 'cache'}", *QUIET]
    again = embexp.run(own, tmp_path / "run", data=of_other_types(bookings), config_dir=recorded.parent, quiet=True)
    assert again.summary["run_id"] == first.summary["run_id"]
    assert again.summary["metrics"] == first.summary["metrics"]
    spec = spec_of(tmp_path, EXPERIMENT, f"data.path={bookings}")
    table = pyarrow.csv.read_csv(bookings, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True))
    of_text = embexp.run(spec, tmp_path / "text", data=table, quiet=True)
    assert of_text.summary["run_id"] == first.summary["run_id"]


def test_data_by_splits_and_its_resumption(bookings: Path, tmp_path: Path) -> None:
    table = arrow_table(bookings)
    data = {"train": table[:300].to_pydict(), "test": table[300:]}
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "own.yaml").write_text(of_parquet(EXPERIMENT))
    own = ["experiment=own", f"output.cache={tmp_path / 'cache'}", *QUIET]
    result = embexp.run([*own, "train.epochs=1"], tmp_path / "run", data=data, config_dir=tmp_path, quiet=True)
    content = json.loads((result.directory / "spec.json").read_text())
    assert content["data"]["path"]["test"] == "{run}/recorded_data/test.parquet"
    assert result.summary["examples"]["test"] == 100
    moved = result.directory.rename(tmp_path / "moved")
    longer = embexp.resume(moved, ["train.epochs=2"], quiet=True)
    whole = embexp.run(own, tmp_path / "whole", data=data, config_dir=tmp_path, quiet=True)
    assert longer.summary["metrics"] == whole.summary["metrics"]
    assert json.loads((moved / "spec.json").read_text())["data"]["path"] == content["data"]["path"]
    with pytest.raises(UsageError, match=r"used other data than data=, but output\.existing=continue"):
        embexp.run(
            [*own, "output.existing=continue"],
            tmp_path / "whole",
            data={**data, "test": table[200:]},
            config_dir=tmp_path,
        )


def test_data_that_is_not_recorded(bookings: Path, tmp_path: Path) -> None:
    spec = spec_of(tmp_path, EXPERIMENT, f"data.path={bookings}", "output.data=false", "train.epochs=1")
    result = embexp.run(spec, tmp_path / "run", data=arrow_table(bookings), quiet=True)
    assert not (result.directory / "recorded_data").exists()
    run, words = embexp.load_run(result.directory), r"not recorded \(output\.data=false\), so the run can't be resumed"
    assert run.predict(ROW).shape == (1,)
    with pytest.raises(embexp.ConfigError, match=words):
        run.evaluate()
    with pytest.raises(embexp.ConfigError, match=words):
        embexp.resume(result.directory, ["train.epochs=2"], quiet=True)
    with pytest.raises(embexp.RunError, match=words):
        embexp.verify(result.directory)


def test_wrong_data_of_a_run(bookings: Path, tmp_path: Path) -> None:
    spec = spec_of(tmp_path, EXPERIMENT, f"data.path={bookings}")
    with pytest.raises(embexp.ConfigError) as caught:
        embexp.run(spec, tmp_path / "run", data={"hotle": ["a"], "lead": ["x"], "extras": [[]]})
    assert [(fault.path, fault.value) for fault in caught.value.faults] == [
        ("features.hotel", "'hotel'"),
        ("data.label", "'cancelled'"),
    ]
    with pytest.raises(embexp.ConfigError, match=r"the data.*row 2: found inf in column 'lead'"):
        embexp.run(spec, tmp_path / "run", data={"cancelled": ["yes", "no"], "hotel": ["a", "b"]} | {
            "lead": [1, np.inf], "extras": [[], []]
        })  # fmt: skip
    with pytest.raises(UsageError, match=r"takes data= or data\.path=x, not both"):
        embexp.run(["data.path=x"], tmp_path / "run", data=ROW)
    with pytest.raises(UsageError, match="data= by splits needs train"):
        embexp.run(spec, tmp_path / "run", data={"test": ROW})
    with pytest.raises(embexp.ConfigError, match="data=csv and data=parquet"):
        embexp.run(embexp.compose(["train.steps=2"]), tmp_path / "run", data=ROW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["experiment"]
