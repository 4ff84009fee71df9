"""Which files are a user's own code, and what their digest is made of."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from embexp.system import user_code

PACKAGE = {
    "towers/__init__.py": "from towers.sizes import WIDTH\n",
    "towers/deep.py": "import keras\nfrom . import layers\nfrom .parts.heads import head\nimport numpy as np\n",
    "towers/layers.py": "def layer():\n    import towers.late\n",
    "towers/late.py": "from towers.deep import *\n",  # in a circle
    "towers/sizes.py": "WIDTH = 8\n",
    "towers/parts/__init__.py": "",
    "towers/parts/heads.py": "from ..sizes import W\nfrom ...beyond import x\nimport beside, beside_package.inner\n",
    "towers/unused.py": "WIDTH = 9\n",
    "beside.py": "import json\n",
    "beside_package/__init__.py": "",
    "beside_package/inner.py": "import embexp.training.models\n",
    "beside_package/unused.py": "",
    "unused.py": "",
    "site/far.py": "",
}
OWN = {
    "towers": "towers/__init__.py",
    "towers.deep": "towers/deep.py",
    "towers.late": "towers/late.py",
    "towers.layers": "towers/layers.py",
    "towers.parts": "towers/parts/__init__.py",
    "towers.parts.heads": "towers/parts/heads.py",
    "towers.sizes": "towers/sizes.py",
    "beside": "beside.py",
    "beside_package": "beside_package/__init__.py",
    "beside_package.inner": "beside_package/inner.py",
}


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = written(tmp_path / "project", PACKAGE)
    monkeypatch.chdir(folder)
    return folder


def test_the_own_modules_are_followed_and_no_others(project: Path) -> None:
    files = user_code.read_user_code("towers.deep:tower").files
    assert {module: file.name for module, file in files.items()} == OWN
    assert all(file.path == project / file.name and file.content == file.path.read_bytes() for file in files.values())


def test_a_module_alone(project: Path) -> None:
    assert set(user_code.read_user_code("beside:function").files) == {"beside"}


def test_folders_without_init_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(written(tmp_path, {"loose/inner/module.py": "def function(): pass\n"}))
    assert set(user_code.read_user_code("loose.inner.module:function").files) == {"loose.inner.module"}
    assert user_code.faults_of_function("loose.inner.module:function", "model.function") == []
    (fault,) = user_code.faults_of_function("loose.other.module:function", "model.function")
    assert fault.path == "model.function"


def test_an_installed_module_brings_its_own_package_only() -> None:
    files = user_code.read_user_code("rich.table:Table").files
    assert {"rich", "rich.table", "rich.segment"} <= set(files)
    assert {module.split(".")[0] for module in files} == {"rich"}


@pytest.mark.parametrize("function", ["nowhere:function", "sys:exit", "towers.nowhere:function"])
def test_a_module_without_files(project: Path, function: str) -> None:
    assert "nowhere" not in "".join(user_code.read_user_code(function).files)


@pytest.mark.parametrize("name", sorted(OWN.values()))
def test_any_line_of_it_changes_the_digest(project: Path, name: str) -> None:
    before = user_code.read_user_code("towers.deep:tower").digest
    (project / name).write_text((project / name).read_text() + "# more\n")
    assert user_code.read_user_code("towers.deep:tower").digest != before


def test_other_files_and_the_place_do_not(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = user_code.read_user_code("towers.deep:tower").digest
    written(project, {"unused.py": "other", "towers/unused.py": "other", "beside_package/unused.py": "other"})
    assert user_code.read_user_code("towers.deep:tower").digest == before
    shutil.copytree(project, tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert user_code.read_user_code("towers.deep:tower").digest == before


def test_a_source_that_can_not_be_parsed_counts_all_the_same(project: Path) -> None:
    written(project, {"beside.py": "def f(:\n"})
    assert user_code.read_user_code("beside:f").files["beside"].content == b"def f(:\n"


def test_a_changed_file_of_the_same_size_and_time_is_not_taken_from_its_bytecode(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for value in (1, 2, 3):
        written(project, {"quick.py": f"def value(): return {value}\n"})
        os.utime(project / "quick.py", (1, 1))
        assert user_code.NamedFunction("model", "quick:value", {}, "")() == value
    sys.modules.pop("quick")
