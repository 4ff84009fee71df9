"""All known right answers to the queries of a knowledge graph, as filtered ranks need them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embexp.data.examples import Examples, ListColumn
from embexp.data.queries import TARGET
from embexp.specs.data import RELATION, SOURCE


def head_predictions(rows: np.ndarray) -> np.ndarray:
    """Bool [n]: whether queries, by their rows, predict a head, as every second one does; others predict a tail."""
    return np.asarray(rows % 2 == 1)


def known(examples: Examples, rows: np.ndarray, others: Sequence[Examples] = ()) -> ListColumn:
    """The answers to some queries that stand in any split of the data.

    Args:
        examples: of a graph, with the column of the answers.
        rows: int64 [n], the queries.
        others: more examples that hold answers, with the same vocabularies.

    Returns:
        For each query its answers, each once, rising; its own is among them.
    """
    sources = [examples, *others]
    targets = np.concatenate([each.ids[:, each.id_columns.index(TARGET)] for each in sources])
    queries = np.concatenate([_queries(each) for each in sources])
    distinct, number = np.unique(queries, axis=0, return_inverse=True)
    pairs = np.unique(np.stack([number.reshape(-1), targets], axis=1), axis=0)
    splits = np.searchsorted(pairs[:, 0], np.arange(len(distinct) + 1))
    mine = number.reshape(-1)[: examples.count][rows]
    starts, lengths = splits[mine], np.diff(splits)[mine]
    ends = np.cumsum(lengths)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return ListColumn(pairs[places, 1], np.concatenate([[0], ends]))


def _queries(examples: Examples) -> np.ndarray:
    """int64 [count, 3]: source, relation, and whether a head is predicted: an inverse relation says it too."""
    columns = [examples.ids[:, examples.id_columns.index(name)] for name in (SOURCE, RELATION)]
    return np.stack([*columns, head_predictions(np.arange(examples.count))], axis=1, dtype=np.int64)
