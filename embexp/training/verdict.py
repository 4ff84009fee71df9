"""Whether a trained model is better than a constant prediction, and the warning if it is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from embexp.specs.models import Task

LEAST_GAIN = 0.01
"""What a model gains at least, of all that there is to gain. Less is what a training that hardly moved, or chance on
some thousand examples, gives."""
_BY_HEART = 0.1
"""The share of a constant's training loss that is gone where the training split was learned. The training loss is that
of the last logged steps, some thousand examples, so that a few per cent may be chance."""
_USEFUL_AUC = 0.6
"""Where clicks are rare, even the best model removes little of the log loss: then the order of predictions counts."""
_PREDICTIONS = {
    Task.RATING: "the mean of the training labels",
    Task.CLICK: "the click rate of the training split",
    Task.CLASSIFICATION: "the most frequent class",
    Task.RANKING: "a random order",
}


def beaten(task: Task, found: Mapping[str, float], constant: Mapping[str, float]) -> bool:
    """Whether the metrics of a split are better than those of a constant prediction, by more than `LEAST_GAIN`.

    rating: the share of the squared error that the model removes. click: that of the log loss; any if the AUC is 0.6.
    classification: the share of the errors, or of the log loss. ranking: the part of the way from the MRR of a random
    order to 1. A metric that either lacks is not compared; without any, the model counts as better.
    """
    match task:
        case Task.RATING:
            gains = [_removed(found, constant, "loss")]
        case Task.CLICK:
            removed = _removed(found, constant, "log_loss")
            gains = [removed, LEAST_GAIN if (removed or 0) > 0 and found.get("auc", 0) >= _USEFUL_AUC else None]
        case Task.CLASSIFICATION:
            gains = [_removed(found, constant, "log_loss"), _approached(found, constant, "accuracy")]
        case Task.RANKING:
            gains = [_approached(found, constant, "mrr")]
        case Task.RECOMMENDATION:
            raise ValueError("a recommendation is compared with popularity")
        case _:
            assert_never(task)
    known = [gain for gain in gains if gain is not None]
    return not known or max(known) >= LEAST_GAIN


def warning(
    task: Task,
    found: Mapping[str, Mapping[str, float]],
    constant: Mapping[str, Mapping[str, float]],
    *,
    rates: str,
) -> str | None:
    """The warning about a run that is no better than a constant, with figures and remedy; None if it is better.

    Args:
        task: of the run.
        found: final metrics by split. Validation decides, or test if there is no validation split.
        constant: those of the constant prediction; its training loss too, for tasks other than ranking.
        rates: the settings that decide how far a step goes, with their values.
    """
    split = next((name for name in ("validation", "test") if found.get(name) and constant.get(name)), None)
    if split is None or beaten(task, found[split], constant[split]):
        return None
    figures = [
        f"{name} {found[split][name]:.4f} ({constant[split][name]:.4f})"
        for name in _SHOWN[task]
        if name in found[split] and name in constant[split]
    ]
    line = f"no better than a constant: {split} {', '.join(figures)}, in brackets that of {_PREDICTIONS[task]}"
    loss, reference = found.get("train", {}).get("loss"), constant.get("train", {}).get("loss")
    if loss is None or reference is None:
        return f"{line}; try another learning rate ({rates}), or another number of train.epochs"
    if loss <= (1 - _BY_HEART) * reference:
        return (
            f"{line}. The training loss {loss:.4f} ({reference:.4f}) is lower: the model has learned its examples by"
            " heart. Set train.early_stopping.patience, or try fewer train.epochs, a smaller dim, or a larger"
            " optimizer.weight_decay_factor"
        )
    return (
        f"{line}. The training loss {loss:.4f} ({reference:.4f}) is not much lower: the model has hardly learned. Try"
        f" other steps, ten times as large or as small ({rates}), more train.epochs, or another optimizer"
    )


_SHOWN = {
    Task.RATING: ("rmse",),
    Task.CLICK: ("log_loss", "auc"),
    Task.CLASSIFICATION: ("accuracy", "log_loss"),
    Task.RANKING: ("mrr",),
}


def _removed(found: Mapping[str, float], constant: Mapping[str, float], name: str) -> float | None:
    """The share of a constant's loss that a model removes."""
    if name not in found or not constant.get(name):
        return None
    return 1 - found[name] / constant[name]


def _approached(found: Mapping[str, float], constant: Mapping[str, float], name: str) -> float | None:
    """The part of the way from a constant's metric to 1 that a model goes."""
    if name not in found or constant.get(name, 1.0) >= 1:
        return None
    return (found[name] - constant[name]) / (1 - constant[name])
