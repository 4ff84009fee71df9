"""A run whose tokens are normalised treats every spelling alike, also in what is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

import embexp
from embexp.cli import commands
from embexp.data.vocabularies.vocabulary import HashVocabulary, TokenVocabulary, Vocabulary
from embexp.errors import RunError
from embexp.runs import finished
from embexp.runs import run as single
from embexp.runs.serving import normalized, served
from embexp.specs.vocabularies import Step, normalized_text

TEXTS = [
    "",
    " a ",
    "\u00a0A\u3000",
    "\x1cB\x85",
    "\u0130I",
    "\u039f\u03a3",
    "\u00c9",
    "7.0",
    " 007",
    "+7",
    "-0.0",
    "7.5",
]
TEXTS += ["x\n", "\t", "7.", ".0", "0", "\u0661", "a b", "\u212a"]
SERVED = (Step.STRIP, Step.LOWER, Step.NUMBER)


@pytest.mark.parametrize("steps", [(step,) for step in SERVED] + [SERVED])
def test_tensorflow_normalizes_as_python_does(steps: tuple[Step, ...]) -> None:
    found = normalized(tf.constant([text.encode() for text in TEXTS]), steps).numpy()
    assert [each.decode() for each in found] == [normalized_text(text, steps) for text in TEXTS]


@pytest.mark.parametrize("vocabulary", ["one oov", "several", "hashed"])
def test_a_served_vocabulary_normalizes(tmp_path: Path, vocabulary: str) -> None:
    known = pa.array(["a", "7", "i\u0307i"], pa.large_string())
    found: Vocabulary = {
        "one oov": TokenVocabulary(known, np.ones(3, np.int64), oov=1, missing_frequency=1),
        "several": TokenVocabulary(known, np.ones(3, np.int64), oov=3, rare=pa.array(["b"], pa.large_string())),
        "hashed": HashVocabulary(50, missing=True),
    }[vocabulary].normalizing(SERVED)
    rows = served("item", found, tmp_path).rows(tf.constant([text.encode() for text in TEXTS]))
    assert rows.numpy().tolist() == found.rows(TEXTS).tolist()


def spec_of(path: Path, **data: Any) -> embexp.RunSpec:
    return embexp.RunSpec.model_validate(
        {
            "name": "spelled",
            "task": "binary",
            "data": {"kind": "csv", "path": str(path), "label": "y", **data},
            "tables": {"user": {"dim": 2}, "item": {"dim": 2}},
            "features": {"user": {"table": "user"}, "item": {"table": "item"}},
            "model": {"kind": "dot", "left": ["user"], "right": ["item"]},
            "optimizer": {"kind": "adagrad", "learning_rate": 0.1},
            "dense_optimizer": {"kind": "adam", "learning_rate": 0.01},
            "train": {"steps": 3, "epochs": None, "batch_size": 16},
            "output": {"plots": False, "tensorboard": False, "baselines": False, "cache": str(path.parent / "cache")},
        }
    )


def test_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accents = ["\u00e9", "e\u0301"]
    rows = [f"u{n % 7}{' ' * (n % 2)},Caf{accents[n % 3 == 0]}{n % 5},{n % 2}" for n in range(80)]
    (tmp_path / "a.csv").write_text("\n".join(["user,item,y", *rows]) + "\n", "utf-8")
    steps = ["nfc", "lower", "strip"]
    (tmp_path / "run").mkdir()
    single.run(spec_of(tmp_path / "a.csv", normalize=steps), tmp_path / "run")
    run = embexp.load_run(tmp_path / "run")
    assert len(run.vocabulary("user").tokens()) == 1 + 7
    assert len(run.vocabulary("item").tokens()) == 1 + 5
    assert not any("differ" in warning for warning in run.summary["warnings"])
    dirty = {"user": ["U1 ", "u2\t"], "item": ["CAFE\u03011", " caf\u00e92"]}
    cleaned = {"user": ["u1", "u2"], "item": ["caf\u00e91", "caf\u00e92"]}
    np.testing.assert_array_equal(run.predict(dirty), run.predict(cleaned))
    with pytest.raises(RunError, match=r"data\.normalize has the step nfc.*--as npy"):
        finished.export(tmp_path / "run", tmp_path / "model")
    assert not (tmp_path / "model").exists()
    (tmp_path / "q.csv").write_text("user,item\nU1 ,caf\u00e91.0\nu9,caf\u00e92\n", "utf-8")
    assert commands.main(["predict", str(tmp_path / "run"), "--data", str(tmp_path / "q.csv")]) == 0
    assert "2 of 2 rows" in capsys.readouterr().err


def test_predict_names_unknown_values_that_are_nearly_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"u{n % 7},i{n % 5},{n % 2}" for n in range(80)]
    (tmp_path / "a.csv").write_text("\n".join(["user,item,y", *rows, "u1 ,i1,1"]) + "\n", "utf-8")
    (tmp_path / "run").mkdir()
    single.run(spec_of(tmp_path / "a.csv"), tmp_path / "run")
    [warning] = [each for each in embexp.load_run(tmp_path / "run").summary["warnings"] if "differ" in each]
    assert warning.startswith("user: 1 of 8 values")
    assert "data.normalize=[strip]" in warning
    (tmp_path / "q.csv").write_text("user,item\nu2 ,I1\nu3,i9\nu4,i1\n", "utf-8")
    assert commands.main(["predict", str(tmp_path / "run"), "--data", str(tmp_path / "q.csv")]) == 0
    shown = capsys.readouterr().err
    assert "user: 1 of 1 unknown values differ" in shown
    assert "'u2 ' from 'u2'" in shown
    assert "item: 1 of 2 unknown values differ" in shown
    assert "data.normalize=[lower]" in shown
