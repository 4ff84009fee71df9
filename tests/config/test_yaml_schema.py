"""The JSON schema of the YAML files; the package jsonschema is the judge."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from embexp.cli import commands
from embexp.config import folders, yaml_schema

FOUND = folders.find()
GROUPS = yaml_schema.groups(FOUND)
FILES = [("config", path) for path in FOUND.shipped.glob("*.yaml")]
FILES += [(group, path) for group, choices in FOUND.choices.items() for path in choices.values()]


@functools.cache
def schema_of(group: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(yaml_schema.schema(FOUND, group))


@pytest.mark.parametrize("group", GROUPS)
def test_it_is_a_schema(group: str) -> None:
    jsonschema.Draft7Validator.check_schema(schema_of(group).schema)


@pytest.mark.parametrize(("group", "path"), FILES, ids=lambda each: str(getattr(each, "stem", each)))
def test_every_shipped_file_is_valid(group: str, path: Path) -> None:
    schema_of(group).validate(yaml.safe_load(path.read_text()))


INVALID = {
    "an unknown key": ("config", "trian: {steps: 3}"),
    "an unknown key below": ("config", "train: {stps: 3}"),
    "a number out of range": ("config", "seed: -1"),
    "no number": ("table", "dim: wide"),
    "an unknown choice": ("config", "tables: {item: {combiner: meen}}"),
    "a key of another kind": ("optimizer", "kind: sgd\nbeta_1: 0.9"),
    "a kind of another group": ("optimizer", "kind: mlp"),
    "a refused setting of Hydra": ("config", "hydra: {searchpath: [x]}"),
    "defaults below the top": ("config", "train: {defaults: [x]}"),
    "no mapping": ("config", "[1]"),
}


@pytest.mark.parametrize("case", INVALID)
def test_what_is_wrong(case: str) -> None:
    group, text = INVALID[case]
    assert not schema_of(group).is_valid(yaml.safe_load(text))


VALID = {
    "a part": ("config", "train: {steps: 3}"),
    "an interpolation": ("table", "dim: ${tables.user.dim}"),
    "a missing value": ("config", "name: ???"),
    "a file that starts from another": ("model", "defaults: [dot, _self_]\nleft: [user]"),
    "choices for several places": ("graph", "defaults: [{/table@tables.user: wide}, {override /model: mlp}, _self_]"),
    "settings of Hydra": ("config", "hydra: {run: {dir: x}, callbacks: {mine: {_target_: a.B}}}"),
    "an empty file": ("freeze", "# nothing"),
}


@pytest.mark.parametrize("case", VALID)
def test_what_is_right(case: str) -> None:
    group, text = VALID[case]
    schema_of(group).validate(yaml.safe_load(text))


def test_comments_describe_keys(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# File.\n\n# Two\n# lines.\na:\n  # Inner.\n  b: 1\nc: 2\n# Other.\nd: 3\n")
    expected = [(("a",), "Two lines."), (("a", "b"), "Inner."), (("d",), "Other.")]
    assert list(yaml_schema.comments(tmp_path / "a.yaml")) == expected
    adam = schema_of("optimizer").schema["definitions"]["Adam"]["properties"]
    assert adam["learning_rate"]["description"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.main(["schema", "optimizer"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "embexp: optimizer"
    assert commands.main(["schema", "--out", "one.json"]) == 0
    assert json.loads((tmp_path / "one.json").read_text())["title"] == "embexp: config"
    (tmp_path / "all").mkdir()
    assert commands.main(["schema", "--out", "all"]) == 0
    assert {path.stem for path in (tmp_path / "all").iterdir()} == set(GROUPS)
    capsys.readouterr()
    assert commands.main(["schema", "optimiser"]) == 2
    assert "did you mean optimizer?" in capsys.readouterr().err
    assert commands.main(["schema", "optimizer", "--out", "all"]) == 2
