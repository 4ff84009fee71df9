"""The number of jobs is a product, known before any is made; the numbers of ranges are those that are meant."""

from __future__ import annotations

import math

import pytest
from hydra.core.override_parser.types import Override, RangeSweep

from embexp.config import composition
from embexp.config.overrides import parse
from embexp.errors import CommandLineError, ConfigError
from embexp.sweeps import planning, search


def _parsed(*texts: str) -> list[Override]:
    overrides, faults = parse(composition.loader(), texts, sweeping=True)
    assert not faults
    return overrides


@pytest.mark.parametrize(
    ("overrides", "jobs", "factors"),
    [
        (["seed=range(0,10000000)"], 10**7, "10,000,000 of seed"),
        (["seed=range(0,1000000)", "data.users=range(1,1000001)"], 10**12, "seed × 1,000,000 of data.users"),
        (["seed=range(0,1000000)", "seeds=1000", "model=dlrm,mlp"], 2 * 10**9, "of seed × 2 of model × 1,000 of"),
        (["optimizer.learning_rate=range(0,1e12,1.0)"], 10**12, "1,000,000,000,000 of optimizer.learning_rate"),
        (["seed=1,2,3", "sweep.max_jobs=2"], 3, "3 of seed"),
        ([*(f"+model.args.a{each}=1,2" for each in range(40))], 2**40, "2 of +model.args.a7 × 32 more"),
        (["hydra/sweeper=optuna", "hydra.sweeper.n_trials=20000", "seed=range(0,1000000)"], 20_000, "20,000 of trials"),
    ],
)  # fmt: skip
def test_a_sweep_with_too_many_jobs_is_told_by_their_number(
    overrides: list[str], jobs: int, factors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "hydra/sweeper=optuna" not in overrides:
        monkeypatch.setattr(RangeSweep, "range", lambda self: pytest.fail("a range was expanded"))
        monkeypatch.setattr(planning, "check", lambda *_: pytest.fail("jobs were made"))
    with pytest.raises(ConfigError) as raised:
        planning.plan(composition.loader(), overrides)
    [fault] = raised.value.faults
    assert fault.path == "sweep.max_jobs"
    assert fault.value == ("2" if "sweep.max_jobs=2" in overrides else "10000")
    assert fault.rule.startswith(f"the sweep has {jobs:,} jobs (")
    assert factors in fault.rule
    assert fault.remedy.endswith(f"set sweep.max_jobs={jobs}")


def test_a_sweep_of_as_many_jobs_as_are_allowed_is_planned() -> None:
    plan = planning.plan(composition.loader(), ["seed=1,2,3", "sweep.max_jobs=3"])
    assert plan.jobs is not None
    assert len(plan.jobs) == 3


@pytest.mark.parametrize(
    "value",
    [
        "range(3)",
        "range(1,9,3)",
        "range(9,1,-3)",
        "range(0,1,0.1)",
        "range(0,0.9,0.3)",
        "range(1,0.1,-0.1)",
        "range(5,5)",
    ],
)
def test_ranges_are_counted_as_hydra_makes_them(value: str) -> None:
    [override] = _parsed(f"seed={value}")
    sweep = override.value()
    assert isinstance(sweep, RangeSweep)
    assert search.steps(sweep) == len(list(sweep.range()))


@pytest.mark.parametrize(
    "value", ["range(0,5,0)", "range(0,1,0.0)", "range(0.1,inf)", "range(nan,1)", "range(0,1,inf)"]
)
def test_a_range_without_an_end_or_without_steps(value: str) -> None:
    with pytest.raises(CommandLineError, match="names no values to try"):
        search.combinations(_parsed(f"seed={value}"))


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        ("range(0.1,0.5,0.1)", "0.1 0.2 0.3 0.4"),
        ("range(0,1,0.1)", "0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9"),
        ("range(0,0.9,0.3)", "0.0 0.3 0.6 0.9"),  # Hydra has 0.8999999999999999, which is less than 0.9
        ("range(1,0.6,-0.1)", "1.0 0.9 0.8 0.7 0.6"),  # and 0.6000000000000001, which is more than 0.6
        ("range(1e-5,5e-5,1e-5)", "1e-05 2e-05 3e-05 4e-05"),
        ("0.30000000000000004,0.3", "0.30000000000000004 0.3"),  # given so
    ],
)
def test_the_numbers_of_a_range_are_those_of_its_decimals(value: str, numbers: str) -> None:
    [override] = _parsed(f"optimizer.learning_rate={value}")
    found = search.texts(override)
    assert found == numbers.split()
    by_hydra = [float(each) for each in override.sweep_string_iterator()]
    assert all(math.isclose(float(a), b, rel_tol=1e-12) for a, b in zip(found, by_hydra, strict=True))


def test_shuffled_numbers_are_the_same_ones() -> None:
    [override] = _parsed("optimizer.learning_rate=shuffle(range(0.1,1,0.1))")
    assert sorted(search.texts(override)) == [f"0.{digit}" for digit in range(1, 10)]
