"""`experiment=initialization`: ways in, run for real and compared in one table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from embexp.cli import commands

ROWS, DIM = 200, 100
WAYS = ("constant", "scaffold", "assign", "memory_map")


@pytest.mark.slow
@pytest.mark.usefixtures("forked_jobs")
def test_one_table_of_several_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("mine.npy", np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32))
    words = ["experiment=initialization", f"init={','.join(WAYS)}", "pretrained.path=mine.npy", "train.steps=3"]
    words += [
        "freeze=table",
        "output.plots=false",
        "output.baselines=false",
        "output.tensorboard=false",
        "output.cache=cache",
    ]
    assert commands.main(["run", "-m", *words, "hydra.sweep.dir=s"]) == 0
    jobs = json.loads(Path("s/sweep.json").read_text())["jobs"]
    assert [(job["overrides"]["init"], job["status"]) for job in jobs] == [(way, "completed") for way in WAYS]
    compared = [job["compared"] for job in jobs]
    graph = [each["initialization.graph_def_bytes"] for each in compared]
    assert graph[0] >= 4 * ROWS * DIM
    assert max(graph[1:]) < 20_000
    assert len({each["metrics.train.loss"] for each in compared}) == 1  # the same frozen values, and no randomness
    for number in range(len(WAYS)):
        tables = json.loads(Path(f"s/{number}/summary.json").read_text())["tables"]
        assert (tables["item"]["vocabulary_size"], tables["item"]["dim"]) == (ROWS, DIM)
    lines = capsys.readouterr().out.splitlines()
    [head] = [number for number, line in enumerate(lines) if line.startswith("job  ")]
    for name in ("initialization seconds", "peak anonymous", "graph def", "total graph def", "loss"):
        assert name in lines[head]
    assert [line.split()[:2] for line in lines[head + 1 : head + 1 + len(WAYS)]] == [
        [str(n), way] for n, way in enumerate(WAYS)
    ]
