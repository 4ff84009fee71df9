"""How the jobs of a sweep are run: several at once, within a time limit, again after a crash. They train nothing."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from embexp import compose
from embexp.cli import commands
from embexp.cli.commands import plan
from embexp.errors import CommandLineError, ConfigError, RunError
from embexp.records import inventory
from embexp.reports.record import Status
from embexp.specs.running import Launching
from embexp.sweeps import processes
from embexp.sweeps import sweep as sweeps
from embexp.sweeps.ledger import Ledger
from embexp.sweeps.progress import Shown
from embexp.sweeps.sweep import sweep
from embexp.system import locks, machine_faults

Command = Callable[[Path, int], Sequence[str]]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: Command, *overrides: str, fresh: bool = False) -> bool:
    return sweep(["hydra.sweep.dir=s", *overrides], command=command, fresh=fresh)


def rows(directory: str = "s") -> list[tuple[str, int]]:
    """State and attempts of each job."""
    with Ledger(Path(directory)) as ledger:
        return [(job.state.value, job.attempts) for job in ledger.jobs()]


def reasons() -> list[str]:
    with Ledger(Path("s")) as ledger:
        return [job.reason for job in ledger.jobs()]


def test_jobs_run_at_once(command: Command) -> None:
    assert run(command, "seed=1000,1001,1002", "hydra.launcher.jobs=2")
    assert rows() == [("completed", 1)] * 3


def test_threads_are_shared_recorded_and_kept(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.machine, "cores", lambda: 6)
    assert run(command, "seed=1,2", "hydra.launcher.jobs=2")
    assert not sweep(["seed=1,100", "hydra.sweep.dir=one"], command=command)
    assert run(command, "seed=1,2,3", "hydra.launcher.jobs=3", "strategy.inter_op_threads=5", fresh=True)
    threads = {}
    for directory in ("s", "one", "s_2"):
        with Ledger(Path(directory)) as ledger:
            strategies = [json.loads(job.spec)["strategy"] for job in ledger.jobs()]
        threads[directory] = {(each["intra_op_threads"], each["inter_op_threads"]) for each in strategies}
    assert threads == {"s": {(3, 3)}, "one": {(0, 0)}, "s_2": {(2, 5)}}
    assert run(command, "seed=1,2", "hydra.launcher.jobs=1")  # the same sweep, whatever its jobs share
    assert rows() == [("completed", 1)] * 2


def test_jobs_auto_is_one_for_each_core_or_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.machine, "cores", lambda: 6)
    cpu, gpus = compose(), compose(["strategy=gpu", "strategy.devices=2"])
    auto = Launching(jobs="auto")
    assert processes.jobs_at_once(auto, [cpu.strategy], ["0", "1"]) == 6
    assert processes.jobs_at_once(auto, [cpu.strategy, gpus.strategy], ["0", "1", "2", "3"]) == 2
    assert processes.jobs_at_once(Launching(jobs=5), [gpus.strategy], ["0"]) == 5
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-ab,-1")
    assert processes.visible_gpus() == ("3", "GPU-ab")


def test_each_job_sees_its_own_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    script = (
        "import json, os, pathlib, sys, time; d = pathlib.Path(sys.argv[1]) / sys.argv[2]\n"
        "began = time.time(); time.sleep(0.5)\n"
        "(d / 'summary.json').write_text(json.dumps({'status': 'completed', 'gpus': os.environ['CUDA_VISIBLE_DEVICES'],"
        "'began': began, 'ended': time.time()}))"
    )
    words = ["seed=1,2,3,4", "strategy=gpu", "hydra.launcher.jobs=4", "hydra.sweep.dir=s"]
    assert sweep(words, command=lambda place, number: (sys.executable, "-IS", "-c", script, str(place), str(number)))
    found = [json.loads((tmp_path / "s" / str(number) / "summary.json").read_text()) for number in range(4)]
    assert [each["gpus"] for each in found[:3]] == ["4", "5", "6"]
    for one in found:
        for other in found:
            if one is not other and one["gpus"] == other["gpus"]:
                assert one["ended"] < other["began"] or other["ended"] < one["began"]


def test_a_crash_is_tried_again_and_an_error_is_not(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run(command, "seed=104,101,102", "hydra.launcher.retries=2")
    assert rows() == [("completed", 2), ("failed", 1), ("failed", 3)]
    assert reasons()[2] == "ended by signal 9 (out of memory?)"
    out = capsys.readouterr().out
    crashed = "job 0 of 3 crashed: exit status 3; the last line of its log: seed 104 model dlrm"
    assert f"{crashed}; it continues (attempt 2 of 3)" in out


def test_a_time_limit_ends_a_job_and_no_other(command: Command) -> None:
    assert not run(command, "seed=1,103,2", "hydra.launcher.timeout_minutes=0.02", "hydra.launcher.retries=3")
    assert rows() == [("completed", 1), ("failed", 1), ("completed", 1)]
    assert reasons()[1] == "it took longer than hydra.launcher.timeout_minutes=0.02"


def test_identical_errors_end_the_sweep(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["seed=101,1,100", "model=mlp,dlrm", "hydra.launcher.stop_after=2"]
    assert not run(command, *words)
    assert [state for state, _ in rows()] == ["failed", "failed", *["planned"] * 4]
    assert reasons()[2] == "2 jobs failed with the same error (hydra.launcher.stop_after)"
    assert "no more jobs are started" in capsys.readouterr().out
    assert run(command, *words) is False  # which goes on, and stays away from what has failed
    assert [state for state, _ in rows()] == ["failed", "failed", "completed", "completed", "failed", "failed"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("hydra.launcher.jobs=0", "hydra.launcher.jobs = 0: it must be at least 1, or it must be auto"),
        ("hydra.launcher.jobs=many", "hydra.launcher.jobs = 'many'"),
        ("hydra.launcher.retries=-1", "hydra.launcher.retries = -1: it must be at least 0"),
        ("hydra.launcher.timeout_minutes=0", "hydra.launcher.timeout_minutes = 0: it must be greater than 0"),
        ("+hydra.launcher.retires=1", r"(?s)hydra.launcher has no key 'retires'.*did you mean retries"),
    ],
)
def test_wrong_settings_of_the_launcher(override: str, message: str, command: Command, elsewhere: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        run(command, "seed=1,2", override)
    assert list(elsewhere.iterdir()) == []


def test_a_second_start_runs_what_is_missing(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run(command, "seed=1,102,2")
    before = [os.stat(f"s/{number}/summary.json").st_mtime_ns for number in (0, 2)]
    assert not run(command, "seed=1,102,2")
    assert rows() == [("completed", 1), ("failed", 1), ("completed", 1)]
    assert not run(command, "seed=0,1,102,2")  # extended: job 3 is the new one
    assert rows() == [("completed", 1), ("failed", 1), ("completed", 1), ("completed", 1)]
    assert [os.stat(f"s/{number}/summary.json").st_mtime_ns for number in (0, 2)] == before
    assert not sweeps.resume(Path("s"), command=command)
    assert rows()[1] == ("failed", 2)
    out = capsys.readouterr().out
    assert "2 of 3 jobs are done, 1 failed (`embexp resume` tries them again)" in out
    assert sorted(Path("s").glob("[0-9]*")) == [Path("s") / str(number) for number in range(4)]


def test_another_sweep_is_refused_and_changes_nothing(command: Command) -> None:
    def content() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in Path("s").rglob("*") if path.is_file()}

    assert run(command, "seed=1,2")
    Path("s/.cancel").touch()
    with Ledger(Path("s")) as ledger:  # as if its process had been killed
        ledger.leave(1, Status.RUNNING)
    before = content()
    with pytest.raises(CommandLineError, match=r"1 of its 2 jobs are not in this one; the first is job 1 \(seed=2\)"):
        run(command, "seed=1,3")
    assert content() == before
    assert run(command, "seed=1,3", fresh=True)
    assert rows("s_2") == [("completed", 1)] * 2


@pytest.mark.parametrize(("lost", "resumed"), [("the folder", True), ("its summary", False)])
def test_a_job_whose_results_were_deleted_runs_again(
    lost: str, resumed: bool, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "seed=1,2,2")
    if lost == "the folder":
        shutil.rmtree("s/1")
    else:
        Path("s/1/summary.json").unlink()
    capsys.readouterr()
    assert sweeps.resume(Path("s"), command=command) if resumed else run(command, "seed=1,2,2")
    said = capsys.readouterr().out
    place = Path("s/1").absolute()
    words = f"its folder {place} is missing" if lost == "the folder" else f"summary.json is missing in {place}"
    assert f"job 1 runs again: {words}\n" in said
    assert "1 of 3 jobs is done" in said
    assert rows() == [("completed", 1), ("completed", 2), ("completed", 0)]
    assert Path("s/1/summary.json").is_file()


def test_plan_shows_what_a_folder_leaves_to_run(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run(command, "seed=1,2,100")
    words = ["-m", "hydra.sweep.dir=s", "seed=1,2,100,4"]
    shutil.rmtree("s/1")
    before = Path("s/sweep.sqlite").read_bytes()
    capsys.readouterr()
    assert plan.main(words) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2:7] == [
        "0 1 completed before: not run again",
        "1 2",
        "2 100 failed before: `embexp resume` tries it again",
        "3 4",
        "2 of 4 jobs would run; the first:",
    ]
    assert Path("s/sweep.sqlite").read_bytes() == before
    with pytest.raises(CommandLineError, match=r"1 of its 3 jobs are not in this one; the first is job 2 \(seed=100\)"):
        plan.main(["-m", "hydra.sweep.dir=s", "seed=1,2"])


def test_a_damaged_summary_is_no_result(command: Command) -> None:
    assert run(command, "seed=1")
    Path("s/0/summary.json").write_text("{")
    assert run(command, "seed=1")
    assert rows() == [("completed", 2)]


def test_planned_jobs_stay_as_planned(command: Command, elsewhere: Path) -> None:
    """What is missing is finished from the ledger, whatever the files of the config say by then."""
    (elsewhere / "conf" / "optimizer").mkdir(parents=True)
    choice = elsewhere / "conf" / "optimizer" / "mine.yaml"
    choice.write_text("kind: sgd\nlearning_rate: 0.5\n")
    words = ["optimizer=mine", "seed=102,103", "hydra.sweep.dir=s", "hydra.launcher.timeout_minutes=0.02"]
    assert not sweep(words, config_dir="conf", command=command)
    choice.write_text("kind: nonsense\n")
    os.chdir("/")
    seen: list[float] = []

    def spy(place: Path, number: int) -> Sequence[str]:
        with Ledger(place) as ledger:
            seen.append(json.loads(ledger.job(number).spec)["optimizer"]["learning_rate"])
        return command(place, number)

    assert not sweeps.resume(elsewhere / "s", ["hydra.launcher.timeout_minutes=0.02"], command=spy)
    assert seen == [0.5, 0.5]


def test_a_sweep_is_resumed_with_other_settings_of_the_launcher_alone(command: Command) -> None:
    assert run(command, "seed=1")
    with pytest.raises(ConfigError, match=r"(?s)train.steps = 3: a sweep is resumed as it was planned.*hydra.launcher"):
        sweeps.resume(Path("s"), ["train.steps=3"], command=command)
    with pytest.raises(ConfigError, match=r"hydra.launcher.job = 3: hydra.launcher has no key 'job'"):
        sweeps.resume(Path("s"), ["hydra.launcher.job=3"], command=command)
    with pytest.raises(RunError, match="is not the directory of a sweep"):
        sweeps.resume(Path("nowhere"), command=command)


def test_two_launchers_never_work_in_one_directory(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embexp.sweeps.sweep.PATIENCE", 0.2)
    other = threading.Thread(target=lambda: run(command, "seed=105"))
    other.start()
    try:
        while not Path("s/0/ready").exists():
            time.sleep(0.02)
        with pytest.raises(RunError, match=rf"is in use: process {os.getpid()} on "):
            run(command, "seed=105")
    finally:
        kill_jobs()
        other.join()
    assert rows() == [("failed", 1)]


def kill_jobs() -> None:
    import psutil

    for child in psutil.Process().children(recursive=True):
        child.kill()


def test_a_job_that_another_process_runs_is_waited_for(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[int] = []

    def spy(place: Path, number: int) -> Sequence[str]:
        started.append(number)
        return command(place, number)

    monkeypatch.setattr(Shown, "ended", lambda self, outcome: ended.append(outcome.number))
    ended: list[int] = []
    Path("s/0").mkdir(parents=True)
    Path("s/1").mkdir()
    Ledger(Path("s"), create=True).__exit__()
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        first.enter_context(locks.of_folder(Path("s/0"), "job 0").exclusive())
        second.enter_context(locks.of_folder(Path("s/1"), "job 1").exclusive())

        def other() -> None:
            while 2 not in ended:
                time.sleep(0.02)
            Path("s/0/summary.json").write_text(json.dumps({"status": "completed", "metrics": {}}))
            inventory.seal(Path("s/0"))
            first.close()
            second.close()  # without a result: it is run here

        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        assert run(spy, "seed=1,2,3", "hydra.launcher.jobs=3")
        thread.join()
    assert (started, rows()) == ([2, 1], [("completed", 0), ("completed", 1), ("completed", 1)])
    assert "job 1 is running in another process: waiting for it" in capsys.readouterr().out


def test_a_job_whose_folder_is_taken_while_it_starts_is_waited_for(command: Command) -> None:
    """Its process says so by its exit status, and it is neither failed nor tried again meanwhile."""
    script = (
        "import json, pathlib, sys; d = pathlib.Path(sys.argv[1]) / sys.argv[2]\n"
        "if not (d / 'once').exists(): (d / 'once').touch(); sys.exit(75)\n"
        "(d / 'summary.json').write_text(json.dumps({'status': 'completed'}))"
    )
    assert run(lambda place, number: (sys.executable, "-IS", "-c", script, str(place), str(number)), "seed=1")
    assert rows() == [("completed", 2)]


def test_a_sweep_is_cancelled(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    results: list[bool] = []
    other = threading.Thread(target=lambda: results.append(run(command, "seed=1,103,2,3")))
    other.start()
    while not Path("s/1/ready").exists():
        time.sleep(0.02)
    assert commands.main(["sweep", "cancel", "s"]) == 0
    other.join()
    assert (results, rows()) == ([False], [("completed", 1), ("cancelled", 1), ("planned", 0), ("planned", 0)])
    assert reasons() == ["", "", "the sweep was cancelled", "the sweep was cancelled"]
    assert json.loads(Path("s/1/summary.json").read_text())["status"] == "interrupted"  # it has saved what is trained
    out = capsys.readouterr().out
    assert "the sweep's process is stopping its jobs: 1 running" in out
    assert f"1 job cancelled; `embexp resume {Path('s').absolute()}` continues the sweep" in out
    assert "job 1 cancelled [seed=103]" in out
    assert not run(command, "seed=1,103,2,3", "hydra.launcher.timeout_minutes=0.02")
    assert rows() == [("completed", 1), ("failed", 2), ("completed", 1), ("completed", 1)]


def test_nothing_to_cancel(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, "seed=1")
    assert commands.main(["sweep", "cancel", "s"]) == 0
    assert "no job is running" in capsys.readouterr().out
    assert rows() == [("completed", 1)]
    assert not Path("s/.cancel").exists()
    assert commands.main(["sweep", "cancel", "nowhere"]) == 1
    assert "nowhere is not the directory of a sweep" in capsys.readouterr().err
    assert commands.main(["sweep", "cancel"]) == 2
    assert "which sweep? Give its directory" in capsys.readouterr().err


KILLED = """
import sys
from pathlib import Path
from embexp.sweeps.sweep import sweep
job = Path(sys.argv[1]).read_text()
python = (sys.executable, "-IS", "-c", job)
sweep(["seed=1,105,2", "hydra.sweep.dir=s"], command=lambda place, number: (*python, str(place), str(number)))
"""


def test_what_a_killed_sweep_leaves_is_settled(command: Command, elsewhere: Path) -> None:
    """The job that it noted as running has ended, or is to go on; the others are where they were."""
    _, _, _, job, *_ = command(Path("s"), 0)
    (elsewhere / "job.py").write_text(job)
    process = subprocess.Popen([sys.executable, "-c", KILLED, "job.py"], stdout=subprocess.DEVNULL)
    while not Path("s/1/ready").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert rows() == [("completed", 1), ("running", 1), ("planned", 0)]
    with contextlib.closing(
        sqlite3.connect("s/sweep.sqlite", isolation_level=None)
    ) as ledger:  # as if it had been killed a moment before
        ledger.execute("UPDATE jobs SET state = 'running', run_id = NULL WHERE number = 0")
    inventory.seal(Path("s/0"))
    [left] = [each for each in _processes() if str(elsewhere) in each[1]]
    os.kill(left[0], signal.SIGKILL)  # a job of embexp ends with its sweep: see `test_server.py`
    words = ["hydra.launcher.timeout_minutes=0.02"]
    assert not sweeps.resume(Path("s"), words, command=command)
    assert rows() == [("completed", 1), ("failed", 2), ("completed", 1)]
    with Ledger(Path("s")) as ledger:
        assert ledger.job(1).reason.startswith("it took longer")


def _processes() -> list[tuple[int, str]]:
    import psutil

    return [(each.pid, f"{each.info['cwd']}") for each in psutil.process_iter(["cwd"]) if each.pid != os.getpid()]


def test_seeds_repeat_each_setting(command: Command) -> None:
    assert run(command, "model=mlp,dlrm", "seed=5", "seeds=3")
    with Ledger(Path("s")) as ledger:
        jobs = ledger.jobs()
    assert [(job.settings["model"], job.settings["seed"]) for job in jobs] == [
        (model, seed) for model in ("mlp", "dlrm") for seed in ("5", "6", "7")
    ]
    assert [json.loads(job.spec)["seed"] for job in jobs] == [5, 6, 7] * 2
    assert {json.loads(job.spec)["seeds"] for job in jobs} == {1}
    means = json.loads(Path("s/sweep.json").read_text())["means"]
    assert [(each["overrides"], each["jobs"]) for each in means] == [({"model": "mlp"}, 3), ({"model": "dlrm"}, 3)]


def test_seeds_are_for_sweeps(command: Command) -> None:
    with pytest.raises(
        ConfigError, match=r"(?s)seeds = 3: it repeats the settings of a sweep.*call embexp.sweep.*or set seed"
    ):
        compose(["seeds=3"])
    with pytest.raises(CommandLineError, match="one number of seeds"):
        run(command, "seeds=1,2")


def test_fresh_is_for_sweeps(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["run", "--fresh"]) == 2
    assert "--fresh is for sweeps; output.existing=number gives a single run a new directory" in capsys.readouterr().err


def test_a_plan_shows_what_is_run(capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    words = ["seed=0,1", "seeds=2", "model=mlp,dlrm", "sweep.exclude=[{model: mlp, seed: 2}]"]
    assert commands.main(["plan", "-m", *words]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2:10] == [
        "0 mlp 0",
        "1 mlp 1",
        "2 dlrm 0",
        "3 dlrm 1",
        "4 mlp 1 duplicate of job 1, not run again",
        "5 mlp 2 skipped: excluded by sweep.exclude: model=mlp seed=2",
        "6 dlrm 1 duplicate of job 3, not run again",
        "7 dlrm 2",
    ]
    assert lines[10] == "5 of 8 jobs would run; the first:"
    assert list(elsewhere.iterdir()) == []


def test_excluded_settings_are_left_out(command: Command, elsewhere: Path) -> None:
    (elsewhere / "conf" / "experiment").mkdir(parents=True)
    (elsewhere / "conf" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [clicks]\nsweep:\n  exclude:\n  - {model: dlrm, optimizer: adam}\n"
        "  - {train.batch_size: 64}\n"
    )
    words = ["experiment=mine", "model=mlp,dlrm", "optimizer=sgd,adam", "train.batch_size=32,64", "hydra.sweep.dir=s"]
    assert sweep(words, config_dir="conf", command=command)
    with Ledger(Path("s")) as ledger:
        jobs = ledger.jobs()
    assert [job.state for job in jobs] == [
        Status.COMPLETED, Status.SKIPPED, Status.COMPLETED, Status.SKIPPED,
        Status.COMPLETED, Status.SKIPPED, Status.SKIPPED, Status.SKIPPED,
    ]  # fmt: skip
    assert jobs[1].reason == "excluded by sweep.exclude: train.batch_size=64"
    assert jobs[6].reason == "excluded by sweep.exclude: model=dlrm optimizer=adam"


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        (
            "[{inti: constant}]",
            r"(?s)sweep.exclude.0.inti = 'constant': the config has no such group.*did you mean init",
        ),
        ("[{init: assign, freeze: tabel}]", r"(?s)sweep.exclude.0.freeze = 'tabel'.*did you mean table"),
        ("[{}]", "sweep.exclude"),
        ("{init: assign}", "sweep.exclude"),
        ("[{init: assign}]", "sweep.exclude excludes every job"),
    ],
)
def test_exclusions_that_would_exclude_nothing_are_faults(exclude: str, message: str, command: Command) -> None:
    with pytest.raises((ConfigError, CommandLineError), match=message):
        run(command, "seed=1,2", f"sweep.exclude={exclude}")


def test_a_failed_job_tells_its_own_faults(tmp_path: Path) -> None:
    from embexp.errors import DataError, Fault
    from embexp.sweeps import jobs

    faults = [Fault("train.steps", "0", "it must be at least 1", "remedy"), Fault("", "x", "no")]
    full = OSError(errno.ENOSPC, "No space left on device", "/runs/3/metrics.jsonl")
    for error, sentence, crash in [
        (ConfigError(faults), "train.steps = 0: it must be at least 1; config = x: no", False),
        (DataError("a.csv: line 3\n    is not a number"), "a.csv: line 3 is not a number", False),
        (ValueError("bad\nluck"), "ValueError: bad luck", False),
        (full, machine_faults.sentence(full), False),
        (MemoryError(), machine_faults.sentence(MemoryError()), True),
    ]:
        jobs.note_failure(tmp_path, error)
        assert jobs._why(tmp_path, 1) == sentence
        assert jobs.is_crash(tmp_path, 1) is crash
