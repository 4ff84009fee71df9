"""The contract of fields: what every task of every field does, each against an oracle of its own.

A field's tests make a class of `Contract` with their cases:

    class TestSequences(Contract):
        cases = {"next item": Case(field="sequences", task="next_item", settings=..., write=...)}
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.errors import ConfigError, RunError
from embexp.records.folder import RunFolder
from embexp.runs import execute, experiment, verification
from embexp.runs.prepare import prepare
from embexp.runs.run import NOBODY, Observer
from embexp.runs.verification import Rerun
from embexp.specs import fields
from embexp.specs.tasks import Direction
from embexp.system import machine
from embexp.tables import optimizers
from embexp.training.listeners import Listener
from tests import bits, checkpoint_values, preloaded, stranger
from tests.thoroughness import chosen, thorough

STEPS, RATE = 40, 0.1
FROZEN = (1, 2, 4)
PLACES = {
    "mirrored": ("strategy=mirrored", "strategy.replicas=2"),
    "tpu_simulator": ("strategy=tpu_simulator",),
    "session": ("runtime=session",),
    "estimator": ("runtime=estimator",),
}
"""Strategies and runtimes beside one process on the processor in the function runtime."""
WORKERS = ("strategy=multi_worker", "strategy.workers=2", "strategy.intra_op_threads=1", "strategy.inter_op_threads=2")
SETTINGS = (
    *("optimizer=adagrad", f"optimizer.learning_rate={RATE}"),
    *("dense_optimizer=adagrad", f"dense_optimizer.learning_rate={RATE}"),
    *("train.epochs=null", f"train.steps={STEPS}", "train.batch_size=64", "train.log_every=10"),
    *("train.evaluate_every=20", "checkpoint.every_steps=20", "checkpoint.keep=null"),
    *("output.plots=false", "output.baselines=false", "output.tensorboard=false"),
)
"""Of all runs. A step of Adagrad moves a number by the learning rate at most, and then bounds what rounding does."""


@dataclass(frozen=True)
class Case:
    """A small experiment of a task, which learns something in 40 steps of 64 examples.

    Attributes:
        field: that has the task, its data or its model.
        task: its name.
        settings: overrides of its runs.
        write: writes its data into a folder and returns the overrides that name it; with True, the same data and more,
            in which the table has more rows.
        table: name of a table whose rows 1, 2 and 4 can be frozen, and which can grow.
        recounted: from a finished run and the folder of its data, the metrics of the test split, counted without embexp
            from predictions or tables; None: they can't be.
        served: likewise the arguments of an exported model's default signature, and the answers; None: it has none.
        predicts: whether the folder has `asked.csv`, whose examples a run predicts.
        answers: name of the answers of an exported model; "": `probabilities` or `predictions`.
        refuses: names of `PLACES`, and `multi_worker`, in which the task does not run: the config path of the fault.
        also: overrides that it needs in some of these places.
        package: the project, and its package, of a field that embexp does not ship; None: it does, or the test's own
            process has it installed.
        variables: variables of the environment of its commands, such as PYTHONPATH.
    """

    field: str
    task: str
    settings: Sequence[str]
    write: Callable[[Path, bool], Sequence[str]]
    table: str = "item"
    recounted: Callable[[embexp.Run, Path], Mapping[str, float]] | None = None
    served: Callable[[embexp.Run, Path], tuple[Mapping[str, Any], np.ndarray]] | None = None
    answers: str = ""
    predicts: bool = True
    refuses: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[str, Sequence[str]] = field(default_factory=dict)
    package: tuple[Path, str] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


class Runs:
    """The runs of a case, in a folder."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        self.data: dict[bool, tuple[Path, list[str]]] = {}
        for grown in (False, True):
            place = folder / f"data {grown}".replace(" ", "_")
            place.mkdir()
            self.data[grown] = place, list(case.write(place, grown))

    def settings(self, *overrides: str, grown: bool = False) -> list[str]:
        cache = f"output.cache={self.folder}/cache"
        words = [*SETTINGS, *self.case.settings, *self.data[grown][1], cache, *overrides]
        return [*{word.partition("=")[0]: word for word in words}.values()]  # a case has its own instead of SETTINGS'

    def spec(self, *overrides: str, grown: bool = False) -> embexp.RunSpec:
        return embexp.compose(self.settings(*overrides, grown=grown))

    def run(self, name: str, *overrides: str, grown: bool = False, observer: Observer = NOBODY) -> Path:
        """A run in this process; returns its directory."""
        directory = self.folder / name
        directory.mkdir()
        spec = self.spec(*overrides, grown=grown)
        experiment.run(spec, directory, observer)
        return directory

    def command(self, commands: Path, *words: str) -> None:
        """A command of embexp in processes of its own, which must succeed."""
        # Those that are forked have the modules of another process, and none but its own.
        program = [preloaded.with_jobs(commands) / "embexp"]
        done = subprocess.run(
            [*([sys.executable, "-m", "embexp"] if "PYTHONPATH" in self.case.variables else program), *words],
            env={**os.environ, **self.case.variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def summary(directory: Path) -> dict[str, Any]:
    return RunFolder(directory).read_summary()


def outcome(directory: Path) -> dict[str, str]:
    """Digests of tables, of all tensors of the final checkpoint, and of the lines of metrics; and the `run_id`."""
    return dict(bits.recorded(directory))


def metrics(directory: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = summary(directory)["metrics"]
    return found


def tables(directory: Path) -> dict[str, np.ndarray]:
    run = embexp.load_run(directory)
    return {name: run.table(name) for name in run.spec.tables}


def within_float32(directory: Path, expected: Path) -> None:
    """Rows within 2e-6 of what they are, and of what they may have moved; metrics within what that makes of them."""
    rows, spec = tables(directory), embexp.load_run(expected).spec
    for name, others in tables(expected).items():
        moved = spec.train.steps * spec.optimizer_of(name).learning_rate
        np.testing.assert_array_less(np.abs(rows[name] - others), 2e-6 * (np.abs(others) + 2 * moved), name)
    for split, values in metrics(expected).items():
        assert metrics(directory)[split] == pytest.approx(values, rel=1e-3), split


class Interrupts(Listener):
    """Interrupts the training when it logs a step, as Ctrl-C does."""

    def __init__(self, step: int) -> None:
        self._step = step

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        if step == self._step:
            os.kill(os.getpid(), signal.SIGINT)


class Contract:
    """The clauses.

    Attributes:
        cases: those of a field, by name.
        in_every_run: the cases that every test run tries, by clause; of a clause that it lacks, all; None: all of all
            clauses. What others would find is code of the core.
    """

    cases: ClassVar[Mapping[str, Case]] = {}
    in_every_run: ClassVar[Mapping[str, Collection[str]] | None] = None

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """Each clause for each case."""
        if "runs" not in metafunc.fixturenames:
            return
        clause = metafunc.function.__name__.removeprefix("test_")
        always = cls.cases if cls.in_every_run is None else cls.in_every_run.get(clause, cls.cases)
        metafunc.parametrize("runs", chosen(cls.cases, always), indirect=True, scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def runs(cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
        case, folder = cls.cases[request.param], tmp_path_factory.mktemp("case")
        if case.package is None:
            yield Runs(case, folder)
            return
        with stranger.installed(*case.package) as variables:
            yield Runs(replace(case, variables={**variables, **case.variables}), folder)

    @pytest.fixture(scope="class")
    @classmethod
    def done(cls, runs: Runs) -> Path:
        """The run that all clauses look at, and none changes."""
        return runs.run("done")

    @pytest.fixture(scope="class")
    @classmethod
    def commands(cls) -> Iterator[Path]:
        with preloaded.shared_commands() as folder:
            yield folder

    def test_trains(self, runs: Runs, done: Path) -> None:
        """The loss falls, and on the test split the run is better than the first baseline, such as a constant."""
        found, task = summary(done), runs.spec().task
        assert (found["status"], found["steps"], task) == ("completed", STEPS, runs.case.task)
        losses = [line["loss"] for line in RunFolder(done).read_metrics() if line["event"] == "log"]
        assert losses[-1] < losses[0]
        name, metric, _ = next(task.named_metrics(task.cutoffs_of(runs.spec())))
        first = next(iter(found["baselines"].values()))
        sign = -1 if metric.direction is Direction.LOWER else 1
        assert sign * found["metrics"]["test"][name] > sign * first["test"][name]

    def test_counts(self, runs: Runs, done: Path) -> None:
        """Metrics are those that are counted without embexp."""
        if runs.case.recounted is None:
            pytest.skip("the examples that test are not in a file")
        expected = runs.case.recounted(embexp.load_run(done), runs.data[False][0])
        assert metrics(done)["test"] == pytest.approx(expected, rel=2e-6)

    def test_evaluates(self, done: Path) -> None:
        """A finished run has the metrics of its summary, to the bit."""
        run = embexp.load_run(done)
        for split in ("test", "validation"):
            assert run.evaluate(split=split) == metrics(done)[split]

    def test_compares(self, done: Path) -> None:
        """Compared with itself, no row and no metric differs, as exact tests and resamples agree."""
        [pair] = embexp.compare([done, done]).pairs
        known = metrics(done)["test"]
        assert {each.name: each.after for each in pair.metrics}.items() <= known.items()
        assert {(each.difference, each.interval, each.p) for each in pair.metrics if each.test} == {(0, (0, 0), 1)}
        assert pair.differing in (0, None)

    def test_resumes(self, runs: Runs, done: Path) -> None:
        """Interrupted in the middle and resumed, it ends with the bits of the run that was not."""
        directory = runs.run("resumed", observer=Observer(lambda: [Interrupts(STEPS // 2)]))
        assert (summary(directory)["status"], summary(directory)["steps"]) == ("interrupted", STEPS // 2)
        experiment.resume(directory)
        assert outcome(directory) == outcome(done)
        assert metrics(directory) == metrics(done)

    def test_verifies(self, runs: Runs, done: Path, tmp_path: Path) -> None:
        """It is identical when it is run again, and what is falsified is named."""
        again = tmp_path / "again"

        def run(rerun: Rerun, place: Path) -> None:
            if not again.exists():
                again.mkdir()
                experiment.run(rerun.spec, again, replay=rerun.replay)
            shutil.copytree(again, place, dirs_exist_ok=True)

        found = verification.verify(done, again=run)
        assert (found.intact, found.identical, found.differences) == (True, True, ())
        copy = shutil.copytree(done, tmp_path / "copy")
        record = summary(copy)
        name = next(iter(record["metrics"]["test"]))
        record["metrics"]["test"][name] += 1e-9
        (copy / "summary.json").write_text(json.dumps(record))
        found = verification.verify(copy, again=run)
        assert not found.intact
        assert [each.name for each in found.results] == [f"metrics.test.{name}"]

    def test_predicts(self, runs: Runs, done: Path) -> None:
        """The same for each example, however many are asked; a task that predicts nothing says why."""
        run, file = embexp.load_run(done), runs.data[False][0] / "asked.csv"
        if not runs.case.predicts:
            with pytest.raises(RunError):
                run.predict(file)
            return
        every = run.predict(file)
        header, *lines = file.read_text(encoding="utf-8").splitlines()
        some = file.with_name("some.csv")
        some.write_text("\n".join([header, *lines[3:8], ""]), encoding="utf-8")
        assert len(every) == len(lines)
        if runs.case.task == "recommendation" and "avx512f" not in machine.processor().features:
            # Keras normalizes by rsqrt, whose last bit depends on an example's place in its batch there.
            np.testing.assert_array_max_ulp(run.predict(some), every[3:8], maxulp=1)
        else:
            np.testing.assert_array_equal(run.predict(some), every[3:8])

    def test_exports(self, runs: Runs, done: Path, tmp_path: Path) -> None:
        """A SavedModel answers as the run predicts, and tables and the field's own forms are written."""
        run = embexp.load_run(done)
        for form in exports_of(runs.case.field):
            found = run.export(tmp_path / form, form)
            assert found.tables
            assert any(found.path.iterdir())
        if runs.case.served is None:
            return
        run.export(tmp_path / "model")
        arguments, expected = runs.case.served(run, runs.data[False][0])
        served = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"](**arguments)
        name = runs.case.answers or ("probabilities" if "probabilities" in served else "predictions")
        answers = served[name].numpy()
        if answers.dtype == object:  # texts
            np.testing.assert_array_equal(answers.astype(str), expected)
        else:
            np.testing.assert_allclose(answers, expected, rtol=2e-6, atol=1e-6)

    def test_sweeps(self, runs: Runs, done: Path, commands: Path) -> None:
        """Jobs of a sweep have the bits of single runs."""
        folder = runs.folder / "sweep"
        runs.command(commands, "run", "-m", *runs.settings("seed=0,1"), f"hydra.sweep.dir={folder}")
        other = runs.run("other", "seed=1")
        assert outcome(folder / "0") == outcome(done)
        assert outcome(folder / "1") == outcome(other)
        one, another = summary(done), summary(other)
        assert one["run_id"] != another["run_id"]
        table = runs.case.table
        assert one["tables"][table]["digest"] != another["tables"][table]["digest"]

    def test_freezes(self, runs: Runs) -> None:
        """Frozen rows have their initial bits, and so have their slots; others move."""
        table, rows = runs.case.table, str([[row, row + 1] for row in FROZEN]).replace(" ", "")
        words = (f"freeze@tables.{table}.freeze=rows", f"tables.{table}.freeze.rows={rows}")
        directory, prepared = runs.run("frozen", *words), prepare(runs.spec(*words)).tables
        source = execute.initial_rows(prepared)[table]
        first = source.read(0, source.rows)
        found = checkpoint_values.tables(RunFolder(directory).final_checkpoint)[table]
        frozen = np.isin(np.arange(len(first)), FROZEN)
        assert found[None][frozen].tobytes() == first[frozen].tobytes()
        for slot, start in optimizers.slots_of(prepared.spec.optimizer_of(table)).items():
            assert (found[slot][frozen] == np.float32(start)).all()
            assert (found[slot][~frozen] != np.float32(start)).any(1).mean() > 0.8
        assert (found[None][~frozen] != first[~frozen]).any(1).mean() > 0.8
        assert summary(directory)["freeze"][table]["frozen_rows"] == len(FROZEN)

    def test_grows(self, runs: Runs, done: Path) -> None:
        """With more data, old rows keep their bits by token, and new rows train."""
        table = runs.case.table
        words = ("pretrained=checkpoint", f"pretrained.path={done}", f"freeze@tables.{table}.freeze=old_rows")
        before, after = embexp.load_run(done), embexp.load_run(runs.run("grown", *words, grown=True))
        rows, old = dict(zip(before.vocabulary(table).tokens(), before.table(table), strict=True)), 0
        tokens = after.vocabulary(table).tokens()
        for token, row in zip(tokens, after.table(table), strict=True):
            if token in rows:
                assert row.tobytes() == rows[token].tobytes(), token
                old += 1
        assert old == len(rows) < len(tokens)
        assert after.summary["freeze"][table]["frozen_rows"] == old
        assert after.summary["freeze"][table]["trainable_rows_touched"] == len(tokens) - old

    @pytest.mark.parametrize("place", PLACES)
    def test_runs_elsewhere(self, runs: Runs, done: Path, place: str) -> None:
        """What one process learns is learned there, or it is refused with the config."""
        words = (*PLACES[place], *runs.case.also.get(place, ()))
        if place in runs.case.refuses:
            self._refused(runs, place, words)
        else:
            within_float32(runs.run(place, *words), done)

    def test_two_workers(self, runs: Runs, done: Path, commands: Path) -> None:
        """They learn what one process learns, twice with the same bits; one process evaluates them to the bit.

        In most runs only once: two resumed workers have the bits of others in tests/strategies/cluster.
        """
        if "multi_worker" in runs.case.refuses:
            self._refused(runs, "multi_worker", WORKERS)
            return
        words = (*WORKERS, *runs.case.also.get("multi_worker", ()))
        directories = [runs.folder / f"workers_{number}" for number in range(2 if thorough() else 1)]
        for directory in directories:
            runs.command(commands, "run", *runs.settings(*words), f"hydra.run.dir={directory}")
        assert all(outcome(each) == outcome(directories[0]) for each in directories[1:])
        within_float32(directories[0], done)
        assert not any(summary(directories[0])["cluster"].get("differing_copies", {}).values())
        for split in ("validation", "test"):
            assert embexp.load_run(directories[0]).evaluate(split=split) == metrics(directories[0])[split]

    def _refused(self, runs: Runs, place: str, overrides: Sequence[str]) -> None:
        with pytest.raises(ConfigError) as caught:
            runs.spec(*overrides)
        assert runs.case.refuses[place] in [fault.path for fault in caught.value.faults]


def exports_of(name: str) -> list[str]:
    """The forms that a field exports a run in."""
    return [form for each in fields.fields() if each.name == name for form in each.exports]
