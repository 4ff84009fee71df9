"""A run on labels that are names: they are in its summary, its evaluations and its predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.cli import commands
from embexp.errors import DataError

ANIMALS = ("cat", "dog", "ox")


def write(path: Path, labels: tuple[str, ...], rows: int = 300) -> Path:
    lines = ["id,shop,animal", *(f"r{n},s{n % len(labels)},{labels[n % len(labels)]}" for n in range(rows))]
    path.write_text("\n".join(lines) + "\n")
    return path


def run(data: Path, folder: Path) -> embexp.Run:
    arguments = [
        "new",
        "--data",
        str(data),
        "--label",
        "animal",
        "--ignore",
        "id",
        "--out",
        str(folder),
        "--name",
        "own",
    ]
    assert commands.main(arguments) == 0
    overrides = [
        "experiment=own",
        f"output.cache={folder / 'cache'}",
        "output.plots=false",
        "output.baselines=false",
        "output.tensorboard=false",
    ]
    spec = embexp.compose([*overrides, "train.epochs=4", "train.batch_size=8"], config_dir=folder)
    embexp.run(spec, folder / "run", quiet=True)
    return embexp.load_run(folder / "run")


def test_classes(tmp_path: Path) -> None:
    found = run(write(tmp_path / "own.csv", ANIMALS), tmp_path)
    assert found.classes == ANIMALS
    (tmp_path / "more.csv").write_text("shop,animal\ns1,dog\ns0,cat\nnew,ox\ns2,ox\n")
    assert found.evaluate(tmp_path / "more.csv")["accuracy"] >= 0.75
    predictions = found.predictions(tmp_path / "more.csv")
    assert predictions.prediction.tolist()[:2] == ["dog", "cat"]
    assert np.sum(list(predictions.probabilities.values()), axis=0) == pytest.approx(1, abs=1e-6)
    assert predictions.unknown["shop"].tolist() == [False, False, True, False]
    (tmp_path / "more.csv").write_text("shop,animal\ns1,dog\ns0,emu\n")
    with pytest.raises(DataError, match=r"row 2: found 'emu' in column 'animal', expected one of the classes cat"):
        found.evaluate(tmp_path / "more.csv")


def test_two_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(write(tmp_path / "own.csv", ("<=50K", ">50K", "<=50K")), tmp_path)
    assert found.classes == ("<=50K", ">50K")
    assert found.summary["metrics"]["test"]["auc"] == 1
    (tmp_path / "more.csv").write_text("id,shop,animal\na,s1,>50K\nb,s0,<=50K\n")
    assert found.evaluate(tmp_path / "more.csv")["auc"] == 1
    capsys.readouterr()
    assert commands.main(["predict", str(tmp_path / "run"), "--data", str(tmp_path / "more.csv"), "--keep", "id"]) == 0
    lines = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["id", "prediction", "class", "probability of <=50K", "probability of >50K"]
    assert [line[:1] + line[2:3] for line in lines[1:]] == [["a", ">50K"], ["b", "<=50K"]]
    assert [float(line[1]) == float(line[4]) == pytest.approx(1 - float(line[3]), abs=1e-6) for line in lines[1:]]
    assert commands.main(["predict", str(tmp_path / "run"), "--data", str(tmp_path / "more.csv"), "--keep", "ide"]) == 1
    assert "did you mean 'id'?" in capsys.readouterr().err
