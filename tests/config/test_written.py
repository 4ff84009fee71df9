"""Where a run writes is said, and no file of a config has hidden folders of the home written."""

from __future__ import annotations

from pathlib import Path

import pytest

from embexp.cli import commands
from embexp.cli.commands import run
from embexp.config import composition
from embexp.config.composition import compose_config, loader
from tests.cli.test_run import FakeRunner

HEAD = "defaults: [config, {override tracking: mlflow}, {override /hydra/sweeper: optuna}, _self_]\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / "work" / "theirs").mkdir(parents=True)
    (home / ".config").mkdir()
    (home / "work" / "link").symlink_to(home / ".config")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.chdir(home / "work")
    return home


@pytest.mark.parametrize(
    ("key", "value", "hidden"),
    [
        ("hydra.run.dir", "{home}/.config/x", True),
        ("hydra.run.dir", "link/x", True),
        ("hydra.run.dir", "~/.config/x", True),
        ("hydra.run.dir", "{home}/work/.hidden", False),
        ("hydra.run.dir", "{home}/runs", False),
        ("hydra.sweep.dir", "${oc.env:HOME}/.ssh", True),
        ("hydra.sweeper.storage", "~/.x/a.db", True),
        ("hydra.sweeper.storage", "sqlite:///{home}/.x/a.db", True),
        ("hydra.sweeper.storage", "postgresql://host/.x", False),
        ("output.cache", "~/.ssh", True),
        ("output.cache", "~/.cache/embexp/mine", False),
        ("tracking.uri", "sqlite:///{home}/.x/a.db", True),
        ("tracking.uri", "{home}/.x", True),
        ("tracking.uri", "http://localhost/.x", False),
    ],
)
def test_a_file_names_no_hidden_folder_of_the_home(key: str, value: str, hidden: bool, home: Path) -> None:
    value = value.replace("{home}", str(home))
    first, *inner = key.split(".")
    Path("theirs/theirs.yaml").write_text(
        f"{HEAD}{first}: {''.join(f'{{{each}: ' for each in inner)}'{value}'{'}' * len(inner)}\n"
    )
    keys = {*composition.IN_RUNS, *composition.IN_SWEEPS}
    found = list(composition.faults_of_places(compose_config(loader("theirs", "theirs"), []), *keys))
    assert [each.path for each in found] == ([key] if hidden else [])
    if hidden:
        assert found[0].source == "theirs/theirs.yaml:2"
        again = found[0].remedy.rpartition(": ")[2].strip("'")
        assert not list(composition.faults_of_places(compose_config(loader("theirs", "theirs"), [again]), *keys))


@pytest.mark.parametrize(("here", "hidden"), [("", True), (".config", False), (".local", True)])
def test_the_working_folder_may_be_the_home_or_hidden(
    here: str, hidden: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / here).mkdir(exist_ok=True)
    monkeypatch.chdir(home / here)
    place = home / "work" / "theirs"
    (place / "theirs.yaml").write_text(f"{HEAD}output: {{cache: {home}/.config/mine}}\n")
    composed = compose_config(loader(place, "theirs"), [])
    assert [each.path for each in composition.faults_of_places(composed, composition.CACHE)] == (
        ["output.cache"] if hidden else []
    )


def test_a_run_is_refused_before_anything_is_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = home / ".config"
    text = f"output: {{cache: {inside}/c}}\nhydra: {{run: {{dir: {inside}/r}}, sweep: {{dir: {inside}/s}}}}\n"
    Path("theirs/theirs.yaml").write_text(f"defaults: [config, _self_]\n{text}")
    for words in (["run"], ["plan"], ["run", "-m", "seed=0,1"], ["plan", "-m", "seed=0,1"]):
        assert commands.main([*words, "--config-dir", "theirs", "-cn", "theirs"]) == 2
        place = "hydra.sweep.dir" if "-m" in words else "hydra.run.dir"
        assert f"choose another path, or set this one on the command line: {place}={inside}/" in capsys.readouterr().err
    assert not list(inside.iterdir())


def test_the_first_line_says_what_files_put_elsewhere(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"output: {{cache: {home}/c}}\nhydra: {{run: {{dir: {home}/r}}, sweep: {{dir: {home}/s}}}}\n"
    Path("theirs/theirs.yaml").write_text(f"defaults: [config, _self_]\n{text}")
    chosen = ["--config-dir", "theirs", "-cn", "theirs"]
    runner = FakeRunner(steps=1)
    cache = f"; cache in {home}/c, set in theirs/theirs.yaml:2"

    def first(*words: str) -> str:
        assert (run.main([*words[1:]], runner=runner) if words[0] == "run" else commands.main([*words])) == 0
        return capsys.readouterr().out.splitlines()[0]

    own = ", set in theirs/theirs.yaml:3"
    assert first("plan", *chosen) == f"writes    {home}/r{own}{cache}"
    assert first("run", *chosen) == f"clicks in {home}/r{own}{cache}"
    assert first("plan", *chosen) == (
        f"writes    {home}/r, which the run would refuse: it already holds a run{own}{cache}"
    )
    assert (
        first("plan", *chosen, "output.existing=continue") == f"writes    {home}/r, whose run is completed{own}{cache}"
    )
    why = f": {home}/r already holds a run; `embexp resume {home}/r` continues it"
    number = f"writes    {home}/r_2{why}{own}{cache}"
    assert first("plan", *chosen, "output.existing=number") == number
    assert first("plan", *chosen, f"hydra.run.dir={home}/q", f"output.cache={home}/c") == f"writes    {home}/q"
    sweep = f"writes    {home}/s, the directory of the sweep{own}{cache}"
    assert first("plan", "-m", *chosen, "seed=0,1") == sweep
    (home / "s").mkdir()
    why = f": {home}/s already exists and holds something else"
    sweep = f"writes    {home}/s_2, the directory of the sweep{why}{own}{cache}"
    assert first("plan", "-m", *chosen, "seed=0,1") == sweep
    assert first("plan", "hydra.run.dir='~/x'") == f"writes    {home}/x"
    assert first("plan").startswith("writes    outputs/")
    assert first("plan").endswith(", named after its start time")
