"""Metrics of a run on its splits, or on other examples. Needs of a task beside predictions are put together here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from embexp.data import batches
from embexp.data.candidates import Candidates, head_predictions, known_answers
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.runs.data import Data
from embexp.runs.prepare import Prepared
from embexp.specs.run import RunSpec
from embexp.training.evaluation import evaluate
from embexp.training.loop import Outcome
from embexp.training.ranking import Queries
from embexp.training.runtime import Runtime

Evaluation = Callable[[Runtime], dict[str, float]]
"""From a runtime to metrics."""


def evaluation(
    spec: RunSpec,
    columns: Columns,
    examples: Examples,
    rows: np.ndarray,
    candidates: Candidates | None,
    known: Sequence[Examples] = (),
) -> Evaluation:
    """Metrics of some examples.

    Args:
        spec: says the task, and how large a batch is.
        columns: what the run reads of the examples.
        examples: encoded.
        rows: int64, which of them to predict.
        candidates: of task ranking, see `Data`.
        known: of task ranking, more examples whose answers are right.
    """
    shown = batches.evaluation_batches(
        examples,
        rows,
        columns,
        batch_size=spec.evaluation_batch_size,
        full=spec.fixed_batch,
        candidates=candidates,
    )
    queries = None
    if candidates is not None:
        queries = Queries(known_answers(examples, rows, known), head_predictions(rows))
    return lambda runtime: evaluate(spec.task, runtime, shown, len(rows), queries)


def of_split(spec: RunSpec, data: Data, split: str) -> Evaluation | None:
    """Metrics of a split of the run's own data; None where it is empty."""
    rows = data.scan.splits[split]
    if not len(rows):
        return None
    return evaluation(spec, data.columns, data.scan.examples, rows, data.candidates)


def of_all_splits(prepared: Prepared, runtime: Runtime, outcome: Outcome) -> dict[str, dict[str, float]]:
    """Metrics by split, of the values that the run keeps.

    Args:
        prepared: the run.
        runtime: predicts with these values.
        outcome: of the training; it has the training loss, and metrics of the validation split where these values
            were the last to be evaluated.
    """
    final: dict[str, dict[str, float]] = {"train": {"loss": outcome.train_loss}}
    for split in (split for split in prepared.data.scan.splits if split != "train"):
        if split == "validation" and outcome.validation is not None:
            final[split] = dict(outcome.validation)
        elif (measured := of_split(prepared.spec, prepared.data, split)) is not None:
            final[split] = measured(runtime)
    return final
