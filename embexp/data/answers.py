"""All known right answers to the questions of a knowledge graph, as filtered ranks need them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embexp.data.examples import Examples, ListColumn
from embexp.data.queries import TARGET
from embexp.specs.data import RELATION, SOURCE


def for_heads(rows: np.ndarray) -> np.ndarray:
    """Bool [n]: whether examples ask for a head, as every second one does; others ask for a tail."""
    return np.asarray(rows % 2 == 1)


def known(examples: Examples, rows: np.ndarray, others: Sequence[Examples] = ()) -> ListColumn:
    """The answers to some questions that stand in any part of the data.

    Args:
        examples: of a graph, with the column of the answers.
        rows: int64 [n], the questions.
        others: more examples that hold answers, with the same vocabularies.

    Returns:
        For each question its answers, each once, rising; that of the question itself is among them.
    """
    sources = [examples, *others]
    asked = [_questions(each) for each in sources]
    targets = np.concatenate([each.ids[:, each.id_columns.index(TARGET)] for each in sources])
    questions, number = np.unique(np.concatenate(asked), axis=0, return_inverse=True)
    pairs = np.unique(np.stack([number.reshape(-1), targets], axis=1), axis=0)
    splits = np.searchsorted(pairs[:, 0], np.arange(len(questions) + 1))
    mine = number.reshape(-1)[: examples.count][rows]
    starts, lengths = splits[mine], np.diff(splits)[mine]
    ends = np.cumsum(lengths)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return ListColumn(pairs[places, 1], np.concatenate([[0], ends]))


def _questions(examples: Examples) -> np.ndarray:
    """int64 [count, 3]: source, relation, and whether a head is asked for: with inverses the relation says it too."""
    asked = [examples.ids[:, examples.id_columns.index(name)] for name in (SOURCE, RELATION)]
    return np.stack([*asked, for_heads(np.arange(examples.count))], axis=1, dtype=np.int64)
