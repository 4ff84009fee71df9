"""The best constant prediction of a task, and whether a trained model is better.

| task | prediction for every example | metrics |
|---|---|---|
| regression | the mean | RMSE, MAE, loss |
| binary | the rate of label 1 | log loss, AUC 0.5 |
| classification | the classes' frequencies; the most frequent one | log loss; accuracy, macro F1 |
| ranking | an order of the candidates at random | the expectations of MRR, Hits@k and mean rank |

`simple_models` fits better ones, `FITTED`. Of graphs and recommendations there is also popularity, see `ranking`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from embexp.specs import metrics as metric_specs
from embexp.specs.models import Task

_EXAMPLES_AT_ONCE = 1 << 20
_LEAST_RATE = 1e-6
"""A rate of 0 or 1 in the training split would make the log loss of any other infinite."""
LEAST_GAIN = 0.01
"""What a model gains at least, of all that there is to gain. Less is what a training that hardly moved, or chance on
some thousand examples, gives."""
_BY_HEART = 0.1
"""The share of a constant's training loss that is gone where the training split was learned. The training loss is that
of the last logged steps, some thousand examples, so that a few per cent may be chance."""
_USEFUL_AUC = 0.6
"""Where label 1 is rare, even the best model removes little of the log loss: then the order of predictions counts."""


FITTED = {
    "logistic_regression": "logistic regression",
    "linear_regression": "linear regression",
    "bias_only": "the bias-only model",
    "ease": "EASE",
    "item_knn": "item-kNN",
}
"""The baselines that are fitted to the same columns (`simple_models`, `item_models`), in words."""
OTHERS = FITTED | {"popularity": "popularity"}
"""Those that are harder to beat than a constant."""


@dataclass(frozen=True)
class Constant:
    """The constant prediction of a task that predicts labels.

    Attributes:
        mean: of the training labels: for task binary, the rate of label 1.
        frequencies: for task classification: how many training examples each class has, plus one, so that a class
            that training lacks has a probability; float64 [C].
    """

    task: Task
    mean: float
    deviation: float
    frequencies: np.ndarray | None = None

    def metrics(
        self,
        labels: np.ndarray,
        rows: np.ndarray,
        listed: Collection[str] = (),
        weights: np.ndarray | None = None,
    ) -> dict[str, float]:
        """The task's metrics on a split, in bounded memory.

        Args:
            labels: of all examples, float32 [N], which may be memory-mapped.
            rows: int64 [n], those of the split, at least one.
            listed: keys of further metrics.
            weights: of all examples, float32 [N].
        """
        split = _Split(self, labels, rows, weights)
        found = metric_specs.computed(self.task, "constant", split, listed=listed)
        if self.task is Task.REGRESSION:
            return found
        # A label and the prediction are all that counts: an example of each label, weighted by how many there are.
        counts = split.counts.astype(np.float64)
        logits = (
            np.full(2, _logit(self.mean))
            if self.frequencies is None
            else np.tile(np.log(split.frequencies), (len(counts), 1))
        )
        every = metric_specs.computed(self.task, "value", np.arange(len(counts)), logits, counts, listed=listed)
        return found | {name: value for name, value in every.items() if name not in found}


@dataclass
class _Split:
    """The examples of a split and their constant prediction; what the metrics need is summed once, piece by piece."""

    constant: Constant
    labels: np.ndarray
    rows: np.ndarray
    weights: np.ndarray | None = None

    @cached_property
    def total(self) -> float:
        """How many examples there are, or the sum of their weights."""
        if self.weights is None:
            return len(self.rows)
        return sum(float(own.sum()) for own in _some(self.weights, self.rows))

    def mean(self, of: Callable[[np.ndarray], np.ndarray]) -> float:
        """The mean of a function of the labels."""
        return self.sum(of) / self.total

    def sum(self, of: Callable[[np.ndarray], np.ndarray]) -> float:
        """The sum, weighted where there are weights."""
        if self.weights is None:
            return sum(float(of(some).sum()) for some in _some(self.labels, self.rows))
        both = zip(_some(self.labels, self.rows), _some(self.weights, self.rows), strict=True)
        return sum(float(np.sum(of(some) * own)) for some, own in both)

    @cached_property
    def positives(self) -> float:
        """Share of the labels that are 1."""
        return self.mean(lambda some: some)

    @cached_property
    def frequencies(self) -> np.ndarray:
        """Those of the constant prediction."""
        assert self.constant.frequencies is not None
        return self.constant.frequencies

    @cached_property
    def counts(self) -> np.ndarray:
        """Examples of each class, or the sums of their weights."""
        classes = 2 if self.constant.frequencies is None else len(self.frequencies)
        return _counts(self.labels, self.rows, classes, self.weights)


def squared_error(split: _Split) -> float:
    """Of the mean."""
    return split.mean(lambda some: np.square(some - split.constant.mean))


def rmse(split: _Split) -> float:
    """Of the mean."""
    return math.sqrt(squared_error(split))


def mae(split: _Split) -> float:
    """Of the mean."""
    return split.mean(lambda some: np.abs(some - split.constant.mean))


def r2(split: _Split) -> float | None:
    """Of the mean of the training labels, which is not that of the split."""
    own = split.mean(lambda some: some)
    variance = split.mean(lambda some: np.square(some - own))
    return None if variance == 0 else 1 - squared_error(split) / variance


def mape(split: _Split) -> float:
    """Of the mean."""
    least = np.finfo(np.float64).eps
    return split.mean(lambda some: np.abs(some - split.constant.mean) / np.maximum(np.abs(some), least))


def log_loss(split: _Split) -> float:
    """Of the rate of label 1."""
    rate = _rate(split.constant.mean)
    return -split.positives * math.log(rate) - (1 - split.positives) * math.log1p(-rate)


def auc(split: _Split) -> float | None:
    """Of equal scores."""
    return 0.5 if 0 < split.positives < 1 else None


def accuracy(split: _Split) -> float:
    """Of the most frequent class."""
    return float(split.counts[np.argmax(split.frequencies)] / split.total)


def softmax_log_loss(split: _Split) -> float:
    """Of the classes' frequencies."""
    surprise = np.log(split.frequencies.sum()) - np.log(split.frequencies)
    return float(split.counts @ surprise / split.total)


def macro_f1(split: _Split) -> float:
    """Of the most frequent class. The counts stand for the labels: F1 depends on nothing else."""
    counts, common = split.counts, int(np.argmax(split.frequencies))
    own = 2 * counts[common] / (counts[common] + split.total)
    return float(own / (np.count_nonzero(counts) + (counts[common] == 0)))


def _rate(mean: float) -> float:
    return min(max(mean, _LEAST_RATE), 1 - _LEAST_RATE)


def _logit(mean: float) -> float:
    return math.log(_rate(mean)) - math.log1p(-_rate(mean))


def fitted(
    task: Task, labels: np.ndarray, rows: np.ndarray, *, classes: int = 0, weights: np.ndarray | None = None
) -> Constant:
    """The constant prediction that fits some examples best, in bounded memory.

    Args:
        task: other than ranking.
        labels: of all examples, float32 [N], which may be memory-mapped.
        rows: int64 [n], those of the training split, at least one.
        classes: how many there are, for task classification.
        weights: of all examples, float32 [N].
    """
    split = _Split(Constant(task, 0.0, 0.0), labels, rows, weights)
    mean = split.mean(lambda some: some)
    square = split.mean(lambda some: np.square(some - mean))
    frequencies = _counts(labels, rows, classes, weights) + 1.0 if task is Task.CLASSIFICATION else None
    return Constant(task, mean, math.sqrt(square), frequencies)


def at_random(choices: np.ndarray, predict_head: np.ndarray) -> dict[str, float]:
    """Expected metrics of queries whose candidates are put in an order at random.

    A rank is uniform on 1 to n.

    Args:
        choices: integers [N], the candidates n of each query that are ranked: without other known answers.
        predict_head: bool [N]: True for head prediction, False for tail prediction.
    """
    return metric_specs.computed(Task.RANKING, "constant", choices, predict_head)


def mrr(choices: np.ndarray, predict_head: np.ndarray) -> float:
    """The mean of 1 / rank is the n-th harmonic number divided by n."""
    harmonic = np.cumsum(1.0 / np.arange(1, int(choices.max()) + 1))
    return float((harmonic[choices - 1] / choices).mean())


def mrr_tails(choices: np.ndarray, predict_head: np.ndarray) -> float | None:
    """That of tail prediction."""
    own = choices[~predict_head]
    return mrr(own, predict_head) if len(own) else None


def mrr_heads(choices: np.ndarray, predict_head: np.ndarray) -> float | None:
    """That of head prediction."""
    return mrr_tails(choices, ~predict_head)


def hits(choices: np.ndarray, predict_head: np.ndarray, k: int) -> float:
    """The chance of one of the first k places."""
    return float(np.mean(np.minimum(k, choices) / choices))


def mean_rank(choices: np.ndarray, predict_head: np.ndarray) -> float:
    """The middle."""
    return float(np.mean((choices + 1) / 2))


def _some(labels: np.ndarray, rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), _EXAMPLES_AT_ONCE):
        yield labels[rows[start : start + _EXAMPLES_AT_ONCE]].astype(np.float64)


def _counts(labels: np.ndarray, rows: np.ndarray, classes: int, weights: np.ndarray | None = None) -> np.ndarray:
    if weights is not None:
        sums = np.zeros(classes)
        for some, own in zip(_some(labels, rows), _some(weights, rows), strict=True):
            sums += np.bincount(some.astype(np.int64), own, minlength=classes)
        return sums
    counts = np.zeros(classes, np.int64)
    for some in _some(labels, rows):
        counts += np.bincount(some.astype(np.int64), minlength=classes)
    return counts


def beaten(task: Task, found: Mapping[str, float], constant: Mapping[str, float]) -> bool:
    """Whether the metrics of a split are better than those of a constant prediction, by more than `LEAST_GAIN`.

    regression: the share of the squared error that the model removes. binary: that of the log loss; any if the AUC is
    0.6. classification: the share of the errors, or of the log loss. ranking: the part of the way from the MRR of a
    random order to 1. A metric that either lacks is not compared; without any, the model counts as better.
    """
    known = [gain for gain in _REFERENCES[task].gains(found, constant) if gain is not None]
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
        if own < value if direction is metric_specs.Direction.HIGHER else own > value:
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

    It has the figures of the metrics that decide, and of those that are worse. The first line has the remedy.

    Args:
        found: final metrics by split; all but the training split are judged.
        constant: those of the constant prediction; its training loss too, for tasks other than ranking.
        rates: the settings that decide how far a step goes, with their values.
    """
    reference, lines = _REFERENCES[task], []
    remedy = _remedy(found, constant, rates)
    for split in (name for name in constant if name != "train" and found.get(name)):
        own, other, names = found[split], constant[split], worse(found[split], constant[split])
        beats = beaten(task, own, other)
        if not beats:
            names = list(
                dict.fromkeys([*(name for name in reference.metrics if name in own and name in other), *names])
            )
        if names:
            what = "worse than" if beats else "no better than"
            figures = ", ".join(f"{name} {own[name]:.4f} ({other[name]:.4f})" for name in names)
            line = f"{what} a constant: {split} {figures}, in brackets that of {reference.prediction}"
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
        f"early stopping kept the values that are best for {watched}, by which {', '.join(names)}"
        f" {'is' if len(names) == 1 else 'are'} worse than a constant: to keep those that are best for {names[0]}, set"
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
    """Why a run is no better than a constant, by its training loss, and what to try."""
    loss, reference = found.get("train", {}).get("loss"), constant.get("train", {}).get("loss")
    if loss is None or reference is None or math.isnan(loss):  # it ended before the first loss was logged
        return f"; try another learning rate ({rates}), or another number of train.epochs"
    if loss <= (1 - _BY_HEART) * reference:
        return (
            f". The training loss {loss:.4f} ({reference:.4f}) is lower: the model has learned its examples by"
            " heart. Set train.early_stopping.patience, or try fewer train.epochs, a smaller dim, or a larger"
            " optimizer.weight_decay_factor"
        )
    return (
        f". The training loss {loss:.4f} ({reference:.4f}) is not much lower: the model has hardly learned. Try"
        f" other steps, ten times as large or as small ({rates}), more train.epochs, or another optimizer"
    )


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


def _gains_of_regression(found: Mapping[str, float], constant: Mapping[str, float]) -> list[float | None]:
    removed = _removed(found, constant, "rmse")
    return [None if removed is None else 1 - (1 - removed) ** 2]


def _gains_of_binary(found: Mapping[str, float], constant: Mapping[str, float]) -> list[float | None]:
    removed = _removed(found, constant, "log_loss")
    return [removed, LEAST_GAIN if (removed or 0) > 0 and found.get("auc", 0) >= _USEFUL_AUC else None]


def _gains_of_classification(found: Mapping[str, float], constant: Mapping[str, float]) -> list[float | None]:
    return [_removed(found, constant, "log_loss"), _approached(found, constant, "accuracy")]


def _gains_of_ranking(found: Mapping[str, float], constant: Mapping[str, float]) -> list[float | None]:
    return [_approached(found, constant, "mrr")]


@dataclass(frozen=True)
class _Reference:
    """The constant prediction of a task in words, its metrics that a warning shows, and what a model gains on it."""

    prediction: str
    metrics: tuple[str, ...]
    gains: Callable[[Mapping[str, float], Mapping[str, float]], list[float | None]]


_REFERENCES = {
    Task.REGRESSION: _Reference("the mean of the training labels", ("rmse",), _gains_of_regression),
    Task.BINARY: _Reference("the rate of label 1 in the training split", ("log_loss", "auc"), _gains_of_binary),
    Task.CLASSIFICATION: _Reference("the most frequent class", ("accuracy", "log_loss"), _gains_of_classification),
    Task.RANKING: _Reference("a random order", ("mrr",), _gains_of_ranking),
}
