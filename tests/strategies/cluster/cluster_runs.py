"""Commands in processes of their own, whose workers are processes on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tensorflow as tf

from tests import preloaded
from tests.preloaded import COMMANDS

RATE, STEPS = 0.05, 100
QUIET = (
    f"train.steps={STEPS}",
    "train.epochs=null",
    "output.plots=false",
    "output.baselines=false",
    "strategy.intra_op_threads=1",
    "strategy.inter_op_threads=2",
)
SHORT = (
    "experiment=clicks",
    "data.examples=4000",
    "data.users=300",
    "data.items=80",
    "train.batch_size=128",
    "optimizer=adagrad",
    f"optimizer.learning_rate={RATE}",
    "dense_optimizer=adagrad",
    f"dense_optimizer.learning_rate={RATE}",
    *QUIET,
)
LIMIT = 240


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "embexp", *words]


def run(directory: Path, *overrides: str) -> Path:
    """Runs an experiment in a directory, to its end."""
    done(short(directory, *overrides))
    return directory


def short(directory: Path, *overrides: str) -> list[str]:
    """The command of a short run."""
    cache = f"output.cache={directory.parent / 'cache'}"
    return command("run", *SHORT, cache, *overrides, f"hydra.run.dir={directory}")


def forked(words: list[str]) -> list[str]:
    """A command whose processes are forked, where tests are distributed; signals reach only who waits for it."""
    if words[:3] == command() and COMMANDS in os.environ:
        return [str(preloaded.with_jobs(Path(os.environ[COMMANDS])) / "embexp"), *words[3:]]
    return words


def done(words: list[str], status: int = 0) -> str:
    """What a command prints, which must end with a status."""
    ended = subprocess.run(forked(words), capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def values(directory: Path) -> dict[str, np.ndarray]:
    """Everything that the final checkpoint of a run has, by key."""
    reader = tf.train.load_checkpoint(str(directory / "checkpoints" / "final" / "checkpoint"))
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map() if "OBJECT_GRAPH" not in key}


def summary(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    return found


@contextlib.contextmanager
def running(directory: Path, *overrides: str) -> Iterator[subprocess.Popen[str]]:
    """An experiment that goes on and on, stopped at the end of the block."""
    endless = [f"train.steps={10**6}" if word.startswith("train.steps=") else word for word in SHORT]
    words = command(
        "run", *endless, f"output.cache={directory.parent / 'cache'}", *overrides, f"hydra.run.dir={directory}"
    )
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        others: set[int] = set()
        try:
            deadline = time.monotonic() + LIMIT
            metrics = directory / "metrics.jsonl"
            while not (metrics.exists() and '"log"' in metrics.read_text()):
                assert process.poll() is None, process.stdout.read() if process.stdout else ""
                assert time.monotonic() < deadline
                time.sleep(0.1)
            others |= set(children(process.pid))
            yield process
        finally:
            for each in (process.pid, *others):
                with contextlib.suppress(ProcessLookupError):
                    if each == process.pid and process.poll() is not None:
                        continue
                    os.kill(each, signal.SIGKILL)


def children(parent: int) -> list[int]:
    """The processes that a process has started, in the order of their start."""
    return sorted(map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()))


def forked_worker(log: Path) -> int:
    """The worker that writes a log: not the process that has asked for it to be forked, and waits for it."""
    for each in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(OSError):
            if "-IS" not in (each.info["cmdline"] or ()) and Path(f"/proc/{each.pid}/fd/1").readlink() == log:
                return int(each.pid)
    raise AssertionError(f"no process writes {log}")


def gone(process: int) -> bool:
    """Whether a process has ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"
