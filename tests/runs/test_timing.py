"""`plan --time`: what is timed, by a clock of the test's own."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from embexp.cli.commands import plan
from embexp.runs import dry_run
from embexp.system import native
from tests import planted_data


class Clock:
    """A runtime whose first steps are slow, on a clock of its own."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds, self.steps = 0.0, seconds, 0

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.now += self.seconds * (10 if self.steps < 2 else 1)
            self.steps += 1


@pytest.mark.parametrize("seconds", [0.0001, 0.01, 2.0, 60.0])
def test_steps_are_timed_after_a_warm_up(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(seconds)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    calls = dry_run._timed_steps(clock.train, 10**9, first=100.0)
    assert len(calls) >= 3
    each = sorted(taken / steps for steps, taken in calls)
    assert each[len(each) // 2] == pytest.approx(seconds)
    assert clock.now < 3 * (dry_run._SECONDS + dry_run._WARM_UP_SECONDS) + 24 * seconds  # slow steps: a few of them


@pytest.mark.parametrize("left", [0, 1, 2, 5, 40, 1000])
def test_no_more_steps_are_timed_than_the_run_has(left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.001)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    calls = dry_run._timed_steps(clock.train, left, first=7.0)
    assert clock.steps <= left
    assert calls
    assert all(steps >= 1 for steps, _ in calls)
    if not left:
        assert calls == [(1, 7.0)]


def test_the_sum() -> None:
    found = dry_run.Timed(
        start=3.0,
        step=0.01,
        quartiles=(0.009, 0.012),
        steps=60,
        evaluations={"validation": 2.0, "test": 5.0},
        training_steps=1000,
        validations=4,
    )
    assert found.training == pytest.approx(10.0)
    assert found.evaluating == pytest.approx(4 * 2 + 5)
    assert found.total == pytest.approx(3 + 10 + 13)
    assert found.spread == pytest.approx(0.15)


def test_the_plan_of_a_run_has_its_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "build", lambda *_: pytest.fail("a plan builds no fused operations"))
    file = planted_data.ratings(
        tmp_path / "ratings.csv", examples=1000, users=30, items=20, scale=(1, 5), step=1, seed=0
    )
    overrides = [
        "experiment=ratings",
        f"data.path={file}",
        "data.label=rating",
        "train.epochs=3",
        "train.early_stopping.patience=null",
        f"output.cache={tmp_path / 'cache'}",
    ]
    before = sorted(path.name for path in tmp_path.iterdir())
    plan.main(["--time", *overrides])
    lines = capsys.readouterr().out.splitlines()
    length, step, validation, test, estimate = (line for line in lines if line.split(" ")[0] in LABELS)
    assert length == (
        "length    800 examples for training, 100 for validation, 100 for test; 10 steps, 3.125 per epoch"
    )
    assert re.fullmatch(r"step      .* ms \(interquartile range .*; \d steps? timed\)", step)
    assert re.fullmatch(r"evaluate  validation: .* s, 3 times", validation)
    assert re.fullmatch(r"evaluate  test: .* s, at the end", test)
    assert re.match(r"time      about 0:\d\d \(± \d+% for the steps\): .* for 10 steps, ", estimate)
    assert sorted({*(path.name for path in tmp_path.iterdir())} - {"cache"}) == before


LABELS = ("length", "step", "evaluate", "time")
