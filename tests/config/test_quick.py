"""Jobs that are composed without Hydra are those that Hydra composes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from embexp.config import composition, folders, record, selections
from embexp.config.compose import compose
from embexp.config.jobs import Candidate, Candidates
from embexp.config.loader import Loader
from embexp.config.quick import Quick, QuickComposer
from embexp.errors import ConfigError
from embexp.sweeps import planning
from tests.thoroughness import examples

CHOICES = folders.find().choices()
NEEDS = {
    "ratings": ["data.path=x", "data.label=y", "features.user.column=a", "features.item.column=b"],
    "knowledge_graph": ["data.path=x"],
    "knowledge_graph_large": ["data.path=x"],
    "knowledge_graph_very_large": ["data.path=x"],
    "new_entities": ["data.path=x"],
    "movielens": ["data.path=x"],
    "movielens_recommendation": ["data.path=x"],
    "recommendation": ["data.path=x", "data.timestamp=t", "features.user.column=a", "features.item.column=b"],
}
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


def agrees(composer: QuickComposer, overrides: Sequence[str]) -> bool:
    """Whether a job is composed without Hydra, which then has to give the same."""
    found = composer.compose(overrides)
    if found is None:
        return False
    composed = compose(composition.loader(), overrides)
    assert composed.faults == ()
    assert found.container == composed.container
    assert dict(found.choices) == dict(selections.choices(composed.config))
    assert found.added == composed.added
    return True


@pytest.fixture(scope="module")
def composer() -> QuickComposer:
    return QuickComposer(composition.loader())


@pytest.mark.parametrize(
    "overrides",
    [
        ["model=keras", "model.function=a:b", "+model.args.width=3", "+model.args.deep={a: [1, {b: 2}]}"],
        ["++seed=3", "~train.early_stopping.restore_best", "++model.args.of.mine=1"],
    ],
)
def test_keys_that_are_added_and_removed(composer: QuickComposer, overrides: list[str]) -> None:
    assert agrees(composer, overrides)


@pytest.mark.parametrize("experiment", CHOICES["experiment"])
def test_every_experiment(composer: QuickComposer, experiment: str) -> None:
    assert agrees(composer, [f"experiment={experiment}", *NEEDS.get(experiment, [])])


@st.composite
def jobs(draw: st.DrawFn) -> list[str]:
    groups = draw(st.lists(st.sampled_from(sorted(GROUPS)), unique=True, max_size=4))
    keys = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=4))
    chosen = [f"{group}={draw(st.sampled_from(sorted(CHOICES[GROUPS[group]])))}" for group in groups]
    return draw(st.permutations([*chosen, *(f"{key}={draw(st.sampled_from(VALUES[key]))}" for key in keys)]))


@examples(12)
@given(jobs())
def test_choices_and_values(overrides: list[str]) -> None:
    agrees(QuickComposer(composition.loader()), overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["+seed=3"],
        ["~nowhere"],
        ["seed=???"],
        ["model.hidden={a: 1}", "model=mlp"],
        ["model=nowhere"],
        ["+model=mlp"],
        ["tables.item.dim=${nowhere}"],
        ["model=keras"],
        ["nowhere.x=1"],
    ],
)
def test_what_is_not_plain_is_left_to_hydra(composer: QuickComposer, overrides: list[str]) -> None:
    assert composer.compose(overrides) is None


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("defaults: [mlp, _self_]\ndropout: 0.5", True),
        ("defaults: [_self_, mlp]\ndropout: 0.5", True),
        ("kind: mlp\nhidden: [1e1, 010, 1:30]\ndropout: .5", True),
        ("defaults: [optional mlp]\ndropout: 0.5", False),
        ("defaults: [{optional /optimizer@x: adam}, mlp]", False),
        ("defaults: [{/optimizer@x: [adam, sgd]}, mlp]", False),
        ("defaults: ['${seed}', mlp]", False),
        ("defaults: [mlp@_here_]", False),
    ],
)
def test_files_of_the_user(tmp_path: Path, text: str, plain: bool) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text(text)
    loader = composition.loader(tmp_path)
    found = QuickComposer(loader).compose(["model=mine"])
    assert (found is not None) == plain
    if found is not None:
        composed = compose(loader, ["model=mine"])
        assert found.container == composed.container


class Counted(Loader):
    """Counts how often Hydra composes."""

    count = 0

    def compose(self, overrides: Sequence[str]) -> Any:
        self.count += 1
        return super().compose(overrides)


@pytest.fixture
def counted() -> Counted:
    return Counted(folders.find())


BATCH = [
    [f"model={model}", f"optimizer={optimizer}", f"init={init}", f"seed={seed}"]
    for model in ("mlp", "dlrm")
    for optimizer in ("adam", "sgd", "adagrad")
    for init in ("assign", "memory_map", "constant")  # the second is impossible without a frozen table
    for seed in (0, 1)
]


def test_the_jobs_of_a_sweep(counted: Counted, tmp_path: Path) -> None:
    candidates = Candidates(counted, [], BATCH)
    found = [candidates.candidate(each) for each in BATCH]
    assert counted.count <= 4
    for number in range(1, len(BATCH), 5):
        by_hydra = candidates.by_hydra(BATCH[number])
        assert found[number].is_like(by_hydra)
        texts = [record.texts(each.config(), tmp_path) for each in (found[number], by_hydra)]
        assert [{name: yaml.safe_load(text) for name, text in each.items()} for each in texts] == [
            {name: yaml.safe_load(text) for name, text in texts[1].items()}
        ] * 2
    jobs = planning.check(counted, BATCH, []).jobs
    assert [bool(job.skip) for job in jobs] == [each[2] == "init=memory_map" for each in BATCH]


def test_if_the_ways_differ_hydra_s_counts(monkeypatch: pytest.MonkeyPatch, counted: Counted) -> None:
    quick = QuickComposer.compose

    def wrong(self: QuickComposer, overrides: Sequence[str]) -> Quick | None:
        found = quick(self, overrides)
        return found and replace(found, container={**found.container, "seed": 99})

    monkeypatch.setattr(QuickComposer, "compose", wrong)
    batch = [[f"seed={seed}"] for seed in range(12)]
    candidates = Candidates(counted, [], batch)
    assert [candidates.candidate(each).spec.seed for each in batch] == list(range(12))


def test_faults_have_their_sources_and_are_soon_enough(counted: Counted) -> None:
    batch = [[f"seed={seed}", "optimizer.learning_rate=-1"] for seed in range(100)]
    with pytest.raises(ConfigError) as caught:
        planning.check(counted, batch, [])
    [fault] = caught.value.faults
    assert (fault.path, fault.source) == ("optimizer.learning_rate", "the command line (optimizer.learning_rate=-1)")
    assert counted.count < 40


def test_a_sweep_with_settings_of_hydra_in_some_files_only(tmp_path: Path) -> None:
    """Those are composed by Hydra, and so is what they name checked."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [mlp@model]\nhydra: {callbacks: {a: {_target_: os.system}}}\n"
    )
    batch = [[f"model={model}", f"seed={seed}"] for model in ("mlp", "mine") for seed in range(8)]
    candidates = Candidates(composition.loader(tmp_path), [], batch)
    assert isinstance(candidates.candidate(batch[3]), Candidate)
    for number in (8, 11):
        with pytest.raises(ConfigError, match=r"'os.system'"):
            candidates.candidate(batch[number])
