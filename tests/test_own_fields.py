"""Fields that embexp does not ship: through an entry point of an installed package, and by a path in a config."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import embexp
from embexp.specs import fields
from tests import stranger
from tests.stranger import EXPERIMENT, RECORD

BY_PATH = (f"fields=[{RECORD}]", *EXPERIMENT)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with the field's package and data; the field is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    stranger.write_package(tmp_path)
    stranger.write_data(tmp_path)
    yield tmp_path
    for origin in fields.origins():
        if origin.is_own:
            fields.remove(origin.path)
    fields._allowed.clear()
    for name in [name for name in sys.modules if name.partition(".")[0] in (stranger.NAME, "other")]:
        del sys.modules[name]


@pytest.fixture
def installed(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on `sys.path` with the field's package, for new processes; the working directory is another."""
    folder = here / "packages"
    folder.mkdir()
    (here / stranger.NAME).rename(folder / stranger.NAME)
    stranger.install(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(
        [sys.executable, "-P", "-m", "embexp", *words], capture_output=True, text=True, check=False, env=variables
    )


def test_a_path_in_the_config_brings_choices_and_tasks(here: Path) -> None:
    spec = embexp.compose(BY_PATH)
    assert (spec.task, spec.model.kind, spec.data.kind, spec.fields) == ("vote", "linear", "guests", (RECORD,))
    assert "fields" not in embexp.compose([]).model_dump()
    assert embexp.RunSpec.model_validate_json(spec.model_dump_json()) == spec


def test_an_entry_point_brings_the_same(installed: Path) -> None:
    planned = command("plan", *EXPERIMENT)
    assert planned.returncode == 0, planned.stderr
    assert "task vote" in planned.stdout
    assert "linear" in planned.stdout
