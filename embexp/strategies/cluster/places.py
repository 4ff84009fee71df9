"""Which worker this process is, and where worker 0 is found: from the config, or from who has started it.

| started by | known from |
|---|---|
| worker 0 on one machine | `EMBEXP_WORKER`, `EMBEXP_LEADER` |
| any means, with addresses in the config | `strategy.addresses`, and which one this is from one of `_INDEX` |
| TensorFlow's convention | `TF_CONFIG` |
| `srun` of several tasks | `SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_STEP_NODELIST`, `SLURM_STEP_RESV_PORTS` |
| a person | nothing is set: this process is worker 0, and starts the others on this machine |

Worker 0 also ends the others that it has started. Imports no TensorFlow.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from embexp.errors import RunError
from embexp.specs.strategies import MultiWorker
from embexp.system import machine as processes

WORKER, LEADER = "EMBEXP_WORKER", "EMBEXP_LEADER"
"""Variables of the environment: the number of this worker, and the address of worker 0."""
_INDEX = (WORKER, "JOB_COMPLETION_INDEX", "SLURM_PROCID")  # ours, of Kubernetes, of Slurm
VARIABLES = (*_INDEX, "TF_CONFIG")
"""Variables of the environment that only the processes of several workers have."""
_FIRST_PORT, _PORTS = 20_000, 10_000


@dataclass(frozen=True)
class Place:
    """One worker of a cluster.

    Attributes:
        worker: its number.
        leader: where worker 0 listens, `host:port`; None: on this machine, at a port that it chooses.
        own: where this worker's TensorFlow listens; None: at a port that it chooses on `host`.
        host: this machine, as the others call it.
        found: what has told all this, for people.
    """

    worker: int
    leader: str | None
    own: str | None = None
    host: str = "127.0.0.1"
    found: str = "this machine"

    @property
    def loopback(self) -> bool:
        """Whether worker 0 starts the others itself."""
        return self.leader is None

    @property
    def of_one_machine(self) -> bool:
        """Whether worker 0 starts the others, and this is one of them, or 0."""
        return self.loopback or self.found == LEADER


def place(strategy: MultiWorker, environment: Mapping[str, str]) -> Place:
    """The place of this process.

    Raises:
        RunError: what is set contradicts itself, or the config.
    """
    workers = strategy.workers
    if LEADER in environment:
        return Place(_number(environment, WORKER, workers), environment[LEADER], found=LEADER)
    if strategy.addresses is not None:
        name = next((each for each in _INDEX if each in environment), None)
        if name is None:
            raise RunError(
                f"strategy.addresses names {workers} workers, but nothing says which one this is: set"
                f" {WORKER} to its number, from 0 to {workers - 1}, in the environment of each process"
            )
        return _of_list(list(strategy.addresses), _number(environment, name, workers), f"strategy.addresses and {name}")
    if "TF_CONFIG" in environment:
        return _of_tf_config(environment["TF_CONFIG"], workers)
    if int(environment.get("SLURM_NTASKS", "1") or 1) > 1 and "SLURM_PROCID" in environment:
        return _of_slurm(environment, workers)
    return Place(0, None)


def _of_list(addresses: list[str], worker: int, found: str) -> Place:
    return Place(worker, addresses[0], addresses[worker], addresses[worker].rpartition(":")[0], found)


def _number(environment: Mapping[str, str], name: str, workers: int) -> int:
    text = environment.get(name, "")
    if not text.isdecimal() or int(text) >= workers:
        raise RunError(f"{name} is {text!r}, but strategy.workers={workers} has workers 0 to {workers - 1}")
    return int(text)


def _of_tf_config(text: str, workers: int) -> Place:
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        chief = [str(each) for each in cluster.get("chief", [])]
        addresses = [*chief, *(str(each) for each in cluster["worker"])]
        number = int(task["index"]) + (len(chief) if task["type"] == "worker" else 0)
        kinds, kind = set(cluster), str(task["type"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"TF_CONFIG can't be read ({error!r}): it needs cluster.worker, task.type and task.index"
        ) from None
    if kind not in ("chief", "worker") or not kinds <= {"chief", "worker"}:
        raise RunError(
            f"TF_CONFIG has tasks {', '.join(sorted(kinds))}, and this is a {kind}: use only chief and worker"
        )
    if len(addresses) != workers or not 0 <= number < workers:
        raise RunError(f"TF_CONFIG has {len(addresses)} workers, but strategy.workers is {workers}: make them equal")
    return _of_list(addresses, number, "TF_CONFIG")


def _of_slurm(environment: Mapping[str, str], workers: int) -> Place:
    tasks = int(environment["SLURM_NTASKS"])
    if tasks != workers:
        raise RunError(f"Slurm has started {tasks} tasks, but strategy.workers is {workers}: make them equal")
    nodes = environment.get("SLURM_STEP_NODELIST")
    if not nodes:  # as in a batch script, which is one process
        raise RunError(
            f"Slurm has {tasks} tasks for this job, but no step (SLURM_STEP_NODELIST): start the workers with "
            f"srun --ntasks={tasks}"
        )
    reserved = re.match(r"\d+", environment.get("SLURM_STEP_RESV_PORTS", ""))
    job = int(environment.get("SLURM_JOB_ID", "0") or 0) + 101 * int(environment.get("SLURM_STEP_ID", "0") or 0)
    port = int(reserved[0]) if reserved else _FIRST_PORT + job % _PORTS
    leader = f"{first_node(nodes)}:{port}"
    worker = _number(environment, "SLURM_PROCID", workers)
    host = environment.get("SLURMD_NODENAME") or socket.gethostname()
    return Place(worker, leader, leader if worker == 0 else None, host, "Slurm")


def first_node(nodes: str) -> str:
    """The first host in Slurm's notation, as `node[03-05,9],other`."""
    name = re.match(r"([^\[,]*)(?:\[(\w+)[^\]]*\])?([^\[,]*)", nodes)
    return "" if name is None else f"{name[1]}{name[2] or ''}{name[3]}"


_LAST_LINES = 3
MODULE = "embexp.runs.runtimes.worker"
"""What another worker executes."""


def log_path(folder: Path, worker: int) -> Path:
    """The log of a worker other than 0, in the folder of the run."""
    return folder / f"worker-{worker}.log"


class Workers:
    """Processes of this one, which end with it, however it ends."""

    def __init__(self, workers: int, leader: str, folder: Path) -> None:
        """Starts workers 1 to `workers` - 1.

        Args:
            leader: where worker 0 listens.
            folder: of the run, which has its spec, and gets the logs.
        """
        self._folder, self._started = folder, {}
        known = [entry for entry in sys.path if entry and Path(entry).exists()]
        for worker in range(1, workers):
            own = {WORKER: str(worker), LEADER: leader, "PYTHONPATH": os.pathsep.join(known)}
            with log_path(folder, worker).open("ab") as log:
                self._started[worker] = subprocess.Popen(
                    [sys.executable, "-m", MODULE, str(folder.absolute())],
                    env={**os.environ, **processes.variables(), **own},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for worker 0, which decides for all
                )

    @property
    def ids(self) -> dict[int, int]:
        """The process id of each."""
        return {worker: process.pid for worker, process in self._started.items()}

    def ended(self) -> str | None:
        """A sentence on a worker that has ended, before it should; None: all run."""
        for worker, process in self._started.items():
            if (status := process.poll()) is not None:
                log = log_path(self._folder, worker)
                said = "\n".join(f"  {line}" for line in _last_lines(log))
                return f"worker {worker} has ended with status {status} before it was ready; {log} ends with\n{said}"
        return None

    def end(self, seconds: float) -> None:
        """Waits for their end, and kills those that are still there after so many seconds."""
        deadline = time.monotonic() + seconds
        for process in self._started.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _last_lines(log: Path) -> Sequence[str]:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip()][-_LAST_LINES:]
