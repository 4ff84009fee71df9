"""A sweeper that chooses its next jobs after it has seen the results of others, as a search does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

import hydra_plugins
from embexp.errors import ConfigError
from embexp.sweeps.sweep import sweep


class Doubling(Sweeper):
    """Tries `start` and twice the loss of that."""

    def __init__(self, start: int) -> None:
        self.start = start

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        [first] = self.launcher.launch([[*arguments, f"seed={self.start}"]], initial_job_idx=0)
        loss = first.return_value
        self.launcher.launch([[*arguments, f"seed={int(2 * loss)}"], [*arguments, "seed=7"]], initial_job_idx=1)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Doubling, "__module__", "hydra_plugins.doubling")  # Hydra takes plugins from there alone
    module = ModuleType("hydra_plugins.doubling")
    module.Doubling = Doubling
    monkeypatch.setitem(sys.modules, "hydra_plugins.doubling", module)
    monkeypatch.setattr(hydra_plugins, "doubling", module, raising=False)
    plugins = Plugins.instance()
    plugins.register(Doubling)
    (tmp_path / "conf" / "hydra" / "sweeper").mkdir(parents=True)
    (tmp_path / "conf" / "hydra" / "sweeper" / "doubling.yaml").write_text(
        "_target_: hydra_plugins.doubling.Doubling\nstart: 3\n"
    )
    yield tmp_path
    plugins.plugin_type_to_subclass_list[Sweeper].remove(Doubling)
    del plugins.class_name_to_class["hydra_plugins.doubling.Doubling"]


def run(command: Callable[[Path, int], Sequence[str]], *overrides: str) -> bool:
    words = ["hydra/sweeper=doubling", "hydra.sweep.dir=s", "train.steps=5", "sweep.objective=log_loss", *overrides]
    return sweep(words, config_dir="conf", command=command)


def test_jobs_follow_from_results(command: Callable[[Path, int], Sequence[str]], elsewhere: Path) -> None:
    assert run(command)
    jobs = json.loads(Path("s/sweep.json").read_text())["jobs"]
    assert [(job["number"], job["overrides"]["seed"], job["status"]) for job in jobs] == [
        (0, "3", "completed"), (1, "8", "completed"), (2, "7", "completed"),
    ]  # fmt: skip


def test_each_batch_is_checked_before_it_starts(command: Callable[[Path, int], Sequence[str]], elsewhere: Path) -> None:
    with pytest.raises(ConfigError, match=r"seed = -4"):
        run(command, "hydra.sweeper.start=-4")
    assert not Path("s/0").exists()
