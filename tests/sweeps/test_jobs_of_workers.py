"""Jobs of several workers on this machine, in real processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from embexp.records import inventory
from embexp.sweeps import processes
from embexp.sweeps.ledger import Ledger
from embexp.sweeps.sweep import sweep
from embexp.system import machine
from tests.strategies.cluster.cluster_runs import SHORT


@pytest.mark.slow
@pytest.mark.usefixtures("forked_jobs")
def test_workers_share_the_cores_of_their_jobs(tmp_path: Path) -> None:
    words = [word for word in SHORT if not word.startswith(("train.steps=", "strategy."))]
    place = tmp_path / "sweep"
    own = ["train.steps=10", f"output.cache={tmp_path / 'cache'}", f"hydra.sweep.dir={place}", "seed=0,1"]
    assert sweep([*words, *own, "strategy=multi_worker", "hydra.launcher.jobs=2"])
    assert processes.own_command(place, 0)[0] == sys.executable
    share = max(1, machine.cores() // 4)
    with Ledger(place) as ledger:
        for job in ledger.jobs():
            assert job.checked_spec.strategy.intra_op_threads == share
    for folder in (place / "0", place / "1"):
        assert json.loads((folder / "summary.json").read_text())["cluster"]["workers"] == 2
        assert (folder / "worker-1.log").is_file()
        assert inventory.changes(folder) == ()
