"""The jobs that embexp checks are those that Hydra's sweeper hands over, one by one and in its order."""

from __future__ import annotations

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

from embexp import compose
from embexp.config import composition
from embexp.config.overrides import parse
from embexp.errors import CommandLineError, ConfigError
from embexp.sweeps.planning import key_of, plan
from embexp.sweeps.search import combinations

CASES = {
    "one job": ["seed=1", "model=mlp"],
    "no overrides": [],
    "lists and ranges": ["seed=range(0,3)", "model=mlp,dlrm", "train.steps=5"],
    "every form": ["seed=choice(3,1)", "train.epochs=range(0.5,2,0.5)", "model=glob(d*,exclude=dot)", "name=a,'b c'"],
    "the last mention of a key counts": ["seed=1,2", "model=mlp", "seed=3,4,5", "model=dlrm"],
    "prefixes": ["+model.args.width=1,2", "++train.steps=3,4", "~seed", "optimizer@tables.item.optimizer=sgd,adam"],
    "values that are no scalars": ["model.top=[1,2],[3]", "train={steps: 1}", "name='a,b'", "data.path='x=y','z'"],
    "sorted": ["seed=sort(3,1,2)", "model=sort(mlp,dlrm,reverse=true)"],
}


@pytest.mark.parametrize("case", CASES)
def test_combinations_are_those_of_hydra(case: str) -> None:
    overrides, faults = parse(composition.loader(), CASES[case], sweeping=True)
    assert not faults
    [basic] = [each for each in Plugins.instance().discover(Sweeper) if each.__name__ == "BasicSweeper"]
    [expected] = basic.split_arguments(overrides, None)
    assert combinations(overrides) == expected


@pytest.mark.parametrize("override", ["seed=interval(0,1)", "model=glob(nothing*)", "seed=range(3,3)"])
def test_what_names_no_values(override: str) -> None:
    overrides, _ = parse(composition.loader(), [override], sweeping=True)
    with pytest.raises(CommandLineError, match="names no values to try\n    give the values"):
        combinations(overrides)


OF_SOME_CHOICES = {
    "a fixed value": (["freeze=none,table,rows", "freeze.rows=[[0,50]]"], "freeze.rows", [0, 1]),
    "values": (["freeze=none,rows", "freeze.rows=[[0,50]],[[0,9]]"], "freeze.rows", [0, 1]),
    "optimizer": (["optimizer=sgd,adam", "optimizer.beta_1=0.5"], "optimizer.beta_1", [0]),
    "model": (["model=mlp,dlrm", "model.bottom=[8]"], "model.bottom", [0]),
    "model, with a new key": (["model=mlp,dlrm", "+model.bottom=[8]"], "model.bottom", [0]),
    "strategy": (["strategy=cpu,multi_worker", "strategy.workers=2"], "strategy.workers", [0]),
    "init": (["init=assign,variable_load", "init.chunk_bytes=1000"], "init.chunk_bytes", [1]),
    "one table": (
        ["freeze@tables.item.freeze=none,rows", "tables.item.freeze.rows=[[0,5]]"],
        "tables.item.freeze.rows",
        [0],
    ),
    "a choice in a choice": (
        ["schedule@optimizer.schedule=constant,cosine", "optimizer.schedule.decay_steps=10"],
        "optimizer.schedule.decay_steps",
        [0],
    ),
}


@pytest.mark.parametrize("case", OF_SOME_CHOICES)
def test_a_setting_of_some_choices_has_an_effect_where_it_fits(case: str) -> None:
    words, key, without = OF_SOME_CHOICES[case]
    found = plan(composition.loader(), [*words, "train.steps=5"])
    assert found.jobs is not None
    assert [job.number for job in found.jobs if job.inert] == without
    assert found.notes == (
        f"no effect: {key} in {len(without)} of {len(found.jobs)} jobs, whose choices have no such setting",
    )
    for job in found.jobs:
        assert (key in job.settings) is not bool(job.inert)
        assert [key_of(each) for each in job.overrides] == [key_of(each) for each in (*words, "train.steps=5")]
        assert job.spec == compose(job.effective)


def test_jobs_that_differ_in_settings_without_effect_are_the_same() -> None:
    found = plan(composition.loader(), ["freeze=none,rows", "freeze.rows=[[0,50]],[[0,9]]"]).jobs
    assert found is not None
    assert [job.same_as for job in found] == [None, 0, None, None]


@pytest.mark.parametrize(
    ("words", "path", "sources"),
    [
        (["freeze=none,table", "freeze.rows=[[0,5]]"], "freeze.rows", ["in job 0 (", "in job 1 ("]),
        (["seed=0,1", "freeze.rows=[[0,5]]"], "freeze.rows", [""]),
        (["optimizer=sgd,adam", "optimizer.beta_3=1"], "optimizer.beta_3", ["in job 0 (", "in job 1 ("]),
        (["freeze=none,table", "frieze.rows=[[0,5]]"], "frieze.rows", [""]),
        (["freeze=none,rows", "seed=0,1", "freeze.rows=7"], "freeze.rows", ["in 2 of 4 jobs, the first is 2 ("]),
        (["model=mlp,dlrm", "model.bottom=[0]"], "model.bottom.0", ["in job 1 ("]),
        (["seed=range(0,40)", "train.steps=0"], "train.steps", ["in 8 of the first 8 jobs (of 40), the first is 0 ("]),
        (
            ["model=mlp,dlrm", "train.steps=0,1", "seeds=2"],
            "train.steps",
            ["in 2 of 4 settings, the first is 0 (model=mlp train.steps=0"],
        ),
    ],
)
def test_faults_of_settings_name_the_jobs_that_have_them(words: list[str], path: str, sources: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(composition.loader(), words)
    assert {fault.path for fault in caught.value.faults} == {path}
    assert len(caught.value.faults) == len(sources)
    for fault, source in zip(caught.value.faults, sources, strict=True):
        assert source in fault.source
        assert source or " job" not in fault.source


def test_a_single_run_takes_no_setting_of_another_choice() -> None:
    with pytest.raises(ConfigError, match="rows belongs to rows, not to none"):
        compose(["freeze.rows=[[0,5]]"])


def test_every_value_of_a_search_is_checked_where_it_has_an_effect() -> None:
    search = ["hydra/sweeper=optuna", "freeze=none,rows"]
    found = plan(composition.loader(), [*search, "freeze.rows=[[0,5]],[[0,9]]"])
    assert "freeze.rows" in found.effective
    assert found.notes == ("no effect: freeze.rows in trials whose choices have no such setting",)
    with pytest.raises(ConfigError, match=r"freeze.rows"):
        plan(composition.loader(), [*search, "freeze.rows=[[0,5]],[[9,5]]"])
    with pytest.raises(ConfigError, match="rows belongs to rows"):
        plan(composition.loader(), ["hydra/sweeper=optuna", "freeze=none,table", "freeze.rows=[[0,5]]"])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("ad*", ["adagrad", "adagrad_momentum", "adam"]),
        ("[ad*,ad*_movielens],exclude=*momentum*", ["adagrad", "adagrad_movielens", "adam", "adam_movielens"]),
        ("*_clicks", ["adam_clicks"]),
        ("[ad*,adam_clicks]", ["adagrad", "adagrad_momentum", "adam", "adam_clicks"]),
    ],
)
def test_a_glob_leaves_out_what_is_tuned_for_one_experiment(pattern: str, expected: list[str]) -> None:
    found = plan(composition.loader(), [f"optimizer=glob({pattern})"])
    assert found.jobs is not None
    assert [job.settings["optimizer"] for job in found.jobs] == expected
    assert bool(found.notes) is (pattern != "*_clicks")
    if pattern == "ad*":
        [note] = found.notes
        assert note.startswith("optimizer=glob(ad*) tries adagrad, adagrad_momentum, adam, and not what is tuned")
        assert note.endswith("such as glob([ad*,adagrad_knowledge_graph])")


def test_a_glob_has_all_choices_that_are_not_tuned() -> None:
    found = plan(composition.loader(), ["model=glob(dlrm*)"])
    assert found.jobs is not None
    assert [job.settings["model"] for job in found.jobs] == ["dlrm", "dlrm_concat"]
    assert not found.notes
    search = plan(composition.loader(), ["hydra/sweeper=optuna", "optimizer=glob(ad*)"]).search
    assert search is not None
    assert search.lines()[1] == "    optimizer: adagrad, adagrad_momentum, adam"
