"""Errors of the simulated TPU and of TensorFlow under it, and the state that it restores."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute import device_util
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.tpu import functional, tpu, tpu_embedding_v2, tpu_strategy_util
from tensorflow.python.tpu.ops import tpu_ops

import embexp
from embexp.errors import RunError, VocabularyError

api = tf.tpu.experimental.embedding
ROWS, DIM, BATCH = 8, 2, 3
START = np.arange(ROWS * DIM, dtype=np.float32).reshape(ROWS, DIM)
PLACES = [
    (device_util, "get_host_for_device"),
    (tpu_strategy_util, "initialize_tpu_system_impl"),
    (tpu_strategy_util, "shutdown_tpu_system_impl"),
    (tpu_embedding_v2, "_load_variables_impl"),
    (tpu_embedding_v2, "_retrieve_variables_impl"),
    (tpu, "initialize_system_for_tpu_embedding"),
    (tpu, "split_compile_and_replicate"),
    (functional, "TPUPartitionedCall"),
    (context.Context, "soft_device_placement"),
    (polymorphic_function.Function, "__call__"),
    *(
        (tpu_ops, name)
        for name in ("is_tpu_embedding_initialized", "tpu_ordinal_selector", "cross_replica_sum", "all_to_all")
    ),
    *((tpu_ops, name) for name in ("recv_tpu_embedding_activations", "send_tpu_embedding_gradients")),
    (tpu_ops, "enqueue_tpu_embedding_arbitrary_tensor_batch"),
]


def new_embedding(
    strategy: Any, optimizer: Any = None, *, start: np.ndarray = START, built: bool = True, **keys: Any
) -> Any:
    with strategy.scope():
        table = api.TableConfig(ROWS, DIM, tf.constant_initializer(start), combiner="sum", name="items")
        embedding = api.TPUEmbedding({"seen": api.FeatureConfig(table, name="seen")}, optimizer or api.SGD(0.5), **keys)
    if built:
        embedding.build(BATCH)
    return embedding


def on_each_replica(strategy: Any, ids: Any) -> Any:
    """The same ids on each replica."""
    if isinstance(ids, tf.distribute.DistributedValues):
        return {"seen": ids}
    return {"seen": strategy.experimental_distribute_values_from_function(lambda _: ids)}


def rows(embedding: Any) -> np.ndarray:
    values: np.ndarray = embedding._variables["items"]["parameters"].variables[0].numpy()
    return values


def trainer(strategy: Any, embedding: Any) -> Callable[[Any], Any]:
    """A training step whose gradient is 1 for each activation."""

    def replica() -> Any:
        found = embedding.dequeue()
        embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, found))
        return found["seen"]

    @tf.function
    def step(ids: Any) -> Any:
        embedding.enqueue(on_each_replica(strategy, ids), training=True)
        return strategy.run(replica)

    return step


def fail_after(step: Callable[[Any], Any], runs: bool) -> None:
    if runs:
        step(IDS)
    raise KeyError("mine")


IDS = np.array([1, 1, 3])  # made a tensor where it is used: a test module must not start TensorFlow


@contextlib.contextmanager
def simulated() -> Iterator[Any]:
    with embexp.tpu_simulator(cores=2) as strategy:
        yield strategy


class TestTheBlock:
    @pytest.mark.parametrize("serve", [True, False])
    def test_leaves_tensorflow_as_it_was(self, serve: bool) -> None:
        before = [getattr(owner, name) for owner, name in PLACES]
        with pytest.raises(KeyError, match="mine"), embexp.tpu_simulator(serve=serve) as strategy:
            fail_after(trainer(strategy, new_embedding(strategy)), serve)
        assert [getattr(owner, name) for owner, name in PLACES] == before
        with simulated() as strategy:  # and can be entered anew, with an empty TPU
            trainer(strategy, new_embedding(strategy))(IDS)

    def test_a_failed_trace_restores_everything(self) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy)

            def replica() -> None:
                embedding.dequeue()
                raise RuntimeError("in the step")

            @tf.function
            def step(ids: Any) -> None:
                embedding.enqueue(on_each_replica(strategy, ids), training=False)
                strategy.run(replica)

            with pytest.raises(RuntimeError, match="in the step"):
                step(IDS)
            assert trainer(strategy, embedding)(IDS).values[0].shape == (BATCH, DIM)

    def test_soft_placement_is_only_that_of_the_tpu(self) -> None:
        """Without it, variables on simulated cores work all the same; the program around the block keeps its own."""
        current = context.context()
        with simulated() as strategy:
            before = current._soft_device_placement
            tf.config.set_soft_device_placement(False)
            assert tf.config.get_soft_device_placement() is False
            assert trainer(strategy, new_embedding(strategy))(IDS).values[0].shape == (BATCH, DIM)
            assert current._soft_device_placement is before
        with simulated():
            assert tf.config.get_soft_device_placement() is True
        try:
            tf.config.set_soft_device_placement(False)
            with simulated() as strategy:
                assert tf.config.get_soft_device_placement() is False
                trainer(strategy, new_embedding(strategy))(IDS)
                tf.config.set_soft_device_placement(True)
            assert tf.config.get_soft_device_placement() is False
        finally:
            tf.config.set_soft_device_placement(True)

    def test_works_after_a_graph_came_first(self, forked: Path) -> None:
        """TensorFlow starts without soft placement where it is first used inside a graph."""
        script = (
            "import embexp, tensorflow as tf\n"
            "from tensorflow.python.eager import context\n"
            "with tf.Graph().as_default():\n"
            "    context.ensure_initialized()\n"
            "with embexp.tpu_simulator(cores=2) as strategy:\n"
            "    with strategy.scope():\n"
            "        weights = tf.Variable([1.0])\n"
            "    step = tf.function(lambda: strategy.run(lambda: weights.read_value()))\n"
            "    print([each.numpy().tolist() for each in strategy.experimental_local_results(step())])\n"
        )
        found = subprocess.run([forked / "python", "-c", script], capture_output=True, text=True)
        assert found.stdout.strip() == "[[1.0], [1.0]]", found.stderr

    def test_tunes_no_iterator_of_a_core(self) -> None:
        """TensorFlow would wait for the thread that tunes it: a training ended with seconds of nothing."""
        options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
        with simulated() as strategy:
            data = tf.data.Dataset.range(4).batch(2)
            iterator = iter(strategy.distribute_datasets_from_function(lambda _: data, options))
            own = iterator._iterators[0]._iterator._device_iterators
            assert [each._dataset.options().autotune.enabled for each in own] == [False, False]

    def test_has_the_client_of_a_tpu_in_the_cloud(self) -> None:
        """As TensorFlow's own test base class uses it."""
        with simulated():
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver("", zone="none", project="none")
            client = resolver._cloud_tpu_client
            client.configure_tpu_version(version="nightly", restart_type="always")
            client.wait_for_healthy()
            assert client.recoverable()
            tf.config.experimental_connect_to_cluster(resolver)
            tf.tpu.experimental.initialize_tpu_system(resolver)
            assert tf.distribute.TPUStrategy(resolver).num_replicas_in_sync == 2

    def test_is_one_at_a_time(self) -> None:
        with simulated(), pytest.raises(RuntimeError, match="inside another tpu_simulator"), simulated():
            pass

    @pytest.mark.parametrize("counts", [{"cores": 0}, {"hosts": 0}])
    def test_has_cores(self, counts: dict[str, int]) -> None:
        with pytest.raises(ValueError, match="at least 1 core and 1 host"), embexp.tpu_simulator(**counts):
            pass

    def test_gives_a_real_strategy(self) -> None:
        with embexp.tpu_simulator(cores=4) as strategy:
            assert type(strategy) is tf.distribute.TPUStrategy
            assert strategy.num_replicas_in_sync == 4

    def test_names_an_id_outside(self) -> None:
        message = re.escape("feature 'seen of replica 0' looks up id 8 in table 'items', whose ids are 0 to 7")
        with pytest.raises(VocabularyError, match=message), simulated() as strategy:
            trainer(strategy, new_embedding(strategy))(tf.constant([1, 8, 3], tf.int64))

    def test_of_an_id_outside_moves_nothing(self) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy)
            with pytest.raises(tf.errors.InvalidArgumentError, match="ids of feature seen of replica 0 in table items"):
                trainer(strategy, embedding)(tf.constant([1, -1, 3], tf.int64))
            np.testing.assert_array_equal(rows(embedding), START)

    def test_what_a_tpu_could_not_compile_is_an_error_of_ours(self) -> None:
        message = r"^a TPU can't compile this step:\n.*Unique"
        with pytest.raises(RunError, match=message), simulated() as strategy:
            strategy.run(tf.function(lambda: tf.unique([1, 2])[0]))


class TestOneEmbeddingPerInitialization:
    def test_a_second_one_is_refused_by_tensorflow(self) -> None:
        with simulated() as strategy:
            new_embedding(strategy)
            with pytest.raises(RuntimeError, match="TPU is already initialized for embeddings"):
                new_embedding(strategy)

    def test_initializing_anew_makes_room(self) -> None:
        with simulated() as strategy:
            new_embedding(strategy)
            topology = tf.tpu.experimental.initialize_tpu_system(strategy.cluster_resolver)
            assert topology.num_tasks == 1
            embedding = new_embedding(strategy)
            trainer(strategy, embedding)(IDS)
            np.testing.assert_allclose(rows(embedding)[1], START[1] - 0.5 * 4)

    def test_loading_and_retrieving_go_by_table_names(self) -> None:
        """Two objects share one TPU: either saves the TPU's values."""
        with simulated() as strategy:
            first = new_embedding(strategy)
            tf.tpu.experimental.initialize_tpu_system(strategy.cluster_resolver)
            second = new_embedding(strategy, start=START + 100)
            first._retrieve_variables()
            np.testing.assert_array_equal(rows(first), START + 100)
            first._variables["items"]["parameters"].variables[0].assign(START)
            first._load_variables()
            np.testing.assert_array_equal(rows(second), START)


class TestSteps:
    def test_replicas_and_occurrences_are_summed_into_one_update(self) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy, api.Adagrad(0.5, initial_accumulator_value=1.0))
            trainer(strategy, embedding)(IDS)
            expected = START.astype(np.float64)
            for row, gradient in ((1, 4.0), (3, 2.0)):
                expected[row] -= 0.5 * gradient / np.sqrt(1 + gradient**2)
            np.testing.assert_allclose(rows(embedding), expected, rtol=1e-6)

    def test_enqueueing_in_a_function_of_its_own(self) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy)

            @tf.function
            def enqueue(ids: Any) -> None:
                embedding.enqueue(on_each_replica(strategy, ids), training=False)

            @tf.function
            def look_up() -> Any:
                return embedding.dequeue()["seen"]

            enqueue(IDS)
            enqueue(IDS + 1)
            np.testing.assert_array_equal(strategy.run(look_up).values[0], START[IDS])
            np.testing.assert_array_equal(strategy.run(look_up).values[1], START[IDS + 1])
            with pytest.raises(tf.errors.InvalidArgumentError, match="a TPU would wait forever"):
                strategy.run(look_up)

    def test_two_batches_ahead_in_one_function(self) -> None:
        """First in, first out, also where one is for training and the other is not."""
        with simulated() as strategy:
            embedding = new_embedding(strategy)

            def training() -> None:
                embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, embedding.dequeue()))

            @tf.function
            def step(ids: Any) -> Any:
                embedding.enqueue(on_each_replica(strategy, ids), training=True)
                embedding.enqueue(on_each_replica(strategy, ids + 1), training=False)
                strategy.run(training)
                return strategy.run(lambda: embedding.dequeue()["seen"])

            found = step(IDS).values[0]
            np.testing.assert_allclose(rows(embedding)[1], START[1] - 0.5 * 4)
            np.testing.assert_array_equal(found, START[IDS + 1])

    def test_a_batch_of_another_kind_that_was_left_is_an_error(self) -> None:
        """A core has one queue: a TPU would give the step the batch that was left. The error removes it."""
        with simulated() as strategy:
            embedding = new_embedding(strategy)
            train = trainer(strategy, embedding)

            @tf.function
            def enqueue(ids: Any) -> None:
                embedding.enqueue(on_each_replica(strategy, ids), training=False)

            np.testing.assert_array_equal(train(IDS).values[0], START[IDS])
            enqueue(IDS + 1)
            with pytest.raises(tf.errors.InvalidArgumentError, match="batches leave the queue of a core in the order"):
                train(IDS + 2)
            np.testing.assert_array_equal(train(IDS + 3).values[1], START[IDS + 3])
            assert rows(embedding)[5].tolist() == START[5].tolist()  # of the step that failed

    def test_a_failed_step_leaves_no_batch(self) -> None:
        """Not even on the cores whose ids were fine."""
        with embexp.tpu_simulator(cores=4) as strategy:
            embedding = new_embedding(strategy)
            train = trainer(strategy, embedding)
            bad = strategy.experimental_distribute_values_from_function(
                lambda context: IDS + ROWS * (context.replica_id_in_sync_group == 0)
            )
            for _ in range(5):
                with pytest.raises(tf.errors.InvalidArgumentError, match="items"):
                    train(bad)
                before = rows(embedding)
                for found in train(IDS).values:
                    np.testing.assert_array_equal(found, before[IDS])

    def test_features_with_one_name_stay_separate(self) -> None:
        with embexp.tpu_simulator(cores=1) as strategy:
            with strategy.scope():
                table = api.TableConfig(ROWS, DIM, tf.constant_initializer(START), combiner="sum", name="items")
                features = [
                    api.FeatureConfig(table, name="x"),
                    api.FeatureConfig(table, name="x"),
                    api.FeatureConfig(table),
                ]
                embedding = api.TPUEmbedding(features, api.SGD(0.5))

            @tf.function
            def step(*ids: Any) -> Any:
                embedding.enqueue(list(ids), training=False)
                return strategy.run(embedding.dequeue)

            found = step(IDS, IDS + 1, IDS + 2)
            for number, one in enumerate(found):
                np.testing.assert_array_equal(one, START[IDS + number])

    def test_replicas_enqueue(self) -> None:
        with simulated() as strategy:
            embedding, moving = new_embedding(strategy), [False]

            def replica(given: Any) -> Any:
                embedding.enqueue({"seen": given}, training=True)
                found = embedding.dequeue()
                if moving[0]:
                    embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, found))
                return found["seen"]

            @tf.function
            def step(train: bool) -> Any:
                moving[0] = train
                given = strategy.experimental_distribute_values_from_function(
                    lambda context: tf.repeat(tf.constant(context.replica_id_in_sync_group, tf.int64), BATCH)
                )
                return strategy.run(replica, args=(given,))

            for number, found in enumerate(step(False).values):
                np.testing.assert_array_equal(found, START[[number] * BATCH])
            step(True)
            np.testing.assert_allclose(rows(embedding)[:3], START[:3] - [[1.5], [1.5], [0]])

    def test_enqueueing_by_device(self) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy)

            @tf.function
            def step() -> Any:
                def enqueue(context: Any) -> Any:
                    number = context.replica_id_in_sync_group
                    ids = {"seen": tf.repeat(tf.constant(number, tf.int64), BATCH)}
                    embedding.enqueue(ids, training=False, device=strategy.extended.worker_devices[number])
                    return number

                strategy.experimental_distribute_values_from_function(enqueue)
                return strategy.run(lambda: embedding.dequeue()["seen"])

            for number, found in enumerate(step().values):
                np.testing.assert_array_equal(found, START[[number] * BATCH])

    def test_a_rate_follows_its_variable(self) -> None:
        with simulated() as strategy:
            with strategy.scope():
                rate = tf.Variable(1.0)
            embedding = new_embedding(strategy, api.SGD(lambda: rate))
            step = trainer(strategy, embedding)
            step(tf.constant([0, 1, 2], tf.int64))
            np.testing.assert_allclose(rows(embedding)[0], START[0] - 2)
            rate.assign_sub(0.75)
            assert [float(copy) for copy in rate.values] == [0.25, 0.25]
            step(tf.constant([0, 1, 2], tf.int64))
            np.testing.assert_allclose(rows(embedding)[0], START[0] - 2.5)

    def test_tensorflow_functions_inside_take_and_return_tensors(self) -> None:
        """As TensorFlow's own do outside of a step: by their signature, and variables as they are at the call."""

        def program(variable: Any) -> Any:
            @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
            def by_signature(x: Any) -> Any:
                return x

            @tf.function
            def read(plus: float = 1.0) -> Any:
                return variable, {"plus": plus, "none": None}

            before, others = read()
            variable.assign_add(1.0)
            return before, others["plus"], by_signature(3), tf.convert_to_tensor(variable)

        with simulated() as strategy:
            with strategy.scope():
                made = tf.Variable(5.0, aggregation=tf.VariableAggregation.MEAN)
            found = tf.nest.map_structure(lambda each: each.values[0], strategy.run(tf.function(lambda: program(made))))
        expected = program(tf.Variable(5.0))
        assert [(one.dtype, float(one)) for one in found] == [(one.dtype, float(one)) for one in expected]

    def test_tensorflow_functions_inside_are_traced_in(self) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy)

            @tf.function
            def replica() -> Any:
                found = embedding.dequeue()
                embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, found))
                total = tf.distribute.get_replica_context().all_reduce("sum", tf.reduce_sum(found["seen"]))
                for _ in range(2):
                    if tf.reduce_sum(found["seen"]) > 0:  # AutoGraph goes on inside
                        total += 1.0
                return total

            @tf.function
            def step(ids: Any) -> Any:
                embedding.enqueue(on_each_replica(strategy, ids), training=True)
                return strategy.run(replica)

            expected = 2 * START[IDS].sum() + 2
            assert [float(one) for one in step(IDS).values] == [expected, expected]


class TestRefusals:
    def step_of(self, strategy: Any, replica: Callable[[], Any], embedding: Any, *, training: bool) -> None:
        @tf.function
        def step(ids: Any) -> None:
            embedding.enqueue(on_each_replica(strategy, ids), training=training)
            strategy.run(replica)

        step(IDS)

    def test_no_gradients_for_a_training_batch(self) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy)
            with pytest.raises(RuntimeError, match=r"no TPUEmbedding\.apply_gradients follows"):
                self.step_of(strategy, embedding.dequeue, embedding, training=True)

    def test_gradients_for_an_evaluation_batch(self) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy)

            def replica() -> None:
                embedding.apply_gradients(tf.nest.map_structure(tf.ones_like, embedding.dequeue()))

            with pytest.raises(RuntimeError, match="enqueued with training=True"):
                self.step_of(strategy, replica, embedding, training=False)

    def test_nothing_enqueued(self) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy)
            with pytest.raises(RuntimeError, match="nothing has been enqueued yet"):
                tf.function(lambda: strategy.run(embedding.dequeue))()

    def test_dequeueing_in_a_condition(self) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy)

            def replica() -> Any:
                zeros = {"seen": tf.zeros([BATCH, DIM])}
                return tf.cond(tf.random.uniform([]) < 0.5, embedding.dequeue, lambda: zeros)

            with pytest.raises(RuntimeError, match=r"TPUEmbedding\.dequeue is inside control flow"):
                self.step_of(strategy, replica, embedding, training=False)

    def test_replicas_that_differ(self) -> None:
        with simulated() as strategy:
            embedding, seen = new_embedding(strategy), []

            def replica() -> None:
                seen.append(1)
                if len(seen) == 1:
                    embedding.dequeue()

            with pytest.raises(RuntimeError, match=r"replica 0: TPUEmbedding\.dequeue, replica 1: at its end"):
                self.step_of(strategy, tf.autograph.experimental.do_not_convert(replica), embedding, training=False)

    def test_enqueueing_in_a_function_inside_of_a_replica(self) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy)
            enqueue = tf.function(lambda given: embedding.enqueue({"seen": given}))
            with pytest.raises(RuntimeError, match="does not match graph which contains TPUReplicateContext"):
                tf.function(lambda: strategy.run(enqueue, args=(tf.constant(IDS),)))()

    def test_enqueueing_what_a_replica_computed(self) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy)

            def replica(given: Any) -> None:
                embedding.enqueue({"seen": given * 2})

            with pytest.raises(ValueError, match="_tpu_input_identity"):
                tf.function(lambda ids: strategy.run(replica, args=(ids,)))(IDS)

    @pytest.mark.parametrize("inside", [True, False])
    def test_batches_that_were_fetched_to_the_cores(self, inside: bool) -> None:
        with simulated() as strategy:
            embedding = new_embedding(strategy)
            dataset = tf.data.Dataset.from_tensors({"seen": tf.concat([IDS, IDS], 0)}).unbatch().batch(2 * BATCH)
            iterator = iter(strategy.experimental_distribute_dataset(dataset.repeat(), tf.distribute.InputOptions()))

            @tf.function
            def step(iterator: Any) -> None:
                given = next(iterator)
                if inside:
                    strategy.run(embedding.enqueue, args=(given,))
                else:
                    embedding.enqueue(given)

            with pytest.raises(ValueError, match="which is on a TPU input device"):
                step(iterator)

    @pytest.mark.parametrize(
        ("optimizer", "named"),
        [
            (lambda: api.Adagrad(0.1, use_gradient_accumulation=False), "use_gradient_accumulation=False"),
            (lambda: api.SGD(0.1, use_gradient_accumulation=False, clip_weight_max=1.0), "use_gradient_accumulation"),
            (lambda: api.SGD(0.1, weight_decay_factor=-1.0), "weight_decay_factor"),
            (lambda: api.SGD(0.1, clip_weight_min=2.0, clip_weight_max=1.0), "clip_weight_min must not exceed"),
            (lambda: api.Adagrad(0.1, use_gradient_accumulation=True, clipvalue=(1.0, -1.0)), "lower bound"),
        ],
    )
    def test_settings_that_are_not_supported(self, optimizer: Callable[[], Any], named: str) -> None:
        with simulated() as strategy, pytest.raises(NotImplementedError, match=f"table 'items'.*{named}"):
            new_embedding(strategy, optimizer())

    def test_quantization(self) -> None:
        with simulated() as strategy, strategy.scope():
            table = api.TableConfig(
                ROWS, DIM, name="items", quantization_config=api.QuantizationConfig(num_buckets=4, lower=0.0, upper=1.0)
            )
            embedding = api.TPUEmbedding({"seen": api.FeatureConfig(table)}, api.SGD(0.1))
            with pytest.raises(NotImplementedError, match="does not support simulated_quantization"):
                embedding.build(BATCH)
