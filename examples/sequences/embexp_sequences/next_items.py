"""The best next items after histories that are given, by a finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from embexp.data.columns import columns_of
from embexp.data.examples import Examples, ListColumn
from embexp.errors import RunError
from embexp.system.parallel import Progress, quiet
from embexp_sequences.specs import HISTORY

if TYPE_CHECKING:
    from embexp.runs.finished import Run


def next_items(
    run: Run, histories: Mapping[str, Sequence[str]], count: int = 10, *, progress: Progress = quiet
) -> dict[str, list[tuple[str, float]]]:
    """The best items to follow histories, of task next_item.

    Args:
        histories: by name, items in the order of time; those that the run does not know are left out.
        count: items of each list.

    Returns:
        By name the items and their scores, the best first.

    Raises:
        RunError: the task is another.
    """
    if run.spec.task != "next_item":
        raise RunError(f"next_items is of task next_item, and the task of this run is {run.spec.task}")
    vocabulary = run.vocabulary(run.spec.features[HISTORY].table)
    rows = [vocabulary.rows(items) for items in histories.values()]
    rows = [each[each >= 0] for each in rows]
    lengths = np.array([len(each) for each in rows], np.int64)
    column = ListColumn(
        np.concatenate([np.empty(0, np.int64), *rows]).astype(np.int32), np.concatenate([[0], np.cumsum(lengths)])
    )
    examples = Examples(
        len(rows), (), np.empty((len(rows), 0), np.int32), {HISTORY: column}, {}, lengths[:, None].astype("f4"), None
    )
    columns, _ = columns_of(run.spec.data, run.spec.features, run.spec.tables, labelled=False)
    tokens, names, found = vocabulary.tokens(), iter(histories), {}
    for best in run.evaluator().best(run.runtime, columns, examples, len(tokens), count, progress):
        for items, scores in zip(best.items.tolist(), best.scores.tolist(), strict=True):
            pairs = zip(items, scores, strict=True)
            found[next(names)] = [(tokens[item], score) for item, score in pairs if item >= 0]
    return found
