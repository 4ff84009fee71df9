"""The jobs of a sweep: what Hydra composed once for some choices serves all jobs that make them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from embexp.config import composition, folders, hydra_job
from embexp.config.alike import Jobs
from embexp.config.loader import Loader
from embexp.errors import ConfigError
from embexp.sweeps import planning
from tests.thoroughness import examples

CHOICES = folders.find().choices
GROUPS = {
    "model": "model",
    "optimizer": "optimizer",
    "dense_optimizer": "dense_optimizer",
    "init": "init",
    "freeze": "freeze",
    "strategy": "strategy",
    "runtime": "runtime",
    "tracking": "tracking",
    "optimizer@tables.item.optimizer": "optimizer",
    "init@tables.user.init": "init",
    "schedule@optimizer.schedule": "schedule",
}
VALUES = {
    "seed": ["3", "null"],
    "train.epochs": ["0.5", "1e-3", "null", "'2'"],
    "optimizer.learning_rate": ["1e-2", ".5", "0x10"],
    "optimizer.weight_decay": ["0.1"],  # which no file mentions
    "model.dropout": ["0.25", "true"],
    "model.top": ["[5,6]", "[]"],
    "name": ["a b", "'${seed}'", "1_000", "on", "2020-01-31", "'a: b'"],
    "tables.item.dim": ["4", "${tables.user.dim}"],
    "train": ["{steps: 3}"],
    "output.compare": ["[a,b]"],
    "output.cache": ["somewhere", "~/cache"],
}


@st.composite
def jobs(draw: st.DrawFn) -> list[str]:
    groups = draw(st.lists(st.sampled_from(sorted(GROUPS)), unique=True, max_size=4))
    keys = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=4))
    chosen = [f"{group}={draw(st.sampled_from(sorted(CHOICES[GROUPS[group]])))}" for group in groups]
    return draw(st.permutations([*chosen, *(f"{key}={draw(st.sampled_from(VALUES[key]))}" for key in keys)]))


@pytest.fixture(scope="module")
def warm() -> Jobs:
    return Jobs(composition.loader())


@examples(12)
@given(overrides=jobs())
def test_a_job_is_the_same_as_if_it_were_the_first(warm: Jobs, overrides: list[str]) -> None:
    found = []
    for compose in (warm.job, partial(composition.candidate, composition.loader())):
        try:
            job = compose(overrides)
        except ConfigError as error:
            found.append(str(error))
        else:
            composed = job.composition
            texts = hydra_job.texts_of_job(composed.write(), 3, Path("sweep"), "run")
            found.append(str((job.spec, composed.container, composed.added, job.impossible, texts)))
    assert found[0] == found[1]


class Counted(Loader):
    """Counts how often Hydra composes."""

    @property
    def count(self) -> int:
        return len(self._composed)


@pytest.fixture
def counted() -> Counted:
    loader = Counted(folders.find())
    loader._composed = {}  # of its own: what is composed of shipped files is kept for the process
    return loader


BATCH = [
    [f"model={model}", f"optimizer={optimizer}", f"init={init}", f"seed={seed}"]
    for model in ("mlp", "dlrm")
    for optimizer in ("adam", "sgd")
    for init in ("assign", "memory_map")  # the second is impossible without a frozen table
    for seed in range(5)
]


def test_the_jobs_of_a_sweep(counted: Counted) -> None:
    found = planning.check(counted, BATCH, ["hydra.sweep.dir=here"]).jobs
    assert counted.count == 8
    assert [bool(job.skip) for job in found] == [each[2] == "init=memory_map" for each in BATCH]
    for job in found[1::7]:
        alone = composition.candidate(composition.loader(), ["hydra.sweep.dir=here", *job.overrides])
        assert job.compose is not None
        assert job.spec == alone.spec
        texts: list[dict[str, Any]] = [
            {name: yaml.safe_load(text) for name, text in hydra_job.texts(composed.write()).items()}
            for composed in (job.compose(), alone.composition)
        ]
        assert texts[0] == texts[1]
        content = job.compose().write()
        hydra = OmegaConf.to_yaml({"hydra": content["hydra"]})  # as Hydra writes it, to the byte
        assert hydra_job.texts(content)[".hydra/hydra.yaml"] == hydra


def test_faults_have_their_sources_and_are_soon_enough(counted: Counted) -> None:
    batch = [[f"seed={seed}", "optimizer.learning_rate=-1"] for seed in range(100)]
    with pytest.raises(ConfigError) as caught:
        planning.check(counted, batch, [])
    [fault] = caught.value.faults
    source = "the command line (optimizer.learning_rate=-1), in 8 of the first 8 jobs (of 100), the first is 0 ("
    assert fault.path == "optimizer.learning_rate"
    assert fault.source.startswith(source)
    assert counted.count == 1


def test_a_sweep_with_settings_of_hydra_in_some_files_only(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [mlp@model]\nhydra: {callbacks: {a: {_target_: os.system}}}\n"
    )
    batch = [[f"model={model}", f"seed={seed}"] for model in ("mlp", "mine") for seed in range(8)]
    loader = composition.loader(tmp_path)
    composition.candidate(loader, batch[3])
    for number in (8, 11):
        with pytest.raises(ConfigError, match=r"'os.system'"):
            composition.candidate(loader, batch[number])
