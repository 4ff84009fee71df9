"""A small Slurm of this machine, as far as submitit and embexp use it: its commands, in the folder of a test.

`install` writes sbatch, squeue, sacct, scancel and srun into a folder for PATH. Each job has a process of its own that
starts its tasks, as many at once as there are slots, and kills all that a task has started when it is cancelled or its
time is over, whatever session that belongs to. These files in the folder of the state steer it:

- `hold`: no task begins.
- `limit`: seconds that a task may take.
- `requeue`: what is killed by the limit is queued once more.
- `silent`: squeue fails.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "srun")
GRACE = 1.0
"""Seconds between the signals TERM and KILL to a task."""


def install(folder: Path, *, slots: int = 8) -> Path:
    """Writes the commands into the new folder `bin`, beside `state`; returns the former."""
    state, commands = folder / "state", folder / "bin"
    state.mkdir(parents=True)
    commands.mkdir()
    (state / "slots").write_text(str(slots))
    for name in COMMANDS:
        path = commands / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {state} {name} "$@"\n')
        path.chmod(0o755)
    return commands


def tasks(state: Path, job: str = "") -> dict[str, dict[str, Any]]:
    """The tasks of one or all jobs, by id."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(state.glob("*.json"))}
    return {key: task for key, task in found.items() if not job or job in (key, key.partition("_")[0])}


def calls(state: Path, name: str) -> list[str]:
    """The arguments of each call of a command."""
    try:
        lines = (state / "calls").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [line.partition(" ")[2] for line in lines if line.partition(" ")[0] == name]


def change(state: Path, key: str, /, **values: Any) -> None:
    path = state / f"{key}.json"
    content = {**(json.loads(path.read_text()) if path.exists() else {}), **values}
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(content))
    temporary.rename(path)


def sbatch(state: Path, arguments: list[str]) -> None:
    script = Path(arguments[-1])
    number = str(101 + len(list(state.glob("*.sh"))))
    (state / f"{number}.sh").write_text(script.read_text())
    array = re.search(r"#SBATCH --array=(\d+)-(\d+)", script.read_text())
    keys = [f"{number}_{each}" for each in range(int(array[1]), int(array[2]) + 1)] if array else [number]
    for key in keys:
        change(state, key, state="PENDING", script=str(script))
    subprocess.Popen(
        [sys.executable, __file__, str(state), "control", number],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=(state / f"{number}.err").open("w"),
        start_new_session=True,
        cwd="/",
    )
    print(f"Submitted batch job {number}")


def control(state: Path, arguments: list[str]) -> None:
    [number] = arguments
    running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
    while running or any(task["state"] == "PENDING" for task in tasks(state, number).values()):
        for key, task in tasks(state, number).items():
            slots = int((state / "slots").read_text())
            if task["state"] == "PENDING" and len(running) < slots and not (state / "hold").exists():
                running[key] = (started(state, key), time.monotonic())
                change(state, key, state="RUNNING")
        for key, (process, began) in list(running.items()):
            word = tasks(state)[key]["state"]
            limit = float((state / "limit").read_text()) if (state / "limit").exists() else 600.0
            if process.poll() is not None:
                if word == "RUNNING":
                    change(state, key, state="COMPLETED" if process.returncode == 0 else "FAILED")
            elif word == "CANCELLED" or time.monotonic() - began > limit:
                kill(process.pid)
                process.wait()
                again = (state / "requeue").exists()
                if word != "CANCELLED":
                    change(state, key, state="PENDING" if again else "TIMEOUT")
                if again:
                    (state / "requeue").unlink()
                    (state / "limit").unlink()
            else:
                continue
            del running[key]
        time.sleep(0.05)


def started(state: Path, key: str) -> subprocess.Popen[bytes]:
    number, _, index = key.partition("_")
    variables = {"SLURM_JOB_ID": number, "SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0"}
    variables |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    if index:
        variables |= {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": index}
    return subprocess.Popen(
        ["bash", str(state / f"{number}.sh")],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill(leader: int) -> None:
    """Kills all that a task has started, as the control group of a node does."""
    top = psutil.Process(leader)
    all_of_it = [top, *top.children(recursive=True)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for each in all_of_it:
            if each.is_running():
                each.send_signal(number)
        psutil.wait_procs(all_of_it, timeout=GRACE)


def srun(state: Path, arguments: list[str]) -> None:
    output = error = ""
    while arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option in ("--output", "--error"):
            path = arguments.pop(0).replace("%t", "0").replace("%j", os.environ["SLURM_JOB_ID"])
            path = path.replace("%A", os.environ.get("SLURM_ARRAY_JOB_ID", ""))
            path = path.replace("%a", os.environ.get("SLURM_ARRAY_TASK_ID", ""))
            output, error = (path, error) if option == "--output" else (output, path)
    give_up = time.monotonic() + 10
    while not Path(output).parent.exists() and time.monotonic() < give_up:
        time.sleep(0.05)
    for path, number in ((output, 1), (error, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.execvp(arguments[0], arguments)


def squeue(state: Path, arguments: list[str]) -> None:
    if (state / "silent").exists():
        sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    [chosen] = [each.removeprefix("--jobs=") for each in arguments if each.startswith("--jobs=")]
    found = [pair for job in chosen.split(",") for pair in tasks(state, job).items()]
    if not found:
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    for key, task in found:
        if task["state"] in ("PENDING", "RUNNING"):
            print(f"{key}|{task['state']}|{task['script']}")


def sacct(state: Path, arguments: list[str]) -> None:
    [chosen] = [each.removeprefix("--jobs=") for each in arguments if each.startswith("--jobs=")]
    for job in chosen.split(","):
        for key, task in tasks(state, job).items():
            print(f"{key}|{task['state']}{' by 1000' if task['state'] == 'CANCELLED' else ''}")


def scancel(state: Path, arguments: list[str]) -> None:
    for job in arguments:
        for key, task in tasks(state, job).items():
            if task["state"] in ("PENDING", "RUNNING"):
                change(state, key, state="CANCELLED")


if __name__ == "__main__":
    with Path(sys.argv[1], "calls").open("a") as log:
        print(*sys.argv[2:], file=log)
    globals()[sys.argv[2]](Path(sys.argv[1]), sys.argv[3:])
