"""What workers would send: formulas counted by hand, and rows of a part against parts that are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.cli import commands, run_plan
from embexp.runs.prepare import prepare
from tests import planted_triples

WORKERS, BATCH = 2, 64


def test_bytes_of_a_step() -> None:
    """Of three workers, each of which looks up 90 rows of 4 numbers."""
    to_owners = 3 * 2 * 30 * (4 + 16 + 16)  # of each pair, an id, a row and a gradient of a third of the rows
    to_all = 3 * 2 * 90 * (4 + 16)
    assert run_plan.bytes_sent(3, 90, 4) == {"sharded": to_owners, "mirrored": to_all}
    assert run_plan.bytes_sent(3, 90, 4, frozen=True) == {"sharded": 3 * 2 * 30 * (4 + 16), "mirrored": 0}
    ring = 2 * (3 - 1) * 100 * 16
    assert run_plan.bytes_sent(3, 90, 4, whole=100) == {"sharded": to_owners, "mirrored": ring}


def test_distinct_rows_are_those_of_drawn_parts(tmp_path: Path) -> None:
    settings = ["experiment=clicks", "data.examples=4000", "data.users=300", "data.items=80"]
    prepared = prepare(embexp.compose([*settings, f"train.batch_size={BATCH}", f"output.cache={tmp_path}"]))
    scan, generator = prepared.data.scan, np.random.default_rng(0)
    history = scan.examples.lists["history"]
    for table in ("user", "item"):
        expected = -np.expm1(-run_plan.lookups(prepared, table, WORKERS)).sum()
        counts = []
        for _ in range(500):
            rows = generator.choice(scan.splits["train"], BATCH // WORKERS, replace=False)
            ids = [scan.examples.column(table)[rows]]
            if table == "item":
                ids += [history.values[history.splits[row] : history.splits[row + 1]] for row in rows]
            counts.append(len(np.unique(np.concatenate(ids))))
        assert expected == pytest.approx(np.mean(counts), rel=0.03)


def test_a_plan_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = planted_triples.divided(tmp_path / "graph", planted_triples.circle(30), test=20, valid=20)
    words = ["experiment=knowledge_graph", f"data.path={data}", f"output.cache={tmp_path}/c", "tables.entity.dim=10"]
    words += ["strategy=multi_worker", "data.negatives=null", "tables.entity.storage=mirrored"]
    words += ["model.relation_prediction=0.1", "tables.relation.storage=mirrored", "tables.relation.dim=10"]
    assert commands.main(["plan", "--scan", *words]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "exchange: tables.entity: mirrored, workers send about 2.4 kB per step, and 2.52 kB if it were sharded" in out
    )
    relations = prepare(embexp.compose(words)).tables.rows["relation"]
    assert (
        f"tables.relation: mirrored, workers send about {8 * relations * 10} B per step, and {84 * relations} B" in out
    )
    assert commands.main(["plan", "--scan", *words[:3], "strategy=cpu"]) == 0
    assert "exchange" not in capsys.readouterr().out
