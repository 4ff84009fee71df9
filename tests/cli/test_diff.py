"""`embexp diff`: what differs between two runs, on the terminal and as JSON."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embexp
from embexp.cli import commands
from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.records import manifest
from embexp.runs import run as single
from embexp.runs.runs_compared import between_specs, readable_names

SMALL = (
    "experiment=clicks",
    "data.examples=2000",
    "data.users=60",
    "data.items=80",
    "train.batch_size=64",
    "train.epochs=null",
    "train.steps=6",
    "train.log_every=2",
    "output.plots=false",
    "output.baselines=false",
    "output.tensorboard=false",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs a, the same as a copy, and b with another seed and learning rate."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "states", lambda folders: {})  # somebody may be at work in the checkout
        for name, settings in (("a", ()), ("b", ("seed=1", "optimizer.learning_rate=0.02"))):
            (folder / name).mkdir()
            single.run(embexp.compose([*SMALL, f"output.cache={folder / 'cache'}", *settings]), folder / name)
    shutil.copytree(folder / "a", folder / "same")
    return folder


def diff(*words: Any, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = commands.main(["diff", *map(str, words)])
    return status, capsys.readouterr().out


def test_the_same_files_elsewhere_are_no_difference() -> None:
    """Two links of one parent, which was copied, are the same; other settings and other files differ."""
    specs = [{"seed": seed, "parent": {"path": f"/{name}/monday", "gone": "keep"}} for seed, name in enumerate("ab")]
    assert [each.name for each in between_specs(*specs, same_files=True)] == ["seed"]
    assert [each.name for each in between_specs(*specs, same_files=False)] == ["seed", "parent.path"]


def test_the_same_run_twice(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, shown = diff(runs / "a", runs / "same", capsys=capsys)
    assert status == 0
    assert shown.splitlines()[-1] == "the same"
    assert "4 of 4 common lines of metrics.jsonl are equal" in shown


def test_all_that_differs_is_named(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = diff(runs / "a", runs / "b", "--json", "--rows", 4, capsys=capsys)
    assert status == 1
    found = json.loads(text)
    assert {each["name"]: (each["a"], each["b"]) for each in found["spec"]} == {
        "seed": (0, 1),
        "optimizer.learning_rate": (embexp.compose(list(SMALL)).optimizer.learning_rate, 0.02),
    }
    assert found["circumstances"] == []
    assert found["metrics"][0]["step"] == 2
    assert found["metrics_lines"] == {"common": 4, "different": 4, "only_a": 0, "only_b": 0}
    assert "metrics.test.auc" in {each["name"] for each in found["results"]}
    a, b = (embexp.load_run(runs / name) for name in ("a", "b"))
    [note] = [each["note"] for each in found["weights"] if (each["kind"], each["name"]) == ("table", "item")]
    other = np.flatnonzero((a.table("item").view("u4") != b.table("item").view("u4")).any(axis=1))
    tokens = Vocabulary.read(runs / "a" / "vocabularies" / "item").tokens()
    rows = ", ".join(f"{row} ({tokens[row]!r})" for row in other[:4])
    assert note.startswith(f"{len(other)} of {len(tokens)} rows differ, the first {rows}")
    weights = [each["name"] for each in found["weights"] if each["kind"] != "table"]
    assert not [name for name in weights if "_variables/" in name]
    assert [name for name in weights if name.endswith("/kernel") and not name.startswith("dense optimizer")]
    assert [name for name in weights if re.fullmatch(r"dense optimizer: (momentum|velocity) of \S+/kernel", name)]
    status, shown = diff(runs / "a", runs / "b", capsys=capsys)
    assert status == 1
    assert "optimizer.learning_rate" in shown
    assert "0.02" in shown


def test_values_that_look_like_markup_are_shown_as_they_are(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shutil.copytree(runs / "a", tmp_path / "other")
    spec = json.loads((other / "spec.json").read_text())
    (other / "spec.json").write_text(json.dumps(spec | {"name": "[bold]x[/bold]"}))
    status, shown = diff(runs / "a", other, capsys=capsys)
    assert status == 1
    assert "[bold]x[/bold]" in shown


def test_a_run_without_checkpoint_or_summary(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = shutil.copytree(runs / "a", tmp_path / "other")
    shutil.rmtree(other / "checkpoints")
    (other / "summary.json").unlink()
    status, shown = diff(runs / "a", other, capsys=capsys)
    assert status == 0
    assert "summaries are not compared" in shown
    assert "final weights are not compared" in shown


def test_mistakes_are_told_in_a_sentence(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["diff", str(runs / "a")]) == 2
    assert "give the directories of two runs" in capsys.readouterr().err
    assert commands.main(["diff", str(runs / "a"), str(tmp_path)]) == 1
    assert "is not the directory of a run" in capsys.readouterr().err


def test_it_needs_no_tensorflow(runs: Path) -> None:
    script = (
        "import sys; from embexp.cli.commands import main\n"
        f"main(['diff', {str(runs / 'a')!r}, {str(runs / 'b')!r}]); print('tensorflow' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.split()[-1] == "False"


def test_slots_of_the_dense_optimizer_are_named_by_their_variables() -> None:
    variables = {
        "m/0": ("dense", "hidden.0/kernel"),
        "m/1": ("dense", "hidden.0/kernel_2"),
        "o/0": ("optimizer", "adam_3/hidden.0_kernel_momentum"),
        "o/1": ("optimizer", "adam_3/hidden.0_kernel_2_velocity"),
        "o/2": ("optimizer", "adam_3/iteration"),
        "r": ("random", None),
    }
    assert readable_names(variables) == {
        "m/0": "hidden.0/kernel",
        "m/1": "hidden.0/kernel_2",
        "o/0": "dense optimizer: momentum of hidden.0/kernel",
        "o/1": "dense optimizer: velocity of hidden.0/kernel_2",
        "o/2": "dense optimizer: iteration",
    }
