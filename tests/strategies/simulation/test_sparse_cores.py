"""What SparseCores refuse, drop and quantize, and the operations that no other test reaches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as draw
from tensorflow.python.tpu import tpu_embedding_v3
from tensorflow.python.tpu.ops import gen_xla_ops

import embexp
from embexp.errors import RunError, VocabularyError
from embexp.strategies.simulation import compilation
from embexp.system import native
from tests.thoroughness import examples

api = tf.tpu.experimental.embedding
ROWS, DIM, SAMPLES = 64, 8, 8


def simulated(cores: int = 1, sparse_cores: int = 2, **settings: Any) -> Any:
    return embexp.tpu_simulator(cores=cores, embedding_feature="V2", sparse_cores=sparse_cores, **settings)


def embedding_of(strategy: Any, *, samples: int = SAMPLES, quantization: Any = None, **limits: Any) -> Any:
    with strategy.scope():
        config = api.TableConfig(
            ROWS, DIM, tf.constant_initializer(0.3), combiner="sum", name="items", quantization_config=quantization
        )
        settings = api.SparseCoreEmbeddingConfig(**limits)
        features = {"seen": api.FeatureConfig(config, output_shape=[samples], name="seen")}
        return api.TPUEmbeddingV2(features, api.SGD(0.5), sparse_core_embedding_config=settings)


def look_up(strategy: Any, embedding: Any, ids: Any, weights: Any = None) -> np.ndarray:
    @tf.function
    def step() -> Any:
        return strategy.run(lambda: embedding({"seen": ids}, None if weights is None else {"seen": weights})[0])

    found: np.ndarray = strategy.experimental_local_results(step())[0]["seen"].numpy()
    return found


def bags(length: int) -> Any:
    """Each of the samples has ids 0 to length - 1."""
    return tf.RaggedTensor.from_uniform_row_length(tf.tile(tf.range(length), [SAMPLES]), length).with_row_splits_dtype(
        tf.int64
    )


class TestLimits:
    def test_more_ids_than_a_partition_takes(self) -> None:
        """Of 4 samples with 8 ids, a SparseCore sends 16 occurrences of 4 rows to each of two."""
        with simulated() as strategy:
            for limits, words in (
                ({"max_ids_per_table": {"items": 15}}, "sends 16 ids to SparseCore 0, but .* is 15; set it to 16"),
                ({"max_unique_ids_per_table": {"items": 3}}, "sends 4 distinct ids to .* is 3; set it to 8 or more"),
            ):
                with pytest.raises(tf.errors.InvalidArgumentError, match=words):
                    look_up(strategy, embedding_of(strategy, **limits), bags(8))
            enough = embedding_of(strategy, max_ids_per_table={"items": 16}, max_unique_ids_per_table={"items": 4})
            np.testing.assert_allclose(look_up(strategy, enough, bags(8)), 2.4, rtol=1e-6)

    def test_more_ids_than_a_chip_has_memory_for(self) -> None:
        with simulated() as strategy:
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"need 64 places .* gives it 56, .* set it to 8"):
                look_up(strategy, embedding_of(strategy, max_ids_per_chip_per_sample=7), bags(8))
            dropping = embedding_of(strategy, max_ids_per_chip_per_sample=7, allow_id_dropping=True)
            found = look_up(strategy, dropping, bags(8))
            # The last partition of the last SparseCore loses 8 of its 16 occurrences: those of its last two rows.
            np.testing.assert_allclose(found[:4], 2.4, rtol=1e-6)
            np.testing.assert_allclose(found[4:], 1.8, rtol=1e-6)
            enough = embedding_of(strategy, max_ids_per_chip_per_sample=8)
            np.testing.assert_allclose(look_up(strategy, enough, bags(8)), 2.4, rtol=1e-6)

    def test_outside_of_the_block_it_is_an_error_without_a_trace(self) -> None:
        with pytest.raises(RunError) as caught, simulated() as strategy:
            look_up(strategy, embedding_of(strategy, max_ids_per_table={"items": 8}), bags(8))
        words = "table 'items': a SparseCore sends 16 ids to SparseCore 0, but SparseCoreEmbeddingConfig."
        assert str(caught.value).startswith(words)
        assert "Traceback" not in str(caught.value)

    def test_an_id_outside_its_table_is_named(self) -> None:
        with (
            pytest.raises(
                VocabularyError, match="feature 'seen' looks up id 64 in table 'items', whose ids are 0 to 63"
            ),
            simulated() as strategy,
        ):
            look_up(strategy, embedding_of(strategy), tf.range(57, 65))

    @pytest.mark.parametrize(
        ("ids", "words"),
        [
            (lambda: tf.range(7), "there are 7 dense ids for 8 samples"),
            (lambda: tf.ragged.constant([[1]] * 7), "ragged ids have 7 rows, but there are 8 samples"),
            (lambda: tf.SparseTensor([[8, 0]], [1], [9, 1]), "sparse ids name sample 8, but there are 8 samples"),
            (lambda: tf.SparseTensor([[1, 0], [0, 0]], [1, 2], [8, 1]), "must be in order: tf.sparse.reorder"),
            (lambda: tf.SparseTensor([[1, 0, 0]], [1], [8, 1, 1]), "sparse ids have rank 3"),
        ],
    )
    def test_inputs_of_another_form(self, ids: Any, words: str) -> None:
        with simulated() as strategy, pytest.raises(tf.errors.InvalidArgumentError, match=words):
            look_up(strategy, embedding_of(strategy), ids())

    def test_samples_that_sparse_cores_can_not_share(self) -> None:
        words = "table 'items' has 6 samples on each chip, which its 4 SparseCores can't share equally"
        with simulated(1, 4) as strategy, pytest.raises(ValueError, match=words):
            look_up(strategy, embedding_of(strategy, samples=6), tf.range(6))

    def test_a_number_of_sparse_cores_that_is_no_power_of_two(self) -> None:
        words = "the total number of SparseCores must be a power of two, and 6 is not"
        with simulated(3, 2) as strategy, pytest.raises(tf.errors.InvalidArgumentError, match=words):
            look_up(strategy, embedding_of(strategy), tf.range(8))


def test_the_first_generation_is_refused() -> None:
    with simulated() as strategy:
        with strategy.scope():
            table = api.TableConfig(ROWS, DIM, name="items")
            embedding = api.TPUEmbedding({"seen": api.FeatureConfig(table)}, api.SGD(0.5))
        with pytest.raises(RuntimeError, match="this TPU reports the embedding hardware V2, but TPUEmbedding needs V1"):
            embedding.build(SAMPLES)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"embedding_feature": "V3"}, "embedding_feature is one of V1, V2, UNSUPPORTED, got 'V3'"),
        (
            {"embedding_feature": "V2", "sparse_cores": 3},
            "TensorFlow supports 1, 2 or 4 SparseCores per chip, got sparse_cores=3",
        ),
    ],
)
def test_hardware_that_there_is_not(settings: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words), embexp.tpu_simulator(**settings):
        pass


def test_lookups_are_quantized_before_they_are_combined() -> None:
    """0.3 is nearest to 0.25 of five numbers from 0 to 1; the sum of two is 0.5, and 0.6 would be 0.5 or 0.75."""
    with simulated() as strategy:
        embedding = embedding_of(strategy, quantization=api.QuantizationConfig(5, 0.0, 1.0))
        assert (look_up(strategy, embedding, bags(2)) == 0.5).all()


@pytest.mark.parametrize("limits", [(-0.25, 0.25), (0.5, 0.75)])
def test_rows_are_clipped_after_the_update(limits: tuple[float, float]) -> None:
    """TensorFlow's Python gives no such limits, and the operation has them."""
    low, high = limits
    with simulated() as strategy:
        embedding = embedding_of(strategy)
        embedding.build()
        table = embedding.embedding_tables["items"]

        def replica() -> None:
            _, kept = embedding({"seen": tf.range(8)})
            own = kept["items"]
            after = gen_xla_ops.xla_sparse_dense_matmul_grad_with_sgd_and_csr_input(
                own.row_pointers,
                own.sorted_sample_ids,
                own.sorted_token_ids,
                own.sorted_gains,
                activation_gradients=tf.constant([[2.0], [-2.0]] * 4) * tf.ones([1, DIM]),
                learning_rate=1.0,
                embedding_table=table.read_value(),
                num_minibatches_per_physical_sparse_core=own.num_minibatches_per_physical_sparse_core,
                clip_weight_min=low,
                clip_weight_max=high,
                table_name="items",
            )
            table.assign(after)

        tf.function(lambda: strategy.run(replica))()
        rows = table.values[0].numpy()
    # Rows 0, 2, … of each partition belong to even ids: those of SparseCore 0 fall by 2, those of SparseCore 1 rise.
    np.testing.assert_array_equal(rows[:4], np.full([4, DIM], np.float32(low)))
    np.testing.assert_array_equal(rows[32:36], np.full([4, DIM], np.float32(high)))
    np.testing.assert_array_equal(rows[4:32], np.full([28, DIM], np.float32(0.3)))


def test_what_was_packed_can_be_looked_up_with_other_gains() -> None:
    """The same ids and samples, twice in a step: the second lookup does not take the first for its own."""
    with simulated() as strategy:
        embedding = embedding_of(strategy)
        embedding.build()

        def replica() -> Any:
            found, kept = embedding({"seen": tf.range(8)})
            own = kept["items"]
            again = gen_xla_ops.xla_sparse_dense_matmul_with_csr_input(
                own.row_pointers,
                own.sorted_sample_ids,
                own.sorted_token_ids,
                2.0 * own.sorted_gains,
                embedding.embedding_tables["items"],
                own.num_minibatches_per_physical_sparse_core,
                input_size=8,
                quantization_config_low=0.0,
                quantization_config_high=0.0,
                quantization_config_num_buckets=0,
                table_name="items",
            )
            return found["seen"], again

        once, twice = tf.function(lambda: strategy.run(replica))()
    np.testing.assert_array_equal(twice, 2 * once.numpy())


def test_minibatches() -> None:
    """A split at the middle of the table: its two halves are two minibatches, which are looked up as one."""
    with simulated(1, 1):
        ends = np.zeros(65, np.int32)
        ends[1:33], ends[33:] = 2, 5
        pointers, samples, tokens, gains, used, places, minibatches = (
            gen_xla_ops.convert_to_sparse_core_csr_wrapped_coo_tensor(
                [[0, 1, 0, 1, 2]],
                [[3, 5, 40, 41, 60]],
                [[1.0, 1.0, 1.0, 1.0, 1.0]],
                [ends],
                splits=tf.constant(1, tf.int64),
                sample_count_per_sc=4,
                num_replica=1,
                max_minibatches_per_sc=2,
                max_ids_per_chip_per_sample=4,
                table_vocab_size=64,
                feature_width=8,
                table_name="items",
                allow_id_dropping=False,
            )
        )
        assert (int(used), int(places), int(minibatches)) == (16, 16, 2)
        np.testing.assert_array_equal(pointers, [2] + [8] * 7 + [11] + [16] * 7)
        np.testing.assert_array_equal(tokens.numpy()[[0, 1, 8, 9, 10]], [3, 5, 40, 41, 60])
        np.testing.assert_array_equal(samples.numpy()[[0, 1, 8, 9, 10]], [0, 1, 0, 1, 2])
        assert (gains.numpy()[[0, 1, 8, 9, 10]] == 1).all()


BAG = draw.lists(
    draw.lists(draw.tuples(draw.integers(0, 12), draw.sampled_from([0.1, 0.3, -0.7, 3.0])), max_size=6),
    min_size=SAMPLES,
    max_size=SAMPLES,
)
"""For each sample ids with weights; ids repeat, also next to each other, and samples may have none."""


@pytest.mark.skipif(native.library("sparse_cores") is None, reason="the library was not built: no C++ compiler")
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@examples(5)
@given(ragged=BAG, sparse=BAG, weighted=draw.booleans(), cores=draw.sampled_from([1, 2]))
def test_the_fused_operation_packs_the_same_bits(
    combiner: str, ragged: Any, sparse: Any, weighted: bool, cores: int
) -> None:
    """Of two stacked tables, one of which has features of two kinds."""

    def bags(samples: Any) -> tuple[Any, Any]:
        lengths = [len(one) for one in samples]
        columns = [[each[part] for one in samples for each in one] for part in (0, 1)]
        dtypes = (tf.int32, tf.float32)
        both = [
            tf.RaggedTensor.from_row_lengths(tf.constant(column, dtype), lengths)
            for column, dtype in zip(columns, dtypes, strict=True)
        ]
        return both[0], both[1]

    ids, weights = bags(ragged)
    others, their_weights = (each.to_sparse() for each in bags(sparse))
    inputs = {"dense": tf.range(SAMPLES), "ragged": ids, "sparse": others}
    own = {"dense": None, "ragged": weights, "sparse": their_weights} if weighted else None
    found = {}
    with simulated(cores, 4) as strategy:
        with strategy.scope():
            tables = [
                api.TableConfig(13, DIM, tf.zeros_initializer(), combiner=combiner, name=name) for name in ("a", "b")
            ]
            features = {
                name: api.FeatureConfig(tables[name == "sparse"], output_shape=[SAMPLES], name=name) for name in inputs
            }
            embedding = api.TPUEmbeddingV2(features, api.SGD(0.5))
        for library in (native.library("sparse_cores"), None):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(native, "library", lambda name, library=library: library)
                traced = tf.function(
                    lambda: tf.nest.map_structure(tf.identity, embedding.enqueue(inputs, own), expand_composites=True)
                ).get_concrete_function()
            fused = "EmbexpPackForSparseCores" in {one.type for one in traced.graph.get_operations()}
            assert fused == (library is not None)
            found[fused] = [part.numpy().tobytes() for part in tf.nest.flatten(traced())]
    assert len(found[True]) > 4
    assert found[True] == found[False]


def test_the_number_of_an_iteration() -> None:
    with simulated():

        @tf.function
        def numbers() -> Any:
            found = tf.TensorArray(tf.int64, 3)
            for i in tf.range(3):
                found = found.write(i, gen_xla_ops.global_iter_id())
            return found.stack(), gen_xla_ops.global_iter_id()

        inside, outside = numbers()
    np.testing.assert_array_equal(inside, [0, 1, 2])
    assert int(outside) == 0


def test_unserved_operations_stand_in_the_graph() -> None:
    with simulated(serve=False) as strategy:
        embedding = embedding_of(strategy)

        def replica() -> Any:
            return embedding({"seen": tf.range(8)})[0]

        @tf.function
        def step() -> Any:
            return strategy.run(replica)

        traced = step.get_concrete_function()
        kinds = {one.type for one in compilation.operations(traced.graph)}
        assert {"ConvertToListOfSparseCoreCooTensors", "XlaSparseDenseMatmulWithStaticBufferSize"} <= kinds
        assert "num_sparse_cores: 2" in compilation.configuration(embedding)


def test_everything_is_as_before_after_the_block() -> None:
    owners = (gen_xla_ops, tpu_embedding_v3.TPUEmbeddingV2, tpu_embedding_v3.TPUEmbeddingShardedVariable)
    before = [dict(vars(owner)) for owner in owners]
    with simulated():
        assert [dict(vars(owner)) for owner in owners] != before
    assert [dict(vars(owner)) for owner in owners] == before
