"""The built wheel, installed where there is no checkout, works the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import tensorflow as tf

from embexp.system import native
from tests.thoroughness import thorough

ROOT = Path(__file__).resolve().parents[1]


BUILT = native.library("moves") is not None
"""Whether the wheel is for this platform, with fused operations; else there is no C++ compiler."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    hook = {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": str(BUILT).lower()}
    subprocess.run(command, check=True, capture_output=True, env=os.environ | hook)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel in it; what it depends on is seen from this environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True, capture_output=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    # Paths that a .pth file names are not searched for .pth files themselves, so an editable embexp stays unseen.
    (site / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return folder / "bin"


@pytest.mark.slow
def test_the_wheel_carries_all_configs_and_the_types_marker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "conf").rglob("*.yaml"):
        assert f"embexp/conf/{path.relative_to(ROOT / 'conf')}" in names
    for path in (ROOT / "embexp").rglob("*"):  # the page of a report has styles, scripts and licences
        if path.is_file() and path.suffix not in (".py", ".pyc", ".so") and path.name != ".lock":
            assert str(path.relative_to(ROOT)) in names
    assert "embexp/reports/assets/vendor/NOTICE" in names
    assert {"embexp/py.typed", "hydra_plugins/embexp_launcher.py"} <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


@pytest.mark.slow
def test_a_wheel_with_fused_operations_is_for_one_platform_and_one_tensorflow(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        libraries = {name.rpartition("/")[2] for name in content.namelist() if name.endswith(".so")}
        [metadata] = [name for name in content.namelist() if name.endswith(".dist-info/METADATA")]
        pinned = f"Requires-Dist: tensorflow=={tf.__version__}\n" in content.read(metadata).decode()
    assert libraries == ({native.path(name).name for name in native.names()} if BUILT else set())
    assert (wheel.name.endswith("-py3-none-any.whl"), pinned) == (not BUILT, BUILT)


@pytest.mark.slow
def test_a_run_a_sweep_and_configs_of_ones_own(installed: Path, tmp_path: Path) -> None:
    own = tmp_path / "conf" / "experiment" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(
        "# @package _global_\ndefaults: [clicks, {override /optimizer: adagrad}, _self_]\nname: mine\n"
        "data: {examples: 3000}\ntrain: {steps: 10}\noutput: {plots: false, tensorboard: false}\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*words: str) -> str:
        command = [str(installed / "embexp"), "run", "--config-dir", "conf", "experiment=mine", *words]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    code = "import embexp; print(embexp.__file__)"
    where = subprocess.run([installed / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert str(installed.parent) in where.stdout
    if thorough():  # in every run, the job of a sweep
        run("hydra.run.dir=out")
        assert (tmp_path / "out" / "summary.json").is_file()
    run("-m", "seed=1", "hydra.sweep.dir=swept")
    [path] = (tmp_path / "swept").glob("*/summary.json")
    summary = json.loads(path.read_bytes())
    assert (summary["name"], summary["steps"], summary["status"]) == ("mine", 10, "completed")
    assert bool(summary["fused_operations"]["used"]) is BUILT
