from __future__ import annotations

from pathlib import Path

import tensorflow as tf
from embexp.training.tensorboard import TensorBoard


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """Reads event files with TensorFlow's own reader."""
    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(directory.glob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "scalars"
                found.setdefault(value.tag, []).append((event.step, float(tf.make_ndarray(value.tensor))))
    return found


def test_events(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "events")
    board.started(100, 1000)
    board.progressed(3)
    board.logged(10, 0.75, None)
    board.logged(20, 0.5, 4096.0)
    board.evaluated(20, "validation", {"auc": 0.75, "loss": 0.625})
    # Flushed at each event: all is there before the end.
    assert scalars(tmp_path / "events" / "train")["loss"] == [(10, 0.75), (20, 0.5)]
    board.ended("completed")
    assert scalars(tmp_path / "events" / "train")["examples_per_second"] == [(20, 4096.0)]
    assert scalars(tmp_path / "events" / "validation") == {"auc": [(20, 0.75)], "loss": [(20, 0.625)]}


def test_nothing_is_left_by_a_run_without_events(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "events")
    board.started(100, 1000)
    board.ended("interrupted")
    assert list(tmp_path.iterdir()) == []


def test_a_value_beyond_float32_is_infinite(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "events")
    board.evaluated(1, "validation", {"loss": 1e66})
    board.ended("failed")
    assert scalars(tmp_path / "events" / "validation") == {"loss": [(1, float("inf"))]}
