"""Runs of several processes on loopback against runs of one, whose values are the oracle."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.checkpoints import store
from embexp.records.folder import RunFolder
from embexp.runs import verification
from embexp.strategies.cluster import rendezvous
from tests import planted_triples, preloaded
from tests.strategies.cluster.cluster_runs import (
    LIMIT,
    QUIET,
    RATE,
    STEPS,
    children,
    command,
    done,
    forked_worker,
    gone,
    run,
    running,
    short,
    summary,
    values,
)
from tests.thoroughness import chosen, left_out

FROZEN = ("freeze@tables.item.freeze=rows", "tables.item.freeze.rows=[[0,20],[40,45]]")
SAVED = ("checkpoint.save=training", "checkpoint.every_steps=40", "checkpoint.keep=null")


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("runs") / "cpu", *FROZEN)


@pytest.fixture(scope="module")
def two(cpu: Path) -> Path:
    return run(cpu.parent / "two", *FROZEN, *SAVED, "strategy=multi_worker")


def within_float32(found: Path, expected: Path) -> None:
    """Rows and dense weights within 2e-6 (|w0| + sum of |dw|); a step moves a number by the learning rate at most."""
    one, other = values(found), values(expected)
    assert sorted(one) == sorted(other)
    for key, value in other.items():
        if value.dtype.kind == "f" and key.startswith(("embedding/", "model/")) and ".S" not in key:
            moved = STEPS * RATE
            assert (np.abs(one[key] - value) <= 2e-6 * (np.abs(value) + 2 * moved)).all(), key


def resumed_from_step_80(directory: Path) -> None:
    """Resumes a run that has ended, as if it had been killed after the save of step 80."""
    for left in ("summary.json", "inventory.json"):
        (directory / left).unlink()
    for file in (directory / "checkpoints" / "final").iterdir():
        file.unlink()
    (directory / "checkpoints" / "final").rmdir()
    assert "resuming from step 80 of 100" in done(command("resume", str(directory)))


def test_two_workers_learn_what_one_process_learns(cpu: Path, two: Path) -> None:
    within_float32(two, cpu)
    found, expected = summary(two), summary(cpu)
    assert found["tables"]["item"]["storage"] == "sharded"
    for split, metrics in expected["metrics"].items():
        assert found["metrics"][split] == pytest.approx(metrics, rel=1e-4)
    assert found["freeze"] == expected["freeze"]
    assert found["cluster"]["workers"] == 2


def test_frozen_rows_have_their_bits(cpu: Path, two: Path) -> None:
    key = "embedding/item/.ATTRIBUTES/VARIABLE_VALUE"
    for rows in (slice(0, 20), slice(40, 45)):
        assert values(two)[key][rows].tobytes() == values(cpu)[key][rows].tobytes()
    assert summary(two)["freeze"]["item"]["frozen_rows_changed"] == 0


def test_one_worker_is_the_strategy_cpu(cpu: Path) -> None:
    alone = run(cpu.parent / "alone", *FROZEN, "strategy=multi_worker", "strategy.workers=1")
    for key, value in values(cpu).items():
        assert values(alone)[key].tobytes() == value.tobytes(), key


def test_a_mirrored_table_beside_a_sharded_one(cpu: Path, two: Path) -> None:
    """It has the bits of a sharded one, as gradients are added in the same order; touched rows are counted."""
    mixed = run(cpu.parent / "mixed", *FROZEN, *SAVED, "strategy=multi_worker", "tables.item.storage=mirrored")
    within_float32(mixed, cpu)
    found, expected = summary(mixed), summary(cpu)
    assert {name: each["storage"] for name, each in found["tables"].items()} == {"user": "sharded", "item": "mirrored"}
    assert found["freeze"] == expected["freeze"]
    assert found["cluster"]["differing_copies"] == {}
    for resumed in (False, True):
        if resumed:
            resumed_from_step_80(mixed)
        for name, value in values(two).items():
            assert values(mixed)[name].tobytes() == value.tobytes(), name


@pytest.mark.slow
def test_resumed_the_bits_are_the_same(two: Path) -> None:
    again = shutil.copytree(two, two.parent / "again")
    resumed_from_step_80(again)
    for key, value in values(two).items():
        assert values(again)[key].tobytes() == value.tobytes(), key
    assert summary(again)["tables"] == summary(two)["tables"]
    differences, _ = verification.compare(RunFolder(again), RunFolder(two))  # as `verify` does
    assert not differences


@pytest.mark.slow
def test_three_workers_and_rules_that_move_all_rows(cpu: Path) -> None:
    settings = {"lazy_adam": "false", "weight_decay_factor": "0.01", "learning_rate": f"{RATE}"}
    adam = (
        "optimizer@tables.item.optimizer=adam",
        *(f"tables.item.optimizer.{name}={value}" for name, value in settings.items()),
    )
    one = run(cpu.parent / "one", *adam)
    three = run(cpu.parent / "three", *adam, "strategy=multi_worker", "strategy.workers=3")
    within_float32(three, one)
    found = summary(three)["cluster"]
    assert found["enlarged"] > 0
    assert 0 <= found["padding"] < 1
    rooms = found["rooms"].values()
    assert max(rooms) <= 43 + 43 // 8 + 8, "a step has 43 examples of a worker, and a batch of an evaluation has more"


RULES = (f"optimizer.learning_rate={RATE}", "optimizer=adagrad", "optimizer.initial_accumulator_value=0.1")
ALL_ENTITIES = ("experiment=knowledge_graph", "data.negatives=null", "model.dropout=0", "train.batch_size=64")
OTHERS = {
    "batch": (
        *("experiment=recommendation", "data.timestamp=time", "train.batch_size=64", "loss.negatives=null"),
        "model=two_tower",
    ),
    "bpr": ("experiment=recommendation", "data.timestamp=time", "loss=bpr", "train.batch_size=64"),
    "softmax": ("experiment=recommendation", "data.timestamp=time", "loss=softmax", "train.batch_size=64"),
    "1-vs-all": ALL_ENTITIES,
    "KvsAll": (*ALL_ENTITIES, "data.positives=all", "model.loss=binary"),
    "relations": (
        *("experiment=knowledge_graph", "data.negatives=8", "model.dropout=0", "train.batch_size=64"),
        "model.relation_prediction=0.5",
    ),
}
MIRRORED = {
    "batch": ("strategy.workers=3",),
    "softmax": ("tables.item.storage=mirrored", "tables.item_bias.storage=mirrored"),
    "1-vs-all": ("tables.entity.storage=mirrored", "strategy.workers=3"),
    "KvsAll": ("tables.entity.storage=mirrored", "tables.relation.storage=mirrored"),
    "relations": ("tables.relation.storage=mirrored", "strategy.workers=3"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen(OTHERS, ["1-vs-all"]))
def test_items_and_entities_are_compared_alike(name: str, tmp_path: Path) -> None:
    """Negatives that are drawn for a batch are those of one process, and all candidates are ranked."""
    data = tmp_path / "data.csv"
    if "experiment=knowledge_graph" in OTHERS[name]:
        data = planted_triples.divided(tmp_path / "graph", planted_triples.circle(30), test=20, valid=20)
    else:
        random = np.random.default_rng(3)
        pairs = {(user, item) for user in range(60) for item in random.integers(0, 90, 12)}
        rows = [f"{user},{item},{random.integers(1000)}" for user, item in sorted(pairs)]
        data.write_text("\n".join(["user,item,time", *rows, ""]))
    settings = (*OTHERS[name], *RULES, f"data.path={data}", "train.early_stopping.patience=null", *QUIET)
    one, two = tmp_path / "one", tmp_path / "two"
    for directory, strategy in ((one, ()), (two, ("strategy=multi_worker", *MIRRORED.get(name, ())))):
        done(command("run", *settings, *strategy, f"hydra.run.dir={directory}"))
    within_float32(two, one)
    for split, metrics in summary(one)["metrics"].items():
        assert summary(two)["metrics"][split] == pytest.approx(metrics, rel=1e-3), split
    assert not any(summary(two)["cluster"].get("differing_copies", {}).values())
    ranked_alike_by_one_process(two)


def ranked_alike_by_one_process(directory: Path) -> None:
    """A run has the metrics that one process with whole tables computes from its checkpoint, to the bit."""
    finished = embexp.load_run(directory)
    for split in ("validation", "test"):
        assert finished.evaluate(split=split) == summary(directory)["metrics"][split]


def test_workers_rank_entities_as_one_process_does(tmp_path: Path) -> None:
    """Also of a training that has just begun, when answers stand anywhere, in batches of which the last is smaller."""
    graph = planted_triples.divided(tmp_path / "graph", planted_triples.circle(300), test=20, valid=20)
    settings = ("experiment=knowledge_graph", "data.negatives=8", f"data.path={graph}", "train.evaluation_batch_size=7")
    settings += ("model.relation_prediction=0.5", "tables.relation.storage=mirrored")
    length = ("train.steps=10", *QUIET[1:], "strategy=multi_worker", f"hydra.run.dir={tmp_path / 'run'}")
    done(command("run", *settings, *length))
    assert 1 < summary(tmp_path / "run")["metrics"]["test"]["mean_rank"] < 300
    ranked_alike_by_one_process(tmp_path / "run")


def slept(directory: Path, *, stopped: bool) -> tuple[str, float]:
    """What a run of three prints whose worker 2 is killed or stopped, and how long all take to end."""
    settings = ("train.log_every=20", "strategy=multi_worker", "strategy.workers=3", "strategy.silence_seconds=5")
    with running(directory, *settings) as process:
        others = children(process.pid)
        assert len(others) == 2
        began = time.monotonic()
        os.kill(others[1], signal.SIGSTOP if stopped else signal.SIGKILL)
        said, _ = process.communicate(timeout=60)
        seconds = time.monotonic() - began
        assert process.returncode == 1, said
        while not all(map(gone, others)):
            assert time.monotonic() - began < 30
            time.sleep(0.05)
    return said, seconds


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True])
def test_a_lost_worker_ends_all_and_is_named(stopped: bool, cpu: Path) -> None:
    said, seconds = slept(cpu.parent / f"lost {stopped}", stopped=stopped)
    assert seconds < 15
    assert "worker 2 at 127.0.0.1:" in said.splitlines()[-1]
    assert ("nothing was heard from it for 5 seconds" in said) == stopped


SLOW = """
import os, time
import keras, numpy as np, tensorflow as tf

class Slow(keras.layers.Layer):
    def call(self, x):
        with tf.control_dependencies([tf.numpy_function(wait, [], tf.float32)]):
            return tf.identity(x)

def wait():
    time.sleep(0.03 if os.environ.get("EMBEXP_WORKER") == "1" else 0)
    return np.float32(0)

def model(activations):
    return keras.Model(activations, keras.layers.Dense(1)(Slow()(keras.layers.Concatenate()([*activations.values()]))))
"""


def test_lines_say_whom_the_others_wait_for(cpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 1 takes 0.03 s longer for each step, in which worker 0 waits for it."""
    folder = cpu.parent / "modules"
    folder.mkdir()
    (folder / "slow_model.py").write_text(SLOW)
    monkeypatch.chdir(folder)
    settings = ("train.log_every=20", "model=keras", "model.function=slow_model:model")
    found = run(cpu.parent / "slow", *settings, "strategy=multi_worker")
    lines = [json.loads(line) for line in (found / "metrics.jsonl").read_text().splitlines()]
    seconds = np.array([line["timing"]["exchange_seconds"] for line in lines if line["event"] == "log"])
    np.testing.assert_allclose(seconds.sum(axis=0), summary(found)["cluster"]["exchange_seconds"], atol=1e-3)
    assert (seconds > 0).all()
    assert (seconds[1:, 0] - seconds[1:, 1] > 0.3).all()  # of 0.6


def by_a_scheduler(words: list[str]) -> None:
    """Starts a command twice, as two workers, and waits for both."""
    cluster = {"worker": [rendezvous.free_address(), rendezvous.free_address()]}
    tasks = [{"cluster": cluster, "task": {"type": "worker", "index": number}} for number in range(2)]
    environments = [os.environ | {"TF_CONFIG": json.dumps(task)} for task in tasks]
    started = [
        subprocess.Popen(words, env=each, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for each in environments
    ]
    said = [process.communicate(timeout=LIMIT)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], said


@left_out()
@pytest.mark.slow
def test_started_by_a_scheduler_and_trained_longer(two: Path) -> None:
    """By TF_CONFIG; by Slurm, see `test_under_slurm`."""
    directory = two.parent / "TF_CONFIG"
    words = short(directory, *FROZEN, *SAVED, "strategy=multi_worker")
    by_a_scheduler([word.replace(f"train.steps={STEPS}", "train.steps=60") for word in words])
    by_a_scheduler(command("resume", str(directory), f"train.steps={STEPS}"))
    found = summary(directory)["cluster"]
    assert 0 <= found["padding"] < 0.5
    rooms = found["rooms"].values()
    assert max(rooms) <= 64 + 64 // 8 + 8, "a step has 64 examples of a worker, and a batch of an evaluation has more"
    for key, value in values(two).items():
        assert values(directory)[key].tobytes() == value.tobytes(), key


@pytest.mark.slow
def test_a_run_begins_again_after_a_loss(two: Path, forked: Path) -> None:
    """Killed once, on loopback: the bits are those of a run that was never interrupted."""
    directory = two.parent / "restarted"
    words = short(directory, *FROZEN, *SAVED, "strategy=multi_worker", "strategy.restarts=1")
    words[:3] = [str(preloaded.with_jobs(forked) / "embexp")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while not (directory / "checkpoints" / "step_00000040").exists():
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        os.kill(forked_worker(directory / "worker-1.log"), signal.SIGKILL)
        said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, said
    assert "worker 1 at 127.0.0.1:" in said
    assert "restart 1 of 1" in said
    for key, value in values(two).items():
        assert values(directory)[key].tobytes() == value.tobytes(), key


KILLED = """
import os, signal
fsync = os.fsync
def killed(file):
    path = os.readlink(f"/proc/self/fd/{file}")
    if "step_00000080" in path and path.endswith("data-00002-of-00003"):
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(file)
os.fsync = killed
"""
"""What Python executes first: worker 1 is killed when the rows of its second checkpoint are written."""


@left_out()
@pytest.mark.slow
def test_a_worker_killed_in_a_save_leaves_the_checkpoint_before(two: Path) -> None:
    directory, first = two.parent / "killed", two.parent / "first"
    first.mkdir()
    (first / "sitecustomize.py").write_text(KILLED)
    words = short(directory, *FROZEN, *SAVED, "strategy=multi_worker")
    path = os.pathsep.join([str(first), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(words, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=LIMIT)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "worker 1 at 127.0.0.1:" in ended.stdout + ended.stderr
    checkpoints = directory / "checkpoints"
    assert [each.name for each in checkpoints.iterdir() if each.is_dir()] == ["step_00000040"]
    store.check_content(checkpoints / "step_00000040")
    assert "resuming from step 40 of 100" in done(command("resume", str(directory)))
    for key, value in values(two).items():
        assert values(directory)[key].tobytes() == value.tobytes(), key


@pytest.mark.slow
def test_without_worker_0_the_others_end(cpu: Path) -> None:
    settings = ("train.log_every=20", "strategy=multi_worker", "strategy.workers=3")
    with running(cpu.parent / "headless", *settings) as process:
        others = children(process.pid)
        process.kill()
        process.wait()
        began = time.monotonic()
        while not all(map(gone, others)):
            assert time.monotonic() - began < 15
            time.sleep(0.05)
