"""`embexp resume` of a sweep: finishes what is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from embexp.config import composition
from embexp.config.named_code import Permission
from embexp.errors import RunError
from embexp.records import allowed_code
from embexp.specs import tracking
from embexp.sweeps import planning
from embexp.sweeps.engines import Engine
from embexp.sweeps.ledger import Ledger
from embexp.sweeps.planning import key_of
from embexp.sweeps.processes import Command
from embexp.sweeps.running import Runner
from embexp.sweeps.sweep import PATIENCE, sweep
from embexp.system import locks, terminal


def resume(
    directory: Path,
    overrides: Sequence[str] = (),
    *,
    allow_code: Sequence[str] = (),
    command: Command | None = None,
    console: Console | None = None,
) -> bool:
    """Finishes a sweep as it was planned, and prints its results.

    Jobs that are done are not repeated. Jobs that were interrupted go on from their newest checkpoint, and those that
    failed are tried again. A search continues with its sweeper, from the command that began it.

    Args:
        overrides: of `hydra.launcher`, such as `hydra.launcher.jobs=2`; threads stay those that were planned.
        allow_code: functions that its jobs may run, and the classes that it names, such as that of an unknown launcher.
        command: runs a job; None: jobs are forked where their devices allow that.
        console: shows progress and results; None: the terminal. A search shows them on the terminal.

    Returns:
        Whether every job that was not skipped has ended with results.

    Raises:
        ConfigError: an override is invalid.
        RunError: the directory has no ledger, or another process works there.
        UsageError: a job that is to be run, or the sweep, names code that isn't allowed.
    """
    place = directory.absolute()
    with Ledger(place) as ledger:
        noted, recorded = ledger.noted("command"), ledger.noted("launching")
        if noted is None:
            raise RunError(f"{ledger.path} has no jobs: the sweep was killed before it had planned any; start it again")
        folder = Path(noted["folder"])
        permission = Permission(frozenset(allow_code), own=False)
        if not noted.get("search"):
            launched = planning.changed_launching(recorded or {}, overrides, composition.loader())
            engine = None
            if (known := ledger.noted("engine")) is not None:
                engine = Engine(known["name"], known["hydra"], known["folder"], permission=permission)
            _check_code(ledger, engine, folder, allow_code)
            with (
                locks.of_folder(place, f"the sweep in {place}").exclusive(patience=PATIENCE),
                Runner(
                    ledger,
                    launched,
                    console or terminal.console(),
                    folder=folder,
                    command=command,
                    engine=engine,
                ) as runner,
            ):
                return _finish(ledger, runner)
    changed = set(map(key_of, overrides))
    with contextlib.chdir(folder):
        return sweep(
            [*(each for each in noted.get("overrides", ()) if key_of(each) not in changed), *overrides],
            config_dir=noted.get("config_dir"),
            config_name=noted.get("config_name", "config"),
            config_path=noted.get("config_path"),
            directory=place,
            command=command,
            permission=permission,
        )


def _check_code(ledger: Ledger, engine: Engine | None, folder: Path, allow_code: Sequence[str]) -> None:
    """Raises UsageError if what is to be run names code that isn't allowed."""
    jobs = [(job.state.is_settled, job.checked_spec) for job in ledger.jobs()]
    left = [spec for is_settled, spec in jobs if not is_settled]
    tracking.check_addresses(left, ledger.path)
    names, done = (
        allowed_code.named_by_all(some) for some in (left, [spec for is_settled, spec in jobs if is_settled])
    )
    allowed = [each for each in allow_code if each not in done or each in names]
    target = "" if engine is None else engine.named_code(ledger.directory)
    others = {target: "hydra.launcher"} if target else {}
    record = f"{ledger.path}, of a sweep with the working folder {folder},"
    allowed_code.check_names({**names, **others}, allowed, record=record)


def _finish(ledger: Ledger, runner: Runner) -> bool:
    jobs = ledger.jobs()
    missing = [job.number for job in jobs if job.same_as is None and not job.state.is_settled]
    done = sum(job.state.is_settled for job in jobs)
    text = f"{done} of {len(jobs)} jobs are done"
    runner.shown.say(text if missing else f"{text}; nothing is left to do")
    runner.shown.expect(len(missing), len(jobs))
    if missing:
        runner.run(missing)
    return runner.finish()
