"""Lookups by TensorFlow's `TPUEmbeddingForServing` against the row engine's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embexp.errors import VocabularyError
from embexp.specs.optimizers import Adam
from embexp.specs.tables import Combiner, Feature
from embexp.tables import inputs
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.row_engine import RowEngine
from embexp.tables.serving import ServingBackend
from embexp.tables.table import EmbeddingTable
from embexp.tables.tpu_tables import TPUTable

ROWS, DIM = 11, 3
VALUES = np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float32)
FEATURES = {
    "one": Feature(table="t"),
    "two": Feature(table="t"),
    "bag": Feature(table="t"),
    "weighted": Feature(table="t"),
    "sequence": Feature(table="t", max_sequence_length=2),
}


class FixedRows:
    rows, dim = ROWS, DIM

    def read(self, start: int, stop: int) -> np.ndarray:
        return VALUES[start:stop]


def batch() -> dict[str, Any]:
    lists = tf.ragged.constant([[1, 1, 10], [], [4]], dtype=tf.int32, ragged_rank=1)
    weights = tf.ragged.constant([[0.5, 2.0, 1.0], [], [0.25]], ragged_rank=1)
    return {
        "one": tf.constant([1, 0, 10]),
        "two": tf.constant([[1, 0], [10, 1], [2, 3]], tf.int64),
        "bag": lists,
        "weighted": (lists, weights),
        "sequence": lists,
    }


def table_of(combiner: Combiner = Combiner.MEAN, **others: Any) -> TPUTable:
    return TPUTable("t", FixedRows(), ROWS, DIM, combiner=combiner, **{"optimizer": Adam(), **others})


@pytest.mark.parametrize("combiner", list(Combiner))
def test_looks_up_like_the_row_engine(combiner: Combiner) -> None:
    serving = ServingBackend({"t": table_of(combiner)}, FEATURES)
    own = EmbeddingTable("t", ROWS, DIM, combiner=combiner, frozen=True)
    own.write(0, VALUES)
    engine = RowEngine({"t": own}, FEATURES, {}, step=None, total_steps=1)

    def looked_up(backend: Any) -> Any:
        @tf.function(autograph=False)
        def look_up() -> Any:
            backend.enqueue(batch(), training=False)
            return backend.activations()

        return look_up()

    found, expected = looked_up(serving), looked_up(engine)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-7, err_msg=name)


def test_a_checkpoint_of_any_table_is_restored(tmp_path: Any) -> None:
    own = EmbeddingTable("t", ROWS, DIM, slots={"momenta": 0.5, "velocities": 0.25})
    own.write(0, 2 * VALUES)
    prefix = tf.train.Checkpoint(embedding=TableCheckpoint([own])).write(str(tmp_path / "saved"))
    table = table_of()
    ServingBackend({"t": table}, FEATURES)
    tf.train.Checkpoint(embedding=TableCheckpoint([table])).read(prefix).assert_existing_objects_matched()
    assert table.digest() == own.digest()
    assert (table.read(0, ROWS, "velocities") == 0.25).all()


def test_ids_are_checked_and_nothing_is_trained() -> None:
    serving = ServingBackend({"t": table_of()}, {"one": Feature(table="t")})
    with pytest.raises(RuntimeError, match="can't be trained"):
        serving.enqueue({"one": tf.constant([1])}, training=True)
    with pytest.raises(RuntimeError, match="can't be trained"):
        serving.apply_gradients({})
    with pytest.raises(RuntimeError, match=r"once after enqueue\(\)"):
        serving.activations()
    with pytest.raises(VocabularyError, match="looks up id 11 in table 't'"), inputs.translated_errors():
        serving.enqueue({"one": tf.constant([11])}, training=False)


def test_a_table_in_two_parts_is_not_for_serving() -> None:
    with pytest.raises(ValueError, match="has two device tables; on a CPU it must have one"):
        ServingBackend({"t": table_of(frozen_rows=np.arange(ROWS) < 3)}, FEATURES)
