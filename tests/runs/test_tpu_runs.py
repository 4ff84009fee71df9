"""Whole runs on simulated TPUs: what they learn, what stays frozen, what a processor makes of them later."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.checkpoints import store
from embexp.cli import commands
from embexp.errors import RunError
from embexp.specs.optimizers import SGD, Adagrad
from embexp.specs.strategies import EmbeddingFeature
from tests.short_runs import DIM, ITEMS, PRETRAINED, Run, losses, runner
from tests.strategies.simulation.programs import rows_of
from tests.thoroughness import chosen

SIMULATED = ("strategy=tpu_simulator", "strategy.cores=4", "strategy.hosts=2")
SMALL = ("strategy=tpu_simulator", "strategy.cores=2", "strategy.hosts=2")
"""Half of them are traced in half the time."""
ON_SPARSE_CORES = ("strategy=tpu_simulator", "strategy.embedding_feature=V2")
CASES: dict[str, tuple[str, ...]] = {
    "plain": (),
    "loaded": ("init=variable_load",),
    "rows frozen": (*PRETRAINED, "tables.item.storage=split", "optimizer.lazy_adam=false"),
    "a frozen table": (*PRETRAINED[:1], "freeze@tables.item.freeze=table"),
    "a schedule": ("optimizer=adagrad", "schedule@optimizer.schedule=cosine", "optimizer.schedule.warmup_steps=5"),
    "decayed": ("optimizer=sgd", "optimizer.learning_rate=10", "optimizer.weight_decay_factor=0.01"),
}
IN_EVERY_RUN = ("plain", "loaded", "rows frozen", "a schedule")
"""The contracts have a table frozen whole."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return runner(tmp_path_factory)


@pytest.mark.slow
@pytest.mark.parametrize("case", chosen(CASES, IN_EVERY_RUN))
def test_simulated_tpus_learn_what_one_device_learns(run: Run, case: str) -> None:
    alone, simulated = run(*CASES[case]), run(*CASES[case], *(SIMULATED if case == "plain" else SMALL))
    np.testing.assert_allclose(losses(simulated), losses(alone), rtol=1e-4)
    for part in ("validation", "test"):
        assert simulated.summary["metrics"][part] == pytest.approx(alone.summary["metrics"][part], rel=1e-4)
    assert simulated.summary["freeze"] == alone.summary["freeze"]
    assert simulated.summary["freeze"]["item"]["frozen_rows_changed"] == 0
    frozen = {"rows frozen": 50, "a frozen table": ITEMS}.get(case, 0)
    assert simulated.summary["freeze"]["item"]["frozen_rows"] == frozen
    storage = simulated.summary["tables"]["item"]["storage"]
    assert storage == ("split" if case == "rows frozen" else "sharded")


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "plain",
        "loaded",
        "rows frozen on SparseCores",
        "a frozen table",
        "a schedule",
        "decayed",
        "decayed, rows frozen",
    ],
)
def test_sparse_cores_learn_what_one_device_learns(run: Run, case: str) -> None:
    words = CASES[case] if case in CASES else (*PRETRAINED, *CASES["decayed"] * ("decayed" in case))
    alone, simulated = run(*words), run(*words, *ON_SPARSE_CORES)
    np.testing.assert_allclose(losses(simulated), losses(alone), rtol=1e-4)
    for part in ("validation", "test"):
        assert simulated.summary["metrics"][part] == pytest.approx(alone.summary["metrics"][part], rel=1e-4)
    assert simulated.summary["freeze"]["item"]["frozen_rows_changed"] == 0
    assert simulated.summary["freeze"]["item"]["frozen_rows"] == alone.summary["freeze"]["item"]["frozen_rows"]
    again = embexp.load_run(simulated.directory)
    assert again.evaluate() == pytest.approx(simulated.summary["metrics"]["test"], rel=1e-5)
    for name in ("user", "item"):
        assert again._restored.tables[name].digest() == simulated.summary["tables"][name]["digest"]


@pytest.mark.slow
def test_plain_tensorflow_and_a_run_on_sparse_cores_restore_each_other(run: Run, tmp_path: Path) -> None:
    """`TPUEmbeddingV2` saves stacks, where a run saves tables; on other chips, these are others."""
    api, trained = tf.tpu.experimental.embedding, run(*ON_SPARSE_CORES)
    tables = {name: (table["vocabulary_size"], table["dim"]) for name, table in trained.summary["tables"].items()}
    with embexp.tpu_simulator(cores=1, embedding_feature="V2", sparse_cores=2) as strategy, strategy.scope():
        features = {
            name: api.FeatureConfig(api.TableConfig(*shape, optimizer=api.Adam(), name=name), output_shape=[8])
            for name, shape in tables.items()
        }
        embedding = api.TPUEmbeddingV2(features, None)
        checkpoint = tf.train.Checkpoint(embedding=embedding)
        checkpoint.read(str(trained.directory / "checkpoints" / "final" / "checkpoint")).expect_partial()
        embedding.build()
        for name in tables:
            rows = embexp.load_run(trained.directory).table(name)
            np.testing.assert_array_equal(rows_of(embedding, name), np.asarray(rows))
        saved = checkpoint.save(str(tmp_path / "plain"))
    assert len(embedding.variables) < len(tables)
    only = ",".join(f"embedding/{name}" for name in tables)  # frozen tables have no slots
    words = (f"restore.path={saved}", f"restore.only=[{only}]", "freeze=table", "train.steps=1")
    for where in ((), ON_SPARSE_CORES, ("runtime=session",)):
        again = run(*words, *where)
        for name in tables:
            assert again.summary["tables"][name]["digest"] == trained.summary["tables"][name]["digest"]


@pytest.mark.slow
def test_a_run_on_sparse_cores_gives_the_same_bits(run: Run) -> None:
    first, second = (run(*PRETRAINED, *ON_SPARSE_CORES, *more) for more in ((), ("name=again",)))
    assert losses(first) == losses(second)
    assert first.summary["tables"] == second.summary["tables"]


@pytest.mark.slow
def test_a_run_says_that_it_is_a_simulation(run: Run) -> None:
    summary = run(*SIMULATED).summary
    assert summary["strategy"] == "tpu_simulator"
    assert summary["simulated"] is True
    assert [words for words in summary["warnings"] if "is a simulation" in words]
    devices = json.loads((run(*SIMULATED).directory / "manifest.json").read_text())["devices"]
    assert devices == [f"simulated core {core} of host {host}" for host in (0, 1) for core in (0, 1)]
    assert run().summary["simulated"] is False


@pytest.mark.slow
@pytest.mark.parametrize("case", chosen(["plain", "rows frozen", "a frozen table"], IN_EVERY_RUN))
def test_a_processor_evaluates_what_a_tpu_trained(run: Run, case: str) -> None:
    result = run(*CASES[case], *(SIMULATED if case == "plain" else SMALL))
    again = embexp.load_run(result.directory)
    assert again.evaluate() == pytest.approx(result.summary["metrics"]["test"], rel=1e-5)
    for name in ("user", "item"):
        assert again._restored.tables[name].digest() == result.summary["tables"][name]["digest"]


@pytest.mark.slow
def test_tensorflow_serves_what_a_tpu_trained(run: Run) -> None:
    result = run(*CASES["rows frozen"], *SMALL)
    api = tf.tpu.experimental.embedding
    tables = {
        name: api.TableConfig(rows, DIM, optimizer=api.Adam(0.1), combiner="mean", name=name)
        for name, rows in (("item", ITEMS), ("user", 60))
    }
    features = {name: api.FeatureConfig(tables[table]) for name, table in (("history", "item"), ("user", "user"))}
    serving = api.TPUEmbeddingForServing(features, optimizer=None)
    serving.build()
    prefix = store.prefix_in(result.directory / "checkpoints" / "final")
    tf.train.Checkpoint(embedding=serving).read(prefix).assert_existing_objects_matched()
    rows = embexp.load_run(result.directory).table("item")
    history = tf.ragged.constant([[3, 3, 7], [], [79]], dtype=tf.int64)
    found = serving({"history": history, "user": tf.constant([1, 2, 3])}, None)
    expected = [rows[[3, 3, 7]].mean(0), np.zeros(DIM), rows[79]]
    np.testing.assert_allclose(found["history"], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_the_best_values_come_back(run: Run) -> None:
    words = ("train.evaluate_every=5", "train.early_stopping.patience=1", "train.early_stopping.min_delta=0.5")
    alone, simulated = run(*words), run(*words, *SMALL)
    assert alone.status == simulated.status == "stopped_early"
    assert simulated.summary["best_step"] == alone.summary["best_step"]
    assert simulated.summary["metrics"]["validation"] == pytest.approx(alone.summary["metrics"]["validation"], rel=1e-4)


@pytest.mark.slow
def test_the_same_run_gives_the_same_bits(run: Run) -> None:
    first, second = (run(*CASES["loaded"], *SMALL, *more) for more in ((), ("name=again",)))
    assert losses(first) == losses(second)
    assert first.summary["tables"] == second.summary["tables"]


def test_plan_shows_what_the_tpu_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "data=clicks_few",
        f"output.cache={tmp_path}",
        "strategy=tpu_simulator",
        "schedule@optimizer.schedule=cosine",
    ]
    assert commands.main(["plan", "--trace", *words]) == commands.DONE
    shown = capsys.readouterr().out
    for operation in ("EnqueueTPUEmbeddingArbitraryTensorBatch", "SendTPUEmbeddingGradients", "CrossReplicaSum"):
        assert operation in shown
    assert "RecvTPUEmbeddingActivations() -> (float32[512,16], float32[512,16], float32[512,16])" in shown
    assert "strategy tpu_simulator of 2 cores (a simulation)" in shown
    assert "TPUEmbeddingConfiguration:\n  table_descriptor {\n    name:" in shown
    assert "num_tensor_cores: 2" in shown
    assert "allocated, but not filled:" in shown


def test_plan_shows_what_sparse_cores_are_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["plan", "--trace", "data=clicks_few", f"output.cache={tmp_path}", *ON_SPARSE_CORES]) == 0
    shown = capsys.readouterr().out
    for operation in ("ConvertToSparseCoreCsrWrappedCooTensor", "XlaSparseDenseMatmulWithStaticBufferSize"):
        assert operation in shown
    assert "strategy tpu_simulator of 2 cores with 4 SparseCores each (a simulation)" in shown
    assert 'stacked_table_name: "item_user"' in shown
    assert "num_sparse_cores: 8" in shown


@pytest.mark.parametrize(
    ("feature", "wanted", "words"),
    [
        ("UNSUPPORTED", "auto", "this TPU reports UNSUPPORTED as its embedding hardware, so it can't keep tables"),
        ("V1", "V2", "strategy.embedding_feature = V2, but this TPU reports V1; set it to V1 or auto"),
        ("V2", "V1", "strategy.embedding_feature = V1, but this TPU reports V2; set it to V2 or auto"),
    ],
)
def test_a_tpu_of_other_hardware_is_refused(feature: str, wanted: str, words: str) -> None:
    from embexp.strategies.tpu import TPUStrategy

    def connect() -> Any:
        return embexp.tpu_simulator(cores=1, embedding_feature=feature)

    with (
        pytest.raises(RunError, match=words),
        TPUStrategy("strategy=tpu", connect, (), wanted=EmbeddingFeature(wanted)).active(),
    ):
        pass


def test_a_tpu_that_has_sparse_cores_refuses_other_optimizers() -> None:
    """Where the config does not ask for them, only the TPU says that it has them."""
    from embexp.strategies.tpu import check_optimizers

    def plans(optimizer: Any) -> Any:
        return {"item": SimpleNamespace(optimizer=optimizer), "user": SimpleNamespace(optimizer=None)}

    check_optimizers("strategy=tpu", plans(SGD(weight_decay_factor=0.1)))
    words = (
        "^strategy=tpu: this TPU has SparseCores, and table 'item' has optimizer.weight_decay_factor = 0.1, but"
        " SparseCores apply .*; choose optimizer=sgd, set it to 0, or set strategy=cpu$"
    )
    with pytest.raises(RunError, match=words):
        check_optimizers("strategy=tpu", plans(Adagrad(weight_decay_factor=0.1)))


@pytest.mark.parametrize("feature", ["V1", "V2"])
def test_auto_asks_the_tpu(feature: str) -> None:
    from embexp.strategies.tpu import TPUStrategy, reported

    strategy = TPUStrategy("strategy=tpu", lambda: embexp.tpu_simulator(cores=1, embedding_feature=feature), ())
    with strategy.active():
        assert reported(strategy.strategy) == feature


def test_plan_traces_other_strategies_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["plan", "--trace", "data=clicks_few", f"output.cache={tmp_path}"]) == commands.DONE
    shown = capsys.readouterr().out
    assert "traced: the training step is a graph of" in shown
    assert "TPU" not in shown
    assert commands.main(["plan", "--trace", "data=clicks_few", f"output.cache={tmp_path}", "init=scaffold"]) != 0
    assert "only runtime=function can be traced, but this run has runtime=session" in capsys.readouterr().err


def test_batches_that_real_cores_can_not_share() -> None:
    from embexp.strategies.tpu import TPUStrategy

    strategy = TPUStrategy("strategy=tpu", lambda: None, ["a", "b", "c"])  # type: ignore[arg-type, return-value]
    with pytest.raises(
        RunError, match=r"strategy=tpu: 3 cores share each batch .* = 128 is not divisible by 3; set it to 129"
    ):
        strategy.part_spec(tf.TensorSpec([128], tf.int64))
    assert strategy.part_spec(tf.TensorSpec([129, 2], tf.int64)).shape == [43, 2]
    assert strategy.part_spec(tf.TensorSpec([1, 50], tf.int32)).shape == [1, 50]
    with pytest.raises(RuntimeError, match="outside `active`"):
        _ = strategy.strategy


@pytest.mark.slow
def test_without_a_tpu_a_run_stops_before_it_reads_data(tmp_path: Path, forked: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TPU_", "KUBE_"))}
    words = ["strategy=tpu", f"output.cache={tmp_path / 'cache'}", f"hydra.run.dir={tmp_path / 'run'}"]
    result = subprocess.run(
        [forked / "embexp", "run", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=300,
    )
    assert result.returncode == 1
    assert "strategy=tpu: this machine has no TPU chip" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "cache").exists()
