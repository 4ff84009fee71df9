"""Whether a trained model is better than the best constant prediction, and than simple models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from embexp.specs import tasks as metric_specs
from embexp.specs.fields import imported
from embexp.specs.tasks import Direction, Task

LEAST_GAIN = 0.01
"""What a model gains at least, of all that there is to gain. Less is what a training that hardly moved, or chance on
some thousand examples, gives."""
_BY_HEART = 0.1
"""If a run has removed this share of a constant's training loss, it has learned the training split. The training loss
comes from the last logged steps, some thousand examples, so a few per cent may be chance."""
FITTED = {
    "logistic_regression": "logistic regression",
    "linear_regression": "linear regression",
    "bias_only": "the bias-only model",
    "ease": "EASE",
    "item_knn": "item-kNN",
}
"""The baselines that are fitted to the same columns (`columns.baselines`, `recommendation.item_models`), in words."""
OTHERS = FITTED | {"popularity": "popularity"}
"""Those that are harder to beat than a constant."""


@dataclass(frozen=True)
class Reference:
    """The constant prediction of a task, and how much better a model is.

    Attributes:
        prediction: in words.
        metrics: those that a warning shows.
        gains: from the metrics of a split and of the constant, the fractions of the possible gain; None if unknown.
    """

    prediction: str
    metrics: tuple[str, ...]
    gains: Callable[[Mapping[str, float], Mapping[str, float]], list[float | None]]


def reference_of(task: Task) -> Reference:
    """The constant prediction of a task that has one."""
    found: Reference = imported(task.reference)
    return found


def beaten(task: Task, found: Mapping[str, float], constant: Mapping[str, float]) -> bool:
    """Whether the metrics of a split are better than those of a constant prediction, by more than `LEAST_GAIN`.

    A metric that either lacks is not compared; without any, the model counts as better.
    """
    known = [gain for gain in reference_of(task).gains(found, constant) if gain is not None]
    return not known or max(known) >= LEAST_GAIN


def worse(found: Mapping[str, Any], reference: Mapping[str, Any]) -> list[str]:
    """The metrics of a split that are worse than those of a baseline, by any margin, in the order of the baseline.

    Left out are the loss, which repeats another metric, and the calibration, which is best for a constant. What either
    lacks, or has no number of, is not compared.
    """
    names = []
    for name, value in reference.items():
        direction, own = metric_specs.direction(name), found.get(name)
        if (
            name in ("loss", "calibration_error")
            or direction is None
            or not isinstance(own, int | float)
            or not isinstance(value, int | float)
        ):
            continue
        if own < value if direction is Direction.HIGHER else own > value:
            names.append(name)
    return names


def warnings(
    task: Task,
    found: Mapping[str, Mapping[str, float]],
    constant: Mapping[str, Mapping[str, float]],
    *,
    rates: str,
) -> list[str]:
    """A line for each split on which a run is no better than a constant, or has a metric that is worse than its.

    It has the figures of the metrics that are worse; if none of those that decide is, it has them all. The first line
    has the remedy.

    Args:
        found: final metrics by split; all but the training split are judged.
        constant: those of the constant prediction; its training loss too, for tasks other than ranking.
        rates: the settings that decide how far a step goes, with their values.
    """
    reference, lines = reference_of(task), []
    remedy = _remedy(found, constant, rates)
    for split in (name for name in constant if name != "train" and found.get(name)):
        own, other, names = found[split], constant[split], worse(found[split], constant[split])
        beats = beaten(task, own, other)
        if not beats:
            decide = [name for name in reference.metrics if name in own and name in other]
            poor = [name for name in decide if name in names] or decide
            names = list(dict.fromkeys([*poor, *names]))
        if names:
            what = "worse than" if beats else "no better than"
            figures = ", ".join(f"{name} {own[name]:.4f} ({other[name]:.4f})" for name in names)
            line = f"{what} a constant: {split} {figures}, in brackets {reference.prediction}"
            lines.append(line if beats else line + remedy)
            remedy = remedy if beats else ""
    return lines


def stopped_by_another(
    watched: str, found: Mapping[str, Mapping[str, Any]], constant: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """A line if the metric that early stopping watches is better than a constant's, and others are worse.

    They get worse after the step that is best for them, such as the log loss of a model that is ever surer.

    Args:
        watched: the metric of early stopping.
        found: final metrics by split.
        constant: those of the constant prediction.
    """
    by_split = [worse(found[split], constant[split]) for split in constant if split != "train" and found.get(split)]
    names = list(dict.fromkeys(name for each in by_split for name in each))
    if not names or watched in names:
        return []
    return [
        f"early stopping kept the model with the best {watched}, whose {', '.join(names)}"
        f" {'is' if len(names) == 1 else 'are'} worse than a constant's: to keep the one with the best {names[0]}, set"
        f" train.early_stopping.metric={names[0]}"
    ]


def warnings_of_others(
    found: Mapping[str, Mapping[str, float]], baselines: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> list[str]:
    """A line for each split on which a metric is worse than that of a baseline, as far as four digits show.

    Args:
        found: final metrics by split; all but the training split are judged.
        baselines: by name and split; a constant is left out, see `warnings`.
    """
    lines = []
    for name in (name for name in baselines if name in OTHERS):
        for split in (split for split in baselines[name] if split != "train" and found.get(split)):
            own, other = found[split], baselines[name][split]
            pairs = [(metric, f"{own[metric]:.4f}", f"{other[metric]:.4f}") for metric in worse(own, other)]
            figures = [
                f"{metric} {ours} is worse than {OTHERS[name]}'s {theirs}"
                for metric, ours, theirs in pairs
                if ours != theirs
            ]
            if figures:
                lines.append(f"on {split}: {', '.join(figures)}")
    return lines


def _remedy(found: Mapping[str, Mapping[str, float]], constant: Mapping[str, Mapping[str, float]], rates: str) -> str:
    """Why a run is no better than a constant, judging by its training loss, and what to try."""
    loss, reference = found.get("train", {}).get("loss"), constant.get("train", {}).get("loss")
    if loss is None or reference is None or math.isnan(loss):  # the run ended before the first loss was logged
        return f"; try another learning rate ({rates}), or another number of train.epochs"
    if loss <= (1 - _BY_HEART) * reference:
        return (
            f". The training loss {loss:.4f} ({reference:.4f}) is lower: the model is"
            " overfitted. Set train.early_stopping.patience, or try fewer train.epochs, a smaller dim, or a larger"
            " optimizer.weight_decay_factor"
        )
    return (
        f". The training loss {loss:.4f} ({reference:.4f}) is not much lower: the model has hardly learned. Try"
        f" a learning rate ten times as large or as small ({rates}), more train.epochs, or another optimizer"
    )


def removed(found: Mapping[str, float], constant: Mapping[str, float], name: str) -> float | None:
    """The share of a constant's loss that a model removes."""
    if name not in found or not constant.get(name):
        return None
    return 1 - found[name] / constant[name]


def approached(found: Mapping[str, float], constant: Mapping[str, float], name: str) -> float | None:
    """The part of the way from a constant's metric to 1 that a model goes."""
    if name not in found or constant.get(name, 1.0) >= 1:
        return None
    return (found[name] - constant[name]) / (1 - constant[name])
