"""Metrics of a run on its splits or on other examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from embexp.data import batches
from embexp.data.candidates import Candidates, head_predictions, known_answers
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.runs import recommending
from embexp.runs.data import Data
from embexp.runs.prepare import Prepared
from embexp.specs.models import Task
from embexp.specs.run import RunSpec
from embexp.training.evaluation import evaluate
from embexp.training.loop import Outcome
from embexp.training.ranking import Queries
from embexp.training.runtime import Runtime

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


def split_evaluation(spec: RunSpec, data: Data, split: str) -> Evaluation | None:
    """Prepares the evaluation of a split of the run's data; None if the split is empty."""
    rows = data.scan.splits[split]
    if not len(rows):
        return None
    if spec.task is Task.RECOMMENDATION:
        held = recommending.held_out(data, split)
        return recommending.evaluation(spec, data, held, data.columns, data.scan.examples)
    return evaluation(spec, data.columns, data.scan.examples, rows, data.candidates)


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
    """Metrics of a baseline by its name and split, to compare those of the model with; none for most tasks."""
    if prepared.spec.task is not Task.RECOMMENDATION:
        return {}
    return {"popularity": recommending.popularity(prepared.spec, prepared.data)}
