"""Fields that embexp does not ship: through an entry point of an installed package, and by a path in a config."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import embexp
from embexp.cli.commands import COMMANDS, main
from embexp.config import folders
from embexp.errors import ConfigError, NotARunError, UsageError
from embexp.records.folder import RunFolder
from embexp.runs.finished import ExportKind
from embexp.specs import fields
from embexp.specs.run import RunSpec, data_of, recorded
from tests import stranger
from tests.stranger import EXPERIMENT, RECORD

BY_PATH = (f"fields=[{RECORD}]", *EXPERIMENT)
SHORT = ("output.plots=false", "output.tensorboard=false", "output.baselines=false")


def forget() -> None:
    """Has fields of other packages found anew."""
    stranger.forget(stranger.NAME, "other")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with the field's package and data; the field is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    monkeypatch.setattr(fields, "_teller", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would be taken for a file of the same size and second
    stranger.write_package(tmp_path)
    stranger.write_data(tmp_path)
    yield tmp_path
    sys.path[:] = [each for each in sys.path if not each.startswith(str(tmp_path))]
    forget()


@pytest.fixture
def packages(here: Path) -> Path:
    """A folder on `sys.path` with the field's package, installed; the working directory is another."""
    folder = here / "packages"
    folder.mkdir()
    (here / stranger.NAME).rename(folder / stranger.NAME)
    stranger.install(folder)
    sys.path.insert(0, str(folder))
    forget()
    return folder


def in_package(packages: Path, file: str, old: str, new: str) -> None:
    """Changes a file of the field's package."""
    path = packages / stranger.NAME / file
    text = path.read_text() if path.exists() else ""
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_path_in_the_config_brings_choices_and_tasks(here: Path) -> None:
    spec = embexp.compose(BY_PATH)
    assert (spec.task, spec.model.kind, spec.data.kind, spec.fields) == ("vote", "linear", "guests", (RECORD,))
    assert embexp.RunSpec.model_validate_json(spec.model_dump_json()) == spec
    assert data_of(spec.data.model_dump()) == spec.data
    assert "fields" not in embexp.compose([]).model_dump()


def test_an_entry_point_brings_the_same(packages: Path) -> None:
    spec = embexp.compose(EXPERIMENT)
    assert (spec.task, spec.model.kind, spec.data.kind, spec.fields) == ("vote", "linear", "guests", ())
    assert [str(each) for each in fields.origins() if each.is_own] == ["field votes of guestbook 0.3.1"]


def test_a_file_of_the_user_names_a_field(here: Path) -> None:
    (here / "own/experiment").mkdir(parents=True)
    text = f"# @package _global_\ndefaults: [votes, _self_]\nfields: ['{RECORD}']\n"
    (here / "own/experiment/mine.yaml").write_text(text)
    spec = embexp.compose(["experiment=mine", EXPERIMENT[1]], config_dir=here / "own")
    assert (spec.model.kind, spec.fields) == ("linear", (RECORD,))


def test_settings_are_recorded_where_they_are_not_the_defaults(packages: Path) -> None:
    assert embexp.compose(EXPERIMENT).vote.quorum == 2
    assert "vote" not in embexp.compose(EXPERIMENT).model_dump()
    assert embexp.compose([*EXPERIMENT, "vote.quorum=3"]).model_dump()["vote"] == {"quorum": 3}
    with pytest.raises(ConfigError, match=r"vote\.quorum"):
        embexp.compose([*EXPERIMENT, "vote.quorum=many"])


def test_without_tensorflow_it_is_shown(packages: Path) -> None:
    code = f"""
import os, sys

sys.path.insert(0, {str(packages)!r})
from embexp.cli.commands import main

assert main(["--help"]) == main(["tally", "ann"]) == main(["run", "--help"]) == main(["schema", "model"]) == 0
assert main(["plan", "experiment=votes", "data.path=guests.csv"]) == 0
assert main(["plan", "-m", "experiment=votes", "data.path=guests.csv", "model.scale=1,2"]) == 0
os.environ |= {{"COMP_LINE": "embexp model=li", "COMP_POINT": "15"}}
assert main(["-sc", "query=bash"]) == 0
assert "tensorflow" not in sys.modules
"""
    shown = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    for text in ("    tally ", "tallied ann", "A weight for each input.", '"linear"', "task vote", "model=linear"):
        assert text in shown.stdout


def test_completion_and_schema_take_a_path(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from embexp.cli.commands.completion import candidates

    assert candidates(f"embexp run 'fields=[{RECORD}]' experiment=vo") == ["experiment=votes"]
    assert main(["schema", "model", "--field", RECORD]) == 0
    assert '"linear"' in capsys.readouterr().out


def test_what_is_public_is_light() -> None:
    code = """
import sys
import embexp.fields

assert not {"pydantic", "numpy"} & set(sys.modules)
for name in embexp.fields.__all__:
    getattr(embexp.fields, name)
print("tensorflow" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_names_of_the_core_are_known() -> None:
    brought = {name for field in fields.fields() for name in field.commands}
    assert fields.CORE["commands"] == COMMANDS.keys() - brought
    assert fields.CORE["exports"] == {str(kind) for kind in ExportKind}


FAULTS = {
    "a name of another field": (
        "__init__.py",
        '"linear": ',
        '"dlrm": ',
        "a name that the field columns of embexp already uses",
    ),
    "a name of the core": ("__init__.py", '"linear": ', '"mlp": ', "models has 'mlp', a name that embexp already uses"),
    "a setting of the core": ("__init__.py", '{"vote": "guestbook.specs', '{"train": "guestbook.specs', "'train'"),
    "a command of the core": ("__init__.py", '"tally": ', '"run": ', "commands has 'run'"),
    "another name than its own": ("__init__.py", '"linear": ', '"curved": ', "that object's name is 'linear'"),
    "no field": ("__init__.py", "FIELD = Field(", "FIELD = dict(", "it must be an embexp.fields.Field"),
    "no path": ("__init__.py", '"guestbook.tasks:VOTE"', '"guestbook.tasks"', "must be a path"),
    "no such object": ("__init__.py", "tasks:VOTE", "tasks:BALLOT", "AttributeError"),
    "no task": ("__init__.py", "tasks:VOTE", "tasks:Task", "which is not a Task"),
    "a record that raises": ("__init__.py", "FIELD =", "1 / 0\nFIELD =", "ZeroDivisionError"),
    "a choice that raises": ("specs.py", "class Linear", "1 / 0\nclass Linear", "ZeroDivisionError"),
    "a file of embexp": (
        "configs/model/mlp.yaml",
        "",
        "kind: mlp\n",
        "a file model/mlp.yaml, which embexp already has",
    ),
    "no folder": ("__init__.py", 'configs="configs"', 'configs="yaml"', "there is no folder"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_path_to_what_can_not_be_used_is_a_fault(here: Path, case: str) -> None:
    *change, rule = FAULTS[case]
    in_package(here, *change)
    with pytest.raises(ConfigError) as error:
        embexp.compose(BY_PATH)
    (fault,) = error.value.faults
    assert (fault.path, fault.value) == ("fields", repr(RECORD))
    assert rule in fault.rule
    assert fault.remedy == "change guestbook, or remove it from fields"


@pytest.mark.parametrize("case", ["a name of another field", "no field", "a record that raises", "no task"])
def test_an_installed_field_that_can_not_be_used_is_left_out(
    packages: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    *change, rule = FAULTS[case]
    in_package(packages, *change)
    forget()
    assert main(["run", "--cfg", "job", "-p", "train"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: the field {RECORD} of package guestbook is left out: ")
    assert rule in line
    assert main(["run", "--cfg", "job", *EXPERIMENT]) == 2


def test_in_python_the_warning_is_one_of_python(packages: Path) -> None:
    in_package(packages, "__init__.py", "FIELD = Field(", "FIELD = dict(")
    forget()
    with pytest.warns(RuntimeWarning, match="guestbook is left out"):
        embexp.compose([])


def test_two_fields_bring_the_same_name(here: Path) -> None:
    stranger.write_package(here, "other", votes="elections")
    with pytest.raises(
        ConfigError, match=r"tasks has 'vote', a name that the field votes of guestbook 0\.3\.1 " r"already uses"
    ):
        embexp.compose([f"fields=[{RECORD},other:FIELD]", *EXPERIMENT])


def test_broken_yaml_of_a_field_is_told_with_its_file(packages: Path) -> None:
    in_package(packages, "configs/model/linear.yaml", "scale: 1.0", "scale: [1")
    with pytest.raises(ConfigError, match=r"linear\.yaml:\d"):
        embexp.compose(EXPERIMENT)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("fields=[guestbook:FIELDS]", "defines no 'FIELDS'"),
        ("fields=[guestbok:FIELD]", "there is no module 'guestbok'"),
        ("fields=[json:JSONDecoder]", "belongs to Python's standard library"),
        ("fields=guestbook:FIELD", "it must be a list"),
        ("fields=[7]", "it must be text"),
        ("fields=['${name}:FIELD']", "there is no module"),
    ],
)
def test_a_path_that_leads_nowhere(here: Path, given: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        embexp.compose([given])


def test_a_folder_of_configs_needs_permission(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "theirs").mkdir()
    (here / stranger.NAME).rename(here / "theirs" / stranger.NAME)
    monkeypatch.syspath_prepend(str(here / "theirs"))
    with pytest.raises(ConfigError, match="is in a config folder"):
        embexp.compose(BY_PATH, config_dir=here / "theirs")
    assert embexp.compose(BY_PATH, config_dir=here / "theirs", allow_code=[RECORD]).task == "vote"


def test_several_labels_are_for_tasks_of_several_and_have_no_weights(here: Path) -> None:
    with pytest.raises(ConfigError) as error:
        embexp.compose([*BY_PATH, "+data.second=guest", "data.weight=guest"])
    found = {fault.path: fault.rule for fault in error.value.faults}
    assert found["data.kind"] == "task vote takes one label, but this source has several"
    assert found["data.weight"] == "examples with several labels can't have weights"


def test_a_field_that_was_named_before_is_to_be_named_again(here: Path) -> None:
    spec = embexp.compose(BY_PATH)
    with pytest.raises(ConfigError, match="which fields does not list"):
        embexp.run(spec.model_copy(update={"fields": ()}))
    assert not [each for each in folders.find().brought if not each.is_dir()]


def test_fields_can_not_be_swept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-m", "fields=[a:F],[b:F]"]) == 2
    assert "so it can't be swept or set by an interpolation" in capsys.readouterr().err


def test_changed_code_is_imported_again(here: Path) -> None:
    assert embexp.compose([*BY_PATH, "model.scale=2"]).model.scale == 2
    in_package(here, "specs.py", "scale: float", "factor: float = 3.0\n    scale: float")
    assert embexp.compose(BY_PATH).model.factor == 3


def test_a_run_records_its_field(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = embexp.run([*BY_PATH, *SHORT], here / "run", quiet=True)
    manifest = json.loads((here / "run/manifest.json").read_text())
    (field,) = manifest["fields"]
    assert (field["name"], field["path"], field["package"], field["version"]) == ("votes", RECORD, "guestbook", "0.3.1")
    assert (here / "run/code/guestbook/models.py").read_text() == stranger.FILES["models.py"]
    assert field["digest"] == manifest["user_code"]["digest"]
    assert embexp.load_run(here / "run", allow_code=[RECORD]).voters() == ["guest"]

    forget()
    for command in (["evaluate"], ["predict", "--data", "guests.csv"], ["verify"], ["resume"], ["export", "out"]):
        name, *rest = command
        extra = ["--as", "ballot"] if name == "export" else []
        assert main([name, str(here / "run"), *rest, *extra]) == 2
        assert f"--allow-code {RECORD}" in capsys.readouterr().err
    with pytest.raises(UsageError, match="allow_code"):
        embexp.load_run(here / "run")
    assert main(["export", str(here / "run"), "out", "--as", "ballot", "--allow-code", RECORD]) == 0
    assert (here / "out/ballot.txt").read_text() == "2"

    in_package(here, "models.py", "model.scale *", "0.5 * model.scale *")
    other = embexp.run([*BY_PATH, *SHORT], here / "other", quiet=True)
    assert other.summary["run_id"] != result.summary["run_id"]
    capsys.readouterr()
    main(["diff", str(here / "run"), str(here / "other")])
    assert "guestbook/models.py" in capsys.readouterr().out

    forget()
    (here / stranger.NAME).rename(here / "gone")
    with pytest.raises(NotARunError, match=r"field votes \(guestbook:FIELD\).*: install guestbook==0\.3\.1, or start"):
        embexp.load_run(here / "run", allow_code=[RECORD])


def test_an_installed_field_is_recorded_where_it_is_used(packages: Path) -> None:
    plain = ["data.examples=200", "train.steps=2", *SHORT]
    with_it = embexp.run(plain, "with", quiet=True).summary["run_id"]
    assert json.loads(Path("with/manifest.json").read_text())["fields"] == []
    embexp.run([*EXPERIMENT, *SHORT], "votes", quiet=True)
    (field,) = json.loads(Path("votes/manifest.json").read_text())["fields"]
    assert field["package"] == "guestbook"
    assert embexp.load_run("votes").voters() == ["guest"]
    sys.path.remove(str(packages))
    forget()
    assert embexp.run(plain, "without", quiet=True).summary["run_id"] == with_it
    with pytest.raises(NotARunError, match=r"because it is not installed: install guestbook==0\.3\.1"):
        RunFolder(Path("votes")).recorded_spec()


def test_a_record_imports_nothing_that_is_not_allowed(here: Path) -> None:
    text = embexp.compose(BY_PATH).model_dump_json()
    forget()
    with pytest.raises(UsageError, match=f"spec.json names code to run: {RECORD}"):
        recorded(text, "spec.json")
    assert stranger.NAME not in sys.modules
    fields.allow([RECORD])
    assert isinstance(recorded(text, "spec.json"), RunSpec)
