"""GPUs that are not there, and what would be done with those that are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.errors import RunError
from embexp.runs import run as single
from embexp.specs.strategies import GPU, Mirrored
from embexp.strategies import mirrored
from embexp.strategies import strategy as strategies
from embexp.strategies.strategy import OneDevice
from tests.thoroughness import chosen

MISSING = {
    "none": (1, 0, True, r"strategy=gpu: TensorFlow sees no GPU\. It needs a GPU that CUDA supports, its driver"),
    "too few": (4, 2, True, r"strategy\.devices=4: TensorFlow sees 2 GPUs; set strategy\.devices=2"),
    "one of two": (2, 1, True, r"TensorFlow sees 1 GPU; set strategy\.devices=1"),
    "another TensorFlow": (
        1,
        0,
        False,
        r"built without GPU support; install one that has it \(pip install 'embexp",
    ),
}


def seen(monkeypatch: pytest.MonkeyPatch, count: int, *, cuda: bool = True) -> None:
    devices = [SimpleNamespace(name=f"/physical_device:GPU:{number}") for number in range(count)]
    found = tf.config.list_physical_devices
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: devices if kind == "GPU" else found(kind))
    monkeypatch.setattr(tf.config, "set_soft_device_placement", lambda on: None)  # it would outlast the test
    monkeypatch.setattr(tf.test, "is_built_with_gpu_support", lambda: cuda)


@pytest.mark.parametrize(("wanted", "there", "cuda", "words"), MISSING.values(), ids=MISSING)
def test_what_is_missing(monkeypatch: pytest.MonkeyPatch, wanted: int, there: int, cuda: bool, words: str) -> None:
    seen(monkeypatch, there, cuda=cuda)
    with pytest.raises(RunError, match=words):
        strategies.build(GPU(devices=wanted))


def test_a_run_stops_before_it_looks_at_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen(monkeypatch, 0)
    monkeypatch.setattr(single, "prepare", lambda *_: pytest.fail("data was read"))
    with pytest.raises(RunError, match="TensorFlow sees no GPU"):
        single.run(embexp.compose(["strategy=gpu"]), tmp_path)


def test_one_gpu_has_the_dense_part(monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch, 2)
    strategy = mirrored.build_gpu(GPU(devices=1))
    assert strategy == OneDevice("/GPU:0")
    assert (strategy.devices, strategy.replicas) == (("/GPU:0",), 1)


def test_several_mirror_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda devices, **words: made.append((devices, words)))
    seen(monkeypatch, 3)
    assert mirrored.build_gpu(GPU(devices=2)).devices == ("GPU:0", "GPU:1")
    mirroring = mirrored.build_mirrored(Mirrored(replicas=3))
    assert (mirroring.devices, mirroring.notes) == (("GPU:0", "GPU:1", "GPU:2"), ())
    # Collective operations among GPUs are TensorFlow's to choose.
    assert [words for _, words in made] == [{"cross_device_ops": None}] * 2


def test_the_dense_part_is_on_its_device_and_rows_are_not() -> None:
    strategy = OneDevice("/CPU:1")
    with strategy.scope():
        dense = tf.Variable(1.0)
    with strategy.host():
        rows = tf.Variable(1.0)
    assert dense.device.endswith("CPU:1")
    assert rows.device.endswith("CPU:0")
    seen: list[str] = []

    class Rows:
        def enqueue(self, features: Any, *, training: bool) -> None:
            seen.append(tf.identity(1.0).device)

    @tf.function(autograph=False)
    def step() -> Any:
        strategy.backend(Rows()).enqueue({}, training=True)
        return strategy.run(
            lambda part: seen.append(tf.identity(part.labels).device), SimpleNamespace(dense=0, labels=0, ids={})
        )

    step()
    assert [device[-5:] for device in seen] == ["CPU:0", "CPU:1"]


@pytest.mark.slow
@pytest.mark.parametrize("runtime", chosen(["function", "session", "estimator"], ["function", "session"]))
def test_a_device_of_its_own_changes_no_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runtime: str) -> None:
    """Another logical processor in the place of the GPU."""
    monkeypatch.setattr(mirrored, "build_gpu", lambda spec, traced: OneDevice("/CPU:1"))
    results = []
    for strategy in ("cpu", "gpu"):
        spec = embexp.compose(
            [
                "experiment=clicks",
                "data.examples=2000",
                "train.batch_size=128",
                "train.steps=12",
                f"strategy={strategy}",
                f"runtime={runtime}",
                "output.plots=false",
                "output.baselines=false",
                "output.tensorboard=false",
                f"output.cache={tmp_path / 'cache'}",
            ]
        )
        (tmp_path / strategy).mkdir()
        results.append(single.run(spec, tmp_path / strategy).summary)
    assert [each["strategy"] for each in results] == ["cpu", "gpu"]
    assert results[0]["metrics"] == results[1]["metrics"]
    assert results[0]["tables"] == results[1]["tables"]
    assert np.isfinite(results[1]["metrics"]["test"]["log_loss"])
