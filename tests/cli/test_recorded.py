"""`embexp run --spec`: a recorded spec is run as it was recorded, and no code that isn't allowed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import embexp
from embexp.cli import commands
from embexp.cli.commands import run
from embexp.errors import CommandLineError, ConfigError, UsageError
from embexp.records.folder import RunFolder
from tests.cli.test_run import FakeRunner


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def record(elsewhere: Path) -> Path:
    """A recorded run of a model of the user's own, whose code has changed since."""
    Path("mine.py").write_text("def tower(activations):\n    raise NotImplementedError\n")
    (elsewhere / "record" / "code").mkdir(parents=True)
    (elsewhere / "record" / "code" / "mine.py").write_text("def tower(activations): ...\n")
    spec = embexp.compose(["model=keras", "model.function=mine:tower", "~model.args", "seed=7", "train.steps=9"])
    RunFolder(elsewhere / "record").write_spec(spec)
    return elsewhere / "record"


@pytest.mark.parametrize("path", ["record", "record/spec.json"])
def test_a_recorded_spec_is_run_as_it_is(record: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    runner = FakeRunner()
    words = ["--spec", path, "--allow-code", "mine:tower", "hydra.run.dir=here/run"]
    assert run.main(words, runner=runner) == 0
    assert runner.runs == [(RunFolder(record).recorded_spec(), Path("here/run"))]
    shown = capsys.readouterr().out
    assert f"code: {record.parent / 'mine.py'}; it differs from {record.name}/code/mine.py" in shown


def test_its_length_and_its_output_may_change(record: Path) -> None:
    runner = FakeRunner()
    words = [
        "--spec",
        "record",
        "--allow-code",
        "mine:tower",
        "train.steps=3",
        "output.plots=false",
        "output.baselines=false",
    ]
    assert run.main(words, runner=runner) == 0
    [(spec, directory)] = runner.runs
    assert (spec.train.steps, spec.output.plots, spec.seed) == (3, False, 7)
    assert directory.parts[0] == "outputs"


def test_nothing_else_may(record: Path) -> None:
    runner = FakeRunner()
    with pytest.raises(ConfigError, match=r"seed = 8: a recorded spec is run as it was recorded \(it is 7\)"):
        run.main(["--spec", "record", "--allow-code", "mine:tower", "seed=8"], runner=runner)
    assert not runner.runs
    assert not Path("outputs").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            [],
            r"record/spec.json names code to run: mine:tower .*to allow it, add --allow-code mine:tower, or in",
        ),
        (["--allow-code", "mine:tow"], "to allow it, add --allow-code mine:tower"),
        (["--allow-code", "mine:tower", "--allow-code", "os:system"], "os:system: .* names only mine:tower"),
        (["--allow-code", "mine:tower", "-m"], "-m composes a config"),
        (["--allow-code", "mine:tower", "--cfg", "job"], "--cfg composes a config"),
    ],
)
def test_what_is_refused(record: Path, words: list[str], told: str) -> None:
    runner = FakeRunner()
    with pytest.raises(UsageError, match=told):
        run.main(["--spec", "record", *words], runner=runner)
    assert not runner.runs


@pytest.mark.parametrize("path", ["nowhere", "record/code/mine.py", "record/code"])
def test_a_path_without_a_spec(record: Path, path: str) -> None:
    with pytest.raises(CommandLineError, match="--spec"):
        run.main(["--spec", path], runner=FakeRunner())


def test_refusals_come_before_tensorflow(record: Path) -> None:
    script = (
        "import sys; from embexp.cli.commands import main\n"
        "print(main(['run', '--spec', 'record']), main(['verify', 'record']), 'tensorflow' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["2", "2", "False"]
    assert result.stderr.count("to allow it, add --allow-code mine:tower") == 2


def test_a_plan_shows_the_run_id_of_the_run(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from embexp.runs.prepare import prepare

    Path("mine.py").write_text("def tower(activations): ...\n")
    words = ["model=keras", "model.function=mine:tower", "~model.args", "data.examples=500", "output.cache=cache"]
    shown = []
    for _ in range(2):
        assert commands.main(["plan", "--scan", *words]) == 0
        [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("run_id")]
        assert line.split() == ["run_id", prepare(embexp.compose(words)).run_id]
        shown.append(line)
        Path("mine.py").write_text("def tower(activations): return 1\n")
    assert shown[0] != shown[1]
