"""Metrics of a run on its splits or on other examples, recommendations included."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from embexp.data import batches
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.data.interactions import SEEN, HeldOut, Interactions
from embexp.data.queries import Candidates, KnownAnswers, head_predictions, kinds_and_answers, known_answers
from embexp.errors import ConfigError, Fault
from embexp.models import losses
from embexp.runs.prepare import Data
from embexp.specs import footprint
from embexp.specs import metrics as metric_specs
from embexp.specs.losses import CustomLoss
from embexp.specs.models import Task
from embexp.specs.run import RunSpec
from embexp.system import digests
from embexp.system.parallel import Progress, part, quiet
from embexp.system.user_code import NamedFunction, kind_of
from embexp.training import baseline, intervals, ranking
from embexp.training.kept_items import ItemPart, SharesItems, UserVectors
from embexp.training.loop import Outcome, Predictor
from embexp.training.metrics import Measures, evaluate_split, predicted
from embexp.training.ranking import Queries

EVALUATING = "evaluating"
_INTERVALS = "computing intervals of the metrics"
_NOTHING_LEFT, _ROUNDING = 1e-4, 1e-12
"""Share of a constant's error at which nothing is left to learn: reports show 0.0000 of a log loss of 0.5. And what a
mean of ones may lack to 1."""
Metrics = dict[str, float]
Details = dict[str, Any]
"""Of a split: `intervals` of its metrics, by name, and of classes `confusion` and `classes`; see `intervals`."""


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
class _Predicted:
    """Predictions that are there already; `Predictor`."""

    labels: np.ndarray
    logits: np.ndarray

    def predict(self, batches: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield self.labels, self.logits


class Evaluator:
    """Evaluates examples as the config of a run says: its task, batch size, cutoffs, and the user's own functions."""

    def __init__(self, spec: RunSpec) -> None:
        """Imports the user's own metrics.

        Raises:
            ConfigError: one can't be imported.
        """
        self.task = spec.task
        self._batch_size, self._fixed_batch = spec.evaluation_batch_size, spec.fixed_batch
        self._cutoffs, self._seed = spec.recommendation.cutoffs, digests.seed_of(spec.seed, "intervals")[0]
        self._weighs_classes = spec.train.class_weights is not None
        self._listed, self._grouped_by = spec.listed_metrics, spec.grouped_by
        self._loss = own_loss(spec.loss) if isinstance(spec.loss, CustomLoss) else None
        self._metrics = {
            name: NamedFunction(f"metrics.{name}", metric.function, metric.args, "labels, predictions")
            for name, metric in spec.metrics.items()
            if metric.function is not None
        }
        for function in self._metrics.values():
            function.load()  # before the training, not at its first evaluation

    def batches(
        self,
        columns: Columns,
        examples: Examples,
        rows: np.ndarray,
        candidates: Candidates | None = None,
        known: KnownAnswers | None = None,
    ) -> Any:
        """Some examples as a `tf.data.Dataset` of evaluation batches.

        Those of queries are so small that the scores of a batch are bounded. A TPU gets batches of its own size, with
        all entities as candidates: it looks rows up by their numbers only.

        Args:
            candidates: for task ranking, see `Data`.
            known: for task ranking, the answers that ranks leave aside; None: those of `examples`.
        """
        size = self._batch_size
        if candidates is None or self._fixed_batch:
            return batches.evaluation_batches(
                examples, rows, columns, batch_size=size, full=self._fixed_batch, candidates=candidates
            )
        size = footprint.evaluation_batch(candidates.entities, size)
        known = known_answers(examples, rows) if known is None else known
        return batches.ranked_batches(examples, rows, columns, batch_size=size, candidates=candidates, known=known)

    def few(self, columns: Columns, examples: Examples) -> Any:
        """All examples: what `batches` returns, or one batch if they fit in it."""
        if examples.count <= self._batch_size and not self._fixed_batch:
            return batches.one_batch(examples, columns)
        return self.batches(columns, examples, np.arange(examples.count))

    def batch_spec(self, data: Data) -> Any:
        """`element_spec` of the evaluation batches of a run's data."""
        some = data.scan.splits["train"][:1]
        return self.batches(data.columns, data.scan.examples, some, data.candidates).element_spec

    def examples(
        self,
        columns: Columns,
        examples: Examples,
        rows: np.ndarray,
        candidates: Candidates | None,
        known: Sequence[Examples] = (),
        classes: Sequence[str] = (),
    ) -> Evaluation:
        """Prepares the evaluation of some examples, for tasks other than recommendation.

        Args:
            rows: int64, the examples to predict.
            candidates: for task ranking, see `Data`.
            known: for task ranking, more examples whose answers the filtered ranks skip.
            classes: their names, for details.
        """
        answers = queries = None
        if candidates is not None:
            answers = known_answers(examples, rows, known)
            queries = Queries(answers, head_predictions(rows), candidates.entities)
        some = self.batches(columns, examples, rows, candidates, answers)
        measures = self._measures(examples, rows)
        own = None
        if self._loss is not None or self._metrics:
            own = partial(self._own_metrics, weights=measures.weights)

        def measured(runtime: Predictor, progress: Progress = quiet, details: Details | None = None) -> Metrics:
            reporting = Reporting(runtime, len(rows), EVALUATING, progress)
            deviations: dict[str, list[float]] = {}

            def closer(labels: np.ndarray, logits: np.ndarray) -> None:
                """Adds details; of task ranking, of ranks and directions."""
                if details is None:
                    return
                drawn = partial(progress, _INTERVALS)
                if self.task is Task.RANKING:
                    deviations.update(intervals.of_queries(labels, logits, self._seed, drawn))
                    return
                deviations.update(intervals.of_examples(self.task, labels, logits, measures, self._seed, drawn))
                if self.task in (Task.BINARY, Task.CLASSIFICATION):
                    details.update(intervals.confusion(labels, logits, measures, classes))

            found = evaluate_split(self.task, reporting, some, len(rows), queries, own, measures, closer)
            if details is not None:
                if self._loss is not None:
                    deviations.pop("loss", None)  # the loss of the task is another
                details["intervals"] = intervals.around(found, deviations)
            return found

        return measured

    def _measures(self, examples: Examples, rows: np.ndarray) -> Measures:
        """What is measured of some examples."""
        groups, by = None, self._grouped_by
        if by is not None:
            if by in examples.lists:
                rule = "groups are values of a column with one value for each example, and this one has several"
                raise ConfigError([Fault("metrics.grouped_auc.by", repr(by), rule, "name another column")])
            groups = examples.column(by, rows)
        weights = examples.example_weights
        return Measures(self._listed, None if weights is None else weights[rows].astype(np.float64), groups)

    def _own_metrics(self, labels: np.ndarray, logits: np.ndarray, *, weights: np.ndarray | None) -> Metrics:
        """The user's own metrics, and the loss if that is the user's own."""
        values = predicted(self.task, logits)
        found = {name: _number(function, function(labels, values)) for name, function in self._metrics.items()}
        if self._loss is None:
            return found
        return found | {"loss": losses.over_split(self._loss, labels, logits, weights)}

    def reporting(self, runtime: Predictor, count: int, progress: Progress) -> Predictor:
        """A runtime that reports how many of so many examples it has predicted."""
        return Reporting(runtime, count, "predicting", progress)

    def split(self, data: Data, split: str) -> Evaluation | None:
        """Prepares the evaluation of a split of the run's data; None if the split is empty."""
        rows = data.scan.splits[split]
        if not len(rows):
            return None
        if self.task is Task.RECOMMENDATION:
            return self.users(data, data.held_out(split), data.columns, data.scan.examples)
        return self.examples(data.columns, data.scan.examples, rows, data.candidates, classes=data.classes)

    def file(self, columns: Columns, examples: Examples, read_data: Callable[[], Data]) -> Evaluation:
        """Prepares the evaluation of all examples of another file.

        Args:
            columns: what is read of them.
            read_data: returns the data of the run, which only some tasks need: filtered ranks also skip the answers in
                it, and users have seen what is in its training and validation splits.

        Raises:
            DataError: none of the users can be evaluated.
        """
        rows = np.arange(examples.count)
        if self.task is Task.RECOMMENDATION:
            data = read_data()
            seen = [data.scan.splits[name] for name in SEEN["test"]]
            held = _interactions(data).held_out(examples, rows, data.scan.examples, seen)
            return self.users(data, held, columns, examples)
        if self.task is Task.RANKING:
            data = read_data()
            return self.examples(columns, examples, rows, data.candidates, [data.scan.examples])
        return self.examples(columns, examples, rows, None)

    def final(
        self,
        data: Data,
        runtime: Predictor,
        outcome: Outcome,
        progress: Progress = quiet,
        details: dict[str, Details] | None = None,
    ) -> dict[str, Metrics]:
        """Metrics by split, with the final values of the run.

        Args:
            outcome: of the training: its loss, and its last validation metrics if they belong to the final values.
            details: gets those of each split that is evaluated here.
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

    def baselines(self, data: Data, progress: Progress = quiet) -> dict[str, dict[str, Metrics]]:
        """Metrics by the name of a baseline and by split: what a model that has learned must beat."""
        splits = {name: rows for name, rows in data.scan.splits.items() if len(rows)}
        held_out = {name: rows for name, rows in splits.items() if name != "train"}
        if self.task is Task.RECOMMENDATION:  # lists of the items that are most frequent in the training split
            counts = _interactions(data).catalogue.counts.astype(np.float64)
            lister = ranking.same_for_all(counts)
            stage = "evaluating the most popular items"
            found = {}
            for place, name in enumerate(held_out):
                of_split = part(progress, place / len(held_out), (place + 1) / len(held_out))
                found[name] = self.of_lists(data, data.held_out(name), lister, len(counts), stage, of_split)
            return {"popularity": found}
        examples, candidates = data.scan.examples, data.candidates
        if candidates is not None:
            trained = kinds_and_answers(examples, splits["train"])
            random, popularity = {}, {}
            for name, rows in held_out.items():
                known, heads = known_answers(examples, rows), head_predictions(rows)
                # Of each query, all entities are ranked but for its other known answers.
                random[name] = baseline.at_random(candidates.entities + 1 - known.counts, heads)
                asked = kinds_and_answers(examples, rows)
                popularity[name] = ranking.metrics(
                    ranking.ranks_by_frequency(trained, *asked, known, candidates.entities), heads
                )
            return {"constant": random, "popularity": popularity}
        constant, labels = data.constant(self.task), examples.labels
        assert labels is not None  # every task but ranking has some
        found = {
            name: constant.metrics(labels, rows, self._listed, examples.example_weights)
            for name, rows in splits.items()
        }
        if self._loss is not None:  # the loss of the task is another
            return {"constant": {name: {k: v for k, v in each.items() if k != "loss"} for name, each in found.items()}}
        train = found.pop("train")
        # The training loss of weighted classes is another than the metric.
        return {"constant": found if self._weighs_classes else {"train": {"loss": train["loss"]}} | found}

    def limit(self, data: Data, metric: str) -> float | None:
        """The value from which on a validation metric can't get better in a way that matters; None: none is known.

        That is the largest possible value, such as an AUC of 1; or `_NOTHING_LEFT` of the constant prediction's error.
        """
        if metric in self._metrics or (metric == "loss" and self._loss is not None):
            return None
        if (most := metric_specs.highest(metric)) is not None:
            return most - _ROUNDING
        labels, rows = data.scan.examples.labels, data.scan.splits["validation"]
        if labels is None or data.interactions is not None or data.candidates is not None or not len(rows):
            return None
        weights = data.scan.examples.example_weights
        constant = data.constant(self.task).metrics(labels, rows, self._listed, weights).get(metric)
        return None if constant is None else _NOTHING_LEFT * constant

    @property
    def first(self) -> str:
        """The metric of lists by which a model is chosen."""
        return f"ndcg_at_{self._cutoffs[0]}"

    @property
    def measured_of_lists(self) -> dict[str, Any]:
        """The settings that decide which metrics lists have."""
        return {"cutoffs": list(self._cutoffs), "listed": sorted(self._listed)}

    def of_predictions(self, examples: Examples, rows: np.ndarray, logits: np.ndarray) -> Metrics:
        """The metrics of predictions of some examples, such as those of another model: logits, [n] or [n, C]."""
        assert examples.labels is not None
        measures = self._measures(examples, rows)
        own = partial(self._own_metrics, weights=measures.weights) if self._metrics else None
        known = _Predicted(examples.labels[rows], logits)
        found = evaluate_split(self.task, known, [], len(rows), None, own, measures)
        if self._loss is not None:  # which is not what the other model was fitted by
            del found["loss"]
        return found

    def users(self, data: Data, held: HeldOut, columns: Columns, examples: Examples) -> Evaluation:
        """Prepares the evaluation of some users, for task recommendation.

        Args:
            columns: what is read of the held-out examples.
        """

        def measured(runtime: Predictor, progress: Progress = quiet, details: Details | None = None) -> Metrics:
            catalogue = _interactions(data).catalogue
            items = runtime.keep(catalogue.size) if isinstance(runtime, SharesItems) else ItemPart(0, catalogue.size)
            for block in self._vectors(runtime, data.columns, data.scan.examples, catalogue.examples, progress):
                items.add(block[:, 1])
            users = (block[:, 0] for block in self._vectors(runtime, columns, examples, held.examples, quiet))
            lister = items.lister(UserVectors(users))
            return self.of_lists(data, held, lister, catalogue.size, EVALUATING, progress, details)

        return measured

    def of_lists(
        self,
        data: Data,
        held: HeldOut,
        lister: ranking.Lister,
        items: int,
        stage: str,
        progress: Progress,
        details: Details | None = None,
    ) -> Metrics:
        """The metrics of lists of so many items, for the users of `held`."""
        reported = _reported(lister, len(held.unknown), stage, progress)
        of_users: dict[str, list[np.ndarray]] = {}
        found = ranking.evaluate_lists(
            reported,
            items,
            relevant=held.relevant,
            unknown=held.unknown,
            seen=held.seen,
            cutoffs=self._cutoffs,
            listed=self._listed,
            counts=_interactions(data).catalogue.counts,
            of_users=None if details is None else of_users,
        )
        if details is not None:
            values = {name: np.concatenate(blocks) for name, blocks in of_users.items()}
            details["intervals"] = intervals.around(
                found, intervals.of_users(values, self._seed, partial(progress, _INTERVALS))
            )
        return found

    def vectors(
        self,
        data: Data,
        runtime: Predictor,
        columns: Columns,
        examples: Examples,
        rows: np.ndarray,
        progress: Progress = quiet,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of the users of some examples, float32 [N, d], and of all items, [I, d]; scores are dot products.

        Args:
            rows: int64 [N], which examples.
        """
        users = np.concatenate([*self._vectors(runtime, columns, examples, rows, progress)])[:, 0]
        catalogue = _interactions(data).catalogue.examples
        items = np.concatenate([*self._vectors(runtime, data.columns, data.scan.examples, catalogue, progress)])
        return users, items[:, 1]

    def _vectors(
        self, runtime: Predictor, columns: Columns, examples: Examples, rows: np.ndarray, progress: Progress
    ) -> Iterator[np.ndarray]:
        """Vectors of the user and the item of some examples, float32 [n, 2, d], batch by batch."""
        some = batches.evaluation_batches(examples, rows, columns, batch_size=self._batch_size)
        reporting = Reporting(runtime, len(rows), "computing vectors", progress)
        return (vectors for _, vectors in reporting.predict(some))

    def recommendation_warnings(
        self,
        data: Data,
        final: Mapping[str, Mapping[str, float]],
        baselines: Mapping[str, Mapping[str, Mapping[str, float]]],
    ) -> list[str]:
        """What a user should know of the evaluation: users that were left out, and a model that learned too little."""
        found, popularity = [], baselines["popularity"]
        first = self.first
        for split, popular in popularity.items():
            if skipped := data.held_out(split).skipped:
                found.append(
                    f"{split}: {skipped:,} users are not evaluated: the training split does not have them, or they have"
                    " seen their held-out items before"
                )
            if split not in final:
                continue
            others = [name for name in baseline.worse(final[split], popular) if name != first]
            figures = ", ".join(f"{name} {final[split][name]:.4f} ({popular[name]:.4f})" for name in others)
            if final[split][first] <= popular[first]:
                found.append(
                    f"{split}: {first} is {final[split][first]:.4f}, no better than that of the most popular items,"
                    f" {popular[first]:.4f}{f'; nor are {figures}' if others else ''}: train longer, or try another"
                    " learning rate or loss"
                )
            elif others:
                found.append(f"{split}: worse than the most popular items: {figures}, in brackets that of these items")
        fitted = {
            name: {split: {first: values[first]} for split, values in splits.items()}
            for name, splits in baselines.items()
            if name in baseline.FITTED
        }
        return found + baseline.warnings_of_others(final, fitted)


def _reported(lister: ranking.Lister, users: int, stage: str, progress: Progress) -> ranking.Lister:
    """The same lists; reports which share of the users has got theirs."""

    def found(start: int, stop: int, *more: Any) -> ranking.Listed:
        progress(stage, start / max(1, users))
        return lister(start, stop, *more)

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


def _interactions(data: Data) -> Interactions:
    assert data.interactions is not None  # the task is recommendation
    return data.interactions
