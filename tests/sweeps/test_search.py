"""Searches over a function instead of trainings: what is asked for, told and kept; and what a kill changes: nothing."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import optuna
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embexp.errors import CommandLineError, ConfigError, RunError
from embexp.fields.columns.tasks import BINARY
from embexp.reports.record import Status
from embexp.specs.running import SearchSettings
from embexp.specs.tasks import objectives
from embexp.sweeps import space as spaces
from embexp.sweeps.jobs import Outcome
from embexp.sweeps.search import Search, TrialJobs, search_setting_faults
from embexp.sweeps.settings import checked_search_settings
from embexp.sweeps.study import Study, run

SPACE = ("x=interval(-2,2)", "y=tag(log,interval(0.01,1))", "m=a,b", "seed=3")


def search(*overrides: str, chosen: str | list[str] = "log_loss", at_once: int = 3, **node: object) -> Search:
    space = spaces.space(OverridesParser.create().parse_overrides(list(overrides or SPACE)))
    found = objectives(BINARY, chosen)
    read = checked_search_settings({"n_trials": 12, **node})
    assert not list(search_setting_faults(read, space, found, study=False))
    return Search(space, found, read, at_once)


def outcome(number: int, overrides: Sequence[str], status: Status = Status.COMPLETED) -> Outcome:
    """A bowl whose bottom is at x = 1 and y = 0.1, deeper for m = b."""
    given = dict(each.split("=") for each in overrides)
    x, y = float(given.get("x", 0)), float(given.get("y", 0.1))
    loss = (x - 1) ** 2 + math.log10(10 * y) ** 2 + (given.get("m") == "a")
    metrics = {"validation log_loss": loss, "validation auc": y, "test log_loss": -99.0}
    return Outcome(number, given, status, metrics=metrics if status.has_results else {})


class Jobs:
    """Runs jobs, and remembers the results of those that are done, as the ledger does."""

    def __init__(self) -> None:
        self.done: dict[int, Outcome] = {}
        self.batches: list[list[int]] = []

    def __call__(self, batch: Sequence[Sequence[str]], first: int) -> list[list[Outcome]]:
        self.batches.append(list(range(first, first + len(batch))))
        for number, overrides in enumerate(batch, first):
            self.run(number, overrides)
        return [[self.done[number]] for number in self.batches[-1]]

    def run(self, number: int, overrides: Sequence[str]) -> None:
        assert number not in self.done or self.done[number].overrides == outcome(number, overrides).overrides
        self.done.setdefault(number, outcome(number, overrides))


def history(directory: Path) -> list[tuple[object, ...]]:
    trials = json.loads((directory / "search.json").read_text())["trials"]
    return [(each["job"], each["state"], each["params"], each["values"], each["best_so_far"]) for each in trials]


def test_trials_come_in_batches_and_their_history_is_kept(tmp_path: Path) -> None:
    jobs = Jobs()
    [best] = run(search(n_trials=8), tmp_path, jobs)
    assert jobs.batches == [[0, 1, 2], [3, 4, 5], [6, 7]]
    losses = [jobs.done[number].metrics["validation log_loss"] for number in range(8)]
    assert [each[3] for each in history(tmp_path)] == [[loss] for loss in losses]
    assert [each[4] for each in history(tmp_path)] == [min(losses[: n + 1]) for n in range(8)]
    assert best.values == (min(losses),)
    assert jobs.done[best.job].metrics["validation log_loss"] == min(losses)
    content = json.loads((tmp_path / "search.json").read_text())
    assert content["objectives"] == [{"metric": "validation log_loss", "direction": "minimize"}]
    assert content["best"] == [best.job]
    assert {job.overrides["seed"] for job in jobs.done.values()} == {"3"}


def test_tpe_is_better_than_the_best_of_as_many_random_trials(tmp_path: Path) -> None:
    found = {}
    for sampler in ("tpe", "random"):
        (tmp_path / sampler).mkdir()
        [best] = run(search(n_trials=40, sampler=sampler), tmp_path / sampler, Jobs())
        found[sampler] = best.values[0]
    assert found["tpe"] < found["random"]


def test_a_metric_that_gets_better_when_higher_is_maximized(tmp_path: Path) -> None:
    jobs = Jobs()
    [best] = run(search(chosen="auc"), tmp_path, jobs)
    assert best.values == (max(job.metrics["validation auc"] for job in jobs.done.values()),)


def test_the_best_of_two_objectives_are_those_that_no_other_beats(tmp_path: Path) -> None:
    jobs = Jobs()
    best = run(search(chosen=["log_loss", "auc"], n_trials=15), tmp_path, jobs)
    points = {n: (job.metrics["validation log_loss"], job.metrics["validation auc"]) for n, job in jobs.done.items()}
    front = {
        n
        for n, (loss, auc) in points.items()
        if not any(other[0] <= loss and other[1] >= auc and other != (loss, auc) for other in points.values())
    }
    assert {each.job for each in best} == front


class KilledError(Exception):
    """Stands for SIGKILL."""


class KilledJobs(Jobs):
    """Is killed before or after some jobs."""

    def __init__(self, kills: set[int]) -> None:
        super().__init__()
        self.kills = kills

    def run(self, number: int, overrides: Sequence[str]) -> None:
        if 2 * number in self.kills:
            self.kills.remove(2 * number)
            raise KilledError
        super().run(number, overrides)
        if 2 * number + 1 in self.kills:
            self.kills.remove(2 * number + 1)
            raise KilledError


def run_to_the_end(make: Callable[[], Search], directory: Path, jobs: Jobs) -> None:
    while True:
        try:
            run(make(), directory, jobs)
        except KilledError:
            continue
        return


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_search_that_is_killed_anywhere_asks_for_the_same_trials(
    sampler: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def make() -> Search:
        return search("x=range(-2,3)", "y=range(0.1,0.5,0.1)", sampler=sampler, n_trials=10)

    whole = tmp_path_factory.mktemp("whole")
    run(make(), whole, Jobs())

    @settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sets(st.integers(0, 19), max_size=4))
    def killed(kills: set[int]) -> None:
        directory = tmp_path_factory.mktemp("killed")
        run_to_the_end(make, directory, KilledJobs(kills))
        assert history(directory) == history(whole)

    killed()


@pytest.mark.parametrize("asked", range(4))
def test_a_search_that_is_killed_while_it_asks_goes_on_with_what_it_has(
    asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    run(search(n_trials=6), tmp_path / "whole", Jobs())
    calls, noted = [0], optuna.trial.Trial.set_user_attr

    def noting(self: object, key: str, value: object) -> None:
        calls[0] += 1
        if calls[0] == asked + 1:
            raise KilledError
        noted(self, key, value)

    with monkeypatch.context() as patched:
        patched.setattr(optuna.trial.Trial, "set_user_attr", noting)
        with pytest.raises(KilledError):
            run(search(n_trials=6), tmp_path / "killed", Jobs())
    run(search(n_trials=6), tmp_path / "killed", Jobs())
    assert history(tmp_path / "killed") == history(tmp_path / "whole")


def test_a_search_that_is_done_runs_nothing(tmp_path: Path) -> None:
    run(search(n_trials=4), tmp_path, Jobs())
    jobs = Jobs()
    [best] = run(search(n_trials=4), tmp_path, jobs)
    assert jobs.batches == []
    assert best.values is not None


def test_failed_and_pruned_trials_are_told_as_such(tmp_path: Path) -> None:
    states = {0: Status.FAILED, 1: Status.PRUNED, 2: Status.SKIPPED, 4: Status.STOPPED_EARLY}

    def launch(batch: Sequence[Sequence[str]], first: int) -> list[list[Outcome]]:
        return [[outcome(n, each, states.get(n, Status.COMPLETED))] for n, each in enumerate(batch, first)]

    run(search(n_trials=6), tmp_path, launch)
    assert [each[1] for each in history(tmp_path)] == ["fail", "pruned", "fail", "complete", "complete", "complete"]


def test_a_trial_without_its_metric_fails(tmp_path: Path) -> None:
    run(search(n_trials=2), tmp_path, lambda batch, first: [[Outcome(0, {}, Status.COMPLETED)] for _ in batch])
    assert [each[1] for each in history(tmp_path)] == ["fail", "fail"]


def test_an_interrupted_search_ends_and_goes_on(tmp_path: Path) -> None:
    def launch(batch: Sequence[Sequence[str]], first: int) -> list[list[Outcome]]:
        states = [Status.COMPLETED, Status.INTERRUPTED, Status.PLANNED]
        return [[outcome(first + n, each, states[n])] for n, each in enumerate(batch)]

    run(search(n_trials=6), tmp_path, launch)
    assert [each[1] for each in history(tmp_path)] == ["complete", "running", "running"]
    jobs = Jobs()
    run(search(n_trials=6), tmp_path, jobs)
    assert jobs.batches == [[1, 2], [3, 4, 5]]


def test_the_value_of_a_trial_is_the_mean_over_its_seeds(tmp_path: Path) -> None:
    def launch(batch: Sequence[Sequence[str]], first: int) -> list[list[Outcome]]:
        return [
            [Outcome(0, {}, Status.COMPLETED, metrics={"validation log_loss": value}) for value in (1.0, 2.0, 6.0)]
            for _ in batch
        ]

    [best] = run(search(n_trials=1), tmp_path, launch)
    assert best.values == (3.0,)


def test_the_median_pruner_ends_what_is_worse(tmp_path: Path) -> None:
    study_of = search(pruner="median", n_trials=8)
    with Study(study_of, tmp_path) as study:
        trials = [study.ask(job) for job in range(7)]
        for each in trials[:5]:
            assert not study.report(each, 10, 0.5)
            study.tell(each, [0.5])
        assert study.report(trials[5], 10, 0.6) is True
        assert not study.report(trials[6], 10, 0.4)
        assert study.report(trials[5], 10, 0.1)  # evaluated again after a kill: what was reported first counts


def test_trials_of_every_state_come_back_from_a_narrower_space(tmp_path: Path) -> None:
    space, pruner = ("x=interval(0,1)", "m=a,b"), {"pruner": "median"}
    with Study(search(*space, **pruner), tmp_path) as study:
        trials = [study.ask(job) for job in range(4)]
        for each in trials:
            study.report(each, 10, 0.5 + each.job)
        study.tell(trials[0], [0.5])
        study.end(trials[1], optuna.trial.TrialState.PRUNED)
        study.end(trials[2], optuna.trial.TrialState.FAIL)
        before = study.trials()
    with Study(search("x=interval(2,3)", "m=a,b", **pruner), tmp_path, Known(agreed=True)) as study:
        assert [each.state for each in study.trials()] == ["outside"] * 4
        assert study.best() == []
    with Study(search("x=interval(0,4)", "m=a,b,c", **pruner), tmp_path) as study:
        assert study.trials() == before
        assert study.report(before[3], 20, 9.0) is False  # the median of one trial, whose values it knows


def test_what_is_killed_while_it_asks_leaves_no_part_of_a_trial(tmp_path: Path) -> None:
    found, own = search(), optuna.Trial._suggest

    def killed(trial: optuna.Trial, name: str, distribution: optuna.distributions.BaseDistribution) -> object:
        if name == "y":
            raise KeyboardInterrupt
        return own(trial, name, distribution)

    (tmp_path / "whole").mkdir()
    with Study(found, tmp_path / "whole") as study:
        expected = study.ask(0)
    with Study(found, tmp_path) as study:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(optuna.Trial, "_suggest", killed)
            with pytest.raises(KeyboardInterrupt):
                study.ask(0)
        assert study.ask(0) == expected


def test_a_search_whose_directory_was_moved_is_continued(tmp_path: Path) -> None:
    found = search()
    (tmp_path / "before").mkdir()
    with Study(found, tmp_path / "before") as study:
        study.tell(study.ask(0), [0.5])
    (tmp_path / "before").rename(tmp_path / "after")
    with Study(found, tmp_path / "after") as study:
        assert [(each.job, each.state) for each in study.trials()] == [(0, "complete")]
        assert study.ask(1).number == 1


def test_what_the_owner_of_a_storage_has_put_into_its_queue_is_tried_first(tmp_path: Path) -> None:
    found = search()
    with Study(found, tmp_path) as study:
        study._study.enqueue_trial({"x": 1.5, "y": 0.5, "m": "b"})
        assert study.ask(0).settings == {"x": "1.5", "y": "0.5", "m": "b"}
        assert study.ask(1).number == 1


def test_two_sweeps_share_a_storage(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        jobs = Jobs()
        run(search(n_trials=3, storage=str(tmp_path / "s.db"), study_name="both"), tmp_path / name, jobs)
        assert sorted(jobs.done) == [0, 1, 2]
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/s.db")
    assert len(optuna.load_study(study_name="both", storage=storage).trials) == 6
    storage.engine.dispose()
    assert not (tmp_path / "a" / "optuna.sqlite").exists()


def test_a_study_with_another_direction_is_refused(tmp_path: Path) -> None:
    run(search(n_trials=1, study_name="mine"), tmp_path, Jobs())
    with pytest.raises(RunError, match="holds a study 'mine' with the objectives minimize"):
        run(search(n_trials=1, study_name="mine", chosen="auc"), tmp_path, Jobs())


def test_another_search_in_the_directory_is_refused(tmp_path: Path) -> None:
    run(search("x=interval(0,1)", n_trials=2), tmp_path, Jobs())
    run(search("x=interval(0,1)", n_trials=3), tmp_path, Jobs())
    with pytest.raises(
        CommandLineError,
        match="already holds a different search\n    fixed: it has nothing, but this command has seed=4\n",
    ):
        run(search("x=interval(0,1)", "seed=4", n_trials=2), tmp_path, Jobs())
    with pytest.raises(CommandLineError, match="sampler: it has tpe, but this command has random"):
        run(search("x=interval(0,2)", n_trials=2, sampler="random"), tmp_path, Jobs())


def test_no_combination_is_tried_twice(tmp_path: Path) -> None:
    jobs = Jobs()
    run(search("m=a,b", "x=1,2,3", n_trials=10), tmp_path, jobs)
    assert jobs.batches == [[0, 1, 2], [3, 4, 5]]
    assert len({tuple(sorted(job.overrides.items())) for job in jobs.done.values()}) == 6
    content = json.loads((tmp_path / "search.json").read_text())
    assert (content["ended"], content["left_out"]) == ("all 6 combinations of its space are tried", 4)


class Known(TrialJobs):
    """A sweep that rejects what has some override, has spent ten seconds a job, and says yes or no."""

    def __init__(self, jobs: Jobs | None = None, *, rejected: str = "", agreed: bool = False) -> None:
        self.jobs, self.rejected, self.agreed = jobs or Jobs(), rejected, agreed
        self.asked: list[str] = []

    def rejection(self, overrides: Sequence[str], others: Sequence[Sequence[str]]) -> str:
        return "it is excluded" if self.rejected in overrides else ""

    def value(self, trial: int, key: str) -> str | None:
        return {"n": "7"}.get(key)

    def seconds(self) -> tuple[float, dict[int, float]]:
        return 10.0 * len(self.jobs.done), {number: 10.0 * (number + 1) for number in self.jobs.done}

    def agrees(self, question: str) -> bool:
        self.asked.append(question)
        return self.agreed


def test_what_cannot_run_is_not_tried_and_does_not_count(tmp_path: Path) -> None:
    jobs = Jobs()
    run(search("m=a,b,c", "x=interval(0,1)", n_trials=6), tmp_path, jobs, jobs=Known(rejected="m=b"))
    assert sorted(jobs.done) == list(range(6))
    assert {job.overrides["m"] for job in jobs.done.values()} == {"a", "c"}
    (tmp_path / "small").mkdir()
    run(search("m=a,b,c", n_trials=6), tmp_path / "small", few := Jobs(), jobs=Known(rejected="m=b"))
    assert {job.overrides["m"] for job in few.done.values()} == {"a", "c"}
    content = json.loads((tmp_path / "small" / "search.json").read_text())
    assert content["left_out"] == 4
    assert content["ended"].startswith("the 3 combinations of its space are tried, except those that can't run")


def test_a_search_ends_with_its_budget_over_all_sessions(tmp_path: Path) -> None:
    jobs = Jobs()
    for budget, done in (("45s", 6), ("60s", 6), ("1m 1s", 9), (None, 12)):  # three at once, ten seconds each
        run(search(n_trials=12, budget=budget), tmp_path, jobs, jobs=Known(jobs))
        assert len(jobs.done) == done
        content = json.loads((tmp_path / "search.json").read_text())
        assert content["left_out"] == 12 - done
        assert content["ended"] == (f"its budget of {budget} is spent; " * (done < 12)) + (
            "to continue, set a larger hydra.sweeper.budget" * (done < 12)
        )
    assert [each["seconds"] for each in content["trials"]] == [10.0 * number for number in range(1, 13)]


def conditional(*, wider: bool = False, **node: object) -> Search:
    """A search for m and, where it is a, x; in a wider one there are more of both, and y."""
    params: dict[str, object] = {
        "m": "a,b,c" if wider else "a,b",
        "x": {"when": {"m": "a"}, "space": "interval(0,2)" if wider else "interval(0,1)"},
    }
    if wider:
        params |= {"y": {"when": {"m": "c"}, "space": "interval(0.1,1)"}, "n": "range(5,9)"}
    lines, entries = spaces.entries(params)
    parse = OverridesParser.create().parse_override
    space = spaces.space([], [*map(parse, lines)], [(entry, parse(entry.line)) for entry in entries])
    return Search(space, objectives(BINARY, "log_loss"), checked_search_settings({"n_trials": 8, **node}), 2)


def test_a_trial_has_only_what_its_conditions_say(tmp_path: Path) -> None:
    jobs = Jobs()
    run(conditional(wider=True, n_trials=12), tmp_path, jobs)
    for job in jobs.done.values():
        assert ("x" in job.overrides) is (job.overrides["m"] == "a")
        assert ("y" in job.overrides) is (job.overrides["m"] == "c")
    assert {job.overrides["m"] for job in jobs.done.values()} == {"a", "b", "c"}
    importance = json.loads((tmp_path / "search.json").read_text())["importance"]
    assert (importance["evaluator"], importance["without"]) == ("PED-ANOVA", ["x", "y"])
    assert sum(importance["by_objective"][0].values()) == pytest.approx(1)


def test_a_wider_space_knows_earlier_trials_and_a_kill_changes_nothing(tmp_path: Path) -> None:
    (whole := tmp_path / "whole").mkdir()
    run(conditional(n_trials=4), whole, jobs := Jobs())
    before = history(whole)
    run(conditional(wider=True, n_trials=8), whole, jobs, jobs=Known())
    assert jobs.batches == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [each[2].pop("n") for each in history(whole)[:4]] == ["7"] * 4  # what they had without having chosen it
    assert [(each[0], each[1], each[3]) for each in history(whole)[:4]] == [(n, s, v) for n, s, _, v, _ in before]
    (killed := tmp_path / "killed").mkdir()
    jobs = KilledJobs({2, 5, 8, 13})
    run_to_the_end(lambda: conditional(n_trials=4), killed, jobs)
    copy, calls = optuna.Study.add_trials, [0]

    def interrupted(study: optuna.Study, trials: Iterable[optuna.trial.FrozenTrial]) -> None:
        calls[0] += 1
        if calls[0] == 1 and study.study_name.endswith("_2"):
            copy(study, list(trials)[:2])
            raise KilledError
        copy(study, trials)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optuna.Study, "add_trials", interrupted)
        with pytest.raises(KilledError):
            run(conditional(wider=True, n_trials=8), killed, jobs, jobs=Known())
    while jobs.kills:
        with contextlib.suppress(KilledError):
            run(conditional(wider=True, n_trials=8), killed, jobs, jobs=Known())
    run(conditional(wider=True, n_trials=8), killed, jobs, jobs=Known())
    assert history(killed) == history(whole)


def test_a_narrower_space_asks_and_a_wider_one_brings_its_trials_back(tmp_path: Path) -> None:
    run(search("m=a,b", "x=interval(0,1)", n_trials=6), tmp_path, Jobs())
    content, known = (tmp_path / "optuna.sqlite").read_bytes(), Known()
    narrow = search("m=b", "x=interval(0,1)", n_trials=6)
    with pytest.raises(
        CommandLineError, match=r"which this one does not contain\n    parameters: .*\n.*trials would no longer count"
    ):
        run(narrow, tmp_path, Jobs(), jobs=known)
    assert "Go on with this one?" in known.asked[0]
    assert (tmp_path / "optuna.sqlite").read_bytes() == content
    before = history(tmp_path)
    run(narrow, tmp_path, jobs := Jobs(), jobs=Known(agreed=True))
    now = history(tmp_path)
    outside = [each[0] for each in before if each[2]["m"] == "a"]
    assert [each[0] for each in now if each[1] == "outside"] == outside
    assert sorted(jobs.done) == list(range(6, 6 + len(outside)))  # they don't count
    run(search("m=a,b", "x=interval(0,1)", n_trials=6), tmp_path, jobs := Jobs())
    assert jobs.done == {}
    assert [each[:4] for each in history(tmp_path)[:6]] == [each[:4] for each in before]


def test_a_storage_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"hydra\.sweeper\.storage: nodatabase://x can't be used"):
        run(search(storage="nodatabase://x"), tmp_path, Jobs())


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (
            {"n_trial": 5},
            r"hydra\.sweeper\.n_trial = 5: hydra.sweeper has no key 'n_trial'.*\n.*did you mean n_trials",
        ),
        ({"n_trials": 0}, r"n_trials = 0: it must be at least 1"),
        ({"sampler": "tpf"}, r"sampler = 'tpf': it must be tpe, random or cmaes"),
        ({"pruner": "mean"}, r"pruner = 'mean': it must be none, median or hyperband"),
        ({"n_trials": "many"}, "whole number"),
        ({"budget": 120}, r"budget = 120: it must be a duration with its unit, such as 2h, 90m"),
        ({"budget": "2 weeks"}, r"budget = '2 weeks': it must be a duration with its unit"),
        ({"budget": "0h"}, "it must be a duration with its unit"),
    ],
)
def test_faults_of_the_settings(node: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        checked_search_settings(node)


@pytest.mark.parametrize(
    ("overrides", "chosen", "node", "words"),
    [
        (["x=1,2"], "auc", {"sampler": "cmaes"}, "at least two numeric ranges"),
        (["x=1,2"], ["auc", "log_loss"], {"pruner": "median"}, "compares trials by a single objective"),
    ],
)
def test_what_cannot_be_combined(overrides: list[str], chosen: str, node: dict[str, object], words: str) -> None:
    space = spaces.space(OverridesParser.create().parse_overrides(overrides))
    faults = search_setting_faults(SearchSettings.model_validate(node), space, objectives(BINARY, chosen), study=False)
    with pytest.raises(ConfigError, match=words):
        raise ConfigError(list(faults))
