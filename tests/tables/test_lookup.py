"""Lookups against TensorFlow's serving path and against float64, and their gradients against float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from embexp.errors import RunError
from embexp.specs.optimizers import SGD
from embexp.specs.tables import Combiner, Feature
from embexp.tables.inputs import translated_errors
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable

EPSILON = np.finfo(np.float32).eps
ROWS, DIM = 11, 3
COMBINERS = st.sampled_from(list(Combiner))


class Case(NamedTuple):
    """One feature's input: (row, place, id, weight) of each occurrence, by row and place."""

    combiner: Combiner
    validate: bool
    id_type: Any
    batch: int
    width: int
    occurrences: list[tuple[int, int, int, float]]
    seed: int


@st.composite
def cases(draw: st.DrawFn, lowest_id: int = 0, signed: bool = False, gaps: bool = False) -> Case:
    combiner = draw(COMBINERS)
    batch, width = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    size = st.floats(2**-6, 2, width=32)
    weight = st.one_of(st.just(0.0), size, *([size.map(lambda w: -w)] if signed else []))
    occurrences = []
    for row in range(batch):
        length = draw(st.integers(0, width))
        places = sorted(draw(st.permutations(range(width)))[:length]) if gaps else range(length)
        occurrences += [(row, p, draw(st.integers(lowest_id, ROWS - 1)), draw(weight)) for p in places]
    id_type = draw(st.sampled_from([tf.int32, tf.int64]))
    return Case(combiner, draw(st.booleans()), id_type, batch, width, occurrences, draw(st.integers(0, 2**16)))


def sparse(case: Case, values: list[Any], dtype: Any) -> tf.SparseTensor:
    indices = np.array([o[:2] for o in case.occurrences], np.int64).reshape(-1, 2)
    return tf.SparseTensor(indices, tf.constant(values, dtype), [case.batch, case.width])


def ragged(case: Case, values: list[Any], dtype: Any) -> tf.RaggedTensor:
    lengths = np.bincount([o[0] for o in case.occurrences], minlength=case.batch).astype(np.int64)
    return tf.RaggedTensor.from_row_lengths(tf.constant(values, dtype), lengths)


def given_to_feature(case: Case, make: Any, weighted: bool) -> Any:
    ids = make(case, [o[2] for o in case.occurrences], case.id_type)
    return (ids, make(case, [o[3] for o in case.occurrences], tf.float32)) if weighted else ids


def coefficients(case: Case, weighted: bool, prune: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float64 [batch, ROWS]: the factor of each row in each result; the same without signs; occurrences [batch]."""
    signed, absolute = np.zeros((2, case.batch, ROWS))
    counts = np.zeros(case.batch)
    for row in range(case.batch):
        kept = [(o[2], o[3] if weighted else 1.0) for o in case.occurrences if o[0] == row]
        if prune:
            kept = [(i, w) for i, w in kept if i >= 0 and (w > 0 or case.combiner is Combiner.SUM)]
        weights = np.array([w for _, w in kept])
        divisor = {
            Combiner.SUM: 1.0,
            Combiner.MEAN: weights.sum(),
            Combiner.SQRTN: np.sqrt((weights**2).sum()),
        }[case.combiner]
        counts[row] = len(kept)
        for i, w in kept if divisor else []:
            signed[row, i] += w / divisor
            absolute[row, i] += abs(w / divisor)
    return signed, absolute, counts


class Bench(NamedTuple):
    engine: RowEngine
    table: EmbeddingTable
    values: np.ndarray


def bench(combiner: Combiner, features: dict[str, Feature], seed: int = 0, rate: float = 1.0) -> Bench:
    table = EmbeddingTable("item", ROWS, DIM, combiner=combiner)
    values = np.random.default_rng(seed).standard_normal((ROWS, DIM)).astype(np.float32)
    table.write(0, values)
    step = tf.Variable(0, dtype=tf.int64)
    rule = SGD(learning_rate=rate)
    return Bench(RowEngine({"item": table}, features, {"item": rule}, step=step, total_steps=1), table, values)


def looked_up(engine: RowEngine, value: Any, training: bool) -> Any:
    engine.enqueue({"f": value}, training=training)
    return engine.activations()["f"]


def served(made: Bench, combiner: Combiner, feature: Feature, value: Any) -> Any:
    embedding = tf.tpu.experimental.embedding
    config = embedding.TableConfig(ROWS, DIM, combiner=combiner.value, name="item")
    shape = None if feature.output_shape is None else list(feature.output_shape)
    of_feature = embedding.FeatureConfig(
        config, feature.max_sequence_length, feature.validate_weights_and_indices, shape, name="f"
    )
    ids, weights = value if isinstance(value, tuple) else (value, None)
    weights = None if weights is None else {"f": weights}
    return embedding.serving_embedding_lookup({"f": ids}, weights, {config: made.table.variable}, {"f": of_feature})[
        "f"
    ]


def check_combined(case: Case, make: Any, weighted: bool, prune: bool, serving_keeps_rows: bool = True) -> None:
    feature = Feature(table="item", validate_weights_and_indices=case.validate)
    made = bench(case.combiner, {"f": feature}, case.seed)
    value = given_to_feature(case, make, weighted)
    signed, absolute, counts = coefficients(case, weighted, prune)
    exact = signed @ made.values.astype(np.float64)
    bound = 2 * counts[:, None] * EPSILON * (absolute @ np.abs(made.values.astype(np.float64)))
    for training in (False, True):
        found = looked_up(made.engine, value, training).numpy()
        assert found.shape == (case.batch, DIM)
        assert (np.abs(found - exact) <= bound).all()
    reference = served(made, case.combiner, feature, value).numpy()
    if not serving_keeps_rows:
        assert not found[len(reference) :].any()
        found, bound = found[: len(reference)], bound[: len(reference)]
    assert (np.abs(found - reference) <= 2 * bound).all()


@given(cases(), st.booleans())
def test_ragged_is_combined_as_serving_does(case: Case, weighted: bool) -> None:
    check_combined(case, ragged, weighted, prune=False)


@given(cases(lowest_id=-2, signed=True, gaps=True), st.booleans())
def test_validated_sparse_drops_what_serving_drops(case: Case, weighted: bool) -> None:
    check_combined(case._replace(validate=True), sparse, weighted, prune=True)


@given(cases(gaps=True), st.booleans())
def test_unvalidated_sparse_drops_nothing_and_keeps_the_batch(case: Case, weighted: bool) -> None:
    check_combined(case._replace(validate=False), sparse, weighted, prune=False, serving_keeps_rows=False)


@given(cases(signed=True))
def test_weights_of_a_ragged_sum_may_be_negative(case: Case) -> None:
    check_combined(case._replace(combiner=Combiner.SUM), ragged, weighted=True, prune=False)


@given(cases(gaps=True), st.integers(1, 7), st.booleans())
def test_sequences_are_those_of_serving_to_the_bit(case: Case, length: int, is_ragged: bool) -> None:
    feature = Feature(table="item", max_sequence_length=length)
    made = bench(case.combiner, {"f": feature}, case.seed)
    value = given_to_feature(case, ragged if is_ragged else sparse, False)
    reference = served(made, case.combiner, feature, value).numpy()
    for training in (False, True):
        np.testing.assert_array_equal(looked_up(made.engine, value, training), reference, strict=True)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 2), (2, 3, 2), (0, 2)])
@pytest.mark.parametrize("id_type", [tf.int32, tf.int64])
def test_dense_ids_keep_their_shape(shape: tuple[int, ...], id_type: Any) -> None:
    made = bench(Combiner.MEAN, {"f": Feature(table="item")})
    ids = tf.cast(np.random.default_rng(1).integers(0, ROWS, shape), id_type)
    for training in (False, True):
        found = looked_up(made.engine, ids, training)
        np.testing.assert_array_equal(found, served(made, Combiner.MEAN, Feature(table="item"), ids), strict=True)
        assert found.shape == (*shape, DIM)


def test_sparse_of_rank_three_is_combined_over_its_last_dimension() -> None:
    feature = Feature(table="item")
    made = bench(Combiner.SQRTN, {"f": feature})
    ids = tf.SparseTensor([[0, 0, 1], [0, 1, 0], [0, 1, 2], [1, 1, 0]], tf.constant([4, 5, 6, 7], tf.int64), [3, 2, 3])
    found = looked_up(made.engine, ids, True)
    assert found.shape == (3, 2, DIM)
    np.testing.assert_allclose(found, served(made, Combiner.SQRTN, feature, ids), rtol=1e-6)
    np.testing.assert_allclose(found[0, 1], (made.values[5] + made.values[6]) / np.sqrt(2), rtol=1e-6)
    assert not found[2].numpy().any()


@pytest.mark.parametrize(("output", "length"), [((4,), 0), ((2, 2), 0), ((4, 3), 0), ((2, 2, 3), 0), ((4, 3), 3)])
def test_ragged_output_shapes_are_those_of_serving(output: tuple[int, ...], length: int) -> None:
    feature = Feature(table="item", output_shape=output, max_sequence_length=length)
    made = bench(Combiner.SUM, {"f": feature})
    ids = tf.ragged.constant([[1, 2, 3, 4], [], [5], [6, 7]], dtype=tf.int64)
    reference = served(made, Combiner.SUM, feature, ids)
    for training in (False, True):
        found = looked_up(made.engine, ids, training)
        assert found.shape == (*output, DIM)
        np.testing.assert_allclose(found, reference, rtol=1e-6)


def test_output_shape_of_a_sequence_of_one_is_a_sequence() -> None:
    feature = Feature(table="item", output_shape=(2, 1), max_sequence_length=1)
    made = bench(Combiner.SUM, {"f": feature})
    ids = tf.ragged.constant([[1, 2], []], dtype=tf.int64)
    found = looked_up(made.engine, ids, True)
    np.testing.assert_array_equal(found[:, 0], [made.values[1], np.zeros(DIM)])


def test_output_shape_of_dense_ids_is_checked_even_where_it_is_known_only_while_running() -> None:
    made = bench(Combiner.SUM, {"f": Feature(table="item", output_shape=(2, 2))})
    step = tf.function(lambda ids: looked_up(made.engine, ids, False), input_signature=[tf.TensorSpec(None, tf.int64)])
    with pytest.raises(ValueError, match="feature 'f': the rank of the ids must be known"):
        step(tf.zeros([2, 2], tf.int64))
    step = tf.function(
        lambda ids: looked_up(made.engine, ids, False), input_signature=[tf.TensorSpec([None, None], tf.int64)]
    )
    assert step(tf.zeros([2, 2], tf.int64)).shape == (2, 2, DIM)
    with (
        pytest.raises(RunError, match=r"^feature 'f': output_shape is \(2, 2\), but the input has a different shape$"),
        translated_errors(),
    ):
        step(tf.zeros([3, 2], tf.int64))


@given(cases(lowest_id=-1, signed=True, gaps=True), st.booleans(), st.booleans())
def test_gradients_reach_every_occurrence_with_its_factor(case: Case, is_ragged: bool, weighted: bool) -> None:
    if is_ragged:  # nothing is dropped from a ragged input
        occurrences = [(r, p, max(i, 0), abs(w)) for r, p, i, w in case.occurrences]
        case = case._replace(occurrences=occurrences)
    feature = Feature(table="item")
    made = bench(case.combiner, {"f": feature}, case.seed)
    value = given_to_feature(case, ragged if is_ragged else sparse, weighted)
    signed, absolute, _ = coefficients(case, weighted, prune=not is_ragged)
    gradient = np.random.default_rng(case.seed).standard_normal((case.batch, DIM)).astype(np.float32)
    looked_up(made.engine, value, True)
    made.engine.apply_gradients({"f": tf.constant(gradient)})
    moved = made.values.astype(np.float64) - signed.T @ gradient.astype(np.float64)
    bound = 2e-6 * (np.abs(made.values) + absolute.T @ np.abs(gradient))
    assert (np.abs(made.table.read(0, ROWS) - moved) <= bound).all()


@given(cases(gaps=True), st.integers(1, 4), st.booleans())
def test_gradients_of_a_sequence_reach_the_places_that_were_kept(case: Case, length: int, is_ragged: bool) -> None:
    feature = Feature(table="item", max_sequence_length=length)
    made = bench(case.combiner, {"f": feature}, case.seed)
    looked_up(made.engine, given_to_feature(case, ragged if is_ragged else sparse, False), True)
    gradient = np.random.default_rng(case.seed).standard_normal((case.batch, length, DIM)).astype(np.float32)
    made.engine.apply_gradients({"f": tf.constant(gradient)})
    total, absolute, touched, places = np.zeros((ROWS, DIM)), np.zeros((ROWS, DIM)), set(), [0] * case.batch
    for row, place, identity, _ in case.occurrences:
        place, places[row] = (places[row] if is_ragged else place), places[row] + 1
        if place < length:
            total[identity] += gradient[row, place]
            absolute[identity] += np.abs(gradient[row, place])
            touched.add(identity)
    bound = 2e-6 * (np.abs(made.values) + absolute)
    assert (np.abs(made.table.read(0, ROWS) - (made.values.astype(np.float64) - total)) <= bound).all()
    assert made.table.touched_rows() == len(touched)


RAGGED = tf.ragged.constant([[1, 2], [], [3]], dtype=tf.int64)
SPARSE = tf.sparse.from_dense(tf.constant([[1, 2], [3, 0]], tf.int64))
DENSE = tf.constant([1, 2], tf.int64)
REFUSED = {
    "a list": (Feature(table="item"), [1, 2], "feature 'f': ids are a list, not a tf.Tensor"),
    "float ids": (Feature(table="item"), tf.constant([1.0]), "ids are float32; they must be int32 or int64"),
    "int16 ids": (Feature(table="item"), tf.constant([1], tf.int16), "ids are int16; they must be int32 or int64"),
    "a scalar": (Feature(table="item"), tf.constant(1), "ids are a scalar; they need a batch dimension"),
    "dense sequence": (Feature(table="item", max_sequence_length=2), DENSE, "must be sparse or ragged, not dense"),
    "dense weights": (Feature(table="item"), (DENSE, tf.constant([1.0, 1])), "but these ids are dense"),
    "sequence weights": (
        Feature(table="item", max_sequence_length=2),
        (RAGGED, tf.cast(RAGGED, tf.float32)),
        "a sequence is not combined, so it can't have weights",
    ),
    "weights of another kind": (
        Feature(table="item"),
        (RAGGED, tf.cast(SPARSE, tf.float32)),
        "weights are a SparseTensor, but the ids are a RaggedTensor",
    ),
    "integer weights": (Feature(table="item"), (RAGGED, RAGGED), "weights are int64; they must be floating-point"),
    "sparse of rank 1": (
        Feature(table="item"),
        tf.SparseTensor([[0]], tf.constant([1], tf.int64), [2]),
        "sparse ids must have rank 2 or more, got rank 1",
    ),
    "sparse sequence of rank 3": (
        Feature(table="item", max_sequence_length=2),
        tf.SparseTensor([[0, 0, 0]], tf.constant([1], tf.int64), [2, 2, 2]),
        "a sparse sequence must have rank 2, got rank 3",
    ),
    "ragged of rank 3": (
        Feature(table="item"),
        tf.ragged.constant([[[1], [2]], []], dtype=tf.int64),
        "ragged ids must have rank 2, got rank 3",
    ),
    "dense against output_shape": (
        Feature(table="item", output_shape=(2,)),
        tf.constant([[1], [2]], tf.int64),
        r"output_shape is \(2,\), but the input's shape is \(2, 1\)",
    ),
    "sparse against output_shape": (
        Feature(table="item", output_shape=(3,)),
        SPARSE,
        r"output_shape is \(3,\), but the input's shape is \(2,\)",
    ),
    "ragged against output_shape": (
        Feature(table="item", output_shape=(4,)),
        RAGGED,
        r"output_shape \(4,\) holds 4 vectors, which is not a multiple of the batch size 3",
    ),
    "output_shape against max_sequence_length": (
        Feature(table="item", output_shape=(3, 2), max_sequence_length=4),
        RAGGED,
        r"output_shape \(3, 2\) makes sequences of 2 of a batch of 3, but max_sequence_length is 4",
    ),
    "weights of a sequence by output_shape": (
        Feature(table="item", output_shape=(3, 2)),
        (RAGGED, tf.cast(RAGGED, tf.float32)),
        "makes sequences of 2 of a batch of 3; a sequence is not combined, so it can't have weights",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_inputs(case: str) -> None:
    feature, value, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        looked_up(bench(Combiner.MEAN, {"f": feature}).engine, value, True)


def test_the_batch_of_a_ragged_output_shape_must_be_known() -> None:
    made = bench(Combiner.SUM, {"f": Feature(table="item", output_shape=(3,))})
    signature = [tf.RaggedTensorSpec([None, None], tf.int64)]
    with pytest.raises(ValueError, match="must be known while tracing: batch with drop_remainder=True"):
        tf.function(lambda ids: looked_up(made.engine, ids, False), input_signature=signature)(RAGGED)


@pytest.mark.parametrize(
    ("ids", "weights", "what"),
    [
        (SPARSE, tf.SparseTensor([[0, 0], [1, 0], [1, 1]], [1.0, 1, 1], [2, 2]), "indices"),
        (SPARSE, tf.SparseTensor([[0, 0], [0, 1]], [1.0, 1], [2, 2]), "indices"),
        (RAGGED, tf.ragged.constant([[1.0], [1.0], [1.0]]), "row splits"),
        (RAGGED, tf.ragged.constant([[1.0, 1], [1.0]]), "row splits"),
    ],
)
def test_weights_must_stand_where_the_ids_stand(ids: Any, weights: Any, what: str) -> None:
    made = bench(Combiner.SUM, {"f": Feature(table="item")})
    step = tf.function(lambda ids, weights: looked_up(made.engine, (ids, weights), True))
    message = f"^feature 'f': the {what} of the weights differ from those of the ids$"
    with pytest.raises(RunError, match=message), translated_errors():
        step(ids, weights)
    with pytest.raises(RunError, match=message), translated_errors():
        looked_up(made.engine, (ids, weights), True)
