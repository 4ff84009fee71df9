"""A program of TensorFlow 1 that calls the parts for programs of one's own; `test_tensorflow_1` starts it.

Each check runs in a graph of its own, with resource variables and with reference variables. What is right comes from
TensorFlow's own optimizers and savers, from its SparseApply kernels, or from the formulas in float64.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp import checkpoints, initialization, rows
from embexp.errors import CheckpointError, UsageError
from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam
from tests import exact_rules
from tests.checkpoints import made

v1 = tf.compat.v1
ROWS, DIM = 9, 4
MATRIX = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
RULES: dict[str, Any] = {
    "sgd": SGD(learning_rate=0.1),
    "adagrad": Adagrad(learning_rate=0.1),
    "adagrad_momentum": AdagradMomentum(learning_rate=0.05, momentum=0.9, weight_decay_factor=0.01),
    "adam": Adam(learning_rate=0.01, clipvalue=0.5),
    "ftrl": FTRL(learning_rate=0.1, l1_regularization_strength=0.01),
}
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
}
FROZEN: dict[str, Callable[[], Any]] = {
    "range": lambda: range(3),
    "list": lambda: [2, 0, 1],
    "array": lambda: np.array([0, 1, 2]),
    "mask": lambda: np.arange(ROWS) < 3,
    "tensor": lambda: tf.constant([0, 1, 2]),
    "placeholder": lambda: v1.placeholder(tf.int64, [None]),
    "empty list": list,
}


def check_rows(case: str, resource: bool) -> None:
    """Three steps, against the formulas, and against TensorFlow's optimizer where it has the rule."""
    rule = RULES[case]
    ours = table("ours", resource)
    ids = v1.placeholder(tf.int64, [None])
    slots = rows.slots(rule, ours)
    found = rows.gradient(lambda looked_up: tf.reduce_sum(looked_up**2), ours, ids)
    steps = [rows.update(rule, ours, slots, found)]
    theirs = table("theirs", resource)
    if case in OPTIMIZERS:
        steps.append(OPTIMIZERS[case]().minimize(tf.reduce_sum(tf.gather(theirs, ids) ** 2), var_list=[theirs]))
    course: exact_rules.Values = {None: MATRIX.astype(np.float64)}
    course |= {name: np.full((ROWS, DIM), value) for name, value in exact_rules.slots_of(rule).items()}
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for step in range(3):
            numbers = np.random.default_rng(step).integers(0, ROWS, 6)
            session.run(steps, {ids: numbers})
            count = np.bincount(numbers, minlength=ROWS)
            after = exact_rules.applied(rule, course, 2 * count[:, None] * course[None], rule.learning_rate)
            course = {name: np.where(count[:, None] > 0, after[name], before) for name, before in course.items()}
        np.testing.assert_allclose(session.run(ours), course[None], rtol=1e-5, atol=1e-6)
        for name, slot in slots.items():
            np.testing.assert_allclose(session.run(slot), course[name], rtol=1e-5, atol=1e-6)
        if case in OPTIMIZERS:
            np.testing.assert_allclose(session.run(ours), session.run(theirs), rtol=2e-6, atol=2e-6)


def check_frozen(case: str, resource: bool) -> None:
    """Frozen rows keep every bit; the others move as if nothing were frozen, also by a tape's and `tf.gradients`'."""
    rule = RULES["adagrad"]
    ids = v1.placeholder(tf.int64, [None])
    frozen = FROZEN[case]()
    feed = {ids: [1, 5, 5, 2, 7]} | ({frozen: [0, 1, 2]} if case == "placeholder" else {})
    variables = [table(name, resource) for name in ("free", "tape", "gather", "slices")]
    free = rows.gradient(tf.reduce_sum, variables[0], ids)
    chosen = rows.gather(variables[2], ids)
    values = tf.gradients(tf.reduce_sum(chosen.lookup()), chosen.values)[0]
    slices = tf.gradients(tf.reduce_sum(tf.gather(variables[3], ids)), variables[3])[0]
    gradients = [
        free,
        rows.gradient(tf.reduce_sum, variables[1], ids, frozen=frozen),
        chosen.gradient(values, frozen=frozen),
        rows.of_slices(slices, frozen=frozen),
    ]
    steps = [
        rows.update(rule, variable, rows.slots(rule, variable), gradient)
        for variable, gradient in zip(variables, gradients, strict=True)
    ]
    kept = [] if case == "empty list" else [0, 1, 2]
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(steps, feed)
        moved, *others = session.run(variables)
        assert np.any(moved[[1, 2, 5, 7]] != MATRIX[[1, 2, 5, 7]], axis=1).all()
        expected = moved.copy()
        expected[kept] = MATRIX[kept]
        for other in others:
            np.testing.assert_array_equal(other.view(np.uint32), expected.view(np.uint32))


def check_fill(case: str, resource: bool) -> None:
    local = [v1.GraphKeys.LOCAL_VARIABLES] if case == "scaffold, local" else None
    initializer: Any = v1.zeros_initializer()
    if case == "constant":
        initializer = initialization.constant.initial_value(MATRIX)
    filled = v1.get_variable(
        "filled", MATRIX.shape, initializer=initializer, use_resource=resource, collections=local, trainable=not local
    )
    if case.startswith("scaffold"):
        v1.train.get_or_create_global_step()
        scaffold = initialization.scaffold({filled: MATRIX})
        with v1.train.MonitoredTrainingSession(scaffold=scaffold) as session:
            np.testing.assert_array_equal(session.run(filled), MATRIX)
        return
    assigned = initialization.AssignInSession({filled: MATRIX}, chunk_bytes=64)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        match case:
            case "assign":
                assigned.fill(session)
            case "placeholder_feed":
                initialization.placeholder_feed.fill(session, {filled: MATRIX})
            case "variable_load":
                initialization.variable_load.fill(session, {filled: MATRIX})
        np.testing.assert_array_equal(session.run(filled), MATRIX)


def check_checkpoint(case: str, resource: bool) -> None:
    """Saved here and restored by TensorFlow's saver, and the other way round; read, converted, and restored again."""
    objects, train = trained(resource)
    what = list(v1.global_variables()) if case == "name" else objects
    folder = Path(f"{case}-{resource}")
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)
        wanted = {each.op.name: session.run(each) for each in v1.global_variables()}
        path = checkpoints.save(folder / "ours", what, kind=case)
        theirs = v1.train.Saver().save(session, str(folder / "theirs"))
        session.run(v1.global_variables_initializer())
        if case == "name":
            v1.train.Saver().restore(session, str(path))
        else:
            tf.train.Checkpoint(**objects).read(str(path)).assert_consumed().run_restore_ops(session)
        assert_values(session, wanted)
        converted = checkpoints.convert(path, folder / "converted", kind="object" if case == "name" else "name").prefix
        for source in (path, theirs, *([converted] if case == "object" else [])):
            into = what if source is path else list(v1.global_variables())
            session.run(v1.global_variables_initializer())
            checkpoints.restore(source, into).run_restore_ops(session).assert_consumed()
            assert_values(session, wanted)
    key = "table" if case == "name" else "t"
    np.testing.assert_array_equal(checkpoints.read_rows(path, key, 2, 5), wanted["table"][2:5])
    assert {info.variable for info in checkpoints.keys(path).values()} - {None} == set(wanted)


def check_partitioned(case: str, resource: bool) -> None:
    """Three parts become four, from a saver's checkpoint of either format."""

    def parted(number: int, value: np.ndarray) -> Any:
        return v1.get_variable(
            "parted",
            value.shape,
            initializer=made.initializer(value),
            partitioner=v1.fixed_size_partitioner(number),
            use_resource=resource,
        )

    parted(3, MATRIX)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver()
        path = saver.save(session, f"parted-{case}-{resource}")
    with tf.Graph().as_default(), v1.Session() as session:
        variable = parted(4, MATRIX * 0)
        session.run(v1.global_variables_initializer())
        checkpoints.restore(path, v1.global_variables()).run_restore_ops(session).assert_consumed()
        np.testing.assert_array_equal(session.run(tf.convert_to_tensor(variable)), MATRIX)


def check_monitored(case: str, resource: bool) -> None:
    """A program that goes on from a checkpoint of ours, in a monitored session."""
    objects, train = trained(resource)
    what = list(v1.global_variables()) if case == "name" else objects
    path = f"monitored-{case}-{resource}"
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)
        wanted = {each.op.name: session.run(each) for each in v1.global_variables()}
        checkpoints.save(path, what, kind=case)
    with v1.train.MonitoredTrainingSession():
        for call in (checkpoints.save, checkpoints.restore):
            with pytest.raises(CheckpointError, match="in a finalized graph"):
                call(path, what)
    with tf.Graph().as_default():
        objects, _ = trained(not resource)
        account = checkpoints.restore(path, list(v1.global_variables()) if case == "name" else objects)
        account.assert_consumed()
        scaffold = v1.train.Scaffold(init_fn=lambda scaffold, session: account.initialize_or_restore(session))
        with v1.train.MonitoredTrainingSession(scaffold=scaffold) as session:
            assert_values(session, wanted)


def check_estimator(case: str, resource: bool) -> None:
    from embexp import estimator

    api = estimator.load()

    def model_fn(features: Any, labels: Any, mode: Any) -> Any:
        objects, train = trained(resource)
        return api.EstimatorSpec(
            mode,
            loss=tf.reduce_sum(objects["t"]),
            train_op=train,
            scaffold=initialization.scaffold({objects["t"]: MATRIX + 1}),
        )

    model = api.Estimator(model_fn, f"estimator-{resource}")
    model.train(lambda: tf.data.Dataset.from_tensors(({"x": [1]}, [1])).repeat(), steps=1)
    expected = MATRIX + 1
    np.testing.assert_array_equal(model.get_variable_value("table")[5:], expected[5:])
    assert np.any(model.get_variable_value("table")[:5] != expected[:5], axis=1).tolist() == [
        False,
        True,
        True,
        True,
        True,
    ]


def check_api(case: str, resource: bool) -> None:
    """Runs need TensorFlow 2, and say so in one sentence."""
    small = [
        "data.examples=500",
        "train.steps=2",
        "train.epochs=null",
        "output.plots=false",
        "output.tensorboard=false",
    ]
    spec = embexp.compose([*small, "output.cache=of-runs"])
    with pytest.raises(UsageError, match=r"embexp.run needs .* and after tf.compat.v1.disable_v2_behavior\(\); .*$"):
        embexp.run(spec, "run", quiet=True)
    assert not Path("run").exists()


def table(name: str, resource: bool) -> Any:
    return v1.get_variable(name, initializer=MATRIX, use_resource=resource)


def trained(resource: bool) -> tuple[dict[str, Any], Any]:
    """A program's objects, and the operation of its training step."""
    embeddings = table("table", resource)
    kernel = v1.get_variable("kernel", initializer=np.ones((DIM, 1), np.float32), use_resource=resource)
    step = v1.train.get_or_create_global_step()
    optimizer = v1.train.AdamOptimizer(0.1)
    loss = tf.reduce_sum(tf.matmul(tf.nn.embedding_lookup(embeddings, [1, 2, 3, 4, 1]), kernel) ** 2)
    return {"t": embeddings, "kernel": kernel, "step": step, "optimizer": optimizer}, optimizer.minimize(loss, step)


def assert_values(session: Any, wanted: dict[str, np.ndarray]) -> None:
    found = {each.op.name: session.run(each) for each in v1.global_variables()}
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, name)


def main(cases: list[tuple[str, str]]) -> None:
    v1.disable_v2_behavior()
    found = {}
    for name, case in cases:
        errors = []
        for resource in (True, False):
            try:
                with tf.Graph().as_default():
                    globals()[f"check_{name}"](case, resource)
            except Exception:  # reported by the test
                errors.append(f"{'resource' if resource else 'reference'} variables: {traceback.format_exc()}")
        found[f"{name} {case}"] = "\n".join(errors)
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
