"""The data of a run of recommendation: its interactions, new users and items, and what is held out of each split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from embexp.data.examples import Examples
from embexp.fields.recommendation.interactions import SEEN, HeldOut, Interactions, interactions
from embexp.fields.recommendation.newcomers import Newcomers, without_newcomers
from embexp.fields.recommendation.specs import Recommender
from embexp.runs.prepare import Data, with_histories
from embexp.specs.run import RunSpec


@dataclass(frozen=True)
class Recommended:
    """What is recommended, and to whom.

    Attributes:
        interactions: users, items and the catalogue.
        new: users and items that are in no split, and their interactions; None: there are none.
    """

    interactions: Interactions
    examples: Examples
    splits: Mapping[str, np.ndarray]
    new: Newcomers | None = None
    _held_out: dict[str, HeldOut] = field(default_factory=dict, init=False, repr=False, compare=False)

    def held_out(self, split: str) -> HeldOut:
        """The users of a split; what they have seen is in the splits before it.

        Raises:
            DataError: none of them can be evaluated.
        """
        if split not in self._held_out:  # the check before the training, each evaluation and popularity ask for it
            seen = [self.splits[name] for name in SEEN.get(split, SEEN["test"])]
            found = self.interactions.held_out(self.examples, self.splits[split], self.examples, seen)
            self._held_out[split] = found
        return self._held_out[split]


def complete(spec: RunSpec, data: Data) -> Data:
    """The data with what is recommended, without training examples of unknown items, and of new users and items.

    Raises:
        DataError: no user of a split can be evaluated, or nothing is left to train on.
    """
    assert isinstance(spec.model, Recommender)  # a rule between the settings
    names, new = spec.recommendation, None
    if names.new is not None:
        pair = names.user, names.item
        tables = [data.vocabularies[spec.features[each].table] for each in pair]
        scan, new = without_newcomers(data.scan, [spec.column_of(each) for each in pair], tables, names.new)
        data = replace(data, scan=scan)
    data = with_histories(data)
    examples, train = data.scan.examples, data.scan.splits["train"]
    by_ids = {spec.ids_of(name): data.vocabularies[feature.table] for name, feature in spec.features.items()}
    known = interactions(
        examples,
        train,
        user=spec.column_of(names.user),
        item=spec.column_of(names.item),
        item_columns=[spec.ids_of(name) for name in spec.model.item_side],
        special={column: vocabulary.first for column, vocabulary in by_ids.items()},
    )
    _, numbers = known.pairs(examples, train)
    splits = {**data.scan.splits, "train": train[numbers >= 0]} if (numbers < 0).any() else data.scan.splits
    found = Recommended(known, examples, splits, new)
    for split, rows in splits.items():
        if split != "train" and len(rows):
            found.held_out(split)  # which fails now, not after the training
    return replace(data, scan=replace(data.scan, splits=splits), candidates=found)
