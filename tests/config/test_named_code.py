"""Configs from elsewhere name no code but that of the user's own modules, and composing them imports none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from embexp.cli import commands
from embexp.config import composition, hydra_job, named_code
from embexp.config.composition import compose_config
from embexp.config.hydra_job import Callbacks
from embexp.config.named_code import OWN_MODULES, Permission
from embexp.errors import ConfigError
from tests.cli.test_run import FakeRunner

MARK = "from pathlib import Path\nPath({marker!r}).touch()\n"
EARS = (
    MARK
    + """import os
from hydra.experimental.callback import Callback

class Ears(Callback):
    @classmethod
    def made(cls):
        return cls()
"""
)
ATTACKS = {
    "a callback": ("hydra: {callbacks: {a: {_target_: subprocess.run, args: [touch, MARKER]}}}", "subprocess.run"),
    "a callback of a library": ("hydra: {callbacks: {a: {_target_: numpy.load}}}", "'numpy' is installed"),
    "inside a callback": (
        "hydra: {callbacks: {a: {_target_: ears.Ears, b: [{_target_: os.system, command: touch MARKER}]}}}",
        "'os.system'",
    ),
    "by what an own module imports": (
        "hydra: {callbacks: {a: {_target_: ears.os.system}}}",
        "it must be a class of a module",
    ),
    "by an interpolation": (
        "name: os.system\nhydra: {callbacks: {a: {_target_: '${name}', command: touch MARKER}}}",
        "'os.system'",
    ),
    "by two": ("hydra: {callbacks: {a: {_target_: ears.Ears, b: '\\${oc.create:1}'}}}", "names another interpolation"),
    "a module that is not there": ("hydra: {callbacks: {a: {_target_: nowhere.Ears}}}", "there is no module 'nowhere'"),
    "main": ("hydra: {callbacks: {a: {_target_: __main__.sys.exit}}}", "there is no module '__main__"),
    "a formatter": (
        "hydra: {job_logging: {root: {handlers: []}, formatters: {a: {(): os.system, command: touch MARKER}}}}",
        "'os.system'",
    ),
    "a handler": ("hydra: {job_logging: {root: {handlers: [a]}, handlers: {a: {class: trap.Handler}}}}", ""),
    "a function of logging": (
        "hydra: {job_logging: {root: {handlers: []}, formatters: {a: {(): logging.config.fileConfig, fname: x}}}}",
        "logging.config.fileConfig",
    ),
    "something external": (
        "hydra: {job_logging: {root: {handlers: [a]}, handlers: {a: {class: logging.StreamHandler, stream: "
        "'ext://os.sep'}}}}",
        "config files may refer only to ext://sys.stdout",
    ),
    "a launcher": ("hydra: {launcher: {_target_: subprocess.run}}", "subprocess.run"),
    "inside a launcher": ("hydra: {launcher: {jobs: {_target_: os.system, command: touch MARKER}}}", "os.system"),
    "a sweeper": ("hydra: {sweeper: {_target_: trap.Sweeper}}", "there is no such sweeper"),
    "a folder of configs": ("hydra: {searchpath: ['pkg://trap']}", "configs come from embexp's folder and your own"),
    "a variable": (
        "hydra: {job: {env_set: {TF_PLUGGABLE_DEVICE_LIBRARY_PATH: /evil.so}}}",
        "set it on the command line: hydra.job.env_set.TF_PLUGGABLE_DEVICE_LIBRARY_PATH=VALUE\n"
        "    set in theirs/theirs.yaml:2",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder: `ears` is a module of the user, `trap` an installed one; each leaves a mark when imported."""
    monkeypatch.chdir(tmp_path)
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "trap.py").write_text(MARK.format(marker=str(tmp_path / "pwned")))
    Path("ears.py").write_text(EARS.format(marker=str(tmp_path / "imported")))
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    yield tmp_path
    for name in ("ears", "trap"):
        sys.modules.pop(name, None)


def config_dir(folder: Path, text: str) -> str:
    (folder / "theirs").mkdir()
    content = text.replace("MARKER", str(folder / "pwned"))
    (folder / "theirs" / "theirs.yaml").write_text(f"defaults: [config, _self_]\n{content}\n")
    return str(folder / "theirs")


@pytest.mark.parametrize(
    ("case", "command"),
    [*((case, "run") for case in ATTACKS), *(("a callback", each) for each in ("plan", "run -m", "plan -m"))]
    + [(case, "run -m") for case in ("a launcher", "inside a launcher", "a sweeper")],
)
def test_a_config_folder_from_elsewhere_runs_nothing(
    folder: Path, case: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, told = ATTACKS[case]
    words = [*command.split(), "--config-dir", config_dir(folder, text), "--config-name", "theirs"]
    if command.endswith("-m"):
        words.append("seed=1,2")
    status = commands.main([*words, "train.steps=0"] if case == "a sweeper" and "-m" not in command else words)
    assert status == 2
    found = capsys.readouterr().err
    assert told in found or "train.steps" in found
    assert not (folder / "pwned").exists()
    assert not (folder / "imported").exists()
    assert not Path("outputs").exists()


def test_callbacks_and_logs_of_one_s_own_are_made(folder: Path) -> None:
    words = [
        "+hydra.callbacks.mine._target_=ears.Ears",
        "+hydra.job_logging.formatters.a.class=logging.Formatter",
        "+hydra.job_logging.handlers.a.class=logging.StreamHandler",
        "+hydra.job_logging.handlers.a.stream=ext://sys.stdout",
    ]
    composed = compose_config(composition.loader(), words)
    assert composed.faults == ()
    assert Callbacks(composed.config, OWN_MODULES)._callbacks.keys() == {"mine"}
    assert (folder / "imported").exists()
    assert hydra_job.settings(composed.config, OWN_MODULES).logging is not None


def test_what_is_allowed_may_be_named(folder: Path) -> None:
    words = ["+hydra.callbacks.mine._target_=ears.Ears.made", "+hydra.callbacks.other._target_=trap.Ears"]
    paths = [each.path for each in compose_config(composition.loader(), words).faults]
    assert paths == ["hydra.callbacks.mine._target_", "hydra.callbacks.other._target_"]
    allowed = Permission(frozenset({"ears:Ears.made", "trap:Ears"}))
    assert compose_config(composition.loader(permission=allowed), words).faults == ()


def test_what_a_sweep_has_recorded_may_name_nothing_by_itself(folder: Path) -> None:
    words = ["+hydra.callbacks.mine._target_=ears.Ears", "model=keras", "model.function=ears:Ears", "~model.args"]
    strict = composition.loader(permission=Permission(own=False))
    with pytest.raises(ConfigError) as caught:
        composition.job(strict, words)
    assert {each.path for each in caught.value.faults} == {"hydra.callbacks.mine._target_", "model.function"}
    assert not (folder / "imported").exists()
    allowed = Permission(frozenset({"ears:Ears"}), own=False)
    assert composition.job(composition.loader(permission=allowed), words).spec.model.kind == "keras"


def test_launchers_and_sweepers_that_are_installed_may_be_chosen() -> None:
    config = compose_config(composition.loader(), ["hydra/launcher=basic", "hydra/sweeper=basic"]).config
    assert named_code.faults(config, OWN_MODULES) == []
    assert named_code.faults(config, Permission(own=False)) == []


def test_a_run_with_an_own_callback(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from embexp.cli.commands import run

    runner = FakeRunner()
    assert run.main(["+hydra.callbacks.mine._target_=ears.Ears", "hydra.run.dir=out"], runner=runner) == 0
    assert len(runner.runs) == 1


@pytest.mark.parametrize(
    ("here", "given", "module", "refused"),
    [
        (".", "theirs", "theirs.evil", True),
        (".", "theirs/conf", "theirs.conf.evil", True),
        ("elsewhere", "../theirs", "evil", True),  # by PYTHONPATH
        ("theirs", ".", "evil", False),
        ("theirs/conf", "..", "evil", False),
        (".", "theirs", "own", False),
        (".", "theirs", "linked", True),
    ],
)
def test_code_in_a_folder_of_configs_needs_a_word(
    here: str, given: str, module: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("theirs/conf/evil.py", "theirs/evil.py", "own.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(EARS.format(marker=str(tmp_path / "imported")))
    (tmp_path / "linked.py").symlink_to("theirs/evil.py")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / here)
    monkeypatch.setattr(sys, "path", [*sys.path, *([str(tmp_path / "theirs")] if here == "elsewhere" else [])])
    words = [
        "model=keras",
        f"model.function={module}:Ears",
        "~model.args",
        f"+hydra.callbacks.a._target_={module}.Ears",
    ]
    faults = list(composition.check(compose_config(composition.loader(given), words))[1])
    paths = {"model.function", "hydra.callbacks.a._target_"}
    assert {each.path for each in faults} == (paths if refused else set())
    assert all(each.remedy == f"if you want it to run, allow it: --allow-code {module}:Ears" for each in faults)
    allowed = composition.loader(given, permission=Permission(frozenset({f"{module}:Ears"})))
    assert composition.check(compose_config(allowed, words))[1] == []
    assert not (tmp_path / "imported").exists()
