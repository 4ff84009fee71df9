"""The tasks that predict a label of each example: a number, whether something happens, or one of several classes."""

from __future__ import annotations

from embexp.specs.tasks import Direction, Labels, Metric, Task

_LOWER, _HIGHER = Direction.LOWER, Direction.HIGHER
_VALUES, _CONSTANT = (f"embexp.fields.columns.{name}" for name in ("metrics", "baselines"))
_LOG_LOSS = "log loss (nats per example)"
_EVALUATION, _LOSS = "embexp.fields.columns.evaluation:LabelEvaluator", "embexp.training.models:of_labels"

REGRESSION = Task(
    "regression",
    described="A number: squared error; RMSE, MAE.",
    labels=Labels.NUMBER,
    loss=_LOSS,
    reference=f"{_CONSTANT}:OF_REGRESSION",
    evaluator=_EVALUATION,
    serving="embexp.fields.columns.models:model",
    takes_rows=True,
    metrics=(
        Metric("rmse", _LOWER, f"{_VALUES}:rmse", f"{_CONSTANT}:rmse", unit="RMSE (label units)"),
        Metric("mae", _LOWER, f"{_VALUES}:mae", f"{_CONSTANT}:mae", unit="MAE (label units)"),
        Metric(
            "loss",
            _LOWER,
            f"{_VALUES}:squared_error",
            f"{_CONSTANT}:squared_error",
            unit="mean squared error (label units²)",
        ),
        Metric("r2", _HIGHER, f"{_VALUES}:r2", f"{_CONSTANT}:r2", listed=True),
        Metric("mape", _LOWER, f"{_VALUES}:mape", f"{_CONSTANT}:mape", listed=True),
    ),
)
BINARY = Task(
    "binary",
    described="Whether something happens, label 0 or 1: log loss; log loss, AUC.",
    labels=Labels.BINARY,
    loss=_LOSS,
    reference=f"{_CONSTANT}:OF_BINARY",
    evaluator=_EVALUATION,
    serving="embexp.fields.columns.models:model",
    takes_rows=True,
    metrics=(
        Metric("log_loss", _LOWER, f"{_VALUES}:log_loss", f"{_CONSTANT}:log_loss", unit=_LOG_LOSS),
        Metric(
            "auc",
            _HIGHER,
            f"{_VALUES}:auc",
            f"{_CONSTANT}:auc",
            unit="AUC (0.5 is chance)",
            headline=True,
            both_classes=True,
            test="embexp.training.significance:delong",
        ),
        Metric("loss", _LOWER, f"{_VALUES}:log_loss", f"{_CONSTANT}:log_loss", unit=_LOG_LOSS),
        Metric("pr_auc", _HIGHER, f"{_VALUES}:pr_auc", both_classes=True, listed=True),
        Metric("brier", _LOWER, f"{_VALUES}:brier", listed=True),
        Metric("calibration_error", _LOWER, f"{_VALUES}:calibration_error", listed=True),
        Metric(
            "accuracy",
            _HIGHER,
            f"{_VALUES}:accuracy",
            unit="fraction of the examples",
            listed=True,
            test=f"{_VALUES}:mcnemar_of_accuracies",
        ),
        Metric("balanced_accuracy", _HIGHER, f"{_VALUES}:balanced_accuracy", listed=True),
        Metric("precision", _HIGHER, f"{_VALUES}:precision", listed=True),
        Metric("recall", _HIGHER, f"{_VALUES}:recall", listed=True),
        Metric("f1", _HIGHER, f"{_VALUES}:f1", listed=True),
        Metric("grouped_auc", _HIGHER, f"{_VALUES}:grouped_auc", both_classes=True, listed=True, grouped=True),
    ),
)
CLASSIFICATION = Task(
    "classification",
    described="One of several classes, label 0, 1, 2, …: log loss of a softmax; accuracy, log loss, macro F1.",
    labels=Labels.CLASS,
    loss=_LOSS,
    reference=f"{_CONSTANT}:OF_CLASSIFICATION",
    evaluator=_EVALUATION,
    serving="embexp.fields.columns.models:model",
    takes_rows=True,
    metrics=(
        Metric(
            "accuracy",
            _HIGHER,
            f"{_VALUES}:accuracy",
            f"{_CONSTANT}:accuracy",
            unit="fraction of the examples",
            test=f"{_VALUES}:mcnemar_of_accuracies",
        ),
        Metric("log_loss", _LOWER, f"{_VALUES}:softmax_log_loss", f"{_CONSTANT}:softmax_log_loss", unit=_LOG_LOSS),
        Metric(
            "macro_f1",
            _HIGHER,
            f"{_VALUES}:macro_f1_of_logits",
            f"{_CONSTANT}:macro_f1",
            unit="F1, mean over the classes",
        ),
        Metric("loss", _LOWER, f"{_VALUES}:softmax_log_loss", f"{_CONSTANT}:softmax_log_loss", unit=_LOG_LOSS),
        Metric("balanced_accuracy", _HIGHER, f"{_VALUES}:balanced_accuracy", listed=True),
        Metric("macro_precision", _HIGHER, f"{_VALUES}:macro_precision", listed=True),
        Metric("macro_recall", _HIGHER, f"{_VALUES}:macro_recall", listed=True),
        Metric("brier", _LOWER, f"{_VALUES}:brier", listed=True),
        Metric("calibration_error", _LOWER, f"{_VALUES}:calibration_error", listed=True),
    ),
)
