"""Lists that a sweep takes together: `zip(model,optimizer)=[mlp,sgd],[dlrm,adam]`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

import embexp
from embexp.config import composition
from embexp.errors import ConfigError
from embexp.reports.report import report
from embexp.sweeps import planning
from embexp.sweeps.sweep import resume, sweep

Command = Callable[[Path, int], Sequence[str]]
PAIRS = "zip(model,optimizer)=[mlp,sgd],[dlrm,adam]"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(*words: str, **more: str) -> list[dict[str, str]]:
    plan = planning.plan(composition.loader(more.get("config_dir")), list(words))
    assert plan.jobs is not None
    return [job.settings for job in plan.jobs]


def faults(*words: str) -> dict[str, tuple[str, str, str]]:
    with pytest.raises(ConfigError) as caught:
        planning.plan(composition.loader(), list(words))
    return {fault.path: (fault.value, fault.rule, fault.remedy) for fault in caught.value.faults}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([PAIRS], [{"model": "mlp", "optimizer": "sgd"}, {"model": "dlrm", "optimizer": "adam"}]),
        (["zip(model, optimizer)=[[mlp, sgd]]"], [{"model": "mlp", "optimizer": "sgd"}]),
        (["zip(name,seed)=['1',2],[a b,3]"], [{"name": '"1"', "seed": "2"}, {"name": '"a b"', "seed": "3"}]),
        (["zip(name,train.steps)=[x${seed},2]"], [{"name": '"x${seed}"', "train.steps": "2"}]),
        (["zip(++train.steps,seed)=[5,2]"], [{"train.steps": "5", "seed": "2"}]),
    ],
)
def test_jobs_are_as_many_as_lists(words: list[str], expected: list[dict[str, str]]) -> None:
    assert settings(*words) == expected


def test_values_are_those_that_were_written() -> None:
    plan = planning.plan(composition.loader(), ["zip(name,seed)=['1',2],['${seed} x',3]"])
    assert plan.jobs is not None
    assert [(job.spec.name, job.spec.seed) for job in plan.jobs] == [("1", 2), ("3 x", 3)]


def test_they_are_one_factor_in_its_place() -> None:
    found = settings("train.steps=1,2", PAIRS, "seed=7,8")
    assert len(found) == 8
    assert [(each["train.steps"], each["model"], each["seed"]) for each in found[:5]] == [
        ("1", "mlp", "7"), ("1", "mlp", "8"), ("1", "dlrm", "7"), ("1", "dlrm", "8"), ("2", "mlp", "7"),
    ]  # fmt: skip
    [(_, rule, _)] = faults(PAIRS, "seed=1,2,3", "sweep.max_jobs=5").values()
    assert rule == "the sweep has 6 jobs (2 of zip(model,optimizer) × 3 of seed)"


def test_a_choice_of_a_table_is_added_as_for_others() -> None:
    overrides = ["zip(init@tables.item.init,seed)=[assign,1],[constant,2]"]
    assert [each["init@tables.item.init"] for each in settings(*overrides)] == ["assign", "constant"]


def test_all_faults_are_told_at_once() -> None:
    found = faults("zip(model,optimizer)=[mlp,sgd],[dlrm],[mlp,a,b]", "zip(seed)=1,2", "+zip(a,b)=[1,2]", "x y=1")
    value, rule, remedy = found["zip(model,optimizer)"]
    assert value == "'[mlp,sgd],[dlrm],[mlp,a,b]'"
    assert rule == "each list must have one value for each of the 2 keys, but [dlrm] has 1; [mlp,a,b] has 3"
    assert remedy == "write 'zip(model,optimizer)=[A1,B1],[A2,B2]'"
    assert found["zip(seed)"][2] == "write seed=A,B"
    assert found["zip(a,b)"][2] == "write 'zip(+a,+b)=[1,2]'"
    assert len(found) == 4


@pytest.mark.parametrize(
    ("words", "path", "rule"),
    [
        (["zip(model,optimizer)=mlp,dlrm"], "zip(model,optimizer)", "it needs one list per job"),
        (["zip(model,seed)=range(0,3)"], "zip(model,seed)", "it needs one list per job"),
        (["zip(model,model)=[mlp,dlrm]"], "zip(model,model)", "it names model more than once"),
        (["zip(model,a b)=[mlp,dlrm]"], "zip(model,a b)", "and 'a b' is not a key"),
        (["zip(model,optimizer)=[mlp,sgd],[dlrm"], "zip(model,optimizer)", "the closing ] is missing"),
        (["zip(seed,hydra.launcher.jobs)=[1,2]"], "zip(seed,hydra.launcher.jobs)", "is a Hydra setting"),
        ([PAIRS, "model=mlp,dlrm"], "model", "it is given twice"),
        ([PAIRS, "optimizer=adam"], "optimizer", "it is given twice"),
        ([PAIRS, "zip(seed,model)=[1,mlp]"], "model", "it is given twice"),
        (["zip(modle,optimizer)=[mlp,sgd]"], "modle", "a config has no key 'modle'"),
        (["zip(model,optimizer)=[mlp,sgdd]"], "optimizer", "group optimizer has"),
    ],
)  # fmt: skip
def test_faults(words: list[str], path: str, rule: str) -> None:
    assert rule in faults(*words)[path][1]
    if path == "modle":
        assert "did you mean model?" in faults(*words)[path][2]


def test_a_single_run_takes_none() -> None:
    with pytest.raises(ConfigError, match="a single run takes one value"):
        embexp.compose([PAIRS])


def test_a_sweep_runs_resumes_and_is_reported(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    words = [PAIRS, "seed=1,2", "train.steps=5", "hydra.sweep.dir=s"]
    assert sweep(words, command=command)
    found = json.loads(Path("s/sweep.json").read_text())["jobs"]
    assert [[job["overrides"][key] for key in ("model", "optimizer", "seed")] for job in found] == [
        ["mlp", "sgd", "1"], ["mlp", "sgd", "2"], ["dlrm", "adam", "1"], ["dlrm", "adam", "2"],
    ]  # fmt: skip
    recorded = yaml.safe_load(Path("s/2/.hydra/overrides.yaml").read_text())
    assert recorded == ["model=dlrm", "optimizer=adam", "seed=1", "train.steps=5"]
    assert report("s").keys == ("model", "optimizer", "seed")
    capsys.readouterr()
    more = [f"{PAIRS},[mlp,adam]", *words[1:]]
    assert sweep(more, command=command)
    assert "4 of 6 jobs are done" in capsys.readouterr().out
    assert resume(Path("s"), command=command)
    assert "6 of 6 jobs are done" in capsys.readouterr().out


def test_in_the_params_of_an_experiment(command: Command, elsewhere: Path) -> None:
    """As a text in Hydra's grammar, or as YAML's lists; the command line takes precedence."""
    (elsewhere / "conf" / "experiment").mkdir(parents=True)
    for name, value in (("text", '"[mlp,sgd],[dlrm,adam]"'), ("lists", "[[mlp, sgd], [dlrm, adam]]")):
        node = f"hydra:\n  sweeper:\n    params:\n      zip(model,optimizer): {value}\n"
        text = f"# @package _global_\ndefaults: [clicks]\n{node}"
        (elsewhere / "conf" / "experiment" / f"{name}.yaml").write_text(text)
        found = settings(f"experiment={name}", "seed=1,2", config_dir="conf")
        assert [(each["model"], each["optimizer"]) for each in found] == [("mlp", "sgd")] * 2 + [("dlrm", "adam")] * 2
    found = settings("experiment=text", "zip(model,optimizer)=[mlp,adam]", config_dir="conf")
    assert [(each["model"], each["optimizer"]) for each in found] == [("mlp", "adam")]
    assert sweep(["experiment=text", "seed=1,2", "hydra.sweep.dir=s"], config_dir="conf", command=command)
    assert len(json.loads(Path("s/sweep.json").read_text())["jobs"]) == 4


def test_a_search_chooses_among_the_lists(command: Command) -> None:
    pytest.importorskip("optuna")
    words = [
        "hydra/sweeper=optuna", "hydra.sweeper.n_trials=6", "hydra.sweeper.sampler=random", PAIRS, "seed=range(1,90)",
        "sweep.objective=log_loss", "train.steps=5", "hydra.sweep.dir=s",
    ]  # fmt: skip
    assert sweep(words, command=command)
    found = json.loads(Path("s/sweep.json").read_text())["jobs"]
    pairs = {(job["overrides"]["model"], job["overrides"]["optimizer"]) for job in found}
    assert pairs == {("mlp", "sgd"), ("dlrm", "adam")}
    trials = json.loads(Path("s/search.json").read_text())["trials"]
    assert {trial["params"]["zip(model,optimizer)"] for trial in trials} == {"[mlp,sgd]", "[dlrm,adam]"}
    assert "seed" in faults("hydra/sweeper=optuna", "zip(seed,model)=[1,mlp],[2,dlrm]", "seed=range(0,5)")


def test_another_sweeper_is_told_of(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    (elsewhere / "conf" / "hydra" / "sweeper").mkdir(parents=True)
    target = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
    (elsewhere / "conf/hydra/sweeper/theirs.yaml").write_text(f"_target_: {target}\nmax_batch_size: null\n")
    with pytest.raises(ConfigError, match="sweeper theirs can't combine lists by position"):
        planning.plan(composition.loader("conf"), ["hydra/sweeper=theirs", PAIRS])
