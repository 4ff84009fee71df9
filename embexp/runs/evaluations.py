"""Metrics of a run on its splits or on other examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from embexp.data import batches
from embexp.data.batches import ranked_batches
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.data.queries import Candidates, KnownAnswers, head_predictions, known_answers
from embexp.runs import recommending
from embexp.runs.data import Data
from embexp.runs.prepare import Prepared
from embexp.specs import footprint
from embexp.specs.models import Task
from embexp.specs.run import RunSpec
from embexp.training import baseline
from embexp.training.loop import Outcome, Runtime
from embexp.training.metrics import evaluate_split
from embexp.training.ranking import Queries

Evaluation = Callable[[Runtime], dict[str, float]]
"""Computes metrics with the predictions of a runtime."""


def evaluation(
    spec: RunSpec,
    columns: Columns,
    examples: Examples,
    rows: np.ndarray,
    candidates: Candidates | None,
    known: Sequence[Examples] = (),
) -> Evaluation:
    """Prepares the evaluation of some examples.

    Args:
        spec: of the run: its task and evaluation batch size.
        columns: what the run reads of the examples.
        examples: encoded.
        rows: int64, the examples to predict.
        candidates: for task ranking, see `Data`.
        known: for task ranking, more examples whose answers the filtered ranks skip.
    """
    if candidates is None:
        shown, queries = batches_of(spec, columns, examples, rows), None
    else:
        answers = known_answers(examples, rows, known)
        shown = queries_of(spec, columns, examples, rows, candidates, answers)
        queries = Queries(answers, head_predictions(rows), candidates.entities)
    return lambda runtime: evaluate_split(spec.task, runtime, shown, len(rows), queries)


def batches_of(spec: RunSpec, columns: Columns, examples: Examples, rows: np.ndarray) -> Any:
    """Some examples as a `tf.data.Dataset` of evaluation batches."""
    size = spec.evaluation_batch_size
    return batches.evaluation_batches(examples, rows, columns, batch_size=size, full=spec.fixed_batch)


def queries_of(
    spec: RunSpec, columns: Columns, examples: Examples, rows: np.ndarray, candidates: Candidates, known: KnownAnswers
) -> Any:
    """Some queries as a `tf.data.Dataset` of evaluation batches, so small that the scores of a batch are bounded.

    A TPU gets batches of its own size, with all entities as candidates: it looks rows up by their numbers only.
    """
    if spec.fixed_batch:
        size = spec.evaluation_batch_size
        return batches.evaluation_batches(examples, rows, columns, batch_size=size, full=True, candidates=candidates)
    size = footprint.evaluation_batch(candidates.entities, spec.evaluation_batch_size)
    return ranked_batches(examples, rows, columns, batch_size=size, candidates=candidates, known=known)


def evaluation_spec(prepared: Prepared) -> Any:
    """`element_spec` of the evaluation batches of a run."""
    spec, data = prepared.spec, prepared.data
    examples, some, candidates = data.scan.examples, data.scan.splits["train"][:1], data.candidates
    if candidates is None:
        return batches_of(spec, data.columns, examples, some).element_spec
    known = known_answers(examples, some)
    return queries_of(spec, data.columns, examples, some, candidates, known).element_spec


def split_evaluation(spec: RunSpec, data: Data, split: str) -> Evaluation | None:
    """Prepares the evaluation of a split of the run's data; None if the split is empty."""
    rows = data.scan.splits[split]
    if not len(rows):
        return None
    if spec.task is Task.RECOMMENDATION:
        held = data.held_out(split)
        return recommending.evaluation(spec, data, held, data.columns, data.scan.examples)
    return evaluation(spec, data.columns, data.scan.examples, rows, data.candidates)


def constant_metrics(prepared: Prepared) -> dict[str, dict[str, float]]:
    """Metrics by split of the best constant prediction, see `embexp.training.baseline`; of training its loss.

    Args:
        prepared: the run.
    """
    data, task = prepared.data, prepared.spec.task
    splits = {name: rows for name, rows in data.scan.splits.items() if len(rows)}
    if data.candidates is not None:
        return {
            name: baseline.at_random(_choices(data.scan.examples, rows, data.candidates), head_predictions(rows))
            for name, rows in splits.items()
            if name != "train"
        }
    constant, labels = data.constant(task), data.scan.examples.labels
    assert labels is not None  # every task but ranking has some
    found = {name: constant.metrics(labels, rows) for name, rows in splits.items()}
    return {name: {"loss": values["loss"]} if name == "train" else values for name, values in found.items()}


def _choices(examples: Examples, rows: np.ndarray, candidates: Candidates) -> np.ndarray:
    """How many candidates of each query are ranked: all entities, but for its other known answers."""
    return candidates.entities + 1 - known_answers(examples, rows).counts


def final_metrics(prepared: Prepared, runtime: Runtime, outcome: Outcome) -> dict[str, dict[str, float]]:
    """Metrics by split, with the final values of the run.

    Args:
        prepared: the run.
        runtime: predicts with the final values.
        outcome: of the training: its loss, and its last validation metrics if they belong to the final values.
    """
    final: dict[str, dict[str, float]] = {"train": {"loss": outcome.train_loss}}
    for split in (split for split in prepared.data.scan.splits if split != "train"):
        if split == "validation" and outcome.validation is not None:
            final[split] = dict(outcome.validation)
        elif (measured := split_evaluation(prepared.spec, prepared.data, split)) is not None:
            final[split] = measured(runtime)
    return final


def baselines(prepared: Prepared) -> dict[str, dict[str, dict[str, float]]]:
    """Metrics by the name of a baseline and by split: what a model that has learned must beat."""
    if prepared.spec.task is not Task.RECOMMENDATION:
        return {"constant": constant_metrics(prepared)}
    return {"popularity": recommending.popularity(prepared.spec, prepared.data)}
