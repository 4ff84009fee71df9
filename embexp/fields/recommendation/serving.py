"""A served model of recommendation: scores of users' items, and the best items for users."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from embexp.fields.recommendation.best_items import BestItems
from embexp.runs.finished import load_run
from embexp.runs.serving.saved_model import FeatureModel, Pieces, Signatures, feature_model


class ListModel(FeatureModel):
    """A model of features that also lists items."""

    best: BestItems

    def signatures(self) -> Signatures:
        """Those of scores and of lists."""
        return {**super().signatures(), **self.best.signatures()}


def model(pieces: Pieces) -> ListModel:
    """The model of a run, which also lists items for users."""
    run = pieces.run
    found = load_run(run.folder.path, allow_code=pieces.allow_code).vectors(progress=pieces.progress)
    names = run.spec.recommendation
    tables = (run.spec.features[each].table for each in (names.user, names.item))
    best = BestItems(found, *(pieces.vocabularies[pieces.shared[table]] for table in tables))
    served = feature_model(pieces, _scores, ListModel)
    served.best, served.recommend, served.recommend_with_seen = best, best.recommend, best.recommend_with_seen
    return served


def _scores(logits: Any) -> dict[str, Any]:
    # In double precision, as `embexp predict` computes it.
    user, item = (tf.cast(logits[:, side], tf.float64) for side in (0, 1))
    return {"predictions": tf.cast(tf.reduce_sum(user * item, 1), tf.float32)}
