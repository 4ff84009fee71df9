"""Jobs of a sweep that are added, run again or forgotten, and those whose folders are gone; they train nothing."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from embexp.cli.commands import sweep as command_line
from embexp.config import composition
from embexp.errors import CommandLineError, ConfigError, EmbexpError, RunError
from embexp.reports.report import report
from embexp.sweeps import changes, ledger
from embexp.sweeps.ledger import Ledger
from embexp.sweeps.planning import plan
from embexp.sweeps.sweep import resume, settled_before, sweep
from tests.locked import held_elsewhere

Command = Callable[[Path, int], Sequence[str]]
GRID = ["model=mlp,dlrm", "seed=1,2", "train.steps=5", "hydra.sweep.dir=s"]
S = Path("s")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("embexp.sweeps.sweep._changed_results", lambda *_: [])  # the jobs have read no data
    return tmp_path


def content() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in S.rglob("*") if path.is_file() and path.name != ".lock"}


def states() -> dict[int, str]:
    with Ledger(S) as opened:
        return {job.number: job.state.value for job in opened.jobs()}


def written() -> list[int]:
    """The jobs in the tables, which are those of the report."""
    found = [job["number"] for job in json.loads(Path("s/sweep.json").read_text())["jobs"]]
    assert sorted(record.number or 0 for record in report(S).records) == found
    return found


@contextmanager
def refused(*words: str, kind: type[EmbexpError] = CommandLineError) -> Iterator[None]:
    """Within the block, a command is refused with these words, and changes nothing."""
    before = content()
    with pytest.raises(kind) as caught:
        yield
    assert content() == before
    for each in words:
        assert each in str(caught.value)


def _killed(*_: object) -> None:
    raise MemoryError


def _with_loss(loss: float) -> Command:
    """Runs a job that has this loss."""
    summary = json.dumps({"status": "completed", "metrics": {"validation": {"log_loss": loss}}})
    text = "import pathlib, sys; pathlib.Path(sys.argv[1], sys.argv[2], 'summary.json').write_text(sys.argv[3])"
    return lambda sweep, number: (sys.executable, "-IS", "-c", text, str(sweep), str(number), summary)


def processes() -> dict[int, int]:
    """The process of each job, by its number."""
    found = {int(path.parent.name): json.loads(path.read_text())["pid"] for path in S.glob("[0-9]*/summary.json")}
    return dict(sorted(found.items()))


class TestGone:
    """Whatever the state, the same command and `embexp resume` run what is not on disk."""

    @pytest.mark.parametrize("again", ["the same command", "resume"])
    def test_folders(self, again: str, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["seed=1,2,100,1,3", "hydra.sweep.dir=s"]  # job 2 fails, job 3 is a copy of job 0
        assert not sweep(words, command=command)
        for number in (0, 2):
            shutil.rmtree(S / str(number))
        Path("s/1/summary.json").unlink()
        assert sorted(settled_before(plan(composition.loader(), words))) == [4]
        capsys.readouterr()
        before = processes()
        assert not (sweep(words, command=command) if again == "the same command" else resume(S, command=command))
        out = capsys.readouterr().out
        assert [f"job {number} runs again: " in out for number in range(5)] == [True, True, True, False, False]
        after = processes()
        assert set(after) == {0, 1, 4}
        assert after[4] == before[4]
        assert states() == {0: "completed", 1: "completed", 2: "failed", 3: "completed", 4: "completed"}
        with Ledger(S) as opened:
            assert [job.attempts for job in opened.jobs()] == [2, 2, 2, 0, 1]

    def test_a_failed_job_whose_folder_is_there_is_left_to_resume(self, command: Command) -> None:
        words = ["seed=1,100", "hydra.sweep.dir=s"]
        sweep(words, command=command)
        sweep(words, command=command)
        with Ledger(S) as opened:
            assert opened.job(1).attempts == 1

    @pytest.mark.parametrize("state", ["running", "interrupted", "cancelled", "planned"])
    def test_a_job_that_had_begun(self, state: str, command: Command) -> None:
        sweep(GRID, command=command)
        shutil.rmtree("s/2")
        with closing(sqlite3.connect("s/sweep.sqlite")) as opened, opened:
            opened.execute("UPDATE jobs SET state = ? WHERE number = 2", (state,))
        assert resume(S, command=command)
        assert set(states().values()) == {"completed"}
        assert Path("s/2/summary.json").is_file()

    def test_trials_of_a_search(self, command: Command) -> None:
        pytest.importorskip("optuna")
        words = ["hydra/sweeper=optuna", "hydra.sweep.dir=s", "seed=100,101,4,5", "hydra.sweeper.n_trials=4"]
        sweep([*words, "hydra.sweeper.sampler=random"], command=command)
        trials = json.loads(Path("s/search.json").read_text())["trials"]
        failed = next(trial["job"] for trial in trials if trial["state"] == "fail")
        shutil.rmtree(S / str(failed))
        resume(S, command=_with_loss(0.5))
        after = json.loads(Path("s/search.json").read_text())
        assert [trial["job"] for trial in after["trials"]] == [0, 1, 2, 3]
        [trial] = [trial for trial in after["trials"] if trial["job"] == failed]
        assert (trial["state"], trial["values"]) == ("complete", [0.5])
        assert after["best"] == [failed]


class TestAdd:
    """`embexp sweep add`."""

    def test_other_values(self, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
        sweep(GRID, command=command)
        before = processes()
        capsys.readouterr()
        assert changes.add(S, ["seed=2,3"], command=command)
        assert f"2 jobs are added to the sweep in {S.absolute()}; 2 are already there" in capsys.readouterr().out
        with Ledger(S) as opened:
            added = [(job.number, job.settings["model"], job.settings["seed"]) for job in opened.jobs()][4:]
            assert added == [(4, "mlp", "3"), (5, "dlrm", "3")]
            assert opened.job(5).settings["train.steps"] == "5"
        assert processes().items() >= before.items()
        assert written() == list(range(6))
        assert sweep(GRID, command=command)  # which the added jobs do not make another sweep
        assert changes.add(S, ["seed=3"], command=command)
        assert "nothing is added" in capsys.readouterr().out
        assert sweep([*GRID[:1], "seed=1,2,3", *GRID[2:]], command=command)
        assert written() == list(range(6))

    def test_for_later(self, command: Command) -> None:
        sweep(GRID, command=command)
        assert changes.add(S, ["seed=7", "model=mlp"], later=True, command=command)
        assert states()[4] == "planned"
        assert not Path("s/4").exists()
        assert resume(S, command=command)
        assert states()[4] == "completed"

    def test_lists_that_are_taken_together(self, command: Command) -> None:
        sweep(["zip(model,seed)=[mlp,1],[dlrm,2]", "train.steps=5", "hydra.sweep.dir=s"], command=command)
        assert changes.add(S, ["zip(model,seed)=[mlp,3]"], later=True)
        assert changes.add(S, ["model=dlrm", "seed=4"], later=True)
        with refused("seed", kind=ConfigError):
            changes.add(S, ["seed=5"])
        with Ledger(S) as opened:
            assert [tuple(job.settings[key] for key in ("model", "seed")) for job in opened.jobs()] == [
                ("mlp", "1"), ("dlrm", "2"), ("mlp", "3"), ("dlrm", "4"),
            ]  # fmt: skip

    def test_what_is_refused(self, command: Command, elsewhere: Path) -> None:
        (elsewhere / "conf" / "experiment").mkdir(parents=True)
        mine = elsewhere / "conf" / "experiment" / "mine.yaml"
        mine.write_text("# @package _global_\ndefaults: [clicks]\ntrain: {steps: 5}\n")
        sweep(["experiment=mine", "seed=1,2", "hydra.sweep.dir=s"], config_dir="conf", command=command)
        with refused("seed = -1", kind=ConfigError):
            changes.add(S, ["seed=-1,3"])
        with refused("hydra.sweep.dir=x: jobs are added with the settings of the sweep"):
            changes.add(S, ["seed=3", "hydra.sweep.dir=x"])
        with refused("is not the directory of a sweep", kind=RunError):
            changes.add(Path("conf"), ["seed=3"])
        mine.write_text("# @package _global_\ndefaults: [clicks]\ntrain: {steps: 6}\n")
        with refused("would now plan other runs, such as that of", "config files have changed"):
            changes.add(S, ["seed=3"])

    def test_a_search_is_told_what_to_do(self, command: Command) -> None:
        pytest.importorskip("optuna")
        sweep(["hydra/sweeper=optuna", "hydra.sweep.dir=s", "seed=1,2", "hydra.sweeper.n_trials=2"], command=command)
        with refused("has a search", "hydra.sweeper.n_trials=N asks for more"):
            changes.add(S, ["seed=3"])


class TestRerun:
    """`embexp sweep rerun`."""

    def test_from_the_start(self, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
        sweep(["seed=1,2,1,100", "hydra.sweep.dir=s"], command=command)
        Path("s/0/mine.txt").write_text("notes")
        before = processes()
        capsys.readouterr()
        assert not changes.rerun(S, [0, 3, 0], command=command)
        aside = Path("s/.earlier/0").absolute()
        assert f"their earlier files are in {aside}, " in capsys.readouterr().out
        assert (aside / "mine.txt").read_text() == "notes"
        assert not Path("s/0/mine.txt").exists()
        after = processes()
        assert after[0] != before[0]
        assert after[1] == before[1]
        assert states() == {0: "completed", 1: "completed", 2: "completed", 3: "failed"}
        assert written() == [0, 1, 2, 3]  # none of what was set aside
        with Ledger(S) as opened:
            assert [job.attempts for job in opened.jobs()] == [1, 1, 0, 1]
            assert len(opened.attempts(0)) == 1
        assert changes.rerun(S, [0], later=True)
        assert Path("s/.earlier/0_2").is_dir()
        assert states()[0] == states()[2] == "planned"
        resume(S, command=command)
        assert states()[2] == "completed"

    def test_a_kill_between_folder_and_ledger(self, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        """The job then has no folder, so that it runs again as it was to."""
        sweep(GRID, command=command)
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "restart", _killed)
            with pytest.raises(MemoryError):
                changes.rerun(S, [1], command=command)
        assert states()[1] == "completed"
        assert resume(S, command=command)
        assert Path("s/1/summary.json").is_file()
        assert Path("s/.earlier/1/summary.json").is_file()

    def test_a_trial(self, command: Command) -> None:
        pytest.importorskip("optuna")
        sweep(
            ["hydra/sweeper=optuna", "hydra.sweep.dir=s", "seed=range(1,90)", "hydra.sweeper.n_trials=3"],
            command=command,
        )
        assert changes.rerun(S, [1], command=_with_loss(0.25))
        found = json.loads(Path("s/search.json").read_text())
        assert [trial["job"] for trial in found["trials"]] == [0, 1, 2]
        assert found["trials"][1]["values"] == [0.25]
        assert found["best"] == [1]
        assert resume(S, ["hydra.sweeper.n_trials=4"], command=command)
        assert [trial["job"] for trial in json.loads(Path("s/search.json").read_text())["trials"]] == [0, 1, 2, 3]


class TestForget:
    """`embexp sweep forget`."""

    def test_out_of_ledger_tables_and_page(self, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
        sweep(GRID, command=command)
        capsys.readouterr()
        changes.forget(S, [3, 1])
        out = capsys.readouterr().out
        assert "2 jobs are removed from the sweep" in out
        assert f"their folders stay: {Path('s/3').absolute()}, {Path('s/1').absolute()}" in out
        assert written() == [0, 2]
        assert Path("s/3/summary.json").is_file()
        assert '"#3"' not in Path("s/report.html").read_text()
        assert resume(S, command=command)
        assert written() == [0, 2]
        assert changes.add(S, ["seed=5", "model=mlp"], command=command)  # though jobs of the command are missing
        assert sweep(GRID, command=command)  # asks for them again: as new jobs, in new folders
        assert written() == [0, 2, 4, 5, 6]
        changes.forget(S, [6], delete=True)
        assert not Path("s/6").exists()
        assert Path("s/5").is_dir()

    def test_the_last_job_and_its_number(self, command: Command) -> None:
        sweep(GRID, command=command)
        changes.forget(S, [3])
        kept = Path("s/3/summary.json").read_bytes()
        changes.add(S, ["seed=9"], command=command)
        assert written() == [0, 1, 2, 4, 5]
        assert Path("s/3/summary.json").read_bytes() == kept

    def test_trials_of_a_search(self, command: Command, capsys: pytest.CaptureFixture[str]) -> None:
        pytest.importorskip("optuna")
        words = ["hydra/sweeper=optuna", "hydra.sweep.dir=s", "seed=range(1,90)", "hydra.sweeper.n_trials=4"]
        sweep(words, command=command)
        best = json.loads(Path("s/search.json").read_text())["best"][0]
        capsys.readouterr()
        changes.forget(S, [best])
        assert "the sampler knows 3 trials now, and none of these" in capsys.readouterr().out
        found = json.loads(Path("s/search.json").read_text())
        assert best not in [trial["job"] for trial in found["trials"]]
        assert found["best"][0] != best
        assert best not in written()
        assert resume(S, command=command)  # as many trials as it was to have
        after = json.loads(Path("s/search.json").read_text())["trials"]
        assert [trial["job"] for trial in after] == [job for job in range(5) if job != best]
        assert written() == [trial["job"] for trial in after]

    def test_seeds_of_a_trial_go_together(self, command: Command) -> None:
        pytest.importorskip("optuna")
        words = [
            "hydra/sweeper=optuna",
            "hydra.sweep.dir=s",
            "train.batch_size=range(1,90)",
            "seeds=2",
            "hydra.sweeper.n_trials=2",
        ]
        sweep(words, command=command)
        with refused("job 3 is one of the seeds of a trial: also name job 2"):
            changes.forget(S, [3])
        changes.forget(S, [2, 3])
        assert written() == [0, 1]
        assert resume(S, command=command)
        assert written() == [0, 1, 4, 5]


def test_what_is_refused_changes_nothing(command: Command) -> None:
    words = ["init=scaffold,assign", "runtime=function", "seed=1,1", "train.steps=5", "hydra.sweep.dir=s"]
    sweep(words, command=command)  # jobs 0 and 1 are skipped, and 3 is a copy of 2
    for change in (changes.rerun, changes.forget):
        with refused("nothing is changed", "there is no job 7: the sweep has jobs 0 to 3", "there is no job 8"):
            change(S, [2, 7, 8])
        with held_elsewhere(S), refused("the sweep in", kind=RunError):
            change(S, [2])
        with held_elsewhere(Path("s/2")), refused("job 2 is running, or in a queue"):
            change(S, [2])
    with refused("job 0 is skipped: init=scaffold", "job 3 is the same as job 2 and shows its result"):
        changes.rerun(S, [0, 3])
    with refused("job 2 has copies, which show its result: also name job 3"):
        changes.forget(S, [2])
    with refused("these are all jobs of the sweep"):
        changes.forget(S, [0, 1, 2, 3])
    changes.forget(S, [3])
    assert Path("s/2/summary.json").is_file()
    assert written() == [0, 1, 2]


def test_the_ledger_changes_at_once(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed between two statements leaves the ledger as it was."""
    sweep(GRID, command=command)
    before = states()
    for change in ("forget", "restart"):
        with Ledger(S) as opened, monkeypatch.context() as patch:
            patch.setattr(ledger, "_NOTE", "INSERT INTO nowhere VALUES (?, ?)")
            jobs = opened.jobs()[:2]
            with pytest.raises(sqlite3.OperationalError):
                opened.forget(jobs) if change == "forget" else opened.restart([0, 1])
        assert states() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rerun", "s"], "which jobs?"),
        (["forget", "s", "x", "1"], "a job is its number in the table, and this is 'x'"),
        (["add", "s"], "add which jobs?"),
        (["rerun"], "which sweep?"),
    ],
)
def test_misuse(words: list[str], message: str) -> None:
    with pytest.raises(CommandLineError, match=message.replace("?", r"\?")):
        command_line.main(words)
