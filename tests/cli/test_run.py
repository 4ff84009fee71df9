"""`embexp run` up to where the experiment starts."""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from embexp.cli import commands, run
from embexp.errors import ConfigError, DataError
from embexp.specs.run import RunSpec


@dataclass
class FakeRunner:
    """Notes what it is given."""

    status: str = "completed"
    runs: list[tuple[RunSpec, Path]] = field(default_factory=list)

    def __call__(self, spec: RunSpec, directory: Path) -> FakeRunner:
        self.runs.append((spec, directory))
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
    words = "warning: tables.user, tables.item: frozen but not pretrained: random initial values never change"
    for command in (lambda *more: run.main([*more], runner=FakeRunner()), lambda *more: commands.main(["plan", *more])):
        assert command("freeze=table") == 0
        assert words in capsys.readouterr().out
        assert command("freeze=random_table") == 0
        assert "warning" not in capsys.readouterr().out


def test_a_second_run_never_writes_into_the_first_ones_directory() -> None:
    runner = FakeRunner()
    with concurrent.futures.ThreadPoolExecutor(1):
        for _ in range(3):
            assert run.main(["hydra.run.dir=same"], runner=runner) == 0
    assert [str(directory) for _, directory in runner.runs] == ["same", "same_2", "same_3"]


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

    monkeypatch.setattr(run, "_run_with_log", failing)
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
