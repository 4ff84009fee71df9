"""Directories of runs made by hand: TensorFlow writes their checkpoints, nothing of ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

import embexp
from embexp.data.vocabularies.vocabulary import TokenVocabulary
from embexp.specs.run import RunSpec

DIM = 3
END = "/.ATTRIBUTES/VARIABLE_VALUE"
SUMMARY = {
    "status": "completed",
    "steps": 1,
    "metrics": {},
    "initialization": {"tables": {}},
    "freeze": {},
    "tables": {},
}


@dataclass(frozen=True)
class Made:
    """A run, and what was put into it.

    Attributes:
        path: its directory.
        values: by key without its end, what the checkpoint holds.
    """

    path: Path
    values: dict[str, np.ndarray]


class Runs:
    """Makes runs of the experiment ratings, whose tables are user and item."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._count = folder, 0
        (folder / "ratings.csv").write_text("user,item,rating\na,b,3\n")
        (folder / "wanted.txt").write_text("")

    def spec(self, *overrides: str) -> RunSpec:
        return embexp.compose(
            [
                "experiment=ratings",
                f"data.path={self.folder / 'ratings.csv'}",
                "data.label=rating",
                f"tables.user.dim={DIM}",
                f"tables.item.dim={DIM}",
                "optimizer=adam",
                *overrides,
            ]
        )

    def new(self) -> Path:
        self._count += 1
        return self.folder / f"run{self._count}"

    def make(
        self,
        items: Sequence[str],
        *,
        oov: bool = True,
        free: int = 0,
        dim: int = DIM,
        slots: Sequence[str] = ("momenta", "velocities"),
    ) -> Made:
        path = self.new()
        (path / "checkpoints" / "final").mkdir(parents=True)
        (path / "vocabularies").mkdir()
        spec = self.spec(f"tables.item.dim={dim}", "model=mlp")
        (path / "spec.json").write_text(spec.model_dump_json())
        (path / "summary.json").write_text(json.dumps(SUMMARY))
        generator = np.random.default_rng(len(items) + 100 * self._count)
        values: dict[str, np.ndarray] = {}
        for name in spec.tables:
            tokens = list(items) if name == "item" else ["ann", "bob"]
            has_oov, behind = (oov, free) if name == "item" else (True, 0)
            vocabulary = TokenVocabulary(
                pa.array(tokens, pa.large_string()), np.arange(len(tokens)) + 5, has_oov, (7,) * has_oov
            )
            vocabulary.write(path / "vocabularies" / name)
            rows, dim = vocabulary.size + behind, spec.tables[name].width
            for key in (f"embedding/{name}", *(f"embedding/{name}.S{slot}" for slot in slots)):
                values[key] = generator.normal(size=(rows, dim)).astype(np.float32)
        values["step"] = np.array(12, np.int64)
        values["optimizer/_trainable_variables/0"] = generator.normal(size=(4, 2)).astype(np.float32)
        keys = [f"{key}{END}" for key in values] + ["_CHECKPOINTABLE_OBJECT_GRAPH"]
        tensors = [*map(tf.constant, values.values()), tf.constant(b"\x0a\x00")]
        tf.raw_ops.SaveV2(
            prefix=str(path / "checkpoints" / "final" / "checkpoint"),
            tensor_names=keys,
            shape_and_slices=[""] * len(keys),
            tensors=tensors,
        )
        return Made(path, values)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))
