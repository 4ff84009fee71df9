"""Runs with fused operations have the bits of runs without."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.system import native
from tests import planted_triples

pytestmark = pytest.mark.skipif(native.library("rows") is None, reason="nothing was built: no C++ compiler")


CLICKS = ["data.examples=2000", "data.users=100", "data.items=50", "train.steps=6", "train.epochs=null"]
GRAPH = [
    "experiment=knowledge_graph",
    "data.negatives=15",
    "tables.entity.dim=16",
    "train.batch_size=32",
    "train.steps=6",
]
PARTS = ("embedding/", "model/", "optimizer/")


def trained(words: list[str], folder: Path) -> dict[str, Any]:
    """Variables after a run; `fused_operations` of its manifest are those that there are, of its summary the used."""
    output = [
        "output.plots=false",
        "output.baselines=false",
        "output.tensorboard=false",
        f"output.cache={folder.parent}/cache",
    ]
    summary = embexp.run(embexp.compose([*words, *output]), folder).summary
    recorded = json.loads((folder / "manifest.json").read_text())["tensorflow"]["fused_operations"]
    assert recorded == [name for name in native.names() if native.library(name) is not None]
    used, missing = (summary["fused_operations"][key] for key in ("used", "missing"))
    assert {*used} & {"rows", "moves"} == {*recorded} & {"rows", "moves"}
    assert bool(missing) is not bool(recorded)
    reader = tf.train.load_checkpoint(str(folder / "checkpoints" / "final" / "checkpoint"))
    return {name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}


def compared(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fused = trained(words, tmp_path / "fused")
    monkeypatch.setattr(native, "library", lambda name: None)
    stock = trained(words, tmp_path / "stock")
    assert fused.keys() == stock.keys()
    different = [name for name in fused if fused[name].tobytes() != stock[name].tobytes() and name.startswith(PARTS)]
    assert different == []


@pytest.mark.parametrize(
    "words",
    [
        ["model=dlrm", "optimizer=adagrad"],
        ["model=dlrm_concat", "optimizer=adam"],
        ["model=mlp", "optimizer=adam", "schedule@optimizer.schedule=cosine"],
        ["model=mlp", "optimizer=sgd", "tables.user.dim=5"],
    ],
    ids=lambda words: ", ".join(words),
)
def test_runs_have_the_same_bits(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared([*words, *CLICKS], tmp_path, monkeypatch)


FROZEN = ["model=mlp", "freeze=rows", "freeze.rows=[[0,20],[30,40]]"]


@pytest.mark.parametrize("rule", ["adam", "adagrad", "ftrl", "adagrad_momentum"])
@pytest.mark.parametrize("place", ["strategy=cpu", "strategy=mirrored", "runtime=session", "runtime=estimator"])
def test_runs_with_frozen_rows_have_the_same_bits(
    place: str, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "estimator" in place and importlib.util.find_spec("tensorflow_estimator") is None:
        pytest.skip("tensorflow-estimator is not installed")
    limits = ["optimizer.weight_decay_factor=0.01", "optimizer.clipvalue=0.1"]
    compared([place, f"optimizer={rule}", *limits, *FROZEN, *CLICKS], tmp_path, monkeypatch)


@pytest.mark.parametrize("model", ["complex", "transe"])
def test_runs_on_graphs_have_the_same_bits(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = planted_triples.divided(tmp_path / "circle", planted_triples.circle(24), test=10, valid=10)
    compared([*GRAPH, f"model={model}", f"data.path={folder}"], tmp_path, monkeypatch)


@pytest.mark.parametrize("strategy", ["cpu", "mirrored"])
def test_runs_on_texts_have_the_same_bits(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in random.integers(0, 40, random.integers(1, 12))) for _ in range(300)]
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{'ab'[number % 2]}\t{text}\n" for number, text in enumerate(texts)))
    words = ["experiment=text_classification", "data=text", f"data.path={path}", "tables.word.dim=10", "model.maps=20"]
    compared([*words, f"strategy={strategy}", "train.batch_size=16", "train.steps=6"], tmp_path, monkeypatch)
