"""Vectors of users that a run does not know, by their items: by its model, or folded in. Nothing is trained for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from embexp.data.examples import Examples, ListColumn, lists_of
from embexp.errors import DataError, VocabularyError
from embexp.fields.recommendation import cold_starts
from embexp.fields.recommendation.recommending import Vectors, recommender
from embexp.fields.recommendation.specs import Recommender
from embexp.specs.base import summarize_names
from embexp.specs.data import Columnar
from embexp.system.parallel import Progress, quiet

if TYPE_CHECKING:
    from embexp.fields.recommendation.evaluation import ListEvaluator
    from embexp.runs.finished import Run
    from embexp.runs.prepare import Data
    from embexp.training.loop import Predictor

Histories = Mapping[str, Sequence[str]]
"""Items of users that a run does not know, by the user's name."""


def read(run: Run, file: str) -> dict[str, list[str]]:
    """The items of each user of a file in the form of the run's data; see `data.label_threshold` for which rows count.

    Raises:
        RunError: the task is another.
        DataError: it lacks a column, has no rows that count, or a label is no number.
    """
    recommender(run)  # others have no users
    spec = run.spec
    user, item = (spec.column_of(name) for name in (spec.recommendation.user, spec.recommendation.item))
    label = spec.data.label if isinstance(spec.data, Columnar) else None
    columns = run.columns_of_file(file, [user, item, *([] if label is None else [label])])
    kept = [True] * len(columns[user])
    if label is not None:
        assert isinstance(spec.data, Columnar)
        least = spec.data.label_threshold
        assert least is not None  # a rule of the task
        try:
            kept = [float(value) >= least for value in columns[label]]
        except ValueError as error:
            raise DataError(f"{file}: column {label!r}: {error}") from None
    found: dict[str, list[str]] = {}
    for name, value, counts in zip(columns[user], columns[item], kept, strict=True):
        if counts:
            found.setdefault(name, []).append(value)
    if not found:
        raise DataError(f"{file}: no row is an interaction, so there is no user to recommend anything to")
    return found


def vectors(
    evaluator: ListEvaluator,
    data: Data,
    runtime: Predictor,
    model: Recommender,
    features: Collection[str],
    histories: Histories,
    unknown: dict[str, int] | None = None,
    progress: Progress = quiet,
) -> Vectors:
    """Vectors of new users, and of all items.

    A model whose users are nothing but an id and a history of items computes them as users whose id is unknown. For
    other models, and where unknown ids have no row, a user's vector is folded in: see `_folded_in`. Other features of
    users are not used.

    Args:
        features: the id columns of the model's `user_features`.
        histories: not empty. Of the users, those without any item of the catalogue are left out.
        unknown: gets the items that are not of the catalogue, and how many of the users have each.

    Raises:
        VocabularyError: no user has an item of the catalogue.
    """
    interactions, made = data.candidates.interactions, data.columns.histories
    assert interactions is not None  # the task is recommendation
    catalogue, names = interactions.catalogue, list(histories)
    known, items = (data.vocabularies[data.columns.ids[name]] for name in (interactions.user, interactions.item))
    pairs = [(place, item) for place, name in enumerate(names) for item in dict.fromkeys(histories[name])]
    who = np.asarray([place for place, _ in pairs], np.int64)
    numbers = catalogue.numbers(items.rows([item for _, item in pairs]))
    missing: dict[str, int] = {} if unknown is None else unknown
    for (_, item), number in zip(pairs, numbers.tolist(), strict=True):
        if number < 0:
            missing[item] = missing.get(item, 0) + 1
    served = np.unique(who[numbers >= 0])
    if not len(served):
        some = summarize_names([repr(item) for item in missing])
        raise VocabularyError(f"the run knows no item of these users, so nothing of them: {some or 'they have none'}")
    lists = lists_of(who, numbers, served, catalogue.size)
    by_model = known.oov and made and {interactions.user, *made} >= {*features}
    by_model = by_model and all(history.column == interactions.item for history in made.values())
    examples = _examples(data, lists if by_model else ListColumn(lists.values[:1], np.array([0, 1])))
    rows = np.arange(examples.count)
    of_users, of_items = evaluator.vectors(data, runtime, data.columns, examples, rows, progress)
    if not by_model:
        of_users = _folded_in(of_items, lists, model, of_users[0])
    of_users, of_items = (np.ascontiguousarray(each, np.float32) for each in (of_users, of_items))
    new = tuple(names[place] for place in served.tolist())
    users = np.arange(len(new))
    return Vectors(users, catalogue.rows, of_users, of_items, catalogue.counts, lists, (known, items), new_users=new)


def _folded_in(items: np.ndarray, lists: ListColumn, model: Recommender, user: np.ndarray) -> np.ndarray:
    """Vectors of users by least squares over those of items, see `cold_starts.folded_in`.

    Where scores are cosines and biases, the cosines are fitted, and a vector gets the length of all users' vectors,
    which the temperature decides. So biases count as much as they do in training.

    Args:
        user: the vector of any user.
    """
    width = items.shape[1] - (model.normalize and bool(model.item_biases))
    folded = cold_starts.folded_in(items[:, :width], lists, cold_starts.UNOBSERVED[1], cold_starts.PENALTIES[1])
    if not model.normalize:
        return folded
    scaled = cold_starts.of_length_one(folded, bias=False) * np.linalg.norm(user[:width])
    return np.concatenate([scaled, np.ones((len(scaled), items.shape[1] - width))], axis=1)


def _examples(data: Data, lists: ListColumn) -> Examples:
    """An example for each list of items: one of the training split, whose user is unknown and has these items."""
    interactions, examples = data.candidates.interactions, data.scan.examples
    assert interactions is not None
    users = len(lists.splits) - 1
    first = np.repeat(data.scan.splits["train"][:1], users)
    ids = np.array(examples.ids[first])
    ids[:, examples.id_columns.index(interactions.user)] = 0
    several = {
        name: ListColumn(column.values[:0], np.zeros(users + 1, np.int64)) for name, column in examples.lists.items()
    }
    of_items = ListColumn(interactions.catalogue.rows[lists.values].astype(np.int32), lists.splits)
    histories: dict[str, Any] = dict.fromkeys(examples.histories, of_items)  # by the example, and not by its user
    return replace(
        examples,
        count=users,
        ids=ids,
        lists=several,
        weights={
            name: values[:0] if data.columns.weights[name] in several else values[first]
            for name, values in examples.weights.items()
            if name in data.columns.weights
        },
        dense=np.zeros((users, examples.dense.shape[1]), np.float32),
        labels=None,
        example_weights=None,
        histories=histories,
    )
