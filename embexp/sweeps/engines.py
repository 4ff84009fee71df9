"""Launchers of others, as they are: submitit, Ray, joblib and Hydra's basic one run the jobs that the ledger plans."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hydra.conf import HydraConf
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from embexp.config import hydra_globals, named_code
from embexp.config.nearest import did_you_mean
from embexp.config.permission import OWN_MODULES, Permission
from embexp.config.shown import shown
from embexp.errors import ConfigError, EmbexpError, Fault
from embexp.reports.record import Status
from embexp.sweeps import elsewhere, jobs, outcomes
from embexp.sweeps.elsewhere import Attempt
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.outcomes import Outcome
from embexp.system.locks import FileLock

_LOOK_EVERY = 0.2
"""Seconds between two looks at a job that runs on without its launcher."""
_GRACE = 3.0
"""Seconds that a worker has to note the end of a process, after this has released its lock."""
_START = 60.0
"""Seconds in which a process takes the lock of its job."""


class JobNumbers:
    """Stands in for Hydra's config loader where a launcher prepares a job: the jobs are composed already."""

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: Sequence[str]) -> DictConfig:
        """The config of a job: its number, and Hydra's settings of the sweep."""
        [override] = sweep_overrides
        config = OmegaConf.create({"job": int(override.partition("=")[2]), "hydra": master_config.hydra})
        OmegaConf.set_readonly(config.hydra, None)  # as it is once a sweep runs; launchers set the job's number
        with open_dict(config.hydra):
            config.hydra.overrides.task = [override]
            config.hydra.sweep.subdir = "."  # the job makes its directory itself
            config.hydra.output_subdir = None  # and writes there what Hydra would
            config.hydra.job.chdir = False
        return config


@dataclass(frozen=True)
class Engine:
    """A launcher of others.

    Attributes:
        name: as in `hydra/launcher=NAME`.
        hydra: the node `hydra` of the sweep's config, as plain values with interpolations.
        folder: the working folder of the sweep.
        command: see `elsewhere.RunElsewhere`.
        permission: which code its settings may name.
    """

    name: str
    hydra: Mapping[str, Any]
    folder: str
    command: tuple[str, ...] = ()
    permission: Permission = OWN_MODULES

    def as_json(self) -> dict[str, Any]:
        """The engine as the ledger notes it, from which `Engine(**…)` makes it again."""
        return {"name": self.name, "hydra": self.hydra, "folder": self.folder}

    def run(
        self, ledger: Ledger, numbers: Sequence[int], ended: Callable[[Outcome], object] = lambda outcome: None
    ) -> None:
        """Runs jobs of the ledger to their end, and notes in it how they ended.

        Args:
            ledger: of the sweep.
            numbers: of the jobs.
            ended: called with each outcome, when all have ended.

        Raises:
            KeyboardInterrupt: Ctrl-C came; the jobs on this machine have ended, and the ledger knows how.
        """
        sweep, problem = ledger.directory, ""
        planned = [ledger.job(number) for number in numbers]
        missing = [job for job in planned if not _ended_meanwhile(sweep, job)]
        for job in missing:
            elsewhere.write(sweep, job)
            ledger.begin(job.number, time.time())
        try:
            if missing:
                self._launch(sweep, [job.number for job in missing])
        except KeyboardInterrupt:
            for job in missing:
                _end(sweep, job)
            for job in planned:
                ended(_settle(ledger, job, ""))
            raise
        except EmbexpError:
            raise
        except Exception as error:  # of the launcher: a job that it has lost, a queue that rejects it
            problem = f"hydra/launcher={self.name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        for job in planned:
            ended(_settle(ledger, job, problem))

    def _launch(self, sweep: Path, numbers: Sequence[int]) -> None:
        config = OmegaConf.create({"hydra": _typed(self.hydra)})
        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.sweep.dir = str(sweep)
            # Jobs are processes of embexp's own: what a ledger has here is of no use, and launchers would apply it.
            config.hydra.job.env_set = {}
            config.hydra.job_logging = {"version": 1, "root": None}
            config.hydra.callbacks = {}
        for kind in ("launcher", "hydra_logging"):
            named_code.check(config, kind, self.permission)
        task = elsewhere.RunElsewhere(str(sweep), self.folder, self.command)
        context = HydraContext(config_loader=cast(Any, JobNumbers()), callbacks=cast(Any, Callback()))
        with hydra_globals.borrowed(config):
            launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=config)
            launcher.launch([[f"job={number}"] for number in numbers], initial_job_idx=numbers[0])


def _typed(hydra: Mapping[str, Any]) -> DictConfig:
    """The node `hydra` with the type that Hydra asks for; it has keys of its own beside those of the type."""
    node = OmegaConf.structured(HydraConf)
    OmegaConf.set_struct(node, False)
    node.merge_with(dict(hydra))
    return cast(DictConfig, node)


def engine(config: DictConfig, permission: Permission) -> Engine:
    """The launcher that a config names.

    Args:
        config: of the sweep, with Hydra's node.
        permission: which code it may name.

    Raises:
        ConfigError: a setting that the launcher does not have.
    """
    name = str(config.hydra.runtime.choices.get("hydra/launcher"))
    known = _settings_of(name, str(config.hydra.launcher.get("_target_")))
    unknown = [] if known is None else [str(key) for key in config.hydra.launcher if key not in known]
    if known is not None and unknown:
        node = OmegaConf.to_container(config.hydra.launcher, resolve=False)
        values = node if isinstance(node, dict) else {}
        rule = f"the launcher {name} has no such setting"
        remedies = {key: did_you_mean(key, known) or f"it has {', '.join(sorted(known))}" for key in unknown}
        path = "hydra.launcher"
        raise ConfigError([Fault(f"{path}.{key}", shown(values.get(key)), rule, remedies[key]) for key in unknown])
    hydra = OmegaConf.to_container(config.hydra, resolve=False, enum_to_str=True)
    return Engine(name, cast(Mapping[str, Any], hydra), os.getcwd(), permission=permission)


def _settings_of(name: str, target: str) -> set[str] | None:
    """The keys of a launcher's node; None if the launcher takes any."""
    try:
        schema = ConfigStore.instance().load(f"hydra/launcher/{name}.yaml").node
    except (OSError, HydraException):
        plugin = named_code.plugins().get(target)
        if plugin is None:
            return None  # starting it tells
        parameters = inspect.signature(plugin).parameters
        if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            return None
        return {"_target_", *parameters}
    return {str(key) for key in schema}


def _ended_meanwhile(sweep: Path, job: LedgerJob) -> bool:
    """Whether a job that was begun by a sweep that is gone has ended without it; waits for it if it still runs."""
    attempt = elsewhere.attempt(sweep, job.number) if job.attempts else None
    if attempt is None:
        return False
    attempt = _awaited(sweep, job, attempt)
    status, _ = outcomes.ending(jobs.job_directory(sweep, job), attempt.exit_status)
    return status.is_settled


def _awaited(sweep: Path, job: LedgerJob, attempt: Attempt) -> Attempt:
    """The attempt after its end; without an exit status if its worker was killed, which then could not note it."""
    lock = jobs.lock(sweep, job)
    give_up = time.monotonic() + _GRACE
    while attempt.ended is None and (time.monotonic() < give_up or _is_held(lock) or _is_starting(attempt)):
        if _is_held(lock) or _is_starting(attempt):
            give_up = time.monotonic() + _GRACE
        time.sleep(_LOOK_EVERY)
        attempt = elsewhere.attempt(sweep, job.number) or attempt
    return attempt


def _is_starting(attempt: Attempt) -> bool:
    """Whether a process on this machine has begun that may not yet hold the lock of its job."""
    if attempt.host != socket.gethostname() or time.time() - attempt.started > _START:
        return False
    try:
        os.kill(attempt.process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _is_held(lock: FileLock) -> bool:
    try:
        return bool(lock.writer())
    except FileNotFoundError:
        return False


def _end(sweep: Path, job: LedgerJob) -> None:
    """Asks the process of a job to save what is trained and to end, if it runs on this machine, and waits for it."""
    attempt = elsewhere.attempt(sweep, job.number)
    if attempt is None or attempt.ended is not None or attempt.host != socket.gethostname():
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(attempt.process, signal.SIGINT)
    _awaited(sweep, job, attempt)


def _settle(ledger: Ledger, job: LedgerJob, problem: str) -> Outcome:
    """Notes how a job ended.

    Args:
        ledger: of the sweep.
        job: as planned.
        problem: of the launcher, or "".
    """
    attempt = elsewhere.attempt(ledger.directory, job.number)
    if attempt is None:  # it was never begun
        state = Status.FAILED if problem else Status.PLANNED
        ledger.leave(job.number, state, problem)
        return jobs.outcome(ledger.directory, ledger.job(job.number))
    attempt = _awaited(ledger.directory, job, attempt)
    ledger.began(job.number, attempt.started)  # it may have waited in a queue
    if attempt.exit_status is not None:
        return jobs.settle(ledger, job.number, attempt.exit_status, ended=attempt.ended)
    if outcomes.ending(jobs.job_directory(ledger.directory, job), None)[0].is_settled:
        return jobs.settle(ledger, job.number, 0)
    return jobs.settle(ledger, job.number, -signal.SIGKILL, reason=problem or "its process was killed")
