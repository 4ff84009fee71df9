"""A job that trains nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

JOB = """
import json, os, pathlib, signal, sqlite3, sys, time
sweep, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
with sqlite3.connect(sweep / "sweep.sqlite") as ledger:
    [[spec, directory]] = ledger.execute("SELECT spec, directory FROM jobs WHERE number = ?", [number])
spec, directory = json.loads(spec), sweep / directory
assert directory.is_dir()
seed = spec["seed"]
print("seed", seed, "model", spec["model"]["kind"], flush=True)
if seed == 100:
    print("Traceback: and so on", file=sys.stderr)
    print("ValueError: bad luck", file=sys.stderr)
    sys.exit(1)
if seed == 101:
    reason = {"error": "DataError", "reason": "ratings.csv: line 5: what is this?", "crash": False}
    (directory / "failure.json").write_text(json.dumps(reason))
    sys.exit(1)
if seed == 102:
    os.kill(os.getpid(), signal.SIGKILL)
if seed == 104:  # crashes once
    if not (directory / "again").exists():
        (directory / "again").touch()
        os._exit(3)
if seed == 105:
    (directory / "ready").touch()
    time.sleep(600)
if seed == 106:  # does not hear that it is to end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    (directory / "ready").touch()
    time.sleep(600)
if seed >= 1000:  # runs only beside another job
    place = sweep / "met"
    place.mkdir(exist_ok=True)
    (place / str(number)).touch()
    give_up = time.monotonic() + 60
    while len(list(place.iterdir())) < 2 and time.monotonic() < give_up:
        time.sleep(0.02)
    assert len(list(place.iterdir())) >= 2
status = "completed"
if seed == 103:
    def stop(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGINT, stop)
    try:
        (directory / "ready").touch()
        time.sleep(60)
    except KeyboardInterrupt:
        status = "interrupted"
summary = {"status": status, "pid": os.getpid(),
           "metrics": {"train": {"loss": 9}, "validation": {"rmse": seed + 1.0, "log_loss": seed + 1.0},
                       "test": {"loss": 1.0, "rmse": seed * 1.0, "nothing": None}},
           "initialization": {"seconds": 0.25, "graph_def_bytes": 1500 + seed}}
(directory / "summary.json").write_text(json.dumps(summary))
"""


@pytest.fixture
def command() -> Callable[[Path, int], Sequence[str]]:
    """Runs the fake job."""
    return lambda sweep, number: (sys.executable, "-IS", "-c", JOB, str(sweep), str(number))
