"""Metrics of a run on its splits or on other examples, recommendations included."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from embexp.data import batches
from embexp.data.batches import ranked_batches
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.data.interactions import SEEN, HeldOut, Interactions
from embexp.data.queries import Candidates, KnownAnswers, head_predictions, known_answers
from embexp.errors import DataError
from embexp.models import losses
from embexp.runs.data import Data
from embexp.runs.prepare import Prepared
from embexp.specs import footprint
from embexp.specs.losses import CustomLoss
from embexp.specs.models import Task
from embexp.specs.run import RunSpec
from embexp.system.user_code import NamedFunction, kind_of
from embexp.training import baseline, ranking
from embexp.training.loop import Outcome, Runtime
from embexp.training.metrics import evaluate_split, predicted
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
    own = _own_metrics(spec)
    return lambda runtime: evaluate_split(spec.task, runtime, shown, len(rows), queries, own)


def _own_metrics(spec: RunSpec) -> Callable[[np.ndarray, np.ndarray], dict[str, float]] | None:
    """The user's own metrics of labels and logits, and the loss if that is the user's own; None: there is neither.

    Raises:
        ConfigError: a function can't be imported.
    """
    loss = spec.loss if isinstance(spec.loss, CustomLoss) else None
    functions = {
        name: NamedFunction(f"metrics.{name}", metric.function, metric.args, "labels, predictions")
        for name, metric in spec.metrics.items()
    }
    if loss is None and not functions:
        return None
    for function in functions.values():
        function.load()  # before the training, not at its first evaluation

    def values(labels: np.ndarray, logits: np.ndarray) -> dict[str, float]:
        shown = predicted(spec.task, logits)
        found = {name: _number(function, function(labels, shown)) for name, function in functions.items()}
        if loss is not None:
            function = NamedFunction("loss", loss.function, loss.args, "labels, logits")
            found["loss"] = losses.over_split(function, labels, logits)
        return found

    return values


def _number(function: NamedFunction, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise function.fault(f"it must return a number, but returned {kind_of(value)}") from None
    if not math.isfinite(number):
        raise function.fault(f"it must return a finite number, but returned {number}")
    return number


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
        return recommendation_evaluation(spec, data, held, data.columns, data.scan.examples)
    return evaluation(spec, data.columns, data.scan.examples, rows, data.candidates)


def constant_metrics(prepared: Prepared) -> dict[str, dict[str, float]]:
    """Metrics by split of the best constant prediction, see `embexp.training.baseline`; of training its loss."""
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
    if isinstance(prepared.spec.loss, CustomLoss):  # the loss of the task is another
        return {name: {key: values[key] for key in values if key != "loss"} for name, values in found.items()}
    return {name: {"loss": values["loss"]} if name == "train" else values for name, values in found.items()}


def _choices(examples: Examples, rows: np.ndarray, candidates: Candidates) -> np.ndarray:
    """How many candidates of each query are ranked: all entities, but for its other known answers."""
    return candidates.entities + 1 - known_answers(examples, rows).counts


def final_metrics(prepared: Prepared, runtime: Runtime, outcome: Outcome) -> dict[str, dict[str, float]]:
    """Metrics by split, with the final values of the run.

    Args:
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
    return {"popularity": popularity_metrics(prepared.spec, prepared.data)}


def held_out_file(data: Data, examples: Examples) -> HeldOut:
    """The users of another file; they have seen what is in the training and validation splits.

    Raises:
        DataError: none of them can be evaluated.
    """
    scan = data.scan
    seen = [scan.splits[name] for name in SEEN["test"]]
    return _interactions(data).held_out(examples, np.arange(examples.count), scan.examples, seen)


def recommendation_evaluation(
    spec: RunSpec, data: Data, held: HeldOut, columns: Columns, examples: Examples
) -> Callable[[Runtime], dict[str, float]]:
    """Prepares the evaluation of some users.

    Args:
        columns: what is read of the held-out examples.
    """

    def measured(runtime: Runtime) -> dict[str, float]:
        users, items = recommendation_vectors(spec, data, runtime, columns, examples, held.examples)
        return _recommendation_metrics(spec, held, ranking.products(users, items), len(items))

    return measured


def recommendation_vectors(
    spec: RunSpec, data: Data, runtime: Runtime, columns: Columns, examples: Examples, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of the users of some examples, float32 [N, d], and of all items, [I, d]; scores are dot products.

    Args:
        rows: int64 [N], which of them.
    """
    catalogue = _interactions(data).catalogue
    users, _ = _vectors_of_both(spec, runtime, columns, examples, rows)
    _, items = _vectors_of_both(spec, runtime, data.columns, data.scan.examples, catalogue.examples)
    return users, items


def recommendation_lists(
    spec: RunSpec, data: Data, runtime: Runtime, users: np.ndarray | None, count: int
) -> Iterator[tuple[np.ndarray, ranking.Best]]:
    """The best items for users of the run's own data, without all that they have seen in any of its splits.

    A user's features are read from the last example of the user.

    Args:
        users: int64, their rows in the vocabulary, rising; None: all that are known.
        count: items of each list.

    Yields:
        Some users, by their rows, and their lists.

    Raises:
        DataError: the data has no example of a user.
    """
    known, examples = _interactions(data), data.scan.examples
    splits = list(data.scan.splits.values())
    rows = np.sort(np.concatenate(splits))
    everyone, last = np.unique(known.pairs(examples, rows)[0][::-1], return_index=True)
    users = everyone[everyone >= known.special[0]] if users is None else users
    place = np.minimum(np.searchsorted(everyone, users), len(everyone) - 1)
    if (everyone[place] != users).any():
        raise DataError("the run's data has no example of some of these users")
    ours, items = recommendation_vectors(spec, data, runtime, data.columns, examples, rows[::-1][last[place]])
    seen = known.seen(examples, splits, users)
    scores = ranking.products(ours, items)
    for start, stop, block in ranking.user_blocks(scores, len(users), len(items), seen):
        yield users[start:stop], ranking.best_items(block, count)


def popularity_metrics(spec: RunSpec, data: Data) -> dict[str, dict[str, float]]:
    """By split the metrics of lists of the items that are most frequent in the training split, the same for all."""
    counts = _interactions(data).catalogue.counts.astype(np.float64)
    found = {}
    for split, rows in data.scan.splits.items():
        if split != "train" and len(rows):
            found[split] = _recommendation_metrics(
                spec, data.held_out(split), ranking.same_for_all(counts), len(counts)
            )
    return found


def recommendation_warnings(
    spec: RunSpec, data: Data, final: Mapping[str, Mapping[str, float]], baseline: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """What a user should know of the evaluation: users that were left out, and a model that learned too little."""
    found = []
    first = f"ndcg_at_{spec.recommendation.cutoffs[0]}"
    for split, popular in baseline.items():
        if skipped := data.held_out(split).skipped:
            found.append(
                f"{split}: {skipped:,} users are not evaluated: the training split does not have them, or they have"
                " seen their held-out items before"
            )
        if split in final and final[split][first] <= popular[first]:
            found.append(
                f"{split}: {first} is {final[split][first]:.4f}, no better than that of the most popular items,"
                f" {popular[first]:.4f}: train longer, or try another learning rate or loss"
            )
    return found


def _interactions(data: Data) -> Interactions:
    assert data.interactions is not None  # the task is recommendation
    return data.interactions


def _recommendation_metrics(spec: RunSpec, held: HeldOut, scores: ranking.Scores, items: int) -> dict[str, float]:
    return ranking.evaluate_lists(
        scores,
        items,
        relevant=held.relevant,
        unknown=held.unknown,
        seen=held.seen,
        cutoffs=spec.recommendation.cutoffs,
    )


def _vectors_of_both(
    spec: RunSpec, runtime: Runtime, columns: Columns, examples: Examples, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of the users and of the items of some examples, float32 [N, d] each."""
    shown = batches.evaluation_batches(examples, rows, columns, batch_size=spec.evaluation_batch_size)
    found = np.concatenate([vectors for _, vectors in runtime.predict(shown)])
    return found[:, 0], found[:, 1]
