"""What the answers to a knowledge graph's queries are ranked among, and the known answers that ranks leave aside.

No file holds the column `candidates`: it is made of entities, one of them the answer.

| | candidates | label |
|---|---|---|
| all entities (1-vs-all; all that is evaluated) | int32 [1, C], the same for every query | row of the answer |
| drawn | int32 [B, 1 + k]: the answer, then k others | 0 |

The draw is a pure function of the seed and the number of the step, so that a training can continue at any step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from embexp.data.columns import Columns
from embexp.data.examples import Examples, ListColumn
from embexp.specs.triples import CANDIDATES, RELATION, SOURCE
from embexp.system import digests

if TYPE_CHECKING:
    import tensorflow as tf

TARGET = "target"
"""Id column of the answers."""


@dataclass(frozen=True)
class KnownAnswers:
    """The known answers of N queries; queries that ask the same share them.

    Attributes:
        lists: the answers of each distinct query, each once, rising.
        places: int64 [N], the list of each query; its own answer is among them.
    """

    lists: ListColumn
    places: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """Number of answers of each query, int64 [N]."""
        return np.asarray(np.diff(self.lists.splits)[self.places])

    def between(self, start: int, stop: int) -> ListColumn:
        """The answers of the queries [start, stop), which are copied."""
        places = self.places[start:stop]
        starts, lengths = self.lists.splits[places], np.diff(self.lists.splits)[places]
        ends = np.cumsum(lengths)
        taken = np.arange(lengths.sum()) + np.repeat(starts - (ends - lengths), lengths)
        return ListColumn(self.lists.values[taken], np.concatenate([[0], ends]))


@dataclass(frozen=True)
class Candidates:
    """How the column is made.

    Attributes:
        entities: how many there are, at least 2.
        negatives: so many are drawn for each training query; None: all entities are candidates.
        seed: of the run.
        positives: the training answers of each training query, by its row among the examples (KvsAll); None: one each.
    """

    entities: int
    negatives: int | None
    seed: int
    positives: KnownAnswers | None = None

    def for_training(self, batches: tf.data.Dataset, start_step: int) -> tf.data.Dataset:
        """Adds the column to the batches of a training that begins with `start_step`."""
        import tensorflow as tf  # not above: a run is prepared without it

        plain = tf.autograph.experimental.do_not_convert
        if self.negatives is None:
            return batches.map(plain(self.for_all))
        numbered = batches.enumerate(start_step)
        return numbered.map(plain(self._drawn))

    def for_all(self, batch: Any) -> Any:
        """Adds all entities to a batch."""
        import tensorflow as tf  # not above: a run is prepared without it

        return batch._replace(ids={**batch.ids, CANDIDATES: tf.range(self.entities, dtype=tf.int32)[None]})

    def _drawn(self, step: Any, batch: Any) -> Any:
        import tensorflow as tf

        answers = tf.cast(batch.labels, tf.int32)[:, None]
        high, low = digests.seed_of(self.seed, "negatives")
        seed = tf.stack([tf.constant((high << 32) + low, tf.int64), step])
        shape = tf.concat([tf.shape(batch.labels), [self.negatives]], 0)
        # One fewer than there are, and those from the answer on moved up by one: uniform on all others.
        drawn = tf.random.stateless_uniform(shape, seed, 0, self.entities - 1, tf.int32)
        drawn += tf.cast(drawn >= answers, tf.int32)
        drawn = tf.ensure_shape(drawn, [batch.labels.shape[0], self.negatives])
        ids = {**batch.ids, CANDIDATES: tf.concat([answers, drawn], 1)}
        return batch._replace(ids=ids, labels=tf.zeros_like(batch.labels))


def stored(columns: Columns) -> Columns:
    """The columns without the one that is made."""
    return replace(columns, ids={name: table for name, table in columns.ids.items() if name != CANDIDATES})


def head_predictions(rows: np.ndarray) -> np.ndarray:
    """Bool [n]: whether queries, by their rows, predict a head, as every second one does; others predict a tail."""
    return np.asarray(rows % 2 == 1)


def known_answers(examples: Examples, rows: np.ndarray, others: Sequence[Examples] = ()) -> KnownAnswers:
    """The answers to some queries that stand in any split of the data.

    Args:
        examples: of a graph, with the column of the answers.
        rows: int64 [n], the queries.
        others: more examples that hold answers, with the same vocabularies.
    """
    sources = [examples, *others]
    targets = np.concatenate([each.ids[:, each.id_columns.index(TARGET)] for each in sources]).astype(np.int64)
    distinct, number = np.unique(_queries(sources), return_inverse=True)
    entities = int(targets.max(initial=0)) + 1
    pairs = np.unique(number * entities + targets)
    splits = np.searchsorted(pairs, np.arange(len(distinct) + 1) * entities)
    return KnownAnswers(ListColumn((pairs % entities).astype(np.int32), splits), number[: examples.count][rows])


def _queries(sources: Sequence[Examples]) -> np.ndarray:
    """A number for each query, int64: of source, relation, and whether a head is predicted, as an inverse shows too."""
    columns = []
    for each in sources:
        source, relation = (each.ids[:, each.id_columns.index(name)].astype(np.int64) for name in (SOURCE, RELATION))
        columns.append(np.stack([source, relation, head_predictions(np.arange(each.count))]))
    source, relation, head = np.concatenate(columns, axis=1)
    return np.asarray((source * (int(relation.max(initial=0)) + 1) + relation) * 2 + head)


def distinct_queries(examples: Examples, rows: np.ndarray) -> tuple[np.ndarray, KnownAnswers]:
    """The distinct queries among some, each by the first row that asks it, and their answers among these rows.

    Args:
        examples: of a graph, with the column of the answers.
        rows: int64 [n], rising, the queries of the training split.

    Returns:
        The rows, rising, and the answers of all examples by their rows; those of other rows than these are nobody's.
    """
    targets = examples.ids[rows, examples.id_columns.index(TARGET)].astype(np.int64)
    _, first, number = np.unique(_queries([examples])[rows], return_index=True, return_inverse=True)
    entities = int(targets.max(initial=0)) + 1
    pairs = np.unique(number * entities + targets)
    splits = np.searchsorted(pairs, np.arange(len(first) + 1) * entities)
    places = np.zeros(examples.count, np.int64)
    places[rows] = number
    return rows[np.sort(first)], KnownAnswers(ListColumn((pairs % entities).astype(np.int32), splits), places)
