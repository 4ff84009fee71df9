"""Launchers of others: submitit, Ray, joblib and Hydra's basic one run the jobs that the ledger plans.

submitit only submits the jobs: the process of the sweep waits for them itself, as it does for those of a sweep that was
killed. Other launchers return when all jobs have ended, and a thread follows these meanwhile.

What a launcher starts for a job: how many processes, on how many cores, what is wrong with that, and in words.

A job of several workers (`strategy=multi_worker`) runs in one of two ways. Slurm starts a task for each worker, if the
launcher asks for several. Else the job is one process, wherever that is, and starts the others beside it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from hydra.conf import HydraConf
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from embexp.config import hydra_globals, named_code
from embexp.config.messages import did_you_mean, format_value
from embexp.config.named_code import OWN_MODULES, Permission
from embexp.errors import CommandLineError, ConfigError, EmbexpError, Fault
from embexp.reports.record import Status
from embexp.specs.running import Launching
from embexp.specs.strategies import MultiWorker, Strategy
from embexp.sweeps import jobs, processes, watching
from embexp.sweeps.ledger import Ledger
from embexp.sweeps.watching import Watch

_LOOK_EVERY = 0.2
"""Seconds between two looks at the jobs."""
_SUBMITIT = "hydra_plugins.hydra_submitit_launcher."
_SLURM = f"{_SUBMITIT}submitit_launcher.SlurmLauncher"
_PACKAGES = {
    "submitit_local": "hydra-submitit-launcher",
    "submitit_slurm": "hydra-submitit-launcher",
    "ray": "hydra-ray-launcher",
    "joblib": "hydra-joblib-launcher",
}
"""The packages of known launchers."""
_TASKS, _NODES, _CORES = "tasks_per_node", "nodes", "cpus_per_task"
_RAY_CORES = "ray.remote.num_cpus"
_SCHEDULED = (
    *(_NODES, _TASKS, _CORES, "gpus_per_node", "mem_gb", "timeout_min", "partition", "qos", "account", "constraint"),
    *("gres", "max_num_timeout", _RAY_CORES),
)
"""Settings of launchers that `plan` shows."""


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
            _disarm(config)
        return config


def _disarm(config: DictConfig) -> None:
    """Removes what a sweep has not, so that it comes from elsewhere, and launchers would apply in the worker."""
    config.hydra.job.env_set = {}
    config.hydra.job_logging = {"version": 1, "root": None}


@dataclass(frozen=True)
class Engine:
    """A launcher of others.

    Attributes:
        name: as in `hydra/launcher=NAME`.
        hydra: the node `hydra` of the sweep's config, as plain values with interpolations.
        command: see `jobs.RunElsewhere`.
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

    def run(self, ledger: Ledger, numbers: Sequence[int], *, watch: Watch | None = None) -> str:
        """Runs jobs of the ledger to their end, and notes in it how they ended.

        Args:
            watch: follows those of the jobs that run elsewhere already; None: there are none. These are launched only
                if they end without a result.

        Returns:
            Why not all jobs were run, or "".

        Raises:
            KeyboardInterrupt: Ctrl-C came. The jobs on this machine have ended, those of a scheduler go on, and the
                ledger knows both.
        """
        jobs_here = _Run(self, ledger, Watch(ledger.directory) if watch is None else watch)
        try:
            return jobs_here.run(numbers)
        except KeyboardInterrupt:
            jobs_here.interrupt()
            raise

    def launch(self, sweep: Path, numbers: Sequence[int], submission: str) -> None:
        """Passes jobs to the launcher, which may wait for their end."""
        config = self._config(sweep)
        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.callbacks = {}
            _disarm(config)
        for kind in ("launcher", "hydra_logging"):
            named_code.check(config, kind, self.permission)
        task = jobs.RunElsewhere(str(sweep), self.folder, submission, self.command)
        context = HydraContext(config_loader=cast(Any, JobNumbers()), callbacks=cast(Any, Callback()))
        with hydra_globals.borrowed(config):
            launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=config)
            launcher.launch([[f"job={number}"] for number in numbers], initial_job_idx=numbers[0])

    def named_code(self, sweep: Path) -> str:
        """The class that it names, as `package.module:name`, if that is not one that any sweep may name; else ""."""
        if named_code.is_known_launcher(self._config(sweep)):
            return ""
        return named_code.function_of(str(self.hydra["launcher"].get("_target_")))

    def _config(self, sweep: Path) -> DictConfig:
        config = OmegaConf.create({"hydra": _typed(self.hydra)})
        with read_write(config.hydra):
            config.hydra.sweep.dir = str(sweep)
        return config

    def setting(self, key: str) -> Any:
        """The value of `hydra.launcher.KEY`; None if the launcher has none, or it can't be resolved."""
        try:
            return OmegaConf.select(OmegaConf.create({"hydra": dict(self.hydra)}), f"hydra.launcher.{key}")
        except OmegaConfBaseException:
            return None

    @property
    def submits(self) -> bool:
        """Whether it is submitit's, whose jobs are known as soon as they are submitted."""
        return self._target.startswith(_SUBMITIT)

    @property
    def has_tasks(self) -> bool:
        """Whether it can start several processes for a job, as Slurm does."""
        return self._target == _SLURM

    @property
    def _target(self) -> str:
        return str(self.hydra["launcher"].get("_target_"))


class _Run:
    """Jobs of a ledger that a launcher of others runs."""

    def __init__(self, engine: Engine, ledger: Ledger, watch: Watch) -> None:
        self._engine, self._ledger, self._watch = engine, ledger, watch
        self._sweep, self._shown = ledger.directory, watch.shown
        self._launched: set[int] = set()
        self._again: list[int] = []

    def run(self, numbers: Sequence[int]) -> str:
        """Runs jobs to their end; returns why not all were run, or ""."""
        waiting = [number for number in numbers if number not in self._watch]
        halted = ""
        while (waiting and not halted) or any(number in self._watch for number in numbers):
            if jobs.is_cancelled(self._sweep):
                halted = "the sweep was cancelled"
                self._watch.cancel()
            elif waiting:
                self._launch(waiting)
                waiting = []
            self._look(self._ledger)
            waiting, self._again = [*waiting, *self._again], []
            if not halted:
                time.sleep(_LOOK_EVERY)
        return halted

    def interrupt(self) -> None:
        """Ends the jobs on this machine, and leaves those of a scheduler in its queue."""
        for number in sorted(self._launched):
            job = self._ledger.job(number)
            if job.state is Status.QUEUED and job.number not in self._watch:  # Slurm may have it, and will run nothing
                jobs.withdraw(self._sweep, number)
                self._ledger.leave(number, Status.PLANNED)
        for job in self._watch.under_way:
            if job.scheduler == watching.SLURM:
                continue
            if not watching.interrupt(self._sweep, job) and not jobs.starts(self._sweep, job.number):
                jobs.withdraw(self._sweep, job.number)
                self._watch.forget(job.number)
                self._ledger.leave(job.number, Status.PLANNED)
        while any(job.scheduler != watching.SLURM for job in self._watch.under_way):
            self._look(self._ledger)
            time.sleep(_LOOK_EVERY)
        if left := self._watch.under_way:
            self._shown.say(
                f"{watching.count_jobs(left)} continue in Slurm; `embexp resume {self._sweep}` waits for them, and"
                f" `embexp sweep cancel {self._sweep}` cancels them"
            )

    def _look(self, ledger: Ledger) -> None:
        """Looks at the jobs; those that an earlier process has launched, and that have no result, are to run again."""
        self._again += self._watch.look_again(ledger, own=self._launched)
        self._shown.update(self._watch.under_way)

    def _launch(self, numbers: Sequence[int]) -> None:
        """Passes jobs to the launcher, and follows them; until their end, if the launcher waits for it."""
        problem, submission = "", secrets.token_hex(8)
        self._ledger.queue(numbers, time.time())
        for number in numbers:
            jobs.submit(self._sweep, self._ledger.job(number), submission)
        self._launched.update(numbers)
        self._shown.say(f"{len(numbers)} jobs go to hydra/launcher={self._engine.name}")
        if self._engine.submits:
            launching = _submitting(lambda cluster, submitted: self._submitted(numbers, cluster, submitted))
        else:
            launching = self._followed_by_a_thread(numbers)
        try:
            with launching:
                self._engine.launch(self._sweep, numbers, submission)
        except (KeyboardInterrupt, EmbexpError):
            raise
        except Exception as error:  # of the launcher: a job that it has lost, a queue that rejects it
            lines = str(error).splitlines() or [""]
            problem = f"hydra/launcher={self._engine.name}: {type(error).__name__}: {lines[0]}"
        for number in numbers:
            if not self._engine.submits and not jobs.starts(self._sweep, number):
                self._watch.forget(number)  # the launcher has returned without having begun it
            if number not in self._watch and self._ledger.job(number).state is Status.QUEUED:
                state = Status.CANCELLED if jobs.is_cancelled(self._sweep) else Status.PLANNED
                self._ledger.leave(number, Status.FAILED if problem else state, problem)
                self._shown.ended(jobs.outcome(self._sweep, self._ledger.job(number)))

    def _submitted(self, numbers: Sequence[int], cluster: str, submitted: Sequence[Any]) -> None:
        """Notes the ids of jobs at once: this process may be killed at any time."""
        ids = dict(zip(numbers, (str(each.job_id) for each in submitted), strict=True))
        self._ledger.identify(cluster, ids)
        of_slurm = cluster == watching.SLURM
        asked = {} if of_slurm else {n: partial(self._ask, n, each) for n, each in zip(numbers, submitted, strict=True)}
        self._watch.follow(map(self._ledger.job, numbers), asked)
        if of_slurm:
            first, last = ids[numbers[0]], ids[numbers[-1]]
            self._shown.say(
                f"Slurm has queued {watching.count_jobs(numbers)}: {first}{f' to {last}' if first != last else ''}"
            )

    def _ask(self, number: int, submitted: Any) -> str:
        """The state of a job of submitit that is a process of this machine, in Slurm's words."""
        if submitted.done():
            return ""
        return "RUNNING" if jobs.starts(self._sweep, number) else "PENDING"

    @contextlib.contextmanager
    def _followed_by_a_thread(self, numbers: Sequence[int]) -> Iterator[None]:
        """Within the block, a thread follows jobs of a launcher that returns at their end."""
        returned = threading.Event()

        def asked() -> str:
            return "" if returned.is_set() else "PENDING"

        def follow() -> None:
            with Ledger(self._sweep) as own:
                while not returned.wait(_LOOK_EVERY):
                    self._look(own)

        self._watch.follow(map(self._ledger.job, numbers), dict.fromkeys(numbers, asked))
        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            returned.set()
            thread.join()


@contextlib.contextmanager
def _submitting(note: Callable[[str, Sequence[Any]], None]) -> Iterator[None]:
    """Within the block, submitit's launchers submit their jobs, and return without waiting for them.

    Args:
        note: called with the kind of cluster and what was submitted.
    """
    import submitit

    class Executor(submitit.AutoExecutor):
        """Passes on what it has submitted."""

        def map_array(self, fn: Callable[..., Any], *iterable: Iterable[Any]) -> list[Any]:
            submitted = super().map_array(fn, *iterable)
            note(self.cluster, submitted)
            return [_Submitted() for _ in submitted]

    original = submitit.AutoExecutor
    setattr(submitit, "AutoExecutor", Executor)  # noqa: B010 (mypy lets no class be replaced)
    try:
        yield
    finally:
        setattr(submitit, "AutoExecutor", original)  # noqa: B010


class _Submitted:
    """What a launcher of submitit waits for: nothing."""

    def results(self) -> list[None]:
        """The results of the job, which are in its folder."""
        return [None]


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
        raise ConfigError(
            [Fault(f"{path}.{key}", format_value(values.get(key)), rule, remedies[key]) for key in unknown]
        )
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
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return None
        return {"_target_", *parameters}
    return {str(key) for key in schema}


def require_package(overrides: Sequence[Override]) -> None:
    """Makes sure that a launcher that is chosen on the command line is installed.

    Raises:
        CommandLineError: it is not.
    """
    chosen = [str(override.value()) for override in overrides if override.key_or_group == "hydra/launcher"]
    package = _PACKAGES.get(chosen[-1]) if chosen else None
    if package is not None and importlib.util.find_spec(f"hydra_plugins.{package.replace('-', '_')}") is None:
        rule = f"hydra/launcher={chosen[-1]} needs the package {package}, which is not installed"
        raise CommandLineError(f"{rule}\n    pip install {package}")


@dataclass(frozen=True)
class Asked:
    """What a launcher starts for each job.

    Attributes:
        tasks: processes; several are the workers of the job.
        cores: of each; None: the launcher does not say.
    """

    tasks: int = 1
    cores: int | None = None


def asked(engine: Engine) -> Asked:
    """What the settings of a launcher ask for."""
    tasks, nodes = (engine.setting(key) for key in (_TASKS, _NODES))
    cores = engine.setting(_CORES) or engine.setting(_RAY_CORES)
    return Asked(
        (tasks if type(tasks) is int else 1) * (nodes if type(nodes) is int else 1),
        int(cores) if isinstance(cores, int | float) and cores >= 1 else None,
    )


def with_share(strategy: Strategy, engine: Engine | None, at_once: int) -> Strategy:
    """The strategy of a job with its share of the cores; see `processes.with_threads`.

    Args:
        engine: the launcher of others that runs the job; None: embexp's own.
        at_once: number of jobs that share this machine, with embexp's own launcher.
    """
    if engine is None:
        return processes.with_threads(strategy, at_once)
    found = asked(engine)
    return strategy if found.cores is None else processes.with_threads(strategy, 1, found.tasks * found.cores)


def faults(engine: Engine | None, strategies: Iterable[Strategy]) -> Iterator[Fault]:
    """What keeps the processes that a launcher starts from being the workers of the jobs, each once."""
    found = Asked() if engine is None else asked(engine)
    for strategy in dict.fromkeys(strategies):
        several = isinstance(strategy, MultiWorker) and strategy.workers > 1
        if several and isinstance(strategy, MultiWorker) and strategy.addresses is not None:
            rule = "each job of a sweep needs its own addresses"
            yield Fault("strategy.addresses", format_value(list(strategy.addresses)), rule, "leave it null")
        if several and "TF_CONFIG" in os.environ:
            rule = "each job of a sweep finds its own workers, but this names those of a single run"
            yield Fault("TF_CONFIG", "set in the environment", rule, "unset it")
        if engine is not None and found.tasks > 1:
            yield from _wrong_tasks(engine, found.tasks, strategy)


def _wrong_tasks(engine: Engine, tasks: int, strategy: Strategy) -> Iterator[Fault]:
    each, nodes, workers = engine.setting(_TASKS), engine.setting(_NODES), processes.workers_of(strategy)
    key, value = (_NODES, nodes) if each == 1 else (_TASKS, each)
    path = f"hydra.launcher.{key}"
    if not engine.has_tasks:
        rule = f"{engine.name} runs a job in one process of this machine, which starts its other workers itself"
        yield Fault(path, format_value(value), rule, f"set {path}=1")
        return
    starts = f"Slurm would start {tasks} tasks for each job, {_NODES}={nodes} times {_TASKS}={each}"
    if workers == 1:
        rule = f"{starts}, but a job of strategy={strategy.kind} is one process"
        remedy = f"set strategy=multi_worker strategy.workers={tasks}, or {path}=1"
        yield Fault(path, format_value(value), rule, remedy)
    elif workers != tasks:
        rule = f"{starts}: one for each worker"
        remedy = (
            f"set strategy.workers={tasks}, set as many tasks as workers, or set one task, which starts all workers"
        )
        yield Fault("strategy.workers", str(workers), rule, remedy)


def planned(engine: Engine | None, launching: Launching, strategies: Sequence[Strategy]) -> list[str]:
    """What is asked of a launcher for each job, and where workers run, for people; nothing to tell of plain jobs here.

    Args:
        engine: the launcher of others that runs the jobs; None: embexp's own, with the settings `launching`.
        strategies: of the jobs that are to run.
    """
    found, at_once = [], processes.jobs_at_once(launching, strategies, processes.visible_gpus())
    if engine is not None:
        settings = {key: value for key in _SCHEDULED if (value := engine.setting(key)) is not None}
        words = " ".join(f"{key}={value}" for key, value in settings.items())
        found.append(f"hydra/launcher={engine.name}{f', for each job: {words}' if words else ''}")
    for workers in sorted({processes.workers_of(strategy) for strategy in strategies} - {1}):
        shared = next(each for each in strategies if processes.workers_of(each) == workers)
        tasks = 1 if engine is None else asked(engine).tasks
        where = "each a task of the scheduler" if tasks > 1 else "started by the job, on its own machine"
        threads = with_share(shared, engine, at_once).intra_op_threads
        own = f"threads of each: {threads or 'all cores that it may use'}"
        found.append(f"jobs of {workers} workers, {where}; {own}")
    return found
