"""What a notebook uses: run, sweep, load_run, their listeners and what they say about mistakes."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.runs.finished import Run
from embexp.runs.run import RunResult
from embexp.training.progress import NotebookBar

SMALL = [
    "data.examples=2000",
    "data.users=50",
    "data.items=30",
    "train.steps=6",
    "train.epochs=null",
    "train.log_every=2",
    "output.plots=false",
    "output.baselines=false",
    "output.tensorboard=false",
]


class Ears(embexp.Listener):
    """Notes events."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        self.heard.append(("started", total_steps))

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        self.heard.append(step)

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        pass

    def ended(self, status: str) -> None:
        self.heard.append(status)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[Any]]:
    """A finished run, and what a listener heard of it."""
    folder = tmp_path_factory.mktemp("api")
    ears = Ears()
    spec = embexp.compose([*SMALL, f"output.cache={folder / 'cache'}"])
    result = embexp.run(spec, folder / "run", listeners=[ears], quiet=True)
    return embexp.load_run(result.directory), ears.heard


def test_listeners(made: tuple[Run, list[Any]]) -> None:
    assert made[1] == [("started", 6), 2, 4, 6, "completed"]


def test_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = embexp.compose([*SMALL, f"output.cache={tmp_path}"])
    embexp.run(spec, tmp_path / "quiet", quiet=True)
    assert capsys.readouterr() == ("", "")
    embexp.run(spec, tmp_path / "loud")
    assert "training completed after 6 steps" in capsys.readouterr().out


def test_a_notebook_shows_metrics_and_nothing_that_changes(made: tuple[Run, list[Any]], tmp_path: Path) -> None:
    """The same numbers as in the summary, in a table; neither seconds nor the path of the machine."""
    run = made[0]
    spec = embexp.compose([*SMALL, f"output.cache={tmp_path}"])
    with contextlib.chdir(tmp_path):
        result = embexp.run(spec, "again", quiet=True)
        assert repr(result) == "<RunResult: completed, 6 steps, in again>"
        html = result._repr_html_()
    assert str(tmp_path) not in html
    assert html.replace("in again", f"in {run.folder.path}") == run._repr_html_()
    assert repr(run) == f"<Run: completed, 6 steps, in {run.folder.path}>"
    [heads, *rows] = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]
    assert heads[:4] == ["metric", "train", "validation", "test"]
    test = {cells[0]: cells[3] for cells in rows}
    assert test == {name: f"{value:.4f}" for name, value in run.summary["metrics"]["test"].items()}


def test_what_a_notebook_shows_is_escaped(tmp_path: Path) -> None:
    summary = {"status": "completed", "warnings": ["<script>alert(1)</script>"]}
    html = RunResult(tmp_path / "<b>", summary)._repr_html_()
    assert "<script>" not in html
    assert "&lt;b&gt;" in html
    assert "warning: &lt;script&gt;" in html
    assert "<table>" not in html


def test_model(made: tuple[Run, list[Any]]) -> None:
    """The model on the rows of the tables gives what the run predicts."""
    run = made[0]
    assert isinstance(run.model, keras.Model)
    assert {each.name for each in run.model.inputs} == {*run.spec.features}
    assert run.model is run.model


def test_in_a_graph_of_tensorflow_1_tables_are_read_and_runs_are_refused(made: tuple[Run, list[Any]]) -> None:
    with tf.Graph().as_default():
        run = embexp.load_run(made[0].folder.path)
        np.testing.assert_array_equal(run.table("item"), made[0].table("item"))
        with pytest.raises(embexp.UsageError, match=r"the model of a loaded run needs .* inside a tf.Graph"):
            _ = run.model
        with pytest.raises(embexp.UsageError, match=r"embexp.run needs .* call it outside the graph"):
            embexp.run(run.spec)


def test_neighbors(made: tuple[Run, list[Any]]) -> None:
    run = made[0]
    rows = run.table("item")
    directions = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = directions @ directions[7]
    expected = [row for row in np.argsort(-cosines, kind="stable") if row != 7][:3]
    found = run.neighbors("item", run.vocabulary("item").tokens()[7], k=3)
    assert [name for name, _ in found] == [run.vocabulary("item").tokens()[row] for row in expected]
    np.testing.assert_allclose([cosine for _, cosine in found], cosines[expected], rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda run: run.table("itm"), r"has no table 'itm'; its tables are user, item"),
        (lambda run: run.neighbors("itm", 1), r"has no table 'itm'"),
        (lambda run: run.vocabulary("itm"), r"has no table 'itm'"),
        (lambda run: run.neighbors("item", 1, k=0), r"k must be a whole number of at least 1, not 0"),
    ],
)
def test_misuse_of_a_run(call: Any, said: str, made: tuple[Run, list[Any]]) -> None:
    with pytest.raises(embexp.UsageError, match=said):
        call(made[0])
    with pytest.raises(embexp.VocabularyError, match=r"found no token 'xyzzy' among"):
        made[0].neighbors("item", "xyzzy")


MISUSE = {
    "run a mapping": ("run({'model': 'mlp'})", "embexp.run takes a RunSpec, not dict"),
    "run overrides of a wrong type": ("run(['name=5'])", "put it in quotes: 'name=\"5\"'"),
    "run overrides with several values": ("run(['seed=1,2'])", "call embexp.sweep"),
    "run overrides that name code": (
        "run(['model=keras', 'model.function=keras:Model'])",
        "allow_code=['keras:Model']",
    ),
    "run a text": ("run('model=mlp')", "embexp.run takes a RunSpec, not str 'model=mlp'"),
    "run a DictConfig": ("run(__import__('omegaconf').OmegaConf.create({}))", "embexp.spec_of(cfg) builds one"),
    "one listener": ("run(spec, listeners=embexp.Listener())", "listeners must be a list of Listener objects"),
    "a directory that is none": ("run(spec, 5)", "embexp.run takes a directory as a string or a Path, not int 5"),
    "an empty directory": ("run(spec, '')", "embexp.run takes a directory"),
    "a table that is not there": ("run(renamed)", "features.item.table = 'itm': there is no table of that name"),
    "no tables": ("run(spec.model_copy(update={'tables': {}}))", "tables = {}: "),
    "a dim that is none": ("sweep([spec.model_copy(update={'seed': 'x'})])", "seed = 'x': it must be a whole number"),
    "compose a text": ("compose('model=mlp')", "takes a list of overrides, not a single string: ['model=mlp']"),
    "compose a mapping": ("compose({'model': 'mlp'})", "not a mapping: ['model=mlp']"),
    "compose numbers": ("compose([1])", "takes a list of overrides such as"),
    "compose for Hydra": ("compose(['hydra.run.dir=x'])", "embexp.run(spec, directory)"),
    "compose elsewhere": ("compose([], config_dir=5)", "takes a directory"),
    "load a result": ("load_run(None)", "embexp.load_run takes a directory"),
    "resume with a text": ("resume('x', 'train.steps=5')", "not a single string: ['train.steps=5']"),
    "resume nothing": ("resume(5)", "embexp.resume takes a directory"),
    "sweep one spec": ("sweep(spec)", "embexp.sweep takes a list of specs, not RunSpec"),
    "sweep texts": ("sweep(['model=mlp'])", "of lists of overrides, not of strings"),
    "sweep a mapping": ("sweep({'seed': [0, 1]})", "embexp.sweep takes a list of specs, not dict"),
    "sweep nothing": ("sweep([])", "the list of specs is empty"),
    "sweep faults": ("sweep([spec, ['seed=-1'], ['modl=mlp']])", "2 faults in the config"),
    "sweep with no jobs": ("sweep([spec], jobs=0)", "hydra.launcher.jobs = 0: it must be at least 1"),
}


def test_misuse_is_told_before_tensorflow_is_loaded(tmp_path: Path) -> None:
    script = (
        f"import json, sys, embexp\nspec, said = embexp.compose({SMALL!r}), {{}}\n"
        "item = spec.features['item'].model_copy(update={'table': 'itm'})\n"
        "renamed = spec.model_copy(update={'features': {**spec.features, 'item': item}})\n"
        f"for name, (call, _) in {MISUSE!r}.items():\n"
        "    try:\n        eval('embexp.' + call)\n"
        "    except embexp.UsageError as error:\n        said[name] = str(error)\n"
        "print(json.dumps([said, 'tensorflow' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    said, loaded = json.loads(done.stdout)
    assert {name: words in said.get(name, "") for name, (_, words) in MISUSE.items()} == dict.fromkeys(MISUSE, True), (
        said
    )
    assert not loaded
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("forked_jobs")
def test_a_sweep(tmp_path: Path) -> None:
    small = [*SMALL, f"output.cache={tmp_path / 'cache'}"]
    jobs = [embexp.compose([*small, "seed=1"]), [*small, "seed=2"], [*small, "init=scaffold", "runtime=function"]]
    result = embexp.sweep(jobs, tmp_path / "swept", jobs=2, quiet=True)
    assert result.directory == tmp_path / "swept"
    assert [each.status.value for each in result.outcomes] == ["completed", "completed", "skipped"]
    assert [each.overrides["seed"] for each in result.outcomes] == ["1", "2", "0"]
    assert result.succeeded
    digests = [
        embexp.load_run(each.directory).summary["run_id"] for each in result.outcomes if each.directory is not None
    ]
    assert len(set(digests)) == 2
    again = embexp.sweep(jobs, tmp_path / "swept", quiet=True)
    assert again == result  # nothing was repeated
    with pytest.raises(embexp.UsageError, match="already holds a different sweep"):
        embexp.sweep([[*small, "seed=3"]], tmp_path / "swept", quiet=True)


def test_a_bar_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = types.SimpleNamespace(update=lambda bar: shown.append(bar._repr_html_()))

    def display(bar: NotebookBar, display_id: bool) -> Any:
        shown.append(bar._repr_html_())
        return handle

    module = types.ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    bar = NotebookBar()
    bar.started(10, 100)
    bar.resumed(4)
    bar.progressed(5)
    bar.logged(5, 0.5, None)
    bar.evaluated(6, "validation", {"auc": 0.75})
    bar.warned("<disk> is full")
    bar.progressed(10)
    bar.ended("stopped_early")
    assert '<progress value="0" max="10"' in shown[0]
    assert '<progress value="10" max="10"' in shown[-1]
    for words in ("stopped early: 10 of 10 steps", "loss 0.5000", "validation (step 6) auc 0.7500"):
        assert words in shown[-1]
    assert "warning: &lt;disk&gt; is full" in shown[-1]
    assert "warning: <disk> is full" in repr(bar)
