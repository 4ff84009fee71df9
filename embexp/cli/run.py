"""`embexp run`: a single experiment, or a sweep over several."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from embexp.cli import commands
from embexp.cli.arguments import Parser, add_config_arguments, config_folders, config_loader, is_multirun, permission
from embexp.cli.commands import DONE, FAILED, print
from embexp.errors import CommandLineError
from embexp.system import collector, interruption

if TYPE_CHECKING:
    from embexp.config.folders import Folders
    from embexp.runs.run import RunResult
    from embexp.specs.run import RunSpec

USAGE = (
    "embexp run [OVERRIDES] [-m [--fresh]] [--config-dir DIR] [--cfg job|hydra|all] [--spec FILE] [--allow-code M:F]"
)

HELP = f"""\
usage: {USAGE}

Composes a config, checks it and runs the experiment. Nothing is written unless the config is valid.

overrides
    model=mlp                                Chooses another file of a group.
    optimizer.learning_rate=0.01             Sets a value.
    optimizer@tables.item.optimizer=adam     Chooses for one table; also for init, freeze, pretrained.
    +model.args.width=64                     Adds a key that the config allows.
    ~features.history                        Removes a key.
    hydra.run.dir=DIR                        Names the directory of the run; hydra.sweep.dir=DIR of a sweep.
    output.existing=continue                 If DIR has a run already: refuse, number (DIR_2), replace or continue.

options
    -m, --multirun         Runs all combinations of the values: optimizer=sgd,adam 'data.fold=range(0,5)'.
    --fresh                With -m, starts in a new directory, even if hydra.sweep.dir has this sweep already.
    -cd, --config-dir DIR  Adds a folder of your own configs, which take precedence over shipped ones.
    -cp, --config-path DIR Replaces the shipped configs with those of a folder or a package (pkg://NAME).
    -cn, --config-name N   Starts from N.yaml instead of config.yaml.
    -c, --cfg WHAT         Only shows the config: job (the experiment's), hydra or all.
    -p, --package NODE     With --cfg, shows only this node, such as tables.item.
    --resolve              With --cfg, resolves interpolations.
    -sc                    Installs completion in a shell: see `embexp completion --help`.
    --spec FILE            Runs a recorded spec: the spec.json of a run, or its directory. Only train.steps,
                           train.epochs, output, checkpoint and hydra.run.dir can be overridden.
    --allow-code M:F       Allows the function F of the module M to be run; can be repeated. A config of your own needs
                           it for functions outside of your own modules, a recorded spec (--spec) for all.

sweeps
    hydra.launcher.jobs=4                    Runs four jobs at once; also timeout_minutes, retries, stop_after.
    seeds=5                                  Runs each setting with five seeds.
    sweep.exclude='[{{init: constant, freeze: table}}]'    Excludes combinations.
    The same sweep in the same directory runs only missing jobs; `embexp resume DIR` finishes it, too.
    `embexp report DIR` shows what its jobs do, `embexp sweep cancel DIR` cancels those that are queued or running.

The exit status is 0 on success, 1 if the run failed, 2 if the config or the command line is invalid, and 130, 143 or
129 if it was interrupted by Ctrl-C, SIGTERM or SIGHUP.

groups and their choices
"""


_NESTED_GROUPS = {
    "table": "table@tables.NAME",
    "feature": "feature@features.NAME",
    "initializer": "initializer@tables.NAME.initializer",
    "schedule": "schedule@optimizer.schedule",
}
"""Groups whose choices are nested inside the config."""


class Result(Protocol):
    """The result of a run."""

    @property
    def status(self) -> str:
        """completed, stopped_early, interrupted or failed."""
        ...


Runner = Callable[["RunSpec", Path], Result]
"""Runs a spec in an existing directory."""


def main(arguments: Sequence[str], *, runner: Runner | None = None) -> int:
    """Runs the command.

    Args:
        arguments: those after `run`.
        runner: runs a single experiment; None: run it with progress on the terminal and in run.log.
    """
    options = _parse(arguments)
    if options.shell_completion:
        from embexp.cli.completion import shell_completion

        return shell_completion(options.overrides)
    if options.help:
        print(HELP + _group_choices(config_folders(options)))
        return DONE
    if options.spec is not None:
        from embexp.cli.recorded import run_recorded

        collector.begin()
        runs = runner or _run_with_log
        return run_recorded(
            options, lambda spec, found: _status((resumed if found.continues else runs)(spec, found.path))
        )
    if options.cfg is not None:
        from embexp.cli.show_config import show

        return show(options)
    if options.package is not None or options.resolve:
        raise CommandLineError("--package and --resolve are options of --cfg: add --cfg job")
    if is_multirun(options):
        from embexp.sweeps.sweep import sweep

        collector.begin()
        succeeded = sweep(
            options.overrides,
            config_dir=options.config_dir,
            config_name=options.config_name,
            config_path=options.config_path,
            fresh=options.fresh,
            permission=permission(options),
        )
        return DONE if succeeded else FAILED
    return _run_one(options, runner or _run_with_log)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("run", USAGE)
    add_config_arguments(parser)
    parser.add_argument("-c", "--cfg", choices=("job", "hydra", "all"))
    parser.add_argument("-p", "--package")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("-sc", "--shell-completion", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--spec")
    options = parser.parse_intermixed_args(list(arguments))
    if options.multirun and options.cfg:
        raise CommandLineError("-m runs several experiments, --cfg is for one")
    if options.fresh and not is_multirun(options):
        raise CommandLineError("--fresh is for sweeps; output.existing=number gives a single run a new directory")
    return options


def _group_choices(found: Folders) -> str:
    """Lists every group with its choices, each with the first comment of its file."""
    from embexp.config import folders

    lines = []
    for group, choices in found.choices.items():
        lines.append(f"  {_NESTED_GROUPS.get(group, group)}=")
        width = max(map(len, choices))
        lines += [f"      {choice:{width}}  {folders.about(path)}" for choice, path in choices.items()]
    return "\n".join(lines)


def _run_one(options: argparse.Namespace, runner: Runner) -> int:
    from embexp.config import composition
    from embexp.config.composing import hydra_job, record
    from embexp.config.composing.hydra_job import Callbacks
    from embexp.records import output_directory
    from embexp.specs import run
    from embexp.specs.running import Existing

    allowed = permission(options)
    with interruption.nothing_begun():
        job = composition.job(config_loader(options), options.overrides)
    collector.begin()
    config = job.composition.config
    callbacks = Callbacks(config, allowed)
    existing = Existing.NUMBER if record.is_dated(config) else job.spec.output.existing
    with output_directory.opened(
        record.run_directory(config),
        job.spec,
        existing,
        before=lambda directory: record.write(config, directory),
        warn=commands.warn,
    ) as found:
        folder = found.path.absolute() if config.hydra.job.chdir else found.path
        print(f"{job.spec.name} in {found.path}", flush=True)
        for warning in run.doubtful_settings(job.spec):
            print(f"warning: {warning}", flush=True)
        runs = resumed if found.continues else runner
        return _status(hydra_job.call(config, callbacks, allowed, folder, lambda: runs(job.spec, folder)))


def resumed(spec: RunSpec, directory: Path) -> Result:
    """Completes the run of the same spec in a directory."""
    from embexp.cli import resume
    from embexp.records import allowed_code

    return resume.resume_run(directory, (), allowed_code.named(spec))  # the config that names the code was checked


def _status(result: Result) -> int:
    return FAILED if result.status in ("interrupted", "failed") else DONE


def _run_with_log(spec: RunSpec, directory: Path) -> Result:
    """Runs an experiment with progress and results on the terminal and in run.log."""
    from embexp.cli.logged import Shown, logged

    def execute(shown: Shown) -> RunResult:
        from embexp.studies import run as studies

        return studies.run(spec, directory, listeners=shown.listeners, progress=shown.stages, announce=shown.announce)

    return logged(spec, directory, execute)
