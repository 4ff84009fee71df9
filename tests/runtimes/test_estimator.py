from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from embexp import estimator
from embexp.checkpoints import store, streaming
from embexp.runs.runtimes.estimator import EstimatorRuntime, Program


class Pair(NamedTuple):
    ids: Any
    labels: Any


BATCHES = [Pair(np.array([i % 3, 1]), np.array([1.0, i], np.float32)) for i in range(6)]


def dataset(batches: list[Pair]) -> tf.data.Dataset:
    ids, labels = (np.stack(parts) for parts in zip(*batches, strict=True))
    return tf.data.Dataset.from_tensor_slices(Pair(ids, labels))


class Experiment:
    """w[ids] towards labels by SGD: a step whose loss tells which batch it saw and what came before."""

    def __init__(self, directory: Path) -> None:
        self.filled = 0
        self.ended = 0
        spec = dataset(BATCHES).element_spec
        self.runtime = EstimatorRuntime(
            estimator.load(), directory, self.build, training_spec=spec, prediction_spec=spec
        )

    def build(self) -> Program:
        counter = tf.compat.v1.train.get_or_create_global_step()
        w = tf.Variable(tf.zeros([3]), name="w")

        def train(batch: Pair) -> Any:
            error = tf.gather(w, batch.ids) - batch.labels
            w.scatter_sub(tf.IndexedSlices(0.1 * error, batch.ids))
            counter.assign_add(1)
            return tf.reduce_mean(error**2)

        def fill(_: Any) -> None:
            self.filled += 1

        def end(_: Any) -> None:
            self.ended += 1

        saver = streaming.saver_of(tf.train.Checkpoint(w=w, step=counter))
        return Program(
            train=train,
            predict=lambda batch: tf.gather(w, batch.ids),
            counter=counter,
            scaffold=tf.compat.v1.train.Scaffold(saver=saver.complete_saver()),
            saver=saver,
            every_session=[fill],
            at_end=end,
        )


def by_hand(batches: list[Pair]) -> tuple[list[float], np.ndarray]:
    w, losses = np.zeros(3), []
    for batch in batches:
        error = w[batch.ids] - batch.labels
        np.subtract.at(w, batch.ids, 0.1 * error)
        losses.append(float(np.mean(error**2)))
    return losses, w


def test_trains_evaluates_and_trains_again(tmp_path: Path) -> None:
    run = Experiment(tmp_path)
    steps = iter(dataset(BATCHES))
    losses, final = by_hand(BATCHES)
    assert run.runtime.train(steps, 1) == pytest.approx(losses[0])
    assert run.runtime.train(steps, 2) == pytest.approx(sum(losses[1:3]))
    _, so_far = by_hand(BATCHES[:3])
    predicted = list(run.runtime.predict(dataset(BATCHES[:2])))
    np.testing.assert_allclose([logits for _, logits in predicted], [so_far[b.ids] for b in BATCHES[:2]], rtol=1e-6)
    np.testing.assert_array_equal([labels for labels, _ in predicted], [b.labels for b in BATCHES[:2]])
    assert run.runtime.train(steps, 3) == pytest.approx(sum(losses[3:]))
    stored = tf.train.load_checkpoint(run.runtime.last_checkpoint())
    np.testing.assert_allclose(stored.get_tensor("w/.ATTRIBUTES/VARIABLE_VALUE"), final, rtol=1e-6)
    assert stored.get_tensor("step/.ATTRIBUTES/VARIABLE_VALUE") == 6
    assert (run.filled, run.ended) == (3, 2)  # two trainings and a prediction between them


def test_restores_an_earlier_checkpoint(tmp_path: Path) -> None:
    run = Experiment(tmp_path / "model")
    steps = iter(dataset(BATCHES))
    run.runtime.train(steps, 2)
    _, early = by_hand(BATCHES[:2])
    prefix = run.runtime.last_checkpoint()
    files = Path(prefix).parent.glob(f"{Path(prefix).name}.*")
    kept = {path.name.removeprefix(Path(prefix).name): path.read_bytes() for path in files}
    run.runtime.train(steps, 3)

    def copy(target: str) -> None:
        for ending, content in kept.items():
            Path(f"{target}{ending}").write_bytes(content)

    run.runtime.restore(copy)
    ((_, logits),) = run.runtime.predict(dataset(BATCHES[:1]))
    np.testing.assert_allclose(logits, early[BATCHES[0].ids], rtol=1e-6)


def test_keeps_the_newest_checkpoint_and_replaces_one_of_the_same_step(tmp_path: Path) -> None:
    run = Experiment(tmp_path / "model")
    steps = iter(dataset(BATCHES))
    for expected in (2, 4):
        run.runtime.train(steps, 2)
        assert Path(run.runtime.last_checkpoint()).name == f"model.ckpt-{expected}"
        assert {path.suffix for path in tmp_path.glob("model/model.ckpt-*")} >= {".index"}
        assert all(f"-{expected}." in path.name for path in tmp_path.glob("model/model.ckpt-*"))
    run.runtime.restore(partial(store.copy, run.runtime.last_checkpoint()))
    (tmp_path / "model" / "model.ckpt-6.data-00001-of-00002").write_bytes(b"of a training that was thrown away")
    run.runtime.train(steps, 2)
    checkpoint = tf.train.load_checkpoint(run.runtime.last_checkpoint())
    np.testing.assert_allclose(checkpoint.get_tensor("w/.ATTRIBUTES/VARIABLE_VALUE"), by_hand(BATCHES)[1], rtol=1e-6)


def test_what_goes_wrong_inside_is_raised_outside(tmp_path: Path) -> None:
    run = Experiment(tmp_path)
    with pytest.raises(tf.errors.InvalidArgumentError, match="indices"):
        run.runtime.train(iter(dataset([Pair(np.array([3, 1]), np.zeros(2, np.float32))])), 1)


def test_the_checkpoint_is_that_of_eager_objects(tmp_path: Path) -> None:
    run = Experiment(tmp_path)
    run.runtime.train(iter(dataset(BATCHES)), 6)
    w, counter = tf.Variable(tf.ones([3])), tf.Variable(0, dtype=tf.int64)
    tf.train.Checkpoint(w=w, step=counter).read(run.runtime.last_checkpoint()).assert_consumed()
    np.testing.assert_allclose(w, by_hand(BATCHES)[1], rtol=1e-6)
    assert int(counter) == 6
