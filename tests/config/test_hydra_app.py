"""embexp inside a `@hydra.main` app of somebody else's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import embexp
from embexp.errors import ConfigError, UsageError

ROOT = Path(__file__).resolve().parents[2]

APP = """
import sys, warnings
warnings.simplefilter("error")
import hydra, embexp
from hydra.core.hydra_config import HydraConfig

@hydra.main(config_path="conf", config_name="mine", version_base="1.3")
def app(cfg):
    spec = embexp.spec_of(cfg, without=["app"])
    if not cfg.app.train:
        print(spec.seed, spec.output.cache)
        return
    first = embexp.run(spec, HydraConfig.get().runtime.output_dir, quiet=True)
    second = embexp.run(spec, quiet=True)
    print(first.directory.name, second.directory.name)

app()
"""
MINE = """
defaults:
  - config
  - _self_
hydra:
  searchpath: [pkg://embexp.conf]
app: {train: false}
data: {examples: 2000}
train: {steps: 3, epochs: null}
output: {plots: false, tensorboard: false, cache: cache}
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "mine.yaml").write_text(MINE)
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def run(app: Path, *words: str, python: str | Path = sys.executable) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(app)}
    command = [python, "app.py", *words]
    return subprocess.run(command, cwd=app, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_run_in_hydras_own_folder(app: Path, forked: Path) -> None:
    done = run(app, "app.train=true", "hydra.run.dir=out", "seed=5", python=forked / "python")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "out out_2\n"  # the second run never writes into the first one's directory
    assert done.stderr == ""
    assert json.loads((app / "out" / "summary.json").read_text())["status"] == "completed"
    assert (app / "out" / ".hydra" / "overrides.yaml").read_text() == "- app.train=true\n- seed=5\n"
    assert embexp.RunSpec.model_validate_json((app / "out" / "spec.json").read_bytes()).seed == 5
    assert not (app / "out_2" / ".hydra").exists()


def test_paths_start_where_the_app_was_started(app: Path) -> None:
    done = run(app, "hydra.run.dir=out", "hydra.job.chdir=true")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"0 {app / 'cache'}\n"


def test_faults_of_an_app(app: Path) -> None:
    done = run(app, "seed=-1", "+trian.steps=3")
    assert done.returncode == 1
    assert "embexp.errors.ConfigError: 2 faults in the config" in done.stderr
    assert "did you mean train" in done.stderr


@pytest.fixture
def composed() -> OmegaConf:
    GlobalHydra.instance().clear()
    with hydra.initialize_config_module("embexp.conf", version_base="1.3"):
        yield lambda *words: hydra.compose("config", [*words, "data.examples=2000"])
    GlobalHydra.instance().clear()


def test_as_composed_by_embexp(composed: object) -> None:
    words = ["model=mlp", "optimizer@tables.item.optimizer=adam", "seed=3"]
    assert embexp.spec_of(composed(*words)) == embexp.compose([*words, "data.examples=2000"])


def test_misuse(composed: object) -> None:
    with pytest.raises(UsageError, match=r"takes a DictConfig of Hydra, not dict"):
        embexp.spec_of({"seed": 1})
    with pytest.raises(UsageError, match=r"without names app, which the config does not have"):
        embexp.spec_of(composed(), without=["app"])
    with pytest.raises(UsageError, match=r"takes a list of overrides, not a single string"):
        embexp.spec_of(composed(), without="app")
    config = composed("seed=-1")
    config.name = "???"
    with pytest.raises(ConfigError) as caught:
        embexp.spec_of(config)
    assert {fault.path for fault in caught.value.faults} == {"seed", "name"}


def test_configs_are_a_package() -> None:
    import importlib.resources

    names = {each.name for each in importlib.resources.files("embexp.conf").iterdir()}
    assert {"__init__.py", "config.yaml", "model"} <= names
