"""Searches behind `embexp run -m hydra/sweeper=optuna` and `embexp resume`, with jobs that train nothing."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore

from embexp.cli.commands import plan
from embexp.errors import CommandLineError, ConfigError, EmbexpError
from embexp.reports.record import Status
from embexp.sweeps.ledger import Ledger
from embexp.sweeps.sweep import resume, sweep

Command = Callable[[Path, int], Sequence[str]]
SEARCH = ["hydra/sweeper=optuna", "hydra.sweep.dir=s", "train.steps=5"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def searched() -> dict:
    return json.loads(Path("s/search.json").read_text())


def test_a_search_ends_with_its_best_trial(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SEARCH, "seed=range(0,30)", "hydra.sweeper.n_trials=5", "hydra.launcher.jobs=2"]
    assert sweep(words, command=command)
    trials = searched()["trials"]
    seeds = [int(each["params"]["seed"]) for each in trials]
    assert [each["values"] for each in trials] == [[seed + 1.0] for seed in seeds]  # the default metric, log_loss
    with Ledger(Path("s")) as ledger:
        jobs = ledger.jobs()
    assert [int(job.settings["seed"]) for job in jobs] == seeds
    out = capsys.readouterr().out
    best = seeds.index(min(seeds))
    assert f"best trial: job {best}   validation log_loss {min(seeds) + 1:.4f}   seed={min(seeds)}\n" in out
    assert "job 4 of 5 completed" in out


def test_the_same_command_again_runs_nothing_and_more_trials_run_the_rest(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SEARCH, "seed=1,2,3", "train.batch_size=64,128", "sweep.objective=validation log_loss"]
    words.append("sweep.exclude=[{seed: 3, train.batch_size: 64}]")  # it doesn't count
    assert sweep([*words, "hydra.sweeper.n_trials=3"], command=command)
    before = searched()["trials"]
    assert sweep([*words, "hydra.sweeper.n_trials=3"], command=command)
    assert searched()["trials"] == before
    capsys.readouterr()
    assert sweep([*words, "hydra.sweeper.n_trials=8"], command=command)
    assert "continuing the search" in (out := capsys.readouterr().out)
    assert out.count(" started") == 2
    assert (
        "note: the search ended with 5 of 8 trials, without the other 3: the 6 combinations of its space are tried"
        in out
    )
    assert searched()["trials"][:3] == before
    with Ledger(Path("s")) as ledger:
        jobs = ledger.jobs()
    assert [job.number for job in jobs] == list(range(5))
    assert [job.settings["seed"] for job in jobs] == [each["params"]["seed"] for each in searched()["trials"]]
    assert [job.attempts for job in jobs] == [1] * 5


def test_a_wider_search_goes_on_with_the_trials_that_it_has(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SEARCH, "seed=1,2", "optimizer=sgd"]
    assert sweep([*words, "hydra.sweeper.n_trials=2"], command=command)
    before = searched()["trials"]
    wider = [*SEARCH, "seed=range(1,9)", "optimizer=sgd,adam", "train.batch_size=1024,512", "hydra.sweeper.n_trials=4"]
    capsys.readouterr()
    momentum = "hydra.sweeper.params={optimizer.beta_1:{when:{optimizer:adam},space:'interval(0.5,0.9)'}}"
    assert plan.main(["-m", *wider, momentum]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "    seed: whole numbers 1 to 8",
        "    optimizer: sgd, adam",
        "    └─ optimizer=adam",
        "       └─ optimizer.beta_1: 0.5 to 0.9",
        "    train.batch_size: 1024, 512",
    ]
    assert sweep([*wider, momentum], command=command)
    now = searched()["trials"]
    assert [each["values"] for each in now[:2]] == [each["values"] for each in before]
    defaults = {"optimizer": "sgd", "train.batch_size": "1024"}  # what they had without having chosen it
    assert [each["params"] for each in now[:2]] == [{**each["params"], **defaults} for each in before]
    assert [("optimizer.beta_1" in each["params"], each["params"]["optimizer"]) for each in now[2:]] == [
        (each["params"]["optimizer"] == "adam", each["params"]["optimizer"]) for each in now[2:]
    ]
    with Ledger(Path("s")) as ledger:
        assert [job.attempts for job in ledger.jobs()] == [1] * 4


def test_a_trial_whose_folder_was_deleted_runs_again_and_keeps_its_value(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SEARCH, "seed=range(0,30)", "hydra.sweeper.n_trials=3", "hydra.sweeper.pruner=median"]
    assert sweep(words, command=command)
    before = searched()["trials"]
    shutil.rmtree("s/1")
    assert resume(Path("s"), command=command)
    assert "job 1 runs again: its folder" in capsys.readouterr().out
    assert Path("s/1/summary.json").is_file()
    assert searched()["trials"] == before
    with Ledger(Path("s")) as ledger:
        assert [job.attempts for job in ledger.jobs()] == [1, 2, 1]


def test_a_setting_of_one_choice_is_searched_with_it(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SEARCH, "freeze=none,rows", "freeze.rows=[[0,5]],[[0,9]]", "hydra.sweeper.n_trials=12"]
    assert sweep(words, command=command)
    assert "no effect: freeze.rows in trials whose choices have no such setting" in capsys.readouterr().out
    with Ledger(Path("s")) as ledger:
        jobs = ledger.jobs()
    assert {job.settings.get("freeze.rows") for job in jobs} == {None, "[[0,5]]", "[[0,9]]"}
    assert sum(job.same_as is None for job in jobs) == 3


def test_a_search_is_resumed_with_its_sweeper(command: Command) -> None:
    assert sweep([*SEARCH, "seed=range(0,50)", "hydra.sweeper.n_trials=2"], command=command)
    assert resume(Path("s"), ["hydra.sweeper.n_trials=4"], command=command)
    assert len(searched()["trials"]) == 4


def test_plan_shows_what_is_searched(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimizer.learning_rate=tag(log,interval(0.01,1))", "model=dlrm,mlp", "train.batch_size=range(64,513,64)"]
    assert plan.main(["-m", *SEARCH, *words, "sweep.objective=auc", "hydra.sweeper.n_trials=7"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "search: 7 trials, 1 at once, sampler tpe: maximize validation auc",
        "    optimizer.learning_rate: 0.01 to 1, logarithmic",
        "    model: dlrm, mlp",
        "    train.batch_size: whole numbers 64 to 512 in steps of 64",
    ]


def test_failed_trials_are_told_and_the_others_go_on(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SEARCH, "seed=100,7", "hydra.sweeper.n_trials=8"]
    assert not sweep(words, command=command)
    states = {(each["params"]["seed"], each["state"]) for each in searched()["trials"]}
    assert states == {("100", "fail"), ("7", "complete")}
    assert "ValueError: bad luck" in capsys.readouterr().out


def test_a_trial_of_several_seeds_is_judged_by_their_mean(command: Command) -> None:
    words = [*SEARCH, "seed=3", "seeds=3", "train.batch_size=64,128", "hydra.sweeper.n_trials=2"]
    assert sweep(words, command=command)
    assert [each["values"] for each in searched()["trials"]] == [[5.0], [5.0]]  # of 4, 5 and 6
    with Ledger(Path("s")) as ledger:
        assert [job.settings["seed"] for job in ledger.jobs()] == ["3", "4", "5"] * 2
    assert sweep([*words, "hydra.launcher.jobs=2"], command=command)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["seed=1,2", "sweep.objective=test auc"],
            r"must choose settings on the validation " r"split.*\n.*sweep\.objective=auc",
        ),
        (["seed=1,2", "sweep.objective=rmse"], "the metrics of task binary are log_loss, auc, loss"),
        (["train.batch_size=range(0,10)"], r"train\.batch_size = 0: it must be at least 1"),
        (["optimizer.learning_rate=interval(-1,1)"], r"optimizer\.learning_rate = -1\.0: it must be greater than 0"),
        (["model=dlrm,mlb"], "mlb"),
        (["seed=1"], "a search needs parameters to choose"),
        (["seed=1,2", "hydra.sweeper.n_trial=5"], r"hydra\.sweeper\.n_trial = 5"),
        (["seed=1,2", "hydra.sweeper.sampler=tpf"], "it must be tpe, random or cmaes"),
        (["hydra.sweeper.params={train.batch_size:'tag(log,interval(0,2))'}"], "must begin above 0"),
        (["seed=1,2", "hydra.launcher.job=2"], r"hydra\.launcher\.job = 2"),
        (["seed=1,2", "data.split.validation=0"], "a search chooses settings on the validation split"),
        (["seed=1,2", "seeds=2", "hydra.sweeper.pruner=median"], "would be pruned separately"),
    ],
)
def test_faults_are_told_before_anything_runs(
    words: list[str], message: str, command: Command, elsewhere: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        sweep([*SEARCH, *words], command=command)
    assert list(elsewhere.iterdir()) == []


def test_a_missing_optuna_is_told_with_the_extra_to_install(
    command: Command, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "optuna" else find(name))
    with pytest.raises(CommandLineError, match=r"not installed\n    pip install 'embexp\[sweeps\]'"):
        sweep([*SEARCH, "seed=1,2"], command=command)
    assert list(elsewhere.iterdir()) == []


REFUSED = {
    "parameters: it has seed: 1, 2, but this command has seed: 1, 3": [*SEARCH, "seed=1,3"],
    "fixed: it has nothing, but this command has train.batch_size=64": [*SEARCH, "seed=1,2", "train.batch_size=64"],
    "sampler: it has tpe, but this command has random": [*SEARCH, "seed=1,2", "hydra.sweeper.sampler=random"],
    "nowhere://x can't be used": [*SEARCH, "seed=1,2", "hydra.sweeper.storage=nowhere://x"],
    "already holds a different sweep, a search": ["seed=1,2", "hydra.sweep.dir=s", "train.steps=5"],
}
"""Commands by what is said about them in the folder of another search."""


def test_a_refused_command_changes_nothing_and_the_search_goes_on(command: Command) -> None:
    def content() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in Path("s").rglob("*") if path.is_file()}

    assert sweep([*SEARCH, "seed=1,2", "hydra.sweeper.n_trials=1"], command=command)
    Path("s/.cancel").touch()
    with Ledger(Path("s")) as ledger:  # as if its process had been killed
        ledger.leave(0, Status.RUNNING)
    before = content()
    for difference, words in REFUSED.items():
        with pytest.raises(EmbexpError) as caught:
            sweep(words, command=command)
        assert difference in str(caught.value)
        assert str(Path("s").absolute()) in str(caught.value) or "nowhere" in difference
        assert content() == before
    assert resume(Path("s"), ["hydra.sweeper.n_trials=2"], command=command)
    assert len(searched()["trials"]) == 2
    assert sweep([*SEARCH, "seed=2,3", "hydra.sweeper.n_trials=2"], command=command, narrow=True)
    assert [each["state"] for each in searched()["trials"]].count("outside") == 1


def test_a_search_that_was_refused_before_its_first_trial_leaves_its_folder_to_others(command: Command) -> None:
    with pytest.raises(EmbexpError, match="nowhere://x"):
        sweep([*SEARCH, "seed=1,2", "hydra.sweeper.storage=nowhere://x"], command=command)
    assert sweep([*SEARCH, "seed=3,4", "hydra.sweeper.n_trials=1"], command=command)


def test_a_search_does_not_go_on_in_the_folder_of_another_sweep(command: Command) -> None:
    assert sweep(["seed=1,2", "hydra.sweep.dir=s", "train.steps=5"], command=command)
    with pytest.raises(CommandLineError, match="already holds a different sweep"):
        sweep([*SEARCH, "seed=1,2"], command=command)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hydra/launcher=basic", "+hydra.launcher.jobs=2"], r"jobs = 2: the launcher basic has no such setting"),
        (["hydra/launcher=submitit_slurm", "hydra.launcher.partitions=a"], r"hydra\.launcher\.partitions"),
        (["hydra/launcher=nothing"], r"hydra/launcher = 'nothing'"),
    ],
)
def test_faults_of_launchers_of_others(words: list[str], message: str, command: Command, elsewhere: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        sweep(["seed=1,2", "hydra.sweep.dir=s", *words], command=command)
    assert list(elsewhere.iterdir()) == []


def test_a_launcher_whose_package_is_missing_is_told(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "submitit" in name else find(name))
    with pytest.raises(CommandLineError, match=r"submitit_slurm needs .*\n    pip install hydra-submitit-launcher"):
        sweep(["seed=1,2", "hydra/launcher=submitit_slurm"], command=command)


def test_the_sweeper_of_another_package_with_the_same_name_is_left_to_others(command: Command) -> None:
    store = ConfigStore.instance()
    theirs = {"defaults": [{"sampler": "tpe"}], "_target_": "hydra_plugins.theirs.OptunaSweeper", "n_jobs": 2}
    before = store.repo["hydra"]["sweeper"].get("optuna.yaml")
    store.store(group="hydra/sweeper", name="optuna", node=theirs, provider="theirs")
    try:
        assert sweep([*SEARCH, "seed=1,2", "hydra.sweeper.n_trials=1"], command=command)
        assert store.load("hydra/sweeper/optuna.yaml").node._target_ == "hydra_plugins.theirs.OptunaSweeper"
    finally:
        del store.repo["hydra"]["sweeper"]["optuna.yaml"]
        if before is not None:
            store.repo["hydra"]["sweeper"]["optuna.yaml"] = before
