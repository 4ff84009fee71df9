"""What is computed with a finished run is computed with the kernels of its record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.cli import commands
from embexp.records.folder import RunFolder
from embexp.records.manifest import Kernels
from embexp.strategies import pieces
from embexp.system import environment, native

SMALL = [
    "experiment=clicks",
    "data.examples=600",
    "train.epochs=null",
    "train.steps=2",
    "output.plots=false",
    "output.tensorboard=false",
    "output.baselines=false",
]
LEFT, RIGHT = (np.random.default_rng(0).normal(size=(2048, each)).astype(np.float32) for each in (415, 256))


def bits() -> bytes:
    """Of results whose last bits are decided by the pieces."""
    product = tf.matmul(LEFT, RIGHT, transpose_a=True)
    return bytes(
        product.numpy().tobytes() + tf.raw_ops.BiasAddGrad(out_backprop=np.tile(LEFT, (40, 1))).numpy().tobytes()
    )


@pytest.mark.skipif(native.library("pieces") is None, reason="the library is not built")
def test_a_loaded_run_takes_the_pieces_of_its_record(tmp_path: Path) -> None:
    embexp.run(embexp.compose([*SMALL, "strategy.pieces=64"]), tmp_path / "run", quiet=True)
    assert Kernels.of_run(RunFolder(tmp_path / "run")).pieces == 64
    trained = bits()
    pieces.cut(1)
    other = bits()
    assert other != trained
    run = embexp.load_run(tmp_path / "run")
    pieces.cut(1)
    run.evaluate()
    assert bits() == trained
    pieces.cut(1)  # as another run of this process does
    run.evaluate(split="validation")
    assert bits() == trained


@pytest.mark.parametrize(
    "command", [["evaluate"], ["predict", "--data", "x.csv"], ["export", "out", "--as", "savedmodel"]]
)
def test_a_command_takes_portable_kernels(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, chosen = RunFolder(tmp_path / "run"), []
    folder.path.mkdir()
    folder.write_spec(embexp.compose([*SMALL, "strategy.reproducible=processors"]))
    monkeypatch.setattr(environment, "choose_kernels", lambda *, portable: chosen.append(portable))
    name, *rest = command
    assert commands.main([name, str(folder.path), *rest]) != 0  # it has no summary
    assert chosen == [True]


def test_what_a_manifest_does_not_say_is_not_known() -> None:
    assert Kernels.of_manifest({}, portable=False) == Kernels()
    for wrong in (None, [], {"onednn": "on", "pieces": True}, {"pieces": 1 << 30}):
        assert Kernels.of_manifest({"kernels": wrong}, portable=True) == Kernels(portable=True)
    recorded = json.loads('{"kernels": {"onednn": false, "pieces": 4}}')
    assert Kernels.of_manifest(recorded, portable=False) == Kernels(onednn=False, pieces=4)
