"""The outline of a config is what Hydra composes, without Hydra."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from embexp.config import composition, folders
from embexp.config.folders import at, outline

FOUND = folders.find()
CASES: dict[str, list[str]] = {name: [f"experiment={name}"] for name in FOUND.choices["experiment"]}
CASES |= {
    "nothing chosen": [],
    "other models": ["model=mlp", "optimizer=sgd_movielens", "dense_optimizer=sgd"],
    "for a table": ["optimizer@tables.item.optimizer=adam", "init@tables.user.init=assign"],
    "a schedule": ["schedule@optimizer.schedule=cosine"],
    "vectors": ["experiment=text_classification", "vectors=static"],
}


def paths(node: object, prefix: str = "") -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else ():
        if key != "hydra":
            yield f"{prefix}{key}"
            yield from paths(value, f"{prefix}{key}.")


@pytest.mark.parametrize("case", CASES)
def test_keys_and_choices_are_those_of_hydra(case: str) -> None:
    config = composition.loader().compose(CASES[case])
    chosen = dict(each.split("=", 1) for each in CASES[case])
    found = outline(FOUND, "config", chosen)
    assert set(paths(found.values)) == set(paths(OmegaConf.to_container(config)))
    made = dict(config.hydra.runtime.choices)
    for group, choice in found.choices.items():
        assert made[group] == choice
    assert {group for group in made if not group.startswith("hydra/")} <= set(found.choices)


def test_the_users_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("defaults: [mlp, _self_]\ndropout: 0.5\n")
    found = outline(folders.find(tmp_path), "config", {"model": "mine"})
    assert at(found.values, "model.dropout") == 0.5
    assert at(found.values, "model.hidden") is not None
    assert at(found.values, "model.nothing") is None


@pytest.mark.parametrize(
    "text", ["defaults: [self, self]", "defaults: 5", "- a", "a: [", "\x00", "defaults: [{a: [[1]]}]"]
)
def test_broken_files_end(text: str, tmp_path: Path) -> None:
    (tmp_path / "self.yaml").write_text(text)
    assert outline(folders.find(tmp_path), "self").values in ({}, {"hydra": {}})


def test_hydra_is_not_imported() -> None:
    script = (
        "import sys\nfrom embexp.cli.commands.completion import candidates\nassert candidates('embexp run tables.')\n"
        "print([name for name in ('hydra', 'omegaconf', 'pydantic', 'numpy', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("chosen", "file", "refused"),
    [
        ("launcher: basic", "experiment/mine", True),
        ("job_logging: stdout", "experiment/mine", True),
        ("job_logging: none", "experiment/mine", False),  # as config.yaml has it
        ("sweeper: optuna", "experiment/mine", False),  # config.yaml chooses none
        ("launcher: basic", "mine", False),  # the primary config comes first
    ],
)
def test_a_choice_of_hydra_in_a_file_is_made_or_refused(chosen: str, file: str, refused: bool, tmp_path: Path) -> None:
    path = tmp_path / f"{file}.yaml"
    path.parent.mkdir(exist_ok=True)
    before = "config" if file == "mine" else "clicks"
    head = "" if file == "mine" else "# @package _global_\n"
    path.write_text(f"{head}defaults: [{before}, {{override /hydra/{chosen}}}, _self_]\nname: mine\n")
    found = composition.loader(tmp_path, "config" if head else "mine")
    words = ["experiment=mine"] if head else []
    composed = composition.compose_config(found, words)
    group, choice = f"hydra/{chosen}".split(": ")
    if not refused:
        assert composed.faults == ()
        assert composed.config.hydra.runtime.choices[group] == choice
        return
    [fault] = composed.faults
    assert (fault.path, fault.source) == (group, str(path))
    assert fault.remedy == f"choose it in the command line: {group}={choice}"
    mended = composition.compose_config(found, [*words, f"{group}={choice}"])
    assert mended.faults == ()
    assert mended.config.hydra.runtime.choices[group] == choice
