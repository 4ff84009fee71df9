"""Evaluation of predicted labels: numbers, probabilities, classes; with the user's own metrics and loss."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.errors import ConfigError, Fault
from embexp.fields.columns import baselines, metrics
from embexp.fields.columns.baselines import Constant
from embexp.fields.columns.metrics import Measures
from embexp.runs.evaluations import (
    EVALUATING,
    INTERVALS,
    NOT_FITTED,
    Details,
    Evaluation,
    Evaluator,
    FittedBaseline,
    Metrics,
    Predicted,
    Reporting,
    Splits,
    once,
    predictions,
    stage,
)
from embexp.runs.prepare import Data
from embexp.specs.models import CustomLoss
from embexp.specs.run import RunSpec
from embexp.specs.tasks import Labels
from embexp.system import digests
from embexp.system.parallel import Progress, quiet
from embexp.system.user_code import NamedFunction, kind_of
from embexp.training import intervals, models
from embexp.training.loop import Predictor

_NOTHING_LEFT = 1e-4
"""Share of a constant's error at which nothing is left to learn: reports show 0.0000 of a log loss of 0.5."""


class LabelEvaluator(Evaluator):
    """Evaluates predictions of labels."""

    def __init__(self, spec: RunSpec) -> None:
        """Imports the user's own metrics."""
        super().__init__(spec)
        self._weighs_classes, self._grouped_by = spec.train.class_weights is not None, spec.grouped_by
        self._loss = own_loss(spec.loss) if isinstance(spec.loss, CustomLoss) else None
        self._of_another_loss = () if self._loss is None else ("loss",)
        self._metrics = {
            name: NamedFunction(f"metrics.{name}", metric.function, metric.args, "labels, predictions")
            for name, metric in spec.metrics.items()
            if metric.function is not None
        }
        for function in self._metrics.values():
            function.load()  # before the training, not at its first evaluation

    def of_rows(self, data: Data, split: str, rows: np.ndarray) -> Evaluation:
        """The metrics of the predictions of these examples."""
        return self._examples(data.columns, data.scan.examples, rows, data.classes)

    def file(self, columns: Columns, examples: Examples, read_data: Callable[[], Data]) -> Evaluation:
        """The metrics of the predictions of all examples."""
        return self._examples(columns, examples, np.arange(examples.count))

    def _examples(
        self, columns: Columns, examples: Examples, rows: np.ndarray, classes: Sequence[str] = ()
    ) -> Evaluation:
        some, measures = self.batches(columns, examples, rows), self._measures(examples, rows)

        def measured(runtime: Predictor, progress: Progress = quiet, details: Details | None = None) -> Metrics:
            reporting = Reporting(runtime, len(rows), EVALUATING, progress)
            labels, logits = predictions(reporting, some, len(rows))
            found = self._metrics_of(labels, logits, measures)
            if details is not None:
                drawn = partial(progress, INTERVALS)
                deviations = metrics.intervals_of_examples(
                    self.task, labels, logits, measures, self._seed, drawn, rows=rows, without=self._of_another_loss
                )
                if self.task.has_classes:
                    details.update(metrics.confusion_by_name(labels, logits, measures, classes))
                details["intervals"] = intervals.around(found, deviations)
            return found

        return measured

    def _metrics_of(self, labels: np.ndarray, logits: np.ndarray, measures: Measures) -> Metrics:
        found = metrics.evaluate(self.task, labels, logits, measures)
        if self._loss is None and not self._metrics:
            return found
        return found | self._own_metrics(labels, logits, weights=measures.weights)

    def _measures(self, examples: Examples, rows: np.ndarray) -> Measures:
        """The measures of some examples."""
        groups, by = None, self._grouped_by
        if by is not None:
            if by in examples.lists:
                rule = "groups must come from a column with one value per example, but this one has several"
                raise ConfigError([Fault("metrics.grouped_auc.by", repr(by), rule, "name another column")])
            groups = examples.column(by, rows)
        weights = examples.example_weights
        return Measures(self._listed, None if weights is None else weights[rows].astype(np.float64), groups)

    def _own_metrics(self, labels: np.ndarray, logits: np.ndarray, *, weights: np.ndarray | None) -> Metrics:
        """The user's own metrics, and the user's own loss if there is one."""
        values = metrics.predicted(self.task, logits)
        found = {name: _number(function, function(labels, values)) for name, function in self._metrics.items()}
        if self._loss is None:
            return found
        return found | {"loss": models.over_split(self._loss, labels, logits, weights)}

    def baselines(self, data: Data, progress: Progress = quiet) -> dict[str, dict[str, Metrics]]:
        """The constant prediction."""
        splits = {name: rows for name, rows in data.scan.splits.items() if len(rows)}
        constant, labels = self._constant(data), data.scan.examples.labels
        assert labels is not None  # the task predicts them
        found = {
            name: constant.metrics(labels, rows, self._listed, data.scan.examples.example_weights)
            for name, rows in splits.items()
        }
        if self._loss is not None:  # the loss of the task is another
            return {"constant": {name: {k: v for k, v in each.items() if k != "loss"} for name, each in found.items()}}
        train = found.pop("train")
        # The training loss of weighted classes is another than the metric.
        return {"constant": found if self._weighs_classes else {"train": {"loss": train["loss"]}} | found}

    def limit(self, data: Data, metric: str) -> float | None:
        """The largest possible value, or `_NOTHING_LEFT` of the constant prediction's error."""
        if metric in self._metrics or (metric == "loss" and self._loss is not None):
            return None
        if (most := super().limit(data, metric)) is not None:
            return most
        labels, rows = data.scan.examples.labels, data.scan.splits["validation"]
        if labels is None or not len(rows):
            return None
        weights = data.scan.examples.example_weights
        constant = self._constant(data).metrics(labels, rows, self._listed, weights).get(metric)
        return None if constant is None else _NOTHING_LEFT * constant

    def warnings(self, data: Data, final: Splits, baselines: Mapping[str, Splits]) -> list[str]:
        """Where a baseline is better, and why that may be where classes have weights."""
        found = super().warnings(data, final, baselines)
        if found and self._weighs_classes:
            found.append(
                "train.class_weights moves probabilities towards rare classes, which makes log_loss, brier and"
                " calibration_error worse: judge by auc, pr_auc or balanced_accuracy"
            )
        return found

    def label_deviation(self, data: Data) -> float:
        """That of the training split; 1 also of labels that are all the same."""
        return self._constant(data).deviation or 1.0

    def predicted(self, logits: np.ndarray, classes: Sequence[str]) -> Predicted:
        """Numbers, probabilities of label 1, or names of classes."""
        found = metrics.predicted(self.task, logits)
        if self.task.labels is Labels.CLASS:
            names: np.ndarray = np.asarray(classes)[logits.argmax(axis=1)]
            return Predicted(names, dict(zip(classes, found.T, strict=True)))
        if self.task.labels is Labels.BINARY and classes:
            named: np.ndarray = np.asarray(classes)[(found > 0.5).astype(np.int64)]
            return Predicted(found, dict(zip(classes, (1 - found, found), strict=True)), named)
        return Predicted(found)

    def _constant(self, data: Data) -> Constant:
        """The constant prediction that fits the training split best."""
        examples = data.scan.examples
        assert examples.labels is not None  # the task predicts them
        return baselines.fitted(
            self.task,
            examples.labels,
            data.scan.splits["train"],
            classes=len(data.classes),
            weights=examples.example_weights,
        )

    def fitted(self, data: Data, cache: Path, progress: Progress = quiet) -> FittedBaseline:
        """Logistic or ridge regression, or a bias for each user and item; its predictions are kept."""
        task, splits = self.task, data.scan.splits
        others = {split: rows for split, rows in splits.items() if split != "train" and len(rows)}
        columns, examples = data.columns, data.scan.examples
        name = baselines.name_of(task, columns, examples)
        if name is None or not others:
            return NOT_FITTED
        classes, held_out = len(data.classes), sum(map(len, others.values()))
        others = baselines.evaluated(examples, columns, others, classes=classes if task.labels is Labels.CLASS else 0)

        def make(folder: Path) -> None:
            found = baselines.predictions(
                task,
                columns,
                examples,
                splits["train"],
                others,
                classes=classes,
                weights=examples.example_weights,
                progress=lambda done: progress(stage(name), done),
            )
            if found is not None:
                for split, predicted in found[0].items():
                    np.save(folder / f"{split}.npy", predicted)
            counted = {"evaluated": sum(map(len, others.values())), "held_out": held_out}
            fit = None if found is None else asdict(found[1]) | counted
            (folder / "fit.json").write_text(json.dumps(fit), "utf-8")

        key = {
            "format": baselines.FORMAT,
            "data": data.scan.key,
            "numbers": {each: setting.model_dump(mode="json") for each, setting in columns.dense_settings.items()},
            "task": str(task),
            "weights": None
            if (weights := examples.example_weights) is None
            else digests.of_rows([np.asarray(weights)]),
            "classes": classes,
        }
        folder = once(name, key, make, cache, progress)
        if isinstance(folder, FittedBaseline):
            return folder
        fit = json.loads((folder / "fit.json").read_text("utf-8"))
        if fit is None:
            return NOT_FITTED
        found = {
            split: self._of_predictions(examples, rows, np.load(folder / f"{split}.npy"))
            for split, rows in others.items()
        }
        return FittedBaseline({name: found}, {name: fit})

    def _of_predictions(self, examples: Examples, rows: np.ndarray, logits: np.ndarray) -> Metrics:
        """The metrics of another model's predictions: logits, [n] or [n, C]."""
        assert examples.labels is not None
        measures = self._measures(examples, rows)
        found = self._metrics_of(examples.labels[rows], logits, measures)
        if self._loss is not None:  # the other model was not fitted by it
            del found["loss"]
        return found


def own_loss(loss: CustomLoss) -> NamedFunction:
    """The user's own loss."""
    return NamedFunction("loss", loss.function, loss.args, "labels, logits")


def _number(function: NamedFunction, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise function.fault(f"it must return a number, but returned {kind_of(value)}") from None
    if not math.isfinite(number):
        raise function.fault(f"it must return a finite number, but returned {number}")
    return number
