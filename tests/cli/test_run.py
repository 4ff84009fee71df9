"""`embexp run` up to where the experiment starts."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

import embexp
from embexp.cli import commands
from embexp.cli.commands import run
from embexp.config import composition
from embexp.errors import ConfigError, DataError
from embexp.records.folder import RunFolder
from embexp.specs.run import RunSpec
from embexp.system import environment


@dataclass
class FakeRunner:
    """Notes what it is given."""

    status: str = "completed"
    steps: int = 0
    runs: list[tuple[RunSpec, Path]] = field(default_factory=list)

    def __call__(self, spec: RunSpec, directory: Path) -> FakeRunner:
        self.runs.append((spec, directory))
        if self.steps:
            RunFolder(directory).metrics.write_text('{"step": 1}\n')
        return self


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_gets_a_directory_with_what_hydra_records() -> None:
    runner = FakeRunner()
    assert run.main(["train.steps=7", "hydra.run.dir=here"], runner=runner) == 0
    (spec, directory) = runner.runs[0]
    assert spec.train.steps == 7
    assert directory == Path("here")
    config = yaml.safe_load((directory / ".hydra" / "config.yaml").read_text())
    assert config["train"]["steps"] == 7
    assert "hydra" not in config
    assert yaml.safe_load((directory / ".hydra" / "overrides.yaml").read_text()) == ["train.steps=7"]
    hydra = yaml.safe_load((directory / ".hydra" / "hydra.yaml").read_text())["hydra"]
    assert hydra["runtime"]["output_dir"] == str(directory.absolute())
    assert hydra["runtime"]["choices"]["model"] == "dlrm_concat"
    assert hydra["overrides"] == {"hydra": ["hydra.run.dir=here"], "task": ["train.steps=7"]}
    assert hydra["mode"] == "RUN"


def test_what_is_seldom_meant_is_told_first(capsys: pytest.CaptureFixture[str]) -> None:
    words = "warning: tables.user, tables.item: frozen but not pretrained, so the random initial values never change"
    for command in (lambda *more: run.main([*more], runner=FakeRunner()), lambda *more: commands.main(["plan", *more])):
        assert command("freeze=table") == 0
        assert words in capsys.readouterr().out
        assert command("freeze=random_table") == 0
        assert "warning" not in capsys.readouterr().out


def test_a_second_run_never_writes_into_the_first_ones_directory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = FakeRunner(steps=1)
    words = ["run", "hydra.run.dir=same"]
    monkeypatch.setattr(run, "run_with_log", runner)
    assert commands.main(words) == 0
    assert commands.main([*words, "seed=2"]) == 2
    told = capsys.readouterr().err
    assert "hydra.run.dir = same: it already holds a run" in told
    assert "output.existing=number makes a new one next to it, continue completes the run in it, replace" in told
    assert commands.main([*words, "seed=2", "output.existing=continue"]) == 2
    assert "these settings differ: seed: 0 in its spec.json, 2 in this config" in capsys.readouterr().err
    assert commands.main([*words, "seed=3", "output.existing=number"]) == 0
    assert commands.main([*words, "output.existing=replace"]) == 2  # as it is not complete
    monkeypatch.setattr(run, "resumed", runner)
    assert commands.main([*words, "output.existing=continue"]) == 0
    assert [(spec.seed, str(directory)) for spec, directory in runner.runs] == [(0, "same"), (3, "same_2"), (0, "same")]


def test_no_file_has_a_run_removed(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = elsewhere / "mine" / "experiment" / "tidy.yaml"
    experiment.parent.mkdir(parents=True)
    lines = [
        "# @package _global_",
        "defaults: [clicks, _self_]",
        "output: {existing: replace}",
        "hydra: {run: {dir: same}}",
    ]
    experiment.write_text("\n".join(lines))
    words = ["--config-dir", "mine", "experiment=tidy"]
    for command in ("plan", "run"):
        assert commands.main([command, *words]) == 2
        error = capsys.readouterr().err
        assert "output.existing = replace" in error
        assert "tidy.yaml:3" in error
        assert "add output.existing=replace to the command line" in error
    assert run.main([*words, "output.existing=replace"], runner=FakeRunner()) == 0
    assert commands.main(["plan", *words, "output.existing=replace"]) == 0


def test_a_directory_that_is_given_in_python(elsewhere: Path) -> None:
    spec = embexp.compose(["output.existing=refuse"])
    runner = FakeRunner(steps=1)
    assert run.main(["hydra.run.dir=same"], runner=runner) == 0
    with pytest.raises(ConfigError, match=r"directory = same: it already holds a run"):
        embexp.run(spec, "same")
    assert [each.name for each in elsewhere.iterdir()] == ["same"]


def test_directories_that_the_time_names_are_numbered() -> None:
    runner = FakeRunner(steps=1)
    for _ in range(2):
        assert run.main(["hydra.run.dir=runs/${now:%Y}"], runner=runner) == 0
    assert [directory.name[4:] for _, directory in runner.runs] == ["", "_2"]


def test_a_run_that_failed_before_its_first_step_is_started_again_in_its_directory() -> None:
    runner = FakeRunner()
    assert run.main(["hydra.run.dir=same"], runner=runner) == 0
    assert run.main(["hydra.run.dir=same", "seed=2"], runner=runner) == 0
    assert [str(directory) for _, directory in runner.runs] == ["same", "same"]
    assert RunFolder(Path("same")).recorded_spec().seed == 2
    assert yaml.safe_load(Path("same/.hydra/overrides.yaml").read_text()) == ["seed=2"]


def test_the_spec_is_there_before_tensorflow_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may come in the seconds that the import takes."""

    def interrupted(**_: object) -> None:
        assert RunFolder(Path("here")).recorded_spec().seed == 3
        raise KeyboardInterrupt

    monkeypatch.setattr(environment, "load_tensorflow", interrupted)
    assert commands.main(["run", "seed=3", "hydra.run.dir=here"]) != 0
    shutil.rmtree("here")
    with pytest.raises(KeyboardInterrupt):
        embexp.run(embexp.compose(["seed=3"]), "here")


def test_a_signal_before_the_run_has_begun(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(composition, "job", interrupted)
    assert commands.main(["run", "hydra.run.dir=here"]) == 130
    assert "embexp: interrupted before the run started; nothing was written\n" in capsys.readouterr().err
    assert list(elsewhere.iterdir()) == []


def test_runs_lie_under_outputs_by_date_and_time() -> None:
    runner = FakeRunner()
    assert run.main([], runner=runner) == 0
    parts = runner.runs[0][1].parts
    assert parts[0] == "outputs"
    assert len(parts) == 3


@pytest.mark.parametrize(
    ("status", "expected"), [("completed", 0), ("stopped_early", 0), ("interrupted", 1), ("failed", 1)]
)
def test_exit_status(status: str, expected: int) -> None:
    assert run.main([], runner=FakeRunner(status)) == expected


def test_faults_stop_it_before_anything_is_written(elsewhere: Path) -> None:
    runner = FakeRunner()
    with pytest.raises(ConfigError, match=r"train\.stps"):
        run.main(["train.stps=7"], runner=runner)
    assert runner.runs == []
    assert list(elsewhere.iterdir()) == []


def test_a_run_that_fails_is_told_without_a_stack_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(spec: RunSpec, directory: Path) -> FakeRunner:
        raise DataError("ratings.csv: line 2,000: found 'x', expected a number")

    monkeypatch.setattr(run, "run_with_log", failing)
    assert commands.main(["run"]) == 1
    assert capsys.readouterr().err == "embexp: ratings.csv: line 2,000: found 'x', expected a number\n"


def test_overrides_and_options_come_in_any_order(tmp_path: Path) -> None:
    runner = FakeRunner()
    assert run.main(["seed=3", "--config-dir", str(tmp_path), "hydra.run.dir=o", "-r"], runner=runner) == 0
    assert runner.runs[0][0].seed == 3


class TestCfg:
    def show(self, capsys: pytest.CaptureFixture[str], *words: str) -> str:
        assert run.main(["--cfg", *words]) == 0
        return capsys.readouterr().out

    def test_job(self, capsys: pytest.CaptureFixture[str]) -> None:
        config = yaml.safe_load(self.show(capsys, "job", "seed=5"))
        assert config["seed"] == 5
        assert "hydra" not in config

    def test_hydra(self, capsys: pytest.CaptureFixture[str]) -> None:
        config = yaml.safe_load(self.show(capsys, "hydra"))
        assert list(config) == ["hydra"]
        assert config["hydra"]["launcher"]["_target_"] == "hydra_plugins.embexp_launcher.EmbexpLauncher"

    def test_all(self, capsys: pytest.CaptureFixture[str]) -> None:
        config = yaml.safe_load(self.show(capsys, "all"))
        assert {"hydra", "seed", "tables"} <= set(config)

    def test_package_and_resolve(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["job", "experiment=movielens", "data.path=x", "--package", "tables.item"]
        assert yaml.safe_load(self.show(capsys, *words))["dim"] == "${tables.user.dim}"
        text = self.show(capsys, *words, "--resolve")
        assert text.startswith("# @package tables.item\n")
        assert yaml.safe_load(text)["dim"] == 32

    def test_a_faulty_config_is_shown_with_its_faults(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert commands.main(["run", "--cfg", "job", "++seed=-5"]) == 2
        out, err = capsys.readouterr()
        assert yaml.safe_load(out)["seed"] == -5
        assert "seed = -5: it must be at least 0" in err

    def test_a_node_that_does_not_exist(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert commands.main(["run", "--cfg", "job", "-p", "tabels"]) == 2
        assert "--package tabels: the config has no such node" in capsys.readouterr().err
