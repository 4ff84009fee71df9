"""What a search makes better."""

from __future__ import annotations

import math

import pytest

from embexp.errors import ConfigError
from embexp.fields.columns.tasks import BINARY, REGRESSION
from embexp.reports.record import Status
from embexp.specs.tasks import Objective, Task, objectives
from embexp.sweeps.jobs import Outcome
from embexp.sweeps.search import objective_values


@pytest.mark.parametrize(
    ("task", "chosen", "found"),
    [
        (BINARY, None, [Objective("log_loss", higher_is_better=False)]),
        (REGRESSION, None, [Objective("rmse", higher_is_better=False)]),
        (BINARY, "auc", [Objective("auc", higher_is_better=True)]),
        (BINARY, "validation auc", [Objective("auc", higher_is_better=True)]),
        (BINARY, "validation.auc", [Objective("auc", higher_is_better=True)]),
        (BINARY, "validation/auc", [Objective("auc", higher_is_better=True)]),
        (
            BINARY,
            ["auc", "log_loss"],
            [Objective("auc", higher_is_better=True), Objective("log_loss", higher_is_better=False)],
        ),
    ],
)
def test_objectives(task: Task, chosen: str | list[str] | None, found: list[Objective]) -> None:
    assert list(objectives(task, chosen)) == found


@pytest.mark.parametrize("split", ["test auc", "test.auc", "test/auc"])
def test_a_test_metric_is_refused(split: str) -> None:
    with pytest.raises(ConfigError, match=r"must choose settings on the validation split.*\n.*sweep\.objective=auc"):
        objectives(BINARY, split)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ("rmse", "the metrics of task binary are log_loss, auc, loss"),
        ("train loss", "a search must choose settings on the validation split"),
        (["auc", "validation auc"], "listed twice"),
        ([], "a search needs an objective"),
    ],
)
def test_faults(chosen: str | list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        objectives(BINARY, chosen)


def outcome(**metrics: float) -> Outcome:
    return Outcome(0, {}, Status.COMPLETED, metrics={key.replace("_", " ", 1): each for key, each in metrics.items()})


def test_values_are_those_of_the_validation_split() -> None:
    auc, loss = objective_values(objectives(BINARY, ["auc", "log_loss"]), [outcome(test_auc=0.9, validation_auc=0.7)])
    assert auc == 0.7
    assert math.isnan(loss)


def test_values_are_means_over_seeds_unless_one_is_missing() -> None:
    chosen = objectives(BINARY, "auc")
    several = [outcome(validation_auc=0.5), outcome(validation_auc=0.75)]
    assert objective_values(chosen, several) == [0.625]
    assert math.isnan(objective_values(chosen, [*several, outcome(test_auc=0.5)])[0])
