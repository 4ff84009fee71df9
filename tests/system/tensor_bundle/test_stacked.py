"""Tables in stacks, against the code of TensorFlow that deals them out to SparseCores; and damaged records of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as draw
from tensorflow.core.tpu.kernels import sparse_core_layout_pb2
from tensorflow.python.tpu import tpu_embedding_v3_checkpoint_adapter as adapter
from tensorflow.python.trackable.base import ShardInfo

from embexp.checkpoints.contents import open_checkpoint
from embexp.errors import DataError
from embexp.system.tensor_bundle import increments, stacked
from embexp.system.tensor_bundle.index import escaped
from embexp.system.tensor_bundle.stacked import StackedMatrix
from embexp.system.tensor_bundle.writer import KEY_END, described, description
from tests.checkpoints.made import saved
from tests.thoroughness import examples

BYTES = b"\x0a\x0e\x0a\x01t\x12\x01t\x30\x02\x30\x02\x1a\x02no"
"""A table "t" in a stack "t", of 2 × 2, on SparseCores whose number is no number."""
NAMES = ["item", "user", "a.b", "a/b", "item/accumulators"]


def stack_of(name: str, tables: dict[str, tuple[int, int, int]], cores: int) -> Any:
    """The layouts of tables in one stack, each of rows, dim and rotation, padded as TensorFlow does."""
    layouts, offset = sparse_core_layout_pb2.SparseCoreTableLayouts(), 0
    dim = -(-max(dim for _, dim, _ in tables.values()) // 8) * 8
    for table, (rows, own, rotation) in tables.items():
        padded = -(-rows // (8 * cores)) * 8 * cores
        layouts.tables.add(
            table_name=table,
            stacked_table_name=name,
            num_sparse_cores=cores,
            num_partitions=1,
            unsharded_shape=[rows, own],
            unsharded_padded_shape=[padded, dim],
            sparse_core_shard_row_offset=offset,
            sparse_core_shard_rotation=rotation,
        )
        offset += padded // cores
    for each in layouts.tables:
        each.total_rows_per_sparse_core_shard = offset
    return layouts


def dealt(values: list[np.ndarray], layouts: Any) -> np.ndarray:
    """A stack of tables, by TensorFlow."""
    first = layouts.tables[0]
    shape = [first.total_rows_per_sparse_core_shard * first.num_sparse_cores, first.unsharded_padded_shape[1]]
    place = adapter._shard_info_str(shape, ShardInfo(offset=[0, 0], shape=shape))
    return np.asarray(adapter._shard_from_cpu_to_sc(list(map(tf.constant, values)), place, list(layouts.tables)))


def key_of(edge: str) -> str:
    return f"model/tables/{escaped(edge)}{KEY_END}"


def record(layouts: Any) -> dict[str, bytes]:
    return {key_of(stacked.RECORD): layouts.SerializeToString()}


def small() -> tuple[dict[str, Any], np.ndarray]:
    """A checkpoint of one stack with one table, by key, and its rows."""
    rows = np.arange(30, dtype=np.float32).reshape(10, 3)
    layouts = stack_of("all", {"item": (10, 3, 1)}, 2)
    return {key_of("all"): dealt([rows], layouts), **record(layouts)}, rows


def read(prefix: Path) -> dict[str, Any]:
    return increments.tensors(increments.chain(prefix))


@examples(25)
@given(data=draw.data())
def test_tables_are_read_from_stacks(data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("stacks")
    names, cores = data.draw(draw.permutations(NAMES)), data.draw(draw.sampled_from([1, 2, 4, 8]))
    of_stacks = [names[:3], names[3 : data.draw(draw.integers(3, 5))]]
    expected: dict[str, np.ndarray] = {}
    values: dict[str, Any] = {}
    layouts = sparse_core_layout_pb2.SparseCoreTableLayouts()
    for stack in filter(None, of_stacks):
        name = stack[0] if len(stack) == 1 else "_".join(stack)
        shapes = {
            table: (
                data.draw(draw.integers(1, 70)),
                data.draw(draw.integers(1, 9)),
                data.draw(draw.integers(0, cores - 1)),
            )
            for table in stack
        }
        of_stack = stack_of(name, shapes, cores)
        layouts.tables.extend(of_stack.tables)
        for slot in ("", "/momenta"):
            rows = [np.random.default_rng(0).normal(size=shape[:2]).astype(np.float32) for shape in shapes.values()]
            values[key_of(name + slot)] = dealt(rows, of_stack)
            expected |= {key_of(table + slot): each for table, each in zip(stack, rows, strict=True)}
    found = read(saved(folder / "checkpoint", {**values, **record(layouts), "step": np.int64(3)}))
    assert found.keys() == {*expected, "step"}
    for key, rows in expected.items():
        assert isinstance(found[key], StackedMatrix)
        np.testing.assert_array_equal(found[key].value(), rows)
        start, stop = sorted(data.draw(draw.tuples(*[draw.integers(0, len(rows))] * 2)))
        np.testing.assert_array_equal(found[key].read(start, stop), rows[start:stop])
        np.testing.assert_array_equal(np.concatenate([*found[key].blocks(data.draw(draw.integers(1, 80)))]), rows)
        elsewhere = described(description(found[key]))
        np.testing.assert_array_equal(elsewhere.value(), rows)


def test_a_stack_that_is_not_there_is_left_alone(tmp_path: Path) -> None:
    values, _ = small()
    del values[key_of("all")]
    assert read(saved(tmp_path / "checkpoint", values)).keys() == values.keys()


@pytest.mark.parametrize(
    "change",
    [
        {"total_rows_per_sparse_core_shard": 9},
        {"num_sparse_cores": 0},
        {"num_sparse_cores": 1 << 30},
        {"unsharded_shape": [10, 9]},
        {"unsharded_shape": [1000, 3]},
        {"unsharded_shape": [0, 3]},
        {"unsharded_shape": [10]},
        {"unsharded_shape": [-1, 3]},
        {"sparse_core_shard_row_offset": 4},
        {"sparse_core_shard_row_offset": -4},
        {"table_name": ""},
    ],
    ids=str,
)
def test_a_record_that_does_not_fit_is_told(tmp_path: Path, change: dict[str, Any]) -> None:
    values, _ = small()
    layouts = sparse_core_layout_pb2.SparseCoreTableLayouts.FromString(values[key_of(stacked.RECORD)])
    for field, value in change.items():
        layouts.tables[0].ClearField(field)
        if isinstance(value, list):
            getattr(layouts.tables[0], field).extend(value)
        else:
            setattr(layouts.tables[0], field, value)
    with pytest.raises(DataError, match=stacked.RECORD):
        read(saved(tmp_path / "checkpoint", {**values, **record(layouts)}))


@pytest.mark.parametrize("content", [b"\xff", b"\x0a\x7f", b"\x08\x01\x0a", BYTES, 3, [b"", b""]], ids=str)
def test_a_damaged_record_is_told(tmp_path: Path, content: Any) -> None:
    with pytest.raises(DataError, match=stacked.RECORD):
        read(saved(tmp_path / "checkpoint", {**small()[0], key_of(stacked.RECORD): content}))


def test_a_table_twice_is_told(tmp_path: Path) -> None:
    values, _ = small()
    layouts = sparse_core_layout_pb2.SparseCoreTableLayouts.FromString(values[key_of(stacked.RECORD)])
    layouts.tables.extend([layouts.tables[0]])
    with pytest.raises(DataError, match=stacked.RECORD):
        read(saved(tmp_path / "checkpoint", {**values, **record(layouts)}))


def test_a_table_in_a_stack_and_beside_it_is_told(tmp_path: Path) -> None:
    values, rows = small()
    with pytest.raises(DataError, match=r"model/tables/item/.* both in a stack and beside it"):
        read(saved(tmp_path / "checkpoint", {**values, key_of("item"): rows}))


def test_a_damaged_stack_is_told(tmp_path: Path) -> None:
    values, rows = small()
    prefix = saved(tmp_path / "checkpoint", values)
    data = tmp_path / "checkpoint.data-00000-of-00001"
    content = data.read_bytes()
    at = content.index(np.float32(17).tobytes())
    data.write_bytes(content[:at] + np.float32(18).tobytes() + content[at + 4 :])
    damaged = read(prefix)[key_of("item")]
    assert (damaged.value() != rows).sum() == 1
    for use in (damaged.verify, lambda: next(damaged.blocks(2))):
        with pytest.raises(DataError, match="the file is damaged"):
            use()


def test_stacks_are_listed_where_their_record_is_cut_off(tmp_path: Path) -> None:
    values, _ = small()
    prefix, data = saved(tmp_path / "checkpoint", values), tmp_path / "checkpoint.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    found = open_checkpoint(prefix)
    assert found.entries.keys() == values.keys()
    assert any("cut short" in fault for fault in found.faults)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 11), (5, 4)])
def test_rows_that_are_not_there_are_told(tmp_path: Path, start: int, stop: int) -> None:
    values, _ = small()
    with pytest.raises(DataError, match=rf"there are no rows {start} to {stop} of item, it has 10"):
        read(saved(tmp_path / "checkpoint", values))[key_of("item")].read(start, stop)
