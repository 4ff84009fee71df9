"""`tf.estimator`, made importable; its Estimators with our scaffold."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp import estimator
from embexp.errors import RunError
from embexp.initialization.scaffolding import scaffold

v1 = tf.compat.v1
ROOT = Path(__file__).resolve().parents[1]
MATRIX = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)


def python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)


def test_train_train_again_evaluate_predict_with_a_table_in_no_checkpoint(tmp_path: Path) -> None:
    module = estimator.load()
    filled: list[str] = []

    class Rows:
        def __init__(self, name: str, values: np.ndarray) -> None:
            self.name, self.values, (self.rows, self.dim) = name, values, values.shape

        def read(self, start: int, stop: int) -> np.ndarray:
            filled.append(self.name)
            return self.values[start:stop]

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        word = v1.get_variable("word", MATRIX.shape, use_resource=True)
        kept = v1.get_variable(
            "kept", MATRIX.shape, trainable=False, use_resource=True, collections=[v1.GraphKeys.LOCAL_VARIABLES]
        )
        ready = scaffold({word: Rows("word", MATRIX), kept: Rows("kept", 2 * MATRIX)})
        difference = tf.gather(word, features) - tf.gather(kept.read_value(), features)
        if mode == module.ModeKeys.PREDICT:
            return module.EstimatorSpec(mode, predictions=difference, scaffold=ready)
        loss = tf.reduce_sum(difference**2)
        train = v1.train.GradientDescentOptimizer(0.25).minimize(loss, global_step=v1.train.get_global_step())
        metrics = {"largest": v1.metrics.mean(tf.reduce_max(tf.abs(difference)))}
        return module.EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops=metrics, scaffold=ready)

    def batches() -> Any:
        return tf.data.Dataset.from_tensors(np.arange(10)).repeat()

    config = module.RunConfig(model_dir=str(tmp_path), log_step_count_steps=None, save_summary_steps=None)
    made = module.Estimator(model_fn, config=config)
    # A step halves the distance of the first ten rows from those of the table that is kept.
    expected = np.zeros((10, 6)) - MATRIX[:10]
    for steps in (1, 2):
        made.train(batches, steps=steps)
        expected /= 2**steps
    assert filled == ["kept", "word", "kept"] or filled == ["word", "kept", "kept"]
    found = made.evaluate(batches, steps=1)
    assert found["largest"] == pytest.approx(np.abs(expected).max(), rel=1e-6)
    assert found["global_step"] == 3
    rows = [row for row, _ in zip(made.predict(batches), range(10), strict=False)]
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-7)
    assert filled.count("word") == 1, "a checkpoint was there"
    assert filled.count("kept") == 4, "one for each session"
    assert dict(tf.train.list_variables(str(tmp_path))) == {"word": [50, 6], "global_step": []}
    trained = tf.train.load_variable(str(tmp_path), "word")
    np.testing.assert_array_equal(trained[10:], MATRIX[10:])
    np.testing.assert_allclose(trained[:10], 2 * MATRIX[:10] + expected, rtol=1e-5, atol=1e-6)


def test_it_is_loaded_once_and_nothing_is_left_behind() -> None:
    module = estimator.load()
    assert estimator.load() is module
    assert {"Estimator", "EstimatorSpec", "RunConfig", "ModeKeys"} <= set(dir(module))
    left = [
        name for name in sys.modules if name.endswith((".estimator_training", ".tpu_embedding", ".session_support"))
    ]
    assert not left


def test_importing_it_does_nothing() -> None:
    script = "import sys, embexp.estimator; print([m for m in sys.modules if m.startswith('tensorflow')])"
    assert python(script).stdout.strip() == "[]"


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow_estimator", None)
    estimator._loaded.cache_clear()
    try:
        with pytest.raises(RunError, match=r"tensorflow-estimator is not installed.*pip install 'embexp\[estimator\]'"):
            estimator.load()
    finally:
        estimator._loaded.cache_clear()


def test_another_version(tmp_path: Path) -> None:
    script = """
import sys, types
sys.path.insert(0, {folder!r})
from embexp import estimator
from embexp.errors import RunError
try:
    estimator.load()
except RunError as error:
    print(error)
"""
    (tmp_path / "tensorflow_estimator").mkdir()
    (tmp_path / "tensorflow_estimator" / "__init__.py").write_text("")
    output = python(script.format(folder=str(tmp_path))).stdout
    assert "can't be imported (No module named 'tensorflow_estimator._api')" in output
    assert "is its version 2.15.0?" in output


def test_notes_on_progress_and_on_deprecation_stay_off_the_terminal_and_errors_do_not() -> None:
    estimator.load()
    logger = logging.getLogger("tensorflow")

    def shown(level: int, path: str, message: str) -> bool:
        return bool(logger.filter(logging.LogRecord("tensorflow", level, path, 1, message, (), None)))

    theirs = "/x/tensorflow_estimator/python/estimator/estimator.py"
    deprecation = "/x/tensorflow/python/util/deprecation.py"
    assert not shown(logging.WARNING, theirs, "Using temporary folder as model directory")
    assert not shown(logging.WARNING, deprecation, f"From {theirs}:1: f is deprecated")
    assert not shown(logging.WARNING, deprecation, "From /x/tensorflow/python/training/saver.py:1: f is deprecated")
    assert shown(logging.ERROR, theirs, "Model diverged")
    assert shown(logging.WARNING, deprecation, "From /home/someone/own.py:1: f is deprecated")
    assert shown(logging.WARNING, "/x/tensorflow/python/training/saver.py", "something")
