"""Workers that Slurm starts, stops before a time limit, and starts again; `fake_slurm` stands in for the cluster."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.strategies.cluster.cluster_runs import LIMIT, done, short, values
from tests.sweeps import fake_slurm
from tests.thoroughness import chosen

DOCS = Path(__file__).parents[3] / "docs" / "multi_worker.md"
EARLY = 120
"""Seconds from the signal to the limit, in the script of the docs."""
THREE = ("train.log_every=20", "strategy=multi_worker", "strategy.workers=3")


def command(directory: Path, *overrides: str) -> list[str]:
    """A run of three workers that takes long enough to be stopped."""
    return [word.replace("train.steps=100", "train.steps=300") for word in short(directory, *THREE, *overrides)]


def submit(folder: Path, name: str) -> Path:
    """Queues the script of the docs, with a run in a new folder; returns the file that gets what it prints."""
    [script] = re.findall(r"^```bash\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    words = {
        r"embexp run (.*\\\n)*.*": shlex.join(command(folder / "run", "output.existing=continue")),
        f"TERM@{EARLY}": f"{name}@{EARLY}",
        r"srun (?=--ntasks=3)": "srun --resv-ports=1 ",
        r"(?<=-eq )143": str(128 + getattr(signal, f"SIG{name}")),
        r"(?<=--requeue\n)": f"#SBATCH --output={folder / 'printed'}\n",
    }
    for pattern, text in words.items():
        script, there = re.subn(pattern, lambda _, text=text: text, script)
        assert there == 1, pattern
    (folder / "job.sh").write_text(script)
    subprocess.run(["sbatch", str(folder / "job.sh")], check=True)
    return folder / "printed"


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen(["TERM", "USR1"], ["TERM"]))
def test_stopped_before_the_limit_and_queued_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers get the signal and save together; the bits are those of a run in one piece."""
    commands, state = fake_slurm.install(tmp_path / "slurm"), tmp_path / "slurm" / "state"
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    began, metrics = time.monotonic(), tmp_path / "run" / "metrics.jsonl"
    printed = submit(tmp_path, name)
    while not (metrics.exists() and '"log"' in metrics.read_text()):
        assert time.monotonic() - began < LIMIT, printed.read_text()
        assert fake_slurm.tasks(state)["101"]["state"] in ("PENDING", "RUNNING"), printed.read_text()
        time.sleep(0.05)
    (state / "limit").write_text(str(time.monotonic() - began + EARLY))
    while fake_slurm.tasks(state)["101"]["state"] in ("PENDING", "RUNNING", "REQUEUED"):
        assert time.monotonic() - began < LIMIT, printed.read_text()
        time.sleep(0.05)
    said = printed.read_text()
    assert fake_slurm.tasks(state)["101"] | {"script": ""} == {"state": "COMPLETED", "restarts": 1, "script": ""}, said
    status = str(128 + getattr(signal, f"SIG{name}"))
    assert re.findall(r"task (\d): Exited with exit code (\d+)", said) == [(each, status) for each in "012"]
    [stopped] = re.findall(r"training interrupted after (\d+) steps", said)
    assert 0 < int(stopped) < 300
    assert f"resuming from step {stopped} of 300" in said
    # Started once more, the others do not wait for worker 0, which says that nothing is left to do.
    third = {"SLURM_NTASKS": "3", "SLURM_PROCID": "2", "SLURM_STEP_NODELIST": "nowhere", "SLURM_JOB_ID": "101"}
    again = command(tmp_path / "run", "output.existing=continue")
    assert subprocess.run(again, env=os.environ | third, timeout=60).returncode == 0
    done(command(tmp_path / "whole"))
    for key, value in values(tmp_path / "whole").items():
        assert values(tmp_path / "run")[key].tobytes() == value.tobytes(), key
