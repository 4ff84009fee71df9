"""Sweeps with a job that trains nothing: which jobs, in which order, and what is left of them."""

from __future__ import annotations

import csv
import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from embexp.config import composition, hydra_job
from embexp.errors import CommandLineError, ConfigError
from embexp.reports.report import report
from embexp.sweeps import planning
from embexp.sweeps.ledger import Ledger
from embexp.sweeps.sweep import resume, sweep
from embexp.system import interruption

Command = Callable[[Path, int], Sequence[str]]
BAD_LUCK = "exit status 1; the last line of its log: ValueError: bad luck"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def jobs(directory: str = "s") -> list[dict]:
    return json.loads((Path(directory) / "sweep.json").read_text())["jobs"]


def test_every_combination_runs_in_a_process_of_its_own(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep(["seed=range(0,3)", "model=mlp,dlrm", "train.steps=5", "hydra.sweep.dir=s"], command=command)
    found = jobs()
    assert [(job["overrides"]["seed"], job["overrides"]["model"]) for job in found] == [
        ("0", "mlp"), ("0", "dlrm"), ("1", "mlp"), ("1", "dlrm"), ("2", "mlp"), ("2", "dlrm"),
    ]  # fmt: skip
    assert {job["status"] for job in found} == {"completed"}
    processes = {json.loads((Path("s") / str(n) / "summary.json").read_text())["pid"] for n in range(6)}
    assert len(processes) == 6
    assert os.getpid() not in processes
    assert (Path("s") / "3" / "run.log").read_text() == "seed 1 model dlrm\n"
    out = capsys.readouterr().out
    assert "job 3 of 6 started   seed=1 model=dlrm\n" in out
    assert "job 3 of 6 completed after " in out
    assert f"results in {Path('s').absolute()}" in out


def test_what_hydra_records_of_a_job(command: Command) -> None:
    assert sweep(["seed=4,5", "train.steps=5", "hydra.sweep.dir=s"], command=command)
    folder = Path("s/1/.hydra")
    assert yaml.safe_load((folder / "overrides.yaml").read_text()) == ["seed=5", "train.steps=5"]
    assert yaml.safe_load((folder / "config.yaml").read_text())["seed"] == 5
    hydra = yaml.safe_load((folder / "hydra.yaml").read_text())["hydra"]
    assert hydra["job"]["num"] == 1
    assert hydra["runtime"]["output_dir"] == str(Path("s/1").absolute())
    assert Path("s/multirun.yaml").is_file()


def test_a_failure_does_not_stop_the_others_and_is_explained(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not sweep(["seed=100,101,102,7", "hydra.sweep.dir=s"], command=command)
    found = jobs()
    assert [job["status"] for job in found] == ["failed", "failed", "failed", "completed"]
    assert found[0]["reason"] == BAD_LUCK
    assert found[1]["reason"] == "ratings.csv: line 5: what is this?"
    assert found[2]["reason"] == "ended by signal 9 (out of memory?)"
    assert "Traceback: and so on" in Path("s/0/run.log").read_text()
    out = capsys.readouterr().out
    assert f"job 0 failed [seed=100]: {found[0]['reason']}\n    {Path('s/0/run.log').absolute()}\n" in out


def test_doubles_run_once_and_show_the_result(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert not sweep(["seed=1,2,1,100,100", "hydra.sweep.dir=s"], command=command)
    assert [(job["status"], job["reason"]) for job in jobs()] == [
        ("completed", ""), ("completed", ""), ("completed", "duplicate of job 0"),
        ("failed", BAD_LUCK), ("failed", f"duplicate of job 3: {BAD_LUCK}"),
    ]  # fmt: skip
    assert jobs()[2]["same_as"] == 0
    assert not Path("s/2").exists()
    assert "job 2 of 5 duplicates job 0 and is not run again" in capsys.readouterr().out


def test_impossible_jobs_are_told_before_the_first_and_skipped(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["init=assign,scaffold", "runtime=function,session", "train.steps=5", "hydra.sweep.dir=s"]
    assert sweep(words, command=command)
    assert [job["status"] for job in jobs()] == ["completed", "completed", "skipped", "completed"]
    reason = "init=scaffold: it works only in runtime session or estimator, but the runtime is function"
    assert jobs()[2]["reason"] == reason
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"sweep in {Path('s').absolute()}"
    assert lines[1] == f"job 2 of 4 is skipped: {reason}"
    assert lines[2].startswith("job 0 of 4 started")
    assert lines[-2] == f"job 2 skipped [init=scaffold runtime=function]: {reason}"
    assert lines.count(lines[1]) == 1
    assert not Path("s/2").exists()


def test_a_sweep_without_a_possible_job_is_a_fault(command: Command, elsewhere: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep(["init=scaffold,constant", "runtime=function", "hydra.sweep.dir=s"], command=command)
    assert [(fault.path, fault.value) for fault in caught.value.faults] == [("init", "scaffold"), ("init", "constant")]
    job = "job 1 (init=constant runtime=function)"
    assert caught.value.faults[1].source == f"the command line (init=constant), in {job}"
    assert list(elsewhere.iterdir()) == []


def test_an_ordinary_fault_of_an_impossible_job_is_no_reason_to_skip_it(command: Command) -> None:
    with pytest.raises(ConfigError, match="2 faults") as caught:
        sweep(["init=scaffold,assign", "runtime=function", "tables.item.vocabulary_size=3"], command=command)
    assert {fault.path for fault in caught.value.faults} == {"init", "tables.item.vocabulary_size"}


def test_doubles_of_impossible_jobs_keep_their_reason(command: Command) -> None:
    assert sweep(["init=scaffold,scaffold,assign", "runtime=function", "hydra.sweep.dir=s"], command=command)
    assert [job["reason"][:13] for job in jobs()] == ["init=scaffold", "init=scaffold", ""]


def test_compared_values_are_columns(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    compare = "output.compare=[initialization.seconds,initialization.graph_def_bytes,metrics.train.loss,no.such]"
    assert sweep(["seed=1,2,100", compare, "hydra.sweep.dir=s", "model=mlp,dlrm"], command=command) is False
    assert jobs()[2]["compared"] == {
        "initialization.seconds": 0.25,
        "initialization.graph_def_bytes": 1502,
        "metrics.train.loss": 9,
        "no.such": None,
    }
    with Path("s/sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["initialization.graph_def_bytes"] == "1501"
    assert rows[4]["initialization.graph_def_bytes"] == ""  # which failed
    out = capsys.readouterr().out
    assert "output.compare: no summary.json of these runs has the key no.such" in out
    [line] = [each for each in out.splitlines() if "±" in each and "mlp" in each]
    assert "250 ms ± 0 s" in line
    assert "1.5 kB ± 1 B" in line


def test_results_as_csv(command: Command) -> None:
    sweep(["seed=3,100", "train.steps=5", "hydra.sweep.dir=s"], command=command)
    with Path("s/sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["seed"] for row in rows] == ["3", "100"]
    assert rows[0]["test rmse"] == "3.0"
    assert rows[0]["validation rmse"] == "4.0"
    assert rows[1]["test rmse"] == ""
    assert rows[1]["reason"] == BAD_LUCK
    assert "train.steps" not in rows[0]


def test_every_job_is_checked_before_the_first_starts(command: Command, elsewhere: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep(
            ["tables.item.dim=16,0", "model=mlp,dlrm", "seed=1,-1", "+train.foo=1", "hydra.sweep.dir=s"],
            command=command,
        )
    by_path = {fault.path: fault for fault in caught.value.faults}
    assert set(by_path) == {"tables.item.dim", "seed", "train.foo"}
    assert by_path["train.foo"].source == "the command line (+train.foo=1)"
    assert "in 4 of 8 jobs, the first is 1 (tables.item.dim=16 model=mlp seed=-1 " in by_path["seed"].source
    assert list(elsewhere.iterdir()) == []


def test_a_fault_of_one_job_names_it(command: Command) -> None:
    with pytest.raises(ConfigError, match=r"set in the command line \(seed=-1\), in job 1 \(seed=-1 train.steps=3\)"):
        sweep(["seed=1,-1", "train.steps=3"], command=command)


@pytest.mark.parametrize(
    ("override", "match"),
    [
        ("optimizer=sgd,adagat", "optimizer = 'adagat'"),
        ("trian.epochs=1,2", "trian.epochs = 1"),
        ("seed=1,", "quote the value"),
    ],
)
def test_typos_of_sweeps(override: str, match: str, command: Command, elsewhere: Path) -> None:
    with pytest.raises(ConfigError, match=match):
        sweep([override], command=command)
    assert list(elsewhere.iterdir()) == []


def test_sweeps_over_choices_of_a_table(command: Command) -> None:
    assert sweep(
        [
            "optimizer@tables.item.optimizer=sgd,adam",
            "tables.item.optimizer.learning_rate=0.1",
            "schedule@tables.item.optimizer.schedule=cosine",
            "hydra.sweep.dir=s",
        ],
        command=command,
    )
    assert [job["overrides"]["optimizer@tables.item.optimizer"] for job in jobs()] == ["sgd", "adam"]


def test_keys_that_the_files_do_not_mention_sweep_too(command: Command, elsewhere: Path) -> None:
    (elsewhere / "conf" / "optimizer").mkdir(parents=True)
    (elsewhere / "conf" / "optimizer" / "short.yaml").write_text("kind: sgd\n")
    words = ["optimizer=short", "optimizer.learning_rate=0.1,0.2", "hydra.sweep.dir=s"]
    assert sweep(words, config_dir="conf", command=command)
    assert [job["overrides"]["optimizer.learning_rate"] for job in jobs()] == ["0.1", "0.2"]


def test_a_sweep_that_gets_another_directory_says_so_first(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own").mkdir()
    Path("own/notes.txt").write_text("mine")
    ways = [("it\\'s here", True), ("it\\'s here", True), ("own", False)]
    said = []
    for directory, fresh in ways:
        assert sweep(["seed=1", f"hydra.sweep.dir='{directory}'"], fresh=fresh, command=command)
        said.append(capsys.readouterr().out.partition("job 0 of 1 started")[0].replace("\n", ""))
    assert len(jobs("it's here")) == len(jobs("it's here_2")) == len(jobs("own_2")) == 1
    here = Path.cwd()
    assert said[0] == f"sweep in {here}/it's here"
    quoted = shlex.quote(f"{here}/it's here")
    assert said[1].startswith(f"sweep in {here}/it's here_2: {here}/it's here already holds a sweep; `embexp resume")
    assert f"`embexp resume {quoted}` continues it" in said[1]
    assert said[2] == f"sweep in {here}/own_2: {here}/own already exists and holds something else"


def test_a_sweep_whose_output_nobody_reads_any_more_goes_on(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as closed, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        assert sweep(["seed=1,2", "hydra.sweep.dir=s"], command=command)
    assert len(jobs("s")) == 2


def test_subdirectories_may_be_named_after_overrides(command: Command) -> None:
    assert sweep(["seed=1,2", "hydra.sweep.dir=s", "hydra.sweep.subdir=${hydra.job.override_dirname}"], command=command)
    assert Path("s/seed=2/run.log").is_file()


@pytest.mark.parametrize(
    ("directory", "choices", "above", "below", "folder"),
    [
        ("out/${seed}", ["seed=1,2"], "out", "${seed}", "2"),
        ("out/${hydra:runtime.choices.model}", ["model=mlp,dlrm"], "out", "${hydra:runtime.choices.model}", "dlrm"),
        ("${name}/x_${seed}", ["name=a,b"], "DIR", "${name}/x_${seed}", "b/x_0"),
        ("out/${now:%Y}/${seed}/x", ["seeds=2"], "out/${now:%Y}", "${seed}/x", "1/x"),
    ],
)
def test_a_folder_that_differs_between_jobs_is_refused_with_a_remedy_that_works(
    directory: str, choices: list[str], above: str, below: str, folder: str, command: Command, elsewhere: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep([f"hydra.sweep.dir={directory}", *choices], command=command)
    [fault] = caught.value.faults
    assert (fault.path, fault.value) == ("hydra.sweep.dir", directory)
    assert fault.remedy.endswith(f": hydra.sweep.dir={above} 'hydra.sweep.subdir={below}'")
    assert not list(elsewhere.iterdir())
    made = planning.plan(composition.loader(), [f"hydra.sweep.dir={above}", f"hydra.sweep.subdir={below}", *choices])
    assert made.jobs is not None
    assert made.jobs[1].compose is not None
    assert hydra_job.job_directory(made.jobs[1].compose().config, 1) == Path(folder)


def test_a_search_has_one_folder(command: Command) -> None:
    with pytest.raises(ConfigError, match=r"hydra.sweep.dir = out/\$\{seed\}: all jobs of a sweep share one folder"):
        sweep(["hydra/sweeper=optuna", "hydra.sweep.dir=out/${seed}", "seed=1,2"], command=command)


def test_a_folder_may_depend_on_what_all_jobs_share() -> None:
    words = ["hydra.sweep.dir=out/${now:%S}/${model.kind}/${seed}", "model=mlp", "seed=3", "train.steps=1,2"]
    assert hydra_job.sweep_directory(planning.plan(composition.loader(), words).base).parts[2:] == ("mlp", "3")


def test_a_setting_without_effect_is_shown_in_the_ledger_and_the_table(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["freeze=none,rows", "freeze.rows=[[0,5]]", "hydra.sweep.dir=s"]
    assert sweep(words, command=command)
    out = capsys.readouterr().out
    assert out.splitlines()[1] == "no effect: freeze.rows in 1 of 2 jobs, whose choices have no such setting"
    assert "note: freeze.rows has no effect in job 0, whose choices have no such setting\n" in out
    with Path("s/sweep.csv").open() as file:
        assert [(row["freeze"], row["freeze.rows"]) for row in csv.DictReader(file)] == [
            ("none", ""), ("rows", "[[0, 5]]"),
        ]  # fmt: skip
    assert yaml.safe_load(Path("s/0/.hydra/overrides.yaml").read_text()) == ["freeze=none"]
    with Ledger(Path("s")) as ledger:
        assert ledger.job(0).overrides == ("freeze=none", "freeze.rows=[[0,5]]")
    assert sweep(words, command=command)
    assert "2 of 2 jobs are done" in capsys.readouterr().out


def test_globs_of_the_sweeper_leave_out_what_is_tuned_for_one_experiment(command: Command, elsewhere: Path) -> None:
    (elsewhere / "mine.yaml").write_text(
        "defaults: [config, _self_]\nhydra: {sweeper: {params: {optimizer: glob(sgd*)}}}\n"
    )
    assert sweep(["seed=1,2", "hydra.sweep.dir=s"], config_dir=".", config_name="mine", command=command)
    assert [job["overrides"] for job in jobs()] == [{"optimizer": "sgd", "seed": seed} for seed in "12"]


def test_tables_that_were_edited_are_named_and_written_again(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(["seed=1,2", "hydra.sweep.dir=s"], command=command)
    table = Path("s/sweep.csv").absolute()
    assert not [note for note in report("s").notes if "changed" in note]
    before = table.read_text()
    table.write_text(before.replace("1.0", "0.1"))
    [note] = [note for note in report("s").notes if "changed" in note]
    command_of_note = f"`embexp resume {table.parent}`"
    assert note == f"{table}: changed or removed since the sweep wrote it; {command_of_note} writes it again"
    capsys.readouterr()
    assert resume(Path("s"), command=command)
    assert f"{table} was changed or removed since the sweep wrote it" in capsys.readouterr().err
    assert table.read_text() == before
    assert not [note for note in report("s").notes if "changed" in note]


def test_in_batches(command: Command) -> None:
    assert sweep(["seed=1,2,3", "hydra.sweep.dir=s", "hydra.sweeper.max_batch_size=2"], command=command)
    assert [job["number"] for job in jobs()] == [0, 1, 2]


def test_a_search_needs_another_sweeper(command: Command) -> None:
    with pytest.raises(CommandLineError, match="names no values to try\n    give the values"):
        sweep(["optimizer.learning_rate=interval(0,1)"], command=command)


def test_callbacks_of_the_config_hear_of_the_sweep(
    command: Command, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "heard.py").write_text(
        "from hydra.experimental.callback import Callback\n"
        "events = []\n"
        "class Ears(Callback):\n"
        "    def __init__(self, name):\n"
        "        self.name = name\n"
        "    def on_multirun_start(self, config, **kwargs):\n"
        "        events.append((self.name, 'start', config.hydra.sweep.dir, kwargs))\n"
        "    def on_multirun_end(self, config, **kwargs):\n"
        "        events.append((self.name, 'end', config.hydra.sweep.dir, kwargs))\n"
        "        if self.name == 'b':\n"
        "            raise ValueError('deaf')\n"
    )
    monkeypatch.syspath_prepend(str(elsewhere))
    ears = [f"+hydra.callbacks.{name}={{_target_: heard.Ears, name: {name}}}" for name in "ab"]
    with pytest.warns(UserWarning, match="callback Ears.on_multirun_end: ValueError: deaf"):
        assert sweep(["seed=1,2", "hydra.sweep.dir=s", *ears], command=command)
    import heard

    assert [each[:2] for each in heard.events] == [("a", "start"), ("b", "start"), ("b", "end"), ("a", "end")]
    assert heard.events[0][2:] == (str(Path("s").absolute()), {"config_name": "config"})


def test_ctrl_c_ends_the_running_job_and_leaves_the_rest(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    def press() -> None:
        give_up = time.monotonic() + 30
        while not Path("s/1/ready").exists() and time.monotonic() < give_up:
            time.sleep(0.05)
        # To this thread: the main one, which waits, is not woken by it.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    assert not sweep(["seed=5,103,6", "hydra.sweep.dir=s"], command=command)
    presser.join()
    assert [job["status"] for job in jobs()] == ["completed", "interrupted", "planned"]
    assert jobs()[2]["reason"] == "the sweep was interrupted"
    assert "stopping the running job" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_kills_the_jobs_which_are_interrupted(
    number: signal.Signals, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """And did not run out of memory."""

    def press() -> None:
        give_up = time.monotonic() + 30
        while not Path("s/1/ready").exists() and time.monotonic() < give_up:
            time.sleep(0.05)
        for _ in range(2):
            signal.pthread_kill(threading.get_ident(), number)
            time.sleep(0.3)

    presser = threading.Thread(target=press)
    presser.start()
    with interruption.taken_over():
        assert not sweep(["seed=5,106,6", "hydra.sweep.dir=s"], command=command)
        assert interruption.exit_status() == 128 + number
    presser.join()
    assert [job["status"] for job in jobs()] == ["completed", "interrupted", "planned"]
    assert "out of memory" not in capsys.readouterr().out
