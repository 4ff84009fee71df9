"""Jobs for launchers of others, which train nothing."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from embexp.config import composition
from embexp.config.composition import compose_config
from embexp.config.named_code import OWN_MODULES
from embexp.specs.running import Launching
from embexp.sweeps import engines
from embexp.sweeps.engines import Engine
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.running import Runner
from embexp.system import locks

JOB = """
import json, os, pathlib, signal, sys, time
from embexp.records import inventory
from embexp.sweeps import jobs
sweep, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
job = jobs.submitted_job(sweep, number)
what, directory = job.settings["what"], sweep / job.directory
lock = jobs.lock(sweep, job).exclusive(patience=5)
lock.__enter__()
print("job", number, "in process", os.getpid(), "below", os.getppid(), flush=True)
if what == "fails":
    reason = {"error": "DataError", "reason": "ratings.csv: line 5: what is this?", "crash": False}
    (directory / "failure.json").write_text(json.dumps(reason))
    sys.exit(1)
if what == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "loses its worker":
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1)
status = "completed"
if what == "waits":
    def stop(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGINT, stop)
    (directory / "ready").touch()
    try:
        give_up = time.monotonic() + 60
        while not (sweep / "go").exists() and time.monotonic() < give_up:
            time.sleep(0.05)
    except KeyboardInterrupt:
        status = "interrupted"
summary = {"status": status, "run_id": f"id{number}", "metrics": {"validation": {"auc": number / 10}}}
(directory / "summary.json").write_text(json.dumps(summary))
inventory.seal(directory)
"""
SPEC = json.dumps({"output": {"compare": []}})


def engine(launcher: str, folder: Path) -> Engine:
    """The launcher of a sweep; its jobs train nothing."""
    if launcher.startswith("submitit"):
        pytest.importorskip("submitit")
    job = folder / "job.py"
    job.write_text(JOB)
    config = compose_config(composition.loader(), [f"hydra/launcher={launcher}"]).config
    return dataclasses.replace(engines.engine(config, OWN_MODULES), command=(sys.executable, str(job)))


def ledger(directory: Path, *whats: str) -> Ledger:
    directory.mkdir(exist_ok=True)
    made = Ledger(directory, create=True)
    made.add(
        LedgerJob(n, (f"what={what}",), {"what": what}, SPEC, f"i{n}", directory=str(n)) for n, what in enumerate(whats)
    )
    return made


def log(directory: Path, number: int) -> list[str]:
    return (directory / str(number) / "run.log").read_text().splitlines()


def finish(sweep: Path, made: Engine | None) -> str:
    """Runs what is left of a sweep, as `embexp run -m` and `embexp resume` do; returns what it prints."""
    printed = io.StringIO()
    with (
        locks.of_folder(sweep, "the sweep").exclusive(patience=5),
        Ledger(sweep) as known,
        Runner(known, Launching(), Console(file=printed, width=200), engine=made) as runner,
    ):
        runner.run([job.number for job in known.jobs() if not job.state.is_settled])
        runner.finish()
    return printed.getvalue()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    ledger(place, *sys.argv[3:]).__exit__()
    print(finish(place, engine(sys.argv[2], place.parent)))
