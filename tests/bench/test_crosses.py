"""`bench.crosses`: its experiments, and what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import crosses


@pytest.mark.parametrize("name", crosses.MODELS)
def test_logistic_regression_has_one_weight_for_each_value(name: str) -> None:
    experiment = yaml.safe_load(crosses.yaml_of(name))
    assert "model" not in experiment
    [table] = experiment["tables"].values()
    assert table["dim"] == (1 if name == crosses.LINEAR else crosses.DIM)


def results(rows: int, test: float) -> dict[str, Any]:
    models = {crosses.LINEAR: 0.7, "dcn_v2": test}
    found = {name: {"validation": auc, "test": auc, "seconds": 1.0} for name, auc in models.items()}
    return {"rows": rows, "machine": {}, "truth": {"auc": 0.8}, "models": found}


@pytest.mark.parametrize(
    ("rows", "test", "status", "said"),
    [(crosses.ROWS, 0.71, 0, "> 0.7000 met"), (crosses.ROWS, 0.7, 1, "> 0.7000 MISSED"), (50_000, 0.7, 0, "0.7000")],
)
def test_the_goal_is_judged_with_all_rows(
    rows: int, test: float, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crosses._report(results(rows, test)) == status
    assert said in capsys.readouterr().out


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []

    def train(name: str, *_: Any) -> dict[str, Any]:
        trained.append(name)
        return {"test": 0.5}

    monkeypatch.setattr(crosses, "trained", train)
    monkeypatch.setattr(crosses, "write", lambda folder, rows: (folder / "truth.json").write_text("{}"))
    for names in (["logistic", "fm"], ["logistic", "fm", "mlp"]):
        crosses._results(dict.fromkeys(names), 100, tmp_path, tmp_path / "kept.json")
    assert trained == ["logistic", "fm", "mlp"]
