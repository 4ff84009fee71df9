"""`embexp run`: a single experiment, or a sweep over several."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.cli import commands, workers
from embexp.cli.arguments import Parser, add_config_arguments, config_folders, config_loader, is_multirun, permission
from embexp.cli.commands import DONE, FAILED, exit_status
from embexp.errors import CommandLineError, ConfigError, WorkerLostError
from embexp.system import environment, interruption, printable
from embexp.system.printable import print

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from embexp.config.folders import Folders
    from embexp.records.folder import RunFolder
    from embexp.records.outputs import OutputDirectory
    from embexp.runs.run import RunResult
    from embexp.specs.run import RunSpec
    from embexp.system.user_code import UserCode

HELP = """\
usage: embexp run [OVERRIDES] [-m [--fresh] [--narrow]] [--config-dir DIR] [--cfg job|hydra|all] [--spec FILE]
                  [--allow-code M:F]

Composes a config, checks it and runs the experiment. Nothing is written unless the config is valid.

overrides
    model=mlp                                Chooses another file of a group.
    optimizer.learning_rate=0.01             Sets a value.
    optimizer@tables.item.optimizer=adam     Chooses for one table. This also works for init, freeze and pretrained.
    +model.args.width=64                     Adds a key that the config allows.
    ~features.history                        Removes a key.
    hydra.run.dir=DIR                        Sets the directory of the run; hydra.sweep.dir=DIR sets that of a sweep.
    output.existing=continue                 Decides what happens if DIR already has a run: refuse, number (use DIR_2),
                                             replace or continue.

options
    -m, --multirun         Runs all combinations of the values: optimizer=sgd,adam 'data.fold=range(0,5)'.
    --fresh                With -m, starts in a new directory, even if hydra.sweep.dir already has this sweep.
    --narrow               With -m, continues a search in a smaller space. Trials outside of it no longer count.
    -cd, --config-dir DIR  Adds a folder of your own configs, which take precedence over the shipped ones.
    -cp, --config-path DIR Replaces the shipped configs with those of a folder or a package (pkg://NAME).
    -cn, --config-name N   Starts from N.yaml instead of config.yaml.
    -c, --cfg WHAT         Shows the config without running: job (the experiment's), hydra or all.
    -p, --package NODE     With --cfg, shows only this node, such as tables.item.
    --resolve              With --cfg, resolves interpolations.
    --spec FILE            Runs a recorded spec: the spec.json of a run, or its directory. You can only override
                           train.steps, train.epochs, output, checkpoint and hydra.run.dir.
    --allow-code M:F       Allows the function F of module M to run. You can repeat it. Your own config needs it for
                           functions outside your own modules or inside a folder of configs. A recorded spec (--spec)
                           needs it for every function.

sweeps
    hydra.launcher.jobs=4                    Runs four jobs at once. See also timeout_minutes, retries and stop_after.
    hydra/launcher=submitit_slurm            Runs jobs on Slurm. hydra.launcher.tasks_per_node=2 starts a task for each
                                             worker of strategy=multi_worker. `embexp plan -m` shows the request.
    seeds=5                                  Runs each setting with five seeds.
    'zip(model,optimizer)=[mlp,sgd],[dlrm,adam]'         Pairs the values: two jobs instead of four.
    sweep.exclude='[{init: constant, freeze: table}]'    Excludes combinations.
    If you repeat a sweep in the same directory, only missing jobs run. `embexp resume DIR` finishes it, too.
    `embexp report DIR` shows the state of its jobs. `embexp sweep cancel DIR` cancels queued and running jobs.

The exit status is 0 on success, 1 if the run failed, and 2 if the config or the command line is invalid. If Ctrl-C,
SIGTERM or SIGHUP interrupts the command, it is 130, 143 or 129.

groups and their choices
"""


_NESTED_GROUPS = {
    "table": "table@tables.NAME",
    "feature": "feature@features.NAME",
    "initializer": "initializer@tables.NAME.initializer",
    "schedule": "schedule@optimizer.schedule",
}
"""Groups whose choices are nested inside the config."""
SPEC_FILE = "spec.json"


Runner = Callable[["RunSpec", Path], "RunResult"]
"""Runs a spec in an existing directory."""


def main(arguments: Sequence[str], *, runner: Runner | None = None) -> int:
    """Runs the command; `runner` runs a single experiment; None: with progress on the terminal and in run.log."""
    options = _parse(arguments)
    if options.shell_completion:
        from embexp.cli.commands.completion import shell_completion

        return shell_completion(options.overrides)
    if options.help:
        print(HELP + _group_choices(config_folders(options)))
        return DONE
    if options.spec is not None:
        environment.begin_collecting()
        return _run_recorded(options, runner or run_with_log)
    if options.cfg is not None:
        return _show_config(options)
    if options.package is not None or options.resolve:
        raise CommandLineError("--package and --resolve are options of --cfg: add --cfg job")
    if is_multirun(options):
        from embexp.sweeps.sweep import sweep

        environment.begin_collecting()
        succeeded = sweep(
            options.overrides,
            config_dir=options.config_dir,
            config_name=options.config_name,
            config_path=options.config_path,
            fresh=options.fresh,
            narrow=options.narrow,
            permission=permission(options),
        )
        return DONE if succeeded else FAILED
    return _run_one(options, runner or run_with_log)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser("run", HELP)
    add_config_arguments(parser)
    parser.add_argument("-c", "--cfg", choices=("job", "hydra", "all"))
    parser.add_argument("-p", "--package")
    parser.switches("--resolve", "-sc", "--shell-completion", "--fresh", "--narrow")
    parser.values("--spec")
    options = parser.parse_intermixed_args(list(arguments))
    if options.multirun and options.cfg:
        raise CommandLineError("-m runs several experiments, --cfg is for one")
    if options.fresh and not is_multirun(options):
        raise CommandLineError("--fresh is for sweeps; output.existing=number gives a single run a new directory")
    if options.narrow and not is_multirun(options):
        raise CommandLineError("--narrow is for searches: add -m")
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


def _tell(options: argparse.Namespace, error: ConfigError) -> None:
    """Tells other workers of faults, such as missing data, which they may not have."""
    from embexp.config import composition

    with contextlib.suppress(ConfigError):
        composed = composition.compose_config(config_loader(options), options.overrides)
        if (spec := composition.check(composed, look_at_data=False)[0]) is not None:
            workers.refuse(spec.strategy, error)


def _run_one(options: argparse.Namespace, runner: Runner) -> int:
    from embexp.config import composition, hydra_job
    from embexp.config.hydra_job import Callbacks
    from embexp.records import outputs
    from embexp.records.folder import named_functions
    from embexp.specs import run
    from embexp.specs.running import Existing

    allowed = permission(options)
    with interruption.nothing_begun():
        try:
            job = composition.job(config_loader(options), options.overrides)
        except ConfigError as error:
            if workers.are_started_alike():
                _tell(options, error)
            raise
    environment.choose_kernels(portable=job.spec.strategy.portable)
    if workers.is_led(job.spec.strategy):
        continues = job.spec.output.existing is Existing.CONTINUE
        return workers.follow(job.spec, hydra_job.run_directory(job.composition.config) if continues else None)
    environment.begin_collecting()
    config = job.composition.config
    callbacks = Callbacks(config, allowed)
    existing = Existing.NUMBER if hydra_job.is_dated(config) else job.spec.output.existing
    try:
        with (
            workers.telling(job.spec.strategy),
            outputs.opened_directory(
                hydra_job.run_directory(config),
                job.spec,
                existing,
                before=lambda directory: hydra_job.write(config, directory),
                warn=commands.warn,
            ) as found,
        ):
            folder = found.path.absolute() if config.hydra.job.chdir else found.path
            _say_where(job.spec.name, found, composition.elsewhere(job.composition, composition.IN_RUNS))
            for warning in run.doubtful_settings(job.spec):
                print(f"warning: {warning}", flush=True)
            runs = resumed if found.continues else runner
            return exit_status(hydra_job.call(config, callbacks, allowed, folder, lambda: runs(job.spec, folder)))
    except WorkerLostError as error:
        return workers.restart(error, job.spec.strategy, folder, named_functions(job.spec))


def _say_where(name: str, found: OutputDirectory, outside: str = "") -> None:
    what = found.why
    if found.continues or found.replaces:
        what = ", whose run is completed" if found.continues else ", whose earlier run was removed"
    print(f"{name} in {found.path}{what}{outside}", flush=True)


def resumed(spec: RunSpec, directory: Path) -> RunResult:
    """Completes the run of the same spec in a directory."""
    from embexp.cli.commands import resume
    from embexp.records.folder import named_functions

    return resume.resume_run(directory, (), list(named_functions(spec)))  # the config that names the code was checked


def run_with_log(spec: RunSpec, directory: Path) -> RunResult:
    """Runs a spec in an existing directory, with progress and results on the terminal and in run.log."""
    from embexp.cli.stages import Shown, logged

    def execute(shown: Shown) -> RunResult:
        from embexp.runs import experiment

        return experiment.run(spec, directory, shown.observer)

    return logged(spec.strategy, directory, execute)


def _show_config(options: argparse.Namespace) -> int:
    """Prints the config as YAML.

    A config with faults is printed, too, and then raised as the error. Data files are not read.

    Raises:
        ConfigError: the config has faults.
        CommandLineError: the config has no such node, or it can't be resolved.
    """
    from embexp.config import composition, hydra_globals

    composed = composition.compose_config(config_loader(options), options.overrides)
    _, faults = composition.check(composed, look_at_data=False)
    with hydra_globals.borrowed(composed.config), hydra_globals.own_resolvers(composed.config):
        _print(composed.config, options.cfg, options.package, resolve=options.resolve and not faults)
    if faults:
        raise ConfigError(faults)
    return 0


def _print(config: DictConfig, what: str, package: str | None, *, resolve: bool) -> None:
    """Prints a config, or a node of it: the experiment's (job), Hydra's (hydra), or both (all)."""
    from omegaconf import Container, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    keys = [str(key) for key in config if what == "all" or (key == "hydra") == (what == "hydra")]
    node = found = OmegaConf.masked_copy(config, keys)
    if what != "job":
        OmegaConf.set_readonly(found.hydra, None)
    if resolve:
        try:
            OmegaConf.resolve(found)
        except OmegaConfBaseException as error:
            raise CommandLineError(f"--resolve: {str(error).splitlines()[0]}") from error
    if package is not None and package != "_global_":
        node = OmegaConf.select(found, package)
        if node is None:
            raise CommandLineError(f"--package {package}: the config has no such node")
        print(f"# @package {package}")
    printable.write_data(OmegaConf.to_yaml(node) if isinstance(node, Container) else f"{node}\n")


def _folder_of(path: str) -> RunFolder:
    """The folder that a recorded spec lies in.

    Raises:
        CommandLineError: there is no such file.
    """
    from embexp.records.folder import RESULTS, RunFolder

    found = Path(path)
    if found.is_file():
        if found.name != SPEC_FILE:
            raise CommandLineError(f"--spec {path}: give the {SPEC_FILE} of a run, or the directory of a run")
        found = found.parent
    if not (found / SPEC_FILE).is_file() and not (found / RESULTS).exists():
        raise CommandLineError(f"--spec {path}: there is no such file, nor a directory with a {SPEC_FILE} in it")
    return RunFolder(found)


def check_recorded(spec: RunSpec, allow_code: Sequence[str]) -> None:
    """Checks a recorded spec against every rule and against the files that it names, without TensorFlow.

    Raises:
        ConfigError: with all faults.
    """
    from embexp.config import resources
    from embexp.config.named_code import Permission
    from embexp.specs import run

    found = resources.faults(spec, Permission(frozenset(allow_code)), look_at_data=True)
    if faults := [*run.rule_faults(spec), *found]:
        raise ConfigError(faults)


def _run_recorded(options: argparse.Namespace, runner: Runner) -> int:
    """Runs a recorded spec in a new directory.

    Raises:
        UsageError: the spec names code that isn't allowed, or options and overrides don't fit a recorded spec.
        DataError: the spec, or the copy of its code, is not what the run wrote.
    """
    from embexp.config import composition, hydra_job
    from embexp.records import outputs
    from embexp.records.folder import check_code, code_of, named_functions, recorded_functions
    from embexp.specs import run, tracking
    from embexp.specs.running import Existing

    composing = {
        "-m": options.multirun,
        "--cfg": options.cfg,
        "--package": options.package,
        "--resolve": options.resolve,
        "--config-dir": options.config_dir,
        "--config-name": options.config_name != "config",
    }
    for option, given in composing.items():
        if given:
            rule = "composes a config, and --spec runs one that was recorded; give one of them"
            raise CommandLineError(f"{option} {rule}")
    folder = _folder_of(options.spec)
    folder.check(folder.spec, folder.code)
    spec = folder.recorded_spec()
    check_code(named_functions(spec), options.allow_code, record=folder.spec)
    tracking.check_addresses([spec], folder.spec)
    own = [override for override in options.overrides if not override.lstrip("+~").startswith("hydra.")]
    # Only who runs it now may have a directory replaced.
    output = spec.output.model_copy(update={"existing": type(spec.output).model_fields["existing"].default})
    spec = spec.model_copy(update={"output": output})
    if own:
        rule = "a recorded spec is run as it was recorded"
        spec = composition.changed_spec(spec.model_dump(mode="json"), own, composition.loader(), rule=rule)
    check_recorded(spec, options.allow_code)
    environment.choose_kernels(portable=spec.strategy.portable)
    composed = composition.compose_config(
        composition.loader(), [override for override in options.overrides if override not in own]
    )
    if composed.faults:
        raise ConfigError(composed.faults)
    directory = hydra_job.run_directory(composed.config)
    existing = Existing.NUMBER if hydra_job.is_dated(composed.config) else spec.output.existing
    with outputs.opened_directory(directory, spec, existing, warn=commands.warn) as found:
        _say_where(spec.name, found)
        for sentence in _import_sentences(folder, code_of(recorded_functions(spec), run.own_fields(spec))):
            print(sentence, flush=True)
        return exit_status((resumed if found.continues else runner)(spec, found.path))


def _import_sentences(folder: RunFolder, code: UserCode | None) -> list[str]:
    """From where the code is imported that a recorded spec names, and whether it is still what the run has recorded."""
    found = []
    for file in code.files.values() if code is not None else ():
        copy = folder.code / file.name
        state = "" if not copy.is_file() or copy.read_bytes() == file.content else f"; it differs from {copy}"
        found.append(f"code: {file.path}{state}")
    return found
