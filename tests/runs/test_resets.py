"""Rows that start again with each epoch: which, when, in a resumed run, and before which evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embexp
from embexp.errors import ConfigError
from embexp.records.folder import RunFolder
from embexp.runs import run as single
from embexp.runs import verification
from embexp.runs.execute import execute, initial_rows
from embexp.runs.prepare import prepare
from embexp.training.loop import LoopSchedule, Replay, loop_schedule
from tests.thoroughness import thorough

ITEMS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of 20 of the 60 items."""
    made = tmp_path_factory.mktemp("resets")
    random = np.random.default_rng(0)
    np.save(made / "item.npy", random.normal(0, 0.3, (20, 16)).astype(np.float32))
    (made / "item.tokens.txt").write_text("".join(f"{token}\n" for token in random.permutation(ITEMS)[:20]))
    return made


def overrides(folder: Path, *more: str) -> list[str]:
    return [
        "experiment=clicks",
        "optimizer=adam",
        "data.examples=1500",
        "data.users=40",
        f"data.items={ITEMS}",
        "train.batch_size=100",
        "train.epochs=3",
        "tables.item.reset=epoch",
        "pretrained@tables.item.pretrained=file",
        f"tables.item.pretrained.path={folder / 'item.npy'}",
        f"output.cache={folder / 'cache'}",
        "output.plots=false",
        "output.tensorboard=false",
        "output.baselines=false",
        *more,
    ]


def lines(directory: Path, event: str) -> list[dict[str, Any]]:
    every = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [line for line in every if line["event"] == event]


def tables(directory: Path) -> Mapping[str, str]:
    summary = json.loads((directory / "summary.json").read_text())
    return {name: table["digest"] for name, table in summary["tables"].items()}


@pytest.mark.parametrize("freeze", ["none", "rows"])
def test_rows_and_their_slots_start_again_and_others_stay(folder: Path, freeze: str, tmp_path: Path) -> None:
    """Also where frozen rows are stored apart, so that rows have another place."""
    more = [] if freeze == "none" else ["freeze@tables.item.freeze=rows", "tables.item.freeze.rows=[[1,25]]"]
    more += [] if freeze == "none" else ["tables.item.storage=split"]
    spec = embexp.compose(overrides(folder, *more))
    prepared = prepare(spec)
    strategy = single.prepare_machine(spec.strategy)
    with execute(prepared, strategy, RunFolder(tmp_path)) as started:
        table, initial = started.execution.tables["item"], initial_rows(prepared.tables)["item"]
        before = initial.read(0, table.rows)
        started.execution.runtime.train(iter(started.batches), 12)
        trained = {slot: table.take(np.arange(table.rows), slot).copy() for slot in (None, "momenta", "velocities")}
        pretrained = prepared.tables.pretrained.pretrained_rows("item")
        frozen = prepared.tables.policies["item"].frozen
        again = ~pretrained if frozen is None else ~pretrained & ~frozen
        looked_up = table.looked_up()
        assert looked_up is not None
        moved = again & looked_up
        assert (trained[None][moved] != before[moved]).any(axis=1).all()
        assert moved.sum() > 10
        users = started.execution.tables["user"].read(0, 40).copy()
        assert started.execution.reset() == {"item": int(again.sum())}
        np.testing.assert_array_equal(started.execution.tables["user"].read(0, 40), users)
        now = {slot: table.take(np.arange(table.rows), slot) for slot in trained}
        np.testing.assert_array_equal(now[None][again], before[again])
        for slot, values in now.items():
            np.testing.assert_array_equal(values[~again], trained[slot][~again])
            if slot is not None:
                assert not values[again].any()
                assert trained[slot][moved].any()
        assert table.touched_rows() == 0


@pytest.mark.usefixtures("forked_jobs")
def test_a_run_resets_after_each_epoch_but_the_last(folder: Path, tmp_path: Path) -> None:
    result = single.run(embexp.compose(overrides(folder)), tmp_path)
    examples = round(1500 * 0.8)
    assert [line["step"] for line in lines(tmp_path, "reset")] == [examples // 100, 2 * examples // 100]
    rows = (
        result.summary["tables"]["item"]["vocabulary_size"]
        - result.summary["initialization"]["tables"]["item"]["rows_pretrained"]
    )
    assert {line["rows"]["item"] for line in lines(tmp_path, "reset")} == {rows}
    assert [line["step"] for line in lines(tmp_path, "evaluation") if line["split"] == "validation"][:3] == [12, 24, 36]
    assert result.summary["tables"]["item"]["reset"] == "epoch"
    assert verification.verify(tmp_path).identical


def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(folder: Path, tmp_path: Path) -> None:
    """Also after the last step of an epoch: its checkpoint was written before rows were reset."""
    spec = embexp.compose(overrides(folder, "checkpoint.every_steps=12", "train.early_stopping.patience=5"))
    single.run(spec, whole := made(tmp_path, "whole"))
    for stop in (12, 17) if thorough() else (12,):
        directory = made(tmp_path, f"stopped-{stop}")
        stopped = single.run(spec, directory, replay=Replay(save_at=[stop], stop_after=stop))
        assert stopped.summary["status"] == "interrupted"
        embexp.resume(directory)
        assert tables(directory) == tables(whole)


def made(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def test_early_stopping_keeps_rows_as_they_were_before_the_reset(folder: Path, tmp_path: Path) -> None:
    """With rows that learn nothing else than noise, the first epoch is the best."""
    wild = ("optimizer.learning_rate=0.3", "train.early_stopping.patience=1", "train.epochs=6")
    result = single.run(embexp.compose(overrides(folder, *wild)), made(tmp_path, "stopped"))
    best = result.summary["best_step"]
    assert result.summary["status"] == "stopped_early"
    assert best % 12 == 0
    short = ("train.epochs=null", f"train.steps={best}", "train.early_stopping.patience=null")
    single.run(embexp.compose(overrides(folder, *wild, *short)), made(tmp_path, "short"))
    assert tables(tmp_path / "stopped") == tables(tmp_path / "short")


def test_the_schedule_of_resets_is_that_of_a_count_by_hand() -> None:
    """With batches that are part of two epochs, or longer than one."""
    for examples, batch, steps in ((1_000, 100, 35), (1_005, 100, 40), (70, 64, 20), (50, 64, 9), (333, 10, 101)):
        schedule = loop_schedule(
            examples=examples,
            batch_size=batch,
            steps=steps,
            epochs=None,
            log_every=7,
            evaluate_every=4,
            resets=True,
        )
        seen, expected = 0, []
        for step in range(1, steps):
            seen += batch
            if seen >= examples:
                expected.append(step)
                seen %= examples
        assert [step for step in range(steps + 1) if schedule.resets_at(step)] == expected
        for done in range(steps):
            assert schedule.resets(done) == sum(step < done for step in expected)
            later = [step for step in range(done + 1, steps + 1) if schedule.evaluates_at(step)]
            assert schedule.evaluations(done) == len(later)
            stops = {step for step in range(steps + 1) if schedule.resets_at(step) or schedule.evaluates_at(step)}
            stops |= {step for step in range(steps + 1) if schedule.logs_at(step)}
            assert schedule.next_stop(done) == min(step for step in stops if step > done)
    assert replace(schedule, epoch=None) == LoopSchedule(101, 7, 4, 10)


WRONG = {
    "frozen rows": (["freeze@tables.item.freeze=table"], "frozen rows never change, and its freeze is table"),
    "rows that are frozen for a while": (
        ["freeze@tables.item.freeze=schedule", "tables.item.freeze.phases=[{until:0.5,rules:[{kind:table}]}]"],
        "its freeze is schedule",
    ),
    "a session": (["runtime=session"], "rows can be reset only in runtime function, but the runtime is session"),
    "a TPU": (["strategy=tpu_simulator"], "strategy tpu_simulator keeps rows where they can't be written"),
    "another time": (["tables.item.reset=step"], "'step'"),
}


@pytest.mark.parametrize(("more", "message"), WRONG.values(), ids=WRONG)
def test_what_can_not_start_again(folder: Path, more: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        embexp.compose(overrides(folder, *more))
    assert any(fault.path.startswith("tables.item.reset") for fault in caught.value.faults)


def test_replicas_reset_the_same_rows(folder: Path, tmp_path: Path) -> None:
    found = []
    for strategy in ("cpu", "mirrored"):
        single.run(embexp.compose(overrides(folder, f"strategy={strategy}")), made(tmp_path, strategy))
        assert [line["step"] for line in lines(tmp_path / strategy, "reset")] == [12, 24]
        found.append(embexp.load_run(tmp_path / strategy).table("item"))
    np.testing.assert_allclose(found[0], found[1], atol=2e-6 * np.abs(found[0]).max() * 36)
