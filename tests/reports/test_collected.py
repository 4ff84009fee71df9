"""Runs are found, and read whatever state their folder is in."""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from embexp.errors import NotARunError
from embexp.reports.collected import collect, varying
from embexp.reports.page import of_runs
from embexp.reports.record import Status
from embexp.reports.report import as_csv, as_json, report, run_columns
from embexp.specs.tasks import Direction
from embexp.system import locks
from tests.reports.made_runs import ledger, run, spec, sweep

AGAIN = "`embexp resume` of the sweep runs it again"


def test_a_sweep_by_its_ledger(tmp_path: Path) -> None:
    jobs = [
        {"state": "completed", "directory": "0", "overrides": ["init=assign"], "started": 5.0, "ended": 7.5},
        {"state": "failed", "directory": "1", "overrides": ["init=feed"], "reason": "ended by signal 9"},
        {"state": "skipped", "spec": spec(init__kind="map"), "overrides": ["init=map"], "reason": "it can't be"},
        {"state": "completed", "directory": "0", "overrides": ["init=assign"], "spec": spec(), "same_as": 0},
        {"state": "planned", "overrides": ["init=other"], "spec": spec(init__kind="other")},
        {"state": "running", "directory": "5", "overrides": ["init=late"]},
        {"state": "completed", "directory": "gone", "overrides": ["init=gone"]},
        {"state": "pruned", "directory": "7", "overrides": ["init=poor"], "reason": "worse than the median"},
        {"state": "failed", "spec": spec(), "same_as": 1, "reason": "ended by signal 9"},
    ]
    ledger(tmp_path, jobs)
    run(tmp_path / "0", spec(), validation={"rmse": 1.0, "mae": None}, test={"rmse": 1.1})
    run(tmp_path / "1", spec())
    run(tmp_path / "5", spec())
    run(tmp_path / "7", spec(), validation={"rmse": 3.0}, summary={"status": "interrupted"})
    found = collect([tmp_path])
    assert [(each.number, each.status, each.reason) for each in found] == [
        (0, Status.COMPLETED, ""),
        (1, Status.FAILED, "ended by signal 9"),
        (2, Status.SKIPPED, "it can't be"),
        (3, Status.COMPLETED, "duplicate of job 0"),
        (4, Status.PLANNED, ""),
        (5, Status.INTERRUPTED, "it was killed; `embexp resume` continues it"),
        (6, Status.FAILED, f"its folder {tmp_path / 'gone'} is missing; {AGAIN}"),
        (7, Status.PRUNED, "worse than the median"),
        (8, Status.FAILED, "duplicate of job 1: ended by signal 9"),
    ]
    assert [each.same_as for each in found[:5]] == [None, None, None, 0, None]
    assert (found[3].metrics, found[3].name) == (found[0].metrics, "3")
    first = found[0]
    assert (first.name, first.seconds, first.seed, first.metric, first.direction) == (
        "0",
        2.5,
        0,
        "rmse",
        Direction.LOWER,
    )
    assert first.validation == 1.0
    assert math.isnan(first.metrics["validation mae"])
    assert first.overrides == ("init=assign",)
    assert [each.value("init") for each in found[:5]] == ["assign", "feed", "map", "assign", "other"]


def test_a_job_that_ended_before_its_sweep_was_killed_has_its_results(tmp_path: Path) -> None:
    ledger(tmp_path, [{"state": "running", "directory": "0"}, {"state": "running", "directory": "1"}])
    run(tmp_path / "0", spec(), validation={"rmse": 1.0})
    run(tmp_path / "1", spec())
    with locks.of_folder(tmp_path / "1", "its process").exclusive():
        assert [each.status for each in collect([tmp_path])] == [Status.COMPLETED, Status.RUNNING]
    with locks.of_folder(tmp_path, "that of the sweep, which has just started it").exclusive():
        assert [each.status for each in collect([tmp_path])] == [Status.COMPLETED, Status.RUNNING]
    assert [each.status for each in collect([tmp_path])] == [Status.COMPLETED, Status.INTERRUPTED]


def test_a_ledger_whose_writer_was_killed_amid_a_change(tmp_path: Path) -> None:
    made, killed = tmp_path / "made", tmp_path / "killed"
    ledger(made, [{"state": "skipped", "reason": f"why {number}"} for number in range(400)])
    writer = sqlite3.connect(made / "sweep.sqlite", isolation_level=None)
    writer.execute("PRAGMA cache_size = 1")  # so that changed pages reach the file before the commit
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE jobs SET reason = 'half of a change'")
    shutil.copytree(made, killed)
    writer.close()
    assert (killed / "sweep.sqlite-journal").stat().st_size > 0
    assert [each.reason for each in collect([killed])] == [f"why {number}" for number in range(400)]


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00 and then nothing", b"\x00" * 4096])
def test_a_damaged_ledger_leaves_the_folders(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "sweep.sqlite").write_bytes(content)
    for number in (10, 9):
        run(tmp_path / str(number), spec(seed=number), validation={"rmse": 1.0})
    assert [(each.number, each.seed) for each in collect([tmp_path])] == [(9, 9), (10, 10)]


def test_a_sweep_without_a_ledger_by_its_results(tmp_path: Path) -> None:
    run(tmp_path / "moved" / "0", spec(), validation={"rmse": 1.0})
    rows = [
        {"number": 0, "overrides": {"seed": "0"}, "status": "completed", "directory": "/gone/0", "seconds": 1.5},
        {"number": 1, "overrides": {"seed": "0"}, "status": "skipped", "reason": "duplicate of job 0"},
        {"number": 2, "overrides": {"seed": "1"}, "status": "planned", "reason": "the sweep was interrupted"},
        "no job",
    ]
    (tmp_path / "moved" / "sweep.json").write_text(json.dumps({"jobs": rows}))
    found = collect([tmp_path])
    assert [(each.number, each.status, each.seconds) for each in found] == [
        (0, Status.COMPLETED, 1.5),
        (1, Status.SKIPPED, None),
        (2, Status.PLANNED, None),
    ]
    assert found[0].directory == tmp_path / "moved" / "0"


def test_everything_beneath_a_folder_once(tmp_path: Path) -> None:
    sweep(tmp_path / "day" / "a", optimizers={"sgd": [1.0, 2.0]})
    sweep(tmp_path / "day" / "b" / "deeper", optimizers={"sgd": [1.0]})
    run(tmp_path / "single", spec(), validation={"rmse": 1.0})
    run(tmp_path / "day" / ".hidden", spec())
    (tmp_path / "day" / "loop").symlink_to(tmp_path)
    found = collect([tmp_path, tmp_path / "day" / "a", tmp_path / "single"])
    assert [each.name for each in found] == ["day/a/0", "day/a/1", "day/b/deeper/0", "single"]
    assert [each.name for each in collect([tmp_path / "day" / "a"])] == ["0", "1"]
    assert [each.name for each in collect([tmp_path / "single"])] == ["single"]


def test_jobs_in_folders_of_several_levels(tmp_path: Path) -> None:
    ledger(
        tmp_path, [{"state": "completed", "directory": "lr=1/seed=0"}, {"state": "completed", "directory": "lr=1/1"}]
    )
    for name in ("lr=1/seed=0", "lr=1/1"):
        run(tmp_path / name, spec(), validation={"rmse": 1.0})
    assert [(each.name, each.number) for each in collect([tmp_path])] == [("seed=0", 0), ("1", 1)]


def test_a_study_is_one_record_and_by_itself_its_runs(tmp_path: Path) -> None:
    study = run(tmp_path / "s" / "0", spec(study__kind="new_entities", task="ranking"), test={"grown_mrr_new": 0.5})
    run(study / "base", spec(task="ranking"), validation={"mrr": 0.4})
    run(study / "grown", spec(task="ranking"), validation={"mrr": 0.6})
    assert [each.metrics for each in collect([tmp_path])] == [{"train loss": 1.0, "test grown_mrr_new": 0.5}]
    found = collect([study])
    assert [(each.name, each.validation, each.direction) for each in found] == [
        ("base", 0.4, Direction.HIGHER),
        ("grown", 0.6, Direction.HIGHER),
    ]


DAMAGED = {
    "spec cut short": ("spec.json", b'{"name": "a', Status.COMPLETED, "spec.json is damaged: it is not JSON"),
    "spec a list": ("spec.json", b"[]", Status.COMPLETED, "spec.json is damaged: it is not a JSON object"),
    "summary cut short": ("summary.json", b'{"status', Status.FAILED, "summary.json is damaged: it is not JSON"),
    "summary empty": ("summary.json", b"", Status.FAILED, "summary.json is damaged: it is not JSON"),
    "status unknown": (
        "summary.json",
        b'{"status": "x"}',
        Status.FAILED,
        "summary.json has the status 'x', which is unknown",
    ),
    "not text": ("spec.json", b"\xff\xfe\x00", Status.COMPLETED, "spec.json is damaged: it is not JSON"),
    "metrics a list": (
        "summary.json",
        b'{"status": "completed", "metrics": [1]}',
        Status.FAILED,
        "summary.json is damaged: metrics: input should be a valid dictionary",
    ),
    "split a number": (
        "summary.json",
        b'{"status": "completed", "metrics": {"test": 1}}',
        Status.FAILED,
        "summary.json is damaged: metrics.test: input should be a valid dictionary",
    ),
    "overrides": (".hydra/overrides.yaml", b"{[", Status.COMPLETED, ""),
}


@pytest.mark.parametrize(("name", "content", "status", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_folder(tmp_path: Path, name: str, content: bytes, status: Status, reason: str) -> None:
    run(tmp_path / "a", spec(), validation={"rmse": 1.0})
    run(tmp_path / "b", spec(), validation={"rmse": 1.0})
    (tmp_path / "a" / name).write_bytes(content)
    damaged, whole = collect([tmp_path])
    assert (damaged.status, damaged.reason) == (status, reason)
    assert whole.status is Status.COMPLETED


CAUSES = {
    "a fault": ("error: 1 fault in the config\n  a.b = 'x': it can't be.\n    choose c\n", "a.b = 'x': it can't be."),
    "faults": ("error: 3 faults in the config\n  a = 1: no.\n  b = 2: no.\n", "a = 1: no. (and 2 more)"),
    "an error": ("step 10\nerror: the loss is no longer finite\n    lower it\n", "the loss is no longer finite"),
    "a crash": ("Traceback (most recent call last):\n  File 'a'\nValueError: no\n", "ValueError: no"),
}


@pytest.mark.parametrize(("log", "reason"), CAUSES.values(), ids=CAUSES)
def test_why_a_run_failed(tmp_path: Path, log: str, reason: str) -> None:
    run(tmp_path / "a", spec())
    (tmp_path / "a" / "run.log").write_text(log)
    [found] = collect([tmp_path])
    assert (found.status, found.reason) == (Status.FAILED, reason)


def test_a_heading_in_the_ledger_is_replaced_by_the_cause_in_the_log(tmp_path: Path) -> None:
    ledger(tmp_path, [{"state": "failed", "directory": "0", "reason": "1 fault in the config"}])
    run(tmp_path / "0", spec())
    (tmp_path / "0" / "run.log").write_text("error: 1 fault in the config\n  model = 'x': it raised.\n")
    assert collect([tmp_path])[0].reason == "model = 'x': it raised."


def test_running_and_interrupted(tmp_path: Path) -> None:
    run(tmp_path / "a", spec())
    run(tmp_path / "b", spec())
    long_ago = time.time() - 3600
    os.utime(tmp_path / "b" / "spec.json", (long_ago, long_ago))
    running, interrupted = collect([tmp_path])
    assert (running.status, interrupted.status) == (Status.RUNNING, Status.INTERRUPTED)
    assert "embexp resume" in interrupted.reason


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match="there are no runs in"):
        collect([tmp_path])
    with pytest.raises(NotARunError, match=r"there is no directory .*nowhere"):
        collect([tmp_path, tmp_path / "nowhere"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list any folder")
def test_a_folder_that_may_not_be_listed(tmp_path: Path) -> None:
    run(tmp_path / "a", spec(), validation={"rmse": 1.0})
    (tmp_path / "closed").mkdir(mode=0)
    assert "can't be read: Permission denied" in [each.reason for each in collect([tmp_path])]


def test_the_objective_or_the_metric_of_early_stopping_chooses(tmp_path: Path) -> None:
    content = spec(task="binary", train__early_stopping={"metric": "auc"})
    run(tmp_path / "a", content, validation={"auc": 0.7, "log_loss": 0.5})
    run(tmp_path / "b", spec(task="binary"), validation={"auc": 0.7, "log_loss": 0.5})
    run(tmp_path / "c", spec(task="unheard of"), validation={"auc": 0.7})
    objective = {"objective": "validation.mrr"}
    run(tmp_path / "d", spec(task="ranking", train__early_stopping={"metric": "mean_rank"}, sweep=objective))
    first, second, third, fourth = collect([tmp_path])
    assert (first.metric, first.direction, first.validation) == ("auc", Direction.HIGHER, 0.7)
    assert (second.metric, second.direction, second.validation) == ("log_loss", Direction.LOWER, 0.5)
    assert (third.metric, third.direction, third.validation) == ("", None, None)
    assert (fourth.metric, fourth.direction) == ("mrr", Direction.HIGHER)


class TestVarying:
    """Which settings are columns."""

    def test_an_overridden_choice_stands_for_what_it_sets(self, tmp_path: Path) -> None:
        sweep(tmp_path, optimizers={"sgd": [1.0], "adam": [2.0]})
        found = collect([tmp_path])
        assert varying(found) == ["optimizer"]
        assert [each.value("optimizer") for each in found] == ["sgd", "adam"]

    def test_a_choice_without_settings_of_its_own_explains_what_follows_from_it(self, tmp_path: Path) -> None:
        for name, steps, rate in (("a", 1, 0.1), ("b", 2, 0.1), ("b", 2, 0.2)):
            content = spec(name=name, train__steps=steps, optimizer__learning_rate=rate)
            run(tmp_path / f"{name}{rate}", content, overrides=[f"experiment={name}"], validation={"rmse": 1.0})
        assert varying(collect([tmp_path])) == ["experiment", "optimizer.learning_rate"]

    def test_settings_of_files_differ_too(self, tmp_path: Path) -> None:
        run(tmp_path / "a", spec(), overrides=["optimizer=sgd"], validation={"rmse": 1.0})
        run(tmp_path / "b", spec(optimizer__kind="adam", train__steps=20), validation={"rmse": 1.0})
        found = collect([tmp_path])
        assert varying(found) == ["optimizer", "train.steps"]
        assert [each.value("optimizer") for each in found] == ["sgd", "adam"]

    def test_a_choice_has_the_name_of_its_file_whoever_made_it(self, tmp_path: Path) -> None:
        """An experiment chose dlrm_concat, of kind dlrm, for one run; the command line chose for two others."""
        models = {"dlrm": {"kind": "dlrm", "concat": False}, "dlrm_concat": {"kind": "dlrm", "concat": True}}
        for place, (chosen, overrides) in enumerate(
            [("dlrm_concat", []), ("dlrm", ["model=dlrm"]), ("dlrm_concat", ["model=dlrm_concat"])]
        ):
            path = run(
                tmp_path / str(place), spec(seed=place, model=models[chosen]), overrides=overrides, test={"auc": 1}
            )
            (path / ".hydra" / "hydra.yaml").write_text(f"hydra:\n  runtime:\n    choices:\n      model: {chosen}\n")
        found = collect([tmp_path])
        assert varying(found) == ["model", "seed"]
        assert [record.value("model") for record in found] == ["dlrm_concat", "dlrm", "dlrm_concat"]
        experiments = [found[0], replace(found[1], overrides=())]
        assert varying(experiments) == ["seed", "model"]
        assert [record.value("model") for record in experiments] == ["dlrm_concat", "dlrm"]
        assert len(of_runs(found)["groups"]) == 2

    @pytest.mark.parametrize(
        "text", ["", "[1", "hydra: {runtime: {choices: 3}}", "hydra: {runtime: {choices: {1: 2}}}"]
    )
    def test_without_known_choices_the_kind_names_them(self, tmp_path: Path, text: str) -> None:
        for name in ("sgd", "adam"):
            path = run(tmp_path / name, spec(optimizer__kind=name), test={"rmse": 1.0})
            (path / ".hydra" / "hydra.yaml").write_text(text)
        found = collect([tmp_path])
        assert varying(found) == ["optimizer.kind"]
        assert [record.value("optimizer") for record in found] == ["adam", "sgd"]

    def test_where_files_go_is_no_setting_unless_overridden(self, tmp_path: Path) -> None:
        run(tmp_path / "a", spec(output__cache="x", checkpoint__save="end"), overrides=["checkpoint.save=end"])
        run(tmp_path / "b", spec(output__cache="y"))
        assert varying(collect([tmp_path])) == ["checkpoint.save"]

    def test_where_a_data_set_by_name_lies_is_no_setting(self, tmp_path: Path) -> None:
        for name in ("nations", "umls"):
            run(tmp_path / name, spec(data={"kind": "triples", "fetch": name, "path": f"/cache/{name}"}))
        assert varying(collect([tmp_path])) == ["data.fetch"]

    def test_what_another_version_did_not_write(self, tmp_path: Path) -> None:
        later = spec(restore={"path": None, "rename": {}, "only": []}, tracking={"kind": "none"}, seeds=5)
        run(tmp_path / "a", later, validation={"rmse": 1.0})
        run(tmp_path / "b", spec(train__steps=20), validation={"rmse": 1.0})
        assert varying(collect([tmp_path])) == ["train.steps"]

    def test_a_number_is_the_same_however_it_is_written(self, tmp_path: Path) -> None:
        ledger(
            tmp_path, [{"state": "planned", "overrides": ["train.steps=10"]}, {"state": "completed", "directory": "1"}]
        )
        run(tmp_path / "1", spec(), validation={"rmse": 1.0})
        assert "train.steps" not in varying(collect([tmp_path]))


def test_two_hundred_runs_in_a_moment_and_without_tensorflow(tmp_path: Path, root: Path) -> None:
    sweep(tmp_path, optimizers={f"o{number}": [1.0] * 5 for number in range(40)})
    script = (
        "import sys, time\n"
        "from embexp.reports.collected import collect, varying\n"
        "begin = time.perf_counter()\n"
        f"found = collect([{str(tmp_path)!r}])\n"
        "keys = varying(found)\n"
        "print(len(found), keys, time.perf_counter() - begin < 2)\n"
        "print([name for name in ('tensorflow', 'keras', 'hydra', 'scipy') if name in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert result.stdout.splitlines() == ["200 ['optimizer', 'seed'] True", "[]"]


class TestSeconds:
    """Those of a job, from the ledger, and those of its training, from metrics.jsonl."""

    LINES = ((10, 1.0), (20, 2.5))

    @staticmethod
    def trained(directory: Path, lines: Sequence[tuple[int, float]]) -> Path:
        text = "".join(
            json.dumps({"event": "log", "step": step, "loss": 0.5, "timing": {"seconds": seconds}}) + "\n"
            for step, seconds in lines
        )
        (directory / "metrics.jsonl").write_text(text + '{"event": "log", "st')
        return directory

    def test_both_have_their_own_column_and_key(self, tmp_path: Path) -> None:
        job = {"state": "completed", "directory": "0", "overrides": ["seed=0"], "started": 5.0, "ended": 12.5}
        ledger(tmp_path, [job])
        self.trained(run(tmp_path / "0", spec(), validation={"rmse": 1.0}), self.LINES)
        found = report(tmp_path, sort="seconds")
        assert [(row["seconds"], row["train_seconds"]) for row in found] == [(7.5, 2.5)]
        assert [(column.heading, column.cells) for column in run_columns(found)[-2:]] == [
            ("seconds", ("7.5",)),
            ("train_seconds", ("2.5",)),
        ]
        [of_page] = of_runs(found.records)["runs"]
        assert (of_page["seconds"], of_page["trainSeconds"]) == (7.5, 2.5)
        [of_file] = json.loads(as_json(found))["jobs"]
        assert (of_file["seconds"], of_file["train_seconds"]) == (7.5, 2.5)
        assert "train_seconds" in as_csv(found)

    def test_a_single_run_has_those_of_its_training_only(self, tmp_path: Path) -> None:
        self.trained(run(tmp_path / "a", spec(seed=1), validation={"rmse": 1.0}), [(10, 9.0)])
        self.trained(run(tmp_path / "b", spec(seed=2), validation={"rmse": 2.0}), self.LINES)
        found = report(tmp_path, sort="train_seconds")
        assert [(row["run"], row["seconds"], row["train_seconds"]) for row in found] == [
            ("b", None, 2.5),
            ("a", None, 9.0),
        ]
        assert [column.heading for column in run_columns(found)][-1] == "train_seconds"
        shorter = report(tmp_path, seconds=False)
        assert "train_seconds" not in [column.heading for column in run_columns(shorter)]

    def test_those_of_the_processes_of_a_resumed_run_are_added(self, tmp_path: Path) -> None:
        path = run(tmp_path / "a", spec(), validation={"rmse": 1.0}, summary={"resumed_at": [20, 40]})
        self.trained(path, [(10, 1.0), (20, 2.0), (30, 5.0), (40, 6.0), (50, 0.5), (50, 0.75)])
        [record] = collect([tmp_path])
        assert record.train_seconds == 2.0 + 6.0 + 0.75

    @pytest.mark.parametrize(
        "line", ['{"step": 1, "timing": {"seconds": "NaN"}}', "", '"step": , "timing": {"seconds": 1']
    )
    def test_a_damaged_file_has_none(self, tmp_path: Path, line: str) -> None:
        path = run(tmp_path / "a", spec(), validation={"rmse": 1.0})
        (path / "metrics.jsonl").write_text(line)
        assert collect([tmp_path])[0].train_seconds is None


@pytest.mark.parametrize(
    ("edited", "words"),
    [
        ({}, None),
        ({"run_id": "0" * 64}, f"run_id {'0' * 12}, and the run has {'a' * 12}"),
        ({"spec": spec(seed=7)}, "a spec with another seed"),
        ({"overrides": ["seed=7"]}, "the overrides seed=7, and the run has seed=0"),
    ],
)
def test_a_ledger_that_was_edited_is_named(edited: dict[str, object], words: str | None, tmp_path: Path) -> None:
    job = {"state": "completed", "directory": "0", "spec": spec(), "overrides": ["seed=0"], "run_id": "a" * 64}
    ledger(tmp_path, [job | edited])
    run(tmp_path / "0", spec(), overrides=["seed=0"], test={"rmse": 1.0}, summary={"run_id": "a" * 64})
    [found] = collect([tmp_path])
    assert found.changes == (None if words is None else f"changed: sweep.sqlite (it has {words})")
