"""`embexp evaluate` and `embexp predict`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from embexp.cli import commands
from embexp.cli.commands import finished
from embexp.config import composition
from embexp.records.folder import RunFolder
from embexp.runs.finished import Predictions
from embexp.system.parallel import Progress


class FakeRun:
    """A finished run that notes what it is asked."""

    predicted = Predictions(np.array([0.5, 1 / 3]), {"shop": np.array([False, False])})

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, ...]] = []

    def __call__(self, directory: str, command: str, *rest: str, data: str | None, **_: object) -> FakeRun:
        self.asked.append((directory, command, data, *rest))
        return self

    def evaluate(
        self, file: str | None, *, split: str, progress: Progress, details: dict[str, object] | None
    ) -> dict[str, float]:
        self.asked.append((file, split))
        if details is not None:
            details["intervals"] = {"auc": [0.85, 0.91]}
        return {"log_loss": 0.25, "auc": 0.875}

    def predictions(self, file: str, *, progress: Progress) -> Predictions:
        progress("predicting", 0.5)
        self.asked.append((file,))
        return self.predicted

    def alike_unknown(self, file: str) -> dict[str, object]:
        return {}

    def columns_of_file(self, file: str, names: list[str]) -> dict[str, list[str]]:
        return {name: [f"{name}1", f"{name}2"] for name in names}


def test_evaluate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun()
    monkeypatch.setattr(finished, "load_finished", run)
    assert finished.evaluate(["DIR"]) == 0
    assert capsys.readouterr().out == "log_loss  0.250000\nauc       0.875000  ±0.030000\n"
    assert finished.evaluate(["--json", "DIR", "--split", "validation"]) == 0
    assert json.loads(capsys.readouterr().out) == {"log_loss": 0.25, "auc": 0.875}
    assert finished.evaluate(["DIR", "--data", "FILE"]) == 0
    assert [asked[0] for asked in run.asked[::2]] == ["DIR", "DIR", "DIR"]
    assert run.asked[1::2] == [(None, "test"), (None, "validation"), ("FILE", "test")]


def test_predict(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun()
    monkeypatch.setattr(finished, "load_finished", run)
    assert finished.predict(["DIR", "--data", "FILE"]) == 0
    assert capsys.readouterr().out == "prediction\n0.5\n0.3333333\n"
    assert run.asked == [("DIR", "predict", "FILE", "--data", "FILE"), ("FILE",)]
    out = tmp_path / "p.csv"
    assert finished.predict(["DIR", "--data", "FILE", "--out", str(out)]) == 0
    assert out.read_text() == "prediction\n0.5\n0.3333333\n"
    assert capsys.readouterr().out == ""


def test_predictions_of_classes_with_kept_columns_and_unknown_values(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun()
    monkeypatch.setattr(finished, "load_finished", run)
    positive = np.array([0.25, 0.75], np.float32)
    run.predicted = Predictions(
        positive,
        {"shop": np.array([True, False]), "agent": np.array([True, True]), "day": np.array([False, False])},
        {"no": 1 - positive, "yes": positive},
        np.array(["no", "yes"]),
        {"shop": np.array([False, True]), "agent": np.array([False, False]), "day": np.array([False, True])},
    )
    assert finished.predict(["DIR", "--data", "FILE", "--keep", "id,date"]) == 0
    captured = capsys.readouterr()
    assert captured.out == (
        "id,date,prediction,class,probability of no,probability of yes,unknown\n"
        "id1,date1,0.25,no,0.75,0.25,shop agent\n"
        "id2,date2,0.75,yes,0.25,0.75,agent\n"
    )
    assert captured.err == (
        "1 of 2 rows lack a value: shop in 1, day in 1\n"
        "2 of 2 rows have values that the run does not know: shop in 1, agent in 2\n"
    )


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_data_that_are_not_there(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunFolder(tmp_path).write_spec(composition.job(composition.loader(), [], look_at_data=False).spec)
    assert commands.main([command, str(tmp_path), "--data", "nowhere.csv"]) == 2
    assert capsys.readouterr().err == "embexp: --data nowhere.csv: there is no such file or folder\n"


@pytest.mark.parametrize("words", [["evaluate", "{}"], ["predict", "{}", "--data", "f"]])
def test_a_folder_that_is_no_run(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main([word.format(tmp_path) for word in words]) == 1
    assert "there is no spec.json in it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["evaluate", "{}"], ["evaluate {}/base", "evaluate {}/grown"]),
        (["evaluate", "{}", "--split", "test_new"], ["evaluate {}/base --split test_new"]),
        (["predict", "{}", "--data", "my file"], ["predict {}/grown --data 'my file'"]),
    ],
)
def test_a_folder_of_a_study_names_its_runs(
    words: list[str], shown: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = ["experiment=new_entities", "data.path=graph"]
    folder = RunFolder(tmp_path / "study")
    folder.write_spec(composition.job(composition.loader(), study, look_at_data=False).spec)
    assert commands.main([word.format(folder.path) for word in words]) == 1
    assert "is the directory of a study; none of its runs has finished" in capsys.readouterr().err
    for name in ("base", "grown"):  # it was interrupted then
        run = RunFolder(folder.path / name)
        run.write_json(run.summary, {})
    assert commands.main([word.format(folder.path) for word in words]) == 1
    told = capsys.readouterr().err
    assert f"{folder.path} is the directory of a study; name one of its runs:\n" in told
    for command in shown:
        assert f"    embexp {command.format(folder.path)}\n" in told
    assert "full" not in told
