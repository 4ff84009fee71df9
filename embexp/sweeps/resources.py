"""What a launcher starts for a job: how many processes, on how many cores, what is wrong with that, and in words.

A job of several workers (`strategy=multi_worker`) runs in one of two ways. Slurm starts a task for each worker, if the
launcher asks for several. Else the job is one process, wherever that is, and starts the others beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from embexp.config.messages import format_value
from embexp.errors import Fault
from embexp.specs.running import Launching
from embexp.specs.strategies import MultiWorker, Strategy
from embexp.sweeps import processes
from embexp.sweeps.engines import Engine

_TASKS, _NODES, _CORES = "tasks_per_node", "nodes", "cpus_per_task"
_RAY_CORES = "ray.remote.num_cpus"
_SCHEDULED = (
    *(_NODES, _TASKS, _CORES, "gpus_per_node", "mem_gb", "timeout_min", "partition", "qos", "account", "constraint"),
    *("gres", "max_num_timeout", _RAY_CORES),
)
"""Settings of launchers that `plan` shows."""


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
            rule = "each job of a sweep has addresses of its own"
            yield Fault("strategy.addresses", format_value(list(strategy.addresses)), rule, "leave it null")
        if several and "TF_CONFIG" in os.environ:
            rule = "each job of a sweep finds its own workers, and this names those of a single run"
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
        rule = f"{starts}, and a job of strategy={strategy.kind} is one process"
        remedy = f"set strategy=multi_worker strategy.workers={tasks}, or {path}=1"
        yield Fault(path, format_value(value), rule, remedy)
    elif workers != tasks:
        rule = f"{starts}: one for each worker"
        remedy = f"set strategy.workers={tasks}, or as many tasks as workers, or one task, which starts all workers"
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
