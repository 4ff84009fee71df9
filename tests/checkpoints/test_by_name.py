"""A run's checkpoint under global names: what `tf.compat.v1.train.Saver` reads, and restored to the bit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.checkpoints import naming, restoring, store, streaming
from embexp.checkpoints.objects import graph_of, unique_names
from embexp.errors import CheckpointError, DataError
from embexp.records.folder import RunFolder
from embexp.runs import saving
from embexp.specs.optimizers import FTRL, Adagrad, AdagradMomentum, Adam
from embexp.system.tensor_bundle import writer
from embexp.tables import optimizers
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.table import EmbeddingTable
from tests import checkpoint_values
from tests.checkpoint_values import write_checkpoint
from tests.contracts import experiments
from tests.contracts.strategies import STRATEGIES
from tests.runtimes.test_session import experiment

NAMES = {
    "embedding/item": "embedding/item",
    "embedding/item.Saccumulators": "embedding/item/Adagrad",
    "optimizer/_trainable_variables/0": "hidden.0/kernel",
    "optimizer/_trainable_variables/1": "hidden.0/bias",
    "optimizer/_trainable_variables/2": "head.logit/kernel",
    "optimizer/_trainable_variables/3": "head.logit/bias",
    "optimizer/_iterations": "adam/iteration",
    "optimizer/_learning_rate": "adam/learning_rate",
    "optimizer/_variables/2": "adam/hidden.0_kernel_momentum",
    "optimizer/_variables/3": "adam/hidden.0_kernel_velocity",
    "optimizer/_variables/4": "adam/hidden.0_bias_momentum",
    "optimizer/_variables/5": "adam/hidden.0_bias_velocity",
    "optimizer/_variables/6": "adam/head.logit_kernel_momentum",
    "optimizer/_variables/7": "adam/head.logit_kernel_velocity",
    "optimizer/_variables/8": "adam/head.logit_bias_momentum",
    "optimizer/_variables/9": "adam/head.logit_bias_velocity",
    "random/0": "random/0",
    "step": "global_step",
}


def in_graph(seed: int) -> tuple[Any, Any, dict[str, str]]:
    """The experiment in a graph, with values of a seed: its session, its saver and its names."""
    with tf.Graph().as_default():
        _, _, everything = experiment()
        saver = streaming.saver_of(everything)
        names = naming.variable_names(everything)
        session = tf.compat.v1.Session()
        random = np.random.default_rng(seed)
        for variable in sorted(tf.compat.v1.global_variables(), key=lambda each: each.name):
            value = random.integers(0, 100, variable.shape.as_list()).astype(variable.dtype.as_numpy_dtype)
            session.run(variable.initializer, {variable.initializer.inputs[1]: value})
        session.graph.finalize()
        return session, saver, names


def eager(seed: int) -> Any:
    """The same, eagerly."""
    _, _, everything = experiment()
    random = np.random.default_rng(seed)
    for each in graph_of(everything).values:
        variable = each.object.covered[0] if hasattr(each.object, "covered") else each.object
        variable.assign(random.integers(0, 100, variable.shape))
    return everything


def save(session: Any, graph: Any, directory: Path) -> None:
    with session.graph.as_default():
        store.write_by(lambda prefix: graph.save(session, prefix), directory)


def named(directory: Path) -> dict[str, bytes]:
    reader = tf.train.load_checkpoint(str(directory / "checkpoint"))
    return {name: np.asarray(reader.get_tensor(name)).tobytes() for name in reader.get_variable_to_shape_map()}


def written(directory: Path, seed: int = 0) -> tuple[Any, Path]:
    everything = eager(seed)
    write_checkpoint(everything, directory)
    writer.to_names(directory, naming.variable_names(everything))
    return everything, directory


def test_the_names_are_those_of_the_documentation_in_a_graph_and_eagerly() -> None:
    for _ in range(2):  # Keras numbers optimizers by how many the process has made
        assert naming.variable_names(experiment()[2]) == NAMES
    assert in_graph(0)[2] == NAMES


@pytest.mark.parametrize(
    ("rule", "slots"),
    [
        (Adagrad(), ["Adagrad"]),
        (Adam(), ["Adam", "Adam_1"]),
        (FTRL(), ["Ftrl", "Ftrl_1"]),
        (AdagradMomentum(), ["AdagradMomentum", "AdagradMomentum_1"]),
    ],
)
def test_slots_have_the_names_of_tensorflow_1(rule: Any, slots: list[str]) -> None:
    table = EmbeddingTable("item", 4, 2, slots=optimizers.slots_of(rule))
    found = naming.variable_names(tf.train.Checkpoint(embedding=TableCheckpoint([table])))
    assert sorted(found.values()) == sorted(["embedding/item", *(f"embedding/item/{slot}" for slot in slots)])
    if isinstance(rule, AdagradMomentum):
        return
    v1 = tf.compat.v1.train
    made: dict[type, Any] = {Adagrad: v1.AdagradOptimizer, Adam: v1.AdamOptimizer, FTRL: v1.FtrlOptimizer}
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("embedding/item", [4, 2], use_resource=True)
        made[type(rule)](0.1).minimize(tf.reduce_sum(variable**2))
        of_tensorflow = {each.op.name for each in tf.compat.v1.global_variables()}
    assert set(found.values()) <= of_tensorflow


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_gives_the_same_names(strategy: str) -> None:
    with experiments.making(experiments.spec_of(STRATEGIES[strategy], Adam())) as made:
        names = naming.variable_names(made.execution.save.args[0])  # type: ignore[attr-defined]
    assert set(names.values()) == {
        *(f"embedding/{table}{slot}" for table in ("item", "word") for slot in ("", "/Adam", "/Adam_1")),
        *("head.logit/kernel", "head.logit/bias", "sgd/iteration", "sgd/learning_rate", "global_step"),
    } - (set() if "sgd/learning_rate" in names.values() else {"sgd/learning_rate"})


def test_names_that_clash_give_way_to_object_paths() -> None:
    given = [("a/kernel", "kernel"), ("b/kernel", "kernel"), ("c", "bias"), ("x.Sy", ""), ("x/y", "")]
    assert unique_names(given) == {
        "a/kernel": "a/kernel",
        "b/kernel": "b/kernel",
        "c": "bias",
        "x.Sy": "x.Sy",
        "x/y": "x/y",
    }
    found = unique_names([("a", "b"), ("b", ""), ("c", "")])
    assert found["a"] == "b"
    assert len(set(found.values())) == 3


def test_it_is_what_a_saver_reads(tmp_path: Path, forked: Path) -> None:
    """A program of TensorFlow 1 that knows only names and shapes, in another process."""
    everything, directory = written(tmp_path / "c")
    objects = graph_of(everything).values
    wanted = {naming.variable_names(everything)[each.path]: each.object for each in objects}
    assert set(named(directory)) == set(wanted)
    script = f"""
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_v2_behavior()
table = v1.get_variable("embedding/item", [11, 3])
with v1.variable_scope("hidden.0"):
    kernel = v1.get_variable("kernel", [6, 4])
v1.train.AdagradOptimizer(0.1).minimize(tf.reduce_sum(table ** 2), v1.train.get_or_create_global_step(), [table])
with v1.Session() as session:
    v1.train.Saver().restore(session, {str(directory / "checkpoint")!r})
    for each in v1.global_variables():
        print(each.op.name, float(session.run(tf.reduce_sum(tf.cast(each, tf.float64)))))
"""
    done = subprocess.run([forked / "python", "-c", script], capture_output=True, text=True, check=True)
    found = dict(line.split() for line in done.stdout.splitlines())
    assert set(found) == {"embedding/item", "embedding/item/Adagrad", "hidden.0/kernel", "global_step"}
    for name, value in found.items():
        each = wanted[name]
        assert float(value) == float(np.sum((each.covered[0] if hasattr(each, "covered") else each).numpy()))


@pytest.mark.parametrize("beside", [True, False], ids=["both kinds", "names alone"])
@pytest.mark.parametrize("saver", ["eager", "graph"])
@pytest.mark.parametrize("reader", ["eager", "graph"])
def test_restored_to_the_bit_from_each_runtime(tmp_path: Path, saver: str, reader: str, beside: bool) -> None:
    directory = tmp_path / "c"
    if saver == "eager":
        written(directory)
    else:
        session, graph, names = in_graph(0)
        save(session, graph, directory)
        writer.to_names(directory, names)
    if not beside:
        shutil.rmtree(directory / "objects")
    before = named(directory)
    if reader == "eager":
        other = eager(1)
        restoring.read_run(other, directory)
        names = naming.variable_names(other)
        write_checkpoint(other, tmp_path / "again")
    else:
        session, graph, names = in_graph(1)
        with session.graph.as_default():
            graph.restore(session, store.prefix_in(directory))
        save(session, graph, tmp_path / "again")
    writer.to_names(tmp_path / "again", names)
    assert named(tmp_path / "again") == before


def test_both_kinds_are_copied_and_moved(tmp_path: Path) -> None:
    everything, directory = written(tmp_path / "c")
    objects = checkpoint_values.every(directory)
    assert set(objects) == set(NAMES)
    moved = directory.rename(tmp_path / "elsewhere")
    assert (moved / "objects" / "checkpoint.index").is_file()
    assert {key: value.tobytes() for key, value in checkpoint_values.every(moved).items()} == {
        key: value.tobytes() for key, value in objects.items()
    }
    (tmp_path / "copy").mkdir()
    store.copy(store.prefix_in(moved), str(tmp_path / "copy" / "checkpoint"))
    shutil.rmtree(moved)
    restoring.read_run(everything, tmp_path / "copy")


def test_a_name_based_one_written_over_ours_is_what_counts(tmp_path: Path) -> None:
    everything, directory = written(tmp_path / "c")
    other, elsewhere = written(tmp_path / "d", seed=5)
    for file in elsewhere.glob("checkpoint.*"):
        (directory / file.name).write_bytes(file.read_bytes())
    restoring.read_run(everything, directory)
    for mine, wanted in zip(graph_of(everything).values, graph_of(other).values, strict=True):
        one, two = (
            each.object.covered[0] if hasattr(each.object, "covered") else each.object for each in (mine, wanted)
        )
        assert one.numpy().tobytes() == two.numpy().tobytes(), mine.path


def test_all_that_does_not_fit_is_listed(tmp_path: Path) -> None:
    everything, directory = written(tmp_path / "c")
    shutil.rmtree(directory / "objects")
    part = tf.train.Checkpoint(embedding=everything.embedding, more=tf.Variable(0.0), other=tf.Variable(0.0))
    words = (
        r"(?s)2 missing from the checkpoint:\n    more \(more\).*\n    other \(other\).*extra.*adam/hidden.*global_step"
    )
    with pytest.raises(CheckpointError, match=words):
        restoring.read_run(part, directory)


def test_every_key_needs_a_name(tmp_path: Path) -> None:
    everything = eager(0)
    write_checkpoint(everything, tmp_path / "c")
    with pytest.raises(DataError, match=r"found keys without a name: step/"):
        writer.to_names(tmp_path / "c", {key: name for key, name in NAMES.items() if key != "step"})
    restoring.read_run(everything, tmp_path / "c")


@pytest.mark.parametrize("kind", ["name", "object"])
def test_tensorflow_finds_the_latest_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Also while checkpoints are removed, and when the run goes on from an earlier one."""
    checkpoints = tmp_path / "run" / "checkpoints"
    removed: list[str] = []
    remove = store.remove

    def found() -> list[str]:
        state = tf.train.get_checkpoint_state(str(checkpoints))
        if state is None:
            return []
        assert state.all_model_checkpoint_paths[-1] == state.model_checkpoint_path
        assert all(Path(f"{each}.index").is_file() for each in state.all_model_checkpoint_paths)
        return [Path(each).parent.name for each in state.all_model_checkpoint_paths]

    def checked(directory: Path) -> None:
        assert directory.name not in found()
        removed.append(directory.name)
        remove(directory)

    monkeypatch.setattr(store, "remove", checked)
    overrides = [
        *("data.examples=2000", "train.steps=8", "train.epochs=null", f"checkpoint.kind={kind}"),
        *("checkpoint.every_steps=2", "output.plots=false", "output.baselines=false", "output.tensorboard=false"),
        f"output.cache={tmp_path / 'cache'}",
    ]
    spec = embexp.compose([*overrides, "checkpoint.keep=2"])
    embexp.run(spec, tmp_path / "run", quiet=True)
    assert removed == [f"step_{step:08}" for step in (2, 4, 6, 8)]
    assert found() == ["final"]
    reader = tf.train.load_checkpoint(str(checkpoints))
    key = "embedding/item" if kind == "name" else "embedding/item/.ATTRIBUTES/VARIABLE_VALUE"
    np.testing.assert_array_equal(reader.get_tensor(key), embexp.load_run(tmp_path / "run").table("item"))

    checkpoints = tmp_path / "all" / "checkpoints"
    spec = embexp.compose([*overrides, "checkpoint.keep=null"])
    embexp.run(spec, tmp_path / "all", quiet=True)
    steps = [f"step_{step:08}" for step in (2, 4, 6, 8)]
    assert found() == [*steps, "final"]
    saving.cut_back(RunFolder(tmp_path / "all"), store.read_state(checkpoints / steps[1]))
    assert found() == steps[:2]
    saving.cut_back(RunFolder(tmp_path / "all"), None)
    assert found() == []
    assert tf.train.latest_checkpoint(str(checkpoints)) is None
