"""`embexp check`: whether experiments have the results that they claim, by what they expect of themselves."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.cli.arguments import Parser, add_config_folders, config_folders, config_loader
from embexp.cli.commands import DONE, FAILED
from embexp.cli.commands.finished import write_json
from embexp.errors import CommandLineError, ConfigError, EmbexpError
from embexp.system import interruption
from embexp.system.printable import print

if TYPE_CHECKING:
    from embexp.config.loader import Loader
    from embexp.reports.claims import ClaimsChecked
    from embexp.specs.run import RunSpec

HELP = """\
usage: embexp check DIR|EXPERIMENT… [OVERRIDES] [--out DIR] [--json] [--config-dir DIR] [--allow-code M:F]

Checks results against the claims that an experiment makes under `expect`, such as
`expect: {test.auc: {value: 0.928, within: 0.005, source: "Table 2"}}`.

If you give a directory, all finished runs and sweeps in it are checked against the claims that they recorded. A run
without recorded claims is checked against the current YAML of its experiment. Nothing is trained.

If you give an experiment, it is run first, in a folder of the same name inside --out. A pattern such as 'published/*'
selects all experiments that match; these are the figures in docs/benchmarks.md. Set the environment variable
EMBEXP_DATA to the folder of their data. Overrides work as in `embexp run` and apply to all experiments:
train.steps=100, data.path=FILE. An experiment with seeds=3 or hydra.mode: MULTIRUN is run as a sweep, and the mean over
its seeds and folds is checked.

If a claim can't be checked because the data is missing or the run failed, it is listed with the reason.

    --out DIR              Sets the folder of the runs (default: outputs/DATE/TIME_check). If a check was killed, repeat
                           it with the same folder: complete runs are kept, and the others are resumed.
    --json                 Prints one JSON object to standard output. Output of the runs goes to standard error.
    -cd, --config-dir DIR  Adds a folder of your own configs, which take precedence over the shipped ones.
    -cp, --config-path DIR, -cn, --config-name N, --allow-code M:F
                           Work as in `embexp run`.

    embexp check outputs/2026-01-31/12-00-00
    embexp check published/umls published/wn18rr --out checked
    EMBEXP_DATA=~/data embexp check 'published/*' --out checked

The exit status is 0 if all claims hold, 1 if one fails or can't be checked, and 2 if the config or the command line is
invalid.
"""

_OURS = ("experiment", "hydra.run.dir", "hydra.sweep.dir", "output.existing")
"""Keys that the command sets itself."""
_NOTHING = "it expects nothing of its results: give it expect: {test.METRIC: {value: …, within: …}}"


@dataclass(frozen=True)
class _Experiment:
    """An experiment to run.

    Attributes:
        arguments: those of `embexp run`.
        spec: of the run, or of what the runs of a sweep have in common.
    """

    name: str
    arguments: tuple[str, ...]
    directory: Path
    spec: RunSpec


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("check", HELP)
    add_config_folders(parser)
    parser.add_argument("overrides", nargs="*")
    parser.values("--out")
    parser.switches("--json")
    options = parser.parse(arguments)
    targets = [each for each in options.overrides if "=" not in each and not each.startswith(("~", "+"))]
    options.overrides = [each for each in options.overrides if each not in targets]
    if not targets:
        raise parser.incomplete("check what? Give experiments, or directories of finished runs")
    names, directories = _found(targets, options)
    if names:
        out = Path(options.out or time.strftime("outputs/%Y-%m-%d/%H-%M-%S_check"))
        loader = config_loader(options)
        experiments = [_experiment(name, loader, out, options) for name in names]
    elif unused := [*options.overrides, *([f"--out {options.out}"] if options.out else [])]:
        raise CommandLineError(f"{unused[0]}: finished runs are checked as they are; that is for experiments")
    from embexp.reports import claims, collected

    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        checked = []
        if directories:
            checked += claims.checked(collected.collect(directories), otherwise=lambda name: _as_now(name, options))
        for number, experiment in enumerate(experiments if names else (), 1):
            print(f"{number} of {len(names)}: {experiment.name} in {experiment.directory}", flush=True)
            checked += _run(experiment, shlex.join(["embexp", "check", *arguments]), out, options)
    if options.json:
        write_json(
            {"met": all(each.met for each in checked), "claims": [row for each in checked for row in each.rows()]}
        )
    else:
        _show(checked)
    return DONE if all(each.met for each in checked) else FAILED


def _found(targets: Sequence[str], options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The experiments and the directories that arguments name.

    Raises:
        CommandLineError: there is nothing of a name, or an override sets what the command sets.
    """
    from embexp.config.folders import EXPERIMENT
    from embexp.reports import collected, jobs

    known = config_folders(options).choices.get(EXPERIMENT, {})
    names, directories, faults = dict[str, None](), list[str](), list[str]()
    for each in targets:
        matching = [name for name in known if fnmatchcase(name, each)]
        if collected.is_run(Path(each)) or jobs.is_sweep(Path(each)):
            directories.append(each)
        elif matching:
            names |= dict.fromkeys(matching)
        elif Path(each).is_dir():
            directories.append(each)
        else:
            near = difflib.get_close_matches(each, known, n=1) or [name for name in known if name.endswith(f"/{each}")]
            meant = f"did you mean {near[0]}?" if near else "`embexp run --help` lists the experiments"
            faults.append(f"{each}: there is no experiment and no directory of this name\n    {meant}")
    for each in options.overrides:
        if (key := each.lstrip("+~").partition("=")[0]) in _OURS:
            faults.append(f"{each}: the command sets {key} itself; --out names the folder of the runs")
    if faults:
        raise CommandLineError("\n".join(faults))
    return list(names), directories


def _experiment(name: str, loader: Loader, out: Path, options: argparse.Namespace) -> _Experiment:
    """An experiment, whose config is checked; its data are not looked at.

    Raises:
        CommandLineError: its config has faults, or claims nothing.
    """
    from embexp.config import composition, folders
    from embexp.config.messages import as_override

    texts, directory = [f"experiment={as_override(name)}", *options.overrides], out / name
    try:
        spec = composition.candidate(loader, texts, look_at_data=False).spec
    except ConfigError as error:
        raise CommandLineError(f"experiment={name}: {error}") from error
    if not spec.expect:
        raise CommandLineError(f"experiment={name}: {_NOTHING}")
    given = {"--config-dir": options.config_dir, "--config-path": options.config_path}
    given |= {"--config-name": options.config_name if options.config_name != "config" else None}
    words = [word for option, value in given.items() if value for word in (option, value)]
    words += [word for code in options.allow_code for word in ("--allow-code", code)]
    if spec.seeds > 1 or folders.is_multirun(loader.folders, options.config_name, texts, flag=None):
        words += ["-m", f"hydra.sweep.dir={as_override(str(directory))}"]
    else:
        words += [f"hydra.run.dir={as_override(str(directory))}", "output.existing=continue"]
    return _Experiment(name, (*words, *texts), directory, spec)


def _run(experiment: _Experiment, command: str, out: Path, options: argparse.Namespace) -> list[ClaimsChecked]:
    """Runs an experiment, unless that is done, and checks its claims."""
    from embexp.cli.commands import run
    from embexp.reports import claims, collected

    try:
        if not _is_done(experiment):
            run.main(experiment.arguments)
        if interruption.received():
            raise KeyboardInterrupt
        return claims.checked(collected.collect([experiment.directory]), experiment.spec.expect)
    except KeyboardInterrupt as error:
        again = command if options.out else f"{command} --out {shlex.quote(str(out))}"
        error.args = (f"interrupted; to continue: {again}",)
        raise
    except ConfigError as error:
        why = "; ".join(f"{fault.path} = {fault.value}: {fault.rule}" for fault in error.faults)
    except EmbexpError as error:
        why = str(error).partition("\n")[0]
    return [claims.ClaimsChecked(experiment.name, why=why)]


def _is_done(experiment: _Experiment) -> bool:
    """Whether the folder of an experiment has a complete run of it, whose files are those that it wrote."""
    from embexp.records.differences import Kind, between
    from embexp.records.folder import RunFolder
    from embexp.records.manifest import DECIDES_NOTHING
    from embexp.reports import collected

    folder = RunFolder(experiment.directory)
    if not folder.spec.is_file():
        return False
    record = collected.read_run(folder.path)
    if not record.status.has_results or record.changes != "":
        return False
    specs = (folder.recorded_spec(), experiment.spec)
    return not between(Kind.SPEC, *(each.model_dump(mode="json") for each in specs), without=DECIDES_NOTHING)


def _as_now(name: str, options: argparse.Namespace) -> Any:
    """What an experiment expects by its YAML as it is now; None: nothing, or there is no such experiment."""
    from embexp.config import folders

    found = config_folders(options)
    if name not in found.choices.get(folders.EXPERIMENT, {}):
        return None
    return folders.outline(found, options.config_name, {folders.EXPERIMENT: name}).values.get("expect")


def _show(checked: Sequence[ClaimsChecked]) -> None:
    """Prints a table of the claims, and what is not checked."""
    from rich.text import Text

    from embexp.system import terminal

    console = terminal.console()
    names = ["expected", "met", "seconds", "source"]
    table = terminal.table(console, ["experiment", "metric"], right=["found"], after=names)
    for each in checked:
        seconds = "" if each.seconds is None else f"{each.seconds:.0f}"
        mean = f" (mean of {len(each.directories)})" if len(each.directories) > 1 else ""
        for claim in each.claims:
            met = Text("yes", "green") if claim.met else Text("NO", "bold red")
            cells = [each.name, f"{claim.split} {claim.metric}", f"{claim.measured}{mean}", claim.expected]
            table.add_row(*map(Text, cells), met, Text(seconds), Text(claim.source or ""))
    if table.row_count:
        print()
        console.print(table)
    for each in checked:
        if each.why:
            terminal.say(console, f"{each.name}: not checked: {each.why}")
    met_or_not = [claim.met for each in checked for claim in each.claims]
    without = sum(bool(each.why) for each in checked)
    parts = [f"{sum(met_or_not)} of {len(met_or_not)} claims are met"] if met_or_not else []
    terminal.say(console, "; ".join([*parts, *([f"{without} not checked"] if without else [])]))
