"""`embexp` and `python` as commands that start from a process in which TensorFlow is imported already.

Importing TensorFlow takes longer than most commands of the documentation. Here one process imports it and all modules
of embexp, runs nothing, and forks for each command: the command has its own process, its own working directory,
environment, arguments and standard streams, and nothing of what it does is left for the next one. The processes of a
sweep's jobs can be forked in the same way: see `with_jobs`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMANDS = "EMBEXP_TESTS_COMMANDS"
"""Variable of the environment with the folder of `commands` that all processes of a distributed run share."""

_COMMAND = """#!{python} -IS
import array, json, os, signal, socket, sys
if sys.argv[1:2] == ["-I"]:  # it needs no module of embexp
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
if "strategy.reproducible=processors" in sys.argv:  # it loads NumPy and TensorFlow with other kernels
    os.execv({python!r}, [{python!r}, "-P", "-m", "embexp", *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as to:
    to.connect({address!r})
    words = [os.path.basename(sys.argv[0]), sys.argv[1:], os.getcwd(), dict(os.environ), {executable!r}]
    request = json.dumps(words).encode()
    files = array.array("i", [0, 1, 2])
    to.sendmsg([len(request).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    to.sendall(request)
    reply = to.makefile()
    if job := reply.readline():  # which `timeout -s INT` means
        signal.signal(signal.SIGINT, lambda *_: os.kill(int(job), signal.SIGINT))
    status = int(reply.read() or 1)
sys.exit(status if status >= 0 else 128 - status)
"""


@contextmanager
def commands(folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[Path]:
    """Makes a folder for PATH with the commands `embexp` and `python`, which work until the block ends.

    Args:
        folder: an empty folder of short path, in which the commands and a socket are made.
        variables: of the environment of the process that they start from; None: those of this one.
    """
    address = folder / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen()
        for place, executable in ((folder, sys.executable), (with_jobs(folder), str(with_jobs(folder) / "python"))):
            place.mkdir(exist_ok=True)
            for name in ("embexp", "python"):
                command = place / name
                command.write_text(_COMMAND.format(python=sys.executable, address=str(address), executable=executable))
                command.chmod(0o755)
        server = subprocess.Popen(
            [sys.executable, "-P", __file__, str(listening.fileno())],
            pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL,
            env=variables,
        )
    try:
        yield folder
    finally:
        server.terminate()
        server.wait()


@contextmanager
def shared_commands() -> Iterator[Path]:
    """The folder of the commands: that of a distributed run, or one that is made for the block."""
    if COMMANDS in os.environ:
        yield Path(os.environ[COMMANDS])
    else:
        with tempfile.TemporaryDirectory() as folder, commands(Path(folder)) as found:
            yield found


def with_jobs(folder: Path) -> Path:
    """The folder of commands that also fork what they start by `sys.executable`, such as the jobs of a sweep.

    Signals then reach only the process that waits for it.
    """
    return folder / "jobs"


def _serve(listening: socket.socket) -> None:
    """Forks for each command that asks, for ever."""
    from embexp.system import digests, environment, machine

    machine.die_with_parent(os.getppid())  # which may be killed before it could end this process
    environment.load_tensorflow()
    import embexp

    for module in pkgutil.walk_packages(embexp.__path__, "embexp."):
        if not module.name.endswith(("__main__", "cli.job")):
            with contextlib.suppress(ImportError):  # of a package that only an extra installs
                importlib.import_module(module.name)
    importlib.import_module("tensorboard.summary.v2")  # as `tf.summary` does when it is first used
    importlib.import_module("sklearn.linear_model")  # as the first fit of a baseline does
    embexp.compose()  # which makes Hydra look for its plugins
    digests.of_package()

    gc.freeze()
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        asking, _ = listening.accept()
        if machine.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with asking:
                _answer(asking)
            os._exit(0)
        asking.close()


def _reap(*_: Any) -> None:
    """Waits for those who have waited for a command, so that its processor time counts as this process's."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _answer(asking: socket.socket) -> None:
    """Runs one command in a process of its own and sends its number, and in the end its exit status."""
    size, descriptors, _, _ = socket.recv_fds(asking, 8, 3)
    left, request = int.from_bytes(size, "big"), b""
    while len(request) < left:
        part = asking.recv(left - len(request))
        if not part:  # who asks was killed: else this would go round for ever
            return
        request += part
    child = os.fork()
    if child == 0:
        asking.close()
        name, words, directory, variables, executable = json.loads(request)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os._exit(_run(name, words, directory, variables, executable))
    for descriptor in descriptors:
        os.close(descriptor)
    with contextlib.suppress(BrokenPipeError):
        asking.sendall(f"{child}\n".encode())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        asking.sendall(str(status).encode())


def _run(name: str, words: list[str], directory: str, variables: dict[str, str], executable: str) -> int:
    """What the command does, with `executable` as its `sys.executable`; its exit status."""
    from embexp.system import machine

    sys.executable = executable
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(variables)
    if machine.VARIABLE in variables:  # its parent here is the process that waits for it
        os.environ[machine.VARIABLE] = str(os.getppid())
    sys.argv = [name, *words]
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=stream.isatty() or "PYTHONUNBUFFERED" in variables)
    status: Any = 0
    try:
        if name == "embexp":
            from embexp.cli.commands import main

            status = main()
        else:
            _python(words)
    except SystemExit as end:
        status = end.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status or 0


def _python(words: list[str]) -> None:
    """What `python -c TEXT`, `python [-P] [-u] -m MODULE` or `python FILE` does."""
    safe = "-P" in words[:2]
    while words[0] in ("-P", "-u"):
        words = words[1:]
    if words[0] in ("-m", "-c") and not safe:
        sys.path.insert(0, "")
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        exec(compile(words[1], "<string>", "exec"), module.__dict__)
    else:
        sys.argv = words
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
