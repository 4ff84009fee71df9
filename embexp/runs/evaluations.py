"""Metrics of a run on its splits or on other examples: what the evaluations of all tasks share.

Simple models to compare a run with are fitted once for all runs with the same data, and kept in the cache.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from embexp.data import batches
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.runs.prepare import Data
from embexp.specs import tasks as metric_specs
from embexp.specs.fields import imported
from embexp.specs.run import RunSpec
from embexp.system import caching, digests, machine_faults
from embexp.system.locks import FileLock
from embexp.system.parallel import Progress, part, quiet
from embexp.training import baseline
from embexp.training.loop import Outcome, Predictor

EVALUATING = "evaluating"
INTERVALS = "computing confidence intervals"
_ROUNDING = 1e-12
"""By how much the mean of ones may be less than 1."""
Metrics = dict[str, float]
Splits = Mapping[str, Mapping[str, float]]
"""Metrics by split."""
Details = dict[str, Any]
"""Of a split: `intervals` of its metrics by name, see `training.intervals`, and what else a task has."""


class Evaluation(Protocol):
    """Computes metrics with the predictions of a runtime."""

    def __call__(self, runtime: Predictor, progress: Progress = quiet, details: Details | None = None) -> Metrics:
        """The metrics; `progress` is called as predictions are made and ranked, and `details` are added."""


@dataclass(frozen=True)
class Reporting:
    """A runtime's forward passes that report how far they are.

    Attributes:
        count: examples to predict.
        stage: what these are for.
    """

    runtime: Predictor
    count: int
    stage: str
    progress: Progress

    def predict(self, batches: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each batch its labels and logits, see `Predictor`."""
        done = 0
        for labels, logits in self.runtime.predict(batches):
            yield labels, logits
            done += len(labels)
            self.progress(self.stage, min(1.0, done / self.count))


@dataclass(frozen=True)
class Predicted:
    """The predictions from the logits of n examples.

    Attributes:
        prediction: of each example, [n].
        probabilities: probabilities of the classes by name, float32 [n] each; empty if classes have no names.
        classes: str [n], the likelier of two named classes; None: there are no such classes.
        further: further predictions for each example, [n] each, by column name in a file.
    """

    prediction: np.ndarray
    probabilities: Mapping[str, np.ndarray] = field(default_factory=dict)
    classes: np.ndarray | None = None
    further: Mapping[str, np.ndarray] = field(default_factory=dict)


class Evaluator(ABC):
    """Evaluates examples according to the config of a run. Each task has its own class.

    Attributes:
        spec: of the run; its task is `task`.
        parts: whether the time for some examples of a split predicts the time for all.
        no_predictions: why examples of a file have no predictions; "": they have.
    """

    parts: ClassVar[bool] = True
    no_predictions: ClassVar[str] = ""

    def __init__(self, spec: RunSpec) -> None:
        """Imports the user's own functions, if it needs any.

        Raises:
            ConfigError: one can't be imported.
        """
        self.spec, self.task = spec, spec.task
        self._batch_size, self._fixed_batch = spec.evaluation_batch_size, spec.fixed_batch
        self._listed, self._seed = spec.listed_metrics, digests.seed_of(spec.seed, "intervals")[0]

    def batches(self, columns: Columns, examples: Examples, rows: np.ndarray) -> Any:
        """The given examples as a `tf.data.Dataset` of evaluation batches."""
        return batches.evaluation_batches(examples, rows, columns, batch_size=self._batch_size, full=self._fixed_batch)

    def few(self, columns: Columns, examples: Examples) -> Any:
        """All examples: what `batches` returns, or one batch if they fit in it."""
        if examples.count <= self._batch_size and not self._fixed_batch:
            return batches.one_batch(examples, columns)
        return self.batches(columns, examples, np.arange(examples.count))

    def batch_spec(self, data: Data) -> Any:
        """`element_spec` of the evaluation batches of a run's data."""
        return self.batches(data.columns, data.scan.examples, data.scan.splits["train"][:1]).element_spec

    def reporting(self, runtime: Predictor, count: int, progress: Progress) -> Predictor:
        """A runtime that reports how many of the examples it has predicted."""
        return Reporting(runtime, count, "predicting", progress)

    def split(self, data: Data, split: str) -> Evaluation | None:
        """Prepares the evaluation of a split of the run's data; None if the split is empty."""
        rows = data.scan.splits[split]
        return self.of_rows(data, split, rows) if len(rows) else None

    def examples(self, columns: Columns, examples: Examples, rows: np.ndarray) -> Evaluation:
        """Prepares the evaluation of the given examples, int64, for tasks that need no other data."""
        raise NotImplementedError

    def of_rows(self, data: Data, split: str, rows: np.ndarray) -> Evaluation:
        """Prepares the evaluation of some examples of a split, int64; of all, unless it has `parts`."""
        return self.examples(data.columns, data.scan.examples, rows)

    def file(self, columns: Columns, examples: Examples, read_data: Callable[[], Data]) -> Evaluation:
        """Prepares the evaluation of all examples of another file.

        Args:
            columns: what is read of them.
            read_data: returns the data of the run, which only some tasks need.

        Raises:
            DataError: none of the examples can be evaluated.
        """
        return self.examples(columns, examples, np.arange(examples.count))

    def final(
        self,
        data: Data,
        runtime: Predictor,
        outcome: Outcome,
        progress: Progress = quiet,
        details: dict[str, Details] | None = None,
    ) -> dict[str, Metrics]:
        """Metrics by split, computed with the final values of the run.

        Args:
            outcome: of the training: its loss, and its last validation metrics if they belong to the final values.
            details: is filled with the details of each split that is evaluated here.
        """
        final: dict[str, Metrics] = {"train": {"loss": outcome.train_loss}}
        sizes = {
            split: len(rows)
            for split, rows in data.scan.splits.items()
            if split != "train" and not (split == "validation" and outcome.validation is not None)
        }
        done, total = 0, max(1, sum(sizes.values()))
        for split in (split for split in data.scan.splits if split != "train"):
            if split not in sizes:
                final[split] = dict(outcome.validation or {})
            elif (measured := self.split(data, split)) is not None:
                after = done + sizes[split]
                closer = None if details is None else details.setdefault(split, {})
                final[split] = measured(runtime, part(progress, done / total, after / total), closer)
                done = after
        return final

    @abstractmethod
    def baselines(self, data: Data, progress: Progress = quiet) -> dict[str, dict[str, Metrics]]:
        """Metrics by the name of a baseline and by split: what a model that has learned must beat."""

    def fitted(self, data: Data, cache: Path, progress: Progress = quiet) -> FittedBaseline:
        """A simple model fitted to the training split, once for all runs with the same data and columns.

        Args:
            cache: folder for its cached predictions.
        """
        return NOT_FITTED

    def limit(self, data: Data, metric: str) -> float | None:
        """The value beyond which a validation metric can't improve noticeably; None if unknown.

        That is the largest possible value, such as an AUC of 1.
        """
        most = metric_specs.highest(metric)
        return None if most is None else most - _ROUNDING

    def warnings(self, data: Data, final: Splits, baselines: Mapping[str, Splits]) -> list[str]:
        """Warnings about the final metrics by split: that a baseline is better on some split."""
        settings = " and ".join(f"{key}, now {value:g}" for key, value in self._rates().items())
        found = baseline.warnings(self.task, final, baselines["constant"], rates=settings)
        found += baseline.warnings_of_others(final, baselines)
        if (stopping := self.spec.train.early_stopping).restores_best:
            watched = metric_specs.watched(self.task, stopping.metric, own=self.spec.further_metrics)
            found += baseline.stopped_by_another(watched, final, baselines["constant"])
        return found

    def _rates(self) -> dict[str, float]:
        """The settings that determine how far a step moves values."""
        spec = self.spec
        if all(spec.frozen(name) for name in spec.tables):
            return {"dense_optimizer.learning_rate": spec.dense_optimizer.learning_rate}
        return {
            f"optimizer.{key}": value
            for key in ("learning_rate", "initial_accumulator_value")
            if (value := getattr(spec.optimizer, key, None)) is not None
        }

    def learned(self, final: Splits, baselines: Mapping[str, Splits]) -> bool:
        """Whether a run is better on each split than the constant prediction."""
        constant = {name: each for name, each in baselines["constant"].items() if name != "train" and final.get(name)}
        return all(baseline.beaten(self.task, final[split], each) for split, each in constant.items())

    def label_deviation(self, data: Data) -> float:
        """Standard deviation of the training labels, which standardised labels were divided by."""
        return 1.0

    def predictions(
        self,
        runtime: Predictor,
        columns: Columns,
        examples: Examples,
        classes: Sequence[str],
        vocabularies: Mapping[str, Vocabulary],
        progress: Progress = quiet,
    ) -> Predicted:
        """What the model predicts for the examples of a file.

        Args:
            classes: names of the classes by label.
            vocabularies: by table.
        """
        reporting = self.reporting(runtime, examples.count, progress)
        _, logits = predictions(reporting, self.few(columns, examples), examples.count)
        return self.predicted(logits, classes)

    def predicted(self, logits: np.ndarray, classes: Sequence[str]) -> Predicted:
        """What logits predict.

        Args:
            logits: what the model returns, float32 [n, …].
            classes: names of the classes by label.
        """
        raise NotImplementedError(self.no_predictions)


def evaluator_of(spec: RunSpec) -> Evaluator:
    """The evaluator of a run.

    Raises:
        ConfigError: a function of the user's own can't be imported.
    """
    found: Evaluator = imported(spec.task.evaluator)(spec)
    return found


def predictions(runtime: Predictor, batches: Iterable[Any], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and logits of the first `count` examples, float32 [count], the logits of C classes [count, C].

    All are in memory at once. Any examples of the last batch beyond `count` are padding and dropped.
    """
    labels, logits = [], []
    for batch_labels, batch_logits in runtime.predict(batches):
        labels.append(batch_labels)
        logits.append(batch_logits)
    return np.concatenate(labels)[:count], np.concatenate(logits)[:count]


@dataclass(frozen=True)
class Fit:
    """How a baseline was fitted.

    Attributes:
        examples: of the training split that it was fitted to, drawn at random where these are not all.
        of: examples in the training split.
        values: values of columns of ids that have a weight.
        penalty: that was chosen.
        converged: whether the iterations ended by themselves.
        seconds: that it took, with its predictions.
        evaluated: examples, or users, of other splits that it was evaluated on, evenly spread where these are not all.
        held_out: examples, or users, of these splits.
    """

    examples: int
    of: int
    values: int
    penalty: float
    converged: bool
    seconds: float
    evaluated: int = 0
    held_out: int = 0


@dataclass(frozen=True)
class FittedBaseline:
    """A simple model of the same columns, to compare with.

    Attributes:
        metrics: by its name, one of `baseline.FITTED`, and by split; empty: there is none.
        facts: by its name, how it was fitted, `Fit`.
        warnings: why it could not be fitted.
    """

    metrics: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


NOT_FITTED = FittedBaseline()


@dataclass(frozen=True)
class Evaluated:
    """The evaluation of a run at its end.

    Attributes:
        final: metrics by split.
        baselines: metrics by baseline and split.
        details: by split, see `Details`.
        fit: the simple model among the baselines.
    """

    final: Splits
    baselines: Mapping[str, Splits]
    details: Mapping[str, Details]
    fit: FittedBaseline


def evaluate(
    evaluator: Evaluator, data: Data, runtime: Predictor, outcome: Outcome, cache: Path | None, progress: Progress
) -> Evaluated:
    """Evaluates a run on all of its splits, and its baselines.

    Args:
        cache: of simple models, which are fitted to data once; None: none is fitted, nor for an interrupted run.
    """
    details: dict[str, Details] = {}
    final = evaluator.final(data, runtime, outcome, progress, details)
    baselines, fit = evaluator.baselines(data, progress), NOT_FITTED
    if cache is not None and outcome.status != "interrupted":
        fit = evaluator.fitted(data, cache, progress)
    return Evaluated(final, baselines | fit.metrics, details, fit)


def stage(name: str) -> str:
    """What is shown while a baseline is fitted."""
    return f"fitting {baseline.FITTED[name]} as a baseline"


def once(
    name: str, key: Mapping[str, Any], make: Callable[[Path], None], cache: Path, progress: Progress
) -> Path | FittedBaseline:
    """The folder of the cache with what `make` wrote, or why it could not."""
    words, digest = baseline.FITTED[name], digests.of_json(dict(key))

    def shown(folder: Path) -> None:
        progress(stage(name), None)
        make(folder)

    lock = FileLock(caching.place_of(cache, "baseline", digest).with_suffix(".lock"), f"the cache in {cache}")
    try:
        with contextlib.nullcontext() if caching.exists(cache, "baseline", digest) else lock.awaited():
            return caching.folder(cache, "baseline", digest, shown)
    except (OSError, MemoryError, ValueError, ArithmeticError) as error:  # no reason to lose what was trained
        why = machine_faults.sentence(error) or str(error)
        return FittedBaseline(warnings=(f"output.baselines: {words} could not be fitted: {why}",))
