"""A small Slurm of this machine, as far as submitit and embexp use it: its commands, in the folder of a test.

`install` writes sbatch, squeue, sacct, scancel, scontrol and srun into a folder for PATH. Each job has a process of its
own that starts its tasks, as many at once as there are slots, and kills all that a task has started when it is
cancelled or its time is over, whatever session that belongs to. These files in the folder of the state steer it:

- `hold`: no task begins.
- `limit`: seconds that a task may take.
- `requeue`: what is killed by the limit is queued once more.
- `silent`: squeue fails.

`#SBATCH --signal=TERM@20` sends that signal to the tasks of steps, not to the script, 20 seconds before `limit`.
`scontrol requeue` queues a job once more, without its limit. `srun --ntasks=3` starts a step of as many processes, and
`srun` alone as many as `#SBATCH --nodes` times `--ntasks-per-node`. All nodes are this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "srun")
GRACE = 20.0
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
    early = re.search(r"#SBATCH --signal=(\w+)@(\d+)", (state / f"{number}.sh").read_text())
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
            elif word in ("CANCELLED", "REQUEUED") or time.monotonic() - began > limit:
                kill(process.pid)
                process.wait()
                if word == "RUNNING":
                    change(state, key, state="REQUEUED" if (state / "requeue").exists() else "TIMEOUT")
            else:
                if early and time.monotonic() - began > limit - int(early[2]):
                    signal_steps(state, key, getattr(signal, f"SIG{early[1]}"))
                continue
            if tasks(state)[key]["state"] == "REQUEUED":
                for steered in ("requeue", "limit"):
                    (state / steered).unlink(missing_ok=True)
                change(state, key, state="PENDING", restarts=tasks(state)[key].get("restarts", 0) + 1)
            del running[key]
        time.sleep(0.05)


def started(state: Path, key: str) -> subprocess.Popen[bytes]:
    number, _, index = key.partition("_")
    own = str(1000 * int(number) + int(index) + 1) if index else number
    variables = {"SLURM_JOB_ID": own, "SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0"}
    variables |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_JOB_NODELIST": socket.gethostname()}
    directives = (state / f"{number}.sh").read_text()
    if asked := re.search(r"#SBATCH --ntasks=(\d+)", directives):
        variables["SLURM_NTASKS"] = asked[1]
    if each := re.search(r"#SBATCH --ntasks-per-node=(\d+)", directives):
        nodes = re.search(r"#SBATCH --nodes=(\d+)", directives)
        variables["SLURM_NTASKS"] = str(int(each[1]) * int(nodes[1] if nodes else 1))
    if restarts := tasks(state)[key].get("restarts"):
        variables["SLURM_RESTART_COUNT"] = str(restarts)
    output = re.search(r"#SBATCH --output=([^\s%]+)$", directives, re.MULTILINE)  # without a pattern
    if index:
        variables |= {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": index}
    return subprocess.Popen(
        ["bash", str(state / f"{number}.sh")],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=Path(output[1]).open("ab") if output else None,
        stderr=subprocess.STDOUT if output else None,
        start_new_session=True,
    )


def signal_steps(state: Path, key: str, number: int) -> None:
    """Sends a signal to all tasks of the running steps of a job, once."""
    for step in state.glob(f"{key}.*.step"):
        for each in map(int, step.read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)
        step.unlink(missing_ok=True)


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
    output, error, count, ports = "", "", int(os.environ["SLURM_NTASKS"]), False
    while arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option.startswith("--ntasks="):
            count = int(option.partition("=")[2])
        ports = ports or option.startswith("--resv-ports=")
        if option in ("--output", "--error"):
            path = arguments.pop(0).replace("%j", os.environ["SLURM_JOB_ID"])
            path = path.replace("%A", os.environ.get("SLURM_ARRAY_JOB_ID", ""))
            path = path.replace("%a", os.environ.get("SLURM_ARRAY_TASK_ID", ""))
            output, error = (path, error) if option == "--output" else (output, path)
    if count > 1:
        sys.exit(step(state, arguments, count, ports=ports, output=output, error=error))
    output, error = output.replace("%t", "0"), error.replace("%t", "0")
    give_up = time.monotonic() + 10
    while not Path(output).parent.exists() and time.monotonic() < give_up:
        time.sleep(0.05)
    for path, number in ((output, 1), (error, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.execvp(arguments[0], arguments)


def step(state: Path, command: list[str], count: int, *, ports: bool, output: str, error: str) -> int:
    """Runs a step of several tasks on this node; returns the highest exit status, 128 and more after a signal.

    Args:
        output, error: files for what the tasks print, with `%t` for their number; "": that of this process.
    """
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    job = f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]
    number = len(calls(state, "srun")) - 1
    variables = {"SLURM_STEP_ID": str(number), "SLURM_STEP_NODELIST": socket.gethostname(), "SLURM_NTASKS": str(count)}
    variables |= {"SLURMD_NODENAME": socket.gethostname(), "SLURM_STEP_NUM_TASKS": str(count)}
    if ports:
        with socket.socket() as free:
            free.bind(("", 0))
            variables["SLURM_STEP_RESV_PORTS"] = str(free.getsockname()[1])
    started = [
        subprocess.Popen(
            command,
            env={**os.environ, **variables, "SLURM_PROCID": str(each), "SLURM_LOCALID": str(each)},
            stdout=appended(output, each),
            stderr=appended(error, each),
            start_new_session=True,
        )
        for each in range(count)
    ]
    written = state / f"{job}.{number}.step"
    written.write_text(" ".join(str(process.pid) for process in started))
    found = [process.wait() for process in started]
    written.unlink(missing_ok=True)
    found = [128 - status if status < 0 else status for status in found]
    for each, status in enumerate(found):
        if status:
            print(f"srun: error: node: task {each}: Exited with exit code {status}", file=sys.stderr)
    return max(found)


def appended(pattern: str, task: int) -> int | None:
    """A file to which a task appends what it prints; None for no pattern."""
    return os.open(pattern.replace("%t", str(task)), os.O_WRONLY | os.O_CREAT | os.O_APPEND) if pattern else None


def squeue(state: Path, arguments: list[str]) -> None:
    if (state / "silent").exists():
        sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    [chosen] = [each.removeprefix("--jobs=") for each in arguments if each.startswith("--jobs=")]
    found = [pair for job in chosen.split(",") for pair in tasks(state, job).items()]
    if not found:
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    for key, task in found:
        if task["state"] in ("PENDING", "RUNNING", "REQUEUED"):
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


def scontrol(state: Path, arguments: list[str]) -> None:
    [_, job] = arguments
    change(state, job, state="REQUEUED")


if __name__ == "__main__":
    with Path(sys.argv[1], "calls").open("a") as log:
        print(*sys.argv[2:], file=log)
    globals()[sys.argv[2]](Path(sys.argv[1]), sys.argv[3:])
