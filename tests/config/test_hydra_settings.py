"""Every setting of the node `hydra` has an effect, or is refused."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.conf import HydraConf
from omegaconf import OmegaConf

import embexp
from embexp.cli import commands
from embexp.cli.commands import run
from embexp.config.hydra_settings import SETTINGS, Use, setting_at
from embexp.errors import CommandLineError, ConfigError
from embexp.specs.run import RunSpec


@dataclass
class Runner:
    """Notes what surrounds a run."""

    status: str = "completed"
    seen: dict[str, Any] = field(default_factory=dict)

    def __call__(self, spec: RunSpec, directory: Path) -> Runner:
        root = logging.getLogger()
        self.seen = {
            "directory": directory,
            "cwd": Path.cwd(),
            "variable": os.environ.get("EMBEXP_TEST"),
            "level": root.level,
            "handlers": len(root.handlers),
        }
        logging.getLogger("mine").info("a line of my model")
        return self


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keys(node: Any, prefix: str) -> Iterator[str]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from keys(value, f"{prefix}.{key}")
        else:
            yield f"{prefix}.{key}"


def test_every_key_that_hydra_has_is_in_the_table() -> None:
    known = OmegaConf.to_container(OmegaConf.structured(HydraConf()))
    assert isinstance(known, dict)
    known.pop("defaults", None)
    missing = [key for key in keys(known, "hydra") if setting_at(key) is None]
    assert missing == []
    for setting in SETTINGS:
        assert setting.text
        assert (setting.use is Use.NEVER) == bool(setting.remedy)


def test_the_page_says_when_each_has_an_effect(root: Path) -> None:
    lines = (root / "docs" / "config.md").read_text().splitlines()
    titles = {Use.ALWAYS: "always", Use.RUN: "in single runs", Use.SWEEP: "in sweeps", Use.NEVER: "never: refused"}
    for use, title in titles.items():
        [row] = [line for line in lines if line.startswith(f"| {title} |")]
        paths = [f"`{each.path}`" for each in SETTINGS if each.use is use]
        assert row == f"| {title} | {', '.join(paths)} |"


FAULTS = {
    "unknown": ("hydra.foo=1", "Hydra has no such setting"),
    "unknown, added": ("+hydra.foo=1", "Hydra has no such setting"),
    "a typo": ("hydra.run.dri=x", "did you mean hydra.run.dir?"),
    "an unknown group": ("hydra/foo=x", "Hydra has no such setting"),
    "an empty directory": ("hydra.run.dir=", "it must be a folder"),
    "no directory": ("hydra.run.dir=null", "hydra.run.dir=DIR, or leave it out"),
    "a search path": ("hydra.searchpath=[x]", "name your folder with --config-dir"),
    "a help text": ("hydra.help.header=x", "embexp has its own help"),
    "a number of Hydra's": ("hydra.job.num=3", "embexp sets it"),
    "an output directory": ("hydra.runtime.output_dir=x", "embexp sets it"),
    "an unknown mode": ("hydra.mode=x", "expected one of [RUN, MULTIRUN]"),
    "a wrong switch": ("hydra.job.chdir=maybe", "hydra.job.chdir = 'maybe': Hydra rejects it"),
    "a wrong verbosity": ("hydra.verbose=1.5", "it must be true, false, the name of a logger"),
    "a folder outside": ("hydra.output_subdir=../x", "it must be inside the directory above it"),
    "an unnamed folder": ("hydra.output_subdir=", "it must be a folder"),
    "a removal": ("~hydra.run.dir", "a setting of Hydra can't be removed"),
    "a package": ("hydra.verbose@a=true", "only a group choice may have an @"),
    "a variable without +": ("hydra.job.env_set.A=b", "use +hydra.job.env_set.A=b"),
    "a callback that is no mapping": ("+hydra.callbacks.x=5", "a callback must be a mapping with _target_"),
    "a callback that is not there": ("+hydra.callbacks.x._target_=no.Such", "there is no module 'no'"),
    "a callback that is none": ("+hydra.callbacks.x._target_=tests.cli.test_run.FakeRunner", "does not extend"),
    "a launcher by its class": ("hydra.launcher._target_=x", "choose one: hydra/launcher=NAME"),
    "a key of the launcher": ("hydra.launcher.jbos=2", "did you mean hydra.launcher.jobs"),
    "a setting of sweeps": ("hydra.launcher.jobs=2", "add -m, or remove it"),
    "the directory of a sweep": ("hydra.sweep.dir=x", "it only has an effect in sweeps"),
    "an unknown sweeper": ("hydra/sweeper=nope", "group hydra/sweeper has "),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault(case: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    override, words = FAULTS[case]
    assert commands.main(["run", override, "seed=-1"] if "callback that is" not in case else ["run", override]) == 2
    text = capsys.readouterr().err
    assert words in text
    assert "Traceback" not in text
    assert "callback" in case or "seed = -1" in text  # all faults at once
    assert list(elsewhere.iterdir()) == []


IN_SWEEPS = {
    "the directory of a run": ("hydra.run.dir=x", "it only has an effect in single runs"),
    "a working directory": ("hydra.job.chdir=true", "each job has its own directory"),
    "variables": ("+hydra.job.env_set.A=b", "set the variables before the command"),
    "loggers": ("hydra/job_logging=default", "hydra/job_logging=none"),
    "several values": ("hydra.verbose=true,false", "a Hydra setting has one value"),
    "a key of the sweeper": ("+hydra.sweeper.max_bach_size=2", "did you mean max_batch_size?"),
    "a key of what another launcher hands on": (
        "hydra.launcher.additional_parameters.x=1",
        "use +hydra.launcher.additional_parameters.x=1",
    ),
    "a sweeper by its class": ("hydra.sweeper._target_=x", "choose one: hydra/sweeper=NAME"),
}


@pytest.mark.parametrize("case", IN_SWEEPS)
def test_a_fault_in_a_sweep(case: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    override, words = IN_SWEEPS[case]
    other = ["hydra/launcher=submitit_slurm"] if "another launcher" in case else []
    assert commands.main(["run", "-m", "seed=1,2", *other, override]) == 2
    assert words in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []


def test_a_file_with_a_refused_setting(elsewhere: Path) -> None:
    (elsewhere / "own").mkdir()
    (elsewhere / "own" / "mine.yaml").write_text("defaults: [config, _self_]\nhydra: {job: {id: 5}}\n")
    with pytest.raises(ConfigError, match=r"hydra\.job\.id = 5: embexp sets it"):
        run.main(["--config-dir", "own", "--config-name", "mine"], runner=Runner())


def test_what_surrounds_a_run(elsewhere: Path) -> None:
    runner, before = Runner(), (Path.cwd(), logging.getLogger().level, list(logging.getLogger().handlers))
    words = ["hydra.run.dir=out", "hydra.job.chdir=true", "+hydra.job.env_set.EMBEXP_TEST=5", "hydra.verbose=true"]
    assert run.main([*words, "hydra/job_logging=default", "hydra.job.name=mine"], runner=runner) == 0
    directory = elsewhere / "out"
    assert (runner.seen["directory"], runner.seen["cwd"], runner.seen["variable"]) == (directory, directory, "5")
    assert runner.seen["level"] == logging.DEBUG
    assert "a line of my model" in (directory / "mine.log").read_text()
    assert (Path.cwd(), logging.getLogger().level, list(logging.getLogger().handlers)) == before
    assert "EMBEXP_TEST" not in os.environ


def test_a_logger_by_name(elsewhere: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("mine").setLevel(logging.NOTSET)
    assert run.main(["hydra.verbose=mine"], runner=Runner()) == 0
    assert logging.getLogger("mine").level == logging.DEBUG
    logging.getLogger("mine").setLevel(logging.NOTSET)


def test_loggers_that_python_rejects(elsewhere: Path) -> None:
    words = ["hydra/job_logging=default", "hydra.job_logging.version=2", "hydra.run.dir=out"]
    with pytest.raises(ConfigError, match=r"hydra\.job_logging = a configuration: Python's logging rejects it"):
        run.main(words, runner=Runner())


CALLBACK = """
from hydra.experimental.callback import Callback
heard = []
class Ears(Callback):
    def on_run_start(self, config, **rest): heard.append(("run start", config.hydra.runtime.output_dir))
    def on_job_start(self, config, **rest): heard.append(("job start", config.seed))
    def on_job_end(self, config, job_return, **rest): heard.append(("job end", job_return.status.name))
    def on_run_end(self, config, **rest): heard.append(("run end", rest["config_name"]))
class Ends(Callback):
    def on_multirun_end(self, config, **rest): pass
"""


@pytest.fixture
def ears(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    import importlib

    (elsewhere / "ears_of_a_test.py").write_text(CALLBACK)
    monkeypatch.syspath_prepend(elsewhere)
    module = importlib.import_module("ears_of_a_test")
    module.heard.clear()
    return module


def test_callbacks_of_a_single_run(ears: Any, elsewhere: Path) -> None:
    words = ["+hydra.callbacks.mine._target_=ears_of_a_test.Ears", "hydra.run.dir=out", "seed=7"]
    assert run.main(words, runner=Runner()) == 0
    out = str(elsewhere / "out")
    expected = [("run start", out), ("job start", 7), ("job end", "COMPLETED"), ("run end", "config")]
    assert ears.heard == expected

    def failing(spec: RunSpec, directory: Path) -> Runner:
        raise embexp.RunError("no room")

    with pytest.raises(embexp.RunError, match="no room"):
        run.main(words, runner=failing)
    assert ears.heard[-2:] == [("job end", "FAILED"), ("run end", "config")]


def test_callbacks_of_jobs_are_refused_in_a_sweep(ears: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "-m", "seed=1,2", "+hydra.callbacks.mine._target_=ears_of_a_test.Ears"]
    assert commands.main(words) == 2
    assert "the jobs of a sweep run in processes without callbacks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "several"),
    [
        (["hydra.mode=MULTIRUN"], True),
        (["hydra.mode=RUN"], False),
        (["-r"], False),
        ([], False),
        (["-m"], True),
        (["-m", "hydra.mode=MULTIRUN"], True),
        (["-cd", "own", "-cn", "many"], True),
    ],
)
def test_mode(words: list[str], several: bool, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (elsewhere / "own").mkdir()
    (elsewhere / "own" / "many.yaml").write_text("defaults: [config, _self_]\nhydra: {mode: MULTIRUN}\n")
    assert commands.main(["plan", *words, "seed=1,2"]) == (0 if several else 2)
    assert ("2 of 2 jobs would run" in capsys.readouterr().out) == several


@pytest.mark.parametrize("words", [["-m", "hydra.mode=RUN"], ["-r", "hydra.mode=MULTIRUN"], ["-m", "-r"]])
def test_contradicting_modes(words: list[str]) -> None:
    with pytest.raises(CommandLineError):
        run.main(words, runner=Runner())


def test_config_path_replaces_the_shipped_folder(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (elsewhere / "own").mkdir()
    (elsewhere / "own" / "config.yaml").write_text("name: mine\n")
    assert commands.main(["run", "--config-path", "own", "--cfg", "job"]) == 2  # a whole config needs more
    assert yaml.safe_load(capsys.readouterr().out) == {"name": "mine"}
    assert commands.main(["run", "--config-path", "pkg://embexp.conf", "--cfg", "job", "-p", "seed"]) == 0
    assert capsys.readouterr().out.endswith("\n0\n")
    for nowhere, what in (("no/such", "folder"), ("pkg://no.such", "package"), ("pkg://embexp.errors", "package")):
        assert commands.main(["plan", "--config-path", nowhere]) == 2
        assert f"--config-path {nowhere}: there is no such {what}" in capsys.readouterr().err
