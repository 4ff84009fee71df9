"""Partitioned variables of TensorFlow 1, compared with what `tf.compat.v1.train.Saver` writes and restores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp import checkpoints
from embexp.errors import CheckpointError
from embexp.system.tensor_bundle.index import read_encoded, read_index, slice_key
from tests.checkpoints import made

v1 = tf.compat.v1
MATRIX = np.arange(70, dtype=np.float32).reshape(10, 7)
PARTS = [(3, 4), (4, 3), (3, 1), (1, 4)]


@contextmanager
def program(
    parts: int, axis: int = 0, *, resource: bool = True, value: np.ndarray = MATRIX
) -> Iterator[tuple[Any, Any]]:
    """A graph with a table in so many parts, whole if that is 1, and another variable; and a session of it."""
    with tf.Graph().as_default(), v1.Session() as session:
        partitioner = v1.fixed_size_partitioner(parts, axis) if parts > 1 else None
        table = v1.get_variable(
            "net/table",
            value.shape,
            initializer=made.initializer(value),
            partitioner=partitioner,
            use_resource=resource,
        )
        v1.get_variable("net/bias", initializer=np.ones(3, np.float32) * parts, use_resource=resource)
        session.run(v1.global_variables_initializer())
        yield table, session


def value_of(session: Any, table: Any) -> np.ndarray:
    return np.asarray(session.run(tf.convert_to_tensor(table)))


@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("before", "after"), PARTS)
def test_other_parts_there_and_back(tmp_path: Path, before: int, after: int, axis: int, resource: bool) -> None:
    with program(before, axis, resource=resource) as (_, session):
        theirs = v1.train.Saver().save(session, str(tmp_path / "theirs"), write_meta_graph=False)
        ours = str(checkpoints.save(tmp_path / "ours", v1.global_variables(), kind="name"))
    with program(after, axis, resource=not resource, value=MATRIX * 0) as (table, session):
        saver = v1.train.Saver()
        everything, only = (
            checkpoints.restore(theirs, what)
            for what in (v1.global_variables(), {"net/table": table, "net/bias": v1.global_variables()[-1]})
        )
        for restore in (
            lambda: saver.restore(session, ours),
            lambda: everything.run_restore_ops(session).assert_consumed(),
            lambda: only.initialize_or_restore(session).assert_consumed(),
        ):
            session.run(v1.global_variables_initializer())
            assert not np.any(value_of(session, table))
            restore()
            np.testing.assert_array_equal(value_of(session, table), MATRIX)
            assert session.run(v1.global_variables()[-1]).tolist() == [before] * 3
    np.testing.assert_array_equal(tf.train.load_variable(ours, "net/table"), MATRIX)
    np.testing.assert_array_equal(checkpoints.read_rows(ours, "net/table", 2, 9), MATRIX[2:9])


@pytest.mark.parametrize("axis", [0, 1])
def test_the_index_is_that_of_a_saver(tmp_path: Path, axis: int) -> None:
    with program(3, axis) as (_, session):
        theirs = Path(v1.train.Saver().save(session, str(tmp_path / "theirs"), write_meta_graph=False))
        ours = checkpoints.save(tmp_path / "ours", v1.global_variables(), kind="name")
    entries = [read_encoded(each.with_name(f"{each.name}.index"))[0] for each in (theirs, ours)]
    assert entries[0].keys() == entries[1].keys()
    assert entries[0][b"net/table"] == entries[1][b"net/table"]
    pieces = [read_index(each.with_name(f"{each.name}.index"))["net/table"].pieces for each in (theirs, ours)]
    assert [(each.start, each.shape, each.checksum) for each in pieces[0]] == [
        (each.start, each.shape, each.checksum) for each in pieces[1]
    ]


@pytest.mark.parametrize("start", [0, 63, 64, 8191, 8192, 150_000])
def test_keys_of_slices(tmp_path: Path, start: int) -> None:
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "c"),
        tensor_names=["t"],
        shape_and_slices=[f"200000 2 {start},100:0,2"],
        tensors=[tf.ones([100, 2])],
    )
    assert slice_key(b"t", [(start, 100), (0, 2)]) in read_encoded(tmp_path / "c.index")[0]


def test_the_list_of_the_parts(tmp_path: Path) -> None:
    """As `list(table)`, as what `get_variable` returned, and each part alone."""
    with program(3) as (table, session):
        paths = [
            checkpoints.save(tmp_path / name, what, kind="name")
            for name, what in {"list": list(table), "table": table, "mapping": {"net/table": list(table)}}.items()
        ]
        assert all(dict(tf.train.list_variables(str(each))) == {"net/table": [10, 7]} for each in paths)
        with pytest.raises(CheckpointError, match=r"the 2 parts of net/table have 49 of its 70 values; pass all parts"):
            checkpoints.save(tmp_path / "some", list(table)[:2], kind="name")
        renamed = checkpoints.save(tmp_path / "other", {"other": table}, kind="name")
    with program(4, value=MATRIX * 0) as (table, session):
        account = checkpoints.restore(paths[0], list(table)[1:3])
        assert [str(each) for each in account.restored] == [
            f"net.Stable.Spart_{number} (net/table) float32 [10, 7]" for number in (1, 2)
        ]
        account.run_restore_ops(session).assert_consumed()
        np.testing.assert_array_equal(value_of(session, table)[3:8], MATRIX[3:8])
        assert not np.any(value_of(session, table)[[0, 1, 2, 8, 9]])
        for new in ("net/table", table):
            session.run(v1.global_variables_initializer())
            account = checkpoints.restore(renamed, list(table), rename={"other": new})
            account.run_restore_ops(session).assert_consumed()
            np.testing.assert_array_equal(value_of(session, table), MATRIX)
    with program(3, value=MATRIX[:9]) as (table, session):
        account = checkpoints.restore(paths[0], table)
        assert len(account.mismatched) == 3
        assert str(account.mismatched[0]).endswith("(net/table) float32 [9, 7], in the checkpoint float32 [10, 7]")
        account.initialize_or_restore(session)
        np.testing.assert_array_equal(value_of(session, table), MATRIX[:9])


def test_parts_and_slots_of_an_optimizer(tmp_path: Path) -> None:
    """A program of TensorFlow 1 that goes on with other parts, of the table and of Adam's slots."""

    def step(table: Any) -> Any:
        looked_up = v1.nn.embedding_lookup(table, tf.constant([1, 4, 9]), partition_strategy="div")
        return v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(looked_up**2))

    with program(3) as (table, session):
        train = step(table)
        session.run(v1.global_variables_initializer())
        session.run(train)
        path = checkpoints.save(tmp_path / "c", v1.global_variables(), kind="name")
        session.run(train)
        wanted = value_of(session, table)
    for saver in (True, False):
        with program(4, value=MATRIX * 0) as (table, session):
            train = step(table)
            session.run(v1.global_variables_initializer())
            if saver:
                v1.train.Saver().restore(session, str(path))
            else:
                checkpoints.restore(path, v1.global_variables()).run_restore_ops(session).assert_consumed()
            session.run(train)
            np.testing.assert_array_equal(value_of(session, table), wanted)


def test_eagerly_and_as_objects(tmp_path: Path) -> None:
    def parts(number: int, value: np.ndarray) -> Any:
        with v1.variable_scope("eager", reuse=v1.AUTO_REUSE):
            return v1.get_variable(
                f"table_{number}",
                value.shape,
                initializer=made.initializer(value),
                partitioner=v1.fixed_size_partitioner(number),
            )

    three, four = parts(3, MATRIX), parts(4, MATRIX * 0)
    path = checkpoints.save(tmp_path / "names", {"t": three}, kind="name")
    checkpoints.restore(path, {"t": four}).assert_consumed()
    np.testing.assert_array_equal(tf.convert_to_tensor(four), MATRIX)
    path = checkpoints.save(tmp_path / "objects", {"t": three})
    for each in three:
        each.assign(each * 0)
    checkpoints.restore(path, {"t": three}).assert_consumed()
    np.testing.assert_array_equal(tf.convert_to_tensor(three), MATRIX)
    with pytest.raises(
        CheckpointError, match=r"1 missing from the checkpoint:\n    t/3(.|\n)*2 with a different shape or type"
    ):
        checkpoints.restore(path, {"t": four}).assert_consumed()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("after", [1, 3, 4])
def test_parts_that_a_saver_stored_as_tensors_of_their_own(tmp_path: Path, after: int, axis: int) -> None:
    """A `Saver` does so for a mapping of parts by name, and so does `save`; they are the slices of one variable."""
    with program(3, axis) as (table, session):
        parts = {part.op.name: part for part in table}
        theirs = v1.train.Saver(parts).save(session, str(tmp_path / "theirs"), write_meta_graph=False)
        ours = checkpoints.save(tmp_path / "ours", parts, kind="name")
    shapes = dict(tf.train.list_variables(theirs))
    assert sorted(shapes) == [f"net/table/part_{number}" for number in range(3)]
    assert dict(tf.train.list_variables(str(ours))) == shapes
    for path in (theirs, str(ours)):
        with program(after, axis, value=MATRIX * 0) as (table, session):
            account = checkpoints.restore(path, list(table) if after > 1 else [table]).run_restore_ops(session)
            account.assert_consumed()
            assert {(each.name, each.shape) for each in account.restored} == {("net/table", (10, 7))}
            np.testing.assert_array_equal(value_of(session, table), MATRIX)
    with program(3, axis, value=MATRIX * 0) as (table, session):
        v1.train.Saver({part.op.name: part for part in table}).restore(session, str(ours))
        np.testing.assert_array_equal(value_of(session, table), MATRIX)
        session.run(v1.global_variables_initializer())
        account = checkpoints.restore(theirs, {part.op.name: part for part in table}).run_restore_ops(session)
        account.assert_consumed()
        np.testing.assert_array_equal(value_of(session, table), MATRIX)


def test_parts_in_an_account_have_their_own_names_where_they_are_variables_of_their_own(tmp_path: Path) -> None:
    with program(3) as (table, _):
        path = checkpoints.save(tmp_path / "c", {"table": table})
    with program(4, value=MATRIX * 0) as (table, _):
        account = checkpoints.restore(path, {"table": table})
        assert [str(each) for each in account.missing] == ["table/3 (net/table/part_3) float32 [2, 7]"]
        assert (
            str(account.mismatched[0]) == "table/0 (net/table/part_0) float32 [3, 7], in the checkpoint float32 [4, 7]"
        )
    slices = tf.train.Checkpoint(table=tf.Variable(MATRIX)).write(str(tmp_path / "whole"))
    with program(3) as (table, _):
        account = checkpoints.restore(slices, {"table": table})
        assert (len(account.restored), len(account.missing), len(account.extra)) == (0, 3, 1)  # a list has no value
