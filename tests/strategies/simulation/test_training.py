"""Training under the simulated TPU against float64: cores, optimizers, kinds of input, shared tables, weights."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from tests.strategies.simulation.reference import RULES, Ids, Rule, Table
from tests.thoroughness import chosen, left_out

api = tf.tpu.experimental.embedding
ROWS, DIM, BATCH, STEPS, LENGTH = 12, 3, 4, 20, 2
COMBINERS = {"big": "sum", "small": "sqrtn", "other": "mean"}
# Feature: its table, whether it is a sequence, whether it has weights.
FEATURES = {
    "dense": ("big", False, False),
    "bag": ("big", False, False),
    "weighted": ("other", False, True),
    "weighted too": ("small", False, True),
    "sequence": ("small", True, False),
}


def optimizer_of(rule: Rule) -> Any:
    keys = {"initial_accumulator_value": rule.slots["accumulators"]} if rule.kind in ("Adagrad", "FTRL") else {}
    if rule.decay:
        keys["weight_decay_factor"] = rule.decay
        keys["multiply_weight_decay_factor_by_learning_rate"] = rule.decay_times_rate or None
    if np.isfinite(rule.clip[0]):
        keys |= {"clip_weight_min": rule.clip[0], "clip_weight_max": rule.clip[1]}
    if np.isfinite(rule.clip_gradient):
        keys["clipvalue"] = rule.clip_gradient
    if rule.every_row:
        keys["lazy_adam"] = False
    return getattr(api, rule.kind)(rule.rate, **rule.own, **keys)


def draw(rng: np.random.Generator, replicas: int) -> dict[str, list[list[list[tuple[int, float]]]]]:
    """For each feature, replica and example its ids and weights; ids repeat, and some examples have none."""
    drawn = {}
    for name, (_, _, weighted) in FEATURES.items():
        counts = np.ones((replicas, BATCH), int) if name == "dense" else rng.integers(0, 4, (replicas, BATCH))
        drawn[name] = [
            [
                [
                    (int(rng.integers(0, ROWS - 2)), float(np.float32(rng.uniform(0.5, 2))) if weighted else 1.0)
                    for _ in range(c)
                ]
                for c in of_replica
            ]
            for of_replica in counts
        ]
    return drawn


def as_vectors(name: str, examples: Ids) -> Ids:
    """What the reference combines: a sequence is cut or padded, one id for each vector."""
    if not FEATURES[name][1]:
        return examples
    return [example[place : place + 1] for example in examples for place in range(LENGTH)]


def as_tensors(kind: str, drawn: Any, replica: int) -> tuple[dict[str, Any], dict[str, Any]]:
    ids: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    for name, (_, _, weighted) in FEATURES.items():
        examples = drawn[name][replica]
        lengths = [len(example) for example in examples]
        flat = [pair for example in examples for pair in example]
        numbers, factors = [i for i, _ in flat], [w for _, w in flat]
        ids[name] = tf.RaggedTensor.from_row_lengths(tf.constant(numbers, tf.int64), lengths)
        weights[name] = (
            tf.RaggedTensor.from_row_lengths(tf.constant(factors, tf.float32), lengths) if weighted else None
        )
        if name == "dense":
            ids[name] = tf.constant(numbers, tf.int64)
        elif kind == "sparse":
            places = [(row, column) for row, length in enumerate(lengths) for column in range(length)]
            shape = [BATCH, 4]
            places = np.array(places, np.int64).reshape(-1, 2)
            ids[name] = tf.SparseTensor(places, ids[name].values, shape)
            weights[name] = tf.SparseTensor(places, weights[name].values, shape) if weighted else None
    return ids, {name: values for name, values in weights.items() if values is not None}


def specs(tensors: Any) -> Any:
    """Any number of values, a fixed batch."""

    def spec(value: Any) -> Any:
        if isinstance(value, tf.RaggedTensor):
            return tf.RaggedTensorSpec([BATCH, None], value.dtype, row_splits_dtype=tf.int64)
        return (
            tf.SparseTensorSpec([BATCH, 4], value.dtype)
            if isinstance(value, tf.SparseTensor)
            else tf.TensorSpec([BATCH], value.dtype)
        )

    return tf.nest.map_structure(spec, tensors)


def shapes(name: str) -> list[int]:
    return [BATCH, LENGTH] if FEATURES[name][1] else [BATCH]


def initializer(start: np.ndarray) -> Any:
    def rows(shape: Any, dtype: Any = tf.float32, shard_info: Any = None) -> Any:
        first = 0 if shard_info is None else shard_info.offset[0]
        count = shape[0] if shard_info is None else shard_info.shape[0]
        return tf.constant(start[first : first + count], dtype)

    return rows


def embedding_of(starts: dict[str, np.ndarray], rules: dict[str, Rule]) -> Any:
    tables = {
        name: api.TableConfig(ROWS, DIM, initializer(start), optimizer_of(rules[name]), COMBINERS[name], name)
        for name, start in starts.items()
    }
    features = {
        name: api.FeatureConfig(tables[table], LENGTH if sequence else 0, name=name)
        for name, (table, sequence, _) in FEATURES.items()
    }
    return api.TPUEmbedding(features, api.SGD(1.0))


def whole(embedding: Any, table: str, slot: str = "parameters") -> np.ndarray:
    return np.concatenate([shard.numpy() for shard in embedding._variables[table][slot].variables])


def train(kind: str, rules: dict[str, Rule], *, cores: int, hosts: int = 1, steps: int = STEPS) -> None:
    """Trains, and holds every row and slot against float64."""
    rng = np.random.default_rng(cores)
    starts = {name: rng.standard_normal((ROWS, DIM)).astype(np.float32) for name in COMBINERS}
    exact = {name: Table(start, rules[name]) for name, start in starts.items()}
    with embexp.tpu_simulator(cores=cores, hosts=hosts) as strategy:
        count = strategy.num_replicas_in_sync
        drawn = [draw(rng, count) for _ in range(steps)]
        targets = {name: rng.standard_normal((*shapes(name), DIM)).astype(np.float32) for name in FEATURES}
        with strategy.scope():
            embedding = embedding_of(starts, rules)
        embedding.build(BATCH)

        def replica() -> Any:
            with tf.GradientTape() as tape:
                found = embedding.dequeue()
                tape.watch(found)
                loss = sum(tf.reduce_sum((found[name] - targets[name]) ** 2) for name in FEATURES) / count
            embedding.apply_gradients(tape.gradient(loss, found))
            return found

        inputs = [[as_tensors(kind, one, number) for number in range(count)] for one in drawn]

        @tf.function(input_signature=[specs(inputs[0])])
        def step(given: Any) -> Any:
            values = strategy.experimental_distribute_values_from_function(
                lambda context: given[context.replica_id_in_sync_group]
            )
            ids, weights = values
            embedding.enqueue(ids, {name: weights.get(name) for name in FEATURES}, training=True)
            return tf.nest.map_structure(strategy.experimental_local_results, strategy.run(replica))

        for one, given in zip(drawn, inputs, strict=True):
            activations = step(given)
            for name, (table, _, _) in FEATURES.items():
                for number in range(count):
                    vectors = as_vectors(name, one[name][number])
                    expected = exact[table].look_up(vectors, COMBINERS[table])
                    got = activations[name][number].numpy().reshape(-1, DIM)
                    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
                    gradient = 2 * (expected - targets[name].reshape(-1, DIM)) / count
                    exact[table].add(vectors, COMBINERS[table], gradient)
            for table in exact.values():
                table.step()
        for name, table in exact.items():
            error = np.abs(whole(embedding, name) - table.rows)
            assert (error <= 2e-6 * table.path).all(), (name, (error / table.path).max())
            assert not (whole(embedding, name)[:-2] == starts[name][:-2]).all()
            for slot, values in table.slots.items():
                np.testing.assert_allclose(whole(embedding, name, slot), values, rtol=2e-4, atol=2e-5)


IN_EVERY_RUN = {(1, "ragged", 0), (2, "sparse", 0), (2, "sparse", 1), (4, "ragged", 1)}
"""Each number of cores and kind of input, and each rule, on two cores."""
CASES = [
    pytest.param(
        cores,
        kind,
        turn,
        part,
        id=f"{cores} cores, {kind}, {part}",
        marks=() if (cores, kind, part) in IN_EVERY_RUN else left_out(),
    )
    for turn, (cores, kind) in enumerate(itertools.product((1, 2, 4), ("sparse", "ragged")))
    for part in (0, 1)
]


def rules_of(turn: int, part: int) -> dict[str, Rule]:
    """Rules of the three tables: two parts have all five, and six turns have each with each table."""
    names = [list(RULES)[(turn + 3 * part + place) % len(RULES)] for place in range(len(COMBINERS))]
    return {table: RULES[name] for table, name in zip(COMBINERS, names, strict=True)}


def test_every_rule_is_tried_with_each_number_of_cores_kind_of_input_and_table() -> None:
    for turn in range(6):
        found = [rule for part in (0, 1) for rule in rules_of(turn, part).values()]
        assert all(rule in found for rule in RULES.values())
    for table in COMBINERS:
        found = [rules_of(turn, part)[table] for turn in range(6) for part in (0, 1)]
        assert all(rule in found for rule in RULES.values())


@pytest.mark.parametrize(("cores", "kind", "turn", "part"), CASES)
def test_rows_are_those_of_float64(cores: int, kind: str, turn: int, part: int) -> None:
    train(kind, rules_of(turn, part), cores=cores)


@pytest.mark.parametrize("kind", chosen(["sparse", "ragged"], ["ragged"]))
def test_rows_on_two_hosts(kind: str) -> None:
    """Tables are divided between hosts, 12 rows by 6; each has its own optimizer."""
    rules = {"big": RULES["Adagrad"], "small": RULES["SGD"], "other": RULES["AdagradMomentum"]}
    train(kind, rules, cores=1, hosts=2)


OPTIONS = {
    "decay": {
        "big": Rule("SGD", 0.1, {}, decay=0.05),
        "small": Rule("Adagrad", 0.1, {"accumulators": 0.5}, decay=0.3, decay_times_rate=True),
        "other": Rule("Adam", 0.02, {"momenta": 0.0, "velocities": 0.0}, decay=0.01),
    },
    "clipping": {
        "big": Rule("SGD", 0.1, {}, clip=(-0.5, 0.75)),
        "small": Rule("Adagrad", 0.1, {"accumulators": 0.1}, clip_gradient=0.25),
        "other": Rule("Adam", 0.02, {"momenta": 0.0, "velocities": 0.0}, clip=(-0.5, 0.5), clip_gradient=0.5),
    },
    "variants": {
        "big": Rule("Adam", 0.02, {"momenta": 0.0, "velocities": 0.0}, every_row=True),
        "small": Rule(
            "FTRL",
            0.1,
            {"accumulators": 0.1, "linears": 0.0},
            {
                "learning_rate_power": -0.4,
                "l1_regularization_strength": 0.01,
                "l2_regularization_strength": 0.02,
                "beta": 0.1,
                "multiply_linear_by_learning_rate": True,
            },
        ),
        "other": Rule("Adam", 0.02, {"momenta": 0.0, "velocities": 0.0}, {"sum_inside_sqrt": False, "epsilon": 1e-3}),
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_optimizers(name: str) -> None:
    train("ragged", OPTIONS[name], cores=2)
