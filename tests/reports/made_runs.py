"""Folders of runs and sweeps as embexp writes them, made without training."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LEDGER = """CREATE TABLE jobs (
    number INTEGER PRIMARY KEY, overrides TEXT, settings TEXT, spec TEXT, run_id TEXT, state TEXT, reason TEXT,
    attempts INTEGER, started REAL, ended REAL, directory TEXT, same_as INTEGER)"""


def spec(**changes: Any) -> dict[str, Any]:
    """The parts of a spec that reports read; keys with `__` for dots."""
    content: dict[str, Any] = {
        "name": "ratings",
        "task": "regression",
        "seed": 0,
        "data": {"kind": "csv", "path": "a.csv", "fold": None},
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
        "init": {"kind": "assign"},
        "train": {"steps": 10, "early_stopping": {"metric": None}},
        "output": {"cache": None, "compare": []},
        "checkpoint": {"save": "training"},
        "study": {"kind": "none"},
    }
    for key, value in changes.items():
        *groups, last = key.split("__")
        place = content
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return content


def run(
    directory: Path,
    content: Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    validation: Mapping[str, float | None] | None = None,
    test: Mapping[str, float | None] | None = None,
    summary: Mapping[str, Any] | None = None,
) -> Path:
    """A run; without metrics and summary, one that has not ended."""
    (directory / ".hydra").mkdir(parents=True)
    (directory / "spec.json").write_text(json.dumps(content))
    (directory / ".hydra" / "overrides.yaml").write_text("".join(f"- {json.dumps(each)}\n" for each in overrides))
    if validation is not None or test is not None or summary is not None:
        metrics = {"train": {"loss": 1.0}, "validation": validation or {}, "test": test or {}}
        whole = {"status": "completed", "metrics": metrics, "examples": {"validation": 9}, **(summary or {})}
        (directory / "summary.json").write_text(json.dumps(whole))
    return directory


def ledger(directory: Path, jobs: Sequence[Mapping[str, Any]]) -> None:
    """The ledger of a sweep."""
    directory.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(directory / "sweep.sqlite")
    connection.execute(LEDGER)
    for number, job in enumerate(jobs):
        values = {"number": number, "overrides": [], "settings": {}, "spec": {}, "reason": "", **job}
        values |= {key: json.dumps(values[key]) for key in ("overrides", "settings", "spec")}
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO jobs ({names}) VALUES ({marks})", list(values.values()))
    connection.commit()
    connection.close()


def sweep(directory: Path, *, optimizers: Mapping[str, Sequence[float]], **changes: Any) -> Path:
    """A sweep over optimizers and seeds, by the validation RMSE of each seed; that of the test split is 0.1 more.

    Args:
        changes: of the spec of all runs, see `spec`.
    """
    jobs: list[dict[str, Any]] = []
    for optimizer, values in optimizers.items():
        for seed, value in enumerate(values):
            number = len(jobs)
            content = spec(seed=seed, optimizer__kind=optimizer, **changes)
            overrides = [f"optimizer={optimizer}", f"seed={seed}"]
            run(
                directory / str(number),
                content,
                overrides=overrides,
                validation={"rmse": value, "mae": value / 2, "loss": value**2},
                test={"rmse": value + 0.1, "mae": value / 2, "loss": value**2},
            )
            jobs.append(
                {
                    "overrides": overrides,
                    "spec": content,
                    "state": "completed",
                    "directory": str(number),
                    "started": 100.0,
                    "ended": 101.5 + number,
                }
            )
    ledger(directory, jobs)
    return directory
