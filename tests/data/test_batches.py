import gc

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.data.batches import evaluation_batches, training_batches
from embexp.data.columns import Columns
from embexp.data.examples import Examples, ListColumn
from embexp.system.arrays import ArrayWriter, mapped_array
from embexp.system.machine import anonymous_bytes
from tests.thoroughness import examples as tried

COUNT = 37


def examples(count: int = COUNT, *, labelled: bool = True) -> Examples:
    """Two scalar id columns, two of lists (one weighted), a scalar weight, two dense columns."""
    random = np.random.default_rng(0)
    lengths = random.integers(0, 4, count)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    other = np.arange(count + 1, dtype=np.int64)
    return Examples(
        count=count,
        id_columns=("user", "item"),
        ids=random.integers(0, 1_000, (count, 2), np.int32),
        lists={
            "history": ListColumn(random.integers(0, 1_000, splits[-1], np.int32), splits),
            "tags": ListColumn(random.integers(0, 9, count, np.int32), other),
        },
        weights={
            "times": random.random(splits[-1], np.float32),
            "trust": random.random(count, np.float32),
        },
        dense=random.random((count, 2), np.float32),
        labels=random.random(count, np.float32) if labelled else None,
    )


COLUMNS = Columns(
    ids={"history": "item", "item": "item", "tags": "tag", "user": "user"},
    weights={"times": "history", "trust": "user"},
    dense=("age", "price"),
    label="rating",
)


def check(batch, found: Examples, rows: list[int]) -> None:
    """A batch against plain indexing of the columns."""
    assert set(batch.ids) == set(COLUMNS.ids)
    for number, name in enumerate(found.id_columns):
        assert batch.ids[name].dtype in (tf.int32, tf.int64)
        np.testing.assert_array_equal(batch.ids[name], found.ids[rows, number])
    for name, column in found.lists.items():
        parts = [column.values[column.splits[row] : column.splits[row + 1]].tolist() for row in rows]
        assert batch.ids[name].to_list() == parts
    times, splits = found.weights["times"], found.lists["history"].splits
    assert batch.weights["times"].to_list() == [times[splits[row] : splits[row + 1]].tolist() for row in rows]
    np.testing.assert_array_equal(batch.weights["times"].row_splits, batch.ids["history"].row_splits)
    np.testing.assert_array_equal(batch.weights["trust"], found.weights["trust"][rows])
    np.testing.assert_array_equal(batch.dense, found.dense[rows])
    np.testing.assert_array_equal(batch.labels, found.labels[rows])


def training(found: Examples, rows: np.ndarray, **changes):
    named = {"batch_size": 5, "seed": 3, "shuffle": True, "window": 8, "steps": 6, **changes}
    return training_batches(found, rows, COLUMNS, **named)


def rows_of(batch, found: Examples) -> list[int]:
    """The examples of a batch, told by their labels, which all differ."""
    places = {label: row for row, label in enumerate(found.labels.tolist())}
    return [places[label] for label in batch.labels.numpy().tolist()]


@pytest.mark.parametrize("batch_size", [1, 5, 37, 64])
def test_evaluation_reads_the_rows_in_their_order(batch_size):
    found, rows = examples(), np.array([0, 1, 5, 6, 7, 20, 30, 36])
    batches = list(evaluation_batches(found, rows, COLUMNS, batch_size=batch_size))
    assert [len(batch.labels) for batch in batches] == [
        min(batch_size, len(rows) - start) for start in range(0, len(rows), batch_size)
    ]
    for start, batch in zip(range(0, len(rows), batch_size), batches, strict=True):
        check(batch, found, rows[start : start + batch_size].tolist())


def test_evaluating_no_rows_gives_no_batches():
    assert list(evaluation_batches(examples(), np.empty(0, np.int64), COLUMNS, batch_size=4)) == []


def test_training_batches_hold_what_the_columns_hold():
    found, rows = examples(), np.arange(3, 33)
    batches = list(training(found, rows))
    assert len(batches) == 6
    for batch in batches:
        check(batch, found, rows_of(batch, found))
    assert sorted(row for batch in batches for row in rows_of(batch, found)) == rows.tolist()


def test_unshuffled_batches_run_on_over_the_end_of_an_epoch():
    found, rows = examples(), np.array([4, 9, 11])
    batches = list(training(found, rows, shuffle=False, batch_size=4, steps=2))
    assert [rows_of(batch, found) for batch in batches] == [[4, 9, 11, 4], [9, 11, 4, 9]]


@tried(4)
@given(st.integers(1, 9), st.integers(0, 12), st.booleans())
def test_starting_at_a_step_gives_the_tail(batch_size, start_step, shuffle):
    found, rows = examples(), np.arange(0, 36, 2)
    whole = [rows_of(batch, found) for batch in training(found, rows, batch_size=batch_size, steps=12, shuffle=shuffle)]
    tail = training(found, rows, batch_size=batch_size, steps=12, shuffle=shuffle, start_step=start_step)
    assert tail.cardinality() == 12 - start_step
    assert [rows_of(batch, found) for batch in tail] == whole[start_step:]


def test_batches_have_known_shapes():
    spec = training(examples(), np.arange(30)).element_spec
    assert spec.ids["user"].shape == [5]
    assert spec.ids["history"].shape == [5, None]
    assert spec.weights["times"].shape == [5, None]
    assert spec.dense.shape == [5, 2]
    assert spec.labels == tf.TensorSpec([5], tf.float32)


def test_arrays_that_lie_anywhere_in_memory_are_read():
    """TensorFlow ends the process over a shared tensor that is not aligned to 64 bytes."""
    buffer = np.zeros(40, np.int64)
    for shift in range(1, 9):
        rows = buffer[shift : shift + 30]
        rows[:] = np.arange(30)
        [batch] = evaluation_batches(examples(), rows, COLUMNS, batch_size=30)
        check(batch, examples(), list(range(30)))


def test_labels_that_are_not_there_are_nan():
    [batch] = evaluation_batches(examples(labelled=False), np.arange(4), COLUMNS, batch_size=4)
    assert np.isnan(batch.labels).all()
    assert batch.labels.shape == [4]


def test_empty_lists_and_no_dense_columns():
    found = examples(4)
    found = Examples(
        count=4,
        id_columns=(),
        ids=np.empty((4, 0), np.int32),
        lists={"history": ListColumn(np.empty(0, np.int32), np.zeros(5, np.int64))},
        weights={},
        dense=np.empty((4, 0), np.float32),
        labels=found.labels,
    )
    [batch] = evaluation_batches(found, np.arange(4), Columns(ids={"history": "item"}, label="x"), batch_size=4)
    assert batch.ids["history"].to_list() == [[], [], [], []]
    assert batch.dense.shape == [4, 0]


@pytest.mark.parametrize("kind", ["training", "evaluation"])
def test_reading_a_mapped_file_takes_no_memory_of_its_size(tmp_path, kind):
    """tf.data copies whatever tensors its functions capture; the columns must not be among them."""
    count = 4_000_000
    with ArrayWriter(tmp_path / "ids.npy", np.int32, 8) as writer:
        for _ in range(8):
            writer.append(np.ones((count // 8, 8), np.int32))
    found = Examples(
        count=count,
        id_columns=tuple("abcdefgh"),
        ids=mapped_array(tmp_path / "ids.npy"),
        lists={},
        weights={},
        dense=np.zeros((count, 0), np.float32),
        labels=None,
    )
    columns = Columns(ids={"a": "a"})
    rows = np.arange(0, count, 1_000)

    def read() -> None:
        if kind == "training":
            named = {"batch_size": 512, "seed": 0, "shuffle": True, "window": 1_000, "steps": 20}
            batches = training_batches(found, rows, columns, **named)
        else:
            batches = evaluation_batches(found, rows, columns, batch_size=512)
        for batch in batches:
            assert (batch.ids["a"].numpy() == 1).all()

    gc.collect()
    before = anonymous_bytes()
    read()
    assert anonymous_bytes() - before < found.ids.nbytes / 2  # 64 of 128 MB


@pytest.mark.parametrize("start_step", [0, 2])
def test_shares_of_a_batch_are_its_parts(start_step: int) -> None:
    found = examples(40)
    rows, settings = np.arange(3, 33), {"start_step": start_step}
    whole = list(training(found, rows, **settings))
    shares = [list(training(found, rows, share=share, **settings)) for share in (slice(0, 2), slice(2, 4), slice(4, 5))]
    assert len(whole) == 6 - start_step
    for batch, *parts in zip(whole, *shares, strict=True):
        expected = rows_of(batch, found)
        assert [row for part in parts for row in rows_of(part, found)] == expected
        for part in parts:
            check(part, found, rows_of(part, found))
