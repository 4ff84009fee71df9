"""Which modules are the user's own: found in the source and in the folders of modules, without importing anything."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embexp.system import user_code

BOMB = "raise SystemExit('the module was run')\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder of the user."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    before = set(sys.modules)
    yield tmp_path / "here"
    assert not {name for name in set(sys.modules) - before if name.split(".")[0] in ("mine", "theirs", "random")}


def write(folder: Path, **sources: str) -> None:
    for name, source in sources.items():
        path = folder.joinpath(*name.split("__in__")[::-1]).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source + "\n" + BOMB)


@given(
    st.sampled_from(sorted(sys.stdlib_module_names | set(sys.builtin_module_names))),
    st.sampled_from(["", ".x", ".y.z"]),
)
def test_nothing_of_python_s_library_is_the_user_s(module: str, inner: str) -> None:
    assert user_code.foreign(f"{module}{inner}:f")


@pytest.mark.parametrize(
    "function", ["subprocess:run", "os:system", "builtins:exec", "posix:system", "test.support:run_code"]
)
def test_a_file_of_the_working_directory_hides_no_module(project: Path, function: str) -> None:
    module = function.partition(":")[0].partition(".")[0]
    write(project, **{module: "def run(): ...\ndef system(): ..."})
    assert user_code.foreign(function)


@pytest.mark.parametrize("function", ["numpy:load", "keras:Model", "keras.layers:Dense", "pytest:main", "embexp:run"])
def test_installed_packages_are_not_the_user_s(project: Path, function: str) -> None:
    found = user_code.foreign(function)
    assert "is installed (" in found or "belongs to embexp" in found


def test_modules_of_the_working_directory_and_of_any_other_folder_are(project: Path) -> None:
    write(project, mine="def f(): ...", parts__in__package="def f(): ...")
    (project.parent / "src" / "elsewhere").mkdir(parents=True)
    write(project.parent / "src" / "elsewhere", mine_too="def f(): ...")
    sys.path.insert(0, str(project.parent / "src"))
    for function in ("mine:f", "package.parts:f", "elsewhere.mine_too:f"):
        assert user_code.foreign(function) == ""
        assert user_code.faults_of_function(function, "model.function") == []


def test_an_editable_install_is(project: Path) -> None:
    """By a link in the folder of packages, or by a finder of its own; a copy there is not."""
    packages = project.parent / "lib" / "site-packages"
    write(project.parent / "source", linked="def f(): ...", found="def f(): ...")
    write(packages, theirs="def f(): ...")
    (packages / "linked.py").symlink_to(project.parent / "source" / "linked.py")
    sys.path.append(str(packages))

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            place = project.parent / "source" / "found.py"
            return importlib.util.spec_from_file_location(name, place) if name == "found" else None

    sys.meta_path.append(Finder)  # type: ignore[arg-type]
    assert [user_code.foreign(f"{name}:f") for name in ("linked", "found")] == ["", ""]
    assert user_code.faults_of_function("found:f", "model.function") == []
    assert f"'theirs' is installed ({packages / 'theirs.py'})" in user_code.foreign("theirs:f")


@pytest.mark.parametrize(
    ("source", "name", "told"),
    [
        (
            "from subprocess import run",
            "run",
            "mine imports it, and module 'subprocess' belongs to Python's standard library",
        ),
        ("from os import system as tower", "tower", "module 'os' belongs to Python's standard library"),
        ("try:\n    from subprocess import run\nexcept ImportError: ...", "run", "'subprocess'"),
        ("from keras import *", "Model", "module 'keras' is installed"),
        ("from keras import *\ndef Model(): ...", "Model", ""),
        ("from other import tower", "tower", ""),
        ("from other import execute", "execute", "mine imports it, and other imports it, and module 'subprocess'"),
        ("from mine import tower", "tower", ""),  # in a circle, which Python refuses
        ("def tower():\n    from subprocess import run", "tower", ""),
        ("class tower:\n    from subprocess import run", "tower", ""),
        ("import subprocess\ndef tower(): ...", "tower", ""),
    ],
)
def test_what_a_module_only_imports_is_not_its_own(project: Path, source: str, name: str, told: str) -> None:
    write(project, mine=source, other="from subprocess import run as execute\ndef tower(): ...")
    found = user_code.foreign(f"mine:{name}")
    assert told in found if told else found == ""


def test_a_package_may_pass_on_what_its_modules_define(project: Path) -> None:
    write(
        project,
        __init____in__mine="from .deep import tower, run",
        deep__in__mine="from subprocess import run\ndef tower(): ...",
    )
    assert user_code.foreign("mine:tower") == ""
    assert "'subprocess'" in user_code.foreign("mine:run")


def test_folders_of_installed_packages_are_those_of_this_python() -> None:
    assert Path(sysconfig.get_path("purelib")).resolve() in user_code.installed_folders()
    assert Path(importlib.util.__file__).resolve().parents[1] in user_code.installed_folders()
